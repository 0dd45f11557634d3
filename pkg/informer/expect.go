package informer

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// Expect says which ranges the process holds or is about to hold. When an informer of slim copies
// lists a resource, it keeps the objects of these ranges whole. A range's informer of whole objects
// that begins after the informer of slim copies then follows it, and the process does not read
// those objects twice. If it begins before that list has ended, it waits for it, for a minute at
// most. What is expected only after that list is read by the range itself. Objects of a range that
// is no longer expected, and that nobody holds, become slim copies. Ranges are compared as they
// are: a part of an expected range is not expected.
//
// It may be called concurrently with everything else. It does not wait for the API server; slim
// copies of what is no longer expected are made before it returns.
func (p *Pool) Expect(ranges []shard.Range) {
	ranges = slices.Clone(ranges)
	p.expected.Store(&ranges)
	p.mu.Lock()
	feeds := make([]*feed, 0, len(p.feeds))
	for _, f := range p.feeds {
		feeds = append(feeds, f)
	}
	p.mu.Unlock()
	for _, f := range feeds {
		f.mu.Lock()
		f.slimLocked()
		f.mu.Unlock()
	}
}

// wholeFollower is a range that follows an informer of slim copies, which holds the range's objects
// whole.
type wholeFollower struct {
	within shard.Range
	into   *sink
	lead   *shared
	// left is closed once the range does not follow any more.
	left chan struct{}
}

// follows reports whether the range follows the informer of slim copies that p fills.
func (w *wholeFollower) follows(p *portion) bool { return p.slim != nil && p.into.i == w.lead.Informer }

// slimOfLocked returns the portion that fills an informer of slim copies; nil for none.
func (f *feed) slimOfLocked(s *shared) *portion {
	for p := range f.portionsLocked(true) {
		if p.into.i == s.Informer {
			return p
		}
	}
	return nil
}

// holderOfWhole returns the informer of slim copies that holds the range whole, or will after its
// first list, and the feed that fills it; nil if there is none.
func (p *Pool) holderOfWhole(key sharedKey, within shard.Range) (*shared, *feed) {
	p.mu.Lock()
	s, f := p.shared[sharedKey{resource: key.resource, slim: true}], p.feeds[key]
	running := s != nil && s.running
	p.mu.Unlock()
	if !running || f == nil {
		return nil, nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	slim := f.slimOfLocked(s)
	switch {
	case slim == nil:
		return nil, nil
	case slices.Contains(slim.whole, within):
		return s, f
	case s.HasSynced():
		return nil, nil
	case slim.reading.listing && slices.Contains(slim.reading.whole, within):
		return s, f
	case !slim.reading.began && slices.Contains(f.wantedLocked(), within):
		return s, f // follow checks again after the list, which may keep other ranges whole
	default:
		return nil, nil
	}
}

// follow makes w follow its lead. It returns false if the lead does not hold the range whole, or
// cannot be followed.
func (f *feed) follow(w *wholeFollower) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	slim := f.slimOfLocked(w.lead)
	if slim == nil || !slices.Contains(slim.whole, w.within) || !w.lead.follow(w.into) {
		return false
	}
	f.followers[w] = struct{}{}
	return true
}

// unfollow ends what follow began. It may be called more than once.
func (f *feed) unfollow(w *wholeFollower) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.unfollowLocked(w)
	f.slimLocked()
}

func (f *feed) unfollowLocked(w *wholeFollower) {
	if _, here := f.followers[w]; !here {
		return
	}
	w.lead.unfollow(w.into)
	delete(f.followers, w)
	close(w.left)
}

// endWholeLocked ends all that follow what p fills, and makes slim copies of what it holds whole.
// Something else will fill it.
func (f *feed) endWholeLocked(p *portion) {
	for w := range f.followers {
		if w.follows(p) {
			f.unfollowLocked(w)
		}
	}
	f.reduceLocked(p, nil)
}

// wantedLocked returns the ranges whose objects are worth keeping whole.
func (f *feed) wantedLocked() []shard.Range {
	var wanted []shard.Range
	if expected := f.pool.expected.Load(); expected != nil {
		wanted = slices.Clone(*expected)
	}
	for w := range f.followers {
		if !slices.Contains(wanted, w.within) {
			wanted = append(wanted, w.within)
		}
	}
	return slices.DeleteFunc(wanted, shard.Range.IsEverything)
}

// slimLocked makes slim copies of the objects of ranges that are not wanted whole any more.
func (f *feed) slimLocked() {
	wanted := f.wantedLocked()
	for p := range f.portionsLocked(true) {
		f.reduceLocked(p, intersection(p.whole, wanted))
	}
}

// reduceLocked leaves whole in p only the objects of these ranges, which are some of those that are
// whole now.
func (f *feed) reduceLocked(p *portion, whole []shard.Range) {
	before := p.whole
	p.whole = whole
	if len(whole) == len(before) {
		return
	}
	for _, obj := range p.into.i.indexer.List() {
		if inAny(before, obj) && !inAny(whole, obj) {
			if err := p.into.exchange(f.formLocked(p, obj)); err != nil {
				utilruntime.HandleError(err)
			}
		}
	}
}

// inAny reports whether an object is in one of the ranges.
func inAny(ranges []shard.Range, obj any) bool {
	if len(ranges) == 0 {
		return false
	}
	namespace := namespaceOf(obj)
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
