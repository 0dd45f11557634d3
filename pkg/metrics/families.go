package metrics

import "slices"

// A Family is one metric, with all the series that it may have.
type Family struct {
	// Name is the whole name, including the prefix.
	Name string
	// Kind is gauge, counter or histogram.
	Kind string
	// Help says what a value means.
	Help string
	// Labels are the labels of its series.
	Labels []string
}

// Families returns all families of a member, whether or not they have series at the moment. Use it
// to generate a page or a dashboard, or to check one.
func (m *Metrics) Families() []Family {
	all := make([]Family, 0, len(families))
	for _, f := range families {
		if name := m.name(f); !m.isDisabled(name) {
			all = append(all, Family{name, f.kind, m.help(f), slices.Clone(f.labels)})
		}
	}
	return all
}

// family is the definition of a metric, without the prefix.
type family struct {
	name, kind, help string
	labels           []string
}

// families are all definitions, in the order of this file. They do not change after initialisation.
var families []*family

func define(name, kind, help string, labels ...string) *family {
	f := &family{name, kind, help, labels}
	families = append(families, f)
	return f
}

// states are the families that are read from the member.
var states []*family

func read(name, kind, help string, labels ...string) *family {
	f := define(name, kind, help, labels...)
	states = append(states, f)
	return f
}

const (
	gauge     = "gauge"
	counter   = "counter"
	histogram = "histogram"
)

// State: read from the member.
var (
	shardOwned = read("shard_owned", gauge,
		"1 if this member holds a valid claim on the shard, else 0.", "ring", "shard")
	shardDesired = read("shard_desired", gauge,
		"1 if the ring gives the shard to this member, else 0.", "ring", "shard")
	shardWaiting = read("shard_waiting", gauge,
		"1 if this member holds the shard, and prepares it or waits until shards of an older plan "+
			"generation are released, else 0.", "ring", "shard")
	shardState = read("shard_state", gauge,
		"1 for where the shard stands on this member: preparing, prepared, waiting, starting, "+
			"running, draining.", "ring", "shard", "state")
	renewAge = read("shard_lease_renew_age_seconds", gauge,
		"Seconds since this member's last confirmed heartbeat, for each shard that it holds. The "+
			"claim ends at the renew deadline.", "ring", "shard")
	objects = read("shard_objects", gauge,
		"Objects of the shard's namespaces in the caches of its holder, as it counted them "+
			"last.", "ring", "shard")
	namespaces = read("shard_namespaces", gauge,
		"Namespaces of the shard that have objects in the caches of its holder, as it counted "+
			"them last.", "ring", "shard")

	ringMembers = read("ring_members", gauge,
		"Members that count for the ring, as this member sees it.", "ring")
	ringHash = read("ring_hash_info", gauge,
		"1, with the digest of the ring's placement as this member computes it. Members that "+
			"disagree show different digests.", "ring", "hash")
	ringShards = read("ring_shards", gauge,
		"Shards of the ring, by the plan in force.", "ring")
	ringLoad = read("ring_load_ratio", gauge,
		"Weight of the member with the most over the mean of the members that serve the ring, "+
			"with what they carry beside it, by what holders say on their Leases.", "ring")
	ringLoadLeast = read("ring_load_ratio_least", gauge,
		"The lowest ring_load_ratio that any plan allows: above 1 if one namespace, or what one "+
			"member carries beside the ring, is more than a fair share.", "ring")

	planGeneration = read("plan_generation", gauge,
		"Generation of the plan that this member works by.")
	planRefused = read("plan_refused", gauge,
		"1 if this member refuses the plan that is on the plan's Lease and works by the last "+
			"good one, else 0.")
	planLacking = read("plan_controllers_lacking", gauge,
		"Controllers that the plan names and that this member's version does not have: its "+
			"shards run without them.")

	members = read("fleet_members", gauge,
		"Live members as this member sees them, by state: joining, active, leaving, drained.", "state")
	foreign = read("fleet_foreign_members", gauge,
		"Live members that refuse the plan and are left out of the rings.")

	canaryRuns = read("canary_running", gauge,
		"1 while the plan that this member works by tries a version on some namespaces, else "+
			"0.")
	canaryTried = read("canary_tried", gauge,
		"1 while a canary runs and this member is of the version that is tried, else 0.")
	stopped = read("fleet_stopped", gauge,
		"1 while an operator has the fleet stopped, as this member sees it, else 0.")

	leaderLockHeld = read("leader_lock_held", gauge,
		"1 while the fleet holds the leader lock, as this member knows it, else 0.", "lease")
	leaderLockLive = read("leader_lock_holder_live", gauge,
		"1 while the leader lock has a holder, the fleet or another, that renews it, as this member "+
			"sees it, else 0.", "lease")
	fencePolicy = read("fence_policy", gauge,
		"1 if the API server refuses the credentials of fenced members, else 0.")

	discarded = read("informer_discarded_total", counter,
		"Objects and events dropped because the API server sent them though they were outside "+
			"the range.")
	unseen = read("informer_unseen_updates_total", counter,
		"Updates that the deployment controller sent and that the shard's cache had not seen "+
			"after 50 ms, when it went on.")
	watchMode = read("informer_resources", gauge,
		"Resources by who filters them by range: the API server, this client, or this process "+
			"out of what it caches whole.", "filtered_by")
	failing = read("informer_failing", gauge,
		"Resources that this member needs and cannot list or watch: the last request for each, "+
			"less than two minutes ago, failed.")
)

// Events: counted as they happen.
var (
	transitionsOf = define("shard_transitions_total", counter,
		"Claims of this member that began (acquired) or ended, by the reason they ended for, "+
			"and steps between: prepared, ready, warm, cold, refused, overdue.", "ring", "reason")
	acquisitionsOf = define("shard_acquisitions_total", counter,
		"Shards that this member acquired, by how they came to it, why, and what became of "+
			"it.", "ring", "how", "reason", "result")
	forgotOf = define("controller_memory_lost_total", counter,
		"Controllers that began again on a shard of this member without what another instance "+
			"had kept in memory.", "ring", "controller")
	phasesOf = define("handoff_phase_seconds", histogram,
		"How long the phases of handoffs take, on the side of the new owner (prepare, ask, "+
			"acquire, catch_up, start) and of the old holder (drain, release).", "ring", "phase")
	unownedOf = define("shard_unowned_seconds", histogram,
		"For how long nobody could write on a shard, until its controllers ran, observed by "+
			"the member that runs it next.", "ring", "how")

	refusedWritesOf = define("fence_refused_writes_total", counter,
		"Writes of this member's controllers that the fence in the process refused.", "ring", "reason")
	marksOf = define("fence_marks_total", counter,
		"Dead members that this one has fenced (fenced), or that the API server did not let "+
			"it fence (fence-refused).", "result")
	plansOf = define("plan_changes_total", counter,
		"Plans that this member has taken into force (plan-adopted), refused (plan-refused), "+
			"put back where they had been spoilt (plan-restored), or changed for the versions of "+
			"the members (plan-adapted).", "result")

	requestsOf = define("lease_requests_total", counter,
		"Requests of this member for the fleet's own Leases and its leader locks.", "kind", "action", "result")
	requestTimeOf = define("lease_request_duration_seconds", histogram,
		"How long requests for the fleet's own Leases and its leader locks take, whatever comes of "+
			"them.", "kind", "action")
)

// Buckets range from a request in the same rack to a takeover, which takes the lease duration (15 s
// by default) or longer.
var (
	requestBuckets = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}
	moveBuckets    = append(slices.Clone(requestBuckets), 15, 20, 30, 60, 120, 300)
)
