package flotilla

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/flotilla-kube/flotilla/pkg/election/fence"
	"github.com/flotilla-kube/flotilla/pkg/fleet"
	"github.com/flotilla-kube/flotilla/pkg/shard"
	"github.com/flotilla-kube/flotilla/pkg/shard/skew"
)

func nothing(context.Context, *Shard) (Runnable, error) {
	return RunnableFunc(func(ctx context.Context) error { <-ctx.Done(); return nil }), nil
}

func newFleet(t *testing.T, change func(*Options)) *Fleet {
	t.Helper()
	return newFleetAt(t, "https://127.0.0.1:1", change)
}

// newFleetAt is newFleet with the address of the API server.
func newFleetAt(t *testing.T, host string, change func(*Options)) *Fleet {
	t.Helper()
	options := Options{Fleet: "certs", Namespace: "certs", Member: "certs-0"}
	if change != nil {
		change(&options)
	}
	f, err := New(&rest.Config{Host: host}, options)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestOptionsAreChecked(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*Options)
		want   []string // parts of the error; none for no error
	}{
		{"as they should be", func(*Options) {}, nil},
		{"no fleet", func(o *Options) { o.Fleet = "" }, []string{"Options.Fleet", `""`}},
		{"long fleet", func(o *Options) { o.Fleet = strings.Repeat("a", 64) }, []string{"Options.Fleet", "63"}},
		{"dot in the fleet", func(o *Options) { o.Fleet = "a.b" }, []string{"Options.Fleet", `"a.b"`}},
		{"no namespace", func(o *Options) { o.Namespace = "" }, []string{"Options.Namespace"}},
		{"member in capitals", func(o *Options) { o.Member = "Certs" }, []string{"Options.Member", `"Certs"`}},
		{"dots in the member", func(o *Options) { o.Member = "node-1.example.com" }, nil},
		{"a space in the version", func(o *Options) { o.Version = "v1.3.0 (abc)" }, []string{"Options.Version", `"v1.3.0 (abc)"`, "spaces"}},
		{"too many ranges", func(o *Options) { o.Ranges = 1025 }, []string{"Options.Ranges", "1025", "1 to 1024"}},
		{"fewer than no ranges", func(o *Options) { o.Ranges = -1 }, []string{"Options.Ranges", "-1"}},
		{"a leader lock that is no Lease", func(o *Options) { o.LeaderLocks = []string{"a/b"} }, []string{"Options.LeaderLocks", `"a/b"`}},
		{"negative handoff", func(o *Options) { o.HandoffTimeout = -1 }, []string{"Options.HandoffTimeout"}},
		{"a ring", func(o *Options) { o.Rings = []string{"namespaces"} }, nil},
		{"a ring that is none", func(o *Options) { o.Rings = []string{"*"} }, []string{"Options.Rings", `"*"`, "names of rings"}},
		{"too many handoffs", func(o *Options) { o.Handoffs = 1025 }, []string{"Options.Handoffs", "1025", "1 to 1024"}},
		{"fewer than no handoffs", func(o *Options) { o.Handoffs = -1 }, []string{"Options.Handoffs", "-1"}},
		{"negative shutdown", func(o *Options) { o.ShutdownTimeout = -1 }, []string{"Options.ShutdownTimeout", "-1ns", "not be negative"}},
		{"negative fence delay", func(o *Options) { o.FenceDelay = -1 }, []string{"Options.FenceDelay", "-1ns", "0s to HandoffTimeout, 5s"}},
		{"fence delay as long as the handoff", func(o *Options) { o.FenceDelay = DefaultHandoffTimeout }, nil},
		{"fence delay beyond the handoff", func(o *Options) {
			o.HandoffTimeout, o.FenceDelay = 1e9, 2e9
		}, []string{"Options.FenceDelay", "2s", "HandoffTimeout, 1s"}},
		{"timing", func(o *Options) { o.Timing.LeaseDuration = 1 }, []string{"Options.Timing.LeaseDuration"}},
		{"all at once", func(o *Options) { o.Fleet, o.Member = "", "" }, []string{"Options.Fleet", "Options.Member"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			options := Options{Fleet: "certs", Namespace: "certs", Member: "certs-0"}
			tc.change(&options)
			_, err := New(&rest.Config{}, options)
			if len(tc.want) == 0 {
				if err != nil {
					t.Error(err)
				}
				return
			}
			for _, part := range tc.want {
				if err == nil || !strings.Contains(err.Error(), part) {
					t.Errorf("the error is %v, want it to name %s", err, part)
				}
			}
		})
	}
	if _, err := New(nil, Options{}); err == nil {
		t.Error("no error without a configuration")
	}
}

