// Package informertest has what tests of informers share: a source of objects, and a handler that
// records what it is told.
package informertest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	fcache "k8s.io/client-go/tools/cache/testing"
	"k8s.io/klog/v2"

	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// Main runs the tests of a package without the log and the error handlers of client-go: Reflectors
// report connections that tests cut. The default handlers also rate-limit errors by a clock that
// all bubbles of virtual time would share, so that one of them could pause for ever.
func Main(m *testing.M) {
	klog.SetLogger(logr.Discard())
	utilruntime.ErrorHandlers = nil
	os.Exit(m.Run())
}

// Recorder records a handler's notifications.
type Recorder struct {
	// Repetitions says that updates which change nothing are recorded, too.
	Repetitions bool
	mu          sync.Mutex
	calls       []string
}

func (r *Recorder) note(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, fmt.Sprintf(format, args...))
}

// Take returns the notifications since the last call.
func (r *Recorder) Take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	calls := r.calls
	r.calls = nil
	return calls
}

// OnAdd implements cache.ResourceEventHandler.
func (r *Recorder) OnAdd(obj any, initial bool) { r.note("add %s initial=%v", Name(obj), initial) }

// OnUpdate implements cache.ResourceEventHandler. Unless told otherwise, it leaves out repetitions:
// client-go passes those of a list on to handlers that want resyncs, and at first takes every
// handler for one of them.
func (r *Recorder) OnUpdate(old, obj any) {
	if Name(old) != Name(obj) || r.Repetitions {
		r.note("update %s -> %s", Name(old), Name(obj))
	}
}

// OnDelete implements cache.ResourceEventHandler.
func (r *Recorder) OnDelete(obj any) {
	if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		r.note("missed %s %s", Name(gone.Obj), gone.Key)
		return
	}
	r.note("delete %s", Name(obj))
}

// CheckCalls waits for the bubble, and compares what a recorder of who was told with want, object by
// object.
func CheckCalls(t *testing.T, who string, r *Recorder, want ...string) {
	t.Helper()
	synctest.Wait()
	if diff := cmp.Diff(want, SortedBy(r.Take())); diff != "" {
		t.Errorf("%s was told (-want +got):\n%s", who, diff)
	}
}

// SortedBy sorts notifications by object and keeps the order within each object: a list has no
// order.
func SortedBy(calls []string) []string {
	key := func(call string) string {
		var verb, object string
		fmt.Sscan(call, &verb, &object)
		if i := slices.Index([]byte(object), '@'); i >= 0 {
			object = object[:i]
		}
		return object
	}
	slices.SortStableFunc(calls, func(a, b string) int { return strings.Compare(key(a), key(b)) })
	return calls
}

// Name returns namespace/name@version.
func Name(obj any) string {
	m, err := meta.Accessor(obj)
	if err != nil {
		return fmt.Sprintf("%T", obj)
	}
	return fmt.Sprintf("%s/%s@%s", m.GetNamespace(), m.GetName(), m.GetResourceVersion())
}

// ConfigMap returns one with managed fields.
func ConfigMap(namespace, name string) *v1.ConfigMap {
	return &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name, UID: types.UID(namespace + "/" + name),
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "test"}},
	}}
}

// MustAdd adds a handler.
func MustAdd(t *testing.T, i cache.SharedInformer, h cache.ResourceEventHandler) cache.ResourceEventHandlerRegistration {
	t.Helper()
	handle, err := i.AddEventHandler(h)
	if err != nil {
		t.Fatal(err)
	}
	return handle
}

// Run runs an informer until the test ends, and waits for it.
func Run(t *testing.T, i cache.SharedInformer) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); i.RunWithContext(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
}

// Server is a source that can be made unreachable.
type Server struct {
	*fcache.FakeControllerSource
	// Down says that it cannot be reached, Brief that watches end at once.
	Down, Brief atomic.Bool
}

// NewServer returns a Server without objects.
func NewServer() *Server { return &Server{FakeControllerSource: fcache.NewFakeControllerSource()} }

