package fleet

import (
	"time"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// leavingShard is the Lease of a shard that is not in the plan, and what it covers. If the plan has
// a shard of that name, which covers something else, that is its heir: the plan began anew.
type leavingShard struct {
	election.Observation
	cover cover
	heir  shard.ID
}

// leavingList are those of all Leases, as they were at one moment. It is immutable.
type leavingList struct {
	from   []election.Observation
	plan   *inForce
	shards []leavingShard
}

// leaving returns the Leases of a list that are those of shards not in the plan. Every shard that
// waits for others asks at each event, so what it found last is kept: for as long as nothing
// changes, the observer returns the same list.
func (m *Member) leaving(leases []election.Observation, plan *inForce) []leavingShard {
	if last := m.lastLeaving.Load(); last != nil && last.plan == plan && isSame(last.from, leases) {
		return last.shards
	}
	next := &leavingList{from: leases, plan: plan}
	for _, o := range leases {
		if !m.isShard(o) {
			continue
		}
		if says, planned := m.covers.of(o, m.config.Fleet, plan); !planned {
			heir, _ := plan.shardOf(m.config.Fleet, o.Name)
			next.shards = append(next.shards, leavingShard{o, says, heir})
		}
	}
	m.covers.keep(len(leases))
	m.lastLeaving.Store(next)
	return next.shards
}

// isSame reports whether two lists are one.
func isSame(a, b []election.Observation) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// rivals returns those of the Leases that are held, cover some of what the shard covers, and are not
// its own.
func (m *Member) rivals(leaving []leavingShard, id shard.ID, extent shard.Extent, now time.Time) []election.Observation {
	var found []election.Observation
	for _, l := range leaving {
		if l.heir != id && l.cover.overlaps(extent) && m.isHeld(l.Observation, now) {
			found = append(found, l.Observation)
		}
	}
	return found
}

// heirs tells of what a shard covers that is not in the plan whether every shard that inherits from
// it, or from another one that these inherit from, and so on, waits for nothing but the release, or
// runs already because somebody has meddled with Leases: then it can be drained, and none of its
// parts is without a holder for long.
func (m *Member) heirs(leases []election.Observation, plan *inForce, now time.Time) func(shard.Extent) bool {
	extents := make([]shard.Extent, len(plan.shards))
	for i, s := range plan.shards {
		extents[i] = plan.extents[s.ID]
	}
	// Shards that inherit from the same one wait for each other: of each set, first is the smallest.
	first := make([]int, len(extents))
	for i := range first {
		first[i] = i
	}
	find := func(i int) int {
		for first[i] != i {
			first[i] = first[first[i]]
			i = first[i]
		}
		return i
	}
	for _, l := range m.leaving(leases, plan) {
		if !m.isHeld(l.Observation, now) {
			continue
		}
		heir := -1
		for i, extent := range extents {
			if l.heir == plan.shards[i].ID || !l.cover.overlaps(extent) {
				continue
			}
			if heir >= 0 {
				a, b := find(heir), find(i)
				first[max(a, b)] = min(a, b)
			}
			heir = i
		}
	}
	late := make([]bool, len(extents))
	for i, s := range plan.shards {
		if !m.isReady(m.observer.Get(ShardLease(m.config.Fleet, s.ID)), now) {
			late[find(i)] = true
		}
	}
	return func(extent shard.Extent) bool {
		for i := range extents {
			if extent.Overlaps(extents[i]) && late[find(i)] {
				return false
			}
		}
		return true
	}
}
