package fleet

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/election/fence"
	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/election/leasetest"
	"github.com/flotilla-kube/flotilla/pkg/election/membership"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard())
	// client-go's handlers delay errors by a clock that bubbles would share.
	utilruntime.ErrorHandlers = nil
	os.Exit(m.Run())
}

var (
	seeds    = flag.Int("seeds", 40, "how many random histories to make")
	seedFlag = flag.Uint64("seed", 0, "make the history of this seed only")
)

const (
	delay = 5 * time.Second
	// warming is how long a cache takes to fill.
	warming = 300 * time.Millisecond
)

// testPlan returns a plan of n ranges and two groups.
func testPlan(t *testing.T, n int) shard.Plan {
	t.Helper()
	ranges, err := shard.EqualRanges(n)
	if err != nil {
		t.Fatal(err)
	}
	namespaced := shard.Ring{Name: "namespaces", Scope: shard.ScopeNamespaced, Controllers: []string{"job-controller"}}
	for i, r := range ranges {
		namespaced.Shards = append(namespaced.Shards, shard.Shard{ID: shard.ID{Ring: "namespaces", Name: fmt.Sprintf("%02d", i)}, Range: r})
	}
	cluster := shard.Ring{Name: "cluster", Scope: shard.ScopeCluster}
	for _, group := range []string{"garbage", "nodes"} {
		cluster.Shards = append(cluster.Shards, shard.Shard{ID: shard.ID{Ring: "cluster", Name: group}, Group: group, Controllers: []string{group + "-controller"}})
	}
	return shard.Plan{Generation: 1, Rings: []shard.Ring{namespaced, cluster}}
}

// testFleet is what the members of a test share: the Leases, and a record of who works on what.
type testFleet struct {
	t     *testing.T
	ctx   context.Context // the context of all members
	store *leasetest.Store
	plan  shard.Plan

	mu      sync.Mutex
	workers map[shard.ID]worker
	all     []*process
	exits   []string
	events  []Event
	// version counts all writes. written has the last write of each process to each extent.
	version int
	written map[writer]written
	// weights has the number of objects in each namespace.
	weights map[string]int64
	// begun counts the starts of work, warm those with a prepared cache. fakeWorks counts the
	// instances that were built and neither ran nor were closed, built all instances, and forgotten
	// those that discarded their caches.
	begun, warm, fakeWorks, built, forgotten int
	// filling is by how much filling a cache takes longer than warming, and checking how long it
	// takes to compare one with the present.
	filling, checking time.Duration
	// lingering is how long the server takes for a last write, which the work sends as it ends and
	// does not wait for; 0 for no such write.
	lingering time.Duration
	// catching is called when a cache is brought up to date.
	catching func(c *fakeWork)
}

// worker is who works on a shard, and what the shard covers.
type worker struct {
	incarnation string
	extent      shard.Extent
	began       time.Time
}

// writer is who wrote, and to which shard.
type writer struct {
	shard.ID
	incarnation string
}

// written is the last write of one process to a shard, and what the shard covers.
type written struct {
	version int
	extent  shard.Extent
}

func newTestFleet(t *testing.T, plan shard.Plan) *testFleet {
	s := &testFleet{t: t, ctx: t.Context(), store: leasetest.NewStore(), plan: plan, workers: map[shard.ID]worker{}, written: map[writer]written{}}
	t.Cleanup(s.requireConcluded) // after all processes have ended
	return s
}

// process is the process of one member.
type process struct {
	*Member
	fleet  *testFleet
	client *leasetest.Client
	// expected are the ranges that Config.Expect was ever told.
	expected []shard.Range
	stop     func()
	ended    chan struct{}
	err      error
}

// launch makes a process and runs it.
func (s *testFleet) launch(name string, change func(*Config)) *process {
	s.t.Helper()
	proc := s.create(name, change)
	ctx, cancel := context.WithCancel(s.ctx)
	proc.stop = cancel
	go func() { defer close(proc.ended); proc.err = proc.Run(ctx) }()
	s.t.Cleanup(func() { proc.client.Unblock(); cancel(); <-proc.ended })
	return proc
}

