package election

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// ErrDraining is the cause of the work's context once the work has been asked to stop as planned.
// The claim still holds.
var ErrDraining = errors.New("claim is draining")

// Heartbeat is what keeps a member's claims alive. [Membership] is one. Its methods are safe for
// concurrent use and do not block.
type Heartbeat interface {
	// Confirmed returns the start of the last heartbeat that is confirmed, and whether rights
	// come of it: they do until RenewDeadline after it, if the membership has not ended before.
	// It is zero and false if none is.
	Confirmed() (start time.Time, right bool)
}

// EndedError is the cause of a claim's context once the claim has ended.
type EndedError struct {
	// Name of the Lease.
	Name string
	// Term of the claim.
	Term int32
	// Reason it ended for.
	Reason Reason
	// Holder that the Lease named when the claim ended; empty if none.
	Holder string
}

func (e *EndedError) Error() string {
	if e.Reason == ReasonOtherHolder {
		return fmt.Sprintf("claim on %s, term %d, ended: %s %q", e.Name, e.Term, e.Reason, e.Holder)
	}
	return fmt.Sprintf("claim on %s, term %d, ended: %s", e.Name, e.Term, e.Reason)
}

// Claim is a holder's time-limited right to what a Lease stands for, during one term. Its methods
// are safe for concurrent use. Once a claim is invalid it stays so.
type Claim struct {
	name     string
	identity string
	term     int32
	timing   Timing
	before   Observation
	// heartbeat is nil if the claim is endless. holds reports whether the Lease, as it was seen
	// last, is the claim's.
	heartbeat Heartbeat
	holds     func() bool

	ctx      context.Context // The claim is a value with a lifetime, and this is the lifetime.
	cancel   context.CancelCauseFunc
	draining chan struct{}

	mu      sync.Mutex
	ended   bool
	drained bool
}

// newClaim returns a claim that is valid while the heartbeat gives a right and holds says so. ctx
// gives it its values; the claim ends by end alone if ctx cannot be cancelled.
func newClaim(ctx context.Context, name, identity string, term int32, heartbeat Heartbeat, holds func() bool, timing Timing) *Claim {
	c := &Claim{
		name: name, identity: identity, term: term, timing: timing, heartbeat: heartbeat, holds: holds, draining: make(chan struct{}),
	}
	c.ctx, c.cancel = context.WithCancelCause(ctx)
	return c
}

// EndlessClaim returns a claim without a Lease behind it, of term 0, that holds until ctx ends: for
// a process that runs without leader election, so that one path of code serves both.
func EndlessClaim(ctx context.Context, name, identity string) *Claim {
	return newClaim(ctx, name, identity, 0, nil, nil, Timing{})
}

// Name returns the name of the Lease.
func (c *Claim) Name() string { return c.name }

// Identity returns the incarnation that holds the claim.
func (c *Claim) Identity() string { return c.identity }

// Before returns what the Lease was when this claim acquired it: its last holder, or none if that
// had released it, and what was left behind. It is zero for an endless claim.
func (c *Claim) Before() Observation { return c.before }

// Term returns the claim's number: leaseTransitions, 1 or more; 0 for an endless claim.
func (c *Claim) Term() int32 { return c.term }

// Context ends when the right does, with an *EndedError as its cause. It outlives a drain: whoever
// is draining may still write. It may end late if the process was suspended; ask Valid before each
// write, or let a Fence do it.
func (c *Claim) Context() context.Context { return c.ctx }

// Draining returns a channel that is closed once the work has been asked to stop as planned.
func (c *Claim) Draining() <-chan struct{} { return c.draining }

// LastRenew returns the start of the last confirmed heartbeat of the claim's member; zero for an
// endless claim.
func (c *Claim) LastRenew() time.Time {
	if c.heartbeat == nil {
		return time.Time{}
	}
	start, _ := c.heartbeat.Confirmed()
	return start
}

// Deadline returns the time from which on no write may start unless a heartbeat moves it: LastRenew
// + RenewDeadline. It is zero, which means never, for an endless claim.
func (c *Claim) Deadline() time.Time {
	if c.heartbeat == nil {
		return time.Time{}
	}
	return c.LastRenew().Add(c.timing.RenewDeadline)
}

// Expiry returns the time at which others may take over unless a heartbeat moves it, and no write
// may be under way any more: LastRenew + LeaseDuration. It is zero, which means never, for an
// endless claim.
func (c *Claim) Expiry() time.Time {
	if c.heartbeat == nil {
		return time.Time{}
	}
	return c.LastRenew().Add(c.timing.LeaseDuration)
}

// Valid reports whether a write may start at now, a reading of the fleet's Clock taken for this
// question.
func (c *Claim) Valid(now time.Time) bool {
	c.mu.Lock()
	ended := c.ended || c.ctx.Err() != nil
	c.mu.Unlock()
	if ended || c.heartbeat == nil {
		return !ended
	}
	start, right := c.heartbeat.Confirmed()
	return right && now.Before(start.Add(c.timing.RenewDeadline)) && c.holds()
}

// drain closes Draining.
func (c *Claim) drain() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.drained {
		c.drained = true
		close(c.draining)
	}
}

// end makes the claim invalid for good and then cancels its context.
func (c *Claim) end(reason Reason, holder string) {
	c.mu.Lock()
	c.ended = true
	c.mu.Unlock()
	c.cancel(&EndedError{Name: c.name, Term: c.term, Reason: reason, Holder: holder})
}
