package integration

import (
	"bytes"
	"context"
	"errors"
	"runtime"
	"runtime/pprof"
	"slices"
	"sync"
	"testing"
	"time"

	"k8s.io/kubernetes/cmd/kube-controller-manager/app/config"

	"github.com/flotilla-kube/flotilla/pkg/controllers"
	"github.com/flotilla-kube/flotilla/pkg/controllers/catalogue"
)

// allOn also enables the controllers that are off by default.
const allOn = "--controllers=*,bootstrap-signer-controller,token-cleaner-controller,selinux-warning-controller"

// running is an instance with a function that stops it.
type running struct {
	*controllers.Instance
	stop func()
}

func start(t testing.TB, p *controllers.Process, spec controllers.Spec) running {
	t.Helper()
	return startAs(t, p, spec, false)
}

// startAs starts an instance at once, or after its caches have been filled.
func startAs(t testing.TB, p *controllers.Process, spec controllers.Spec, warm bool) running {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	i, err := p.Build(context.WithoutCancel(ctx), spec)
	if err != nil {
		cancel()
		t.Fatalf("building %s: %v", spec.ID, err)
	}
	if warm {
		if err := i.Warm(ctx); err != nil {
			t.Error(err)
		}
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := i.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	r := running{i, sync.OnceFunc(func() { cancel(); wg.Wait() })}
	t.Cleanup(r.stop)
	return r
}

// waitFor is eventually for a condition that has nothing to say.
func waitFor(t testing.TB, what string, condition func() bool) {
	t.Helper()
	awaitOften(t.Context(), t, "waiting for "+what, func() error {
		if !condition() {
			return errors.New("not yet")
		}
		return nil
	})
}

// specs returns the shards of the default plan with this many ranges.
func specs(t testing.TB, ranges int) []controllers.Spec {
	t.Helper()
	plan, err := catalogue.DefaultPlan(ranges)
	if err != nil {
		t.Fatal(err)
	}
	var all []controllers.Spec
	for _, s := range plan.Shards() {
		collect, names := controllers.Collects(s, plan.ControllersOf(s.ID))
		all = append(all, controllers.Spec{
			ID: s.ID, Range: s.Range, Controllers: names, Collect: collect, Share: ranges, Shards: ranges,
		})
	}
	return all
}

// TestEveryControllerStopsAndStartsAgain starts every controller of the catalogue three times in
// one process, namespaced ones in two shards at once, cold and warm, and counts what is left after
// each stop.
func TestEveryControllerStopsAndStartsAgain(t *testing.T) {
	setFeatures(t, everyController)
	c, _ := newConfig(t, allOn, "--allocate-node-cidrs=true", "--cluster-cidr=10.244.0.0/16", "--flex-volume-plugin-dir="+t.TempDir())
	endpoints := controllers.NewEndpoints()
	process, err := controllers.NewProcess(c, endpoints)
	if err != nil {
		t.Fatal(err)
	}
	var before int
	for round := range 4 {
		ran := map[string]bool{}
		var instances []running
		for _, spec := range specs(t, 2) {
			instances = append(instances, startAs(t, process, spec, round%2 == 1))
		}
		waitFor(t, "every controller to run", func() bool {
			for _, r := range instances {
				for _, name := range r.Controllers() {
					ran[name] = true
				}
			}
			return !slices.ContainsFunc(catalogue.All(), func(row catalogue.Row) bool { return !ran[row.Name] })
		})
		for _, r := range instances {
			waitFor(t, "caches to sync", r.Informers().HasSynced)
		}
		settled(t) // until everything that a controller starts late runs too
		begin := time.Now()
		var stopping sync.WaitGroup
		for _, r := range instances {
			stopping.Go(r.stop)
		}
		stopping.Wait()
		t.Logf("round %d: %d controllers ran, stopped in %v", round, len(ran), time.Since(begin).Round(time.Millisecond))
		if names := endpoints.CheckNames(); len(names) != 0 {
			t.Errorf("round %d: health checks left behind: %v", round, names)
		}
		if names := endpoints.DebugNames(); len(names) != 0 {
			t.Errorf("round %d: debug handlers left behind: %v", round, names)
		}
		if shared := process.Pool().Resources(); len(shared) != 0 {
			t.Errorf("round %d: shared informers left running: %v", round, shared)
		}
		// The first round leaves what a process has once: connections, token sources.
		if round == 0 {
			before = settled(t)
			continue
		}
		if after := settled(t); after > before+5 {
			t.Errorf("round %d: %d goroutines after all shards stopped, %d after the first round:\n%s", round, after, before, stacks())
		}
	}
}

// TestInstancesThatNeverRunLeaveNothing builds every shard, some of which fail, and discards them.
func TestInstancesThatNeverRunLeaveNothing(t *testing.T) {
	good, _ := newConfig(t)
	bad, _ := newConfig(t)
	before, failed := 0, 0
	for round, c := range []*config.CompletedConfig{good, good, bad} {
		endpoints := controllers.NewEndpoints()
		process, err := controllers.NewProcess(c, endpoints)
		if err != nil {
			t.Fatal(err)
		}
		if c == bad { // The key was there when the process began.
			c.ComponentConfig.CSRSigningController.ClusterSigningKeyFile = "/nowhere.key"
		}
		for _, spec := range specs(t, 2) {
			i, err := process.Build(t.Context(), spec)
			if err != nil {
				t.Logf("as expected: %v", err)
				failed++
				continue
			}
			i.Close()
		}
		if names := endpoints.CheckNames(); len(names) != 0 {
			t.Errorf("round %d: health checks left behind: %v", round, names)
		}
		if shared := process.Pool().Resources(); len(shared) != 0 {
			t.Errorf("round %d: shared informers left: %v", round, shared)
		}
		after := settled(t)
		if round > 0 && after > before+5 {
			t.Errorf("round %d: %d goroutines, %d after the first round:\n%s", round, after, before, stacks())
		}
		if round == 0 {
			before = after
		}
	}
	if failed != 1 {
		t.Errorf("%d instances failed to build, want 1: the certificates group without its key", failed)
	}
}

// settled returns the number of goroutines once it stops changing.
func settled(t testing.TB) int {
	t.Helper()
	last, same := -1, 0
	waitFor(t, "goroutines to settle", func() bool {
		n := runtime.NumGoroutine()
		if n == last {
			same++
		} else {
			last, same = n, 0
		}
		return same >= 25
	})
	return last
}

func stacks() string {
	var b bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&b, 1); err != nil {
		return err.Error()
	}
	return b.String()
}