// create makes a process without starting it.
func (s *testFleet) create(name string, change func(*Config)) *process {
	s.t.Helper()
	client := s.store.Client(name)
	proc := &process{fleet: s, client: client, ended: make(chan struct{})}
	c := Config{
		Fleet: "flotilla", Member: name, Plan: s.plan, Leases: client, Clock: clock.RealClock{},
		Timing: election.DefaultTiming(), RebalanceDelay: delay,
		Build: proc.build,
		Expect: func(ranges []shard.Range) {
			s.mu.Lock()
			defer s.mu.Unlock()
			proc.expected = append(proc.expected, ranges...)
		},
		Exit:    func(reason string) { s.mu.Lock(); defer s.mu.Unlock(); s.exits = append(s.exits, reason) },
		Observe: func(e Event) { s.mu.Lock(); defer s.mu.Unlock(); s.events = append(s.events, e) },
	}
	if change != nil {
		change(&c)
	}
	member, err := New(c)
	if err != nil {
		s.t.Fatal(err)
	}
	proc.Member = member
	s.all = append(s.all, proc)
	return proc
}

// build makes a fakeWork.
func (proc *process) build(_ context.Context, w Work) (Instance, error) {
	proc.fleet.mu.Lock()
	defer proc.fleet.mu.Unlock()
	proc.fleet.fakeWorks++
	proc.fleet.built++
	if within := w.Shard.Range; !within.IsEverything() && !slices.Contains(proc.expected, within) {
		proc.fleet.t.Errorf("%s builds %s, whose range it never said it expects", proc.incarnation, w.Shard.ID)
	}
	return &fakeWork{process: proc, work: w}, nil
}

// fakeWork is a shard's work that writes when it begins and when it ends, and takes a moment to
// stop. It checks two invariants: two members never work on one shard at a time, and none begins
// with a cache that is older than the last write.
type fakeWork struct {
	*process
	work Work
	warm bool
	// seen is the version that the cache has reached.
	seen int
}

func (c *fakeWork) Warm(ctx context.Context) error {
	c.fleet.mu.Lock()
	c.warm, c.seen = true, c.fleet.version
	c.fleet.mu.Unlock()
	select {
	case <-time.After(warming + c.fleet.filling):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *fakeWork) CatchUp(_ context.Context, writes fence.Writes) error {
	if c.fleet.catching != nil {
		c.fleet.catching(c)
	}
	if last, err := strconv.Atoi(writes.Resources["pods"].Version); err == nil {
		c.seen = max(c.seen, last)
	}
	return nil
}

// Refresh implements Refresher.
func (c *fakeWork) Refresh(ctx context.Context) error {
	if c.fleet.checking > 0 { // under the race detector, Go crashes if timers of 0 fire at the same time in a bubble
		select {
		case <-time.After(c.fleet.checking):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	c.fleet.mu.Lock()
	defer c.fleet.mu.Unlock()
	c.seen = c.fleet.version
	return nil
}

func (c *fakeWork) Run(ctx context.Context) error {
	id := c.work.Shard.ID
	c.fleet.mu.Lock()
	for other, w := range c.fleet.workers {
		if w.extent.Overlaps(c.extent()) {
			c.fleet.t.Errorf("%s began %s while %s worked on %s", c.Incarnation(), id, w.incarnation, other)
		}
	}
	c.fleet.workers[id] = worker{c.Incarnation(), c.extent(), time.Now()}
	c.fleet.begun++
	if c.warm {
		c.fleet.warm++
		for other, w := range c.fleet.written {
			if w.extent.Overlaps(c.extent()) && c.seen < w.version {
				c.fleet.t.Errorf("%s began %s with a cache at %d, and the last write, to %s, was %d", c.Incarnation(), id, c.seen, other, w.version)
			}
		}
	}
	c.fleet.mu.Unlock()
	if !c.warm {
		select {
		case <-time.After(warming):
		case <-ctx.Done():
		}
	}
	c.work.Running()
	c.write()
	<-ctx.Done()
	time.Sleep(100 * time.Millisecond) // virtual: finishing what is in flight
	c.write()
	if c.fleet.lingering > 0 {
		go c.send("lingers")
		time.Sleep(time.Millisecond) // virtual: it is on its way
	}
	c.fleet.mu.Lock()
	defer c.fleet.mu.Unlock()
	delete(c.fleet.workers, id)
	c.fleet.fakeWorks--
	return nil
}

// wrote records a write. The caller holds mu.
func (s *testFleet) wrote(by writer, to shard.Extent) {
	s.version++
	s.written[by] = written{s.version, to}
}

func (c *fakeWork) extent() shard.Extent {
	return shard.Extent{Range: c.work.Shard.Range, Controllers: c.work.Controllers}
}

func (c *fakeWork) Close() {
	c.fleet.mu.Lock()
	defer c.fleet.mu.Unlock()
	c.fleet.fakeWorks--
}

// Forget implements Forgetter.
func (c *fakeWork) Forget() {
	if !isClosed(c.work.Closed) {
		c.fleet.t.Errorf("%s discarded the caches of %s before the fence was closed", c.Incarnation(), c.work.Shard.ID)
	}
	c.fleet.mu.Lock()
	defer c.fleet.mu.Unlock()
	c.fleet.forgotten++
}

// write writes through the fence, as a controller would.
func (c *fakeWork) write() { c.send("p") }

// send updates the pod of a name.
func (c *fakeWork) send(name string) {
	client := http.Client{Transport: c.work.Fence(c)}
	request, err := http.NewRequestWithContext(c.fleet.t.Context(), http.MethodPut, "http://apiserver"+c.config.ServerPath+"/api/v1/namespaces/n/pods/"+name, http.NoBody)
	if err != nil {
		c.fleet.t.Error(err)
		return
	}
	response, err := client.Do(request)
	if err != nil {
		return // refused, as it should be once the claim has ended
	}
	_, _ = io.Copy(io.Discard, response.Body)
	_ = response.Body.Close()
}

// RoundTrip acts as the API server.
func (c *fakeWork) RoundTrip(request *http.Request) (*http.Response, error) {
	if path.Base(request.URL.Path) == "lingers" {
		time.Sleep(c.fleet.lingering) // virtual
	}
	c.fleet.mu.Lock()
	defer c.fleet.mu.Unlock()
	for other, w := range c.fleet.workers {
		if w.incarnation != c.Incarnation() && w.extent.Overlaps(c.extent()) {
			c.fleet.t.Errorf("a write of %s to %s is carried out while %s works on %s", c.Incarnation(), c.work.Shard.ID, w.incarnation, other)
		}
	}
	c.fleet.wrote(writer{c.work.Shard.ID, c.Incarnation()}, c.extent())
	body := fmt.Sprintf(`{"kind":"Pod","metadata":{"resourceVersion":"%d"}}`, c.fleet.version)
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body)),
	}, nil
}

