package audit

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// agentMark begins the part of a User-Agent that a fence adds.
const agentMark = "flotilla ("

// memberMark is in the User-Agent of a member's requests for its own Lease and those of its shards.
const memberMark = "/fleet-member/"

// senderOf returns the name of the member in a User-Agent; empty if there is none.
func senderOf(agent string) string {
	_, name, _ := strings.Cut(agent, memberMark)
	if i := strings.IndexAny(name, "/ "); i >= 0 {
		name = name[:i]
	}
	return strings.Clone(name)
}

// builtAgent is the form in which client-go names a binary: its name, version, platform and commit.
var builtAgent = regexp.MustCompile(`^[^/ ]+/[^ ]+ \([^()]*\) kubernetes/[^/ ]+`)

// unstamped ends a builtAgent of a program that was built without a commit, as `go build` does it.
// Many programs of a cluster have the same one, such as "manager/v0.0.0".
const unstamped = " kubernetes/$Format"

// asAccount stands between such a build and the account that it counts with.
const asAccount = " as "

// programOf returns a build without the account.
func programOf(build string) string {
	program, _, _ := strings.Cut(build, asAccount)
	return program
}

// Identity is the claim that a request names in its User-Agent.
type Identity struct {
	// Member is the incarnation.
	Member string
	// Shard is the shard that the controllers belong to.
	Shard shard.ID
	// Term is the term of the claim; 0 if the fence was closed.
	Term int32
}

// String returns "<incarnation> for <ring>/<shard>, term <term>".
func (i Identity) String() string {
	return fmt.Sprintf("%s for %s, term %d", i.Member, i.Shard, i.Term)
}

// ParseAgent returns the identity in a User-Agent, and whether there is one. A User-Agent with the
// fence's mark that does not continue in the right form, for example because it was cut off, is an
// error.
func ParseAgent(agent string) (Identity, bool, error) {
	// A binary called flotilla begins its User-Agent with "flotilla/".
	i := strings.LastIndex(agent, agentMark)
	if i < 0 || i > 0 && agent[i-1] != ' ' {
		return Identity{}, false, nil
	}
	id, err := parseIdentity(agent[i+len(agentMark):])
	if err != nil {
		return Identity{}, true, fmt.Errorf("user agent %q: %w", agent, err)
	}
	return id, true, nil
}

func parseIdentity(part string) (Identity, error) {
	part, closed := strings.CutSuffix(part, ")")
	fields := strings.Split(part, "; ")
	if !closed || len(fields) != 3 {
		return Identity{}, fmt.Errorf("must end with member, shard and term in parentheses")
	}
	var values [3]string
	for i, name := range []string{"member", "shard", "term"} {
		value, ok := strings.CutPrefix(fields[i], name+"=")
		if !ok || value == "" {
			return Identity{}, fmt.Errorf("%q must be %s=<%s>", fields[i], name, name)
		}
		values[i] = value
	}
	id, err := shard.ParseID(values[1])
	if err != nil {
		return Identity{}, err
	}
	term, err := strconv.ParseInt(values[2], 10, 32)
	if err != nil || term < 0 {
		return Identity{}, fmt.Errorf("term %q must be a number from 0 to 2^31-1", values[2])
	}
	return Identity{Member: values[0], Shard: id, Term: int32(term)}, nil
}
