package sim

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/election/leasetest"
	"github.com/flotilla-kube/flotilla/pkg/fleet"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

const (
	fleetName = "flotilla"
	// rebalanceDelay is short, so that much is moved.
	rebalanceDelay = 3 * time.Second
	handoffTimeout = 4 * time.Second
	// maxSteps is how many requests one seed may take: a few times what the longest take. Beyond it is a livelock.
	maxSteps = 60_000
	// settleTime is how long it may take after the last fault until each shard is run: a lease duration until the last
	// victim has expired, and then the longest pause between attempts of work that could not start.
	settleTime = 2 * time.Minute
	// traceLines is how much of a trace is printed.
	traceLines = 60
)

// world is one seed: the Leases, the API server, the members, and the judge.
type world struct {
	t      *testing.T
	seed   uint64
	begin  time.Time
	store  *leasetest.Store
	plan   shard.Plan // the first one
	latest shard.Plan // that an operator has written
	bad    string     // plan that somebody has written last and nobody may follow
	names  int        // of shards, that were given to those of later plans
	random *rand.Rand // of the goroutine that runs the world
	seats  []*seat
	all    []*process
	// drift tells whether the clocks differ in speed.
	drift bool
	// healed is set once all faults have ended.
	healed atomic.Bool
	// server counts the writes that are on the way or being answered.
	server sync.WaitGroup

	mu     sync.Mutex
	lines  []string
	steps  int
	failed bool
	judge
	api
}

// seat is a name that processes run under, one at a time: a pod of a StatefulSet.
type seat struct {
	name    string
	process *process // nil before the first
	rate    float64
	// start is when the next process is to be started; zero if none is.
	start time.Time
}

func newWorld(t *testing.T, seed uint64) *world {
	w := &world{
		t: t, seed: seed, begin: time.Now(), store: leasetest.NewStore(), random: rand.New(rand.NewPCG(seed, 0)),
	}
	w.plan = planOf(t, 2+w.random.IntN(2))
	w.judge.init()
	w.know(w.plan)
	w.latest = w.plan
	w.api.init()
	w.drift = w.random.IntN(2) == 0
	for i := range 3 + w.random.IntN(3) {
		s := &seat{name: string(rune('a' + i)), rate: 1}
		if w.drift {
			s.rate = 1 + 0.45*w.random.Float64()
		}
		s.start = w.begin.Add(upTo(w.random, 10*time.Second))
		w.seats = append(w.seats, s)
	}
	return w
}

// planOf has n ranges and two groups.
func planOf(t *testing.T, n int) shard.Plan {
	t.Helper()
	ranges, err := shard.EqualRanges(n)
	if err != nil {
		t.Fatal(err)
	}
	namespaces := shard.Ring{Name: "namespaces", Scope: shard.ScopeNamespaced, Controllers: []string{"job-controller"}}
	for i, r := range ranges {
		namespaces.Shards = append(namespaces.Shards, shard.Shard{ID: shard.ID{Ring: "namespaces", Name: fmt.Sprintf("%02d", i)}, Range: r})
	}
	cluster := shard.Ring{Name: "cluster", Scope: shard.ScopeCluster, Shards: []shard.Shard{
		{ID: shard.ID{Ring: "cluster", Name: "garbage"}, Group: "garbage", Controllers: []string{"garbage-controller"}, Beside: "nodes"},
		{ID: shard.ID{Ring: "cluster", Name: "nodes"}, Group: "nodes", Controllers: []string{"node-controller"}},
	}}
	return shard.Plan{Generation: 1, Rings: []shard.Ring{namespaces, cluster}}
}

func (w *world) leaseOf(id shard.ID) string { return fleet.ShardLease(fleetName, id) }

// run is the whole of a seed.
func (w *world) run() {
	for range 8 + w.random.IntN(18) {
		time.Sleep(upTo(w.random, 5*time.Second)) // virtual
		w.tend()
		w.fault()
		if w.isOver() {
			break
		}
	}
	w.settle()
	w.leave()
	if w.failed {
		w.t.Error(w.report())
	}
}

