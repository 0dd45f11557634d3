package store

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/flotilla-kube/flotilla/pkg/informer/present"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// Copies says what an informer of slim copies holds whole: the objects of ranges that follow it,
// that are about to, or that are expected. So the process holds each object once. The informer's
// mutex guards it.
//
// A range comes to follow in one of two ways. If it was wanted when the informer listed, all of its
// objects are whole. Otherwise the range reads by itself at first, and joins: from then on, the
// informer stores changes in the range whole. When each of the range's objects is at the version
// that the range holds, or has changed since it joined, the informer takes over what the range
// holds, and the range follows.
type Copies struct {
	slim     func(obj any) any
	expected func() []shard.Range
	// whole are the ranges all of whose objects are whole. They are among those that are wanted.
	whole []shard.Range
	// joining has the informer's version when a follower-to-be joined. Objects of its range that
	// are newer are whole.
	joining map[*Sink]string
	// isListing says that a list is in progress, and listing are the ranges that it keeps whole.
	isListing bool
	listing   []shard.Range
	// isFollowing says that it follows an informer of whole objects, and holds no slim copies.
	isFollowing bool
}

// NewCopies returns what an informer of slim copies has: slim makes one of an object, and expected
// returns the ranges that will come.
func NewCopies(slim func(obj any) any, expected func() []shard.Range) *Copies {
	return &Copies{slim: slim, expected: expected, joining: map[*Sink]string{}}
}

// keeps reports whether the informer stores an object whole.
func (c *Copies) keeps(obj any) bool {
	if len(c.whole)+len(c.joining) == 0 {
		return false
	}
	namespace := namespaceOf(obj)
	if containsNamespace(c.whole, namespace) {
		return true
	}
	for into := range c.joining {
		if into.Within.ContainsNamespace(namespace) {
			return true
		}
	}
	return false
}

// form returns an object that was read as the informer stores it.
func (c *Copies) form(obj any) any {
	if c.keeps(obj) {
		return obj
	}
	return c.slim(obj)
}

// endList returns which ranges are whole once a list has been stored. Of what is not wanted whole
// any more it makes slim copies, in the list. What comes from another informer is whole.
func (c *Copies) endList(list []any, stored bool, wanted []shard.Range) (whole []shard.Range) {
	if stored {
		return wanted
	}
	whole = intersection(c.listing, wanted)
	if len(whole) < len(c.listing) {
		for n, obj := range list {
			if inAny(c.listing, obj) && !inAny(whole, obj) {
				list[n] = c.slim(obj)
			}
		}
	}
	return whole
}

// hold records that a list has been stored with these ranges whole, or all of it, which has come
// from another informer.
func (c *Copies) hold(whole []shard.Range, all bool) {
	c.isListing, c.listing, c.isFollowing, c.whole = false, nil, all, whole
}

// BeginList is for an informer of slim copies. It is called before each request for a list, or for
// a page of one; first is false for the further pages. It returns what becomes of the objects as
// they arrive. A Reflector may still ask for a list when it has ended: that changes nothing, and
// the error is ctx's.
func (i *Informer) BeginList(ctx context.Context, first bool) (take func(obj any) (taken any, ok bool), err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if ctx.Err() != nil { // under the lock: what comes next sees what an earlier call has done
		return nil, ctx.Err()
	}
	if first { // Slim copies have been made of what earlier pages have.
		i.copies.isListing, i.copies.listing = true, i.wantedLocked()
	}
	slim, whole := i.copies.slim, i.copies.listing
	return func(obj any) (any, bool) {
		if inAny(whole, obj) {
			return obj, true
		}
		return slim(obj), true
	}, nil
}

// mayHoldSlim reports whether the informer may hold slim copies where a follower needs whole
// objects.
func (i *Informer) mayHoldSlim(into *Sink) bool {
	return i.copies != nil && !into.Within.IsEverything()
}

