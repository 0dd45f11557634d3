package sim

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/flotilla-kube/flotilla/pkg/fleet"
	"github.com/flotilla-kube/flotilla/pkg/fleet/planner"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

const (
	// stockLease is the Lease of the stock controller manager's leader election.
	stockLease = "kube-controller-manager"
	// longestLinger is how long a stock controller manager keeps working after it has released its
	// Lease.
	longestLinger = 2 * time.Second
	// lockDelay is longer than longestLinger by any clock.
	lockDelay = 3 * time.Second
	// longestMarkLag is how long the API server may not enforce a mark that it has accepted.
	longestMarkLag = 600 * time.Millisecond
	// fenceDelay is longer than longestMarkLag by any clock.
	fenceDelay = 900 * time.Millisecond
	// fastest is how much faster than the others a clock may be: less than lease duration / renew
	// deadline.
	fastest = 1.45
	// fastestWithStock replaces fastest where stock controller managers, with the slowest clock,
	// compete. client-go's elector believes that it leads for a renew deadline plus a retry period.
	fastestWithStock = 1.2
)

// features are what a seed has besides members, a plan and faults.
type features struct {
	// drift makes the clocks differ in speed.
	drift bool
	// leaderLocks makes stock controller managers compete with the fleet for the leader lock.
	leaderLocks bool
	// enforced makes the API server enforce deploy/fence. The clocks of suspended processes may
	// stand still.
	enforced bool
	// standby makes members keep warm the shards that they would own if the holder failed.
	standby bool
	// rings adds a second ring of namespaces, members that serve only some rings, and moves of
	// controllers between rings.
	rings bool
	// planner makes the planner balance ranges.
	planner bool
	// versions gives the members two versions with different controllers.
	versions bool
	// refresh lets prepared caches be compared with the current state.
	refresh bool
	// shutdown is --controller-shutdown-timeout.
	shutdown time.Duration
}

func newFeatures(random *rand.Rand) features {
	often := func(probability float64) bool { return random.Float64() < probability }
	f := features{
		drift: often(0.5), leaderLocks: often(0.3), enforced: often(0.3), standby: often(0.3), rings: often(0.3), planner: often(0.3),
		shutdown: []time.Duration{0, 5 * time.Second, 10 * time.Second}[random.IntN(3)],
	}
	f.refresh = f.standby || often(0.5)
	return f
}

func (f features) String() string {
	text := strings.ReplaceAll(fmt.Sprintf("%+v", struct{ drift, leaderLocks, enforced, standby, rings, planner, refresh, versions bool }{
		f.drift, f.leaderLocks, f.enforced, f.standby, f.rings, f.planner, f.refresh, f.versions,
	}), ":", " ")
	return fmt.Sprintf("%s, shutdown timeout %v", text, f.shutdown)
}

// configure sets a member's configuration for the seed's features.
func (sim *simulation) configure(c *fleet.Config, s *seat) {
	c.Rings, c.Standby, c.ShutdownTimeout = s.rings, sim.standby, sim.shutdown
	if sim.leaderLocks {
		c.LeaderLocks, c.LeaderLockDelay = []string{stockLease}, lockDelay
	}
	if sim.enforced {
		c.Enforced, c.FenceDelay = func() bool { return true }, fenceDelay
	}
	if sim.planner {
		c.CensusInterval = 6 * time.Second
		c.Replanning = planner.Replanning{
			Interval: replanInterval,
			Urgent:   math.Inf(1),
			Limits:   shard.Limits{ShardsPerMember: 1, MostShardsPerMember: 3, Trigger: 1.3, Target: 1.1, MaxRound: 0.5, MinWeight: 20},
		}
		if sim.urgent() {
			c.Replanning.Urgent = 0 // the default
		}
	}
}

// urgent reports whether the planner may treat an imbalance as too large to wait. Elsewhere it must
// leave time between its changes whatever the weights, which judgePlansLocked checks.
func (f features) urgent() bool { return f.planner && f.drift }

