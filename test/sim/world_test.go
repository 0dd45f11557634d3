package sim

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/flotilla-kube/flotilla/pkg/election/leasetest"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

const (
	fleetName = "flotilla"
	// rebalanceDelay is short, so that many shards move.
	rebalanceDelay = 3 * time.Second
	handoffTimeout = 4 * time.Second
	// maxSteps limits the requests of one seed to a few times what the longest seeds need.
	maxSteps = 20_000
	// traceLines is how much of a trace is printed.
	traceLines = 60
)

// world is one seed: the Leases, the API server, the members, and the judge.
type world struct {
	features
	t      *testing.T
	seed   uint64
	begin  time.Time
	store  *leasetest.Store
	plan   shard.Plan // the first one
	latest shard.Plan // by an operator
	bad    string     // last plan written that no member may follow
	// misplanned is set once somebody has written such a plan.
	misplanned bool
	names      int        // given to shards of later plans
	random     *rand.Rand // of the goroutine that runs the world
	seats      []*seat
	stocks     []*stock
	all        []*process
	// admission is the API server's fence.
	admission *admission
	// weights has the namespaces' weights.
	weights atomic.Pointer[map[string]int64]
	// healed is set once all faults have ended.
	healed atomic.Bool
	// server counts the writes in transit or being answered.
	server sync.WaitGroup

	mu     sync.Mutex
	lines  []string
	steps  int
	failed invariant // the first broken invariant
	judge
	api
}

// seat is a name that processes run under, one at a time: a pod of a StatefulSet.
type seat struct {
	name    string
	process *process // nil before the first
	rate    float64
	rings   []string // for the next process; nil means all
	version int      // of the process, if versions differ; 0 before the first
	// start is when the next process is to start; zero if none is.
	start time.Time
}

func newWorld(t *testing.T, seed uint64) *world {
	w := &world{
		t: t, seed: seed, begin: time.Now(), store: leasetest.NewStore(), random: rand.New(rand.NewPCG(seed, 0)),
	}
	w.features = newFeatures(w.random)
	w.versions = someVersions(seed)
	w.plan = w.firstPlan(2 + w.random.IntN(2))
	w.judge.init()
	w.api.init()
	w.weights.Store(&map[string]int64{})
	w.latest = w.plan
	for i := range 3 + w.random.IntN(3) {
		s := w.newSeat(string(rune('a' + i)))
		s.start = w.begin.Add(upTo(w.random, 10*time.Second))
	}
	w.seats[0].rings = nil // Somebody serves every ring.
	w.notef("%v", w.features)
	w.admit()
	w.install()
	return w
}

func (w *world) newSeat(name string) *seat {
	s := &seat{name: name, rate: 1, rings: w.someRings()}
	if w.drift {
		most := fastest
		if w.leaderLocks {
			most = fastestWithStock
		}
		s.rate = 1 + (most-1)*w.random.Float64()
	}
	w.seats = append(w.seats, s)
	return s
}

func (w *world) leaseOf(id shard.ID) string { return leaseapi.ShardLease(fleetName, id) }

// run runs the whole seed.
func (w *world) run() {
	for range 8 + w.random.IntN(18) {
		time.Sleep(upTo(w.random, 5*time.Second)) // virtual
		w.populate()
		w.tend()
		w.fault()
		if w.isOver() {
			break
		}
	}
	if w.enforced && !w.isOver() {
		w.pause()
	}
	w.settle()
	w.leave()
}

// tend starts the processes that are due, as a supervisor would.
func (w *world) tend() {
	now := time.Now()
	for _, s := range w.seats {
		if p := s.process; p != nil && s.start.IsZero() && p.over() && !p.unwanted.Load() {
			s.start = now.Add(upTo(w.random, 3*time.Second))
		}
		if !s.start.IsZero() && !now.Before(s.start) {
			if s != w.seats[0] && w.random.IntN(5) == 0 {
				s.rings = w.someRings()
			}
			w.launch(s)
		}
	}
}

// isOver reports whether there is a verdict.
func (w *world) isOver() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.failed != ""
}

// step counts a request. Too many end the process, because the usual cause of a flood never ends
// the seed.
func (w *world) step() {
	w.mu.Lock()
	w.steps++
	n := w.steps
	w.mu.Unlock()
	if n > maxSteps {
		w.failf(requests, "more than %d requests for Leases", maxSteps)
		panic(w.report())
	}
}

// notef adds a line to the trace.
func (w *world) notef(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.noteLockedf(format, args...)
}

func (w *world) noteLockedf(format string, args ...any) {
	if w.failed != "" && *only == 0 {
		return // The trace ends with the verdict.
	}
	if len(w.lines) >= 4*traceLines && *only == 0 {
		w.lines = append(w.lines[:1], w.lines[len(w.lines)-traceLines:]...)
	}
	w.lines = append(w.lines, fmt.Sprintf("%9.3f ", time.Since(w.begin).Seconds())+fmt.Sprintf(format, args...))
}

// failLockedf records a verdict. The first one ends the seed.
func (w *world) failLockedf(broken invariant, format string, args ...any) {
	if w.failed != "" {
		return
	}
	w.noteLockedf("FAILED: ["+string(broken)+"] "+format, args...)
	w.failed = broken
}

func (w *world) failf(broken invariant, format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failLockedf(broken, format, args...)
}

// report returns the trace and how to reproduce it.
func (w *world) report() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	lines := w.lines
	if *only == 0 && len(lines) > traceLines {
		lines = append(lines[:1:1], lines[len(lines)-traceLines:]...)
	}
	return fmt.Sprintf("seed %#x: to see it again: go test ./test/sim -run TestSim -seed %#x -repeat 50\n%s",
		w.seed, w.seed, strings.Join(lines, "\n"))
}

func upTo(random *rand.Rand, d time.Duration) time.Duration {
	return time.Duration(random.Int64N(int64(d)))
}
