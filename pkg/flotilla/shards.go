package flotilla

import (
	"context"

	"github.com/flotilla-kube/flotilla/pkg/fleet"
	"github.com/flotilla-kube/flotilla/pkg/metrics"
	"github.com/flotilla-kube/flotilla/pkg/shard"
	"github.com/flotilla-kube/flotilla/pkg/shard/skew"
)

// Shards are what a fleet runs whose program builds each shard as a whole, and not from
// controllers that are added one by one. kube-controller-manager's fleet is one: its controllers
// are upstream's, which know nothing of shards, and some of them run in groups that share
// informers. Build then does what a [Shard] otherwise does: it puts [fleet.Work.Fence] beneath
// every client that writes, and gives the controllers informers of the shard's range.
//
// Options.Ranges, Version and Outside are not for such a fleet: Plan takes the place of Ranges and
// Catalogue that of Version, and Outside must not be set.
type Shards struct {
	// Plan is the fleet's first plan. A fleet that has a plan goes on by that. Required.
	Plan shard.Plan
	// Catalogue is which controllers this build of the program knows, and its version: it runs no
	// others, and members may differ in it. Default: it knows all.
	Catalogue skew.Build
	// Check returns why the program could not work by a plan that is valid in itself, naming the
	// field, its value and what is allowed. It must not block. Default: it can work by any.
	Check func(shard.Plan) error
	// Forgets reports whether a controller keeps only in memory what an operator could miss when it
	// begins again on another member. Default: none does.
	Forgets func(controller string) bool
	// Build makes the work of a shard, which does nothing yet. An error is tried again after a while,
	// for as long as the shard is this member's. ctx gives it its values, such as a logger; the work
	// may not depend on its end. Required.
	Build func(ctx context.Context, work fleet.Work) (fleet.Instance, error)
	// Informers are what the metrics tell of informers. Default: they tell nothing.
	Informers metrics.Informers
}

// Shards says what the fleet runs, in place of Namespaced and Singleton: Prepare and Run fail if
// there are both. It panics if Build is nil, if it was called before, or after Prepare or Run:
// mistakes of the program.
func (f *Fleet) Shards(s Shards) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case s.Build == nil:
		panic("flotilla: Shards.Build is nil")
	case f.shards != nil:
		panic("flotilla: Shards was called before")
	case f.member != nil:
		panic("flotilla: Shards is called after Prepare or Run")
	}
	f.shards = &s
}
