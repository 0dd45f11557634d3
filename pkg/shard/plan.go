package shard

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Plan is the list of all rings and shards of a fleet at one plan generation.
// Its lookups read it as it is: call Validate first. It must not be changed
// once it is shared.
type Plan struct {
	// Generation is the version of the plan, 1 or more. A plan that replaces
	// another has a greater one.
	Generation int64 `json:"generation"`
	// Rings are the rings, at least one, in any order.
	Rings []Ring `json:"rings"`
}

// Ring returns the ring of this name, and whether there is one.
func (p Plan) Ring(name string) (Ring, bool) {
	i := slices.IndexFunc(p.Rings, func(r Ring) bool { return r.Name == name })
	if i < 0 {
		return Ring{}, false
	}
	return p.Rings[i], true
}

// Shard returns the shard of this ID, and whether there is one.
func (p Plan) Shard(id ID) (Shard, bool) {
	return p.find(id.Ring, func(s Shard) bool { return s.ID == id })
}

// ShardFor returns the shard of a namespaced ring in which the namespace of
// this name lies. It returns false if there is no such ring, or it is a
// cluster ring.
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

// ControllersOf returns the sorted names of the controllers that the shard
// runs: its ring's, or its own if it is a group. It returns nothing for an ID
// that is not in the plan.
func (p Plan) ControllersOf(id ID) []string {
	s, found := p.Shard(id)
	if !found || !s.Namespaced() {
		return slices.Clone(s.Controllers)
	}
	r, _ := p.Ring(id.Ring)
	return slices.Clone(r.Controllers)
}

