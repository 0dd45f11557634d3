package metrics

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	k8smetrics "k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/testutil"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/flotilla-kube/flotilla/pkg/controllers/queues"
	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/election/fence"
	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/election/leasetest"
	"github.com/flotilla-kube/flotilla/pkg/fleet"
	"github.com/flotilla-kube/flotilla/pkg/fleet/assignment"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/informer"
	"github.com/flotilla-kube/flotilla/pkg/metrics"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard())
	utilruntime.ErrorHandlers = nil
	os.Exit(m.Run())
}

// informers stands for a process's informers.
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

// work is a shard's work. It has one namespace with as many objects as the ring has shards.
type work struct {
	fleet.Work
	queues *queues.Group
}

func (w work) Warm(context.Context) error                  { return nil }
func (w work) CatchUp(context.Context, fence.Writes) error { return nil }
func (w work) Close()                                      { w.queues.Close() }
func (w work) Refresh(context.Context) error               { return nil }
func (w work) Run(ctx context.Context) error {
	w.Running()
	<-ctx.Done()
	w.queues.Close()
	return nil
}
func (w work) Weigh() map[string]int64 {
	for i := 0; ; i++ {
		if name := fmt.Sprint("n", i); w.Shard.Range.Contains(shard.Hash(name)) {
			return map[string]int64{name: int64(w.Shards)}
		}
	}
}

// testProcess is a member and its metrics.
type testProcess struct {
	*fleet.Member
	registry k8smetrics.KubeRegistry
	stop     func()
	ended    chan struct{}
}

