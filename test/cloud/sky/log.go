package sky

import (
	"regexp"
	"strconv"
	"time"
)

// Call is one request to the API.
type Call struct {
	// Client is the name in the token.
	Client string
	// Member, Shard and Term are from the User-Agent. They are empty for a client without a fence.
	Member, Shard string
	Term          int
	// Method and Path are HTTP's.
	Method, Path string
	// UID is the Service's, if the call is about a load balancer.
	UID string
	// Balancer is the one that was created, changed or deleted.
	Balancer string
	// Begin is when the cloud received the call, End when its answer was ready. End is zero while
	// the call goes on.
	Begin, End time.Time
	// Effect is when the call took effect, or zero if it did not.
	Effect time.Time
	// Status is the answer's status code.
	Status int
}

// Writes reports whether the call could change anything.
func (c Call) Writes() bool { return c.Method != "GET" }

var agent = regexp.MustCompile(`flotilla \(member=([^;]*); shard=([^;]*); term=(\d+)\)`)

// identify sets who calls.
func (c *Call) identify(userAgent string) {
	if found := agent.FindStringSubmatch(userAgent); found != nil {
		c.Member, c.Shard = found[1], found[2]
		c.Term, _ = strconv.Atoi(found[3])
	}
}
