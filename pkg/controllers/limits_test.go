package controllers

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/controller-manager/pkg/clientbuilder"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app/config"
	"k8s.io/kubernetes/cmd/kube-controller-manager/names"

	"github.com/flotilla-kube/flotilla/pkg/controllers/catalogue"
	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

const (
	deployments = names.DeploymentController
	jobs        = names.JobController
	namespaces  = names.NamespaceController
	collector   = names.GarbageCollectorController
)

// stock are the flags' defaults.
var stock = &rest.Config{QPS: 20, Burst: 30}

// member returns the limits of a member whose fleet shares them.
func member() *limits {
	l := newLimits(sharedLimits())
	l.share()
	return l
}

// limitsOf returns the limiter's current limits.
func limitsOf(t *testing.T, l flowcontrol.RateLimiter) (qps float64, burst int) {
	t.Helper()
	s, ok := l.(*sharedLimiter)
	if !ok {
		t.Fatalf("the limiter is a %T", l)
	}
	return float64(s.limiter.Limit()), s.limiter.Burst()
}

// TestPartsOfTheLimits adds and removes shards, and checks the limits of three controllers after
// each step.
func TestPartsOfTheLimits(t *testing.T) {
	l := member()
	limiters := map[string]flowcontrol.RateLimiter{}
	for name, shards := range map[string]int{deployments: 16, namespaces: 16, jobs: 4} {
		limiters[name] = l.limiter(name, name, stock, shards)
	}
	leaving := map[string]func(){}
	begin := func(id string, shards int, controllers ...string) func() {
		return func() { leaving[id] = l.count(append(controllers, collector), shards) }
	}
	end := func(id string) func() { return func() { leaving[id]() } }
	type limit struct {
		qps   float64
		burst int
	}
	for _, step := range []struct {
		what string
		do   func()
		want map[string]limit
	}{
		{"nothing runs", func() {}, map[string]limit{deployments: {1.25, 2}, namespaces: {25, 188}, jobs: {5, 8}}},
		{"the first of 16", begin("a", 16, deployments, namespaces), map[string]limit{deployments: {1.25, 2}, namespaces: {25, 188}, jobs: {5, 8}}},
		{"the second of 16", begin("b", 16, deployments, namespaces), map[string]limit{deployments: {2.5, 4}, namespaces: {50, 375}}},
		{"two of the other ring's 4", func() { begin("x", 4, jobs)(); begin("y", 4, jobs)() }, map[string]limit{deployments: {2.5, 4}, jobs: {10, 15}}},
		{"a group", begin("group", 5), map[string]limit{deployments: {2.5, 4}, namespaces: {50, 375}, jobs: {10, 15}}},
		{"a new plan's first of 4", begin("c", 4, deployments, namespaces), map[string]limit{deployments: {7.5, 12}, namespaces: {150, 1125}, jobs: {10, 15}}},
		{"the first has gone", end("a"), map[string]limit{deployments: {6.25, 10}, namespaces: {125, 938}}},
		{"more than everything", func() { begin("d", 1, deployments)(); begin("e", 2, deployments)() }, map[string]limit{deployments: {20, 30}, namespaces: {125, 938}}},
		{"no more than a new one", func() {
			for _, id := range []string{"d", "e", "b"} {
				end(id)()
			}
		}, map[string]limit{deployments: {5, 8}, namespaces: {100, 750}}},
		{"nothing runs again", func() {
			for _, id := range []string{"c", "x", "y", "group"} {
				end(id)()
			}
		}, map[string]limit{deployments: {5, 8}, namespaces: {100, 750}, jobs: {5, 8}}},
		{"a ring of a thousand is prepared for", func() { l.limiter(deployments, deployments, stock, 1000) }, map[string]limit{deployments: {0.02, 1}, namespaces: {100, 750}}},
	} {
		step.do()
		for name, want := range step.want {
			if qps, burst := limitsOf(t, limiters[name]); math.Abs(qps-want.qps) > 1e-9 || burst != want.burst {
				t.Errorf("%s: %s has %v and %d, want %v", step.what, name, qps, burst, want)
			}
		}
	}
	late := l.count([]string{deployments}, 10)
	defer late()
	if qps, burst := limitsOf(t, l.limiter(deployments, "another-client", stock, 10)); math.Abs(qps-2) > 1e-9 || burst != 3 {
		t.Errorf("a client that is built late has %v and %d, want 2 and 3", qps, burst)
	}
}

