package flotilla

import (
	"context"

	"github.com/flotilla-kube/flotilla/pkg/fleet"
	"github.com/flotilla-kube/flotilla/pkg/metrics"
	"github.com/flotilla-kube/flotilla/pkg/shard"
	"github.com/flotilla-kube/flotilla/pkg/shard/skew"
)

// Shards are what a fleet runs if its program builds each shard as a whole, instead of adding
// controllers one by one. kube-controller-manager's fleet is an example: its controllers are
// upstream's, which know nothing of shards, and some of them run in groups that share informers.
// Build then does what a [Shard] otherwise does: it puts [fleet.Work.Fence] beneath every client
// that writes, and gives the controllers informers of the shard's range.
//
// Such a fleet does not use Options.Ranges, Version and Outside: Plan replaces Ranges, Catalogue
// replaces Version, and Outside must not be set.
type Shards struct {
	// Plan is the fleet's first plan. A fleet that has a plan keeps it. Required.
	Plan shard.Plan
	// Catalogue lists the controllers that this build of the program knows, and its version. The
	// member runs no others. Members may differ in it. Default: it knows all.
	Catalogue skew.Build
	// Check returns why the program could not work by a valid plan, naming the field, its value and
	// what is allowed. It must not block. Default: the program can work by any.
	Check func(shard.Plan) error
	// Forgets reports whether a controller keeps state only in memory that an operator could miss
	// when it begins again on another member. Default: none does.
	Forgets func(controller string) bool
	// Build makes the work of a shard without starting it. After an error the fleet tries again
	// after a while, for as long as the shard belongs to this member. Build may use the values of
	// ctx, such as a logger; the work must not depend on when ctx ends. Required.
	Build func(ctx context.Context, work fleet.Work) (fleet.Instance, error)
	// Expect is called with the ranges of the shards that this member works on or is about to,
	// before they are built and whenever they change; see Pool.Expect of pkg/informer. It must not
	// wait for the API server. Default: nobody is told.
	Expect func(ranges []shard.Range)
	// Informers are the informers that the metrics report on. Default: none.
	Informers metrics.Informers
}

// Shards says what the fleet runs, in place of Namespaced and Singleton: Prepare and Run fail if
// there are both. It panics on mistakes of the program: if Build is nil, if it was called before,
// or after Prepare or Run.
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
