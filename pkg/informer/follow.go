package informer

import (
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"github.com/flotilla-kube/flotilla/pkg/informer/present"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// follow makes into, a sink of another informer, hold what its filter lets through of what i holds,
// and passes on every change of i from then on. It returns false if into cannot follow yet; see
// admits. Nobody else may use into until unfollow, or until i has been deserted.
//
// Changes are passed on under the mutex of i. So locks are taken from an informer to its followers,
// which never form a circle, and both are always at the same version.
func (i *Informer) follow(into *sink) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	mine, ok := i.admitsLocked(into)
	if !ok {
		return false
	}
	i.adoptLocked(into, mine)
	if err := into.replace(i.indexer.List(), i.lastRV); err != nil {
		utilruntime.HandleError(err)
		return false
	}
	i.followers[into] = struct{}{}
	return true
}

// admits reports whether into could follow now: i has synced, has not been deserted, has seen as
// much as the other informer, which must never go back in time, and holds what that needs, or could
// take it over from it.
func (i *Informer) admits(into *sink) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	_, ok := i.admitsLocked(into)
	return ok
}

// admitsLocked also returns what i would take over.
func (i *Informer) admitsLocked(into *sink) (mine []any, ok bool) {
	if i.isDeserted || !i.HasSynced() || !present.Reached(i.lastRV, into.i.LastSyncResourceVersion()) {
		return nil, false
	}
	return i.adoptableLocked(into)
}

// unfollow ends what follow or join began.
func (i *Informer) unfollow(into *sink) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.followers, into)
	if i.mayHoldSlim(into) {
		delete(i.copies.joining, into)
		i.reduceLocked([]shard.Range{into.within})
	}
}

// confirm makes the informer behind into sync, if it still follows: what it holds is new enough.
func (i *Informer) confirm(into *sink) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if _, follows := i.followers[into]; !follows {
		return false
	}
	into.synced()
	return true
}

// desert lets all followers go, and takes no more. Nothing is passed on after it has returned.
func (i *Informer) desert() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.desertLocked()
}

func (i *Informer) desertLocked() {
	if i.isDeserted {
		return
	}
	i.isDeserted, i.followers = true, nil
	close(i.deserted)
}

// passOnLocked makes all followers take the step that this informer has taken.
func (i *Informer) passOnLocked(step func(into *sink) error) {
	for into := range i.followers {
		if err := step(into); err != nil {
			utilruntime.HandleError(err)
		}
	}
}
