package informer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/utils/ptr"
)

// harbour is an API server with ConfigMaps that keeps all of its past. Its lists and watches are as
// slow as real ones in virtual time: each watch lags on its own, tells where it is in bookmarks,
// and may be cut or told to list again, also while it is a list. It implements reader, and
// metadata.Interface for lists and short watches.
type harbour struct {
	mu     sync.Mutex
	random *rand.Rand
	// version is that of the last write to anything, past is all writes to ConfigMaps.
	version int
	past    []berthing
	// oldest is the version before which it knows no changes any more.
	oldest int
	down   bool
	// lag bounds how late events are.
	lag     time.Duration
	watches map[*mooring]struct{}
	lists   int
	// streams says that it knows lists in the form of watches, and streaming counts those under
	// way. streamed counts those that have come to their end, and changed the changes that they
	// told of before.
	streams                      bool
	streaming, streamed, changed int
	// bookmarks counts short watches of metadata that ended with a bookmark, and behind those of a
	// server that was behind.
	bookmarks, behind int
}

// inStream marks objects that a list in the form of a watch has sent. A Reflector transforms these,
// and so does the store that it fills from them.
const inStream = "in-stream"

// berthing is one write.
type berthing struct {
	version int
	event   watch.EventType
	object  *v1.ConfigMap
}

// mooring is one watch.
type mooring struct {
	out  chan watch.Event
	stop context.CancelFunc
	// gone is closed to have it told to list again, cut to end it.
	gone, cut chan struct{}
}

func (m *mooring) ResultChan() <-chan watch.Event { return m.out }
func (m *mooring) Stop()                          { m.stop() }

func newHarbour(random *rand.Rand) *harbour {
	return &harbour{random: random, version: 10, watches: map[*mooring]struct{}{}, lag: 50 * time.Millisecond}
}

func (h *harbour) upTo(limit time.Duration) time.Duration {
	if limit == 0 {
		return 0
	}
	return time.Duration(h.random.Int64N(int64(limit)))
}

// truth returns what there was at a version.
func (h *harbour) truth(version int) map[string]*v1.ConfigMap {
	objects := map[string]*v1.ConfigMap{}
	for _, b := range h.past {
		switch {
		case b.version > version:
			return objects
		case b.event == watch.Deleted:
			delete(objects, b.object.Namespace+"/"+b.object.Name)
		default:
			objects[b.object.Namespace+"/"+b.object.Name] = b.object
		}
	}
	return objects
}

// write changes something at random; sometimes of another kind.
func (h *harbour) write() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.version++
	if h.random.IntN(4) == 0 {
		return
	}
	object := configMap(fmt.Sprintf("ns-%c", 'a'+h.random.IntN(8)), strconv.Itoa(h.random.IntN(3)))
	object.UID = types.UID(fmt.Sprintf("%s/%d", object.UID, h.version))
	event := watch.Added
	if old, there := h.truth(h.version)[object.Namespace+"/"+object.Name]; there {
		object.UID = old.UID
		event = watch.Modified
		if h.random.IntN(3) == 0 {
			event = watch.Deleted
		}
	}
	object.ResourceVersion = strconv.Itoa(h.version)
	object.Data = map[string]string{"cargo": "heavy"}
	h.past = append(h.past, berthing{h.version, event, object})
}

func (h *harbour) set(change func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	change()
}

// disturb ends all watches, or has them told to list again.
func (h *harbour) disturb(gone bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if gone {
		h.oldest = h.version
	}
	for m := range h.watches {
		if gone {
			close(m.gone)
		} else {
			close(m.cut)
		}
		delete(h.watches, m)
	}
}

// listed returns how many lists there were, and the present version.
func (h *harbour) listed() (lists, version int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lists, h.version
}

