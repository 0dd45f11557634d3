package election

import (
	"time"

	"github.com/flotilla-kube/flotilla/pkg/election/heartbeat"
)

// Desired is the state that a claimant is to reach.
type Desired int

const (
	// Released means: hold nothing. A held claim is drained and released.
	Released Desired = iota
	// Retained means: hold on to what is held, and acquire nothing. A holder does so until its next
	// holder asks for the Lease.
	Retained
	// Held means: acquire when free, and hold.
	Held
)

func (d Desired) String() string {
	return [...]string{"Released", "Retained", "Held"}[d]
}

// ClaimPhase is where a claimant stands. The package comment has the diagram.
type ClaimPhase int

const (
	// Idle: no right is held and nothing runs. The Lease may still name this incarnation.
	Idle ClaimPhase = iota
	// Acquired: the right is held and nothing runs yet.
	Acquired
	// Running: the right is held and the work runs.
	Running
	// Draining: the right is held and the work has been asked to stop.
	Draining
	// Lost: the right has ended and the work has not returned yet.
	Lost
)

func (p ClaimPhase) String() string {
	return [...]string{"Idle", "Acquired", "Running", "Draining", "Lost"}[p]
}

// Action is the one thing that a step asks for.
type Action int

const (
	// Wait: nothing, until something changes or Output.Wake has come.
	Wait Action = iota
	// Create the Lease with this incarnation as holder of Output.Term.
	Create
	// Acquire: update the Lease as observed, with this incarnation as holder of Output.Term.
	Acquire
	// Renew: update the Lease as observed, with the same holder and term, to write changed
	// annotations.
	Renew
	// Ask: update the annotations of the Lease as observed, with a request for it. Nothing that
	// counts as a sign of life is changed.
	Ask
	// Release: fetch the Lease and clear the holder if it is still this incarnation.
	Release
	// Start the work.
	Start
	// Drain: ask the work to stop. The right stays.
	Drain
	// End the claim, for Output.Reason. Its context ends and its fence closes.
	End
	// Rest: the work of a lost claim has returned.
	Rest
	// Stuck: work that was asked to stop, or whose claim was lost, has not returned in time: the
	// process must end.
	Stuck
)

func (a Action) String() string {
	return [...]string{"Wait", "Create", "Acquire", "Renew", "Ask", "Release", "Start", "Drain", "End", "Rest", "Stuck"}[a]
}

// Reason says why a claim has ended or why a claimant waits. The values are stable and few enough
// for a metric label.
type Reason string

const (
	// ReasonDrained: the claim ended as planned, after its work had returned.
	ReasonDrained Reason = "drained"
	// ReasonUnwanted: the claim was to be released before the work was started.
	ReasonUnwanted Reason = "unwanted"
	// ReasonWorkReturned: the work returned without being asked to.
	ReasonWorkReturned Reason = "work-returned"
	// ReasonRevoked: ClaimantConfig.Revoked was closed.
	ReasonRevoked Reason = "revoked"
	// ReasonRenewDeadline: no heartbeat was confirmed in time; for a leader lock, no renewal
	// succeeded in time.
	ReasonRenewDeadline Reason = "renew-deadline"
	// ReasonOtherHolder: the Lease names another holder.
	ReasonOtherHolder Reason = "other-holder"
	// ReasonCleared: somebody else has cleared the holder.
	ReasonCleared Reason = "cleared"
	// ReasonTermChanged: the Lease names this incarnation with a term that is not the claim's.
	ReasonTermChanged Reason = "term-changed"

	// ReasonNoRight: the member's heartbeat has ended, or has not begun.
	ReasonNoRight Reason = Reason(heartbeat.ReasonNoRight)
	// ReasonStruck: the member's Lease lists this incarnation as ended.
	ReasonStruck Reason = Reason(heartbeat.ReasonStruck)
	// ReasonProtocol: a live member follows another protocol.
	ReasonProtocol Reason = Reason(heartbeat.ReasonProtocol)
	// ReasonHung: the member's loops have not come round since its last heartbeat.
	ReasonHung Reason = Reason(heartbeat.ReasonHung)

	// ReasonHeld: another holder's Lease has not expired.
	ReasonHeld Reason = "held"
	// ReasonAbsent: the Lease does not exist, but not for long enough to be created.
	ReasonAbsent Reason = "absent"
	// ReasonUnknown: the Leases have not been listed yet.
	ReasonUnknown Reason = "unknown"
	// ReasonTermsExhausted: leaseTransitions is at its highest value. Somebody must have written
	// that.
	ReasonTermsExhausted Reason = "terms-exhausted"
)

// Planned reports whether a claim that ended for this reason ended as its own process wanted.
func (r Reason) Planned() bool {
	return r == ReasonDrained || r == ReasonUnwanted || r == ReasonWorkReturned
}

// State is what a claimant remembers between steps. The zero value is Idle.
type State struct {
	Phase ClaimPhase
	// Term of the claim that is held or was held last.
	Term int32
	// LastRenew is the start of the last heartbeat that was confirmed while the claim was held.
	LastRenew time.Time
	// DrainingSince is when the work was asked to stop; used in Draining.
	DrainingSince time.Time
	// EndedAt is when the claim ended; used in Lost.
	EndedAt time.Time
	// TermAsked is the highest term that this incarnation has ever asked for. A Lease that names it
	// in another one is forged.
	TermAsked int32
	// NotBefore is when the next request may be sent, after a failed one.
	NotBefore time.Time
	// Asked is when the Lease was last asked for.
	Asked time.Time
	// Warned is set once Stuck has been asked for.
	Warned bool
}

// held reports whether the right is held.
func (s State) held() bool {
	return s.Phase == Acquired || s.Phase == Running || s.Phase == Draining
}

// acquired returns the state after a request has acquired term.
func (s State) acquired(term int32) State {
	return State{Phase: Acquired, Term: term, TermAsked: s.TermAsked}
}

// stuckAt is when the work of a lost claim must have returned: LeaseDuration after the last
// heartbeat. If the process was suspended beyond that, the work gets as long as it gets after a
// missed renew deadline, behind a closed fence.
func (s State) stuckAt(timing Timing) time.Time {
	expiry := s.LastRenew.Add(timing.LeaseDuration)
	if grace := s.EndedAt.Add(timing.LeaseDuration - timing.RenewDeadline); grace.After(expiry) {
		return grace
	}
	return expiry
}
