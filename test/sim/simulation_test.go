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

// simulation is one seed: the Leases, the API server, the members, and the judge.
type simulation struct {
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
	random     *rand.Rand // of the goroutine that runs it
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

func newSimulation(t *testing.T, seed uint64) *simulation {
	sim := &simulation{
		t: t, seed: seed, begin: time.Now(), store: leasetest.NewStore(), random: rand.New(rand.NewPCG(seed, 0)),
	}
	sim.features = newFeatures(sim.random)
	sim.versions = someVersions(seed)
	sim.plan = sim.firstPlan(2 + sim.random.IntN(2))
	sim.judge.init()
	sim.api.init()
	sim.weights.Store(&map[string]int64{})
	sim.latest = sim.plan
	for i := range 3 + sim.random.IntN(3) {
		s := sim.newSeat(string(rune('a' + i)))
		s.start = sim.begin.Add(upTo(sim.random, 10*time.Second))
	}
	sim.seats[0].rings = nil // Somebody serves every ring.
	sim.notef("%v", sim.features)
	sim.admit()
	sim.install()
	return sim
}

func (sim *simulation) newSeat(name string) *seat {
	s := &seat{name: name, rate: 1, rings: sim.someRings()}
	if sim.drift {
		most := fastest
		if sim.leaderLocks {
			most = fastestWithStock
		}
		s.rate = 1 + (most-1)*sim.random.Float64()
	}
	sim.seats = append(sim.seats, s)
	return s
}

func (sim *simulation) leaseOf(id shard.ID) string { return leaseapi.ShardLease(fleetName, id) }

// run runs the whole seed.
func (sim *simulation) run() {
	for range 8 + sim.random.IntN(18) {
		time.Sleep(upTo(sim.random, 5*time.Second)) // virtual
		sim.populate()
		sim.tend()
		sim.fault()
		if sim.isOver() {
			break
		}
	}
	if sim.enforced && !sim.isOver() {
		sim.pause()
	}
	sim.settle()
	sim.leave()
}

// tend starts the processes that are due, as a supervisor would.
func (sim *simulation) tend() {
	now := time.Now()
	for _, s := range sim.seats {
		if p := s.process; p != nil && s.start.IsZero() && p.over() && !p.unwanted.Load() {
			s.start = now.Add(upTo(sim.random, 3*time.Second))
		}
		if !s.start.IsZero() && !now.Before(s.start) {
			if s != sim.seats[0] && sim.random.IntN(5) == 0 {
				s.rings = sim.someRings()
			}
			sim.launch(s)
		}
	}
}

// isOver reports whether there is a verdict.
func (sim *simulation) isOver() bool {
	sim.mu.Lock()
	defer sim.mu.Unlock()
	return sim.failed != ""
}

// step counts a request. Too many end the process, because the usual cause of a flood never ends
// the seed.
func (sim *simulation) step() {
	sim.mu.Lock()
	sim.steps++
	n := sim.steps
	sim.mu.Unlock()
	if n > maxSteps {
		sim.failf(requests, "more than %d requests for Leases", maxSteps)
		panic(sim.report())
	}
}

// notef adds a line to the trace.
func (sim *simulation) notef(format string, args ...any) {
	sim.mu.Lock()
	defer sim.mu.Unlock()
	sim.noteLockedf(format, args...)
}

func (sim *simulation) noteLockedf(format string, args ...any) {
	if sim.failed != "" && *only == 0 {
		return // The trace ends with the verdict.
	}
	if len(sim.lines) >= 4*traceLines && *only == 0 {
		sim.lines = append(sim.lines[:1], sim.lines[len(sim.lines)-traceLines:]...)
	}
	sim.lines = append(sim.lines, fmt.Sprintf("%9.3f ", time.Since(sim.begin).Seconds())+fmt.Sprintf(format, args...))
}

// failLockedf records a verdict. The first one ends the seed.
func (sim *simulation) failLockedf(broken invariant, format string, args ...any) {
	if sim.failed != "" {
		return
	}
	sim.noteLockedf("FAILED: ["+string(broken)+"] "+format, args...)
	sim.failed = broken
}

func (sim *simulation) failf(broken invariant, format string, args ...any) {
	sim.mu.Lock()
	defer sim.mu.Unlock()
	sim.failLockedf(broken, format, args...)
}

// report returns the trace and how to reproduce it.
func (sim *simulation) report() string {
	sim.mu.Lock()
	defer sim.mu.Unlock()
	lines := sim.lines
	if *only == 0 && len(lines) > traceLines {
		lines = append(lines[:1:1], lines[len(lines)-traceLines:]...)
	}
	return fmt.Sprintf("seed %#x: to see it again: go test ./test/sim -run TestSim -seed %#x -repeat 50\n%s",
		sim.seed, sim.seed, strings.Join(lines, "\n"))
}

func upTo(random *rand.Rand, d time.Duration) time.Duration {
	return time.Duration(random.Int64N(int64(d)))
}
