package catalogue

import (
	"slices"

	"k8s.io/kubernetes/cmd/kube-controller-manager/names"
)

// ClusterCollector is the name, in a group of a plan, of the garbage collector's part of the
// cluster. The garbage collector's own name then stands for the parts of the ranges, in a ring of
// scope namespaced; in a group it stands for the whole. A plan lists each controller once, so the
// two parts need two names. To flags it is the garbage collector.
const ClusterCollector = "cluster-" + names.GarbageCollectorController

// controllersOfRanges returns the controllers of a ring of ranges whose plan has the garbage
// collector in parts, sorted.
func controllersOfRanges() []string {
	controllers := append(Namespaced(), names.GarbageCollectorController)
	slices.Sort(controllers)
	return controllers
}

// controllersOfGroup returns the controllers of a group whose plan has the garbage collector in
// parts, sorted.
func controllersOfGroup(group string) []string {
	controllers := Group(group)
	if i := slices.Index(controllers, names.GarbageCollectorController); i >= 0 {
		controllers[i] = ClusterCollector
		slices.Sort(controllers)
	}
	return controllers
}

// collectorFault returns what is wrong with the parts of the garbage collector in a plan; empty for
// nothing. ofRanges says that a ring of scope namespaced has it, ofCluster that a group has its
// part of the cluster.
func collectorFault(ofRanges, ofCluster bool) string {
	switch {
	case ofRanges && !ofCluster:
		return "must be in a group, or " + ClusterCollector + " must be in one: nobody collects what has cluster-scoped owners"
	case ofCluster && !ofRanges:
		return names.GarbageCollectorController + " must be in a ring of scope \"namespaced\" beside it: nobody, or the whole beside it, collects the rest"
	default:
		return ""
	}
}
