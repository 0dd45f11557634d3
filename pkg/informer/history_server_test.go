package informer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
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

	"github.com/flotilla-kube/flotilla/pkg/informer/internal/informertest"
	"github.com/flotilla-kube/flotilla/pkg/informer/internal/listwatch"
	"github.com/flotilla-kube/flotilla/pkg/informer/present"
)

// historyServer is an API server for ConfigMaps that remembers every write. Its lists and watches
// are as slow as real ones, in virtual time: each watch lags by itself, sends bookmarks, and may be
// cut or expire, even while it delivers a list. It implements listwatch.Reader, and metadata.Interface for
// lists and short watches.
type historyServer struct {
	mu     sync.Mutex
	random *rand.Rand
	// version is that of the last write to any resource, past has all writes to ConfigMaps.
	version int
	past    []pastWrite
	// oldest is the version before which the server has forgotten its changes.
	oldest int
	down   bool
	// brief is how many of the next watches end at once.
	brief int
	// lag bounds how late events are.
	lag     time.Duration
	watches map[*openWatch]struct{}
	lists   int
	// streams says that the server supports lists in the form of watches. streaming counts those in
	// progress, streamed those that completed, and changed the changes that were sent within them.
	streams                      bool
	streaming, streamed, changed int
	// bookmarks counts short watches of metadata that ended with a bookmark, and behind those among
	// them in which the server was behind.
	bookmarks, behind int
}

// inStream marks objects that a list in the form of a watch has sent. A Reflector transforms these,
// and the store that it fills transforms them again.
const inStream = "in-stream"

// pastWrite is a write to a ConfigMap.
type pastWrite struct {
	version int
	event   watch.EventType
	object  *v1.ConfigMap
}

// openWatch is a watch in progress.
type openWatch struct {
	out  chan watch.Event
	stop context.CancelFunc
	// gone is closed to make the watch expire, so that the client lists again; cut is closed to end
	// it.
	gone, cut chan struct{}
}

func (m *openWatch) ResultChan() <-chan watch.Event { return m.out }
func (m *openWatch) Stop()                          { m.stop() }

func newHistoryServer(random *rand.Rand) *historyServer {
	return &historyServer{random: random, version: 10, watches: map[*openWatch]struct{}{}, lag: 50 * time.Millisecond}
}

func (h *historyServer) upTo(limit time.Duration) time.Duration {
	if limit == 0 {
		return 0
	}
	return time.Duration(h.random.Int64N(int64(limit)))
}

// truth returns the objects that existed at a version.
func (h *historyServer) truth(version int) map[string]*v1.ConfigMap {
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

// write changes a random ConfigMap, or counts a write to another resource.
func (h *historyServer) write() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.version++
	if h.random.IntN(4) == 0 {
		return
	}
	object := informertest.ConfigMap(fmt.Sprintf("ns-%c", 'a'+h.random.IntN(8)), strconv.Itoa(h.random.IntN(3)))
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
	object.Data = map[string]string{"payload": "heavy"}
	h.past = append(h.past, pastWrite{h.version, event, object})
}

func (h *historyServer) set(change func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	change()
}

// disturb ends all watches, or makes them expire.
func (h *historyServer) disturb(gone bool) {
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

// listed returns how many lists there have been, and the current version.
func (h *historyServer) listed() (lists, version int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lists, h.version
}

// pause waits as long as a request takes.
func (h *historyServer) pause(ctx context.Context) error {
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
	if h.down && h.random.IntN(4) > 0 {
		return &url.Error{Op: "Get", URL: "http://server.test", Err: io.EOF}
	}
	if h.down {
		return errors.New("the API server is down")
	}
	return nil
}

// List implements listwatch.Reader. An answer that may be old sometimes is. Half of the lists come in pages
// of four objects, all of the version of the first.
func (h *historyServer) List(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	if err := h.pause(ctx); err != nil {
		return nil, err
	}
	h.mu.Lock()
	version, from := h.version, 0
	paged := o.Continue != "" || h.random.IntN(2) == 0
	switch {
	case o.Continue != "":
		if _, err := fmt.Sscanf(o.Continue, "%d/%d", &version, &from); err != nil {
			panic(err)
		}
	case o.ResourceVersion != "" && o.Limit > 0 && o.ResourceVersionMatch == "":
		// Exactly this version, as API servers answer. etcd still has it.
		var err error
		if version, err = strconv.Atoi(o.ResourceVersion); err != nil {
			panic(err)
		}
	case o.ResourceVersion != "":
		version = h.sinceLocked(o.ResourceVersion)
	}
	if from == 0 {
		h.lists++
	}
	all := h.truth(version)
	keys := slices.Sorted(maps.Keys(all))
	list := &v1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(version)}}
	to := len(keys)
	if paged {
		to = min(to, from+4)
	}
	for _, key := range keys[from:to] {
		list.Items = append(list.Items, *all[key].DeepCopy())
	}
	if to < len(keys) {
		list.Continue = fmt.Sprintf("%d/%d", version, to)
	}
	h.mu.Unlock()
	return list, h.pause(ctx)
}

