package shadow

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"
)

const (
	// LastingAfter is after what time a controller that tries again wants what nobody else has done.
	LastingAfter = 30 * time.Second
	// maxKinds bounds the kinds of writes that are counted apart, and maxObjects the objects, of all
	// kinds, of which it is known that they have been counted: about 4 MB.
	maxKinds   = 1000
	maxObjects = 50_000
	// maxExamples is how many objects of each kind are named.
	maxExamples = 3
)

// Write is what controllers would have written of one kind.
type Write struct {
	Kind
	// Objects are how many there were, Lasting how many of these were tried again LastingAfter after
	// the first attempt. Attempts are all requests.
	Objects  int   `json:"objects"`
	Lasting  int   `json:"lasting"`
	Attempts int64 `json:"attempts"`
	// Examples name the first objects that are lasting; the first of all where none is.
	Examples []string `json:"examples,omitempty"`
}

// writes counts refused requests.
type writes struct {
	mu      sync.Mutex
	byKind  map[Kind]*Write
	objects map[uint64]*attempts
	events  int64
	// uncounted are attempts that are beyond the bounds.
	uncounted int64
}

// attempts are those on one object.
type attempts struct {
	first   time.Time
	lasting bool
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
	switch {
	case object == nil && len(w.objects) >= maxObjects:
		w.uncounted++
	case object == nil:
		w.objects[key] = &attempts{first: now}
		write.Objects++
		if write.Lasting == 0 {
			write.name(r)
		}
	case !object.lasting && now.Sub(object.first) >= LastingAfter:
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

// list returns what has been counted: what lasts first, then what was most.
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
