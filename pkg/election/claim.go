package election

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// ErrDraining is the cause of the work's context once the work has been asked to stop as planned.
// The claim still holds then.
var ErrDraining = errors.New("claim is draining")

// Heartbeat keeps a member's claims alive. Package membership implements it. Its methods are safe
// for concurrent use and do not block.
type Heartbeat interface {
	// Confirmed returns the start of the last confirmed heartbeat, and reports whether it gives
	// rights: they last until RenewDeadline after start, unless the membership has ended. Without a
	// confirmed heartbeat it returns zero and false.
	Confirmed() (start time.Time, right bool)
}

// EndedError is the cause of a claim's context once the claim has ended.
type EndedError struct {
	// Name of the Lease.
	Name string
	// Term of the claim.
	Term int32
	// Reason why it ended.
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
// are safe for concurrent use. Once invalid, a claim stays invalid.
type Claim struct {
	name     string
	identity string
	term     int32
	timing   Timing
	lease    types.UID
	before   Observation
	// heartbeat is nil if the claim is endless. holds reports whether the Lease was last seen with
	// the claim's holder and term.
	heartbeat Heartbeat
	holds     func() bool

	ctx      context.Context // The claim is a value with a lifetime, and this is the lifetime.
	cancel   context.CancelCauseFunc
	draining chan struct{}

	mu      sync.Mutex
	ended   bool
	drained bool
}

// newClaim returns a claim that is valid while the heartbeat gives a right and holds returns true.
// Its context derives from ctx; if ctx cannot be cancelled, only end ends the claim.
func newClaim(ctx context.Context, name, identity string, term int32, heartbeat Heartbeat, holds func() bool, timing Timing) *Claim {
	c := &Claim{
		name: name, identity: identity, term: term, timing: timing, heartbeat: heartbeat, holds: holds, draining: make(chan struct{}),
	}
	c.ctx, c.cancel = context.WithCancelCause(ctx)
	return c
}

// EndlessClaim returns a claim of term 0 that has no Lease and holds until ctx ends. A process that
// runs without leader election uses it, so that one code path serves both.
func EndlessClaim(ctx context.Context, name, identity string) *Claim {
	return newClaim(ctx, name, identity, 0, nil, nil, Timing{})
}

// Name returns the name of the Lease.
func (c *Claim) Name() string { return c.name }

// Identity returns the incarnation that holds the claim.
func (c *Claim) Identity() string { return c.identity }

// LeaseUID returns the UID of the Lease that this claim acquired; empty for an endless claim. A
// claim whose Lease is deleted creates another one, which has another UID.
func (c *Claim) LeaseUID() types.UID { return c.lease }

// Before returns the Lease that this claim acquired, as observed before: its last holder, if that
// had not released it, and what that holder left behind. If the answer to an acquisition was lost,
// it is the Lease as it was before the first attempt. It is zero for an endless claim.
func (c *Claim) Before() Observation { return c.before }

// Term returns the claim's number: leaseTransitions, 1 or more; 0 for an endless claim.
func (c *Claim) Term() int32 { return c.term }

// Context ends when the right does, with an *EndedError as its cause. It outlives a drain, because
// draining work may still write. It may end late if the process was suspended: call Valid before
// each write, or let a Fence do it.
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

// Deadline returns LastRenew + RenewDeadline: no write may start from then on, unless a heartbeat
// moves it. It is zero, which means never, for an endless claim.
func (c *Claim) Deadline() time.Time {
	if c.heartbeat == nil {
		return time.Time{}
	}
	return c.LastRenew().Add(c.timing.RenewDeadline)
}

// Expiry returns LastRenew + LeaseDuration: from then on others may take over and no write may be
// under way, unless a heartbeat moves it. It is zero, which means never, for an endless claim.
func (c *Claim) Expiry() time.Time {
	if c.heartbeat == nil {
		return time.Time{}
	}
	return c.LastRenew().Add(c.timing.LeaseDuration)
}

// Valid reports whether a write may start at now, which must be a fresh reading of the fleet's
// Clock.
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

// drain closes the channel of Draining.
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
