package catalogue_test

import (
	"slices"
	"testing"

	"k8s.io/kubernetes/cmd/kube-controller-manager/names"

	"github.com/flotilla-kube/flotilla/pkg/controllers/catalogue"
	"github.com/flotilla-kube/flotilla/pkg/shard"
	"github.com/flotilla-kube/flotilla/pkg/shard/skew"
)

// TestBuild compares what a member publishes about its build with the catalogue, and the fleet's
// plans with the build.
func TestBuild(t *testing.T) {
	b := catalogue.Build("v1.37.1")
	known, err := skew.ParseKnown(b.Known().String())
	if err != nil {
		t.Fatal(err)
	}
	if n := len(b.Known().String()); n > 400 {
		t.Errorf("a member says %d bytes of its build, on a Lease that is written every other second", n)
	}
	rows, told := catalogue.All(), 0
	for _, row := range rows {
		for _, scope := range []catalogue.Scope{catalogue.ScopeNamespaced, catalogue.ScopeCluster} {
			want := row.Scope == scope || row.EarlierScope == scope || row.Name == names.GarbageCollectorController
			if known.Runs(row.Name, shard.Scope(scope)) != want {
				t.Errorf("%s in scope %s: a member says %v", row.Name, scope, !want)
			} else if want {
				told++
			}
		}
	}
	if len(rows) < 40 || told <= len(rows) {
		t.Errorf("%d rows, %d published", len(rows), told)
	}
	for name, change := range map[string]func(*shard.Plan){"default": func(*shard.Plan) {}, "one garbage collector": whole} {
		plan, err := catalogue.DefaultPlan(4)
		if err != nil {
			t.Fatal(err)
		}
		change(&plan)
		if err := b.Fits(nil, plan, nil); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, changes, err := b.Adapt(plan, []skew.Known{known}, nil); err != nil || len(changes) > 0 {
			t.Errorf("%s: is changed by %v: %v", name, changes, err)
		}
	}
}

// TestBuildMovesControllersOfEarlierPlans checks that the planner of this version moves the pod
// garbage collector to its group.
func TestBuildMovesControllersOfEarlierPlans(t *testing.T) {
	plan, err := catalogue.DefaultPlan(2)
	if err != nil {
		t.Fatal(err)
	}
	for i := range plan.Rings[1].Shards {
		s := &plan.Rings[1].Shards[i]
		s.Controllers = slices.DeleteFunc(slices.Clone(s.Controllers), func(c string) bool { return c == names.PodGarbageCollectorController })
	}
	plan.Rings[0].Controllers = slices.Sorted(slices.Values(append(plan.Rings[0].Controllers, names.PodGarbageCollectorController)))
	next, changes, err := catalogue.Build("v1.37.1").Adapt(plan, nil, nil)
	if err != nil || len(changes) != 1 {
		t.Fatalf("%v: %v", changes, err)
	}
	i := slices.IndexFunc(next.Rings[1].Shards, func(s shard.Shard) bool { return s.Group == catalogue.GroupNodes })
	if nodes := next.Rings[1].Shards[i]; !slices.Contains(nodes.Controllers, names.PodGarbageCollectorController) {
		t.Errorf("%v: group nodes has %v", changes, nodes.Controllers)
	}
}

// TestFingerprintsDiffer checks that all names and scopes of the catalogue look different on a
// Lease.
func TestFingerprintsDiffer(t *testing.T) {
	for _, row := range catalogue.All() {
		for _, scope := range []shard.Scope{shard.ScopeNamespaced, shard.ScopeCluster} {
			one := skew.Build{Controllers: []skew.Controller{{Name: row.Name, Scopes: []shard.Scope{scope}}}}.Known()
			for _, other := range catalogue.All() {
				for _, in := range []shard.Scope{shard.ScopeNamespaced, shard.ScopeCluster} {
					if one.Runs(other.Name, in) != (other.Name == row.Name && in == scope) {
						t.Errorf("%s in scope %s looks like %s in scope %s", row.Name, scope, other.Name, in)
					}
				}
			}
		}
	}
}
