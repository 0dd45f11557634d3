package audit

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// unnamed stands for the controllers of a plan that was read from Leases that do not name them.
const unnamed = "unnamed"

// ReadPlan returns the plan that a fleet began with: the first on the plan's Lease. If the log has
// none, it uses what the fleet's members wrote on the Leases of its shards, at the lowest plan
// generation that they name, with made-up names for controllers that the Leases do not name. It
// returns an error if there are no such Leases, if they do not make up a whole keyspace, or if a
// shard has changed. It believes the members: a range that is wrong on the Lease is wrong here, so
// give Judge the intended plan if you have it.
func ReadPlan(opts Options, logs ...Log) (shard.Plan, error) {
	opts.Plan = nil
	c := newChecker(opts)
	if _, err := readLogs(logs, c.read); err != nil {
		return shard.Plan{}, err
	}
	return c.firstPlan()
}

// firstPlan returns the first plan of a log that has been read without one.
func (c *checker) firstPlan() (shard.Plan, error) {
	slices.SortStableFunc(c.planWrites, func(a, b planWrite) int { return cmp.Compare(a.version, b.version) })
	for _, w := range c.planWrites {
		if plan, err := shard.ParsePlan([]byte(w.document)); err == nil && !w.unknown {
			return c.planBefore(w, plan), nil
		}
	}
	found := map[shard.ID]cover{}
	for id, l := range c.leases {
		for i := range l.states {
			if err := readCover(c.fleet, id, l.states[i].cover, found); err != nil {
				return shard.Plan{}, err
			}
		}
	}
	for _, l := range c.leases {
		if l.err != nil && len(found) == 0 {
			return shard.Plan{}, l.err
		}
	}
	if len(found) == 0 {
		return shard.Plan{}, fmt.Errorf("no write of a Lease of fleet %q in namespace %q: of another fleet, or of Leases that are not logged", c.fleet, c.namespace)
	}
	plan := assemble(found)
	if err := plan.Validate(); err != nil {
		return shard.Plan{}, fmt.Errorf("the plan that the Leases of fleet %q tell of: %w", c.fleet, err)
	}
	return plan, nil
}

// planBefore returns the plan under which the log begins, if its first write of the plan's Lease
// has a plan. That may be a new one; the Lease then has the last one too, unless somebody has
// removed it.
func (c *checker) planBefore(w planWrite, plan shard.Plan) shard.Plan {
	c.late = c.followsUnseen(w)
	if before, err := shard.ParsePlan([]byte(w.lastGood)); err == nil && before.Generation < plan.Generation {
		return before
	}
	return plan
}

// followsUnseen reports whether a write of the plan's Lease was made on one that the log does not
// have.
func (c *checker) followsUnseen(w planWrite) bool {
	return w.based > 0 && !slices.ContainsFunc(c.planWrites, func(other planWrite) bool { return !other.unknown && other.version == w.based })
}

// readCover adds a shard's extent by its Lease, if the shard belongs to the fleet.
func readCover(fleetName string, id shard.ID, v cover, found map[shard.ID]cover) error {
	switch known, again := found[id]; {
	case v.fleet != fleetName || v.id != id:
	case v.named && (v.fault != "" || again && known.extent.Range != v.extent.Range):
		// Judge convicts it.
	case v.fault != "":
		return fmt.Errorf("the Lease of shard %s: %s", v.id, v.fault)
	case again && known.extent.Range != v.extent.Range:
		return fmt.Errorf("the Lease of shard %s has range %s, and had %s before", v.id, v.extent.Range, known.extent.Range)
	case !again || v.named && (!known.named || v.generation < known.generation):
		found[v.id] = v
	}
	return nil
}

func assemble(found map[shard.ID]cover) shard.Plan {
	plan := shard.Plan{Generation: 1}
	if len(found) > 0 {
		plan.Generation = max(1, slices.MinFunc(slices.Collect(maps.Values(found)), func(a, b cover) int {
			return cmp.Compare(a.generation, b.generation)
		}).generation)
	}
	rings := map[string]*shard.Ring{}
	for id, v := range found {
		if v.generation > plan.Generation {
			continue
		}
		ring := rings[id.Ring]
		if ring == nil {
			ring = &shard.Ring{Name: id.Ring, Scope: shard.ScopeCluster}
			rings[id.Ring] = ring
		}
		s := shard.Shard{ID: id, Range: v.extent.Range}
		controllers := v.extent.Controllers
		if v.ranged {
			if !v.named {
				controllers = []string{unnamed + "-" + id.Ring}
			}
			ring.Scope, ring.Controllers = shard.ScopeNamespaced, controllers
		} else {
			if !v.named {
				controllers = []string{unnamed + "-" + id.Ring + "-" + id.Name}
			}
			s.Group, s.Controllers = id.Name, controllers
		}
		ring.Shards = append(ring.Shards, s)
	}
	for _, ring := range rings {
		slices.SortFunc(ring.Shards, func(a, b shard.Shard) int { return a.Compare(b.ID) })
		plan.Rings = append(plan.Rings, *ring)
	}
	slices.SortFunc(plan.Rings, func(a, b shard.Ring) int { return cmp.Compare(a.Name, b.Name) })
	return plan
}
