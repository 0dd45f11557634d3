package leaseapi

// Labels of the fleet's Leases.
const (
	// FleetLabel names the fleet, on every Lease of it.
	FleetLabel = "flotilla.dev/fleet"
	// RingLabel and ShardLabel name what a shard's Lease is for.
	RingLabel  = "flotilla.dev/ring"
	ShardLabel = "flotilla.dev/shard"
	// KindLabel says what a Lease is for, where the API server's fence must tell: [KindMember] or
	// [KindPlan].
	KindLabel = "flotilla.dev/kind"
)

// Values of [KindLabel].
const (
	KindMember = "member"
	KindPlan   = "plan"
)

// Annotations of a shard's Lease, written by its holder.
const (
	// RangeAnnotation is the shard's part of the keyspace; it is missing where the shard is a group
	// of cluster-scoped controllers.
	RangeAnnotation = "flotilla.dev/range"
	// ControllersAnnotation lists the shard's controllers, sorted, comma separated. With the range
	// it says what the Lease covers, whichever plan the reader knows.
	ControllersAnnotation = "flotilla.dev/controllers"
	// LacksAnnotation lists the controllers of the shard that its holder's build does not have and
	// so does not run, comma separated; it is missing where there are none.
	LacksAnnotation = "flotilla.dev/lacks"
	// ReadyAnnotation has the term of a holder that waits, with everything prepared, for its
	// shard's predecessors.
	ReadyAnnotation = "flotilla.dev/ready"
	// RunningAnnotation has the term of a holder that runs the shard.
	RunningAnnotation = "flotilla.dev/running"
	// CensusAnnotation has what the shard's namespaces weigh, see [CensusOn].
	CensusAnnotation = "flotilla.dev/census"
)

// Annotations of shards' and of members' Leases.
const (
	// PlanAnnotation is the digest of the plan that a member, or a shard's holder, works by.
	PlanAnnotation = "flotilla.dev/plan"
	// GenerationAnnotation is the generation of that plan; on the plan's Lease, of the plan there.
	GenerationAnnotation = "flotilla.dev/plan-generation"
	// MemoryAnnotation has what a shard takes of its holder's memory, see [ShardMemory]; on a
	// member's Lease, what the member takes, see [Memory]. It stays when a shard changes hands,
	// until the new holder has counted.
	MemoryAnnotation = "flotilla.dev/memory"
)

// Annotations of a member's Lease, written by the member, but for [DrainAnnotation].
const (
	// RingsAnnotation lists the rings that a member serves, comma separated; it is missing where it
	// serves all.
	RingsAnnotation = "flotilla.dev/rings"
	// LeaderLocksAnnotation lists the foreign Leases that a member waits for, comma separated; it
	// is missing where it waits for none. Members that differ were set up wrongly.
	LeaderLocksAnnotation = "flotilla.dev/leader-locks"
	// NodeAnnotation and ZoneAnnotation say where a member runs; they are missing where it does not
	// know.
	NodeAnnotation = "flotilla.dev/node"
	ZoneAnnotation = "flotilla.dev/zone"
	// DrainAnnotation is set by an operator: whatever its value, the member gets no shards and
	// hands over those that it has. It stays until an operator removes it, also when the member is
	// restarted.
	DrainAnnotation = "flotilla.dev/drain"
	// RefusedAnnotation says which plan generation a member refuses, and why.
	RefusedAnnotation = "flotilla.dev/refused-plan"
	// CatalogueAnnotation has what its build knows of controllers, see [skew.Known]. It is missing
	// where the build has no catalogue, or is from before there was one.
	CatalogueAnnotation = "flotilla.dev/catalogue"
	// FormatAnnotation has the newest form of plans that its build reads, see [PlanFormat]. Builds
	// from before there was one refuse a plan with a canary.
	FormatAnnotation = "flotilla.dev/plan-format"
	// StillAnnotation is there while the member stands still, and has the value of
	// [StopAnnotation] that it obeys: it runs nothing, and does not keep the
	// leader locks.
	StillAnnotation = "flotilla.dev/still"
	// UseAnnotation has what its process uses beside memory, see [Use]. It is missing where the
	// build is from before there was one.
	UseAnnotation = "flotilla.dev/use"
	// HealthAnnotation has how its controllers fare, see [Health]. It stands apart from
	// [UseAnnotation], which builds that do not know it read.
	HealthAnnotation = "flotilla.dev/health"
)

// Annotations of the plan's Lease.
const (
	// DocumentAnnotation has the plan, as [shard.Plan.Document] writes it.
	DocumentAnnotation = "flotilla.dev/plan-document"
	// RejectedAnnotation has what was written in the plan's place and could not be used, once the
	// planner has put the plan back.
	RejectedAnnotation = "flotilla.dev/rejected-plan"
	// LastGoodAnnotation has the plan that the planner works by, as [shard.Plan.Packed] writes it:
	// what members that start judge the plan by, and work by where that cannot be used. The planner
	// keeps it up to date.
	LastGoodAnnotation = "flotilla.dev/last-good-plan"
	// StopAnnotation is set by an operator and stops the fleet, see [Stop]: every member releases
	// its shards and runs nothing, and the last one releases the leader locks. It stays until an
	// operator removes it.
	StopAnnotation = "flotilla.dev/stop"
)
