package metrics

import (
	k8smetrics "k8s.io/component-base/metrics"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/fleet"
	"github.com/flotilla-kube/flotilla/pkg/informer"
)

// stateDrained is what a member counts as whom an operator has drained, whatever it says of itself.
const stateDrained = "drained"

// DescribeWithStability implements k8smetrics.StableCollector.
func (m *Metrics) DescribeWithStability(ch chan<- *k8smetrics.Desc) {
	for _, d := range states {
		ch <- d
	}
}

// samples are where a family's samples go.
type samples chan<- k8smetrics.Metric

func (s samples) gauge(d *k8smetrics.Desc, value float64, labels ...string) {
	s <- k8smetrics.NewLazyConstMetric(d, k8smetrics.GaugeValue, value, labels...)
}

// CollectWithStability implements k8smetrics.StableCollector.
func (m *Metrics) CollectWithStability(ch chan<- k8smetrics.Metric) {
	out := samples(ch)
	m.collectShards(out)
	m.collectRings(out)
	m.collectFleet(out)
	m.collectInformers(out)
}

func (m *Metrics) collectShards(out samples) {
	name := election.MemberOf(m.source.Member.Incarnation())
	for _, s := range m.source.Member.Shards() {
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
		if s.Stage != fleet.StageNone {
			out.gauge(shardStage, 1, s.ID.Ring, s.ID.Name, string(s.Stage))
		}
	}
}

func (m *Metrics) collectRings(out samples) {
	member := m.source.Member
	plan, known := member.Plan()
	if !known {
		return
	}
	wishes := member.Wishes()
	for _, ring := range plan.Rings {
		out.gauge(ringMembers, float64(len(wishes.MembersOf(ring.Name))), ring.Name)
		out.gauge(ringHash, 1, ring.Name, wishes.Digest(ring.Name))
		out.gauge(ringShards, float64(len(ring.Shards)), ring.Name)
		if ratio, counted := member.LoadRatio(ring); counted {
			out.gauge(ringLoad, ratio, ring.Name)
		}
	}
	out.gauge(planGeneration, float64(plan.Generation))
}

func (m *Metrics) collectFleet(out samples) {
	member := m.source.Member
	out.gauge(planRefused, toFloat(member.Refused() != nil))
	out.gauge(planLacking, float64(len(member.Lacks())))
	out.gauge(stopped, toFloat(member.Stopped() != nil))
	inForce, _ := member.Plan()
	out.gauge(canaryRuns, toFloat(inForce.Canary != nil && !inForce.Canary.Aborted))
	out.gauge(foreign, float64(len(member.Wishes().Foreign())))
	out.gauge(fencePolicy, toFloat(m.source.Enforced()))
	count := map[string]int{string(election.MemberJoining): 0, string(election.MemberActive): 0, string(election.MemberLeaving): 0, stateDrained: 0}
	for _, other := range member.Roster().Members() {
		if fleet.IsDrained(other) {
			count[stateDrained]++
		} else {
			count[string(other.State)]++
		}
	}
	for state, n := range count {
		out.gauge(members, float64(n), state)
	}
	for _, gate := range member.Gates() {
		out.gauge(gateHeld, toFloat(gate.Held), gate.Lease)
		out.gauge(gateLive, toFloat(gate.Live), gate.Lease)
	}
}

// filteredByProcess is the label of resources of which ranges follow an informer of everything.
const filteredByProcess = "process"

func (m *Metrics) collectInformers(out samples) {
	out <- k8smetrics.NewLazyConstMetric(discarded, k8smetrics.CounterValue, float64(m.source.Informers.Discarded()))
	out <- k8smetrics.NewLazyConstMetric(unseen, k8smetrics.CounterValue, float64(m.source.Informers.Unseen()))
	modes := map[informer.Mode]int{informer.ServerSide: 0, informer.ClientSide: 0}
	for _, mode := range m.source.Informers.Modes() {
		modes[mode]++
	}
	for mode, n := range modes {
		out.gauge(watchMode, float64(n), string(mode))
	}
	out.gauge(watchMode, float64(len(m.source.Informers.Followed())), filteredByProcess)
}

func toFloat(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