// TestAutoscalersLimits: upstream gives the autoscaler a client for scales and one for metrics, with
// a limit each, beside the one that writes its status.
func TestAutoscalersLimits(t *testing.T) {
	const name = "horizontal-pod-autoscaler"
	b := clientBuilder{controller: names.HorizontalPodAutoscalerController}
	status, statusConfig := b.limited(name, catalogue.ViaClient, stock)
	others, othersConfig := b.limited(name, catalogue.ViaConfig, stock)
	if status == others || statusConfig != stock || othersConfig.QPS != 2*stock.QPS || othersConfig.Burst != 2*stock.Burst {
		t.Errorf("%q has %v and %d, %q has %v and %d", status, statusConfig.QPS, statusConfig.Burst, others, othersConfig.QPS, othersConfig.Burst)
	}
	if _, c := b.limited(name, catalogue.ViaConfig, &rest.Config{}); c.QPS != 2*rest.DefaultQPS || c.Burst != 2*rest.DefaultBurst {
		t.Errorf("without flags it has %v and %d", c.QPS, c.Burst)
	}
	b.controller = names.DisruptionController
	if client, c := b.limited("disruption-controller", catalogue.ViaConfig, stock); client != "disruption-controller" || c != stock {
		t.Errorf("disruption: %q has %v", client, c.QPS)
	}
}

// TestWholeLimits checks which controllers have the whole limits.
func TestWholeLimits(t *testing.T) {
	l := member()
	defer l.count([]string{deployments, collector}, 5)()
	if limiter := l.limiter(collector, collector, stock, 5); limiter != nil {
		t.Errorf("a controller of a group has the limiter %v, want its client's own", limiter)
	}
	if limiter := l.limiter(deployments, deployments, &rest.Config{QPS: -1}, 5); limiter != nil {
		t.Errorf("without a limit: limiter %v", limiter)
	}
	alone := member()
	defer alone.count([]string{deployments}, 0)()
	if qps, burst := limitsOf(t, alone.limiter(deployments, deployments, &rest.Config{}, 0)); qps != float64(rest.DefaultQPS) || burst != rest.DefaultBurst {
		t.Errorf("a process that is not sharded has %v and %d", qps, burst)
	}
	each := newLimits(sharedLimits())
	limiter := each.limiter(deployments, deployments, stock, 16)
	defer each.count([]string{deployments}, 16)()
	if limiter.QPS() != 20 || each.limiter(deployments, deployments, stock, 4) != limiter || len(each.parts) != 0 {
		t.Errorf("with limits per member: %v a second of 20, parts %v", limiter.QPS(), each.parts)
	}
}

// TestClosedFencesEndWaiting checks that requests that wait for the limits go on at once, to be
// refused, when the fence is closed. It tries every kind of client that a controller of a group
// has.
func TestClosedFencesEndWaiting(t *testing.T) {
	for name, config := range map[string]func(clientBuilder) (*rest.Config, error){
		"client": func(b clientBuilder) (*rest.Config, error) {
			return b.config("generic-garbage-collector", catalogue.ViaClient)
		},
		"config":    func(b clientBuilder) (*rest.Config, error) { return b.Config("generic-garbage-collector") },
		"discovery": func(b clientBuilder) (*rest.Config, error) { return b.discoveryConfig("generic-garbage-collector") },
	} {
		synctest.Test(t, func(t *testing.T) {
			closed := make(chan struct{})
			c, err := config(clientBuilder{
				base: clientbuilder.SimpleControllerClientBuilder{ClientConfig: stock}, fence: transport.Wrappers(),
				controller: collector, limits: newLimits(sharedLimits()), closed: closed,
			})
			if err != nil {
				t.Fatal(err)
			}
			want := map[string]float32{"client": 20, "config": 40, "discovery": 20}[name]
			if c.RateLimiter == nil || c.RateLimiter.QPS() != want {
				t.Fatalf("%s: the limiter is %v, want %v requests a second", name, c.RateLimiter, want)
			}
			for c.RateLimiter.TryAccept() {
			}
			began := time.Now()
			time.AfterFunc(time.Millisecond, func() { close(closed) })
			var requests sync.WaitGroup
			for range 1000 {
				requests.Go(func() {
					if err := c.RateLimiter.Wait(t.Context()); err != nil {
						t.Error(err)
					}
				})
			}
			requests.Wait()
			if took := time.Since(began); took > time.Millisecond { // virtual
				t.Errorf("%s: requests waited %v, want them to end when the fence closes", name, took)
			}
		})
	}
}

