package sim

import (
	"flag"
	"fmt"
	"os"
	"runtime/debug"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
)

var (
	seeds     = flag.Uint64("seeds", 2000, "how many seeds to try")
	first     = flag.Uint64("first-seed", 1, "the seed to begin with")
	only      = flag.Uint64("seed", 0, "try only this seed and print its trace")
	repeat    = flag.Int("repeat", 1, "how often to try each seed")
	versions  = flag.Bool("versions", false, "give three of ten seeds members of two versions; an operator may then leave a plan that nobody can follow")
	until     = flag.String("until", "", "continue until a seed breaks this invariant")
	realLimit = flag.Duration("real-limit", 5*time.Minute, "how long one seed may take in real time; most take 100 ms")
)

// lanes is how many seeds run in parallel.
const lanes = 2

func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard())
	debug.SetGCPercent(400) // A seed takes a few megabytes.
	os.Exit(m.Run())
}

// TestSim runs one seed after another. The package comment says what is judged.
func TestSim(t *testing.T) {
	from, n := *first, *seeds
	if testing.Short() {
		n = min(n, 100)
	}
	if *only != 0 {
		from, n = *only, 1
	}
	total := totals{versions: *versions}
	t.Run("lanes", func(t *testing.T) {
		var next atomic.Uint64
		var found atomic.Bool
		for lane := range lanes {
			t.Run(fmt.Sprint(lane), func(t *testing.T) {
				t.Parallel()
				for i := next.Add(1) - 1; i < n && !found.Load(); i = next.Add(1) - 1 {
					for n := 0; n < *repeat && !found.Load(); n++ {
						broken := simulate(t, from+i, &total)
						if broken != "" && (*until == "" || *until == string(broken)) {
							found.Store(true)
						}
					}
				}
			})
		}
	})
	t.Log(&total)
	if *only == 0 && !t.Failed() {
		for _, complaint := range total.complaints() {
			t.Error(complaint)
		}
	}
}

// simulate runs one seed in a bubble and watches it from outside, because virtual time does not
// pass in a livelock. It returns the broken invariant.
func simulate(t *testing.T, seed uint64, total *totals) (broken invariant) {
	var current atomic.Pointer[simulation]
	watchdog := time.AfterFunc(*realLimit, func() {
		sim := current.Load()
		sim.failf(livelock, "the seed takes more than %v", *realLimit)
		panic(sim.report())
	})
	defer watchdog.Stop()
	defer func() {
		if problem := recover(); problem != nil {
			sim := current.Load()
			sim.failf(goroutines, "%v", problem)
			panic(sim.report())
		}
	}()
	synctest.Test(t, func(t *testing.T) {
		sim := newSimulation(t, seed)
		current.Store(sim)
		sim.run()
		total.add(sim)
		broken = sim.failed
	})
	if broken != "" {
		t.Error(current.Load().report()) // Outside the bubble, so that other seeds can follow.
	}
	return broken
}
