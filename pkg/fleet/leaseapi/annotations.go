package leaseapi

import "github.com/flotilla-kube/flotilla/pkg/election/leaserecord"

// Labels of the fleet's Leases.
const (
	// FleetLabel names the fleet, on each of its Leases.
	FleetLabel = leaserecord.FleetLabel
	// RingLabel and ShardLabel name the shard of a shard's Lease.
	RingLabel  = "flotilla.dev/ring"
	ShardLabel = "flotilla.dev/shard"
	// KindLabel tells the API server's fence what a Lease is for: [KindMember] or [KindPlan].
	KindLabel = "flotilla.dev/kind"
)

// Values of [KindLabel].
const (
	KindMember = "member"
	KindPlan   = "plan"
)

// Annotations of a shard's Lease, written by its holder.
const (
	// RangeAnnotation is the shard's part of the keyspace. It is missing if the shard is a group of
	// cluster-scoped controllers.
	RangeAnnotation = "flotilla.dev/range"
	// ControllersAnnotation lists the shard's controllers, sorted, comma separated. With the range
	// it says what the Lease covers, whichever plan the reader knows.
	ControllersAnnotation = "flotilla.dev/controllers"
	// LacksAnnotation lists the controllers of the shard that its holder's build does not have and
	// so does not run, comma separated. It is missing if there are none.
	LacksAnnotation = "flotilla.dev/lacks"
	// ReadyAnnotation has the term of a holder that waits, with everything prepared, for its
	// shard's predecessors.
	ReadyAnnotation = "flotilla.dev/ready"
	// RunningAnnotation has the term of a holder that runs the shard.
	RunningAnnotation = "flotilla.dev/running"
	// CensusAnnotation has the weight of the shard's namespaces; see [CensusOn].
	CensusAnnotation = "flotilla.dev/census"
	// RecentWritesAnnotation has how much the shard's controllers have written; see
	// [RecentWritesOn].
	RecentWritesAnnotation = "flotilla.dev/recent-writes"
)

// Annotations of shards' and of members' Leases.
const (
	// PlanAnnotation is the digest of the plan by which a member, or a shard's holder, works.
	PlanAnnotation = "flotilla.dev/plan"
	// GenerationAnnotation is the generation of that plan; on the plan's Lease, of the plan there.
	GenerationAnnotation = "flotilla.dev/plan-generation"
	// MemoryAnnotation has the memory that a shard takes at its holder, see [ShardMemory], or, on a
	// member's Lease, the memory that the member takes, see [Memory]. When a shard changes hands
	// the value stays until the new holder has counted.
	MemoryAnnotation = "flotilla.dev/memory"
)

// Annotations of a member's Lease. The member writes them, except [DrainAnnotation].
const (
	// RingsAnnotation lists the rings that a member serves, comma separated. It is missing if the
	// member serves all.
	RingsAnnotation = "flotilla.dev/rings"
	// LeaderLocksAnnotation lists the foreign Leases that a member waits for, comma separated. It
	// is missing if there are none. Members that differ are misconfigured.
	LeaderLocksAnnotation = "flotilla.dev/leader-locks"
	// NodeAnnotation and ZoneAnnotation say where a member runs. They are missing if it does not
	// know.
	NodeAnnotation = "flotilla.dev/node"
	ZoneAnnotation = "flotilla.dev/zone"
	// DrainAnnotation is set by an operator. Whatever its value, the member gets no shards and
	// hands over those that it has. It stays until an operator removes it, even when the member
	// restarts.
	DrainAnnotation = "flotilla.dev/drain"
	// RefusedAnnotation says which plan generation a member refuses, and why.
	RefusedAnnotation = "flotilla.dev/refused-plan"
	// CatalogueAnnotation has what the member's build knows of controllers; see [skew.Known]. It is
	// missing if the build has no catalogue or predates catalogues.
	CatalogueAnnotation = "flotilla.dev/catalogue"
	// FormatAnnotation has the newest format of plans that the member's build reads; see
	// [PlanFormat]. Builds that predate formats refuse a plan with a canary.
	FormatAnnotation = "flotilla.dev/plan-format"
	// StillAnnotation is there while the member is still. Its value is the [StopAnnotation] that
	// the member obeys. A still member runs nothing, and does not keep the leader locks.
	StillAnnotation = "flotilla.dev/still"
	// UseAnnotation has what the member's process uses besides memory; see [Use]. Builds that
	// predate it do not write it.
	UseAnnotation = "flotilla.dev/use"
	// HealthAnnotation has the health of the member's controllers; see [Health]. It is separate
	// because builds that do not know it read [UseAnnotation].
	HealthAnnotation = "flotilla.dev/health"
)

// Annotations of the plan's Lease.
const (
	// DocumentAnnotation has the plan, as [shard.Plan.Document] writes it.
	DocumentAnnotation = "flotilla.dev/plan-document"
	// RejectedAnnotation has the text in the plan's place that could not be used, after the planner
	// has restored the plan.
	RejectedAnnotation = "flotilla.dev/rejected-plan"
	// LastGoodAnnotation has the plan by which the planner works, as [shard.Plan.Packed] writes it.
	// Members that start judge the plan by it, and work by it if the plan cannot be used. The
	// planner keeps it up to date.
	LastGoodAnnotation = "flotilla.dev/last-good-plan"
	// StopAnnotation is set by an operator and stops the fleet, see [Stop]: every member releases
	// its shards and runs nothing, and the last one releases the leader locks. It stays until an
	// operator removes it.
	StopAnnotation = "flotilla.dev/stop"
)