// TestWritesThatOutliveTheWork has goroutines that send a last write as the work returns: a handoff
// waits for it.
func TestWritesThatOutliveTheWork(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, s *testFleet) {
		s.lingering = 700 * time.Millisecond
		a := s.launch("a", nil)
		pass(time.Minute)
		s.allHeld("a")
		s.launch("b", nil)
		pass(time.Minute)
		s.allHeld("a", "b")
		before := s.counts()
		a.stop()
		<-a.ended
		pass(5 * time.Second)
		s.allHeld("b")
		if now := s.counts(); now.begun-before.begun != now.warm-before.warm {
			t.Errorf("of %d handoffs %d were warm: what was written last is not known", now.begun-before.begun, now.warm-before.warm)
		}
	})
}

// counts has the counters at one time.
type counts struct{ begun, warm, version, fakeWorks int }

func (s *testFleet) counts() counts {
	s.mu.Lock()
	defer s.mu.Unlock()
	return counts{s.begun, s.warm, s.version, s.fakeWorks}
}

// working returns who works on what.
func (s *testFleet) working() map[shard.ID]worker {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.workers)
}

// holders returns how many shards each member works on.
func (s *testFleet) holders() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := map[string]int{}
	for _, w := range s.workers {
		n[leaserecord.MemberOf(w.incarnation)]++
	}
	return n
}

// allHeld fails unless exactly these members work on all shards, each on at least one.
func (s *testFleet) allHeld(by ...string) {
	s.t.Helper()
	n := s.holders()
	total, names := 0, []string{}
	for name, count := range n {
		total += count
		names = append(names, name)
	}
	slices.Sort(names)
	if total != len(s.plan.Shards()) || !slices.Equal(names, by) {
		s.t.Errorf("%d of %d shards are worked on, by %v, want all by %v", total, len(s.plan.Shards()), n, by)
	}
}

