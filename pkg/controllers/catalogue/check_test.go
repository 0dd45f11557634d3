package catalogue_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/flotilla-kube/flotilla/pkg/controllers/catalogue"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

func TestCheckPlan(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*shard.Plan)
		want   []string
	}{
		"default": {change: func(*shard.Plan) {}},
		"unknown": {
			change: func(p *shard.Plan) {
				p.Rings[0].Controllers = append(p.Rings[0].Controllers, "zeppelin-controller")
			},
			want: []string{"rings[0].controllers[", "zeppelin-controller", "flotilla controllers"},
		},
		"cluster-scoped in a namespaced ring": {
			change: func(p *shard.Plan) {
				nodes := p.Rings[1].Shards[slices.IndexFunc(p.Rings[1].Shards, func(s shard.Shard) bool { return s.Group == "nodes" })]
				i := slices.Index(nodes.Controllers, "ttl-controller")
				nodes.Controllers = slices.Delete(nodes.Controllers, i, i+1)
				p.Rings[1].Shards[slices.IndexFunc(p.Rings[1].Shards, func(s shard.Shard) bool { return s.Group == "nodes" })] = nodes
				p.Rings[0].Controllers = append(p.Rings[0].Controllers, "ttl-controller")
				slices.Sort(p.Rings[0].Controllers)
			},
			want: []string{"rings[0].controllers[", "ttl-controller", `scope "cluster"`},
		},
		// Plans of an earlier build have it so.
		"the pod garbage collector in a namespaced ring": {
			change: func(p *shard.Plan) {
				nodes := &p.Rings[1].Shards[slices.IndexFunc(p.Rings[1].Shards, func(s shard.Shard) bool { return s.Group == "nodes" })]
				nodes.Controllers = slices.DeleteFunc(slices.Clone(nodes.Controllers), func(c string) bool { return c == "pod-garbage-collector-controller" })
				p.Rings[0].Controllers = append(p.Rings[0].Controllers, "pod-garbage-collector-controller")
				slices.Sort(p.Rings[0].Controllers)
			},
		},
		// Plans of an earlier build have it so.
		"the garbage collector as a whole": {change: whole},
		"the garbage collector of ranges alone": {
			change: func(p *shard.Plan) {
				without(p, catalogue.ClusterCollector)
			},
			want: []string{"rings[0].controllers[", "garbage-collector-controller", "cluster-garbage-collector-controller must be in one"},
		},
		"the garbage collector of the cluster alone": {
			change: func(p *shard.Plan) {
				p.Rings[0].Controllers = slices.DeleteFunc(p.Rings[0].Controllers, func(c string) bool { return c == "garbage-collector-controller" })
			},
			want: []string{"cluster-garbage-collector-controller", `must be in a ring of scope "namespaced"`, "garbage-collector-controller is in none"},
		},
		"the garbage collector of the cluster beside the whole": {
			change: func(p *shard.Plan) {
				whole(p)
				garbage := garbageOf(p)
				garbage.Controllers = append([]string{catalogue.ClusterCollector}, garbage.Controllers...)
			},
			want: []string{"rings[1].shards[2].controllers[0]", "cluster-garbage-collector-controller", `must be in a ring of scope "namespaced"`},
		},
		"the part of the cluster in ranges": {
			change: func(p *shard.Plan) {
				without(p, catalogue.ClusterCollector)
				p.Rings[0].Controllers = append(p.Rings[0].Controllers, catalogue.ClusterCollector)
				slices.Sort(p.Rings[0].Controllers)
			},
			want: []string{"rings[0].controllers[", "cluster-garbage-collector-controller"},
		},
		"in no ring": {
			change: func(p *shard.Plan) {
				p.Rings[0].Controllers = slices.DeleteFunc(p.Rings[0].Controllers, func(c string) bool { return c == "job-controller" })
			},
			want: []string{"rings", "job-controller is in none"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			plan, err := catalogue.DefaultPlan(4)
			if err != nil {
				t.Fatal(err)
			}
			test.change(&plan)
			if err := plan.Validate(); err != nil {
				t.Fatalf("the plan is not even valid in itself: %v", err)
			}
			err = catalogue.CheckPlan(plan)
			if (err == nil) != (len(test.want) == 0) {
				t.Fatalf("got %v, want an error with %q", err, test.want)
			}
			for _, part := range test.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("error %q does not have %q", err, part)
				}
			}
		})
	}
}

func garbageOf(p *shard.Plan) *shard.Shard {
	return &p.Rings[1].Shards[slices.IndexFunc(p.Rings[1].Shards, func(s shard.Shard) bool { return s.Group == catalogue.GroupGarbage })]
}

func without(p *shard.Plan, controller string) {
	garbage := garbageOf(p)
	garbage.Controllers = slices.DeleteFunc(slices.Clone(garbage.Controllers), func(c string) bool { return c == controller })
}

// whole gives a plan one garbage collector for everything.
func whole(p *shard.Plan) {
	p.Rings[0].Controllers = slices.DeleteFunc(p.Rings[0].Controllers, func(c string) bool { return c == "garbage-collector-controller" })
	without(p, catalogue.ClusterCollector)
	garbage := garbageOf(p)
	garbage.Controllers = append([]string{"garbage-collector-controller"}, garbage.Controllers...)
}

// TestGarbageInParts checks that the default plan has the garbage collector in each range, and once
// for the cluster.
func TestGarbageInParts(t *testing.T) {
	plan, err := catalogue.DefaultPlan(2)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(plan.Rings[0].Controllers, "garbage-collector-controller") || !slices.IsSorted(plan.Rings[0].Controllers) {
		t.Errorf("ring %s has %v, want the garbage collector in it, sorted", plan.Rings[0].Name, plan.Rings[0].Controllers)
	}
	if got := garbageOf(&plan).Controllers; !slices.Equal(got, []string{catalogue.ClusterCollector, "storage-version-migrator-controller"}) {
		t.Errorf("group garbage has %v", got)
	}
}