// TestLeaderLockGivenTwice has names that are repeated. Each Lease has one series, so a
// second one would break /metrics.
func TestLeaderLockGivenTwice(t *testing.T) {
	given := []string{"b", "a", "b", "a"}
	f := newFleet(t, func(o *Options) { o.LeaderLocks = given })
	if got, want := f.options.LeaderLocks, []string{"b", "a"}; !slices.Equal(got, want) {
		t.Errorf("the leader locks are %q, want %q", got, want)
	}
	if !slices.Equal(given, []string{"b", "a", "b", "a"}) {
		t.Errorf("the caller's are now %q", given)
	}
}

func TestMistakesOfTheProgramPanic(t *testing.T) {
	f := newFleet(t, nil)
	f.Namespaced("issuer", nothing)
	for name, add := range map[string]func(){
		"a name that is no label": func() { f.Namespaced("Issuer", nothing) },
		"a name that is taken":    func() { f.Singleton("issuer", nothing) },
		"no function":             func() { f.Singleton("other", nil) },
	} {
		if !panics(add) {
			t.Errorf("%s: no panic", name)
		}
	}
}

func panics(f func()) (did bool) {
	defer func() { did = recover() != nil }()
	f()
	return false
}

func TestAFleetRunsOnceAndWithControllers(t *testing.T) {
	f := newFleet(t, nil)
	if err := f.Ready(); err == nil {
		t.Error("ready before it is run")
	}
	if err := f.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "controllers") {
		t.Errorf("without controllers the error is %v", err)
	}
	f.Namespaced("issuer", nothing)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := f.Run(ended); err != nil {
		t.Fatal(err)
	}
	if f.Member() == nil {
		t.Error("there is no member")
	}
	if err := f.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "before") {
		t.Errorf("the second Run returned %v", err)
	}
	if !panics(func() { f.Namespaced("late", nothing) }) {
		t.Error("adding a controller after Run does not panic")
	}
}

func TestPlan(t *testing.T) {
	f := newFleet(t, func(o *Options) { o.Ranges = 3 })
	f.Namespaced("issuer", nothing)
	f.Singleton("webhook-ca", nothing)
	f.Namespaced("certificate", nothing)
	plan, err := f.plan()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range plan.Shards() {
		got = append(got, s.ID.String())
	}
	want := []string{"cluster/webhook-ca", "namespaces/00", "namespaces/01", "namespaces/02"}
	if !slices.Equal(got, want) {
		t.Errorf("shards are %v, want %v", got, want)
	}
	ring, _ := plan.Ring(NamespacesRing)
	if want := []string{"certificate", "issuer"}; !slices.Equal(ring.Controllers, want) {
		t.Errorf("controllers of the ranges are %v, want %v", ring.Controllers, want)
	}
	if err := f.catalogue().Fits(nil, plan, nil); err != nil {
		t.Errorf("the program does not fit its own plan: %v", err)
	}
}

func TestAPlanOfOneScopeAlone(t *testing.T) {
	for _, add := range []func(*Fleet){
		func(f *Fleet) { f.Namespaced("issuer", nothing) },
		func(f *Fleet) { f.Singleton("issuer", nothing) },
	} {
		f := newFleet(t, nil)
		add(f)
		if plan, err := f.plan(); err != nil || len(plan.Rings) != 1 {
			t.Errorf("the plan is %+v, %v; want one ring", plan, err)
		}
	}
}