// TestFleetHasTheLimits gives shards to members at random. Together they must have the limits of
// one process.
func TestFleetHasTheLimits(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for range 200 {
		shards, running := 1+random.IntN(100), map[int]int{}
		for range shards {
			running[random.IntN(8)]++
		}
		sum, bursts := 0.0, 0
		for _, n := range running {
			l := member()
			for range n {
				l.count([]string{deployments}, shards)
			}
			qps, burst := limitsOf(t, l.limiter(deployments, deployments, stock, shards))
			sum, bursts = sum+qps, bursts+burst
		}
		if math.Abs(sum-20) > 1e-9 || bursts < 30 || bursts >= 30+len(running) {
			t.Errorf("%d shards on members %v: %v a second and %d at once, want 20 and 30, rounded up by each", shards, running, sum, bursts)
		}
	}
}

// TestLimitsFollowWhileRequestsWait adds and removes shards while many requests wait, and counts
// the requests that have passed at each time.
func TestLimitsFollowWhileRequestsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := member()
		limiter := l.limiter(deployments, deployments, stock, 16)
		var mu sync.Mutex
		var passed []int
		for i := range 300 {
			go func() {
				if err := limiter.Wait(t.Context()); err == nil {
					mu.Lock()
					defer mu.Unlock()
					passed = append(passed, i)
				}
			}()
			synctest.Wait() // So that they come one after the other.
		}
		check := func(what string, after time.Duration, want int) {
			t.Helper()
			time.Sleep(after)
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if len(passed) < want-1 || len(passed) > want+1 {
				t.Errorf("%s: %d requests have passed after %v more, want %d", what, len(passed), after, want)
			}
		}
		check("nothing runs: the burst", 0, 2)
		check("nothing runs: 1.25 a second", 40*time.Second, 52)
		var leave []func()
		for range 16 {
			leave = append(leave, l.count([]string{deployments}, 16))
		}
		check("everything runs: 20 a second", 5*time.Second, 152)
		for _, discount := range leave[4:] {
			discount()
		}
		check("a quarter runs: 5 a second", 10*time.Second, 202)
		for _, discount := range leave[:4] {
			discount()
		}
		check("nothing runs: 1.25 a second again", 8*time.Second, 212)
		if limiter.TryAccept() {
			t.Error("a request has overtaken waiting ones")
		}
		for range 16 {
			l.count([]string{deployments}, 16)
		}
		check("everything again", time.Minute, 300)
		if !slices.IsSorted(passed) {
			t.Errorf("they did not pass in the order in which they came: %v", passed)
		}
		n := 0
		for limiter.TryAccept() {
			n++
		}
		if n != 30 {
			t.Errorf("after a minute without requests %d pass at once, want 30", n)
		}
	})
}

// TestLimitsFollowForTheFirst makes a request wait at the rate of one shard of a thousand, and adds
// the others meanwhile.
func TestLimitsFollowForTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const shards = 1000
		l := member()
		limiter := l.limiter(deployments, deployments, stock, shards)
		limiter.Accept()
		began := time.Now()
		passed := make(chan error)
		go func() { passed <- limiter.Wait(t.Context()) }()
		time.Sleep(25 * time.Second)
		for range shards {
			l.count([]string{deployments}, shards)
		}
		// It has half of what it needs, and the other half takes 25 ms at the new rate.
		if err := <-passed; err != nil || time.Since(began).Round(time.Millisecond) != 25*time.Second+25*time.Millisecond {
			t.Errorf("it has passed after %v (%v)", time.Since(began), err)
		}
	})
}