func launch(t *testing.T, store *leasetest.Store, name string, plan shard.Plan) *testProcess {
	t.Helper()
	p := &testProcess{registry: k8smetrics.NewKubeRegistry(), ended: make(chan struct{})}
	counted, err := metrics.New(metrics.Options{Fleet: "flotilla", Stability: Stability})
	if err != nil {
		t.Fatal(err)
	}
	master := NewMaster()
	p.Member, err = fleet.New(fleet.Config{
		Fleet: "flotilla", Member: name, Plan: plan, Leases: store.Client(name), Clock: clock.RealClock{},
		Timing: election.DefaultTiming(), LeaderLocks: []string{"kube-controller-manager"},
		Exit:    func(reason string) { t.Error(reason) },
		Observe: func(e fleet.Event) { counted.Count(e); master.Observe(e) },
		Forgets: func(string) bool { return true },
		Build: func(_ context.Context, w fleet.Work) (fleet.Instance, error) {
			return work{w, queues.NewGroup(w.Shard.Ring, w.Shard.Name)}, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	enforced := func() bool { return true }
	source := metrics.Source{Member: p.Member, Informers: informers{}, Enforced: enforced}
	if err := counted.Register(p.registry.Registerer(), source); err != nil {
		t.Fatal(err)
	}
	master.register(p.registry.Register, p.Member)
	ctx, cancel := context.WithCancel(t.Context())
	p.stop = cancel
	go func() { defer close(p.ended); _ = p.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-p.ended })
	return p
}

// text returns the content of /metrics.
func text(t *testing.T, registry k8smetrics.KubeRegistry) string {
	t.Helper()
	answer := httptest.NewRecorder()
	k8smetrics.HandlerFor(registry, k8smetrics.HandlerOpts{}).ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", http.NoBody))
	if answer.Code != http.StatusOK {
		t.Fatal(answer.Body.String())
	}
	return answer.Body.String()
}

func parse(t *testing.T, text string) testutil.Metrics {
	t.Helper()
	parsed := testutil.NewMetrics()
	if err := testutil.ParseMetrics(text, &parsed); err != nil {
		t.Fatal(err)
	}
	return parsed
}

// sum adds up the samples with these labels.
func sum(samples testutil.Samples, labels ...string) float64 {
	total := 0.0
	for _, s := range samples {
		matches := true
		for i := 0; i < len(labels); i += 2 {
			matches = matches && string(s.Metric[testutil.LabelName(labels[i])]) == labels[i+1]
		}
		if matches {
			total += float64(s.Value)
		}
	}
	return total
}

func testPlan(t *testing.T, n int) shard.Plan {
	t.Helper()
	ranges, err := shard.EqualRanges(n)
	if err != nil {
		t.Fatal(err)
	}
	ring := shard.Ring{Name: "namespaces", Scope: shard.ScopeNamespaced, Controllers: []string{"job-controller"}}
	for i, r := range ranges {
		ring.Shards = append(ring.Shards, shard.Shard{ID: shard.ID{Ring: "namespaces", Name: fmt.Sprintf("%02d", i)}, Range: r})
	}
	return shard.Plan{Generation: 1, Rings: []shard.Ring{ring}}
}

// pass lets virtual time pass.
func pass(d time.Duration) { time.Sleep(d); synctest.Wait() } // virtual

// TestLifeOfAFleet has members join, leave and change the plan, and checks their metrics.
func TestLifeOfAFleet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := leasetest.NewStore()
		a := launch(t, store, "a", testPlan(t, 4))
		pass(5 * time.Minute)
		expect := func(p *testProcess, want float64, name string, labels ...string) {
			t.Helper()
			if got := sum(parse(t, text(t, p.registry))[name], labels...); got != want {
				t.Errorf("%s%v is %v, want %v", name, labels, got, want)
			}
		}
		expect(a, 4, "flotilla_shard_acquisitions_total", "how", "vacant", "reason", "new", "result", "running")
		expect(a, 4, "flotilla_shard_acquisitions_total")
		expect(a, 4, "flotilla_shard_state", "state", "running")
		expect(a, 16, "flotilla_shard_objects")
		expect(a, 4, "flotilla_shard_namespaces")
		expect(a, 1, "flotilla_ring_load_ratio", "ring", "namespaces")
		expect(a, 1, "flotilla_leader_lock_held", "lease", "kube-controller-manager")
		expect(a, 1, "flotilla_leader_lock_holder_live", "lease", "kube-controller-manager")
		expect(a, 1, "flotilla_fleet_members", "state", "active")
		expect(a, 1, "leader_election_master_status", "name", component)
		expect(a, 4+1, "leader_election_master_status")

		b := launch(t, store, "b", testPlan(t, 4))
		pass(5 * time.Minute)
		expect(b, 2, "flotilla_shard_acquisitions_total", "how", "handoff", "reason", "rebalance", "result", "running")
		expect(b, 2, "flotilla_shard_unowned_seconds_count", "how", "handoff")
		for _, phase := range []string{"prepare", "ask", "acquire", "catch_up", "start"} {
			expect(b, 2, "flotilla_handoff_phase_seconds_count", "phase", phase)
		}
		for _, phase := range []string{"release"} { // Draining takes no time here, so it does not count.
			expect(a, 2, "flotilla_handoff_phase_seconds_count", "phase", phase)
		}
		expect(a, 2, "flotilla_fleet_members", "state", "active")
		expect(b, 8, "flotilla_shard_objects") // It counts what it holds, not what a reports.
		expect(b, 1, "flotilla_ring_load_ratio", "ring", "namespaces")
		for kind, ok := range map[string]func(float64) bool{
			"member": func(n float64) bool { return n >= 100 },
			"shard":  func(n float64) bool { return n <= 10 }, // Only for news, not as a sign of life.
		} {
			requests := parse(t, text(t, b.registry))["flotilla_lease_requests_total"]
			if got := sum(requests, "kind", kind, "action", "renew", "result", "ok"); !ok(got) {
				t.Errorf("%v writes in five minutes, by a holder on Leases of kind %s", got, kind)
			}
		}

		gone := change(t, store)
		pass(time.Minute)
		expect(a, 1, "flotilla_shard_acquisitions_total", "reason", "plan", "result", "running")
		for _, p := range []*testProcess{a, b} {
			all := text(t, p.registry) + processText(t)
			for _, sample := range parse(t, all)["leader_election_master_status"] {
				if string(sample.Metric["name"]) == leaseapi.ShardLease("flotilla", gone) {
					t.Errorf("the Lease of %s, which has left the plan, has %v", gone, sample)
				}
			}
			for name, samples := range parse(t, all) {
				for _, sample := range samples {
					if string(sample.Metric["shard"]) == gone.Name {
						t.Errorf("%s has %v, but the shard has left the plan", name, sample)
					}
				}
			}
		}
		lint(t, text(t, a.registry)+processText(t))

		b.stop()
		<-b.ended
		pass(time.Minute)
		expect(a, 3, "flotilla_shard_acquisitions_total", "how", "handoff", "reason", "leaving", "result", "running") // One of them is new.
	})
}

// change splits one of a's shards in two, gives the second half the home b, and returns the old
// shard.
func change(t *testing.T, store *leasetest.Store) shard.ID {
	t.Helper()
	current, err := leaseapi.PlanOn(store.Get(leaseapi.PlanLease("flotilla")))
	if err != nil {
		t.Fatal(err)
	}
	holder := func(id shard.ID) string {
		return leaserecord.MemberOf(leaserecord.From(store.Get(leaseapi.ShardLease("flotilla", id))).Holder)
	}
	edited := assignment.KeepHomes(current, "namespaces", holder)
	i := slices.IndexFunc(edited.Rings[0].Shards, func(s shard.Shard) bool { return holder(s.ID) == "a" })
	old := edited.Rings[0].Shards[i]
	first, second := old, old
	first.Range.End = old.Range.Start + (old.Range.End-old.Range.Start)/2
	second.Range.Start = first.Range.End
	first.Home, second.Home, second.Name = "a", "b", old.Name+"b"
	edited.Rings[0].Shards = slices.Replace(edited.Rings[0].Shards, i, i+1, first, second)
	next, err := current.Successor(edited)
	if err != nil {
		t.Fatal(err)
	}
	lease, err := leaseapi.WithPlan("flotilla", store.Get(leaseapi.PlanLease("flotilla")), next)
	if err != nil {
		t.Fatal(err)
	}
	store.Put(lease)
	return old.ID
}
