package owners

import (
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// withheld withholds from the garbage collector, while its graph is incomplete, the deletions that
// it decides by the dependents in the graph: those of owners whose dependents are to be orphaned,
// and those that wait for their dependents to go first (graph_builder.go: processTransitions). A
// dependent missing there is neither orphaned nor waited for, and is collected once its owner is
// gone.
//
// Notifications of one object keep their order: those that follow a withheld one are withheld too.
// The zero value withholds nothing. All methods may be called concurrently.
type withheld struct {
	mu sync.RWMutex
	// incomplete counts the reasons to withhold.
	incomplete int
	calls      []func()
	// objects are the objects of calls.
	objects map[types.UID]struct{}
}

// hold withholds until release is called, and until everybody else who holds has released. Calls of
// release after the first do nothing.
func (w *withheld) hold() (release func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.incomplete++
	return sync.OnceFunc(w.release)
}

// release makes the withheld calls, in the order in which they came, when nobody holds any more.
func (w *withheld) release() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.incomplete--; w.incomplete > 0 {
		return
	}
	for _, call := range w.calls {
		call()
	}
	w.calls, w.objects = nil, nil
}

// pass makes the call, which must not block, or withholds it.
func (w *withheld) pass(obj any, call func()) {
	if w.passes(call) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.incomplete == 0 {
		call()
		return
	}
	uid, decides := decidesByDependents(obj)
	if _, follows := w.objects[uid]; !decides && !follows {
		call()
		return
	}
	if w.objects == nil {
		w.objects = map[types.UID]struct{}{}
	}
	w.objects[uid] = struct{}{}
	w.calls = append(w.calls, call)
}

// passes makes the call and returns true if nothing is withheld.
func (w *withheld) passes(call func()) bool {
	w.mu.RLock()
	defer w.mu.RUnlock()
	if w.incomplete > 0 {
		return false
	}
	call() // under the lock: a later call of the same object may not be withheld and released before this one
	return true
}

// decidesByDependents returns an object's UID, and whether it is being deleted in a way that
// depends on its dependents.
func decidesByDependents(obj any) (types.UID, bool) {
	if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = tombstone.Obj
	}
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return "", false
	}
	return accessor.GetUID(), accessor.GetDeletionTimestamp() != nil && slices.ContainsFunc(accessor.GetFinalizers(), func(f string) bool {
		return f == metav1.FinalizerOrphanDependents || f == metav1.FinalizerDeleteDependents
	})
}

// withholding is a handler that gets its calls through withheld.
type withholding struct {
	cache.ResourceEventHandler
	through *withheld
}

// OnAdd implements cache.ResourceEventHandler.
func (h withholding) OnAdd(obj any, initial bool) {
	h.through.pass(obj, func() { h.ResourceEventHandler.OnAdd(obj, initial) })
}

// OnUpdate implements cache.ResourceEventHandler.
func (h withholding) OnUpdate(before, obj any) {
	h.through.pass(obj, func() { h.ResourceEventHandler.OnUpdate(before, obj) })
}

// OnDelete implements cache.ResourceEventHandler.
func (h withholding) OnDelete(obj any) {
	h.through.pass(obj, func() { h.ResourceEventHandler.OnDelete(obj) })
}
