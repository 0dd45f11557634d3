package main

import (
	"cmp"
	"context"
	"slices"
)

// stage is a part of the test that starts and ends with a cluster run by the stock
// kube-controller-manager.
type stage struct {
	name string
	// minutes is how long it takes on two cores.
	minutes float64
	run     func(context.Context, *cluster) error
}

var stages = []stage{
	{"shadow", 2.5, shadow},
	{"static", 5.5, staticPods},
	{"self-hosted", 16, selfHosted},
	{"helm", 2.5, chart},
	{"hosted", 4, hosted},
}

func stageNames() []string {
	var names []string
	for _, s := range stages {
		names = append(names, s.name)
	}
	return names
}

func stageOf(name string) stage {
	return stages[slices.IndexFunc(stages, func(s stage) bool { return s.name == name })]
}

// share divides stages among clusters that run at the same time: the longest stage first, each to
// the cluster that has least to do. A cluster runs its stages in the order in which they are given.
// There are fewer clusters if some would have no stage, but one at least.
func share(names []string, clusters int) [][]string {
	clusters = max(1, min(clusters, len(names)))
	longest := slices.SortedStableFunc(slices.Values(names), func(a, b string) int {
		return cmp.Compare(stageOf(b).minutes, stageOf(a).minutes)
	})
	minutes, of := make([]float64, clusters), map[string]int{}
	for _, name := range longest {
		least := slices.Index(minutes, slices.Min(minutes))
		minutes[least] += stageOf(name).minutes
		of[name] = least
	}
	shares := make([][]string, clusters)
	for _, name := range names {
		shares[of[name]] = append(shares[of[name]], name)
	}
	return shares
}