// TestWaitingEndsWithItsContext ends contexts of the first request in line and of others.
func TestWaitingEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := newSharedLimiter(1, 1, 1)
		limiter.Accept()
		first, cancelFirst := context.WithCancel(t.Context())
		second, cancelSecond := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancelSecond()
		ended := make(chan error, 3)
		began := time.Now()
		for _, ctx := range []context.Context{first, second, t.Context()} {
			go func() { ended <- limiter.Wait(ctx) }()
			synctest.Wait()
		}
		if err := <-ended; !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != 300*time.Millisecond {
			t.Errorf("the second has ended after %v with %v", time.Since(began), err)
		}
		cancelFirst()
		if err := <-ended; !errors.Is(err, context.Canceled) || time.Since(began) != 300*time.Millisecond {
			t.Errorf("the first has ended after %v with %v", time.Since(began), err)
		}
		if err := <-ended; err != nil || time.Since(began) != time.Second {
			t.Errorf("the third has ended after %v with %v, want what the first has left", time.Since(began), err)
		}
	})
}

// TestPartsWhileAllIsUsed adds and removes shards while clients are built and send requests.
func TestPartsWhileAllIsUsed(t *testing.T) {
	l := member()
	fast := &rest.Config{QPS: 1e6, Burst: 1000}
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			shards := 4 << (i % 2)
			for range 200 {
				discount := l.count([]string{deployments, jobs}, shards)
				if err := l.limiter(deployments, deployments, fast, shards).Wait(t.Context()); err != nil {
					t.Error(err)
				}
				discount()
			}
		})
	}
	all.Wait()
	if p := l.parts[deployments]; len(p.running) != 0 {
		t.Errorf("shards still count: %v", p.running)
	}
}

// process returns a process whose API server has nothing but a version. Its instances run no
// controllers, but count all the same.
func process(t *testing.T) *Process {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"major":"1","minor":"37"}`) }))
	t.Cleanup(server.Close)
	kubeconfig := &rest.Config{Host: server.URL}
	client, err := kubernetes.NewForConfig(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	p := &Process{
		config: (&config.Config{Client: client}).Complete(), root: clientbuilder.SimpleControllerClientBuilder{ClientConfig: kubeconfig},
		limits: member(), endpoints: NewEndpoints(), clock: election.NewClock(),
	}
	if err := p.newPool(); err != nil {
		t.Fatal(err)
	}
	return p
}

// TestInstancesCountWhileTheyRun checks the limits before, while and after instances run. One of
// them cannot be built.
func TestInstancesCountWhileTheyRun(t *testing.T) {
	p := process(t)
	build := func(name string, running func()) *Instance {
		t.Helper()
		i, err := p.Build(context.WithoutCancel(t.Context()), Spec{ID: shard.ID{Ring: "namespaces", Name: name}, Controllers: []string{deployments}, Shards: 4, Running: running})
		if err != nil {
			t.Fatal(err)
		}
		return i
	}
	limiter := p.limits.limiter(deployments, deployments, stock, 4)
	check := func(what string, want float64) {
		t.Helper()
		if qps, _ := limitsOf(t, limiter); qps != want {
			t.Errorf("%s: %v a second, want %v", what, qps, want)
		}
	}
	defer p.limits.count([]string{deployments}, 4)()
	check("one that always runs", 5)

	run := func(i *Instance, up <-chan struct{}) (stop func()) {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- i.Run(ctx) }()
		<-up
		return func() {
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	}
	firstUp, secondUp := make(chan struct{}), make(chan struct{})
	first, second := build("first", func() { close(firstUp) }), build("second", func() { close(secondUp) })
	check("two are built", 5)
	stopFirst := run(first, firstUp)
	check("one runs", 10)
	stopSecond := run(second, secondUp)
	check("both run", 15)
	stopFirst()
	check("one has returned", 10)
	stopSecond()
	check("both have returned", 5)

	failing := build("failing", nil)
	failing.late = func() error {
		check("it is about to fail", 10)
		return errors.New("cannot be built")
	}
	if err := failing.Run(t.Context()); err == nil {
		t.Error("it did not fail")
	}
	check("it has failed", 5)
	build("closed", nil).Close()
	check("one was closed", 5)
}
