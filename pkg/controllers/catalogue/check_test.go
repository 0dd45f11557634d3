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
		// So plans of an earlier build have it.
		"the pod garbage collector in a namespaced ring": {
			change: func(p *shard.Plan) {
				nodes := &p.Rings[1].Shards[slices.IndexFunc(p.Rings[1].Shards, func(s shard.Shard) bool { return s.Group == "nodes" })]
				nodes.Controllers = slices.DeleteFunc(slices.Clone(nodes.Controllers), func(c string) bool { return c == "pod-garbage-collector-controller" })
				p.Rings[0].Controllers = append(p.Rings[0].Controllers, "pod-garbage-collector-controller")
				slices.Sort(p.Rings[0].Controllers)
			},
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