// pause waits for what a request takes.
func (h *harbour) pause(ctx context.Context) error {
	h.mu.Lock()
	d := h.upTo(100 * time.Millisecond)
	h.mu.Unlock()
	select {
	case <-time.After(d):
	case <-ctx.Done():
		return ctx.Err()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.down {
		return errors.New("the harbour is closed")
	}
	return nil
}

// List implements reader. What may be older than the present sometimes is.
func (h *harbour) List(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	if err := h.pause(ctx); err != nil {
		return nil, err
	}
	h.mu.Lock()
	version := h.version
	if o.ResourceVersion != "" {
		version = h.sinceLocked(o.ResourceVersion)
	}
	h.lists++
	var list v1.ConfigMapList
	list.ResourceVersion = strconv.Itoa(version)
	for _, object := range h.truth(version) {
		list.Items = append(list.Items, *object.DeepCopy())
	}
	h.mu.Unlock()
	return &list, h.pause(ctx)
}

// sinceLocked returns the version of an answer that must be of at least this one.
func (h *harbour) sinceLocked(text string) int {
	least, err := strconv.Atoi(text)
	if err != nil || least == 0 {
		panic("list at version " + text)
	}
	if least = max(least, h.oldest); least > h.version {
		return h.version
	}
	return least + h.random.IntN(h.version-least+1)
}

// Watch implements reader.
func (h *harbour) Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	if err := h.pause(ctx); err != nil {
		return nil, err
	}
	if streams(o) {
		return h.stream(ctx, o)
	}
	from, err := strconv.Atoi(o.ResourceVersion)
	if err != nil {
		return nil, fmt.Errorf("no watch from %q", o.ResourceVersion)
	}
	ctx, cancel := context.WithCancel(ctx)
	m := &mooring{out: make(chan watch.Event), stop: cancel, gone: make(chan struct{}), cut: make(chan struct{})}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.watches[m] = struct{}{}
	if from < h.oldest {
		close(m.gone)
		delete(h.watches, m)
	}
	go h.tell(ctx, m, from)
	return m, nil
}

// stream begins a list in the form of a watch.
func (h *harbour) stream(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.streams {
		return nil, errors.New("no lists in the form of watches")
	}
	version := h.version
	if o.ResourceVersion != "" {
		version = h.sinceLocked(o.ResourceVersion)
	}
	var list []*v1.ConfigMap
	for _, key := range slices.Sorted(maps.Keys(h.truth(version))) {
		list = append(list, h.truth(version)[key])
	}
	h.lists++
	h.streaming++
	ctx, cancel := context.WithCancel(ctx)
	m := &mooring{out: make(chan watch.Event), stop: cancel, gone: make(chan struct{}), cut: make(chan struct{})}
	h.watches[m] = struct{}{}
	go func() {
		ended := sync.OnceFunc(func() { h.set(func() { h.streaming-- }) })
		defer ended()
		h.tellAll(ctx, m, list, version, ended)
	}()
	return m, nil
}

// tellAll sends all of a list, some of what has happened since, and that this was the list; then it
// goes on as a watch.
func (h *harbour) tellAll(ctx context.Context, m *mooring, list []*v1.ConfigMap, version int, ended func()) {
	marked := func(c *v1.ConfigMap) *v1.ConfigMap {
		c = c.DeepCopy()
		c.Annotations = map[string]string{inStream: "yes"}
		return c
	}
	over := func() {
		h.set(func() { delete(h.watches, m) })
		close(m.out)
	}
	for _, object := range list {
		if !h.wait(ctx, m, 4) || !m.send(ctx, watch.Event{Type: watch.Added, Object: marked(object)}) {
			over()
			return
		}
	}
	for {
		h.mu.Lock()
		at := h.afterLocked(version)
		end := at == len(h.past) || h.random.IntN(4) == 0
		var next berthing
		if !end {
			next = h.past[at]
		}
		h.mu.Unlock()
		if end {
			break
		}
		if !h.wait(ctx, m, 4) || !m.send(ctx, watch.Event{Type: next.event, Object: marked(next.object)}) {
			over()
			return
		}
		h.set(func() { h.changed++ })
		version = next.version
	}
	bookmark := &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{ResourceVersion: strconv.Itoa(version),
		Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}}}
	if !m.send(ctx, watch.Event{Type: watch.Bookmark, Object: bookmark}) {
		over()
		return
	}
	h.set(func() { h.streamed++ })
	ended()
	h.tell(ctx, m, version)
}

// afterLocked returns where in the past that begins which is later than version.
func (h *harbour) afterLocked(version int) int {
	at, _ := slices.BinarySearchFunc(h.past, version+1, func(b berthing, v int) int { return cmp.Compare(b.version, v) })
	return at
}

func (m *mooring) send(ctx context.Context, e watch.Event) bool {
	select {
	case m.out <- e:
		return true
	case <-ctx.Done():
		return false
	}
}

// wait waits for a part of what an event is late, and reports whether the watch goes on.
func (h *harbour) wait(ctx context.Context, m *mooring, part time.Duration) bool {
	h.mu.Lock()
	wait := h.upTo(h.lag) / part
	h.mu.Unlock()
	select {
	case <-time.After(10*time.Millisecond + wait):
		return true
	case <-ctx.Done():
	case <-m.cut:
	case <-m.gone:
		status := apierrors.NewResourceExpired("too old").Status()
		m.send(ctx, watch.Event{Type: watch.Error, Object: &status})
	}
	return false
}

