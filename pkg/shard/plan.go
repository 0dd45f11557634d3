package shard

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"
)

// MaxGeneration is the greatest generation of a plan: more than any fleet reaches, and no more than
// any reader of JSON keeps exactly. Without a bound, one mistyped generation would leave none for
// the plans that follow.
const MaxGeneration = 1<<53 - 1

// Plan is the list of all rings and shards of a fleet at one plan generation. Its lookups do not
// check it: call Validate first. It must not be changed once it is shared.
type Plan struct {
	// Generation is the version of the plan, from 1 to MaxGeneration. A plan that replaces another
	// has a greater one.
	Generation int64 `json:"generation"`
	// Canary is the version that an operator tries on some namespaces; nil for none.
	Canary *Canary `json:"canary,omitempty"`
	// Rings are the rings, at least one, in any order.
	Rings []Ring `json:"rings"`
}

// Ring returns the ring with this name, and whether there is one.
func (p Plan) Ring(name string) (Ring, bool) {
	i := slices.IndexFunc(p.Rings, func(r Ring) bool { return r.Name == name })
	if i < 0 {
		return Ring{}, false
	}
	return p.Rings[i], true
}

// Shard returns the shard with this ID, and whether there is one.
func (p Plan) Shard(id ID) (Shard, bool) {
	return p.find(id.Ring, func(s Shard) bool { return s.ID == id })
}

// ShardFor returns the shard of a namespaced ring in which this namespace lies. It returns false if
// there is no such ring, or if it is a cluster ring.
func (p Plan) ShardFor(ring, namespace string) (Shard, bool) {
	hash := Hash(namespace)
	return p.find(ring, func(s Shard) bool { return s.Namespaced() && s.Range.Contains(hash) })
}

func (p Plan) find(ring string, match func(Shard) bool) (Shard, bool) {
	r, _ := p.Ring(ring)
	i := slices.IndexFunc(r.Shards, match)
	if i < 0 {
		return Shard{}, false
	}
	return r.Shards[i], true
}

// Shards returns all shards of all rings, sorted by ID.
func (p Plan) Shards() []Shard {
	var shards []Shard
	for _, r := range p.Rings {
		shards = append(shards, r.Shards...)
	}
	slices.SortFunc(shards, func(a, b Shard) int { return a.ID.Compare(b.ID) })
	return shards
}

// WithShards returns the plan after calling change with each of its shards. The plan itself does
// not change; change must not write to a shard's lists.
func (p Plan) WithShards(change func(*Shard)) Plan {
	p.Rings = slices.Clone(p.Rings)
	for i, r := range p.Rings {
		p.Rings[i].Shards = slices.Clone(r.Shards)
		for j := range r.Shards {
			change(&p.Rings[i].Shards[j])
		}
	}
	return p
}

// ControllersOf returns the sorted names of the controllers that the shard runs: its ring's, or its
// own if it is a group. It returns nothing for an ID that is not in the plan.
func (p Plan) ControllersOf(id ID) []string {
	s, found := p.Shard(id)
	if !found || !s.Namespaced() {
		return slices.Clone(s.Controllers)
	}
	r, _ := p.Ring(id.Ring)
	return slices.Clone(r.Controllers)
}

// Digest returns 16 hexadecimal digits. They are the same for two valid plans with the same rings,
// shards, ranges, groups, controllers, pins, homes, weights and canary, in any order, and differ
// otherwise, as far as 64 bits can distinguish. The generation does not enter: two plans of one
// generation must have one digest, and two generations with one digest differ in nothing else.
func (p Plan) Digest() string {
	var lines []string
	if p.Canary != nil {
		lines = append(lines, p.Canary.line())
	}
	for _, r := range p.Rings {
		lines = append(lines, fmt.Sprintf("ring %s %s %s%s\n", r.Name, r.Scope, joinSorted(r.Controllers), option(" isolate ", joinSorted(r.Isolate))))
	}
	for _, s := range p.Shards() {
		part := s.Range.String()
		if !s.Namespaced() {
			part = s.Group
		}
		weight := ""
		if s.Weight != 0 {
			weight = fmt.Sprint(s.Weight)
		}
		lines = append(lines, fmt.Sprintf("shard %s %s %s%s%s%s%s\n", s.ID, part, joinSorted(s.Controllers),
			option(" pin ", s.Pin), option(" home ", s.Home), option(" colocateWith ", s.ColocateWith), option(" weight ", weight)))
	}
	return digest(lines)
}

// option returns label and value, or nothing if there is no value.
func option(label, value string) string {
	if value == "" {
		return ""
	}
	return label + value
}

func joinSorted(names []string) string {
	return strings.Join(slices.Sorted(slices.Values(names)), ",")
}

// digest returns the hash of a set of lines, each with its line feed.
func digest(lines []string) string {
	slices.Sort(lines)
	return fmt.Sprintf("%016x", xxhash.Sum64String(strings.Join(lines, "")))
}
