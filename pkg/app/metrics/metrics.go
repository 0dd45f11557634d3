package metrics

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"
	k8smetrics "k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/flotilla-kube/flotilla/pkg/fleet"
	"github.com/flotilla-kube/flotilla/pkg/informer"
)

// component is the name under which leader_election_master_status says whether a member holds anything: the stock controller
// manager's.
const component = "kube-controller-manager"

// Source is what is asked when /metrics is read. All of it is required.
type Source struct {
	Member *fleet.Member
	// Informers are those that the shards of the process share.
	Informers interface {
		Discarded() int64
		Unseen() int64
		Modes() map[schema.GroupVersionResource]informer.Mode
		Followed() map[schema.GroupVersionResource]int
	}
	// Enforced tells whether the API server refuses the credentials of fenced members.
	Enforced func() bool
}

// registry is where metrics go.
type registry interface {
	Register(k8smetrics.Registerable) error
	MustRegister(...k8smetrics.Registerable)
	CustomMustRegister(...k8smetrics.StableCollector)
}

// process is the registry of the process.
type process struct{}

func (process) Register(r k8smetrics.Registerable) error  { return legacyregistry.Register(r) }
func (process) MustRegister(r ...k8smetrics.Registerable) { legacyregistry.MustRegister(r...) }
func (process) CustomMustRegister(c ...k8smetrics.StableCollector) {
	legacyregistry.CustomMustRegister(c...)
}

// Metrics are those of one member. Count may be called before Register, and then counts nothing. All methods are safe for
// concurrent use.
type Metrics struct {
	k8smetrics.BaseStableCollector
	fleet  string
	source Source

	transitions, acquisitions, forgot *k8smetrics.CounterVec
	phases, unowned                   *k8smetrics.HistogramVec
	refusedWrites                     *k8smetrics.CounterVec
	marks, plans                      *k8smetrics.CounterVec
	requests                          *k8smetrics.CounterVec
	requestTime                       *k8smetrics.HistogramVec
	master                            *k8smetrics.GaugeVec
}

// New returns the metrics of a member of the fleet.
func New(fleetName string) *Metrics {
	return &Metrics{
		fleet:         fleetName,
		transitions:   counters(transitionsOf),
		acquisitions:  counters(acquisitionsOf),
		forgot:        counters(forgotOf),
		phases:        histograms(phasesOf, moveBuckets),
		unowned:       histograms(unownedOf, moveBuckets),
		refusedWrites: counters(refusedWritesOf),
		marks:         counters(marksOf),
		plans:         counters(plansOf),
		requests:      counters(requestsOf),
		requestTime:   histograms(requestTimeOf, requestBuckets),
		master: k8smetrics.NewGaugeVec(&k8smetrics.GaugeOpts{
			Name: "leader_election_master_status", StabilityLevel: k8smetrics.ALPHA,
			Help: "Gauge of if the reporting system is master of the relevant lease, 0 indicates backup, 1 indicates master. 'name' is the string used to identify the lease. Please make sure to group by name.",
		}, []string{"name"}),
	}
}

// Register puts the metrics on /metrics, once a process and before the member runs.
func (m *Metrics) Register(source Source) { m.register(process{}, source) }

// RegisterWith puts the metrics into a registry of the caller's instead, for several members in one process.
func (m *Metrics) RegisterWith(to k8smetrics.KubeRegistry, source Source) { m.register(to, source) }

func (m *Metrics) register(registry registry, source Source) {
	m.source = source
	registry.MustRegister(m.transitions, m.acquisitions, m.forgot, m.phases, m.unowned, m.refusedWrites, m.marks, m.plans, m.requests, m.requestTime)
	registry.CustomMustRegister(m)
	// client-go's elector registers this gauge under the same name when it is linked
	// in, and does not export it. Dashboards know it, so the fleet sets it.
	var already prometheus.AlreadyRegisteredError
	if err := registry.Register(m.master); errors.As(err, &already) {
		if existing, ok := already.ExistingCollector.(*k8smetrics.GaugeVec); ok {
			m.master = existing
		}
	}
	m.master.WithLabelValues(component).Set(0)
	m.zero()
}