// pass lets virtual time go by.
func pass(d time.Duration) { time.Sleep(d); synctest.Wait() } // virtual

func inBubble(t *testing.T, shards int, f func(t *testing.T, s *testFleet)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, newTestFleet(t, testPlan(t, shards))) })
}

func TestOneMemberTakesAll(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, s *testFleet) {
		a := s.launch("a", nil)
		pass(time.Second)
		if a.Ready() == nil {
			t.Error("ready before anything is held")
		}
		pass(40 * time.Second)
		s.allHeld("a")
		if err := a.Ready(); err != nil {
			t.Error(err)
		}
	})
}

func TestThreeMembersShare(t *testing.T) {
	inBubble(t, 16, func(t *testing.T, s *testFleet) {
		for _, name := range []string{"a", "b", "c"} {
			s.launch(name, nil)
		}
		pass(time.Minute)
		s.allHeld("a", "b", "c")
		for name, n := range s.holders() {
			if most := shard.MaxLoad(16, 3) + shard.MaxLoad(2, 3); n > most {
				t.Errorf("%s works on %d shards, at most %d are its share", name, n, most)
			}
		}
	})
}

func TestJoiningWaitsAndLeavingDoesNot(t *testing.T) {
	inBubble(t, 16, func(t *testing.T, s *testFleet) {
		s.launch("a", nil)
		pass(time.Minute)
		b := s.launch("b", nil)
		pass(delay - time.Second)
		s.allHeld("a")
		pass(2 * delay)
		s.allHeld("a", "b")

		b.stop()
		<-b.ended
		if b.err != nil {
			t.Errorf("leaving: %v", b.err)
		}
		pass(time.Second)
		s.allHeld("a")
		if holder := s.store.Get("flotilla-member-b").Spec.HolderIdentity; holder == nil || *holder != "" {
			t.Error("the Lease of a member that left was not released")
		}
	})
}

// TestPlannedMovesAreWarm scales out and in. Every move must start warm.
func TestPlannedMovesAreWarm(t *testing.T) {
	inBubble(t, 16, func(t *testing.T, s *testFleet) {
		s.launch("a", nil)
		pass(time.Minute)
		first := s.counts()
		s.launch("b", nil)
		c := s.launch("c", nil)
		pass(time.Minute)
		s.allHeld("a", "b", "c")
		// Some move twice, if the second member is seen active before the third.
		joined := s.counts()
		if moves, warm := joined.begun-first.begun, joined.warm-first.warm; warm != moves || moves < s.holders()["b"]+s.holders()["c"] {
			t.Errorf("%d of %d moves began with warm caches", warm, moves)
		}
		holds := s.holders()["c"]
		c.stop()
		<-c.ended
		pass(time.Second)
		s.allHeld("a", "b")
		left := s.counts()
		if moves, warm := left.begun-joined.begun, left.warm-joined.warm; moves != holds || warm != moves {
			t.Errorf("%d of %d moves began with warm caches after a member left that held %d", warm, moves, holds)
		}
	})
}

// TestServerWithAPath hands shards over whose work writes to a server with a path in its address
// that looks like the API's. The next holders must know of what resource the last writes were, or
// their caches are too old; fakeWork.Run compares that.
func TestServerWithAPath(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, s *testFleet) {
		behind := func(c *Config) { c.ServerPath = "/api/clusters/c-1" }
		s.launch("a", behind)
		pass(time.Minute)
		before := s.counts()
		s.launch("b", behind)
		pass(time.Minute)
		s.allHeld("a", "b")
		if moves, warm := s.counts().begun-before.begun, s.counts().warm-before.warm; moves == 0 || warm != moves {
			t.Errorf("%d of %d moves began with warm caches", warm, moves)
		}
	})
	_, err := New(Config{
		Plan: testPlan(t, 1), ServerPath: "/k8s/", Leases: leasetest.NewStore().Client("a"), Exit: func(string) {},
		Build: func(context.Context, Work) (Instance, error) { return nil, nil },
	})
	if err == nil || !strings.Contains(err.Error(), `ServerPath is "/k8s/"`) {
		t.Errorf("New() = %v, want it to name the field and its value", err)
	}
}

