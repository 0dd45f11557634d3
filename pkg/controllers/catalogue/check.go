package catalogue

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"
	validation "k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubernetes/cmd/kube-controller-manager/names"

	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// CheckPlan returns why this build could not work by a valid plan: a controller that the catalogue
// does not have, a controller in a ring whose scope is neither its Scope nor its EarlierScope, or a
// controller in no ring, so that nobody would run it. The garbage collector may be in parts: see
// [ClusterCollector]. All faults are in one error, each with the path of the field, its value and
// what is allowed.
func CheckPlan(plan shard.Plan) error {
	faults := partFaults(plan)
	rows := map[string]Row{}
	for _, row := range All() {
		rows[row.Name] = row
	}
	found := sets.New[string]()
	check := func(path *validation.Path, controllers []string, scope shard.Scope) {
		for i, name := range controllers {
			found.Insert(name)
			row, known := rows[name]
			switch {
			case isPart(name, scope):
			case !known:
				faults = append(faults, validation.Invalid(path.Index(i), name, "must be a controller that 'flotilla controllers' lists"))
			case string(row.Scope) != string(scope) && string(row.EarlierScope) != string(scope):
				faults = append(faults, validation.Invalid(path.Index(i), name, fmt.Sprintf("must be in a ring of scope %q, because of what it decides over: see 'flotilla controllers --why'", row.Scope)))
			}
		}
	}
	rings := validation.NewPath("rings")
	for i, r := range plan.Rings {
		check(rings.Index(i).Child("controllers"), r.Controllers, r.Scope)
		for j, s := range r.Shards {
			check(rings.Index(i).Child("shards").Index(j).Child("controllers"), s.Controllers, r.Scope)
		}
	}
	var missing []string
	for name := range rows {
		if !found.Has(name) {
			missing = append(missing, name)
		}
	}
	if slices.Sort(missing); len(missing) > 0 {
		faults = append(faults, validation.Required(rings, "every controller must be in a ring, but "+strings.Join(missing, ", ")+" is in none"))
	}
	return faults.ToAggregate()
}

// CheckParts returns what is wrong with the parts of the garbage collector in a plan. It is for
// members, whose builds may know other controllers than the build that wrote the plan: [Build]
// returns what this one knows.
func CheckParts(plan shard.Plan) error { return partFaults(plan).ToAggregate() }

func partFaults(plan shard.Plan) validation.ErrorList {
	var ofRanges, ofCluster *validation.Path
	note := func(path *validation.Path, controllers []string, scope shard.Scope) {
		for i, name := range controllers {
			switch {
			case !isPart(name, scope):
			case name == ClusterCollector:
				ofCluster = path.Index(i)
			default:
				ofRanges = path.Index(i)
			}
		}
	}
	rings := validation.NewPath("rings")
	for i, r := range plan.Rings {
		note(rings.Index(i).Child("controllers"), r.Controllers, r.Scope)
		for j, s := range r.Shards {
			note(rings.Index(i).Child("shards").Index(j).Child("controllers"), s.Controllers, r.Scope)
		}
	}
	fault := collectorFault(ofRanges != nil, ofCluster != nil)
	if fault == "" {
		return nil
	}
	at, name := ofRanges, names.GarbageCollectorController
	if at == nil {
		at, name = ofCluster, ClusterCollector
	}
	return validation.ErrorList{validation.Invalid(at, name, fault)}
}

// isPart reports whether a controller in a ring of this scope is a part of the garbage collector.
func isPart(name string, scope shard.Scope) bool {
	return name == ClusterCollector && scope == shard.ScopeCluster || name == names.GarbageCollectorController && scope == shard.ScopeNamespaced
}
