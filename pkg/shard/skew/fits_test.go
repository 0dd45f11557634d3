package skew

import (
	"slices"
	"strings"
	"testing"

	"github.com/flotilla-kube/flotilla/pkg/shard"
)

func TestFits(t *testing.T) {
	known := func(versions ...int) (all []Known) {
		for _, v := range versions {
			all = append(all, knownOf(v))
		}
		return all
	}
	with := func(version int, change func(namespaces, cluster *shard.Ring)) shard.Plan {
		plan := copyOf(planOf(t, buildOf(version)))
		change(&plan.Rings[0], &plan.Rings[1])
		for i := range plan.Rings {
			slices.Sort(plan.Rings[i].Controllers)
		}
		return plan
	}
	same := func(_, _ *shard.Ring) {}
	typo := func(namespaces, _ *shard.Ring) { namespaces.Controllers = append(namespaces.Controllers, "jbos") }
	without := func(name string) func(namespaces, cluster *shard.Ring) {
		return func(namespaces, _ *shard.Ring) {
			namespaces.Controllers = slices.DeleteFunc(namespaces.Controllers, func(c string) bool { return c == name })
		}
	}
	misplaced := func(namespaces, _ *shard.Ring) { namespaces.Controllers = append(namespaces.Controllers, "nodes") }
	for name, tc := range map[string]struct {
		build   int
		current *shard.Plan
		next    shard.Plan
		others  []Known
		want    []string // Empty if it fits.
	}{
		"its own":                          {build: 1, next: with(1, same)},
		"a new one that another knows":     {build: 1, next: with(2, func(n, c *shard.Ring) { dropM(c); n.Controllers = append(n.Controllers, "m", "r"); addOld(c) }), others: known(2)},
		"a new one that the last plan had": {build: 1, current: ptrTo(with(2, same)), next: with(2, same)},
		"a typo":                           {build: 1, current: ptrTo(with(1, same)), next: with(1, typo), others: known(1, 2), want: []string{"rings[0].controllers[", `"jbos"`, "'flotilla controllers' lists", "a live member knows"}},
		"a typo, by the first":             {build: 1, next: with(1, typo), want: []string{"rings[0].controllers[", `"jbos"`}},
		"dropped by an operator":           {build: 1, current: ptrTo(with(1, same)), next: with(1, without("jobs")), others: known(1, 2), want: []string{"rings", "jobs is in none"}},
		"dropped, and never there":         {build: 1, current: ptrTo(with(1, without("jobs"))), next: with(1, without("jobs"))},
		"dropped, and another lacks it":    {build: 1, current: ptrTo(with(1, same)), next: with(1, without("r")), others: known(3)},
		"dropped in the first plan":        {build: 1, next: with(1, without("jobs")), want: []string{"jobs is in none"}},
		"cluster-scoped in ranges": {build: 1, current: ptrTo(with(1, same)), next: with(1, func(n, c *shard.Ring) {
			misplaced(n, c)
			c.Shards[0].Controllers = []string{"asked"}
		}), others: known(1, 2, 3), want: []string{"rings[0].controllers[", `"nodes"`, `scope "cluster"`}},
		"moved, and a common scope":               {build: 1, current: ptrTo(with(1, same)), next: with(2, addOldRing), others: known(2)},
		"moved, by the last plan":                 {build: 1, current: ptrTo(with(2, same)), next: with(2, same)},
		"moved, and no common scope":              {build: 4, current: ptrTo(with(1, same)), next: with(1, same), others: known(1), want: []string{"rings[0].controllers[", `"m"`, `in scope "cluster" alone`, "first upgrade to a version"}},
		"moved, and the others have gone":         {build: 4, current: ptrTo(with(1, same)), next: with(1, same)},
		"moved, and the other can run it in both": {build: 4, current: ptrTo(with(2, same)), next: with(2, same), others: known(2, 3)},
	} {
		t.Run(name, func(t *testing.T) {
			err := buildOf(tc.build).Fits(tc.current, tc.next, tc.others)
			if (err == nil) != (len(tc.want) == 0) {
				t.Fatalf("got %v, want %q", err, tc.want)
			}
			for _, part := range tc.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q lacks %q", err, part)
				}
			}
		})
	}
	if err := (Build{}).Fits(nil, with(1, typo), nil); err != nil {
		t.Errorf("a build that knows everything: %v", err)
	}
}

func ptrTo(p shard.Plan) *shard.Plan { return &p }

func dropM(cluster *shard.Ring) {
	for i := range cluster.Shards {
		cluster.Shards[i].Controllers = slices.DeleteFunc(cluster.Shards[i].Controllers, func(c string) bool { return c == "m" })
	}
}

// addOld adds the group that version 3 lacks.
func addOld(cluster *shard.Ring) {
	if !slices.ContainsFunc(cluster.Shards, func(s shard.Shard) bool { return s.Group == "old" }) {
		cluster.Shards = append(cluster.Shards, shard.Shard{ID: shard.ID{Ring: "cluster", Name: "old"}, Group: "old", Controllers: []string{"rr"}})
	}
}

func addOldRing(_, cluster *shard.Ring) { addOld(cluster) }
