package skew

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// Fits returns why a member of this build may not work by a valid plan that would follow current;
// nil if it may. current is nil if there is no good plan yet. others are the builds of the other
// live members. All faults are in one error, each with the path of the field, its value and what is
// allowed. It refuses
//
//   - a controller that neither this build nor another one knows, unless current has it: the last
//     member that knew it may have died;
//   - a controller in a scope in which nobody can run it;
//   - a controller that this build can run only in other scopes, if no scope suits it and all
//     others that know it;
//   - a plan without a controller that all know, unless current is without it too: the planner adds
//     it then.
func (b Build) Fits(current *shard.Plan, next shard.Plan, others []Known) error {
	if b.anything() {
		return nil
	}
	f := fitting{build: b, others: others, before: scopesOf(current), found: map[string]bool{}}
	rings := field.NewPath("rings")
	for i, r := range next.Rings {
		f.check(rings.Index(i).Child("controllers"), r.Controllers, r.Scope)
		for j, s := range r.Shards {
			f.check(rings.Index(i).Child("shards").Index(j).Child("controllers"), s.Controllers, r.Scope)
		}
	}
	var missing []string
	for _, c := range b.Controllers {
		_, had := f.before[c.Name]
		if !f.found[c.Name] && !c.OnRequest && (had || current == nil) && knownByAll(others, c.Name) {
			missing = append(missing, c.Name)
		}
	}
	if slices.Sort(missing); len(missing) > 0 {
		f.faults = append(f.faults, field.Required(rings, "every controller must be in a ring, but "+strings.Join(missing, ", ")+" is in none"))
	}
	return f.faults.ToAggregate()
}

// fitting is one call of Fits.
type fitting struct {
	build  Build
	others []Known
	before map[string]shard.Scope
	found  map[string]bool
	faults field.ErrorList
}

func (f *fitting) check(path *field.Path, controllers []string, scope shard.Scope) {
	for i, name := range controllers {
		f.found[name] = true
		own, known := f.build.controller(name)
		if slices.Contains(own.Scopes, scope) {
			continue
		}
		was, had := f.before[name]
		believed := had && was == scope || slices.ContainsFunc(f.others, func(k Known) bool { return k.Runs(name, scope) })
		switch {
		case !known && !believed:
			f.faults = append(f.faults, field.Invalid(path.Index(i), name, "must be a controller that 'flotilla controllers' lists, or that a live member knows"))
		case known && !believed:
			f.faults = append(f.faults, field.Invalid(path.Index(i), name, fmt.Sprintf("must be in a ring of scope %q, because of what it decides over: see 'flotilla controllers --why'", own.Scopes[0])))
		case known && !slices.ContainsFunc(own.Scopes, func(s shard.Scope) bool { return runsWhereKnown(f.others, name, s) }):
			f.faults = append(f.faults, field.Invalid(path.Index(i), name, fmt.Sprintf("is in a ring of scope %q, and this build can run it in scope %q alone, where other live members cannot: no two of them run it at a time; "+
				"first upgrade to a version that can run it in both", scope, own.Scopes[0])))
		}
	}
}

// scopesOf returns the scope of each controller's ring in a plan, which may be nil.
func scopesOf(plan *shard.Plan) map[string]shard.Scope {
	scopes := map[string]shard.Scope{}
	if plan == nil {
		return scopes
	}
	for _, r := range plan.Rings {
		for _, c := range r.Controllers {
			scopes[c] = r.Scope
		}
		for _, s := range r.Shards {
			for _, c := range s.Controllers {
				scopes[c] = r.Scope
			}
		}
	}
	return scopes
}

func knownByAll(all []Known, name string) bool {
	return !slices.ContainsFunc(all, func(k Known) bool { return !k.Knows(name) })
}

// runsWhereKnown reports whether all that know the controller can run it in this scope.
func runsWhereKnown(all []Known, name string, scope shard.Scope) bool {
	return !slices.ContainsFunc(all, func(k Known) bool { return k.Knows(name) && !k.Runs(name, scope) })
}
