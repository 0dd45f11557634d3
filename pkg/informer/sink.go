package informer

import (
	"fmt"
	"sync/atomic"

	"k8s.io/client-go/tools/cache"

	"github.com/flotilla-kube/flotilla/internal/faults"
	"github.com/flotilla-kube/flotilla/pkg/informer/present"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// sink is where a source puts what it reads: it filters, stores and notifies. It implements
// cache.ReflectorStore, so a Reflector can be a source; calls must not be concurrent with each
// other, nor with those of another sink of the informer.
type sink struct {
	i *Informer
	// outside counts objects that the filter dropped; nil counts nothing.
	outside *atomic.Int64
	// stored says that objects come from another informer's store, already transformed.
	stored bool
	// within is the range whose objects must be whole in an informer of slim copies that is
	// followed; Everything if slim copies will do.
	within shard.Range
	// lost says that its source cannot continue and must list. Only the source sets it; a list
	// clears it, with the informer's mutex held.
	lost bool
	// listed is called after each list, before the first one syncs the informer; nil for nothing.
	// The informer's mutex is held.
	listed func()
}

var (
	_ cache.TransformingStore      = &sink{}
	_ cache.ReflectorBookmarkStore = &sink{}
)

// Add stores an object that the source calls new.
func (s *sink) Add(obj any) error { return s.upsert(obj) }

// Update stores an object that the source calls changed.
func (s *sink) Update(obj any) error { return s.upsert(obj) }

// upsert goes by what the store holds, not by the source's kind of event: a watch that starts over
// repeats objects as added.
func (s *sink) upsert(obj any) error {
	s.i.mu.Lock()
	defer s.i.mu.Unlock()
	rv := present.VersionOf(obj)
	if !s.keeps(obj) || faults.DropEvent() {
		s.passLocked(rv)
		return nil
	}
	obj, err := s.transformed(obj)
	if err != nil {
		return err
	}
	old, exists, err := s.i.indexer.Get(obj)
	if err != nil {
		return err
	}
	if err := s.i.indexer.Update(obj); err != nil {
		return err
	}
	s.passedLocked(rv)
	if exists {
		s.notifyLocked(notification{kind: updated, old: old, new: obj})
	} else {
		s.notifyLocked(notification{kind: added, new: obj, initial: !s.i.HasSynced()})
	}
	s.i.passOnLocked(func(into *sink) error { return into.upsert(obj) })
	return nil
}

// Delete removes an object.
func (s *sink) Delete(obj any) error {
	s.i.mu.Lock()
	defer s.i.mu.Unlock()
	rv := present.VersionOf(obj)
	if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok && !s.keeps(tombstone.Obj) || !ok && !s.keeps(obj) {
		s.passLocked(rv)
		return nil
	}
	obj, err := s.transformed(obj)
	if err != nil {
		return err
	}
	_, exists, err := s.i.indexer.Get(obj)
	if err != nil {
		return err
	}
	if err := s.i.indexer.Delete(obj); err != nil {
		return err
	}
	s.passedLocked(rv)
	if exists {
		s.notifyLocked(notification{kind: deleted, old: obj})
	}
	s.i.passOnLocked(func(into *sink) error { return into.Delete(obj) })
	return nil
}

// Replace makes the store hold exactly the objects of list that the filter lets through. The first
// call syncs the informer.
func (s *sink) Replace(list []any, rv string) error {
	s.i.mu.Lock()
	defer s.i.mu.Unlock()
	if err := s.replaceLocked(list, rv); err != nil {
		return err
	}
	s.lost = false
	if s.listed != nil {
		s.listed()
	}
	s.syncedLocked()
	return nil
}

// replace does so for a list that need not be current.
func (s *sink) replace(list []any, rv string) error {
	s.i.mu.Lock()
	defer s.i.mu.Unlock()
	return s.replaceLocked(list, rv)
}

func (s *sink) replaceLocked(list []any, rv string) error {
	var whole []shard.Range
	if s.i.copies != nil {
		whole = s.i.copies.endList(list, s.stored, s.i.wantedLocked())
	}
	kept := make([]any, 0, len(list))
	keys := make(map[string]struct{}, len(list))
	notifications := make([]notification, 0, len(list))
	for _, obj := range list {
		if !s.keeps(obj) {
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
		old, exists, err := s.i.indexer.GetByKey(key)
		switch {
		case err != nil:
			return err
		case !exists:
			notifications = append(notifications, notification{kind: added, new: obj, initial: !s.i.HasSynced()})
		case !sameVersion(old, obj):
			notifications = append(notifications, notification{kind: updated, old: old, new: obj})
		}
	}
	for _, key := range s.i.indexer.ListKeys() {
		if _, ok := keys[key]; ok {
			continue
		}
		// The deletion itself was missed: the last known state is all there is.
		if old, exists, err := s.i.indexer.GetByKey(key); err == nil && exists {
			notifications = append(notifications, notification{kind: deleted, old: cache.DeletedFinalStateUnknown{Key: key, Obj: old}})
		}
	}
	if err := s.i.indexer.Replace(kept, rv); err != nil {
		return err
	}
	if s.i.copies != nil {
		s.i.copies.hold(whole, s.stored)
	}
	s.i.lastRV = rv
	s.i.movedLocked()
	for _, n := range notifications {
		s.notifyLocked(n)
	}
	s.i.passOnLocked(func(into *sink) error { return into.replace(kept, rv) })
	return nil
}

// exchange replaces another copy of the same version by obj; see exchangeLocked.
func (s *sink) exchange(obj any) {
	s.i.mu.Lock()
	defer s.i.mu.Unlock()
	s.i.exchangeLocked(obj)
}

// Resync implements cache.ReflectorStore; handlers have timers of their own.
func (s *sink) Resync() error { return nil }

// Bookmark implements cache.ReflectorBookmarkStore.
func (s *sink) Bookmark(rv string) error {
	s.i.mu.Lock()
	defer s.i.mu.Unlock()
	s.passLocked(rv)
	return nil
}

// Transformer implements cache.TransformingStore, so that the copy that a Reflector keeps during a
// streaming list is trimmed too.
func (s *sink) Transformer() cache.TransformFunc { return s.i.transform }

// synced records that the store is at least as new as its factory.
func (s *sink) synced() {
	s.i.mu.Lock()
	defer s.i.mu.Unlock()
	s.syncedLocked()
}

func (s *sink) syncedLocked() {
	if s.i.HasSynced() {
		return
	}
	close(s.i.synced)
	for l := range s.i.listeners {
		if !l.dormant {
			l.upstreamSynced()
		}
	}
}

// passedLocked records that the source has read up to rv, even if the object with that version was
// not for us: controllers that wait to see their own write wait for it.
func (s *sink) passedLocked(rv string) {
	defer s.i.movedLocked() // even if a deleted object has no version
	if rv == "" {
		return
	}
	s.i.lastRV = rv
	if s.i.HasSynced() {
		s.i.indexer.Bookmark(rv)
	}
}

// passLocked is passedLocked, and passes the version on to followers.
func (s *sink) passLocked(rv string) {
	s.passedLocked(rv)
	s.i.passOnLocked(func(into *sink) error { return into.Bookmark(rv) })
}

func (s *sink) notifyLocked(n notification) {
	if n.new != nil {
		s.i.detector.AddObject(n.new)
	}
	for l := range s.i.listeners {
		if !l.dormant {
			l.enqueue(n)
		}
	}
}

func (s *sink) keeps(obj any) bool {
	if s.i.keep == nil || s.i.keep(obj) {
		return true
	}
	if s.outside != nil {
		s.outside.Add(1)
	}
	return false
}

// transformed returns the object of an event as the informer stores it.
func (s *sink) transformed(obj any) (any, error) {
	if s.i.copies != nil && !s.stored {
		obj = s.i.copies.form(obj)
	}
	return s.trimmed(obj)
}

// trimmed returns it without what the transform removes.
func (s *sink) trimmed(obj any) (any, error) {
	if s.stored && s.i.strict {
		return s.i.shed(obj), nil
	}
	if s.i.transform == nil || s.stored {
		return obj, nil
	}
	out, err := s.i.transform(obj)
	if err != nil {
		return nil, fmt.Errorf("transforming %T: %w", obj, err)
	}
	return out, nil
}