// Cut ends all watches and refuses requests until it is called with false.
func (s *Server) Cut(down bool) {
	if down {
		synctest.Wait() // both informers must have seen the same before the cut
		s.Down.Store(true)
		s.ResetWatch()
		return
	}
	s.Down.Store(false)
}

// Close ends all watches.
func (s *Server) Close() { s.Broadcaster.Shutdown() }

// ListWatch reads from it.
func (s *Server) ListWatch() cache.ListerWatcher {
	return WithoutStreaming{&cache.ListWatch{
		ListWithContextFunc: func(_ context.Context, o metav1.ListOptions) (runtime.Object, error) {
			if s.Down.Load() {
				return nil, errors.New("cut off")
			}
			return s.List(o)
		},
		WatchFuncWithContext: func(_ context.Context, o metav1.ListOptions) (watch.Interface, error) {
			if s.Down.Load() {
				return nil, errors.New("cut off")
			}
			return s.Watch(o)
		},
	}}
}

// Interrupt ends all watches twice within a second, as an API server under load does. Other than
// Cut, it forgets no changes.
func (s *Server) Interrupt() {
	synctest.Wait() // both informers must have seen the same before
	s.Brief.Store(true)
	s.Broadcaster.Shutdown()
	s.Broadcaster = watch.NewBroadcaster(100, watch.WaitIfChannelFull)
	synctest.Wait() // all watch again
	s.Brief.Store(false)
}

// Watch implements cache.Watcher.
func (s *Server) Watch(o metav1.ListOptions) (watch.Interface, error) {
	if s.Brief.Load() {
		return NewStream(true, false), nil
	}
	return s.FakeControllerSource.Watch(o)
}

// WithoutStreaming tells reflectors that the source has no streaming lists.
type WithoutStreaming struct{ *cache.ListWatch }

// IsWatchListSemanticsUnSupported implements an interface of client-go's Reflector.
func (WithoutStreaming) IsWatchListSemanticsUnSupported() bool { return true }

// WithData returns the ConfigMap of a namespace with some data, which slim copies lack.
func WithData(namespace, data string) *v1.ConfigMap {
	c := ConfigMap(namespace, "one")
	c.Data = map[string]string{"v": data}
	return c
}

// SlimConfigMap makes a slim copy: metadata only.
func SlimConfigMap(obj any) any {
	return &v1.ConfigMap{ObjectMeta: obj.(*v1.ConfigMap).ObjectMeta}
}

// InRange returns what keeps the objects of a range.
func InRange(r shard.Range) func(any) bool {
	return func(obj any) bool {
		m, err := meta.Accessor(obj)
		return err == nil && r.ContainsNamespace(m.GetNamespace())
	}
}

// Stream is a watch like the decoder of a server's answer: it delivers one event after the other
// until it is stopped or, if ends is set, until the answer ends.
type Stream struct {
	events []watch.Event
	ends   bool
	// deaf streams do not notice Stop while they deliver an event, like watch.FakeWatcher.
	deaf   bool
	result chan watch.Event
	done   chan struct{}
	stop   func()
}

// NewStream begins a Stream.
func NewStream(ends, deaf bool, events ...watch.Event) *Stream {
	s := &Stream{events: events, ends: ends, deaf: deaf, result: make(chan watch.Event), done: make(chan struct{})}
	s.stop = sync.OnceFunc(func() { close(s.done) })
	go s.run()
	return s
}

func (s *Stream) run() {
	defer close(s.result)
	done := s.done
	if s.deaf {
		done = nil
	}
	for _, event := range s.events {
		select {
		case s.result <- event:
		case <-done:
			return
		}
	}
	if !s.ends {
		<-s.done
	}
}

// ResultChan implements watch.Interface.
func (s *Stream) ResultChan() <-chan watch.Event { return s.result }

// Stop implements watch.Interface.
func (s *Stream) Stop() { s.stop() }
