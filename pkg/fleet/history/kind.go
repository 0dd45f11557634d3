package history

// Kind says what happened. The values are stable, and docs/concepts.md explains them.
type Kind string

// What happens to shards, and to the plan's Lease, whose holder is the planner.
const (
	// Acquired: To holds what nobody held, or holds it again in another term.
	Acquired Kind = "acquired"
	// Released: From has released it.
	Released Kind = "released"
	// HandedOver: it went from From to To after From had released it.
	HandedOver Kind = "handed-over"
	// TakenOver: it went from From to To without a release.
	TakenOver Kind = "taken-over"
	// Expired: nothing was heard of its holder, From, for the Lease's duration.
	Expired Kind = "expired"
	// Asked: To has asked From for it.
	Asked Kind = "asked"
	// Ready: To holds a shard and is ready to run it, once those of an older plan have stopped.
	Ready Kind = "ready"
	// Running: the shard's controllers run at To.
	Running Kind = "running"
)

// What happens to members.
const (
	// Joined: an incarnation of Member has acquired the member's Lease.
	Joined Kind = "joined"
	// Active: Member counts for the rings.
	Active Kind = "active"
	// Leaving: Member hands over its shards and gets no others.
	Leaving Kind = "leaving"
	// Left: Member has released its Lease.
	Left Kind = "left"
	// Silent: Member has not renewed its Lease for the Lease's duration.
	Silent Kind = "silent"
	// Returned: the same incarnation of a silent Member has renewed its Lease.
	Returned Kind = "returned"
	// Drained: an operator has asked that Member gets no shards.
	Drained Kind = "drained"
	// Undrained: an operator has taken that back.
	Undrained Kind = "undrained"
	// PlanRefused: Member cannot work by plan generation To.
	PlanRefused Kind = "plan-refused"
)

// What happens to the plan, and to any Lease.
const (
	// PlanChanged: the plan is another one. From and To are generations; From is empty if there was
	// no plan that could be read.
	PlanChanged Kind = "plan-changed"
	// PlanUnreadable: what is in the plan's place cannot be read, or nothing is.
	PlanUnreadable Kind = "plan-unreadable"
	// FleetStopped: an operator has asked the fleet to stand by.
	FleetStopped Kind = "fleet-stopped"
	// FleetStarted: an operator has taken that back.
	FleetStarted Kind = "fleet-started"
	// LeaseDeleted: somebody has deleted a Lease, which no member does.
	LeaseDeleted Kind = "lease-deleted"
)

// IsStep reports whether it is a step on the way from one holder to the next, which changes neither
// of them.
func (k Kind) IsStep() bool { return k == Asked || k == Ready || k == Running }
