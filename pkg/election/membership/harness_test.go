package membership

import (
	"fmt"
	"testing"
	"time"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/election/leasetest"
)

const (
	s = time.Second
	// leaseName is the Lease of the shard that most tests claim.
	leaseName = "f-ns-01"
)

// harness is a bubble with processes that have memberships.
type harness struct {
	*leasetest.Bubble
	// wrap, if set, is put around the client of a membership.
	wrap func(*leasetest.Client) Leases
}

// inBubble runs test in a bubble.
func inBubble(t *testing.T, test func(t *testing.T, h *harness)) {
	t.Helper()
	leasetest.InBubble(t, func(t *testing.T, b *leasetest.Bubble) { test(t, &harness{Bubble: b}) })
}

// node is what all processes have.
type node struct {
	*harness
	*leasetest.Process
	name     string
	client   *leasetest.Client // of the membership and the claims
	watch    *leasetest.Client // of the observer
	clock    *leasetest.JumpClock
	observer *election.Observer
	linger   time.Duration // how long the work takes to return
}

// newNode returns a process that does not run yet. Its observer uses clock; nil for its own.
func (h *harness) newNode(name string, clock election.Clock) *node {
	h.T.Helper()
	n := &node{
		harness: h, name: name, client: h.Store.Client(name), watch: h.Store.Client(name), clock: &leasetest.JumpClock{},
	}
	if clock == nil {
		clock = n.clock
	}
	var err error
	n.observer, err = election.NewObserver(election.ObserverConfig{Fleet: "f", Client: n.watch, Clock: clock})
	if err != nil {
		h.T.Fatal(err)
	}
	return n
}

func (n *node) event(e election.Event) {
	if e.Type == election.EventRenewed || e.Reason == election.ReasonUnknown {
		return // Whether the first step knows anything is up to the scheduler.
	}
	line := fmt.Sprintf("%s %s", n.name, e.Type)
	if e.Term != 0 {
		line += fmt.Sprintf(" %d", e.Term)
	}
	if e.Reason != "" {
		line += fmt.Sprintf(" (%s)", e.Reason)
	}
	if e.Type == election.EventWaiting && e.Err != nil {
		line += ": " + e.Err.Error()
	}
	n.Logf("%s", line)
}

func (n *node) stuck(s election.StuckClaim) {
	n.Logf("%s stuck %d (%s) since %v", n.name, s.Term, s.Reason, s.Since)
}

// at returns a time, in seconds after an epoch.
func at(seconds float64) time.Time {
	return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(seconds * float64(time.Second)))
}

// seen returns an existing Lease of holder whose spec last changed at the given second.
func seen(holder string, second float64) election.Observation {
	return election.Observation{
		Record: leaserecord.Record{Name: "f-s", Holder: holder, Transitions: 1, Duration: 15 * time.Second, ResourceVersion: "7"},
		Exists: true, Seen: at(second), HolderSeen: at(second), HighTerm: 1,
	}
}
