package informer

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"path"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/flotilla-kube/flotilla/pkg/informer/internal/informertest"
	"github.com/flotilla-kube/flotilla/pkg/informer/internal/listwatch"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

var (
	configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	nodes      = schema.GroupVersionResource{Version: "v1", Resource: "nodes"}
	berths     = schema.GroupVersionResource{Group: "test.flotilla.dev", Version: "v1", Resource: "berths"}
)

// apiServer answers probes and lists of metadata.
type apiServer struct {
	mu    sync.Mutex
	asked []*http.Request
	// shards says that lists echo the selector.
	shards bool
	// fails is the status of every answer; 0 for success.
	fails int
	// hangs makes requests wait until their caller gives up.
	hangs bool
	// takes is how long an answer takes.
	takes time.Duration
	// items are the content of lists, at version 7, for resources without an entry in resources, or
	// for all if fixed.
	items []metav1.PartialObjectMetadata
	fixed bool
	// resources have metadata to list, by name.
	resources map[string]*fakeResource
}

// servers are the API servers of the tests' pools.
var servers sync.Map

// serve makes the pool's API server list the metadata of r.
func serve(p *Pool, gvr schema.GroupVersionResource, r listwatch.Reader) {
	s, known := servers.Load(p)
	fake, ok := r.(*fakeResource)
	if !known || !ok {
		return
	}
	s.(*apiServer).set(func(s *apiServer) {
		if s.resources == nil {
			s.resources = map[string]*fakeResource{}
		}
		s.resources[gvr.Resource] = fake
	})
}

// metadata returns the metadata of r's objects.
func (r *fakeResource) metadata() (metav1.PartialObjectMetadataList, error) {
	var list metav1.PartialObjectMetadataList
	objects, err := r.Server.List(metav1.ListOptions{})
	if err != nil {
		return list, err
	}
	accessor, err := meta.ListAccessor(objects)
	if err != nil {
		return list, err
	}
	list.ResourceVersion = accessor.GetResourceVersion()
	return list, meta.EachListItem(objects, func(obj runtime.Object) error {
		object, err := meta.Accessor(obj)
		if err == nil {
			list.Items = append(list.Items, metav1.PartialObjectMetadata{ObjectMeta: *meta.AsPartialObjectMetadata(object).ObjectMeta.DeepCopy()})
		}
		return err
	})
}

func (s *apiServer) set(change func(*apiServer)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
}

// requests returns the requests since the last call.
func (s *apiServer) requests() []*http.Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	asked := s.asked
	s.asked = nil
	return asked
}

// RoundTrip implements http.RoundTripper.
func (s *apiServer) RoundTrip(request *http.Request) (*http.Response, error) {
	s.mu.Lock()
	s.asked = append(s.asked, request)
	shards, fails, hangs, items, takes := s.shards, s.fails, s.hangs, s.items, s.takes
	known := s.resources[path.Base(request.URL.Path)]
	if s.fixed {
		known = nil
	}
	s.mu.Unlock()
	time.Sleep(takes) // virtual
	if hangs {
		<-request.Context().Done()
		return nil, request.Context().Err()
	}
	if fails != 0 {
		status := metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Code: int32(fails)}
		return respond(request, fails, status), nil
	}
	list := metav1.PartialObjectMetadataList{Items: items}
	list.ResourceVersion = "7"
	if known != nil {
		var err error
		if list, err = known.metadata(); err != nil {
			return nil, err
		}
	}
	if strings.Contains(request.Header.Get("Accept"), "PartialObjectMetadataList") {
		list.TypeMeta = metav1.TypeMeta{Kind: "PartialObjectMetadataList", APIVersion: "meta.k8s.io/v1"}
	}
	if selector := request.URL.Query().Get("shardSelector"); shards && selector != "" {
		list.ShardInfo = &metav1.ShardInfo{Selector: selector}
	}
	return respond(request, http.StatusOK, list), nil
}

func respond(request *http.Request, code int, content any) *http.Response {
	body, err := json.Marshal(content)
	if err != nil {
		panic(err)
	}
	return &http.Response{
		StatusCode: code, Request: request, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(bytes.NewReader(body)),
	}
}

// newTestPool returns a pool whose API server is s.
func newTestPool(t *testing.T, s *apiServer, c clock.PassiveClock, resync time.Duration) *Pool {
	t.Helper()
	config := &rest.Config{Host: "http://server.test", Transport: s, QPS: -1}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	objectMetadata, err := metadata.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	p, err := NewPool(PoolConfig{Client: client, Metadata: objectMetadata, Clock: c, Resync: func() time.Duration { return resync }})
	if err != nil {
		t.Fatal(err)
	}
	servers.Store(p, s)
	t.Cleanup(func() { servers.Delete(p) })
	return p
}

