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

// CheckPlan returns why this build could not work by a plan that is valid in itself: a controller that the catalogue does not
// have, one whose scope, or EarlierScope, is not the ring's, or one that is in no ring, so that
// nobody would run it. The garbage collector may be in parts: see [ClusterCollector]. All faults are in one error, each with the path of the field, its value and
// what is allowed.
func CheckPlan(plan shard.Plan) error {
	rows := map[string]Row{}
	for _, row := range All() {
		rows[row.Name] = row
	}
	var faults validation.ErrorList
	found := sets.New[string]()
	var ofRanges, ofCluster *validation.Path
	check := func(path *validation.Path, controllers []string, scope shard.Scope) {
		for i, name := range controllers {
			found.Insert(name)
			row, known := rows[name]
			switch {
			case name == ClusterCollector && scope == shard.ScopeCluster:
				ofCluster = path.Index(i)
			case name == names.GarbageCollectorController && scope == shard.ScopeNamespaced:
				ofRanges = path.Index(i)
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
	if fault := collectorFault(ofRanges != nil, ofCluster != nil); fault != "" {
		at, name := ofRanges, names.GarbageCollectorController
		if at == nil {
			at, name = ofCluster, ClusterCollector
		}
		faults = append(faults, validation.Invalid(at, name, fault))
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