// TestANewControllerBeginsByItself adds one controller of each scope to a program: the plan follows
// once all members have it.
func TestANewControllerBeginsByItself(t *testing.T) {
	old := newFleet(t, func(o *Options) { o.Version = "v1.0.0" })
	old.Namespaced("issuer", nothing)
	plan, err := old.plan()
	if err != nil {
		t.Fatal(err)
	}
	newer := newFleet(t, func(o *Options) { o.Version = "v1.1.0" })
	newer.Namespaced("issuer", nothing)
	newer.Namespaced("certificate", nothing)
	newer.Singleton("webhook-ca", nothing)
	next, changes, err := newer.catalogue().Adapt(plan, nil, nil)
	if err != nil || len(changes) != 2 {
		t.Fatalf("changes are %v, %v; want two", changes, err)
	}
	ring, _ := next.Ring(NamespacesRing)
	cluster, _ := next.Ring(ClusterRing)
	if !slices.Contains(ring.Controllers, "certificate") || len(cluster.Shards) != 1 {
		t.Errorf("the next plan is %+v", next)
	}
	if err := old.catalogue().Fits(&plan, next, []skew.Known{newer.catalogue().Known()}); err != nil {
		t.Errorf("the old program cannot work by it: %v", err)
	}
}

func TestTarget(t *testing.T) {
	for path, want := range map[string]string{
		"/api/v1/namespaces/shop/pods":                          "shop",
		"/api/v1/namespaces/shop/pods/web/status":               "shop",
		"/apis/apps/v1/namespaces/shop/deployments":             "shop",
		"/k8s/clusters/c-1/apis/apps/v1/namespaces/shop/jobs/a": "none", // see pathOf
		"/api/v1/namespaces/shop":                               "shop",
		"/api/v1/namespaces":                                    "",
		"/api/v1/pods":                                          "",
		"/apis/example.com/v1/clusterthings/a":                  "",
		"/api":                                                  "none",
		"/api/v1":                                               "none",
		"/apis/apps/v1":                                         "none",
		"/version":                                              "none",
		"/openapi/v3/apis/apps/v1":                              "none",
		"/apis/authorization.k8s.io/v1/selfsubjectaccessreviews":  "none",
		"/apis/authentication.k8s.io/v1/tokenreviews":             "none",
		"/apis/authorization.k8s.io/v1/namespaces/a/localsubject": "none",
	} {
		of, is := targetOf(path)
		if !is {
			of.namespace = "none"
		}
		if of.namespace != want {
			t.Errorf("%s has namespace %q, want %q", path, of.namespace, want)
		}
	}
}

// shardOf returns a shard of one half of the keyspace, and a namespace of each half.
func shardOf(t *testing.T, f *Fleet) (s *Shard, mine, foreign string) {
	t.Helper()
	ranges, err := shard.EqualRanges(2)
	if err != nil {
		t.Fatal(err)
	}
	id := shard.ID{Ring: NamespacesRing, Name: "00"}
	s = &Shard{
		process: &process{Fleet: f}, controller: controller{name: "issuer"},
		work: fleet.Work{
			Shard: shard.Shard{ID: id, Range: ranges[0]},
			Fence: func(rt http.RoundTripper) http.RoundTripper { return rt },
		},
	}
	for i := range 20 {
		name := fmt.Sprintf("team-%d", i)
		if ranges[0].ContainsNamespace(name) {
			mine = name
		} else {
			foreign = name
		}
	}
	if mine == "" || foreign == "" {
		t.Fatal("all names lie in one half")
	}
	return s, mine, foreign
}

