package main

import "context"

// stage is a part of the test that starts and ends with a cluster run by the stock
// kube-controller-manager.
type stage struct {
	name string
	run  func(context.Context, *cluster) error
}

var stages = []stage{
	{"shadow", shadow},
	{"static", staticPods},
	{"self-hosted", selfHosted},
	{"helm", chart},
	{"hosted", hosted},
}

func stageNames() []string {
	var names []string
	for _, s := range stages {
		names = append(names, s.name)
	}
	return names
}
