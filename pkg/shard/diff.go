package shard

import (
	"cmp"
	"fmt"
	"slices"
)

// ChangeKind says what a Change is about.
type ChangeKind string

const (
	// ChangeRingAdded is a ring that only the second plan has.
	ChangeRingAdded ChangeKind = "ring added"
	// ChangeRingRemoved is a ring that only the first plan has.
	ChangeRingRemoved ChangeKind = "ring removed"
	// ChangeCanary is a canary that begins, ends or differs.
	ChangeCanary ChangeKind = "canary"
	// ChangeController is a controller that runs elsewhere, starts or ends.
	ChangeController ChangeKind = "controller"
	// ChangeIsolate is a ring that isolates other namespaces than before.
	ChangeIsolate ChangeKind = "isolate"
	// ChangeShardAdded is a shard that only the second plan has, and that therefore starts.
	ChangeShardAdded ChangeKind = "shard added"
	// ChangeShardRemoved is a shard that only the first plan has, and that therefore stops.
	ChangeShardRemoved ChangeKind = "shard removed"
	// ChangeShardMoved is a shard of both plans with another pin or home.
	ChangeShardMoved ChangeKind = "shard moved"
)

// Change is one difference between two plans.
type Change struct {
	Kind ChangeKind
	// Ring is the ring concerned. For a controller it is the ring it goes to, or the one it leaves
	// if it ends.
	Ring string
	// ID is the shard concerned, or zero.
	ID ID
	// Controller is the controller concerned, or empty.
	Controller string
	// Canary is the version of the canary concerned, or empty.
	Canary string
	// Text has the details of the change, beyond the kind and the name.
	Text string
}

// String returns the change as one line for people.
func (c Change) String() string {
	name := c.Ring
	if c.Canary != "" {
		name = c.Canary
	}
	if c.ID != (ID{}) {
		name = c.ID.String()
	}
	if c.Controller != "" {
		name = c.Controller
	}
	return fmt.Sprintf("%s %s: %s", c.Kind, name, c.Text)
}

// Diff returns how plan b differs from plan a: the canary, then rings, then controllers, then
// isolated namespaces, then shards, each by name. Generations and weights do not count.
func Diff(a, b Plan) []Change {
	return slices.Concat(diffCanary(a, b), diffRings(a, b), diffControllers(a, b), diffIsolate(a, b), diffShards(a, b))
}

func diffCanary(a, b Plan) []Change {
	switch was, is := a.Canary, b.Canary; {
	case was.Equal(is):
		return nil
	case is == nil:
		return []Change{{Kind: ChangeCanary, Canary: was.Version, Text: "ends; was " + was.String()}}
	case was == nil:
		return []Change{{Kind: ChangeCanary, Canary: is.Version, Text: "begins: " + is.String()}}
	default:
		return []Change{{Kind: ChangeCanary, Canary: is.Version, Text: is.String() + "; was " + was.String()}}
	}
}

func ringNames(p Plan) []string {
	var names []string
	for _, r := range p.Rings {
		names = append(names, r.Name)
	}
	slices.Sort(names)
	return names
}

func diffRings(a, b Plan) []Change {
	var out []Change
	for _, name := range ringNames(b) {
		if _, found := a.Ring(name); !found {
			r, _ := b.Ring(name)
			out = append(out, Change{Kind: ChangeRingAdded, Ring: name, Text: fmt.Sprintf("%s, %d shards", r.Scope, len(r.Shards))})
		}
	}
	for _, name := range ringNames(a) {
		if _, found := b.Ring(name); !found {
			r, _ := a.Ring(name)
			out = append(out, Change{Kind: ChangeRingRemoved, Ring: name, Text: fmt.Sprintf("%s, %d shards", r.Scope, len(r.Shards))})
		}
	}
	return out
}

// site is where a controller runs: its ring, and its group if it has one.
type site struct{ ring, group string }

func (p site) String() string {
	if p.group == "" {
		return "ring " + p.ring
	}
	return "ring " + p.ring + ", group " + p.group
}

func controllerPlaces(p Plan) map[string]site {
	places := map[string]site{}
	for _, r := range p.Rings {
		for _, c := range r.Controllers {
			places[c] = site{ring: r.Name}
		}
		for _, s := range r.Shards {
			for _, c := range s.Controllers {
				places[c] = site{ring: r.Name, group: s.Group}
			}
		}
	}
	return places
}

func diffControllers(a, b Plan) []Change {
	before, after := controllerPlaces(a), controllerPlaces(b)
	var out []Change
	for c, to := range after {
		from, found := before[c]
		switch {
		case !found:
			out = append(out, Change{Kind: ChangeController, Ring: to.ring, Controller: c, Text: fmt.Sprintf("starts in %s", to)})
		case from != to:
			out = append(out, Change{Kind: ChangeController, Ring: to.ring, Controller: c, Text: fmt.Sprintf("moves from %s to %s", from, to)})
		}
	}
	for c, from := range before {
		if _, found := after[c]; !found {
			out = append(out, Change{Kind: ChangeController, Ring: from.ring, Controller: c, Text: fmt.Sprintf("ends in %s", from)})
		}
	}
	slices.SortFunc(out, func(x, y Change) int { return cmp.Compare(x.Controller, y.Controller) })
	return out
}

func diffIsolate(a, b Plan) []Change {
	var out []Change
	for _, name := range ringNames(b) {
		before, _ := a.Ring(name)
		after, _ := b.Ring(name)
		if was, is := joinSorted(before.Isolate), joinSorted(after.Isolate); was != is {
			out = append(out, Change{Kind: ChangeIsolate, Ring: name, Text: fmt.Sprintf("from %q to %q", was, is)})
		}
	}
	return out
}

// diffShards compares shards by ID: shards with one ID cover the same, or CheckSuccessor refuses
// the plan.
func diffShards(a, b Plan) []Change {
	var out []Change
	for _, s := range b.Shards() {
		was, found := a.Shard(s.ID)
		switch {
		case !found:
			out = append(out, Change{Kind: ChangeShardAdded, Ring: s.Ring, ID: s.ID, Text: describe(s)})
		case was.Pin != s.Pin || was.Home != s.Home:
			out = append(out, Change{Kind: ChangeShardMoved, Ring: s.Ring, ID: s.ID,
				Text: fmt.Sprintf("pin %q, home %q; was pin %q, home %q", s.Pin, s.Home, was.Pin, was.Home)})
		case was.ColocateWith != s.ColocateWith:
			out = append(out, Change{Kind: ChangeShardMoved, Ring: s.Ring, ID: s.ID, Text: fmt.Sprintf("colocateWith %q; was %q", s.ColocateWith, was.ColocateWith)})
		}
	}
	for _, s := range a.Shards() {
		if _, found := b.Shard(s.ID); !found {
			out = append(out, Change{Kind: ChangeShardRemoved, Ring: s.Ring, ID: s.ID, Text: describe(s)})
		}
	}
	slices.SortStableFunc(out, func(x, y Change) int { return x.ID.Compare(y.ID) })
	return out
}

func describe(s Shard) string {
	what := s.Range.String()
	if !s.Namespaced() {
		what = "group " + s.Group
	}
	return what + option(", pin ", s.Pin) + option(", home ", s.Home) + option(", colocateWith ", s.ColocateWith)
}
