package election

import (
	"time"

	"github.com/flotilla-kube/flotilla/pkg/election/heartbeat"
)

// Desired is the state that a claimant should reach.
type Desired int

const (
	// Released: hold nothing. A held claim is drained and released.
	Released Desired = iota
	// Retained: keep a held claim, and acquire nothing. A holder stays in it until the next holder
	// asks for the Lease.
	Retained
	// Held: acquire the Lease when it is free, and hold it.
	Held
)

func (d Desired) String() string {
	return [...]string{"Released", "Retained", "Held"}[d]
}

// ClaimPhase is a claimant's phase. The package comment has the diagram.
type ClaimPhase int

const (
	// Idle: there is no right and nothing runs. The Lease may still name this incarnation.
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

// Action is what a step asks for.
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
	// Ask: update the annotations of the Lease as observed, with a request for it. This is no one's
	// heartbeat.
	Ask
	// Unask: the same, to withdraw that request.
	Unask
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
	// Stuck: work that was asked to stop, or whose claim was lost, has not returned in time. The
	// process must end.
	Stuck
)

func (a Action) String() string {
	return [...]string{"Wait", "Create", "Acquire", "Renew", "Ask", "Unask", "Release", "Start", "Drain", "End", "Rest", "Stuck"}[a]
}

// Reason is why a claim has ended or a claimant waits. The values are stable and few enough for a
// metric label.
type Reason string

const (
	// ReasonDrained: the claim ended as planned, after its work had returned.
	ReasonDrained Reason = "drained"
	// ReasonUnwanted: the claim was released before its work started.
	ReasonUnwanted Reason = "unwanted"
	// ReasonWorkReturned: the work returned without being asked.
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
	// ReasonHung: one of the member's loops has not iterated since its last heartbeat.
	ReasonHung Reason = Reason(heartbeat.ReasonHung)

	// ReasonHeld: another holder's Lease has not expired.
	ReasonHeld Reason = "held"
	// ReasonAbsent: the Lease does not exist, but has not been absent for long enough to be
	// created.
	ReasonAbsent Reason = "absent"
	// ReasonUnknown: the Leases have not been listed yet.
	ReasonUnknown Reason = "unknown"
	// ReasonTermsExhausted: leaseTransitions is at its maximum, which somebody must have written by
	// hand.
	ReasonTermsExhausted Reason = "terms-exhausted"
)

// Planned reports whether a claim that ended for this reason ended without being lost.
func (r Reason) Planned() bool {
	return r == ReasonDrained || r == ReasonUnwanted || r == ReasonWorkReturned
}

// State is what a claimant keeps between steps. The zero value is Idle.
type State struct {
	Phase ClaimPhase
	// Term of the current or last claim.
	Term int32
	// LastRenew is the start of the last heartbeat confirmed while the claim was held.
	LastRenew time.Time
	// DrainingSince is when the work was asked to stop. It is used in Draining, and in Lost after it;
	// zero if the work was not asked before the claim ended.
	DrainingSince time.Time
	// EndedAt is when the claim ended. It is used in Lost.
	EndedAt time.Time
	// TermAsked is the highest term that this incarnation has ever requested. A Lease that names
	// the incarnation in another term is forged.
	TermAsked int32
	// NotBefore is when the next request may be sent after a failed one.
	NotBefore time.Time
	// Asked is when the Lease was last asked for.
	Asked time.Time
	// Warned is set once a step has returned Stuck.
	Warned bool
}

// held reports whether the phase is one in which the claimant has the right.
func (s State) held() bool {
	return s.Phase == Acquired || s.Phase == Running || s.Phase == Draining
}

// acquired returns the state after a request has acquired term.
func (s State) acquired(term int32) State {
	return State{Phase: Acquired, Term: term, TermAsked: s.TermAsked}
}
