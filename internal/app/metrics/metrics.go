package metrics

import (
	"errors"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	k8smetrics "k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/flotilla-kube/flotilla/pkg/controllers/queues"
	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/fleet"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// Stability begins the help texts of a member's metrics, as in the other families of /metrics.
const Stability = string(k8smetrics.ALPHA)

// component is the name under which leader_election_master_status says whether a member holds
// anything: the stock controller manager's.
const component = "kube-controller-manager"

// Master is leader_election_master_status of the process's member. All methods are safe for
// concurrent use.
type Master struct {
	status *k8smetrics.GaugeVec
	// mu protects member, which is nil until Register. It is held from looking at the member's
	// shards until the result is set: an older result must not replace a newer one.
	mu     sync.Mutex
	member holder
}

// holder is what Master needs of a *fleet.Member.
type holder interface{ Shards() []fleet.ShardStatus }

// NewMaster returns the metric of a member that does not exist yet.
func NewMaster() *Master {
	return &Master{status: k8smetrics.NewGaugeVec(&k8smetrics.GaugeOpts{
		Name: "leader_election_master_status", StabilityLevel: k8smetrics.ALPHA,
		Help: "Gauge of if the reporting system is master of the relevant lease, 0 indicates backup, " +
			"1 indicates master. 'name' is the string used to identify the lease. Please make sure to " +
			"group by name.",
	}, []string{"name"})}
}

// Register puts the metric on /metrics. Call it once in a process, before the member runs.
func (m *Master) Register(member *fleet.Member) { m.register(legacyregistry.Register, member) }

func (m *Master) register(with func(k8smetrics.Registerable) error, member holder) {
	// client-go's elector registers this gauge under the same name when it is linked in, and does
	// not export it. Dashboards know it, so the fleet sets it.
	var already prometheus.AlreadyRegisteredError
	if err := with(m.status); errors.As(err, &already) {
		if existing, ok := already.ExistingCollector.(*k8smetrics.GaugeVec); ok {
			m.status = existing
		}
	}
	m.status.WithLabelValues(component).Set(0)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.member = member
}

// Observe follows events, and removes the series of shards that this process has nothing to do with
// any more, including those of their queues. It does not block.
func (m *Master) Observe(e fleet.Event) {
	if e.ID == (shard.ID{}) {
		return
	}
	switch e.Type {
	case election.EventAcquired:
		m.holds(e.Name, 1)
	case election.EventEnded:
		m.holds(e.Name, 0)
	case fleet.EventForgotten:
		queues.Forget(e.ID.Ring, e.ID.Name)
		m.status.Delete(map[string]string{"name": e.Name})
	}
}

// holds records whether a Lease is held, and so whether this member holds anything.
func (m *Master) holds(lease string, held float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.member == nil { // not registered
		return
	}
	m.status.WithLabelValues(lease).Set(held)
	anything := 0.0
	for _, s := range m.member.Shards() {
		if s.Owned {
			anything = 1
		}
	}
	m.status.WithLabelValues(component).Set(anything)
}
