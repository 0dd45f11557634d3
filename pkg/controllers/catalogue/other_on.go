//go:build planted

package catalogue

import (
	"fmt"
	"os"
	"slices"

	"k8s.io/kubernetes/cmd/kube-controller-manager/names"
)

// Variable names the version that a build with the tag "planted" poses as: for fleets of several
// versions without several versions of upstream. Empty means its own version.
const Variable = "FLOTILLA_CATALOGUE"

// The versions. Earlier lacks two controllers, one of ranges and one of a group, and can run the
// pod garbage collector only in ranges. Later lacks two others.
const (
	Earlier = "earlier"
	Later   = "later"
)

var (
	seems = os.Getenv(Variable)
	// begun are the controllers that Earlier lacks, ended those that Later lacks.
	begun = []string{names.TTLAfterFinishedController, names.ClusterRoleAggregationController}
	ended = []string{names.RootCACertificatePublisherController, names.TTLController}
)

func init() {
	if seems != "" && seems != Earlier && seems != Later {
		fmt.Fprintf(os.Stderr, "%s is %q, must be empty, %s or %s\n", Variable, seems, Earlier, Later)
		os.Exit(2)
	}
}

func otherRows(rows []Row) []Row {
	without := func(all []string) []Row {
		return slices.DeleteFunc(rows, func(r Row) bool { return slices.Contains(all, r.Name) })
	}
	switch seems {
	case Earlier:
		rows = without(begun)
		i := slices.IndexFunc(rows, func(r Row) bool { return r.Name == names.PodGarbageCollectorController })
		rows[i].Scope, rows[i].EarlierScope, rows[i].Group = ScopeNamespaced, "", ""
	case Later:
		rows = without(ended)
	}
	return rows
}

func otherVersion(version string) string {
	switch seems {
	case Earlier:
		return "v1.36.0"
	case Later:
		return "v1.38.0"
	default:
		return version
	}
}
