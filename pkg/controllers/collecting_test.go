package controllers

import (
	"slices"
	"testing"

	"k8s.io/kubernetes/cmd/kube-controller-manager/names"

	"github.com/flotilla-kube/flotilla/pkg/controllers/catalogue"
	"github.com/flotilla-kube/flotilla/pkg/controllers/garbage"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

func TestCollects(t *testing.T) {
	ofRange, group := shard.Shard{}, shard.Shard{Group: catalogue.GroupGarbage}
	for name, tc := range map[string]struct {
		shard       shard.Shard
		controllers []string
		want        garbage.Part
	}{
		"range":             {ofRange, []string{names.GarbageCollectorController, names.JobController}, garbage.OfRange},
		"range without one": {ofRange, []string{names.JobController}, 0},
		"whole":             {group, []string{names.GarbageCollectorController}, 0},
		"cluster":           {group, []string{catalogue.ClusterCollector, names.StorageVersionMigratorController}, garbage.OfCluster},
	} {
		t.Run(name, func(t *testing.T) {
			before := slices.Clone(tc.controllers)
			part, run := Collects(tc.shard, tc.controllers)
			if part != tc.want || slices.Contains(run, catalogue.ClusterCollector) || len(run) != len(before) {
				t.Errorf("part %v of controllers %v, want part %v and upstream's names", part, run, tc.want)
			}
			if !slices.Equal(before, tc.controllers) {
				t.Errorf("the plan's controllers are %v, were %v", tc.controllers, before)
			}
		})
	}
}

// TestRangesShareALimit checks that the garbage collectors of a process's ranges share a limit, which
// is upstream's, and so do other controllers that a plan of an earlier build runs in ranges. In a
// group each has its own.
func TestRangesShareALimit(t *testing.T) {
	spec := Spec{Controllers: []string{names.GarbageCollectorController, names.JobController}, Collect: garbage.OfRange}
	if got, want := spec.limited(), []string{rangeCollectors, names.JobController}; !slices.Equal(got, want) {
		t.Errorf("limited as %v, want %v", got, want)
	}
	l := newLimits(sharedLimits())
	for _, tc := range []struct {
		controller string
		ranged     Spec
		qps        float32
		groups     []Spec
	}{
		{names.GarbageCollectorController, Spec{Namespaced: true, Collect: garbage.OfRange}, 2 * stock.QPS, []Spec{{}, {Collect: garbage.OfCluster}}},
		{names.PodGarbageCollectorController, Spec{Namespaced: true}, stock.QPS, []Spec{{}}},
	} {
		first, again := l.limiter(tc.ranged.limitedName(tc.controller), "client", stock, 2), l.limiter(tc.ranged.limitedName(tc.controller), "client", stock, 2)
		if first == nil || first != again || first.QPS() != tc.qps {
			t.Errorf("%s: limiters %v and %v, want one of %v requests a second", tc.controller, first, again, tc.qps)
		}
		for _, group := range tc.groups {
			if own := l.limiter(group.limitedName(tc.controller), "client", stock, 2); own != nil {
				t.Errorf("%s of part %v has the limit %v of several", tc.controller, group.Collect, own)
			}
		}
	}
}