// TestStandby has a member with warm caches take over at once from a member that dies. Before that
// it must not ask for anything.
func TestStandby(t *testing.T) {
	inBubble(t, 8, func(t *testing.T, s *testFleet) {
		standby := func(c *Config) { c.Standby = true }
		s.launch("a", standby)
		b := s.launch("b", standby)
		c := s.launch("c", standby)
		pass(time.Minute)
		s.allHeld("a", "b", "c")
		warm, version, standing := s.counts().warm, s.counts().version, s.counts().fakeWorks
		if total := len(s.plan.Shards()); standing != 2*total {
			t.Errorf("%d instances for %d shards, want each twice", standing, total)
		}
		pass(10 * time.Minute)
		s.allHeld("a", "b", "c")
		if s.counts().version != version || s.counts().fakeWorks != standing {
			t.Errorf("while nothing happened there were %d writes, and %d instances became %d", s.counts().version-version, standing, s.counts().fakeWorks)
		}
		lost := s.holders()["b"]
		b.client.Block()
		pass(election.DefaultTiming().LeaseDuration + 3*time.Second)
		s.allHeld("a", "c")
		if s.counts().warm != warm+lost {
			t.Errorf("%d of %d shards were taken over warm", s.counts().warm-warm, lost)
		}
		pass(time.Minute)
		lost, warm = s.holders()["c"], s.counts().warm
		c.stop()
		<-c.ended
		pass(5 * time.Second)
		s.allHeld("a")
		if s.counts().warm != warm+lost {
			t.Errorf("%d of %d shards were handed over warm", s.counts().warm-warm, lost)
		}
	})
}

// TestOwnerThatDiesWhilePreparingCostsNothing cuts the newcomer off while its caches fill.
func TestOwnerThatDiesWhilePreparingCostsNothing(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, s *testFleet) {
		s.launch("a", nil)
		pass(time.Minute)
		before := s.counts().version
		b := s.launch("b", func(c *Config) {
			build := c.Build
			c.Build = func(ctx context.Context, w Work) (Instance, error) {
				time.Sleep(10 * time.Minute) // virtual: it never gets ready
				return build(ctx, w)
			}
		})
		pass(time.Minute)
		s.allHeld("a")
		b.client.Block()
		pass(time.Minute)
		s.allHeld("a")
		if s.counts().version != before {
			t.Errorf("the holder was stopped: %d writes", s.counts().version-before)
		}
	})
}

// TestForgedRequestMovesNothing forges requests by a member that should not own the shards.
func TestForgedRequestMovesNothing(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, s *testFleet) {
		s.launch("a", nil)
		pass(time.Minute)
		for _, id := range s.plan.Shards() {
			lease := s.store.Get(leaseapi.ShardLease("flotilla", id.ID)).DeepCopy()
			lease.Annotations[leaserecord.NextHolderAnnotation] = leaserecord.NewIncarnation("x")
			s.store.Put(lease)
		}
		before := s.counts().version
		pass(time.Minute)
		s.allHeld("a")
		if s.counts().version != before {
			t.Errorf("a forged request caused %d writes", s.counts().version-before)
		}
	})
}

// TestNobodyAsks lets a member leave whose successor never gets ready.
func TestNobodyAsks(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, s *testFleet) {
		a := s.launch("a", nil)
		pass(time.Minute)
		s.launch("b", func(c *Config) {
			c.Build = func(context.Context, Work) (Instance, error) { return nil, errors.New("never") }
		})
		pass(time.Minute)
		s.allHeld("a")
		before := time.Now()
		a.stop()
		<-a.ended
		if took := time.Since(before); took < 5*time.Second || took > 6*time.Second {
			t.Errorf("leaving took %v, want HandoffTimeout and a little", took)
		}
	})
}

// TestStoppedWhileItIsBuilt checks that work that was told to stop while being built never begins,
// so that HandoffTimeout bounds how long it may write.
func TestStoppedWhileItIsBuilt(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, s *testFleet) {
		a := s.launch("a", func(c *Config) {
			build := c.Build
			c.Build = func(ctx context.Context, w Work) (Instance, error) {
				time.Sleep(3 * time.Second) // virtual
				return build(ctx, w)
			}
		})
		pass(17 * time.Second)
		if len(s.leases(a)) == 0 {
			t.Fatal("holds nothing yet")
		}
		a.stop()
		<-a.ended
		if s.begun > 0 || s.built == 0 || s.fakeWorks > 0 {
			t.Errorf("%d of %d have begun, %d are left", s.begun, s.built, s.fakeWorks)
		}
	})
}

