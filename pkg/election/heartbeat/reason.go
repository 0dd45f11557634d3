package heartbeat

import "time"

// Reason says why a right or a claim has ended, or why there is nothing to do but wait. The values
// are stable and few enough for a metric label.
type Reason string

// The reasons that this package gives.
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
	// ReasonLeft: the member leaves, and holds nothing any more.
	ReasonLeft Reason = "left"
	// ReasonNoRight: the member has no right at the moment, so it claims nothing.
	ReasonNoRight Reason = "no-right"

	// ReasonHeld: another holder's Lease is not free.
	ReasonHeld Reason = "held"
	// ReasonAbsent: the Lease does not exist, but not for long enough to be created.
	ReasonAbsent Reason = "absent"
	// ReasonUnknown: the Leases have not been listed yet.
	ReasonUnknown Reason = "unknown"
	// ReasonTermsExhausted: leaseTransitions is at its highest value. Somebody must have
	// written that.
	ReasonTermsExhausted Reason = "terms-exhausted"
	// ReasonProtocol: a live member follows another protocol.
	ReasonProtocol Reason = "protocol"
	// ReasonHung: the member's loops have not come round since the last heartbeat, so no other
	// one is sent.
	ReasonHung Reason = "hung"
)

// Timing holds the durations of a fleet, which must be those of all of its members. Package
// election has their defaults and bounds.
type Timing struct {
	// LeaseDuration is how long a member's Lease must stand still before others may list its
	// holder as ended.
	LeaseDuration time.Duration
	// RenewDeadline is how long a right lasts after the start of the last confirmed heartbeat.
	// It is less than LeaseDuration.
	RenewDeadline time.Duration
	// RetryPeriod is the time between heartbeats, and after a failed request until the next.
	RetryPeriod time.Duration
}

// MemberOf returns the member that an incarnation, "<member>_<uuid>", belongs to: what stands
// before the last underscore. It is empty if there is none.
func MemberOf(incarnation string) string {
	for i := len(incarnation) - 1; i >= 0; i-- {
		if incarnation[i] == '_' {
			return incarnation[:i]
		}
	}
	return ""
}
