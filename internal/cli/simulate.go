package cli

import (
	"fmt"
	"io"
	"slices"

	"github.com/flotilla-kube/flotilla/internal/status"
	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/election/membership"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

const (
	// maxMembers is how many members may be simulated: the placement takes time with the square of
	// them.
	maxMembers = 256
	// maxRounds ends a simulation that does not end by itself, which would be a bug of the planner.
	maxRounds = 1000
)

// Simulation is the result for the namespaced rings with another number of members.
type Simulation struct {
	Members []string         `json:"members"`
	Rings   []RingSimulation `json:"rings"`
}

// RingSimulation is the result for one ring.
type RingSimulation struct {
	Ring string `json:"ring"`
	// Skipped says why there is no result, if so.
	Skipped string `json:"skipped,omitempty"`
	// Rounds is how many plans it takes; ShardsBefore and ShardsAfter how many shards there are.
	Rounds       int `json:"rounds"`
	ShardsBefore int `json:"shardsBefore"`
	ShardsAfter  int `json:"shardsAfter"`
	// Moved is the weight that ends on another member than now, Total that of the ring, in objects.
	Moved  int64       `json:"moved"`
	Total  int64       `json:"total"`
	Before BalanceView `json:"before"`
	After  BalanceView `json:"after"`
	// Shards is how many shards each member has at the end.
	Shards map[string]int `json:"shards"`
	// Memory is the heap of each member, in bytes; nil if holders do not publish what their shards
	// take.
	Memory map[string]SimulatedMemory `json:"memory,omitempty"`
}

// SimulatedMemory is the heap of a member, in bytes; 0 is unknown, or none.
type SimulatedMemory struct {
	// Real is what it uses now, Before what it was estimated to use now, and After what it would.
	Real   int64 `json:"real,omitempty"`
	Before int64 `json:"before,omitempty"`
	After  int64 `json:"after,omitempty"`
}

// Simulate returns what the planner would do, step by step until nothing is worth doing, with that
// many members: the first of the existing ones, and then further ones named as by a StatefulSet.
func Simulate(r *status.Reading, members int, limits shard.Limits) (Simulation, error) {
	if r.Fault != nil {
		return Simulation{}, r.Problem()
	}
	if err := checkAtRest(r); err != nil {
		return Simulation{}, err
	}
	var known []string
	for _, m := range r.Known {
		known = append(known, m.Name)
	}
	s := Simulation{Members: futureMembers(r.Fleet, known, members)}
	for _, ring := range r.Plan.Rings {
		if ring.Scope == shard.ScopeNamespaced {
			v, err := simulateRing(r, ring, s.Members, limits)
			if err != nil {
				return Simulation{}, fmt.Errorf("ring %s: %w", ring.Name, err)
			}
			s.Rings = append(s.Rings, v)
		}
	}
	if len(s.Rings) > 0 && !slices.ContainsFunc(s.Rings, func(v RingSimulation) bool { return v.Skipped == "" }) {
		return s, fmt.Errorf("ring %s: %s", s.Rings[0].Ring, s.Rings[0].Skipped)
	}
	return s, nil
}

func simulateRing(r *status.Reading, ring shard.Ring, members []string, limits shard.Limits) (RingSimulation, error) {
	v := RingSimulation{Ring: ring.Name, ShardsBefore: len(ring.Shards), Shards: map[string]int{}}
	weights, missing := r.Weights(ring)
	if len(missing) > 0 {
		v.Skipped = fmt.Sprintf("%v (missing from %s)", errNotCounted, some(idTexts(missing)))
		return v, nil
	}
	serving := slices.DeleteFunc(slices.Clone(members), func(name string) bool {
		i := slices.IndexFunc(r.Known, func(m membership.Member) bool { return m.Name == name })
		return i >= 0 && len(leaseapi.ServersOf(r.Known[i:i+1], ring.Name)) == 0
	})
	if len(serving) == 0 {
		v.Skipped = "none of these members serves it"
		return v, nil
	}
	now := r.Stayers(ring)
	then := r.WeightsAmong(ring, members)
	plan := r.Plan
	for ; v.Rounds < maxRounds; v.Rounds++ {
		p, worth, err := shard.Propose(plan, ring.Name, then.Weights, serving, limits)
		if err != nil {
			return v, err
		}
		if !worth {
			break
		}
		plan = p.Plan
	}
	v.Total = weights.Census.Total()
	v.Before, v.After = viewBalance(shard.BalanceOf(r.Plan, ring.Name, weights.Weights, now)), viewBalance(shard.BalanceOf(plan, ring.Name, then.Weights, serving))
	was, err := r.Plan.HomesOf(ring.Name, now)
	if err != nil {
		return v, err
	}
	is, err := plan.HomesOf(ring.Name, serving)
	if err != nil {
		return v, err
	}
	for _, c := range weights.Census {
		if ownerAt(r.Plan, ring.Name, was, c.Hash) != ownerAt(plan, ring.Name, is, c.Hash) {
			v.Moved += c.Weight
		}
	}
	after, _ := plan.Ring(ring.Name)
	v.ShardsAfter = len(after.Shards)
	for _, name := range serving {
		v.Shards[name] = len(is.Of(name))
	}
	if weights.PerObject > 0 {
		v.remember(r, then, shard.BalanceOf(plan, ring.Name, then.Memory(), serving))
	}
	return v, nil
}

// remember adds the heap of each member, given how the memory is distributed afterwards. A new
// range takes as much besides its objects as the existing ones.
func (v *RingSimulation) remember(r *status.Reading, weights leaseapi.Weights, after shard.Balance) {
	v.Memory = map[string]SimulatedMemory{}
	var beside int64
	for _, m := range status.Members(r) {
		memory := SimulatedMemory{}
		if m.Memory != nil {
			memory.Real = *m.Memory
			v.Memory[m.Name] = memory
		}
		if m.Estimated != nil {
			memory.Before = *m.Estimated
			v.Memory[m.Name] = memory
		}
		said, _ := leaseapi.MemoryOn(r.Lease(leaserecord.MemberLease(r.Fleet, m.Name)))
		beside = max(beside, said.Beside)
	}
	var fixed int64
	ring, _ := r.Plan.Ring(v.Ring)
	for _, s := range ring.Shards {
		memory, _ := leaseapi.ShardMemoryOn(r.ShardLease(s.ID))
		fixed = max(fixed, memory.Fixed)
	}
	for name, n := range v.Shards {
		memory := v.Memory[name]
		memory.After = weights.Bytes(after.Members[name]) + weights.Fixed[name] + int64(n)*fixed + beside
		v.Memory[name] = memory
	}
}

// ownerAt returns the member that owns a hash. The planner never cuts inside a cell, so a cell's
// first hash represents all of it.
func ownerAt(plan shard.Plan, ring string, placement shard.Placement, hash uint64) string {
	r, _ := plan.Ring(ring)
	i := slices.IndexFunc(r.Shards, func(s shard.Shard) bool { return s.Range.Contains(hash) })
	if i < 0 {
		return ""
	}
	owner, _ := placement.Owner(r.Shards[i].ID)
	return owner
}

// futureMembers returns that many names: the first of the existing ones, by their numbers, and then
// the next ones.
func futureMembers(fleetName string, known []string, n int) []string {
	names := status.SortNaturally(known)
	if len(names) >= n {
		return names[:n]
	}
	prefix, next := fleetName, 0
	for _, name := range names {
		if p, number := status.Ordinal(name); number >= 0 {
			prefix = p
		}
	}
	for ; len(names) < n; next++ {
		if name := fmt.Sprintf("%s-%d", prefix, next); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// tableSimulation writes a Simulation for people.
func tableSimulation(w io.Writer, s Simulation) {
	fmt.Fprintf(w, "With %s\n", status.Plural(len(s.Members), "member"))
	for _, v := range s.Rings {
		if v.Skipped != "" {
			fmt.Fprintf(w, "\nRing %s: %s\n", v.Ring, status.Plain(v.Skipped))
			continue
		}
		fmt.Fprintf(w, "\nRing %s: %s, %d shards now, %d then, in %s\n", v.Ring, status.Plural(int(v.Total), "object"), v.ShardsBefore, v.ShardsAfter, status.Plural(v.Rounds, "plan"))
		fmt.Fprintf(w, "Would move %s\n", share(v.Moved, v.Total))
		fmt.Fprintf(w, "max/mean %.3f with %s now, %.3f then; it could be %.3f\n", v.Before.MaxToMean, status.Plural(len(v.Before.Members), "member"), v.After.MaxToMean, v.After.Bound)
		names := map[string]bool{}
		for _, b := range []BalanceView{v.Before, v.After} {
			for name := range b.Members {
				names[name] = true
			}
		}
		var lines [][]string
		for _, name := range status.SortNaturally(sortedKeys(names)) {
			line := []string{name, weightOf(v.Before, name), weightOf(v.After, name), fmt.Sprint(v.Shards[name])}
			if v.Memory != nil {
				for _, bytes := range []int64{v.Memory[name].Real, v.Memory[name].Before, v.Memory[name].After} {
					text := ""
					if bytes > 0 {
						text = megabytes(&bytes)
					}
					line = append(line, text)
				}
			}
			lines = append(lines, line)
		}
		head := []string{"MEMBER", "OBJECTS NOW", "OBJECTS THEN", "SHARDS THEN"}
		if v.Memory != nil {
			head = append(head, "HEAP NOW", "ESTIMATED NOW", "ESTIMATED THEN")
		}
		rows(w, head, lines)
	}
}

func weightOf(b BalanceView, name string) string {
	if weight, found := b.Members[name]; found {
		return fmt.Sprint(weight)
	}
	return ""
}