func TestOwns(t *testing.T) {
	s, mine, foreign := shardOf(t, newFleet(t, nil))
	if !s.Owns(mine) || s.Owns(foreign) || s.Owns("") {
		t.Errorf("owns its own %v, another's %v, that of no object %v", s.Owns(mine), s.Owns(foreign), s.Owns(""))
	}
	s.work.Shard = shard.Shard{ID: shard.ID{Ring: ClusterRing, Name: "x"}, Group: "x"}
	if !s.Owns(mine) || !s.Owns(foreign) || !s.Owns("") {
		t.Error("a singleton does not own everything")
	}
}

// answers is a transport that answers every request.
type answers struct{}

func (answers) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
}

func TestAccessesOutsideAreTold(t *testing.T) {
	var told []Access
	f := newFleet(t, func(o *Options) { o.Outside = func(a Access) { told = append(told, a) } })
	s, mine, foreign := shardOf(t, f)
	rt := s.watched(answers{})
	for _, path := range []string{
		"/api/v1/namespaces/" + mine + "/configmaps", "/api/v1/namespaces/" + foreign + "/configmaps", "/api/v1/nodes", "/version",
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://127.0.0.1:1"+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := rt.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
	}
	if len(told) != 2 || told[0].Namespace != foreign || told[1].Namespace != "" || !told[0].Writes() {
		t.Errorf("Outside received %+v, want %s and nodes", told, foreign)
	}
}

// buildOf builds the work of a range from these controllers.
func buildOf(t *testing.T, builds ...Build) (fleet.Instance, *atomic.Int32, error) {
	t.Helper()
	return buildIn(t, newFleet(t, nil), builds...)
}

func buildIn(t *testing.T, f *Fleet, builds ...Build) (fleet.Instance, *atomic.Int32, error) {
	t.Helper()
	return buildWith(t, f, func() {}, builds...)
}

// buildWith is buildIn with a function that closes the fence.
func buildWith(t *testing.T, f *Fleet, closeFence func(), builds ...Build) (fleet.Instance, *atomic.Int32, error) {
	t.Helper()
	var names []string
	for i, build := range builds {
		names = append(names, string(rune('a'+i)))
		f.Namespaced(names[i], build)
	}
	p := &process{Fleet: f}
	if err := p.connect(); err != nil {
		t.Fatal(err)
	}
	var running atomic.Int32
	instance, err := p.build(t.Context(), fleet.Work{
		Shard:       shard.Shard{ID: shard.ID{Ring: NamespacesRing, Name: "00"}, Range: shard.Everything()},
		Controllers: names,
		Fence:       func(rt http.RoundTripper) http.RoundTripper { return rt },
		Term:        func() int32 { return 1 },
		Close:       closeFence,
		Running:     func() { running.Add(1) },
	})
	return instance, &running, err
}

// TestOnlyRangeIsWeighed has a ring of one range. If that weighed nothing, it would never be split.
func TestOnlyRangeIsWeighed(t *testing.T) {
	caches := func(_ context.Context, s *Shard) (Runnable, error) {
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "team-1", Name: "a"}}
		return RunnableFunc(func(context.Context) error { return nil }), s.Informers().Core().V1().ConfigMaps().Informer().GetIndexer().Add(object)
	}
	instance, _, err := buildOf(t, caches)
	if err != nil {
		t.Fatal(err)
	}
	defer instance.Close()
	if got := instance.(fleet.Weigher).Weigh(); !maps.Equal(got, map[string]int64{"team-1": 1}) {
		t.Errorf("it weighs %v, want one object in team-1", got)
	}
}

func TestAnErrorEndsAllControllersOfTheShard(t *testing.T) {
	failed := errors.New("the cloud is down")
	ended := make(chan struct{})
	waits := func(context.Context, *Shard) (Runnable, error) {
		return RunnableFunc(func(ctx context.Context) error { <-ctx.Done(); close(ended); return ctx.Err() }), nil
	}
	fails := func(context.Context, *Shard) (Runnable, error) {
		return RunnableFunc(func(context.Context) error { return failed }), nil
	}
	instance, _, err := buildOf(t, waits, fails)
	if err != nil {
		t.Fatal(err)
	}
	err = instance.Run(t.Context())
	if !errors.Is(err, failed) || !strings.Contains(err.Error(), "controller b on namespaces/00") {
		t.Errorf("the error is %v, want that of controller b", err)
	}
	select {
	case <-ended:
	default:
		t.Error("Run has returned before the other controller")
	}
}

