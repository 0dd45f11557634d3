package shard

import (
	"cmp"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Validate returns all faults of the plan in one error, each with the path of the field, its value
// and what is allowed, or nil. The package comment says what a valid plan guarantees.
func (p Plan) Validate() error {
	v := planValidator{rings: sets.New[string](), groups: sets.New[string](), controllers: map[string]string{}}
	if p.Generation < 1 || p.Generation > MaxGeneration {
		v.add(field.Invalid(field.NewPath("generation"), p.Generation, fmt.Sprintf("must be from 1 to %d", MaxGeneration)))
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
	v.canary(field.NewPath("canary"), p)
	return v.faults.ToAggregate()
}

// planValidator gathers faults, and the names that must be unique in the whole plan.
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
	v.member(path.Child("pin"), s.Pin)
	v.member(path.Child("home"), s.Home)
	if s.Weight < 0 {
		v.add(field.Invalid(path.Child("weight"), s.Weight, "must be 0 or more"))
	}
}

// member checks the name of a member, which is a pod's, if there is one.
func (v *planValidator) member(path *field.Path, name string) {
	if name == "" {
		return
	}
	for _, msg := range validation.IsDNS1123Subdomain(name) {
		v.add(field.Invalid(path, name, msg))
	}
}

// isolate checks a sorted list of namespaces, each of which needs its own shard in the ring.
func (v *planValidator) isolate(path *field.Path, r Ring) {
	for i, name := range r.Isolate {
		at := path.Index(i)
		for _, msg := range validation.IsDNS1123Label(name) {
			v.add(field.Invalid(at, name, msg))
		}
		if i > 0 && r.Isolate[i-1] >= name {
			v.add(field.Invalid(at, name, fmt.Sprintf("must be sorted and listed once, but follows %q", r.Isolate[i-1])))
		}
		want := onlyHash(Hash(name))
		if !slices.ContainsFunc(r.Shards, func(s Shard) bool { return s.Namespaced() && s.Range == want }) {
			v.add(field.Invalid(at, name, "must have a shard of its own, with the range "+want.String()))
		}
	}
}

// onlyHash returns the range of one hash.
func onlyHash(hash uint64) Range { return Range{Start: hash, End: hash + 1} }

// controllerNames checks a sorted list of controllers, none of which may be listed anywhere else in
// the plan.
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
	if len(r.Isolate) > 0 {
		v.add(field.Forbidden(path.Child("isolate"), "a cluster ring is not cut by namespace"))
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
		v.colocateWith(at.Child("colocateWith"), r, s)
	}
}

// colocateWith checks the group that s goes with, if there is one. That group may not go with
// another one itself: places would then depend on the order of evaluation.
func (v *planValidator) colocateWith(path *field.Path, r Ring, s Shard) {
	if s.ColocateWith == "" {
		return
	}
	i := slices.IndexFunc(r.Shards, s.colocatesWith)
	switch {
	case i < 0 || s.ColocateWith == s.Group:
		v.add(field.Invalid(path, s.ColocateWith, "must be another group of the ring"))
	case r.Shards[i].ColocateWith != "":
		v.add(field.Invalid(path, s.ColocateWith, fmt.Sprintf("must be a group that goes with no other, but goes with %q", r.Shards[i].ColocateWith)))
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
		if s.ColocateWith != "" {
			v.add(field.Forbidden(at.Child("colocateWith"), "only a group goes with another"))
		}
		if err := s.Range.Validate(); err != nil {
			v.add(field.Invalid(at.Child("range"), s.Range.String(), "start must be less than end"))
			valid = false
		}
	}
	if valid && len(r.Shards) > 0 {
		v.cover(shards, r.Shards)
	}
	v.isolate(path.Child("isolate"), r)
}

// cover checks that the valid ranges of the shards cover the keyspace exactly.
func (v *planValidator) cover(path *field.Path, shards []Shard) {
	// Indexes, so that faults name the place in the plan.
	order := make([]int, len(shards))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Compare(shards[a].Range.Start, shards[b].Range.Start)
	})
	// The keyspace is covered up to end, by the shard at index last; end is 0 once all is.
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
