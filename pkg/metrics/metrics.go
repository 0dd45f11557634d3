package metrics

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/flotilla-kube/flotilla/pkg/fleet"
	"github.com/flotilla-kube/flotilla/pkg/informer"
)

// DefaultPrefix begins the names of all families unless Options say otherwise. The alerts and the
// dashboard of deploy/monitoring expect it.
const DefaultPrefix = "flotilla"

// Options say what the metrics of a member look like.
type Options struct {
	// Fleet is the name of the fleet, as in fleet.Config. Required.
	Fleet string
	// Prefix begins the name of each family, followed by an underscore. It consists of letters,
	// digits and underscores, begins with a letter, and ends with a letter or a digit. Default:
	// DefaultPrefix.
	Prefix string
	// Stability is put in brackets before the help texts, as in Kubernetes' components: ALPHA makes
	// "[ALPHA] Shards of the ring". Default: nothing.
	Stability string
	// Disabled are families to leave out, by their whole names. Unknown names are ignored, so a
	// flag for all metrics of a process can be passed on.
	Disabled []string
	// NativeHistograms exposes histograms as native ones as well, to scrapers that ask for
	// protobuf, with the resolution of Kubernetes' components. The classic buckets stay.
	NativeHistograms bool
}

// Source is where the metrics read their values from.
type Source struct {
	// Member is the member whose metrics these are. Required.
	Member *fleet.Member
	// Informers are the informers that the shards of the process share. Without them the families
	// informer_* have no series.
	Informers Informers
	// Enforced reports whether the API server refuses the credentials of fenced members, as in
	// fleet.Config. It must be safe for concurrent use and must not block. Default: never.
	Enforced func() bool
}

// Informers are what the metrics read about informers; *informer.Pool implements it. The methods
// must be safe for concurrent use.
type Informers interface {
	Discarded() int64
	Unseen() int64
	Modes() map[schema.GroupVersionResource]informer.Mode
	Followed() map[schema.GroupVersionResource]int
	Failing() []schema.GroupResource
}

// Metrics are the metrics of one member, for its whole life. All methods are safe for concurrent
// use.
//
// It is a prometheus.Collector so that a registry can unregister it. Register it with Register:
// without a source it has no states.
type Metrics struct {
	options Options
	source  atomic.Pointer[Source]

	descs map[*family]*prometheus.Desc // of families that are read, disabled ones left out
	vecs  []prometheus.Collector       // of those that are counted, disabled ones left out

	transitions, acquisitions, forgot *prometheus.CounterVec
	phases, unowned                   *prometheus.HistogramVec
	refusedWrites                     *prometheus.CounterVec
	marks, plans                      *prometheus.CounterVec
	requests                          *prometheus.CounterVec
	requestTime                       *prometheus.HistogramVec
}

// New returns the metrics of a member that does not exist yet. The error names the option that
// cannot be used.
func New(o Options) (*Metrics, error) {
	if o.Fleet == "" {
		return nil, errors.New("metrics of a fleet: Fleet is empty: want its name")
	}
	if o.Prefix == "" {
		o.Prefix = DefaultPrefix
	}
	if !prefixes.MatchString(o.Prefix) {
		return nil, fmt.Errorf("metrics of fleet %s: Prefix %q cannot begin the name of a metric: "+
			"want letters, digits and underscores, a letter first and no underscore last", o.Fleet, o.Prefix)
	}
	o.Disabled = slices.Clone(o.Disabled)
	m := &Metrics{options: o, descs: map[*family]*prometheus.Desc{}}
	for _, f := range states {
		if name := m.name(f); !m.isDisabled(name) {
			m.descs[f] = prometheus.NewDesc(name, m.help(f), f.labels, nil)
		}
	}
	m.transitions = m.counters(transitionsOf)
	m.acquisitions = m.counters(acquisitionsOf)
	m.forgot = m.counters(forgotOf)
	m.phases = m.histograms(phasesOf, moveBuckets)
	m.unowned = m.histograms(unownedOf, moveBuckets)
	m.refusedWrites = m.counters(refusedWritesOf)
	m.marks = m.counters(marksOf)
	m.plans = m.counters(plansOf)
	m.requests = m.counters(requestsOf)
	m.requestTime = m.histograms(requestTimeOf, requestBuckets)
	return m, nil
}

// prefixes is narrower than what Prometheus allows in a name: colons are for recording rules, and
// names outside of ASCII have to be quoted in queries.
var prefixes = regexp.MustCompile(`^[a-zA-Z]([a-zA-Z0-9_]*[a-zA-Z0-9])?$`)

// Register registers the metrics with the registerer; each scrape then reads source. Call it once,
// after the member is made and before it runs. It fails, and registers nothing, if there is no
// member, if the metrics have a source already, or if the registerer refuses them.
func (m *Metrics) Register(to prometheus.Registerer, source Source) error {
	if source.Member == nil {
		return m.refusal(errors.New("the source has no Member"))
	}
	if source.Enforced == nil {
		source.Enforced = func() bool { return false }
	}
	if !m.source.CompareAndSwap(nil, &source) {
		return m.refusal(errors.New("they are registered already: each member has metrics of its own"))
	}
	if err := to.Register(m); err != nil {
		m.source.Store(nil)
		return m.refusal(err)
	}
	m.zero(source.Member)
	return nil
}

// refusal says which metrics were not registered. The usual cause is two members with one prefix in
// one registry, and the registry's error names neither.
func (m *Metrics) refusal(err error) error {
	return fmt.Errorf("registering the metrics of fleet %s with the prefix %q: %w",
		m.options.Fleet, m.options.Prefix, err)
}

func (m *Metrics) name(f *family) string { return m.options.Prefix + "_" + f.name }

func (m *Metrics) help(f *family) string {
	if m.options.Stability == "" {
		return f.help
	}
	return "[" + m.options.Stability + "] " + f.help
}

func (m *Metrics) isDisabled(name string) bool { return slices.Contains(m.options.Disabled, name) }

// counters returns the counters of a family. A disabled family still counts, but is not registered.
func (m *Metrics) counters(f *family) *prometheus.CounterVec {
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: m.name(f), Help: m.help(f)}, f.labels)
	m.expose(f, v)
	return v
}

// The settings of native histograms in component-base.
const (
	nativeFactor  = 1.1
	nativeBuckets = 160
)

// histograms returns the histograms of a family.
func (m *Metrics) histograms(f *family, buckets []float64) *prometheus.HistogramVec {
	o := prometheus.HistogramOpts{Name: m.name(f), Help: m.help(f), Buckets: buckets}
	if m.options.NativeHistograms {
		o.NativeHistogramBucketFactor, o.NativeHistogramMaxBucketNumber = nativeFactor, nativeBuckets
	}
	v := prometheus.NewHistogramVec(o, f.labels)
	m.expose(f, v)
	return v
}

func (m *Metrics) expose(f *family, v prometheus.Collector) {
	if !m.isDisabled(m.name(f)) {
		m.vecs = append(m.vecs, v)
	}
}
