package store

import (
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"github.com/flotilla-kube/flotilla/pkg/informer/present"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// Follow makes into, a sink of another informer, hold what its filter lets through of what i holds,
// and passes on every change of i from then on. It returns false if into cannot follow yet; see
// Admits. Nobody else may use into until Unfollow, or until i has been deserted.
//
// Changes are passed on under the mutex of i. So locks are taken from an informer to its followers,
// which never form a circle, and both are always at the same version.
func (i *Informer) Follow(into *Sink) bool {
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

// Admits reports whether into could follow now: i has synced, has not been deserted, has seen as
// much as the other informer, which must never go back in time, and holds what that needs, or could
// take it over from it.
func (i *Informer) Admits(into *Sink) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	_, ok := i.admitsLocked(into)
	return ok
}

// admitsLocked also returns what i would take over.
func (i *Informer) admitsLocked(into *Sink) (mine []any, ok bool) {
	if i.isDeserted || !i.HasSynced() || !present.Reached(i.lastRV, into.Informer.LastSyncResourceVersion()) {
		return nil, false
	}
	return i.adoptableLocked(into)
}

// Unfollow ends what Follow or Join began.
func (i *Informer) Unfollow(into *Sink) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.followers, into)
	if i.mayHoldSlim(into) {
		delete(i.copies.joining, into)
		i.reduceLocked([]shard.Range{into.Within})
	}
}

// Confirm makes the informer behind into sync, if it still follows: what it holds is new enough.
func (i *Informer) Confirm(into *Sink) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if _, follows := i.followers[into]; !follows {
		return false
	}
	into.synced()
	return true
}

// Desert lets all followers go, and takes no more. Nothing is passed on after it has returned.
func (i *Informer) Desert() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.desertLocked()
}

func (i *Informer) desertLocked() {
	if i.isDeserted {
		return
	}
	i.isDeserted, i.followers = true, nil
	close(i.desertion)
}

// passOnLocked makes all followers take the step that this informer has taken.
func (i *Informer) passOnLocked(step func(into *Sink) error) {
	for into := range i.followers {
		if err := step(into); err != nil {
			utilruntime.HandleError(err)
		}
	}
}

// Ranges returns how many ranges that need whole objects follow.
func (i *Informer) Ranges() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	n := 0
	for into := range i.followers {
		if !into.Within.IsEverything() {
			n++
		}
	}
	return n
}
