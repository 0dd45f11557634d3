package sim

import (
	"flag"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
)

var (
	seeds  = flag.Uint64("seeds", 2000, "how many seeds to try")
	first  = flag.Uint64("first-seed", 1, "the seed to begin with")
	only   = flag.Uint64("seed", 0, "try this seed alone and print its trace")
	repeat = flag.Int("repeat", 1, "how often to try each seed")
)

const (
	// lanes run beside each other.
	lanes = 2
	// realLimit is how long one seed may take in real time. Most take 20 ms.
	realLimit = 60 * time.Second
)

func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// TestSim tries seed after seed. The package comment says what each one is judged by.
func TestSim(t *testing.T) {
	from, n := *first, *seeds
	if testing.Short() {
		n = min(n, 100)
	}
	if *only != 0 {
		from, n = *only, 1
	}
	var total totals
	t.Run("lanes", func(t *testing.T) {
		var next atomic.Uint64
		for lane := range lanes {
			t.Run(fmt.Sprint(lane), func(t *testing.T) {
				t.Parallel()
				for i := next.Add(1) - 1; i < n && !t.Failed(); i = next.Add(1) - 1 {
					for n := 0; n < *repeat && !t.Failed(); n++ {
						simulate(t, from+i, &total)
					}
				}
			})
		}
	})
	t.Log(&total)
}

// simulate runs one seed in a bubble, watched from outside it: virtual time does not pass in a livelock.
func simulate(t *testing.T, seed uint64, total *totals) {
	var current atomic.Pointer[world]
	watchdog := time.AfterFunc(realLimit, func() {
		panic(fmt.Sprintf("%s\nseed %#x takes more than %v: a livelock?", current.Load().report(), seed, realLimit))
	})
	defer watchdog.Stop()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, seed)
		current.Store(w)
		w.run()
		total.add(w)
	})
}

// totals shows that the simulation reaches what it is about.
type totals struct {
	seeds, writes, late, refused, warm, cold, takeovers, exits, plans, slowest atomic.Int64
}

func (s *totals) add(w *world) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s.seeds.Add(1)
	s.writes.Add(int64(w.count.writes))
	s.late.Add(int64(w.count.late))
	s.refused.Add(int64(w.count.refused))
	s.warm.Add(int64(w.count.warm))
	s.cold.Add(int64(w.count.cold))
	s.takeovers.Add(int64(w.count.takeovers))
	s.exits.Add(int64(w.count.exits))
	s.plans.Add(int64(w.count.plans))
	for slowest := s.slowest.Load(); int64(w.count.settled) > slowest; slowest = s.slowest.Load() {
		s.slowest.CompareAndSwap(slowest, int64(w.count.settled))
	}
}

func (s *totals) String() string {
	return fmt.Sprintf("%d seeds: %d writes, %d of them late, %d refused by a fence; %d warm starts, %d cold ones; "+
		"%d claims, %d exits, %d changes of plan; all shards were run again at most %v after the last fault",
		s.seeds.Load(), s.writes.Load(), s.late.Load(), s.refused.Load(), s.warm.Load(), s.cold.Load(),
		s.takeovers.Load(), s.exits.Load(), s.plans.Load(), time.Duration(s.slowest.Load()))
}