// tell sends what happens after a version until the watch ends.
func (h *harbour) tell(ctx context.Context, m *mooring, from int) {
	defer close(m.out)
	defer h.set(func() { delete(h.watches, m) })
	for h.wait(ctx, m, 1) {
		h.mu.Lock()
		at := h.afterLocked(from)
		news := slices.Clone(h.past[at:])
		news = news[:min(len(news), 1+h.random.IntN(3))]
		now, bookmark := h.version, h.random.IntN(20) == 0 && len(h.past) == at+len(news)
		h.mu.Unlock()
		for _, b := range news {
			if !m.send(ctx, watch.Event{Type: b.event, Object: b.object.DeepCopy()}) {
				return
			}
			from = b.version
		}
		if bookmark {
			from = now
			if !m.send(ctx, watch.Event{Type: watch.Bookmark, Object: &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{ResourceVersion: strconv.Itoa(now)}}}) {
				return
			}
		}
	}
}

// Resource implements metadata.Interface.
func (h *harbour) Resource(schema.GroupVersionResource) metadata.Getter { return manifest{harbour: h} }

// manifest lists metadata.
type manifest struct {
	metadata.Getter
	harbour *harbour
}

// List lists three objects a page, as if these were many. The next page is of the same version as
// the first.
func (m manifest) List(ctx context.Context, o metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	h := m.harbour
	if err := h.pause(ctx); err != nil {
		return nil, err
	}
	h.mu.Lock()
	h.lists++
	version, from := h.version, 0
	if o.Continue != "" {
		if _, err := fmt.Sscanf(o.Continue, "%d/%d", &version, &from); err != nil {
			panic(err)
		}
	}
	all := h.truth(version)
	keys := slices.Sorted(maps.Keys(all))
	list := &metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(version)}}
	for _, key := range keys[from:min(len(keys), from+3)] {
		list.Items = append(list.Items, metav1.PartialObjectMetadata{ObjectMeta: *all[key].ObjectMeta.DeepCopy()})
	}
	if from+3 < len(all) {
		list.Continue = fmt.Sprintf("%d/%d", version, from+3)
		if h.random.IntN(2) == 0 { // As if there were many more; else it does not tell.
			list.RemainingItemCount = ptr.To(int64(2 * pageSize))
		}
	}
	h.mu.Unlock()
	return list, h.pause(ctx)
}

// Watch is a short one: it tells what has happened up to a moment, perhaps one that has gone by,
// and that this was all. It may be cut before.
func (m manifest) Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	h := m.harbour
	if !o.AllowWatchBookmarks || ptr.Deref(o.TimeoutSeconds, 0) < 3 {
		return nil, errors.New("this would end without a bookmark")
	}
	if err := h.pause(ctx); err != nil {
		return nil, err
	}
	from, err := strconv.Atoi(o.ResourceVersion)
	if err != nil || from == 0 {
		return nil, fmt.Errorf("a watch from %q begins with all objects", o.ResourceVersion)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if from < h.oldest {
		return nil, apierrors.NewResourceExpired("too old")
	}
	behind := max(0, h.random.IntN(7)-4)
	ctx, cancel := context.WithCancel(ctx)
	w := &mooring{out: make(chan watch.Event), stop: cancel}
	go h.tellChanges(ctx, w, from, behind, h.random.IntN(8) == 0)
	return w, nil
}

// tellChanges sends changes after a version, on a server that is so many versions behind, and a
// bookmark unless it is cut.
func (h *harbour) tellChanges(ctx context.Context, w *mooring, from, behind int, cut bool) {
	defer close(w.out)
	for part := range 4 {
		select {
		case <-time.After(300 * time.Millisecond):
		case <-ctx.Done():
			return
		}
		h.mu.Lock()
		to := h.version - behind
		news := slices.Clone(h.past[h.afterLocked(from):])
		h.mu.Unlock()
		for _, b := range news {
			if b.version > to {
				break
			}
			if !w.send(ctx, watch.Event{Type: b.event, Object: &metav1.PartialObjectMetadata{ObjectMeta: *b.object.ObjectMeta.DeepCopy()}}) {
				return
			}
		}
		if from = max(from, to); part < 3 {
			continue
		}
		mark := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{ResourceVersion: strconv.Itoa(to)}}
		if !cut && w.send(ctx, watch.Event{Type: watch.Bookmark, Object: mark}) {
			h.set(func() {
				if h.bookmarks++; behind > 0 {
					h.behind++
				}
			})
		}
	}
}

var (
	_ reader             = &harbour{}
	_ metadata.Interface = &harbour{}
	_ http.RoundTripper  = &apiServer{}
)