// stuck is a Runnable of which one method hangs.
type stuck struct {
	run, warm func() error
	close     func()
}

func (s stuck) Run(context.Context) error  { return s.run() }
func (s stuck) Warm(context.Context) error { return s.warm() }
func (s stuck) Close()                     { s.close() }

// TestAnErrorBesideAControllerThatHangs checks that a shard on which nothing works any more does
// not stay owned: its fence closes and the process ends, unless the shard was to be given up
// meanwhile.
func TestAnErrorBesideAControllerThatHangs(t *testing.T) {
	failed := errors.New("the cloud is down")
	ok, returns := func() error { return nil }, func() error { return failed }
	// a hangs, and b fails.
	type fault func(s *Shard, hang func() error) (a, b stuck)
	runs := func(_ *Shard, hang func() error) (a, b stuck) {
		return stuck{hang, ok, nil}, stuck{returns, ok, nil}
	}
	fails := func(s *Shard, hang func() error) (a, b stuck) {
		return stuck{hang, ok, nil}, stuck{func() error { s.Fail(failed); return hang() }, ok, nil}
	}
	fills := func(_ *Shard, hang func() error) (a, b stuck) {
		return stuck{nil, hang, func() {}}, stuck{nil, returns, func() {}}
	}
	failsToFill := func(s *Shard, hang func() error) (a, b stuck) {
		return stuck{nil, hang, func() {}}, stuck{nil, func() error { s.Fail(failed); return nil }, func() {}}
	}
	closes := func(_ *Shard, hang func() error) (a, b stuck) {
		return stuck{nil, ok, func() { _ = hang() }}, stuck{nil, returns, func() {}}
	}
	const never, most, noTime = time.Hour, 20 * time.Second, time.Duration(-1)
	for name, tc := range map[string]struct {
		fault fault
		// When the shard is to be given up, its fence is closed and the process ended.
		asked, closed, exited time.Duration
		hang                  string
	}{
		"a controller returns an error":      {runs, never, DefaultHandoffTimeout, most, ": a"},
		"a controller calls Fail":            {fails, never, DefaultHandoffTimeout, most, ": a, b"},
		"the shard is given up soon":         {runs, DefaultHandoffTimeout - 1, noTime, noTime, ""},
		"the shard is given up":              {runs, most - time.Second, DefaultHandoffTimeout, noTime, ""},
		"caches cannot be filled":            {fills, never, DefaultHandoffTimeout, most, ": a"},
		"a controller calls Fail in Warm":    {failsToFill, never, DefaultHandoffTimeout, most, ": a"},
		"a controller hangs when it closes":  {closes, never, DefaultHandoffTimeout, most, ": a"},
		"the shard is given up while closed": {closes, most - time.Second, DefaultHandoffTimeout, noTime, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var reason string
				closed, exited := noTime, noTime
				began := time.Now()
				f := newFleet(t, func(o *Options) {
					o.Clock = clock.RealClock{}
					o.Exit = func(why string) { reason, exited = why, time.Since(began) }
				})
				free := make(chan struct{})
				hang := func() error { <-free; return nil }
				closeFence := func() { closed = time.Since(began) }
				instance, _, err := buildWith(t, f, closeFence,
					func(_ context.Context, s *Shard) (Runnable, error) { a, _ := tc.fault(s, hang); return a, nil },
					func(_ context.Context, s *Shard) (Runnable, error) { _, b := tc.fault(s, hang); return b, nil })
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- instance.Run(ctx) }()
				time.Sleep(tc.asked) // virtual
				cancel()
				time.Sleep(time.Hour) // virtual
				close(free)
				if err := <-ended; !errors.Is(err, failed) {
					t.Errorf("Run returned %v, want the controller's error", err)
				}
				if closed != tc.closed {
					t.Errorf("the fence closed after %v, want %v", closed, tc.closed)
				}
				if exited != tc.exited || !strings.HasSuffix(reason, tc.hang) {
					t.Errorf("the process ended after %v with %q, want %v and %q at its end",
						exited, reason, tc.exited, tc.hang)
				}
				if tc.exited != noTime && !strings.Contains(reason, failed.Error()) {
					t.Errorf("%q does not say why the shard was ended", reason)
				}
			})
		})
	}
}

