package shadow

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"
)

const (
	// LastingAfter is the time after which a controller that still tries wants something that
	// nobody else has done.
	LastingAfter = 30 * time.Second
	// maxKinds bounds the kinds of writes that are counted separately, and maxObjects the objects,
	// of all kinds, whose attempts are followed: about 5 MB.
	maxKinds   = 1000
	maxObjects = 50_000
	// maxExamples is how many objects of each kind are named.
	maxExamples = 3
)

// Write is one kind of write that controllers would have sent.
type Write struct {
	Kind
	// Objects is how many objects there were, Lasting how many of these were tried again
	// LastingAfter after the first attempt of a series. Attempts are all requests.
	Objects  int   `json:"objects"`
	Lasting  int   `json:"lasting"`
	Attempts int64 `json:"attempts"`
	// Examples name the first lasting objects, or the first of all if there are none.
	Examples []string `json:"examples,omitempty"`
}

// writes counts refused requests.
type writes struct {
	mu      sync.Mutex
	byKind  map[Kind]*Write
	objects map[uint64]*attempts
	events  int64
	// uncounted are attempts beyond the bounds.
	uncounted int64
	// swept is when sweep last ran.
	swept time.Time
}

// attempts is the latest series of attempts on one object.
type attempts struct {
	first, last time.Time
	lasting     bool
}

// isOver reports whether an attempt now begins another series. A controller that fails waits about
// as long as it has tried, and at most twice that; after a longer pause the attempt has another
// cause, such as a second race with the leader.
func (a *attempts) isOver(now time.Time) bool {
	return now.Sub(a.last) > 2*a.last.Sub(a.first)+LastingAfter
}

// sweep makes room by forgetting the objects whose series is over and was short. It looks at all of
// them, and so runs only once in LastingAfter.
func (w *writes) sweep(now time.Time) {
	if now.Sub(w.swept) < LastingAfter {
		return
	}
	w.swept = now
	maps.DeleteFunc(w.objects, func(_ uint64, a *attempts) bool { return !a.lasting && a.isOver(now) })
}

func newWrites() *writes {
	return &writes{byKind: map[Kind]*Write{}, objects: map[uint64]*attempts{}}
}

func (w *writes) add(r request, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r.isEvent() {
		w.events++
		return
	}
	write := w.byKind[r.Kind]
	if write == nil {
		if len(w.byKind) >= maxKinds {
			w.uncounted++
			return
		}
		write = &Write{Kind: r.Kind}
		w.byKind[r.Kind] = write
	}
	write.Attempts++
	key := keyOf(r)
	object := w.objects[key]
	if object == nil {
		if len(w.objects) >= maxObjects {
			w.sweep(now)
		}
		if len(w.objects) >= maxObjects {
			w.uncounted++
			return
		}
		w.objects[key] = &attempts{first: now, last: now}
		write.Objects++
		if write.Lasting == 0 {
			write.name(r)
		}
		return
	}
	if object.isOver(now) {
		object.first = now
	}
	object.last = now
	if !object.lasting && now.Sub(object.first) >= LastingAfter {
		object.lasting = true
		if write.Lasting == 0 {
			write.Examples = nil
		}
		write.Lasting++
		write.name(r)
	}
}

func (w *Write) name(r request) {
	if name := r.object(); name != "" && len(w.Examples) < maxExamples {
		w.Examples = append(w.Examples, name)
	}
}

func keyOf(r request) uint64 {
	d := xxhash.New()
	for _, part := range []string{r.Client, r.Verb, r.Group, r.Resource, r.Subresource, r.namespace, r.name} {
		_, _ = d.WriteString(part)
		_, _ = d.Write([]byte{0})
	}
	return d.Sum64()
}

// list returns what has been counted: lasting writes first, then the most frequent.
func (w *writes) list() (all []Write, events, uncounted int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, write := range w.byKind {
		one := *write
		one.Examples = slices.Clone(write.Examples)
		all = append(all, one)
	}
	slices.SortFunc(all, func(a, b Write) int {
		return cmp.Or(cmp.Compare(b.Lasting, a.Lasting), cmp.Compare(b.Objects, a.Objects), a.Kind.compare(b.Kind))
	})
	return all, w.events, w.uncounted
}
