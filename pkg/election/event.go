package election

import "time"

// EventType is what an Event reports. The values are stable and few enough for a metric label.
type EventType string

const (
	// EventWaiting: the Lease is wanted and cannot be acquired yet. Reported when reason or holder
	// changes.
	EventWaiting EventType = "waiting"
	// EventAcquired: a claim has begun. Duration is how long the request took.
	EventAcquired EventType = "acquired"
	// EventStarted: the work has started.
	EventStarted EventType = "started"
	// EventRenewed: the claim has been renewed. Duration is how long the request took.
	EventRenewed EventType = "renewed"
	// EventDraining: the work has been asked to stop as planned.
	EventDraining EventType = "draining"
	// EventEnded: the claim has ended for Reason. Duration is how long it had lasted.
	EventEnded EventType = "ended"
	// EventReturned: the work of a lost claim has returned. Duration is the time since the claim
	// ended.
	EventReturned EventType = "returned"
	// EventReleased: the Lease has been released. Duration is how long the request took.
	EventReleased EventType = "released"
	// EventAsked: the holder has been asked for the Lease. Duration is how long the request took.
	EventAsked EventType = "asked"
	// EventConflict: a request lost to another write. The Lease has been read again.
	EventConflict EventType = "conflict"
	// EventStruck: this process judged the Lease's member dead and listed Holder as ended on it.
	// Duration is how long the request took.
	EventStruck EventType = "struck"
	// EventUnmarked: this member has taken its Lease over from Holder, its last incarnation, and was
	// not allowed to mark that as fenced, because of Err.
	EventUnmarked EventType = "unmarked"
	// EventFailed: a request failed with Err. It is retried while that makes sense.
	EventFailed EventType = "failed"
)

// Event is a step in the life of a claimant, for metrics and Kubernetes events.
type Event struct {
	Type EventType
	// Name of the Lease.
	Name string
	// Term of the claim concerned; 0 if there is none.
	Term int32
	// Reason, for EventEnded and EventWaiting.
	Reason Reason
	// Holder that the Lease named when last seen; empty if none. If a member waits because of
	// another's protocol, it is that member's incarnation.
	Holder string
	// Action whose request the event is about: EventAcquired, EventRenewed, EventReleased,
	// EventConflict, EventFailed.
	Action Action
	// Duration, see the types.
	Duration time.Duration
	// Err, for EventFailed, EventConflict and EventUnmarked, and for EventWaiting if a member must
	// not join the fleet as it is.
	Err error
}

// StuckClaim describes work that has not returned in time.
type StuckClaim struct {
	// Name of the Lease.
	Name string
	// Term of the claim.
	Term int32
	// Reason why the claim ended; empty while the claim still holds and its work was asked to stop
	// as planned.
	Reason Reason
	// Since is how long ago the claim ended, or the work was asked to stop.
	Since time.Duration
}