// TestFailEndsAPreparation checks that the caches of other controllers are not waited for.
func TestFailEndsAPreparation(t *testing.T) {
	failed := errors.New("the cloud is down")
	instance, _, err := buildOf(t, func(_ context.Context, s *Shard) (Runnable, error) {
		return failing{nil, s, failed}, nil
	}, func(context.Context, *Shard) (Runnable, error) { return filling{}, nil })
	if err != nil {
		t.Fatal(err)
	}
	defer instance.Close()
	if err := instance.Warm(t.Context()); !errors.Is(err, failed) || !strings.Contains(err.Error(), "controller a on namespaces/00") {
		t.Errorf("Warm returned %v, want the error of controller a", err)
	}
}

// TestFailBetweenWarmAndRun checks that a prepared instance that has failed is not taken for one
// that can run.
func TestFailBetweenWarmAndRun(t *testing.T) {
	failed := errors.New("the cloud is down")
	var s *Shard
	instance, _, err := buildOf(t, func(_ context.Context, of *Shard) (Runnable, error) {
		s = of
		return warmer{}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	defer instance.Close()
	if err := instance.Warm(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.Fail(nil)
	if err := instance.CatchUp(t.Context(), fence.Writes{}); err != nil {
		t.Errorf("Fail(nil) is a failure: %v", err)
	}
	s.Fail(failed)
	if err := instance.CatchUp(t.Context(), fence.Writes{}); !errors.Is(err, failed) {
		t.Errorf("CatchUp returned %v", err)
	}
	if err := instance.(fleet.Refresher).Refresh(t.Context()); !errors.Is(err, failed) {
		t.Errorf("Refresh returned %v", err)
	}
}

func TestWhoHasNothingToDoKeepsTheShard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		done := make(chan struct{})
		f := newFleet(t, func(o *Options) { o.Clock = clock.RealClock{} })
		instance, running, err := buildIn(t, f, func(context.Context, *Shard) (Runnable, error) {
			return RunnableFunc(func(context.Context) error { close(done); return nil }), nil
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		returned := make(chan error, 1)
		go func() { returned <- instance.Run(ctx) }()
		<-done
		synctest.Wait()
		select {
		case err := <-returned:
			t.Fatalf("Run has returned %v though its context has not ended", err)
		default:
		}
		cancel()
		if err := <-returned; err != nil {
			t.Error(err)
		}
		if running.Load() != 1 {
			t.Errorf("Running was called %d times, want once", running.Load())
		}
	})
}

// closer counts how often it is closed.
type closer struct {
	RunnableFunc
	closed *int
}

func (c closer) Close() { *c.closed++ }

func TestWhatIsBuiltInVainIsClosed(t *testing.T) {
	closed := 0
	good := func(context.Context, *Shard) (Runnable, error) { return closer{nil, &closed}, nil }
	bad := func(context.Context, *Shard) (Runnable, error) { return nil, errors.New("no") }
	if _, _, err := buildOf(t, good, bad); err == nil || !strings.Contains(err.Error(), "controller b") {
		t.Errorf("the error is %v, want one that names controller b", err)
	}
	if closed != 1 {
		t.Errorf("the controller built before was closed %d times, want once", closed)
	}
	none := func(context.Context, *Shard) (Runnable, error) { return nil, nil }
	if _, _, err := buildOf(t, none); err == nil {
		t.Error("a Build that returns nil causes no error")
	}
}

// warmer is a Runnable whose Warm succeeds or fails.
type warmer struct {
	RunnableFunc
	err error
}

func (w warmer) Warm(context.Context) error { return w.err }

// failing is a Warmer that knows that it cannot run.
type failing struct {
	RunnableFunc
	shard *Shard
	err   error
}

func (f failing) Warm(context.Context) error { f.shard.Fail(f.err); return nil }

// filling is a Warmer whose caches are full once the test says so.
type filling struct{ full chan struct{} }

func (f filling) Run(ctx context.Context) error { <-ctx.Done(); return nil }

func (f filling) Warm(ctx context.Context) error {
	select {
	case <-f.full:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// TestAColdShardRunsOnceItsCachesAreFull runs an instance that was not prepared, as after a crash.
func TestAColdShardRunsOnceItsCachesAreFull(t *testing.T) {
	for _, fills := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			full := make(chan struct{})
			f := newFleet(t, func(o *Options) { o.Clock = clock.RealClock{} })
			instance, running, err := buildIn(t, f, func(context.Context, *Shard) (Runnable, error) { return filling{full}, nil })
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			returned := make(chan error, 1)
			go func() { returned <- instance.Run(ctx) }()
			synctest.Wait()
			if running.Load() != 0 {
				t.Error("Running was called before the caches were full")
			}
			want := int32(0)
			if fills {
				close(full)
				want = 1
			}
			synctest.Wait()
			cancel()
			if err := <-returned; err != nil {
				t.Error(err)
			}
			if n := running.Load(); n != want {
				t.Errorf("Running was called %d times, want %d; the caches were full: %t", n, want, fills)
			}
		})
	}
}

func TestCachesOfAControllersOwnAreFilled(t *testing.T) {
	cold := errors.New("no such bucket")
	instance, _, err := buildOf(t, func(context.Context, *Shard) (Runnable, error) { return warmer{nil, cold}, nil })
	if err != nil {
		t.Fatal(err)
	}
	defer instance.Close()
	if err := instance.Warm(t.Context()); !errors.Is(err, cold) {
		t.Errorf("the error is %v, want that of the controller", err)
	}
}

func TestRequestsOfAControllerShareALimit(t *testing.T) {
	f := newFleet(t, nil)
	f.Namespaced("issuer", nothing)
	f.Namespaced("certificate", nothing)
	of := func(n int) *rest.Config {
		s, _, _ := shardOf(t, f)
		s.controller = f.controllers[n]
		return s.Config()
	}
	if of(0).RateLimiter == nil || of(0).RateLimiter != of(0).RateLimiter {
		t.Error("two shards of one controller have a limit each, or none")
	}
	if of(0).RateLimiter == of(1).RateLimiter {
		t.Error("two controllers share one limit")
	}
}

// TestWritesElsewhereHaveTheForeignFence checks that the next owner waits for what a shard writes
// to the API server, and not for what it writes to other servers.
func TestWritesElsewhereHaveTheForeignFence(t *testing.T) {
	s, _, _ := shardOf(t, newFleet(t, nil))
	s.process.config = &rest.Config{}
	var passed string
	fenced := func(by string) func(http.RoundTripper) http.RoundTripper {
		return func(rt http.RoundTripper) http.RoundTripper { passed = by; return rt }
	}
	s.work.Fence, s.work.FenceForeign = fenced("fence"), fenced("foreign fence")
	for what, tc := range map[string]struct {
		wrap func(http.RoundTripper) http.RoundTripper
		want string
	}{
		"Config":       {s.Config().WrapTransport, "fence"},
		"AnyNamespace": {s.AnyNamespace().WrapTransport, "fence"},
		"WrapAPI":      {s.WrapAPI, "fence"},
		"Wrap":         {s.Wrap, "foreign fence"},
	} {
		passed = "nothing"
		if tc.wrap(http.DefaultTransport); passed != tc.want {
			t.Errorf("%s puts the %s before the transport, want the %s", what, passed, tc.want)
		}
	}
}
