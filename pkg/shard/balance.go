package shard

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// HomesOf returns where each shard of the ring belongs when all of the members are there: with its
// pin if that is among them, else with its home if that is, else with the group named by its
// ColocateWith, else by consistent hashing, as in Homes for all shards of the ring. A ring without
// pins, homes and ColocateWith is placed exactly as by Homes. The error is that of Homes, or says
// that there is no such ring.
func (p Plan) HomesOf(ring string, members []string) (Placement, error) {
	return (*Circles)(nil).HomesOf(p, ring, members)
}

// HomesOf is [Plan.HomesOf], with the kept circles.
func (cs *Circles) HomesOf(p Plan, ring string, members []string) (Placement, error) {
	r, found := p.Ring(ring)
	if !found {
		return Placement{}, fmt.Errorf("ring %q: is not in the plan", ring)
	}
	members = sortedUnique(members, strings.Compare)
	if len(members) == 0 {
		return Placement{}, nil
	}
	homeless := func(s Shard) bool { return s.homeAmong(members) == "" }
	var hashed Placement
	if slices.ContainsFunc(r.Shards, homeless) {
		var err error
		if hashed, err = cs.homes(r.IDs(), members); err != nil {
			return Placement{}, err
		}
		if !slices.ContainsFunc(r.Shards, func(s Shard) bool { return !homeless(s) || s.ColocateWith != "" }) {
			return hashed, nil
		}
	}
	alone := func(s Shard) string { return cmp.Or(s.homeAmong(members), hashed.owners[s.ID]) }
	out := Placement{owners: make(map[ID]string, len(r.Shards)), shards: make(map[string][]ID, len(members))}
	for _, s := range r.Shards {
		owner := alone(s)
		if beside := slices.IndexFunc(r.Shards, s.colocatesWith); beside >= 0 && homeless(s) {
			owner = alone(r.Shards[beside])
		}
		out.owners[s.ID] = owner
		out.shards[owner] = append(out.shards[owner], s.ID)
	}
	for _, ids := range out.shards {
		slices.SortFunc(ids, ID.Compare)
	}
	return out, nil
}

// homeAmong returns the shard's pin, or else its home, if that is among the sorted members, and
// otherwise nothing.
func (s Shard) homeAmong(members []string) string {
	for _, name := range []string{s.Pin, s.Home} {
		if name != "" && contains(members, name) {
			return name
		}
	}
	return ""
}

// colocatesWith reports whether other is the group that s goes with.
func (s Shard) colocatesWith(other Shard) bool {
	return s.ColocateWith != "" && s.ColocateWith == other.Group
}

// Balance is how the weight of a ring, and what members carry in addition to it, is distributed
// over the members, in objects.
type Balance struct {
	// Members is the weight of each member, including those without any.
	Members map[string]int64
	// Max and Mean are the maximum and the mean of Members.
	Max, Mean float64
	// Bound is a lower bound of Max/Mean for any cut of the ring between the cells of the census:
	// 1, or more if some cells, or what some member carries, are too heavy to be shared out evenly.
	Bound float64
}

// Ratio returns Max/Mean, or 1 if there is no weight.
func (b Balance) Ratio() float64 {
	if b.Mean <= 0 {
		return 1
	}
	return b.Max / b.Mean
}

// BalanceOf returns the balance when every shard of the ring is where HomesOf places it. If there
// is no such ring, or HomesOf refuses the members, the balance has only what they carry.
func BalanceOf(plan Plan, ring string, weights Weights, members []string) Balance {
	r, _ := plan.Ring(ring)
	homes, _ := plan.HomesOf(ring, members)
	return BalanceBy(r, homes.Owner, weights, members)
}

// BalanceBy returns the balance of the ring over members when each of its shards is with its owner,
// if it has one. An owner that is not one of members may be the heaviest.
func BalanceBy(ring Ring, owner func(ID) (string, bool), weights Weights, members []string) Balance {
	b := Balance{Members: make(map[string]int64, len(members)), Bound: 1}
	lump := int64(0)
	for _, m := range members {
		b.Members[m] = weights.carriedBy(m)
		lump = max(lump, b.Members[m])
	}
	for _, s := range ring.Shards {
		if member, placed := owner(s.ID); placed && s.Namespaced() {
			b.Members[member] += weights.Census.Within(s.Range).Total()
		}
	}
	total := int64(0)
	for _, weight := range b.Members {
		total += weight
		b.Max = max(b.Max, float64(weight))
	}
	if total > 0 && len(members) > 0 {
		b.Mean = float64(total) / float64(len(members))
		b.Bound = max(1, float64(max(lump, leastMax(weights.Census, len(members))))/b.Mean)
	}
	return b
}

// leastMax returns a lower bound of the weight of the heaviest of n members. Of the n*k+1 heaviest
// cells some member has k+1, and so at least the weight of the last k+1 of them; with k = 0 that is
// the heaviest cell.
func leastMax(census Census, n int) int64 {
	weights := make([]int64, 0, len(census))
	for _, cell := range census {
		weights = append(weights, cell.Weight)
	}
	slices.SortFunc(weights, func(a, b int64) int { return cmp.Compare(b, a) })
	bound := int64(0)
	for k := 0; k < 64 && n*k < len(weights); k++ {
		sum := int64(0)
		for _, w := range weights[n*k-k : n*k+1] {
			sum += w
		}
		bound = max(bound, sum)
	}
	return bound
}
