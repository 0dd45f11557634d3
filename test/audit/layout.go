package audit

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"github.com/flotilla-kube/flotilla/pkg/fleet"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// unnamed stands for the controllers of a plan that was read from Leases, which do not name them.
const unnamed = "unnamed"

// ReadPlan reads the plan of a fleet from what its members wrote on its shards' Leases. The controllers have made-up
// names, which no rule needs. It is an error if there are no such Leases, if they do not make up a whole keyspace, or if
// a shard has changed. It takes the members at their word: a range that is wrong on the Lease is wrong here, so give Check
// the plan that was meant where there is one.
func ReadPlan(fleetName string, logs ...io.Reader) (shard.Plan, error) {
	found := map[shard.ID]shard.Shard{}
	_, _, err := readLogs(logs, func(e event) error {
		if !e.mutating() || e.ObjectRef.Resource != "leases" || e.refused() || e.failed() || e.ResponseObject == nil {
			return nil
		}
		s, ok, err := shardOf(fleetName, e)
		if err != nil || !ok {
			return err
		}
		if known, ok := found[s.ID]; ok && known.Range != s.Range {
			return fmt.Errorf("the Lease of shard %s has range %s, and had %s before", s.ID, s.Range, known.Range)
		}
		found[s.ID] = s
		return nil
	})
	if err != nil {
		return shard.Plan{}, err
	}
	plan := assemble(found)
	if err := plan.Validate(); err != nil {
		return shard.Plan{}, fmt.Errorf("the plan that the Leases of fleet %q tell of: %w", fleetName, err)
	}
	return plan, nil
}

// shardOf returns the shard that a Lease is of, if it is one of the fleet's.
func shardOf(fleetName string, e event) (shard.Shard, bool, error) {
	var lease struct {
		Metadata metadata `json:"metadata"`
	}
	if err := json.Unmarshal(e.ResponseObject, &lease); err != nil {
		return shard.Shard{}, false, err
	}
	labels := lease.Metadata.Labels
	id := shard.ID{Ring: labels[fleet.RingLabel], Name: labels[fleet.ShardLabel]}
	if labels[fleet.FleetLabel] != fleetName || lease.Metadata.Name != fleet.ShardLease(fleetName, id) {
		return shard.Shard{}, false, nil
	}
	text, ranged := lease.Metadata.Annotations[fleet.RangeAnnotation]
	if !ranged {
		return shard.Shard{ID: id, Group: id.Name, Controllers: []string{unnamed + "-" + id.Ring + "-" + id.Name}}, true, nil
	}
	r, err := shard.ParseRange(text)
	return shard.Shard{ID: id, Range: r}, true, err
}

func assemble(found map[shard.ID]shard.Shard) shard.Plan {
	rings := map[string]*shard.Ring{}
	for _, s := range found {
		ring := rings[s.Ring]
		if ring == nil {
			ring = &shard.Ring{Name: s.Ring, Scope: shard.ScopeCluster}
			rings[s.Ring] = ring
		}
		if s.Namespaced() {
			ring.Scope, ring.Controllers = shard.ScopeNamespaced, []string{unnamed + "-" + s.Ring}
		}
		ring.Shards = append(ring.Shards, s)
	}
	plan := shard.Plan{Generation: 1}
	for _, ring := range rings {
		slices.SortFunc(ring.Shards, func(a, b shard.Shard) int { return a.Compare(b.ID) })
		plan.Rings = append(plan.Rings, *ring)
	}
	slices.SortFunc(plan.Rings, func(a, b shard.Ring) int { return cmp.Compare(a.Name, b.Name) })
	return plan
}
