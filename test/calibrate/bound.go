package calibrate

import (
	"fmt"
	"time"
)

// What is promised on a machine with time to spare.
const (
	// Handoff is for how long a shard has no holder in a planned move, p99.
	Handoff = 250 * time.Millisecond
	// Takeover is what comes on top of the lease duration until the shards of a dead member are
	// held by others, counted from its death.
	Takeover = time.Second
	// LeaderLockWritten is for how long the leader lock has no holder when somebody has cleared or
	// deleted it while the fleet runs.
	LeaderLockWritten = 500 * time.Millisecond
	// LeaderLockToFleet and LeaderLockToStock are for how long nobody holds the leader lock in a
	// planned move that releases it. Stock replicas must look for it every quarter of a second.
	LeaderLockToFleet, LeaderLockToStock = 500 * time.Millisecond, time.Second
	// NobodyWrites is for how long no controller writes in such a move, under load.
	NobodyWrites = 5 * time.Second
)

// AfterRenewal returns within what time a Lease of a dead member must be another one's, counted
// from its last renewal. That was a retry period before the death at most, as was that of the
// member's own Lease, without whose end its shards have no other owner.
func AfterRenewal(lease, retry time.Duration) time.Duration { return lease + retry + Takeover }

// Steps of what is promised that wait for a write and a timer of the machine, one after the other.
// A handoff has the release, the event and the acquisition, and as much again for what moves at the
// same time; a takeover has the Lease of the member before it; who starts, fills caches.
const (
	HandoffSteps  = 6
	TakeoverSteps = 8
	StartSteps    = 40
)

// Bound is a promise and the machine that it is held on.
type Bound struct {
	// What is promised, and how long it may take.
	What     string
	Promised time.Duration
	// Steps is how many times in a row a write and a timer of the machine are waited for in it.
	Steps int
	On    Machine
}

// Limit returns what is promised and what the steps may take longer on the machine.
func (b Bound) Limit() time.Duration {
	return b.Promised + time.Duration(b.Steps)*(b.On.Write+b.On.Timer)
}

// String returns the limit, and how it comes about.
func (b Bound) String() string {
	return fmt.Sprintf("at most %v: %v are promised, and %d steps on a machine on which %v", millis(b.Limit()), b.Promised, b.Steps, b.On)
}

// Check returns an error if it took longer than the limit.
func (b Bound) Check(took time.Duration) error {
	if took <= b.Limit() {
		return nil
	}
	return fmt.Errorf("%s: %v, must be %v", b.What, millis(took), b)
}