// Wanted returns the ranges whose objects an informer of slim copies keeps whole.
func (i *Informer) Wanted() []shard.Range {
	if i.copies == nil {
		return nil
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.wantedLocked()
}

// wantedLocked returns the ranges whose objects are worth keeping whole.
func (i *Informer) wantedLocked() []shard.Range {
	wanted := slices.Clone(i.copies.expected())
	for into := range i.followers {
		wanted = append(wanted, into.Within)
	}
	for into := range i.copies.joining {
		wanted = append(wanted, into.Within)
	}
	return slices.DeleteFunc(wanted, shard.Range.IsEverything)
}

// WillHold reports whether the informer has all of what a follower needs, or will have it when it
// has listed, or when the follower that has joined is as far as the informer.
func (i *Informer) WillHold(into *Sink) bool {
	if !i.mayHoldSlim(into) {
		return true
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	_, joined := i.copies.joining[into]
	switch {
	case joined || slices.Contains(i.copies.whole, into.Within):
		return true
	case i.HasSynced():
		return false
	case i.copies.isListing:
		return slices.Contains(i.copies.listing, into.Within)
	default: // Follow checks again after the list, which may keep other ranges whole
		return slices.Contains(i.wantedLocked(), into.Within)
	}
}

// Join makes the informer store changes in the range of into whole from now on, until Unfollow. It
// does nothing while the informer is being listed.
func (i *Informer) Join(into *Sink) {
	if !i.mayHoldSlim(into) {
		return
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if _, joined := i.copies.joining[into]; !joined && !i.copies.isListing && i.HasSynced() && !i.isDeserted {
		i.copies.joining[into] = i.lastRV
	}
}

// adoptableLocked returns what the informer would take over from into to hold all of its range
// whole. It returns false if that is not enough: into has missed something.
func (i *Informer) adoptableLocked(into *Sink) (mine []any, ok bool) {
	if !i.mayHoldSlim(into) {
		return nil, true
	}
	if i.copies.isListing && !slices.Contains(i.copies.listing, into.Within) {
		return nil, false // It would not be whole after the list.
	}
	if slices.Contains(i.copies.whole, into.Within) {
		return nil, true
	}
	since, joined := i.copies.joining[into]
	if !joined {
		return nil, false
	}
	for _, namespace := range i.indexer.ListIndexFuncValues(cache.NamespaceIndex) {
		if !into.Within.ContainsNamespace(namespace) {
			continue
		}
		objects, err := i.indexer.ByIndex(cache.NamespaceIndex, namespace)
		if err != nil {
			return nil, false
		}
		for _, obj := range objects {
			held, exists, err := into.Informer.indexer.Get(obj)
			switch version := present.VersionOf(obj); {
			case err != nil:
				return nil, false
			case exists && sameVersion(held, obj):
				mine = append(mine, held)
			case version == since || !present.Reached(version, since): // a slim copy
				return nil, false
			}
		}
	}
	return mine, true
}

// adoptLocked makes the informer hold all of into's range whole, with what adoptableLocked has
// returned.
func (i *Informer) adoptLocked(into *Sink, mine []any) {
	for _, obj := range mine {
		i.exchangeLocked(obj)
	}
	if !i.mayHoldSlim(into) {
		return
	}
	delete(i.copies.joining, into)
	if !slices.Contains(i.copies.whole, into.Within) {
		i.copies.whole = append(slices.Clone(i.copies.whole), into.Within)
	}
}

// Reduce makes slim copies of the objects of ranges that are not wanted whole any more. It does
// nothing in an informer that is not of slim copies.
func (i *Informer) Reduce() {
	if i.copies == nil {
		return
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.reduceLocked(i.copies.whole)
}

// reduceLocked does so for some ranges that may have whole objects, even if not all of theirs are.
func (i *Informer) reduceLocked(ranges []shard.Range) {
	i.copies.whole = intersection(i.copies.whole, i.wantedLocked())
	left := slices.DeleteFunc(slices.Clone(ranges), func(r shard.Range) bool { return slices.Contains(i.copies.whole, r) })
	if len(left) > 0 && !i.isDeserted && !i.copies.isFollowing {
		i.slimLocked(func(obj any) bool { return inAny(left, obj) })
	}
}

// slimLocked makes slim copies of those objects that need not be whole.
func (i *Informer) slimLocked(of func(obj any) bool) {
	for _, obj := range i.indexer.List() {
		if of(obj) && !i.copies.keeps(obj) {
			i.exchangeLocked(i.copies.slim(obj))
		}
	}
}

// exchangeLocked replaces another copy of the same version by obj, here and in the followers. No
// handler is notified: nothing has changed.
func (i *Informer) exchangeLocked(obj any) {
	if i.strict {
		return // What it holds is made of either.
	}
	stored, exists, err := i.indexer.Get(obj)
	if err == nil && exists && stored != obj && sameVersion(stored, obj) {
		if err = i.indexer.Update(obj); err == nil && i.HasSynced() {
			i.indexer.Bookmark(i.lastRV) // Update has set it to that of the object
		}
		i.passOnLocked(func(into *Sink) error { into.exchange(obj); return nil })
	}
	if err != nil {
		utilruntime.HandleError(err)
	}
}

// inAny reports whether an object is in one of the ranges.
func inAny(ranges []shard.Range, obj any) bool {
	return len(ranges) > 0 && containsNamespace(ranges, namespaceOf(obj))
}

func containsNamespace(ranges []shard.Range, namespace string) bool {
	return slices.ContainsFunc(ranges, func(r shard.Range) bool { return r.ContainsNamespace(namespace) })
}

func intersection(a, b []shard.Range) []shard.Range {
	return slices.DeleteFunc(slices.Clone(a), func(r shard.Range) bool { return !slices.Contains(b, r) })
}

func namespaceOf(obj any) string {
	if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = tombstone.Obj
	}
	if accessor, err := meta.Accessor(obj); err == nil {
		return accessor.GetNamespace()
	}
	return ""
}