// leases returns the Leases of shards that name the member.
func (s *testFleet) leases(of *process) []string {
	var names []string
	for _, proc := range s.plan.Shards() {
		if lease := leaseapi.ShardLease("flotilla", proc.ID); s.holderOf(lease) == of.Incarnation() {
			names = append(names, lease)
		}
	}
	return names
}

func TestStoppingReleasesEverything(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, s *testFleet) {
		a := s.launch("a", nil)
		pass(time.Minute)
		s.allHeld("a")
		before := time.Now()
		a.stop()
		<-a.ended
		if took := time.Since(before); took > time.Second {
			t.Errorf("stopping took %v", took)
		}
		for _, id := range s.plan.Shards() {
			if l := s.store.Get(leaseapi.ShardLease("flotilla", id.ID)); *l.Spec.HolderIdentity != "" {
				t.Errorf("%s is still held", l.Name)
			}
		}
	})
}

func TestCutOffMemberStopsBeforeOthersTakeOver(t *testing.T) {
	inBubble(t, 8, func(t *testing.T, s *testFleet) {
		s.launch("a", nil)
		s.launch("b", nil)
		pass(time.Minute)
		s.allHeld("a", "b")
		b := s.launch("c", nil)
		pass(time.Minute)
		s.allHeld("a", "b", "c")
		b.client.Block()
		pass(10*time.Second + time.Second)
		if n := s.holders()["c"]; n != 0 {
			t.Errorf("a member that cannot renew works on %d shards after the renew deadline", n)
		}
		pass(20 * time.Second)
		s.allHeld("a", "b")
	})
}

func TestLostMembershipEndsTheProcess(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, s *testFleet) {
		a := s.launch("a", nil)
		pass(time.Minute)
		lease := s.store.Get("flotilla-member-a")
		lease.Spec.HolderIdentity = new(string)
		*lease.Spec.HolderIdentity = leaserecord.NewIncarnation("a")
		s.store.Put(lease)
		<-a.ended
		if !errors.Is(a.err, membership.ErrLost) {
			t.Errorf("Run returned %v, want %v", a.err, membership.ErrLost)
		}
		if n := s.holders()["a"]; n != 0 {
			t.Errorf("%d shards still worked on", n)
		}
	})
}

func TestTwoProcessesOfOneName(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, s *testFleet) {
		first := s.launch("a", nil)
		pass(time.Minute)
		second := s.launch("a", nil)
		pass(5 * time.Minute)
		if second.Ready() == nil {
			t.Error("the second process of a name is ready")
		}
		s.allHeld("a")
		first.stop()
		<-first.ended
		pass(time.Minute)
		if err := second.Ready(); err != nil {
			t.Errorf("the second process did not take the first one's place: %v", err)
		}
	})
}

// TestAnotherShardCount starts a member with another first plan: it must work by the fleet's.
func TestAnotherShardCount(t *testing.T) {
	inBubble(t, 8, func(t *testing.T, s *testFleet) {
		s.launch("a", nil)
		pass(time.Minute)
		other := testPlan(t, 4)
		b := s.launch("b", func(c *Config) { c.Plan = other })
		pass(time.Minute)
		s.allHeld("a", "b")
		if plan, _ := b.Plan(); plan.Digest() != s.plan.Digest() {
			t.Errorf("the newcomer works by %s, the fleet by %s", plan.Digest(), s.plan.Digest())
		}
	})
}

// TestMemberThatRefusesIsLeftOut starts a member that cannot work by the plan: it must delay
// nothing and get nothing.
func TestMemberThatRefusesIsLeftOut(t *testing.T) {
	inBubble(t, 8, func(t *testing.T, s *testFleet) {
		a := s.launch("a", nil)
		pass(time.Minute)
		b := s.launch("b", func(c *Config) {
			first := true // its own
			c.Check = func(shard.Plan) error {
				if first {
					first = false
					return nil
				}
				return errors.New("rings[0].controllers[0]: unknown")
			}
		})
		pass(time.Minute)
		if got := a.Assignment().Foreign(); !slices.Equal(got, []string{"b"}) {
			t.Errorf("foreign members %v, want [b]", got)
		}
		s.allHeld("a")
		if err := b.Ready(); err == nil || !strings.Contains(err.Error(), "rings[0].controllers[0]") {
			t.Errorf("Ready() = %v, want the reason", err)
		}
	})
}

