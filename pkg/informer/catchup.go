package informer

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/flotilla-kube/flotilla/pkg/informer/present"
)

// Mark is what the cache of a resource must have seen of the last writes to it.
type Mark struct {
	// Version is the version that it must have reached; empty for any.
	Version string
	// Gone are objects that it must not hold any more.
	Gone []types.UID
	// Deleted are objects that it may hold only while they are being deleted.
	Deleted []types.UID
}

// CatchUp returns once every cache of the factory that is being filled has passed the mark of its
// resource. It skips resources without a cache. Marks must be writes within the factory's range:
// nothing else moves its caches on. An empty cache counts as caught up if the API server does not
// have its resource. Caches that [Factory.AwaitFilled] has given up and that are still not full are
// skipped. Informers that are asked for later sync with a state at least as new as the call. The
// error names a cache that had not passed its mark when ctx ended.
func (f *Factory) CatchUp(ctx context.Context, marks map[schema.GroupResource]Mark) error {
	f.advance()
	for _, e := range f.filling() {
		mark, written := marks[e.resource.GroupResource()]
		passed := passing(e, mark)
		if !written || e.givenUp() || e.narrow != "" && passed() {
			continue
		}
		if e.narrow != "" {
			// The write may be to an object outside of the part, and then nothing moves the cache
			// on.
			if err := f.refresh(ctx, e, f.pool.now()); err != nil {
				return err
			}
			continue
		}
		if err := e.cache().Await(ctx, passed); err != nil {
			return fmt.Errorf("the cache of %s is at version %q, and has not seen the last write, %q: %w",
				e.resource.GroupResource(), e.LastSyncResourceVersion(), mark.Version, err)
		}
	}
	return nil
}

// See returns once the factory's caches of a resource are at a version, which must be the version
// of a write within the factory's range. It skips resources without a cache, and caches of a part
// of a resource. The error is ctx's; [Pool.Unseen] counts it if ctx's deadline has passed.
func (f *Factory) See(ctx context.Context, resource schema.GroupResource, version string) error {
	for _, e := range f.filling() {
		if e.resource.GroupResource() != resource || e.narrow != "" {
			continue
		}
		if err := e.cache().Await(ctx, func() bool { return present.Reached(e.LastSyncResourceVersion(), version) }); err != nil {
			if errors.Is(err, context.DeadlineExceeded) {
				f.pool.unseen.Add(1)
			}
			return err
		}
	}
	return nil
}

// passing returns a function that reports whether the cache has passed the mark.
func passing(e *entry, mark Mark) func() bool {
	gone, deleted := sets.New(mark.Gone...), sets.New(mark.Deleted...)
	denies := func(obj any) bool {
		object, err := meta.Accessor(obj)
		if err != nil {
			return false
		}
		uid := object.GetUID()
		return gone.Has(uid) || deleted.Has(uid) && object.GetDeletionTimestamp() == nil
	}
	return func() bool {
		if e.absence.is() && len(e.GetStore().ListKeys()) == 0 {
			return true
		}
		if !present.Reached(e.LastSyncResourceVersion(), mark.Version) {
			return false
		}
		return len(gone)+len(deleted) == 0 || !slices.ContainsFunc(e.GetStore().List(), denies)
	}
}