// TestIdleShardIsCheap checks the budget of an idle shard of all namespaced controllers: the
// difference between eight shards and one, per shard.
func TestIdleShardIsCheap(t *testing.T) {
	const (
		more          = 7
		maxGoroutines = 500
		maxHeap       = 5 << 20
	)
	c, _ := newConfig(t)
	process, err := controllers.NewProcess(c, controllers.NewEndpoints())
	if err != nil {
		t.Fatal(err)
	}
	all := specs(t, more+1)
	var namespaced []controllers.Spec
	for _, s := range all {
		if s.ID.Ring == catalogue.NamespacesRing {
			namespaced = append(namespaced, s)
		}
	}
	first := start(t, process, namespaced[0])
	waitFor(t, "the first shard's caches", first.Informers().HasSynced)
	goroutines, heap := settled(t), liveHeap()
	for _, s := range namespaced[1:] {
		r := start(t, process, s)
		waitFor(t, "caches to sync", r.Informers().HasSynced)
	}
	goroutines, heap = (settled(t)-goroutines)/more, (liveHeap()-heap)/more
	t.Logf("an idle shard costs %d goroutines and %.2f MB of heap", goroutines, float64(heap)/(1<<20))
	if goroutines > maxGoroutines || heap > maxHeap {
		t.Errorf("an idle shard costs %d goroutines and %d bytes of heap, want at most %d and %d", goroutines, heap, maxGoroutines, maxHeap)
		t.Log(stacks())
	}
}

func liveHeap() int {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}