// Digest returns 16 hexadecimal digits that are the same for two valid plans
// with the same rings, shards, ranges, groups, controllers, pins, homes and
// weights, in whatever order they are listed, and differ otherwise, as far as
// 64 bits can tell. The generation does not enter: two plans of one generation
// must have one digest, and two generations of one digest differ in nothing.
func (p Plan) Digest() string {
	var lines []string
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
		lines = append(lines, fmt.Sprintf("shard %s %s %s%s%s%s\n", s.ID, part, joinSorted(s.Controllers),
			option(" pin ", s.Pin), option(" home ", s.Home), option(" weight ", weight)))
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

// Validate returns all faults of the plan in one error, each with the path of
// the field, its value and what is allowed, or nil. What a valid plan
// guarantees is in the package comment.
func (p Plan) Validate() error {
	v := planValidator{rings: sets.New[string](), groups: sets.New[string](), controllers: map[string]string{}}
	if p.Generation < 1 {
		v.add(field.Invalid(field.NewPath("generation"), p.Generation, "must be 1 or more"))
	}
	rings := field.NewPath("rings")
	if len(p.Rings) == 0 {
		v.add(field.Required(rings, "a plan has at least one ring"))
	}
	if n := len(p.Shards()); n > MaxShards {
		v.add(field.TooMany(rings, n, MaxShards))
		return v.faults.ToAggregate() // no list of what else, which has no bound
	}
	for i, r := range p.Rings {
		v.ring(rings.Index(i), r)
	}
	return v.faults.ToAggregate()
}

// planValidator gathers faults, and what must be unique in the whole plan.
type planValidator struct {
	faults        field.ErrorList
	rings, groups sets.Set[string]
	controllers   map[string]string // name -> path of its first use
}

func (v *planValidator) add(faults ...*field.Error) { v.faults = append(v.faults, faults...) }

func (v *planValidator) ring(path *field.Path, r Ring) {
	for _, msg := range checkRingName(r.Name) {
		v.add(field.Invalid(path.Child("name"), r.Name, msg))
	}
	v.unique(v.rings, path.Child("name"), r.Name)
	v.controllerNames(path.Child("controllers"), r.Controllers)
	shards := path.Child("shards")
	if len(r.Shards) == 0 {
		v.add(field.Required(shards, "a ring has at least one shard"))
	}
	names := sets.New[string]()
	for i, s := range r.Shards {
		v.shardName(shards.Index(i), r, s)
		v.unique(names, shards.Index(i).Child("name"), s.Name)
	}
	switch r.Scope {
	case ScopeNamespaced:
		v.namespacedRing(path, r)
	case ScopeCluster:
		v.clusterRing(path, r)
	default:
		v.add(field.NotSupported(path.Child("scope"), r.Scope, []Scope{ScopeNamespaced, ScopeCluster}))
	}
}

func (v *planValidator) unique(seen sets.Set[string], path *field.Path, value string) {
	if seen.Has(value) {
		v.add(field.Duplicate(path, value))
	}
	seen.Insert(value)
}

func (v *planValidator) shardName(path *field.Path, r Ring, s Shard) {
	if s.Ring != r.Name {
		v.add(field.Invalid(path.Child("ring"), s.Ring, fmt.Sprintf("must be %q, the ring it is listed in", r.Name)))
	}
	for _, msg := range validation.IsDNS1123Label(s.Name) {
		v.add(field.Invalid(path.Child("name"), s.Name, msg))
	}
}

// controllerNames checks a sorted list of controllers, none of which may be
// listed anywhere else in the plan.
func (v *planValidator) controllerNames(path *field.Path, names []string) {
	for i, name := range names {
		at := path.Index(i)
		for _, msg := range validation.IsDNS1123Subdomain(name) {
			v.add(field.Invalid(at, name, msg))
		}
		if i > 0 && names[i-1] > name {
			v.add(field.Invalid(at, name, fmt.Sprintf("must be sorted, but follows %q", names[i-1])))
		}
		if first, used := v.controllers[name]; used {
			v.add(field.Invalid(at, name, "must be listed once in the plan, but is at "+first))
			continue
		}
		v.controllers[name] = at.String()
	}
}

func (v *planValidator) clusterRing(path *field.Path, r Ring) {
	if len(r.Controllers) > 0 {
		v.add(field.Forbidden(path.Child("controllers"), "each shard of a cluster ring has its own"))
	}
	for i, s := range r.Shards {
		at := path.Child("shards").Index(i)
		for _, msg := range validation.IsDNS1123Label(s.Group) {
			v.add(field.Invalid(at.Child("group"), s.Group, msg))
		}
		v.unique(v.groups, at.Child("group"), s.Group)
		if s.Range != (Range{}) {
			v.add(field.Forbidden(at.Child("range"), "a shard of a cluster ring is a group"))
		}
		if len(s.Controllers) == 0 {
			v.add(field.Required(at.Child("controllers"), "a group has at least one controller"))
		}
		v.controllerNames(at.Child("controllers"), s.Controllers)
	}
}

func (v *planValidator) namespacedRing(path *field.Path, r Ring) {
	if len(r.Controllers) == 0 {
		v.add(field.Required(path.Child("controllers"), "a namespaced ring has at least one controller"))
	}
	shards, valid := path.Child("shards"), true
	for i, s := range r.Shards {
		at := shards.Index(i)
		if s.Group != "" {
			v.add(field.Forbidden(at.Child("group"), "a shard of a namespaced ring is a range"))
		}
		if len(s.Controllers) > 0 {
			v.add(field.Forbidden(at.Child("controllers"), "a shard of a namespaced ring runs the ring's"))
		}
		if err := s.Range.Validate(); err != nil {
			v.add(field.Invalid(at.Child("range"), s.Range.String(), "start must be less than end"))
			valid = false
		}
	}
	if valid && len(r.Shards) > 0 {
		v.cover(shards, r.Shards)
	}
}

// cover checks that the valid ranges of the shards cover the keyspace exactly.
func (v *planValidator) cover(path *field.Path, shards []Shard) {
	// Indexes, so that faults carry the place in the plan.
	order := make([]int, len(shards))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Compare(shards[a].Range.Start, shards[b].Range.Start)
	})
	// Up to here the keyspace is covered, by the shard at index last; end is 0
	// once all is.
	end, done, last := uint64(0), false, -1
	for _, i := range order {
		r := shards[i].Range
		switch {
		case done || r.Start < end:
			v.add(field.Invalid(path.Index(i).Child("range"), r.String(), fmt.Sprintf("overlaps %s of shard %q", shards[last].Range, shards[last].ID)))
		case r.Start > end:
			v.add(field.Invalid(path, Range{Start: end, End: r.Start}.String(), "no shard covers this range"))
		}
		if !done && (r.End == 0 || r.End > end) {
			end, done, last = r.End, r.End == 0, i
		}
	}
	if !done {
		v.add(field.Invalid(path, Range{Start: end}.String(), "no shard covers this range"))
	}
}
