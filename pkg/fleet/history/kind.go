package history

// Kind says what happened. The values are stable, and docs/concepts.md explains them.
type Kind string

// What happens to shards, and to the plan's Lease, whose holder is the planner.
const (
	// Acquired: To holds what nobody held, or holds it again in another term.
	Acquired Kind = "acquired"
	// Released: From released it.
	Released Kind = "released"
	// HandedOver: it went from From to To after From had released it.
	HandedOver Kind = "handed-over"
	// TakenOver: it went from From to To without a release.
	TakenOver Kind = "taken-over"
	// Expired: its holder, From, was silent for the Lease's duration.
	Expired Kind = "expired"
	// Asked: To has asked From for it.
	Asked Kind = "asked"
	// Ready: To holds a shard and is ready to run it once those of an older plan have stopped.
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
	// Drained: an operator has drained Member.
	Drained Kind = "drained"
	// Undrained: an operator has ended the drain.
	Undrained Kind = "undrained"
	// PlanRefused: Member cannot work by plan generation To.
	PlanRefused Kind = "plan-refused"
)

// What happens to the plan, and to any Lease.
const (
	// PlanChanged: the plan has changed. From and To are generations; From is empty if there was no
	// readable plan.
	PlanChanged Kind = "plan-changed"
	// PlanUnreadable: the plan's place has something unreadable, or nothing.
	PlanUnreadable Kind = "plan-unreadable"
	// FleetStopped: an operator has stopped the fleet.
	FleetStopped Kind = "fleet-stopped"
	// FleetStarted: an operator has started the fleet again.
	FleetStarted Kind = "fleet-started"
	// LeaseDeleted: somebody has deleted a Lease that was not retired. No member does that.
	LeaseDeleted Kind = "lease-deleted"
)

// IsStep reports whether it is a step on the way from one holder to the next that changes neither.
func (k Kind) IsStep() bool { return k == Asked || k == Ready || k == Running }
