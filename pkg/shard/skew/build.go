package skew

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// Build is what a build of the program knows about controllers. The zero value knows every
// controller, and adapts no plan. It must not be changed once it is shared.
type Build struct {
	// Version is the build's version, such as "v1.37.1": the newest live build writes the plan.
	Version string
	// Controllers are all controllers that it knows, in any order.
	Controllers []Controller
	// Rings are the names of the rings that a controller goes to, by scope, if a plan has them.
	Rings map[shard.Scope]string
	// ColocateWith has for a group the group that it goes with, see [shard.Shard].
	ColocateWith map[string]string
}

// Controller is what a build knows about one controller.
type Controller struct {
	// Name is its name in a plan.
	Name string
	// Scopes are the scopes of the rings in which it can run, the intended one first.
	Scopes []shard.Scope
	// Earlier is the one of Scopes in which plans of the previous version have it, empty for none.
	// The planner moves it from there to the first of Scopes, once all can run it there.
	Earlier shard.Scope
	// Group is the group that it goes to in a ring of scope cluster.
	Group string
	// Fixed leaves the place of the controller in a plan to operators.
	Fixed bool
	// OnRequest leaves to operators whether it is in a plan at all.
	OnRequest bool
}

// anything reports whether the build knows nothing about controllers, and so can run any.
func (b Build) anything() bool { return len(b.Controllers) == 0 }

func (b Build) controller(name string) (Controller, bool) {
	i := slices.IndexFunc(b.Controllers, func(c Controller) bool { return c.Name == name })
	if i < 0 {
		return Controller{}, false
	}
	return b.Controllers[i], true
}

// Runs reports whether a member of this build can run the controller in a ring of this scope.
func (b Build) Runs(name string, scope shard.Scope) bool {
	c, known := b.controller(name)
	return b.anything() || known && slices.Contains(c.Scopes, scope)
}

// Lacks returns those of the controllers, from a ring of this scope, that a member of this build
// cannot run there; nil for none.
func (b Build) Lacks(controllers []string, scope shard.Scope) []string {
	var lacks []string
	for _, name := range controllers {
		if !b.Runs(name, scope) {
			lacks = append(lacks, name)
		}
	}
	return lacks
}

// Known returns what others know about a member of this build.
func (b Build) Known() Known {
	k := Known{Version: b.Version, anything: b.anything()}
	var lines []string
	for _, c := range b.Controllers {
		for _, scope := range c.Scopes {
			k.prints = append(k.prints, printOf(c.Name, scope))
			lines = append(lines, string(scope)+" "+c.Name+"\n")
		}
	}
	slices.Sort(k.prints)
	k.prints = slices.Compact(k.prints)
	slices.Sort(lines)
	k.Digest = fmt.Sprintf("%016x", xxhash.Sum64String(strings.Join(lines, "")))
	return k
}

// Known is what a member has published about its build: enough to ask whether it knows a
// controller. The zero value knows none.
type Known struct {
	// Version is the build's version. Digest is the same for two builds that know the same.
	Version, Digest string
	anything        bool
	prints          []fingerprint // sorted
}

// fingerprint stands for one controller in one scope: 24 bits.
type fingerprint uint32

const printBytes = 3

func printOf(name string, scope shard.Scope) fingerprint {
	return fingerprint(xxhash.Sum64String(string(scope)+"/"+name) >> (64 - 8*printBytes))
}

// String returns the text that a member publishes, of some 250 bytes: version, digest and the
// fingerprints of its controllers. ParseKnown is its inverse. It is empty for a build that knows
// every controller.
func (k Known) String() string {
	if k.anything {
		return ""
	}
	var raw []byte
	for _, p := range k.prints {
		raw = append(raw, byte(p>>16), byte(p>>8), byte(p))
	}
	return k.Version + " " + k.Digest + " " + base64.RawURLEncoding.EncodeToString(raw)
}

// ParseKnown reads what a member has published. The error says what is wrong with it.
func ParseKnown(text string) (Known, error) {
	parts := strings.Split(text, " ")
	if len(parts) != 3 {
		return Known{}, fmt.Errorf("catalogue %.100q: must be version, digest and fingerprints", text)
	}
	raw, err := base64.RawURLEncoding.DecodeString(parts[2])
	if err != nil || len(raw)%printBytes != 0 {
		return Known{}, fmt.Errorf("catalogue %.100q: fingerprints must be of %d bytes each, in base64", text, printBytes)
	}
	k := Known{Version: parts[0], Digest: parts[1]}
	for p := range slices.Chunk(raw, printBytes) {
		k.prints = append(k.prints, fingerprint(p[0])<<16|fingerprint(p[1])<<8|fingerprint(p[2]))
	}
	slices.Sort(k.prints)
	return k, nil
}

// Runs reports whether the member can run the controller in a ring of this scope.
func (k Known) Runs(name string, scope shard.Scope) bool {
	_, found := slices.BinarySearch(k.prints, printOf(name, scope))
	return k.anything || found
}

// Knows reports whether the member can run the controller in some ring.
func (k Known) Knows(name string) bool {
	return k.Runs(name, shard.ScopeNamespaced) || k.Runs(name, shard.ScopeCluster)
}

// Apt reports whether the member may get shards of the ring: the ring has no controller that the
// member can run only in another scope. A controller that the member does not know does not matter:
// it runs the others.
func (k Known) Apt(ring shard.Ring) bool {
	misplaced := func(name string) bool { return !k.Runs(name, ring.Scope) && k.Knows(name) }
	return !slices.ContainsFunc(ring.Controllers, misplaced) &&
		!slices.ContainsFunc(ring.Shards, func(s shard.Shard) bool { return slices.ContainsFunc(s.Controllers, misplaced) })
}

// Newer reports whether version a is later than b. A version that cannot be read is earlier than
// all that can.
func Newer(a, b string) bool {
	x, errX := version.ParseGeneric(a)
	y, errY := version.ParseGeneric(b)
	switch {
	case errX != nil:
		return false
	case errY != nil:
		return true
	}
	if semX, err := version.ParseSemantic(a); err == nil {
		if semY, err := version.ParseSemantic(b); err == nil {
			return semY.LessThan(semX)
		}
	}
	return y.LessThan(x)
}
