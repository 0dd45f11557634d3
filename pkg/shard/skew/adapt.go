package skew

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// Change is what happens to one controller.
type Change struct {
	Controller string
	// From and To are the scopes of the rings that it leaves and enters; empty for none.
	From, To shard.Scope
	// Urgent says that a live member knows the controller, but cannot run it where the plan has it.
	Urgent bool
}

// String returns the change as a few words for people.
func (c Change) String() string {
	switch {
	case c.From == "":
		return fmt.Sprintf("%s begins in scope %s", c.Controller, c.To)
	case c.To == "":
		return c.Controller + " ends"
	default:
		return fmt.Sprintf("%s moves from scope %s to scope %s", c.Controller, c.From, c.To)
	}
}

// Adapt returns the next plan, for the builds of all live members and of those that are away so
// briefly that they may come back, and its changes; without changes it is the same plan. Call it on
// the newest of the live members' builds. In this order:
//
//   - A controller that none of the builds knows ends.
//   - A controller that this build has in an earlier scope moves to its intended scope, once all
//     builds that know it can run it there.
//   - A controller that a live member knows, but cannot run where the plan has it, moves to a scope
//     in which all that know it can; if those that are away differ, to one in which all live ones
//     can.
//   - A controller that the plan does not have begins, in the first of its scopes in which all
//     builds can run it.
//
// The rest stays as it is, whatever this build would do with it: where operators have put
// controllers, and controllers that only some builds know. A shard whose controllers change gets a
// new name; it keeps its home, its pin and its weight.
func (b Build) Adapt(plan shard.Plan, live, away []Known) (shard.Plan, []Change, error) {
	if b.anything() {
		return plan, nil, nil
	}
	live = append(slices.Clone(live), b.Known())
	all := slices.Concat(live, away)
	var changes []Change
	before := scopesOf(&plan)
	for name, scope := range before {
		if to, urgent, moves := b.destination(name, scope, live, all); moves {
			changes = append(changes, Change{Controller: name, From: scope, To: to, Urgent: urgent})
		}
	}
	for _, c := range b.Controllers {
		if _, there := before[c.Name]; there || c.OnRequest || !knownByAll(all, c.Name) {
			continue
		}
		if to := firstScope(c, all); to != "" {
			changes = append(changes, Change{Controller: c.Name, To: to})
		}
	}
	if len(changes) == 0 {
		return plan, nil, nil
	}
	slices.SortFunc(changes, func(x, y Change) int { return cmp.Compare(x.Controller, y.Controller) })
	edited := copyOf(plan)
	for _, change := range changes {
		remove(&edited, change.Controller)
		if change.To != "" {
			c, _ := b.controller(change.Controller)
			b.add(&edited, c, change.To)
		}
	}
	tidy(&edited)
	next, err := plan.Successor(edited)
	if err != nil {
		return plan, nil, fmt.Errorf("the plan with %v: %w", changes, err)
	}
	return next, changes, nil
}

// destination returns the scope that a controller of the plan should move to, empty to end; false
// if it stays.
func (b Build) destination(name string, scope shard.Scope, live, all []Known) (to shard.Scope, urgent, moves bool) {
	if !slices.ContainsFunc(all, func(k Known) bool { return k.Knows(name) }) {
		return "", false, true
	}
	c, known := b.controller(name)
	if !known || c.Fixed {
		return "", false, false
	}
	if c.Earlier == scope && runsWhereKnown(all, name, c.Scopes[0]) {
		return c.Scopes[0], !runsWhereKnown(live, name, scope), true
	}
	if runsWhereKnown(live, name, scope) {
		return "", false, false
	}
	to = cmp.Or(firstScope(c, all), firstScope(c, live))
	return to, true, to != ""
}