// TestPreflightComesFirst holds a shard of another plan while a shard is handed over. The member that
// acquires the shard must give it back, run nothing, and try again until the other one is gone.
func TestPreflightComesFirst(t *testing.T) {
	inBubble(t, 8, func(t *testing.T, s *testFleet) {
		s.launch("a", nil)
		pass(time.Minute)
		s.launch("b", nil)
		pass(delay - 100*time.Millisecond)
		lease := s.store.Get(leaseapi.ShardLease("flotilla", shard.ID{Ring: "namespaces", Name: "00"})).DeepCopy()
		lease.Name, lease.UID, lease.ResourceVersion = "flotilla-namespaces-elsewhere", "", ""
		lease.Labels[leaseapi.ShardLabel] = "elsewhere"
		holder := leaserecord.NewIncarnation("x")
		lease.Spec.HolderIdentity = &holder
		lease.Annotations[leaseapi.RangeAnnotation] = shard.Everything().String()
		s.store.Put(lease)
		pass(10 * time.Second)
		for id, w := range s.working() {
			if leaserecord.MemberOf(w.incarnation) == "b" && id.Ring == "namespaces" {
				t.Errorf("b works on %s beside another plan's", id)
			}
		}
		pass(10 * time.Second)
		s.allHeld("a", "b")
	})
}

func TestWorkThatCannotStartIsTriedAgain(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, s *testFleet) {
		failures := 3
		s.launch("a", func(c *Config) {
			build := c.Build
			c.Build = func(ctx context.Context, w Work) (Instance, error) {
				if w.Shard.Namespaced() && failures > 0 {
					failures--
					return nil, errors.New("not yet")
				}
				return build(ctx, w)
			}
		})
		pass(time.Minute)
		s.allHeld("a")
		if failures != 0 {
			t.Errorf("%d failures left", failures)
		}
	})
}

// TestRandomHistories starts, stops and cuts off members at random. The work itself checks that no
// shard has two workers; in the end every shard must have one.
func TestRandomHistories(t *testing.T) {
	for range histories() {
		seed := rand.Uint64()
		if *seedFlag != 0 {
			seed = *seedFlag
		}
		t.Run(fmt.Sprintf("seed=%#x", seed), func(t *testing.T) {
			inBubble(t, 6, func(t *testing.T, s *testFleet) { randomHistory(t, s, rand.New(rand.NewPCG(seed, 0))) })
		})
	}
}

// histories is how many random histories a test makes.
func histories() int {
	if testing.Short() {
		return min(*seeds, 5)
	}
	return *seeds
}

func randomHistory(t *testing.T, s *testFleet, random *rand.Rand) {
	launched := map[string]*process{}
	standby := random.IntN(2) == 0
	launch := func(name string) *process { return s.launch(name, func(c *Config) { c.Standby = standby }) }
	for range 15 {
		name := string(rune('a' + random.IntN(4)))
		proc, exists := launched[name]
		switch {
		case !exists:
			launched[name] = launch(name)
		case random.IntN(2) == 0:
			proc.stop()
			delete(launched, name)
		default:
			proc.client.Block()
			t.Cleanup(func() { proc.client.Unblock() })
			delete(launched, name)
		}
		pass(time.Duration(random.IntN(20_000)) * time.Millisecond)
	}
	if len(launched) == 0 {
		launched["a"] = launch("a")
	}
	pass(3 * time.Minute)
	total := 0
	for _, n := range s.holders() {
		total += n
	}
	if total != len(s.plan.Shards()) {
		t.Errorf("%d of %d shards are worked on in the end", total, len(s.plan.Shards()))
	}
	if len(s.exits) > 0 {
		t.Errorf("processes were ended: %v", s.exits)
	}
	if standing := s.fakeWorks - total; standing != 0 && (!standby || len(launched) < 2 || standing != total) {
		t.Errorf("%d instances exist and %d are run, by %d members, standby %t", s.fakeWorks, total, len(launched), standby)
	}
}