// fakeResource has the objects of a resource, and can be made unreachable. It implements listwatch.Reader.
type fakeResource struct {
	*informertest.Server
	mu sync.Mutex
	// options are the options of all requests.
	options []metav1.ListOptions
	// watches are the watches in progress.
	watches map[*expiring]struct{}
}

// expiring is a watch that can expire, so that its client lists again.
type expiring struct {
	watch.Interface
	resource *fakeResource
	out      chan watch.Event
	gone     chan struct{}
	stop     func()
}

func (w *expiring) ResultChan() <-chan watch.Event { return w.out }
func (w *expiring) Stop()                          { w.stop() }

// run forwards events until the watch is stopped, ends or expires.
func (w *expiring) run(stopped chan struct{}) {
	defer close(w.out)
	defer w.Interface.Stop()
	for {
		event, open := watch.Event{}, false
		select {
		case event, open = <-w.Interface.ResultChan():
		case <-w.gone:
			status := apierrors.NewResourceExpired("too old").Status()
			event, open = watch.Event{Type: watch.Error, Object: &status}, true
		case <-stopped:
		}
		if !open {
			return
		}
		select {
		case w.out <- event:
		case <-stopped:
			return
		}
	}
}

// expire makes all watches expire.
func (r *fakeResource) expire() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for w := range r.watches {
		close(w.gone)
	}
}

// end ends all watches, as a server does from time to time.
func (r *fakeResource) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for w := range r.watches {
		w.Interface.Stop()
	}
}

// watchers returns the number of watches in progress.
func (r *fakeResource) watchers() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.watches)
}

func newFakeResource(t *testing.T) *fakeResource {
	r := &fakeResource{Server: informertest.NewServer(), watches: map[*expiring]struct{}{}}
	t.Cleanup(r.Close)
	return r
}

// List implements listwatch.Reader.
func (r *fakeResource) List(_ context.Context, o metav1.ListOptions) (runtime.Object, error) {
	r.note(o)
	if r.Down.Load() {
		return nil, errors.New("cut off")
	}
	return r.Server.List(o)
}

// Watch implements listwatch.Reader, without lists in the form of watches.
func (r *fakeResource) Watch(_ context.Context, o metav1.ListOptions) (watch.Interface, error) {
	if r.Down.Load() || o.SendInitialEvents != nil {
		return nil, errors.New("cut off, or a streaming list")
	}
	r.note(o)
	incoming, err := r.Server.Watch(o)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	w, stopped := &expiring{Interface: incoming, resource: r, out: make(chan watch.Event), gone: make(chan struct{})}, make(chan struct{})
	w.stop = sync.OnceFunc(func() {
		close(stopped)
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.watches, w)
	})
	r.watches[w] = struct{}{}
	go w.run(stopped)
	return w, nil
}

func (r *fakeResource) note(o metav1.ListOptions) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.options = append(r.options, o)
}

// requests returns the number of lists and watches so far.
func (r *fakeResource) requests() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.options)
}

// halves are the two factories of a process with two shards.
func halves(t *testing.T, p *Pool) (low, high *Factory) {
	t.Helper()
	ranges, err := shard.EqualRanges(2)
	if err != nil {
		t.Fatal(err)
	}
	low, high = p.NewFactory(ranges[0], nil), p.NewFactory(ranges[1], nil)
	t.Cleanup(low.Shutdown)
	t.Cleanup(high.Shutdown)
	return low, high
}

// reading returns a factory's informer of a resource, as ForResource would, that reads from r.
func (f *Factory) reading(gvr schema.GroupVersionResource, r listwatch.Reader, example runtime.Object) cache.SharedIndexInformer {
	_, isConfigMap := example.(*v1.ConfigMap)
	serve(f.pool, gvr, r)
	return inner(f.informer(sharedKey{resource: gvr}, nil, isConfigMap, r, example))
}

// readingSlim returns a factory's slim informer of a resource, as Slimmed would, that reads from r.
func (f *Factory) readingSlim(gvr schema.GroupVersionResource, r listwatch.Reader, example runtime.Object) cache.SharedIndexInformer {
	serve(f.pool, gvr, r)
	return inner(f.informer(sharedKey{resource: gvr, slim: true}, nil, true, r, example))
}

// inner returns the Informer behind an informer of a factory.
func inner(i cache.SharedIndexInformer) cache.SharedIndexInformer {
	return i.(*given).SharedIndexInformer
}

func newNamespace(name string) *v1.Namespace {
	return &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

func newNode(name string) *v1.Node { return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}} }
