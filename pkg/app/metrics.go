package app

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	k8smetrics "k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/fleet"
	"github.com/flotilla-kube/flotilla/pkg/shard/informer"
)

func desc(name, help string, labels ...string) *k8smetrics.Desc {
	return k8smetrics.NewDesc("flotilla_"+name, help, labels, nil, k8smetrics.ALPHA, "")
}

var (
	shardOwnedDesc   = desc("shard_owned", "1 if this member holds a valid claim on the shard, else 0.", "ring", "shard")
	shardDesiredDesc = desc("shard_desired", "1 if the ring gives the shard to this member, else 0.", "ring", "shard")
	renewAgeDesc     = desc("shard_lease_renew_age_seconds", "Seconds since this member last renewed the Lease of a shard that it holds.", "ring", "shard")
	ringMembersDesc  = desc("ring_members", "Members that count for the ring, as this member sees it.", "ring")
	ringHashDesc     = desc("ring_hash_info", "1, with the digest of the ring's placement as this member computes it. Members that disagree show different digests.", "ring", "hash")
	ringShardsDesc   = desc("ring_shards", "Shards of the ring, by the plan in force.", "ring")
	foreignDesc      = desc("fleet_foreign_members", "Live members that refuse the plan and are left out of the rings.")

	planGenerationDesc = desc("plan_generation", "Generation of the plan that this member works by.")
	planRefusedDesc    = desc("plan_refused", "1 if this member refuses the plan that is on the plan's Lease and works by the last good one, else 0.")
	shardWaitingDesc   = desc("shard_waiting", "1 if this member has prepared the shard and waits for shards of an older plan generation to be released, else 0.", "ring", "shard")

	discardedDesc   = desc("informer_discarded_total", "Objects and events dropped because the API server sent them though they were outside the range.")
	fencePolicyDesc = desc("fence_policy", "1 if the API server refuses the credentials of fenced members, else 0.")
	watchModeDesc   = desc("informer_resources", "Resources by who filters them by range: the API server or this client.", "filtered_by")
)

// metrics is what a member says of itself on /metrics. What has a state is read when
// it is asked for, so that it cannot be stale.
type metrics struct {
	k8smetrics.BaseStableCollector
	fleet       string
	member      *fleet.Member
	pool        *informer.Pool
	transitions *k8smetrics.CounterVec
	// enforced tells whether the API server refuses the credentials of fenced members.
	enforced func() bool
	fenced   *k8smetrics.CounterVec
	plans    *k8smetrics.CounterVec
	master   *k8smetrics.GaugeVec
}

func newMetrics(fleetName string) *metrics {
	return &metrics{
		fleet: fleetName,
		transitions: k8smetrics.NewCounterVec(&k8smetrics.CounterOpts{
			Name: "flotilla_shard_transitions_total", StabilityLevel: k8smetrics.ALPHA,
			Help: "Claims of this member that began (acquired) or ended, by the reason they ended for, and steps between: prepared, ready, warm, cold, refused.",
		}, []string{"ring", "reason"}),
		fenced: k8smetrics.NewCounterVec(&k8smetrics.CounterOpts{
			Name: "flotilla_fence_marks_total", StabilityLevel: k8smetrics.ALPHA,
			Help: "Dead members that this one has fenced (fenced), or that the API server did not let it fence (fence-refused).",
		}, []string{"result"}),
		plans: k8smetrics.NewCounterVec(&k8smetrics.CounterOpts{
			Name: "flotilla_plan_changes_total", StabilityLevel: k8smetrics.ALPHA,
			Help: "Plans that this member has taken into force (plan-adopted), refused (plan-refused), or put back where they had been spoilt (plan-restored).",
		}, []string{"result"}),
		master: k8smetrics.NewGaugeVec(&k8smetrics.GaugeOpts{
			Name: "leader_election_master_status", StabilityLevel: k8smetrics.ALPHA,
			Help: "Gauge of if the reporting system is master of the relevant lease, 0 indicates backup, 1 indicates master. 'name' is the string used to identify the lease. Please make sure to group by name.",
		}, []string{"name"}),
	}
}

