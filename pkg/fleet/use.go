package fleet

import (
	"fmt"
	"maps"

	"github.com/flotilla-kube/flotilla/pkg/election"
)

// UseAnnotation has what a member's process uses beside memory, on the member's Lease, see [Use]. It is missing where the
// build is from before there was one.
const UseAnnotation = "flotilla.dev/use"

// Use is what a member says of its process, 0 or more each. It is for people: nothing is decided by it.
type Use struct {
	// CPU is the mean use of processors since it said so last, in thousandths of one.
	CPU int64
	// Queued is how many items wait in the workqueues of all its controllers.
	Queued int64
}

// String returns the two numbers with a slash between them, as on a Lease.
func (u Use) String() string { return fmt.Sprintf("%d/%d", u.CPU, u.Queued) }

// UseOn returns what a member has published on its Lease, and whether it has published anything that can be read.
func UseOn(lease election.Observation) (u Use, published bool) {
	u.CPU, u.Queued, published = twoNumbers(lease.Annotations[UseAnnotation], "/")
	return u, published
}

// isMore reports whether a change of a Lease may move a shard: neither a renewal does, nor what a
// member says of its use, which changes every time.
func isMore(before, after election.Observation) bool {
	if !election.IsMore(before, after) {
		return false
	}
	before.Annotations, after.Annotations = maps.Clone(before.Annotations), maps.Clone(after.Annotations)
	delete(before.Annotations, UseAnnotation)
	delete(after.Annotations, UseAnnotation)
	return election.IsMore(before, after)
}
