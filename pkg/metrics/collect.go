package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/election/membership"
	"github.com/flotilla-kube/flotilla/pkg/fleet"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/informer"
)

// stateDrained is the state in which a member counts that an operator has drained, whatever state
// its Lease says.
const stateDrained = "drained"

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range m.descs {
		ch <- d
	}
	for _, v := range m.vecs {
		v.Describe(ch)
	}
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	for _, v := range m.vecs {
		v.Collect(ch)
	}
	source := m.source.Load()
	if source == nil {
		return
	}
	out := samples{m.descs, ch}
	collectShards(out, source.Member)
	collectRings(out, source.Member)
	collectFleet(out, source)
	if source.Informers != nil {
		collectInformers(out, source.Informers)
	}
}

// samples is where the samples of families with a description go.
type samples struct {
	descs map[*family]*prometheus.Desc
	ch    chan<- prometheus.Metric
}

func (s samples) gauge(f *family, value float64, labels ...string) {
	s.send(f, prometheus.GaugeValue, value, labels...)
}

func (s samples) counter(f *family, value float64, labels ...string) {
	s.send(f, prometheus.CounterValue, value, labels...)
}

func (s samples) send(f *family, kind prometheus.ValueType, value float64, labels ...string) {
	if desc, exposed := s.descs[f]; exposed {
		s.ch <- prometheus.MustNewConstMetric(desc, kind, value, labels...)
	}
}

func collectShards(out samples, member *fleet.Member) {
	name := leaserecord.MemberOf(member.Incarnation())
	for _, s := range member.Shards() {
		out.gauge(shardOwned, toFloat(s.Owned), s.ID.Ring, s.ID.Name)
		out.gauge(shardDesired, toFloat(s.Owner == name), s.ID.Ring, s.ID.Name)
		out.gauge(shardWaiting, toFloat(s.Waiting), s.ID.Ring, s.ID.Name)
		if s.Owned {
			out.gauge(renewAge, s.RenewAge.Seconds(), s.ID.Ring, s.ID.Name)
		}
		if s.Counted != nil {
			out.gauge(objects, float64(s.Counted.Objects), s.ID.Ring, s.ID.Name)
			out.gauge(namespaces, float64(s.Counted.Namespaces), s.ID.Ring, s.ID.Name)
		}
		if s.State != fleet.StateNone {
			out.gauge(shardState, 1, s.ID.Ring, s.ID.Name, string(s.State))
		}
	}
}

func collectRings(out samples, member *fleet.Member) {
	plan, known := member.Plan()
	if !known {
		return
	}
	assignment := member.Assignment()
	for _, ring := range plan.Rings {
		out.gauge(ringMembers, float64(len(assignment.MembersOf(ring.Name))), ring.Name)
		out.gauge(ringHash, 1, ring.Name, assignment.Digest(ring.Name))
		out.gauge(ringShards, float64(len(ring.Shards)), ring.Name)
		if load, counted := member.RingLoad(ring); counted {
			out.gauge(ringLoad, load.Ratio(), ring.Name)
			out.gauge(ringLoadLeast, load.Bound, ring.Name)
		}
	}
	out.gauge(planGeneration, float64(plan.Generation))
}

func collectFleet(out samples, source *Source) {
	member := source.Member
	out.gauge(planRefused, toFloat(member.Refused() != nil))
	out.gauge(planLacking, float64(len(member.Lacks())))
	out.gauge(stopped, toFloat(member.Stopped() != nil))
	inForce, _ := member.Plan()
	runs := inForce.Canary != nil && !inForce.Canary.Aborted
	itself, _ := member.Roster().Get(leaserecord.MemberOf(member.Incarnation()))
	out.gauge(canaryRuns, toFloat(runs))
	out.gauge(canaryTried, toFloat(runs && leaseapi.VersionOf(itself) == inForce.Canary.Version))
	out.gauge(foreign, float64(len(member.Assignment().Foreign())))
	out.gauge(fencePolicy, toFloat(source.Enforced()))
	count := map[string]int{
		string(membership.Joining): 0, string(membership.Active): 0,
		string(membership.Leaving): 0, stateDrained: 0,
	}
	for _, other := range member.Roster().Members() {
		if leaseapi.IsDrained(other) {
			count[stateDrained]++
		} else {
			count[string(other.State)]++
		}
	}
	for state, n := range count {
		out.gauge(members, float64(n), state)
	}
	for _, lock := range member.LeaderLocks() {
		out.gauge(leaderLockHeld, toFloat(lock.Held), lock.Lease)
		out.gauge(leaderLockLive, toFloat(lock.Live), lock.Lease)
	}
}

// filteredByProcess is the label of resources whose ranges follow an informer of everything.
const filteredByProcess = "process"

func collectInformers(out samples, informers Informers) {
	out.counter(discarded, float64(informers.Discarded()))
	out.counter(unseen, float64(informers.Unseen()))
	modes := map[informer.Mode]int{informer.ServerSide: 0, informer.ClientSide: 0}
	for _, mode := range informers.Modes() {
		modes[mode]++
	}
	for mode, n := range modes {
		out.gauge(watchMode, float64(n), string(mode))
	}
	out.gauge(watchMode, float64(len(informers.Followed())), filteredByProcess)
	out.gauge(failing, float64(len(informers.Failing())))
}

func toFloat(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