// firstScope returns the first of the controller's scopes in which every build that knows it can
// run it; empty if there is none.
func firstScope(c Controller, all []Known) shard.Scope {
	for _, scope := range c.Scopes {
		if runsWhereKnown(all, c.Name, scope) {
			return scope
		}
	}
	return ""
}

// copyOf returns a plan whose lists may be changed.
func copyOf(plan shard.Plan) shard.Plan {
	plan.Rings = slices.Clone(plan.Rings)
	for i := range plan.Rings {
		r := &plan.Rings[i]
		r.Controllers, r.Shards = slices.Clone(r.Controllers), slices.Clone(r.Shards)
		for j := range r.Shards {
			r.Shards[j].Controllers = slices.Clone(r.Shards[j].Controllers)
		}
	}
	return plan
}

func remove(plan *shard.Plan, name string) {
	is := func(c string) bool { return c == name }
	for i := range plan.Rings {
		r := &plan.Rings[i]
		r.Controllers = slices.DeleteFunc(r.Controllers, is)
		for j := range r.Shards {
			r.Shards[j].Controllers = slices.DeleteFunc(r.Shards[j].Controllers, is)
		}
	}
}

// add puts the controller into the ring and the group that the build has for it. If the plan does
// not have that ring, it uses another ring of the scope, or a new one. New shards have no name:
// Successor gives them one that no shard has had.
func (b Build) add(plan *shard.Plan, c Controller, scope shard.Scope) {
	r := b.ringFor(plan, c, scope)
	if scope == shard.ScopeNamespaced {
		r.Controllers = append(r.Controllers, c.Name)
		return
	}
	i := slices.IndexFunc(r.Shards, func(s shard.Shard) bool { return s.Group == c.Group })
	if i < 0 {
		i = len(r.Shards)
		beside := b.ColocateWith[c.Group]
		if !slices.ContainsFunc(r.Shards, func(s shard.Shard) bool { return s.Group == beside && s.ColocateWith == "" }) {
			beside = ""
		}
		r.Shards = append(r.Shards, shard.Shard{Group: c.Group, ColocateWith: beside})
	}
	r.Shards[i].Controllers = append(r.Shards[i].Controllers, c.Name)
}

func (b Build) ringFor(plan *shard.Plan, c Controller, scope shard.Scope) *shard.Ring {
	for _, is := range []func(shard.Ring) bool{
		func(r shard.Ring) bool {
			return scope == shard.ScopeCluster && slices.ContainsFunc(r.Shards, func(s shard.Shard) bool { return s.Group == c.Group })
		},
		func(r shard.Ring) bool { return r.Name == b.Rings[scope] },
		func(shard.Ring) bool { return true },
	} {
		i := slices.IndexFunc(plan.Rings, func(r shard.Ring) bool { return r.Scope == scope && is(r) })
		if i >= 0 {
			return &plan.Rings[i]
		}
	}
	r := shard.Ring{Name: b.Rings[scope], Scope: scope}
	if scope == shard.ScopeNamespaced {
		r.Shards = []shard.Shard{{}} // everything
	}
	plan.Rings = append(plan.Rings, r)
	return &plan.Rings[len(plan.Rings)-1]
}

// tidy removes groups and rings that have no controller any more.
func tidy(plan *shard.Plan) {
	for i := range plan.Rings {
		r := &plan.Rings[i]
		if r.Scope != shard.ScopeCluster {
			continue
		}
		r.Shards = slices.DeleteFunc(r.Shards, func(s shard.Shard) bool { return len(s.Controllers) == 0 })
		for j, s := range r.Shards {
			if !slices.ContainsFunc(r.Shards, func(other shard.Shard) bool { return other.Group == s.ColocateWith }) {
				r.Shards[j].ColocateWith = ""
			}
		}
	}
	plan.Rings = slices.DeleteFunc(plan.Rings, func(r shard.Ring) bool {
		return len(r.Shards) == 0 || r.Scope == shard.ScopeNamespaced && len(r.Controllers) == 0
	})
}
