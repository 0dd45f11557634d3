package calibrate

import (
	"fmt"
	"time"
)

// The promises, on a machine with time to spare.
const (
	// Handoff is how long a shard is unowned in a planned move, p99.
	Handoff = 250 * time.Millisecond
	// Takeover is the time after a dead member's last renewal, beyond the lease duration, until
	// others hold its shards.
	Takeover = time.Second
	// LeaderLockWritten is how long the leader lock has no holder after somebody has cleared or
	// deleted it while the fleet runs.
	LeaderLockWritten = 500 * time.Millisecond
	// LeaderLockToFleet and LeaderLockToStock are how long nobody holds the leader lock in a
	// planned move that releases it. Stock replicas must check for it every quarter of a second.
	LeaderLockToFleet, LeaderLockToStock = 500 * time.Millisecond, time.Second
	// NobodyWrites is how long no controller writes in such a move, under load.
	NobodyWrites = 5 * time.Second
)

// AfterRenewal returns within what time of its last renewal a dead member's shards must be others'.
// All of them come free in the instant in which it is listed as ended.
func AfterRenewal(lease time.Duration) time.Duration { return lease + Takeover }

// Steps of each promise that wait in sequence for a write and a timer of the machine. A handoff has
// the release, the event and the acquisition, and as much again for simultaneous moves. A takeover
// adds the member's Lease before that. A start also fills caches.
const (
	HandoffSteps  = 6
	TakeoverSteps = 8
	StartSteps    = 40
)

// Bound is a promise and the machine on which it is checked.
type Bound struct {
	// What is promised, and how long it may take.
	What     string
	Promised time.Duration
	// Steps is how many times in sequence it waits for a write and a timer of the machine.
	Steps int
	On    Machine
}

// Limit returns the promised time plus what the steps take on the machine.
func (b Bound) Limit() time.Duration {
	return b.Promised + time.Duration(b.Steps)*(b.On.Write+b.On.Timer)
}

// String returns the limit, and how it is computed.
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
