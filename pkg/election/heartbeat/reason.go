package heartbeat

import "time"

// Reason is why a right or a claim has ended, or why a step waits. The values are stable and few
// enough for a metric label.
type Reason string

// The reasons of this package.
const (
	// ReasonRenewDeadline: no heartbeat was confirmed in time.
	ReasonRenewDeadline Reason = "renew-deadline"
	// ReasonOtherHolder: the Lease names another holder.
	ReasonOtherHolder Reason = "other-holder"
	// ReasonCleared: somebody else has cleared the holder.
	ReasonCleared Reason = "cleared"
	// ReasonTermChanged: the Lease names this incarnation with a term that is not the claim's.
	ReasonTermChanged Reason = "term-changed"
	// ReasonDrained: the claim ended as planned, after its work had returned.
	ReasonDrained Reason = "drained"
	// ReasonStruck: the member's Lease lists this incarnation as ended.
	ReasonStruck Reason = "struck"
	// ReasonLeft: the member leaves, and has released everything.
	ReasonLeft Reason = "left"
	// ReasonNoRight: the member has no right at the moment, so it claims nothing.
	ReasonNoRight Reason = "no-right"

	// ReasonHeld: another holder's Lease is not free.
	ReasonHeld Reason = "held"
	// ReasonAbsent: the Lease does not exist, but has not been absent for long enough to be
	// created.
	ReasonAbsent Reason = "absent"
	// ReasonUnknown: the Leases have not been listed yet.
	ReasonUnknown Reason = "unknown"
	// ReasonTermsExhausted: leaseTransitions is at its maximum, which somebody must have written by
	// hand.
	ReasonTermsExhausted Reason = "terms-exhausted"
	// ReasonProtocol: a live member follows another protocol.
	ReasonProtocol Reason = "protocol"
	// ReasonHung: one of the member's loops has not iterated since the last heartbeat, so no
	// further one is sent.
	ReasonHung Reason = "hung"
)

// Timing holds the durations of a fleet, which all of its members must share. Package election has
// their defaults and bounds.
type Timing struct {
	// LeaseDuration is how long a member's Lease must be unchanged before others may list its
	// holder as ended.
	LeaseDuration time.Duration
	// RenewDeadline is how long a right lasts after the start of the last confirmed heartbeat.
	// It is less than LeaseDuration.
	RenewDeadline time.Duration
	// RetryPeriod is the time between heartbeats, and from a failed request to the next.
	RetryPeriod time.Duration
}