// firstPlan returns a plan with n ranges and two groups, and two ranges of another ring if the seed
// has one.
func (sim *simulation) firstPlan(n int) shard.Plan {
	plan := shard.Plan{Generation: 1, Rings: []shard.Ring{sim.ringOf("namespaces", n, "job-controller")}}
	if sim.rings {
		plan.Rings = []shard.Ring{
			sim.ringOf("namespaces", n, "cronjob-controller", "job-controller"), sim.ringOf("services", 2, "endpointslice-controller", "service-controller"),
		}
	}
	plan.Rings = append(plan.Rings, shard.Ring{Name: "cluster", Scope: shard.ScopeCluster, Shards: []shard.Shard{
		{ID: shard.ID{Ring: "cluster", Name: "garbage"}, Group: "garbage", Controllers: []string{"garbage-controller"}, ColocateWith: "nodes"},
		{ID: shard.ID{Ring: "cluster", Name: "nodes"}, Group: "nodes", Controllers: []string{"node-controller"}},
	}})
	return plan
}

func (sim *simulation) ringOf(name string, n int, controllers ...string) shard.Ring {
	ranges, err := shard.EqualRanges(n)
	if err != nil {
		sim.t.Fatal(err)
	}
	ring := shard.Ring{Name: name, Scope: shard.ScopeNamespaced, Controllers: controllers}
	for i, r := range ranges {
		ring.Shards = append(ring.Shards, shard.Shard{ID: shard.ID{Ring: name, Name: fmt.Sprintf("%02d", i)}, Range: r})
	}
	return ring
}

// someRings returns the rings that a member serves; nil means all.
func (sim *simulation) someRings() []string {
	if !sim.rings {
		return nil
	}
	return [][]string{nil, {"namespaces", "cluster"}, {"services"}, {"services", "namespaces"}, {"cluster"}}[sim.random.IntN(5)]
}

// serves reports whether the process serves a ring.
func (p *process) serves(ring string) bool {
	return len(p.rings) == 0 || slices.Contains(p.rings, ring)
}

// populate sets the namespaces' weights, or changes some of them.
func (sim *simulation) populate() {
	weights := map[string]int64{}
	maps.Copy(weights, *sim.weights.Load())
	for range 12 {
		weights[fmt.Sprintf("ns-%d", sim.random.IntN(30))] = 1 + sim.random.Int64N(100)
	}
	sim.weights.Store(&weights)
}

// Weigh implements fleet.Weigher.
func (k *work) Weigh() map[string]int64 {
	if !k.process.sim.planner || k.over.Load() {
		return nil
	}
	mine := map[string]int64{}
	for namespace, weight := range *k.process.sim.weights.Load() {
		if k.given.Shard.Range.Contains(shard.Hash(namespace)) {
			mine[namespace] = weight
		}
	}
	return mine
}

// Load implements fleet.Loader with 100 bytes an object and heavy groups. If all clocks run at one
// speed, no member reports its load, as in an older version.
func (k *work) Load() (fleet.Load, bool) {
	weights := k.Weigh()
	if weights == nil || !k.process.sim.drift {
		return fleet.Load{}, false
	}
	load := fleet.Load{Namespaces: weights}
	for namespace := range weights {
		weights[namespace] *= 100
	}
	if !k.given.Shard.Namespaced() {
		load = fleet.Load{Shared: int64(len(k.given.Shard.Group)) * 8000, Fixed: 1000}
	}
	return load, true
}

// TestDelaysAreLongEnough checks that the configured delays exceed what the models take, by any
// clock.
func TestDelaysAreLongEnough(t *testing.T) {
	for name, delay := range map[string][2]time.Duration{
		"leader-lock": {lockDelay, longestLinger}, "fence": {fenceDelay, longestMarkLag},
	} {
		if time.Duration(float64(delay[0])/fastest) <= delay[1] {
			t.Errorf("%s delay: %v by a clock that is %v times as fast is less than %v", name, delay[0], fastest, delay[1])
		}
	}
}
