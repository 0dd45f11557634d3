package audit

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/flotilla-kube/flotilla/pkg/fleet"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// unnamed stands for the controllers of a plan that was read from Leases which do not name them.
const unnamed = "unnamed"

// ReadPlan returns the plan that a fleet began with: the first on the plan's Lease, or, where the log has none, what the fleet's
// members wrote on the Leases of its shards, by the least plan generation that they name. Controllers that the Leases do not
// name have made-up names. It is an error if there are no such Leases, if they do not make up a whole keyspace, or if a shard
// has changed. It takes the members at their word: a range that is wrong on the Lease is wrong here, so give Check the plan
// that was meant where there is one.
func ReadPlan(fleetName string, logs ...io.Reader) (shard.Plan, error) {
	found := map[shard.ID]cover{}
	var plans []planWrite
	_, _, err := readLogs(logs, func(e event) error {
		if !e.mutating() || e.ObjectRef.Resource != "leases" || e.refused() || e.failed() || e.ResponseObject == nil {
			return nil
		}
		if e.ObjectRef.Name == fleet.PlanLease(fleetName) && e.Verb != "delete" {
			w, err := planWriteOf(e)
			plans = append(plans, w)
			return err
		}
		return readCover(fleetName, e, found)
	})
	if err != nil {
		return shard.Plan{}, err
	}
	slices.SortStableFunc(plans, func(a, b planWrite) int { return cmp.Compare(a.version, b.version) })
	for _, w := range plans {
		if plan, err := shard.ParsePlan([]byte(w.document)); err == nil {
			return plan, nil
		}
	}
	plan := assemble(found)
	if err := plan.Validate(); err != nil {
		return shard.Plan{}, fmt.Errorf("the plan that the Leases of fleet %q tell of: %w", fleetName, err)
	}
	return plan, nil
}

// readCover adds what a Lease says that its shard covers, if it is a shard's of the fleet.
func readCover(fleetName string, e event, found map[shard.ID]cover) error {
	var lease coordinationv1.Lease
	if !decode(e.ResponseObject, &lease) {
		return nil
	}
	v := coverOf(&lease, 0)
	switch known, again := found[v.id]; {
	case v.fleet != fleetName || lease.Name != fleet.ShardLease(fleetName, v.id):
	case v.named && (v.fault != "" || again && known.extent.Range != v.extent.Range):
		// Check convicts it.
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