// tend starts what is due, as whoever supervises the processes would.
func (w *world) tend() {
	now := time.Now()
	for _, s := range w.seats {
		if p := s.process; p != nil && s.start.IsZero() && p.over() && !p.unwanted.Load() {
			s.start = now.Add(upTo(w.random, 3*time.Second))
		}
		if !s.start.IsZero() && !now.Before(s.start) {
			w.launch(s)
		}
	}
}

// isOver tells whether there is a verdict already.
func (w *world) isOver() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.failed
}

// step counts a request. A livelock is ended by a panic: nothing else ends a bubble in which time does not pass.
func (w *world) step() {
	w.mu.Lock()
	w.steps++
	n := w.steps
	w.mu.Unlock()
	if n > maxSteps {
		panic(fmt.Sprintf("%s\n%d requests: a livelock", w.report(), n))
	}
}

// notef adds a line to the trace.
func (w *world) notef(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.noteLockedf(format, args...)
}

func (w *world) noteLockedf(format string, args ...any) {
	if w.failed && *only == 0 {
		return // The trace ends with the verdict.
	}
	if len(w.lines) >= 4*traceLines && *only == 0 {
		w.lines = append(w.lines[:0], w.lines[len(w.lines)-traceLines:]...)
	}
	w.lines = append(w.lines, fmt.Sprintf("%9.3f ", time.Since(w.begin).Seconds())+fmt.Sprintf(format, args...))
}

// failLockedf is a verdict. The first one ends the seed.
func (w *world) failLockedf(format string, args ...any) {
	if w.failed {
		return
	}
	w.noteLockedf("FAILED: "+format, args...)
	w.failed = true
}

func (w *world) failf(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failLockedf(format, args...)
}

// report is the trace and how to see it again.
func (w *world) report() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	lines := w.lines
	if *only == 0 {
		lines = lines[max(0, len(lines)-traceLines):]
	}
	return fmt.Sprintf("seed %#x: to see it again: go test ./test/sim -run TestSim -seed %#x -repeat 50\n%s",
		w.seed, w.seed, strings.Join(lines, "\n"))
}

// settle ends all faults and waits until every shard is run.
func (w *world) settle() {
	w.heal()
	limit := settleTime + w.longestDuration()
	var since time.Time
	for begin := time.Now(); !w.isOver(); {
		time.Sleep(500 * time.Millisecond) // virtual
		synctest.Wait()
		w.tend()
		problem := w.unsettled()
		switch {
		case problem != "":
			since = time.Time{}
			if time.Since(begin) > limit {
				w.failf("%v after the last fault, %s", limit, problem)
			}
		case since.IsZero():
			since = time.Now()
			if limit < settleTime+time.Minute { // Else it says what somebody wrote on a Lease, and nothing about the fleet.
				w.mu.Lock()
				w.count.settled = since.Sub(begin)
				w.mu.Unlock()
			}
		case time.Since(since) > 5*time.Second:
			return
		}
	}
}

// longestDuration is how long others may have to wait because of what somebody wrote on a Lease.
func (w *world) longestDuration() time.Duration {
	var longest time.Duration
	for _, name := range w.leases() {
		longest = max(longest, election.RecordFrom(w.store.Get(name)).Duration)
	}
	for _, s := range w.seats {
		longest = max(longest, election.RecordFrom(w.store.Get(election.MemberLease(fleetName, s.name))).Duration)
	}
	return longest
}

// leave has everybody leave and sees that nothing is left.
func (w *world) leave() {
	for _, s := range w.seats {
		if s.process != nil {
			s.process.stop()
		}
	}
	for _, p := range w.all {
		p.resume() // what has ended while it was suspended
		p.bury()
	}
	for _, p := range w.all {
		for begin := time.Now(); !p.hasEnded(); p.bury() { // It may have been told to exit meanwhile.
			time.Sleep(time.Second) // virtual
			if time.Since(begin) > 30*time.Minute {
				w.failf("%s does not leave: its Run has not returned", p.name())
				panic(w.report()) // The bubble would go on for ever.
			}
		}
	}
	w.server.Wait()
	w.store.Wait()
	w.judgeEnd()
}

func upTo(random *rand.Rand, d time.Duration) time.Duration {
	return time.Duration(random.Int64N(int64(d)))
}
