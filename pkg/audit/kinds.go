package audit

// Kind says which rule was broken.
type Kind string

// The rules, each by how it is broken.
const (
	// WrongRange: the object's namespace is not in the range of the shard.
	WrongRange Kind = "wrong range"
	// WrongScope: a namespaced shard wrote a cluster-scoped object that does not belong to it.
	WrongScope Kind = "wrong scope"
	// WrongController: the controller is not among those that the shard's Lease named.
	WrongController Kind = "wrong controller"
	// NotHolder: the shard's Lease did not name the writer, or not with that term.
	NotHolder Kind = "not the holder"
	// UnknownShard: the shard is in no plan, and no Lease said what it covers.
	UnknownShard Kind = "unknown shard"
	// BadAgent: the fence's part of the User-Agent cannot be read.
	BadAgent Kind = "bad user agent"
	// Unfenced: the binary wrote without the fence's part.
	Unfenced Kind = "unfenced"
	// TermReused: a Lease got a new holder without a greater term, or its term went back.
	TermReused Kind = "term reused"
	// TakenEarly: a Lease got a new holder before the old holder's time had run out; or the fleet
	// took a leader lock before its holder's time had run out.
	TakenEarly Kind = "taken early"
	// HolderNotEnded: a shard's Lease was taken from a holder that had neither released it nor
	// ended.
	HolderNotEnded Kind = "holder had not ended"
	// WriterEnded: the writer was listed as ended on its member's Lease, and nobody had taken the
	// shard yet.
	WriterEnded Kind = "writer had ended"
	// EndedEarly: an incarnation was listed as ended before its member's Lease had been unchanged
	// for its duration.
	EndedEarly Kind = "ended too early"
	// BeatAfterEnd: an incarnation renewed its member's Lease after it was listed as ended.
	BeatAfterEnd Kind = "heartbeat after the end"
	// Overlapping: the Lease continued with a term although another one had begun.
	Overlapping Kind = "overlapping terms"
	// OverlappingShards: a write was made under the claim of a shard while another shard with an
	// overlapping extent was held by a claim that had begun to work.
	OverlappingShards Kind = "overlapping shards"
	// WrongLayout: a Lease gives a wrong extent for its shard, by the shard's name, by the plan or
	// by what it said before; or the fleet wrote a plan that may not follow the last one.
	WrongLayout Kind = "wrong layout"
	// DuplicatePod: a pod was created beyond the number that its owner wanted.
	DuplicatePod Kind = "duplicate pod"
	// DuplicateReplicaSet: a ReplicaSet was created for a Deployment that had one with the same
	// template.
	DuplicateReplicaSet Kind = "duplicate ReplicaSet"
	// DuplicateJob: a Job was created for a time for which its CronJob had already created one.
	DuplicateJob Kind = "duplicate Job"
	// DuplicateSlice: an EndpointSlice was created with an endpoint that another slice of its
	// Service had.
	DuplicateSlice Kind = "duplicate EndpointSlice"
	// WantedPodDeleted: a pod was deleted that its owner wanted.
	WantedPodDeleted Kind = "wanted pod deleted"
	// OwnedDeleted: the garbage collector deleted an object that had an owner.
	OwnedDeleted Kind = "owned object deleted"
	// LeaderLockNotHeld: the member waits for a leader lock, a Lease of somebody else, which did
	// not name the fleet.
	LeaderLockNotHeld Kind = "leader lock not held"
	// LeaseDeleted: somebody deleted a shard's Lease, or the plan's.
	LeaseDeleted Kind = "Lease deleted"
)

// Reasons why something is undecided.
const (
	// LeaseHole: a write of a shard's Lease was made on a version that no write in the log has
	// made; or a write was made under a claim while the Lease's content is not in the log.
	LeaseHole Kind = "hole in the Lease's history"
	// LeaseUnanswered: a write of a shard's Lease ended without an answer, and the log does not
	// have what it asked for.
	LeaseUnanswered Kind = "Lease write without an answer"
	// EndUnknown: the log lacks a write of a member's Lease that may have listed a holder as ended.
	EndUnknown Kind = "end of the holder not known"
	// LogGap: the log lacks a member's heartbeats for longer than its Lease lasts.
	LogGap Kind = "gap in the log"
	// LongFlight: a write was in progress when its term ended, and for longer than the API server
	// allows.
	LongFlight Kind = "in flight for too long"
	// LateFlight: a write arrived after the Lease had run out, when its sender should have stopped,
	// and took effect after the next holder had begun.
	LateFlight Kind = "in flight from after the end"
)

// Kinds returns all kinds of violations, and all reasons for which something is undecided.
func Kinds() (violations, undecided []Kind) {
	return []Kind{
			WrongRange, WrongScope, WrongController, NotHolder, UnknownShard, BadAgent,
			Unfenced, TermReused, TakenEarly, HolderNotEnded, WriterEnded, EndedEarly, BeatAfterEnd, Overlapping, OverlappingShards, WrongLayout,
			DuplicatePod, DuplicateReplicaSet, DuplicateJob, DuplicateSlice, WantedPodDeleted, OwnedDeleted,
			LeaderLockNotHeld, LeaseDeleted,
		}, []Kind{
			LeaseHole, LeaseUnanswered, EndUnknown, LogGap, LongFlight, LateFlight,
		}
}