// sinceLocked returns a random version for an answer that must be at least this new.
func (h *historyServer) sinceLocked(text string) int {
	least, err := strconv.Atoi(text)
	if err != nil || least == 0 {
		panic("list at version " + text)
	}
	if least = max(least, h.oldest); least > h.version {
		return h.version
	}
	return least + h.random.IntN(h.version-least+1)
}

// Watch implements listwatch.Reader.
func (h *historyServer) Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	if err := h.pause(ctx); err != nil {
		return nil, err
	}
	if listwatch.Streams(o) {
		return h.stream(ctx, o)
	}
	from, err := strconv.Atoi(o.ResourceVersion)
	if err != nil {
		return nil, fmt.Errorf("no watch from %q", o.ResourceVersion)
	}
	ctx, cancel := context.WithCancel(ctx)
	m := &openWatch{out: make(chan watch.Event), stop: cancel, gone: make(chan struct{}), cut: make(chan struct{})}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.watches[m] = struct{}{}
	switch {
	case from < h.oldest:
		close(m.gone)
		delete(h.watches, m)
	case h.brief > 0:
		h.brief--
		close(m.cut)
		delete(h.watches, m)
	}
	go h.tell(ctx, m, from)
	return m, nil
}

// stream begins a list in the form of a watch.
func (h *historyServer) stream(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
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
	m := &openWatch{out: make(chan watch.Event), stop: cancel, gone: make(chan struct{}), cut: make(chan struct{})}
	h.watches[m] = struct{}{}
	go func() {
		ended := sync.OnceFunc(func() { h.set(func() { h.streaming-- }) })
		defer ended()
		h.tellAll(ctx, m, list, version, ended)
	}()
	return m, nil
}

// tellAll sends the objects of a list, some changes since then, and the bookmark that ends the
// list. After that it continues as a watch.
func (h *historyServer) tellAll(ctx context.Context, m *openWatch, list []*v1.ConfigMap, version int, ended func()) {
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
		var next pastWrite
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

// afterLocked returns the index of the first write after version.
func (h *historyServer) afterLocked(version int) int {
	at, _ := slices.BinarySearchFunc(h.past, version+1, func(b pastWrite, v int) int { return cmp.Compare(b.version, v) })
	return at
}

func (m *openWatch) send(ctx context.Context, e watch.Event) bool {
	select {
	case m.out <- e:
		return true
	case <-ctx.Done():
		return false
	}
}

// wait delays an event, and reports whether the watch continues.
func (h *historyServer) wait(ctx context.Context, m *openWatch, part time.Duration) bool {
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

// tell sends all changes after a version until the watch ends.
func (h *historyServer) tell(ctx context.Context, m *openWatch, from int) {
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
func (h *historyServer) Resource(schema.GroupVersionResource) metadata.Getter {
	return metadataClient{history: h}
}

// metadataClient lists metadata.
type metadataClient struct {
	metadata.Getter
	history *historyServer
}

// List lists at most three objects a page, so that few objects make many pages. All pages are of the
// version of the first.
func (m metadataClient) List(ctx context.Context, o metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	h := m.history
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
	size := min(3, int(o.Limit))
	for _, key := range keys[from:min(len(keys), from+size)] {
		list.Items = append(list.Items, metav1.PartialObjectMetadata{ObjectMeta: *all[key].ObjectMeta.DeepCopy()})
	}
	if from+size < len(all) {
		list.Continue = fmt.Sprintf("%d/%d", version, from+size)
		switch h.random.IntN(3) { // In the third case it does not say how many remain.
		case 0:
			list.RemainingItemCount = ptr.To(int64(2 * present.PageSize)) // as if there were many
		case 1:
			list.RemainingItemCount = ptr.To(int64(len(all) - from - size))
		}
	}
	h.mu.Unlock()
	return list, h.pause(ctx)
}

// Watch is a short watch: it sends the changes up to some version, perhaps an old one, and then a
// bookmark. It may be cut before that.
func (m metadataClient) Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	h := m.history
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
	w := &openWatch{out: make(chan watch.Event), stop: cancel}
	go h.tellChanges(ctx, w, from, behind, h.random.IntN(8) == 0)
	return w, nil
}

// tellChanges sends the changes after a version, as a server does that is some versions behind, and
// a bookmark unless the watch is cut.
func (h *historyServer) tellChanges(ctx context.Context, w *openWatch, from, behind int, cut bool) {
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
	_ listwatch.Reader   = &historyServer{}
	_ metadata.Interface = &historyServer{}
	_ http.RoundTripper  = &apiServer{}
)
