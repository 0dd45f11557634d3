package metrics

import (
	"errors"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	k8smetrics "k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/flotilla-kube/flotilla/pkg/controllers/queues"
	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/fleet"
	"github.com/flotilla-kube/flotilla/pkg/metrics"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// component is the name under which leader_election_master_status says whether a member holds
// anything: the stock controller manager's.
const component = "kube-controller-manager"

// Metrics are those of the process's member. All methods are safe for concurrent use.
type Metrics struct {
	fleet  *metrics.Metrics
	member atomic.Pointer[fleet.Member]
	master *k8smetrics.GaugeVec
}

// New returns the metrics of a member. Their help texts begin with the stability, as those of the
// other families of /metrics do.
func New(o metrics.Options) (*Metrics, error) {
	o.Stability = string(k8smetrics.ALPHA)
	counted, err := metrics.New(o)
	if err != nil {
		return nil, err
	}
	return &Metrics{
		fleet: counted,
		master: k8smetrics.NewGaugeVec(&k8smetrics.GaugeOpts{
			Name: "leader_election_master_status", StabilityLevel: k8smetrics.ALPHA,
			Help: "Gauge of if the reporting system is master of the relevant lease, 0 indicates backup, 1 indicates " +
				"master. 'name' is the string used to identify the lease. Please make sure to group by name.",
		}, []string{"name"}),
	}, nil
}

// Register puts the metrics on /metrics, once a process and before the member runs.
func (m *Metrics) Register(source metrics.Source) error { return m.register(process{}, source) }

// registry is where metrics go.
type registry interface {
	Register(k8smetrics.Registerable) error
	Registerer() prometheus.Registerer
}

// process is the registry of the process.
type process struct{}

func (process) Register(r k8smetrics.Registerable) error { return legacyregistry.Register(r) }
func (process) Registerer() prometheus.Registerer        { return legacyregistry.Registerer() }

func (m *Metrics) register(to registry, source metrics.Source) error {
	if err := m.fleet.Register(to.Registerer(), source); err != nil {
		return err
	}
	// client-go's elector registers this gauge under the same name when it is linked
	// in, and does not export it. Dashboards know it, so the fleet sets it.
	var already prometheus.AlreadyRegisteredError
	if err := to.Register(m.master); errors.As(err, &already) {
		if existing, ok := already.ExistingCollector.(*k8smetrics.GaugeVec); ok {
			m.master = existing
		}
	}
	m.master.WithLabelValues(component).Set(0)
	m.member.Store(source.Member)
	return nil
}

// Count counts what happens, and takes the series of shards away that this process has nothing to do
// with any longer. It does not block.
func (m *Metrics) Count(e fleet.Event) {
	m.fleet.Count(e)
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
		m.master.Delete(map[string]string{"name": e.Name})
	}
}

// holds says whether a Lease is held, and so whether this member holds anything.
func (m *Metrics) holds(lease string, held float64) {
	member := m.member.Load()
	if member == nil { // not registered
		return
	}
	m.master.WithLabelValues(lease).Set(held)
	anything := 0.0
	for _, s := range member.Shards() {
		if s.Owned {
			anything = 1
		}
	}
	m.master.WithLabelValues(component).Set(anything)
}
