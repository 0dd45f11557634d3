package informer

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/cache"

	"github.com/flotilla-kube/flotilla/pkg/informer/present"
)

// Mark is a point that a cache must have passed: the last write to a resource.
type Mark struct {
	// Version is the version that the cache must have reached; empty for any.
	Version string
	// Gone are objects that the cache must not hold any more.
	Gone []types.UID
	// Deleted are objects that the cache may hold only while they are being deleted.
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
		if !written || e.givenUp() || e.narrow != "" && passed(e, mark) {
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
		if err := e.cache().Await(ctx, func() bool { return passed(e, mark) }); err != nil {
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

func passed(e *entry, mark Mark) bool {
	if e.absence.is() && len(e.GetStore().ListKeys()) == 0 {
		return true
	}
	return present.Reached(e.LastSyncResourceVersion(), mark.Version) && !mark.deniedBy(e.GetStore())
}

// deniedBy reports whether a cache holds objects that it must not hold.
func (m Mark) deniedBy(store cache.Store) bool {
	if len(m.Gone)+len(m.Deleted) == 0 {
		return false
	}
	gone, deleted := sets.New(m.Gone...), sets.New(m.Deleted...)
	for _, obj := range store.List() {
		object, err := meta.Accessor(obj)
		if err != nil {
			continue
		}
		if uid := object.GetUID(); gone.Has(uid) || deleted.Has(uid) && object.GetDeletionTimestamp() == nil {
			return true
		}
	}
	return false
}