// register puts the metrics on /metrics, once a process.
func (m *metrics) register(member *fleet.Member, pool *informer.Pool) {
	m.member, m.pool = member, pool
	legacyregistry.MustRegister(m.transitions, m.fenced, m.plans)
	legacyregistry.CustomMustRegister(m)
	// client-go's elector registers this gauge under the same name when it is linked
	// in, and does not export it. Dashboards know it, so the fleet sets it.
	var already prometheus.AlreadyRegisteredError
	if err := legacyregistry.Register(m.master); errors.As(err, &already) {
		if existing, ok := already.ExistingCollector.(*k8smetrics.GaugeVec); ok {
			m.master = existing
		}
	}
	m.master.WithLabelValues(component).Set(0)
}

// count counts what happens to the claims of shards.
func (m *metrics) count(e fleet.Event) {
	switch e.Type {
	case election.EventAcquired:
		m.transitions.WithLabelValues(e.ID.Ring, "acquired").Inc()
		m.master.WithLabelValues(e.Name).Set(1)
	case fleet.EventPrepared, fleet.EventReady, fleet.EventRefused:
		m.transitions.WithLabelValues(e.ID.Ring, string(e.Type)).Inc()
		return
	case fleet.EventBegun:
		how := "warm"
		if e.Err != nil {
			how = "cold"
		}
		m.transitions.WithLabelValues(e.ID.Ring, how).Inc()
		return
	case election.EventEnded:
		m.transitions.WithLabelValues(e.ID.Ring, string(e.Reason)).Inc()
		m.master.WithLabelValues(e.Name).Set(0)
	default:
		return
	}
	owns := 0.0
	for _, s := range m.member.Shards() {
		if s.Owned {
			owns = 1
		}
	}
	m.master.WithLabelValues(component).Set(owns)
}

// DescribeWithStability implements k8smetrics.StableCollector.
func (m *metrics) DescribeWithStability(ch chan<- *k8smetrics.Desc) {
	for _, d := range []*k8smetrics.Desc{
		shardOwnedDesc, shardDesiredDesc, shardWaitingDesc, planGenerationDesc, planRefusedDesc, ringShardsDesc, renewAgeDesc, ringMembersDesc, ringHashDesc, foreignDesc, discardedDesc, watchModeDesc,
		fencePolicyDesc,
	} {
		ch <- d
	}
}

// CollectWithStability implements k8smetrics.StableCollector.
func (m *metrics) CollectWithStability(ch chan<- k8smetrics.Metric) {
	gauge := func(d *k8smetrics.Desc, value float64, labels ...string) {
		ch <- k8smetrics.NewLazyConstMetric(d, k8smetrics.GaugeValue, value, labels...)
	}
	name := election.MemberOf(m.member.Incarnation())
	for _, s := range m.member.Shards() {
		gauge(shardOwnedDesc, toFloat(s.Owned), s.ID.Ring, s.ID.Name)
		gauge(shardDesiredDesc, toFloat(s.Owner == name), s.ID.Ring, s.ID.Name)
		gauge(shardWaitingDesc, toFloat(s.Waiting), s.ID.Ring, s.ID.Name)
		if s.Owned {
			gauge(renewAgeDesc, s.RenewAge.Seconds(), s.ID.Ring, s.ID.Name)
		}
	}
	wishes := m.member.Wishes()
	if plan, known := m.member.Plan(); known {
		for _, ring := range plan.Rings {
			gauge(ringMembersDesc, float64(len(wishes.MembersOf(ring.Name))), ring.Name)
			gauge(ringHashDesc, 1, ring.Name, wishes.Digest(ring.Name))
			gauge(ringShardsDesc, float64(len(ring.Shards)), ring.Name)
		}
		gauge(planGenerationDesc, float64(plan.Generation))
	}
	gauge(planRefusedDesc, toFloat(m.member.Refused() != nil))
	gauge(foreignDesc, float64(len(wishes.Foreign())))
	gauge(fencePolicyDesc, toFloat(m.enforced()))
	m.collectInformers(ch)
}

func (m *metrics) collectInformers(ch chan<- k8smetrics.Metric) {
	ch <- k8smetrics.NewLazyConstMetric(discardedDesc, k8smetrics.CounterValue, float64(m.pool.Discarded()))
	modes := map[informer.Mode]int{informer.ServerSide: 0, informer.ClientSide: 0}
	for _, mode := range m.pool.Modes() {
		modes[mode]++
	}
	for mode, n := range modes {
		ch <- k8smetrics.NewLazyConstMetric(watchModeDesc, k8smetrics.GaugeValue, float64(n), string(mode))
	}
}

func toFloat(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
