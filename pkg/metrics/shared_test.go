package metrics

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/election/fence"
	"github.com/flotilla-kube/flotilla/pkg/election/leasetest"
	"github.com/flotilla-kube/flotilla/pkg/fleet"
	"github.com/flotilla-kube/flotilla/pkg/informer"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// informers are those of a process.
type informers struct{}

func (informers) Discarded() int64 { return 3 }
func (informers) Unseen() int64    { return 4 }
func (informers) Modes() map[schema.GroupVersionResource]informer.Mode {
	return map[schema.GroupVersionResource]informer.Mode{{Resource: "pods"}: informer.ServerSide}
}
func (informers) Followed() map[schema.GroupVersionResource]int {
	return map[schema.GroupVersionResource]int{{Resource: "nodes"}: 4}
}
func (informers) Failing() []schema.GroupResource {
	return []schema.GroupResource{{Group: "example.com", Resource: "rafts"}}
}

var _ Informers = (*informer.Pool)(nil)

// work is that of a shard: one namespace with one object.
type work struct{ fleet.Work }

func (w work) Warm(context.Context) error                  { return nil }
func (w work) CatchUp(context.Context, fence.Writes) error { return nil }
func (w work) Close()                                      {}
func (w work) Run(ctx context.Context) error {
	w.Running()
	<-ctx.Done()
	return nil
}
func (w work) Weigh() map[string]int64 {
	for i := 0; ; i++ {
		if name := fmt.Sprint("n", i); w.Shard.Range.ContainsNamespace(name) {
			return map[string]int64{name: 1}
		}
	}
}

// member returns a member, a, of a fleet of this name, that tells m what happens to it.
func member(t *testing.T, fleetName string, m *Metrics, build fleet.Config) *fleet.Member {
	t.Helper()
	build.Fleet, build.Member, build.Plan, build.Observe = fleetName, "a", testPlan(t), m.Count
	build.Leases, build.Clock = leasetest.NewStore().Client("a"), clock.RealClock{}
	build.Timing, build.Exit = election.DefaultTiming(), func(reason string) { t.Error(reason) }
	made, err := fleet.New(build)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// idle returns a member that does not run.
func idle(t *testing.T, fleetName string, m *Metrics) *fleet.Member {
	t.Helper()
	return member(t, fleetName, m, fleet.Config{
		Build: func(context.Context, fleet.Work) (fleet.Instance, error) { return nil, errors.New("never") },
	})
}

// busy returns a registry with the metrics of a member that runs two shards, in virtual time.
func busy(t *testing.T, o Options) (*Metrics, *prometheus.Registry) {
	t.Helper()
	m, registry := mustNew(t, o), prometheus.NewPedanticRegistry()
	runs := member(t, o.Fleet, m, fleet.Config{
		LeaderLocks: []string{"stock"},
		Build:       func(_ context.Context, w fleet.Work) (fleet.Instance, error) { return work{w}, nil },
	})
	source := Source{Member: runs, Informers: informers{}, Enforced: func() bool { return true }}
	if err := m.Register(registry, source); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = runs.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	time.Sleep(5 * time.Minute) // virtual
	synctest.Wait()
	return m, registry
}

func testPlan(t *testing.T) shard.Plan {
	t.Helper()
	ranges, err := shard.EqualRanges(2)
	if err != nil {
		t.Fatal(err)
	}
	ring := shard.Ring{Name: "namespaces", Scope: shard.ScopeNamespaced, Controllers: []string{"c"}}
	for i, r := range ranges {
		id := shard.ID{Ring: "namespaces", Name: fmt.Sprintf("%02d", i)}
		ring.Shards = append(ring.Shards, shard.Shard{ID: id, Range: r})
	}
	return shard.Plan{Generation: 1, Rings: []shard.Ring{ring}}
}

func mustNew(t *testing.T, o Options) *Metrics {
	t.Helper()
	m, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// series is one of a family, or of a histogram its _sum or its _count.
type series struct {
	labels map[string]string
	value  float64
}

// gathered returns the values that a scrape would have, by name.
func gathered(t *testing.T, from prometheus.Gatherer) map[string][]series {
	t.Helper()
	found, err := from.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]series{}
	for _, f := range found {
		for _, m := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			add := func(suffix string, value float64) {
				all[f.GetName()+suffix] = append(all[f.GetName()+suffix], series{labels, value})
			}
			if h := m.GetHistogram(); h != nil {
				add("_sum", h.GetSampleSum())
				add("_count", float64(h.GetSampleCount()))
				continue
			}
			add("", m.GetGauge().GetValue()+m.GetCounter().GetValue()) // one of them is nil
		}
	}
	return all
}

// sum adds up the values with these labels, given as name, value, name, value.
func sum(all []series, labels ...string) float64 {
	total := 0.0
	for _, s := range all {
		matches := true
		for i := 0; i < len(labels); i += 2 {
			matches = matches && s.labels[labels[i]] == labels[i+1]
		}
		if matches {
			total += s.value
		}
	}
	return total
}
