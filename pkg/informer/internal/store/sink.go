package store

import (
	"fmt"
	"slices"
	"sync/atomic"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/flotilla-kube/flotilla/internal/faults"
	"github.com/flotilla-kube/flotilla/pkg/informer/present"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// Sink is where a source puts what it reads: it filters, stores and notifies. It implements
// cache.ReflectorStore, so a Reflector can be a source; calls must not be concurrent with each
// other, nor with those of another sink of the informer.
type Sink struct {
	// Informer is what it fills.
	Informer *Informer
	// Outside counts objects that the filter dropped; nil counts nothing.
	Outside *atomic.Int64
	// Stored says that objects come from another informer's store, already transformed.
	Stored bool
	// Within is the range whose objects must be whole in an informer of slim copies that is
	// followed; Everything if slim copies will do.
	Within shard.Range
	// lost says that its source cannot continue and must list; the informer's mutex guards it.
	lost bool
	// Listed is called after each list, before the first one syncs the informer; nil for nothing.
	// The informer's mutex is held.
	Listed func()
}

var (
	_ cache.TransformingStore      = &Sink{}
	_ cache.ReflectorBookmarkStore = &Sink{}
)

// Add stores an object that the source calls new.
func (s *Sink) Add(obj any) error { return s.upsert(obj) }

// Update stores an object that the source calls changed.
func (s *Sink) Update(obj any) error { return s.upsert(obj) }

// upsert goes by what the store holds, not by the source's kind of event: a watch that starts over
// repeats objects as added.
func (s *Sink) upsert(obj any) error {
	s.Informer.mu.Lock()
	defer s.Informer.mu.Unlock()
	rv := present.VersionOf(obj)
	if !s.Keeps(obj) || faults.DropEvent() {
		s.passLocked(rv)
		return nil
	}
	obj, err := s.transformed(obj)
	if err != nil {
		return err
	}
	old, exists, err := s.Informer.indexer.Get(obj)
	if err != nil {
		return err
	}
	if err := s.Informer.indexer.Update(obj); err != nil {
		return err
	}
	s.passedLocked(rv)
	if exists {
		s.notifyLocked(notification{kind: updated, old: old, new: obj})
	} else {
		s.notifyLocked(notification{kind: added, new: obj, initial: !s.Informer.HasSynced()})
	}
	s.Informer.passOnLocked(func(into *Sink) error { return into.upsert(obj) })
	return nil
}

// Delete removes an object.
func (s *Sink) Delete(obj any) error {
	s.Informer.mu.Lock()
	defer s.Informer.mu.Unlock()
	rv := present.VersionOf(obj)
	if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok && !s.Keeps(tombstone.Obj) || !ok && !s.Keeps(obj) {
		s.passLocked(rv)
		return nil
	}
	obj, err := s.transformed(obj)
	if err != nil {
		return err
	}
	_, exists, err := s.Informer.indexer.Get(obj)
	if err != nil {
		return err
	}
	if err := s.Informer.indexer.Delete(obj); err != nil {
		return err
	}
	s.passedLocked(rv)
	if exists {
		s.notifyLocked(notification{kind: deleted, old: obj})
	}
	s.Informer.passOnLocked(func(into *Sink) error { return into.Delete(obj) })
	return nil
}

// Replace makes the store hold exactly the objects of list that the filter lets through. The first
// call syncs the informer.
func (s *Sink) Replace(list []any, rv string) error {
	s.Informer.mu.Lock()
	defer s.Informer.mu.Unlock()
	if err := s.replaceLocked(list, rv); err != nil {
		return err
	}
	s.lost = false
	if s.Listed != nil {
		s.Listed()
	}
	s.syncedLocked()
	return nil
}

// replace does so for a list that need not be current.
func (s *Sink) replace(list []any, rv string) error {
	s.Informer.mu.Lock()
	defer s.Informer.mu.Unlock()
	return s.replaceLocked(list, rv)
}

func (s *Sink) replaceLocked(list []any, rv string) error {
	var whole []shard.Range
	if s.Informer.copies != nil {
		whole = s.Informer.copies.endList(list, s.Stored, s.Informer.wantedLocked())
	}
	kept := make([]any, 0, len(list))
	keys := make(map[string]struct{}, len(list))
	// Handlers hear of deletions first, as from client-go: some count what there is.
	var gone []notification
	notifications := make([]notification, 0, len(list))
	// A deletion that was missed: the last known state is all there is.
	missed := func(key string, old any) {
		gone = append(gone, notification{kind: deleted, old: cache.DeletedFinalStateUnknown{Key: key, Obj: old}})
	}
	for _, obj := range list {
		if !s.Keeps(obj) {
			continue
		}
		obj, err := s.trimmed(obj)
		if err != nil {
			return err
		}
		key, err := cache.MetaNamespaceKeyFunc(obj)
		if err != nil {
			return cache.KeyError{Obj: obj, Err: err}
		}
		if _, twice := keys[key]; twice {
			continue
		}
		keys[key] = struct{}{}
		kept = append(kept, obj)
		old, exists, err := s.Informer.indexer.GetByKey(key)
		switch {
		case err != nil:
			return err
		case exists && otherUID(old, obj):
			// What an update hides from a garbage collector: nobody would look at the dependents of
			// the old one any more. client-go hides it whenever it lists again, but informers here
			// list where client-go's go on watching.
			missed(key, old)
			notifications = append(notifications, notification{kind: added, new: obj})
		case !exists:
			notifications = append(notifications, notification{kind: added, new: obj, initial: !s.Informer.HasSynced()})
		case !sameVersion(old, obj):
			notifications = append(notifications, notification{kind: updated, old: old, new: obj})
		}
	}
	for _, key := range s.Informer.indexer.ListKeys() {
		if _, ok := keys[key]; ok {
			continue
		}
		if old, exists, err := s.Informer.indexer.GetByKey(key); err == nil && exists {
			missed(key, old)
		}
	}
	if err := s.Informer.indexer.Replace(kept, rv); err != nil {
		return err
	}
	if s.Informer.copies != nil {
		s.Informer.copies.hold(whole, s.Stored)
	}
	s.Informer.lastRV = rv
	s.Informer.movedLocked()
	for _, n := range slices.Concat(gone, notifications) {
		s.notifyLocked(n)
	}
	s.Informer.passOnLocked(func(into *Sink) error { return into.replace(kept, rv) })
	return nil
}

// exchange replaces another copy of the same version by obj; see exchangeLocked.
func (s *Sink) exchange(obj any) {
	s.Informer.mu.Lock()
	defer s.Informer.mu.Unlock()
	s.Informer.exchangeLocked(obj)
}

// Resync implements cache.ReflectorStore; handlers have timers of their own.
func (s *Sink) Resync() error { return nil }

// Bookmark implements cache.ReflectorBookmarkStore.
func (s *Sink) Bookmark(rv string) error {
	s.Informer.mu.Lock()
	defer s.Informer.mu.Unlock()
	s.passLocked(rv)
	return nil
}

// Transformer implements cache.TransformingStore, so that the copy that a Reflector keeps during a
// streaming list is trimmed too.
func (s *Sink) Transformer() cache.TransformFunc { return s.Informer.transform }

// synced records that the store is at least as new as its factory.
func (s *Sink) synced() {
	s.Informer.mu.Lock()
	defer s.Informer.mu.Unlock()
	s.syncedLocked()
}

func (s *Sink) syncedLocked() {
	if s.Informer.HasSynced() {
		return
	}
	close(s.Informer.synced)
	for l := range s.Informer.listeners {
		if !l.dormant {
			l.upstreamSynced()
		}
	}
}

// passedLocked records that the source has read up to rv, even if the object with that version was
// not for us: controllers that wait to see their own write wait for it.
func (s *Sink) passedLocked(rv string) {
	defer s.Informer.movedLocked() // even if a deleted object has no version
	if rv == "" {
		return
	}
	s.Informer.lastRV = rv
	if s.Informer.HasSynced() {
		s.Informer.indexer.Bookmark(rv)
	}
}

// passLocked is passedLocked, and passes the version on to followers.
func (s *Sink) passLocked(rv string) {
	s.passedLocked(rv)
	s.Informer.passOnLocked(func(into *Sink) error { return into.Bookmark(rv) })
}

func (s *Sink) notifyLocked(n notification) {
	if n.new != nil {
		s.Informer.detector.AddObject(n.new)
	}
	for l := range s.Informer.listeners {
		if !l.dormant {
			l.enqueue(n)
		}
	}
}

// Keeps reports whether the informer keeps an object, and counts it if it does not.
func (s *Sink) Keeps(obj any) bool {
	if s.Informer.keep == nil || s.Informer.keep(obj) {
		return true
	}
	if s.Outside != nil {
		s.Outside.Add(1)
	}
	return false
}

// Picks reports whether the informer picks from all objects that the source reads.
func (s *Sink) Picks() bool { return s.Informer.picks != nil }

// Takes returns which objects the informer needs of a list that is about to be read.
func (s *Sink) Takes() func(obj any) bool {
	if s.Informer.picks != nil {
		return s.Informer.picks()
	}
	return s.Keeps
}

// transformed returns the object of an event as the informer stores it.
func (s *Sink) transformed(obj any) (any, error) {
	if s.Informer.copies != nil && !s.Stored {
		obj = s.Informer.copies.form(obj)
	}
	return s.trimmed(obj)
}

// trimmed returns it without what the transform removes.
func (s *Sink) trimmed(obj any) (any, error) {
	if s.Stored && s.Informer.strict {
		return s.Informer.shed(obj), nil
	}
	if s.Informer.transform == nil || s.Stored {
		return obj, nil
	}
	out, err := s.Informer.transform(obj)
	if err != nil {
		return nil, fmt.Errorf("transforming %T: %w", obj, err)
	}
	return out, nil
}

// Place returns the version from which a source can continue: the store's. It is empty if the
// source must list: before the informer has synced, and when the server has said that it does not
// know that version any more.
func (s *Sink) Place() string {
	s.Informer.mu.Lock()
	defer s.Informer.mu.Unlock()
	if s.lost || !s.Informer.HasSynced() || s.Informer.lastRV == "0" { // which is any version
		return ""
	}
	return s.Informer.lastRV
}

// SetLost says that the source cannot continue and must list, until it has; false takes that back.
// Only the source calls it. A list that client-go has given up may ask for the place meanwhile.
func (s *Sink) SetLost(lost bool) {
	s.Informer.mu.Lock()
	defer s.Informer.mu.Unlock()
	s.lost = lost
}

// Shed reduces the whole objects that an informer of metadata or slim copies received while it
// followed to what the informer keeps.
func (s *Sink) Shed() {
	if s.Informer.shed == nil {
		return
	}
	s.Informer.mu.Lock()
	defer s.Informer.mu.Unlock()
	if s.Informer.copies != nil {
		s.Informer.copies.isListing, s.Informer.copies.isFollowing = false, false
		s.Informer.slimLocked(func(any) bool { return true })
		return
	}
	list := s.Informer.indexer.List()
	for n, obj := range list {
		list[n] = s.Informer.shed(obj)
	}
	into := &Sink{Informer: s.Informer, Stored: true}
	if err := into.replaceLocked(list, s.Informer.lastRV); err != nil {
		utilruntime.HandleError(err)
	}
}
