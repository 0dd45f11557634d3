package controllers

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/kubernetes/cmd/kube-controller-manager/names"
	"k8s.io/kubernetes/pkg/controller/endpointslice"

	"github.com/flotilla-kube/flotilla/pkg/controllers/catalogue"
)

// TestUpdatesAwaited checks that controllers that remember their own writes, and controllers of
// groups, do not wait for their caches after an update.
func TestUpdatesAwaited(t *testing.T) {
	for _, row := range catalogue.All() {
		if row.AwaitUpdates && row.Scope != catalogue.ScopeNamespaced {
			t.Errorf("%s awaits its updates, but the queues of groups are as long as upstream's", row.Name)
		}
	}
	for name, want := range map[string]bool{
		names.DeploymentController: true, names.EndpointSliceController: false, names.EndpointSliceMirroringController: false,
		names.EndpointsController: false,
	} {
		if row, _ := catalogue.Lookup(name); row.AwaitUpdates != want {
			t.Errorf("%s awaits its updates: %t, want %t", name, row.AwaitUpdates, want)
		}
	}
}

// TestSyncsOfEndpointSlices counts the syncs of upstream's EndpointSlice controller for each change
// of a Pod. If its handlers see a generation that no answer has told it of, it takes the slice as
// changed by another writer. So if the answer waits for the handlers, each change costs a second
// sync.
func TestSyncsOfEndpointSlices(t *testing.T) {
	const changes = 5
	for name, tc := range map[string]struct {
		awaited bool
		want    float64
	}{
		"as the catalogue has it": {false, changes},
		"awaited":                 {true, 2 * changes},
	} {
		t.Run(name, func(t *testing.T) {
			if row, _ := catalogue.Lookup(names.EndpointSliceController); row.AwaitUpdates {
				t.Fatal("the catalogue awaits its updates")
			}
			synctest.Test(t, func(t *testing.T) {
				w := newSlices(t, tc.awaited)
				w.start(t)
				before := w.syncs(t)
				for i := range changes {
					w.move(t, fmt.Sprintf("10.0.0.%d", i+2))
				}
				if got := w.syncs(t) - before; got != tc.want {
					t.Errorf("%v syncs for %d changes, want %v", got, changes, tc.want)
				}
				if got, want := w.server.address(), fmt.Sprintf("10.0.0.%d", changes+1); got != want {
					t.Errorf("the slice has address %q, want %q", got, want)
				}
			})
		})
	}
}

// sliceFixture is a Service with one Pod, and upstream's EndpointSlice controller.
type sliceFixture struct {
	cluster   *fake.Clientset
	server    *sliceServer
	informers informers.SharedInformerFactory
	run       func(context.Context)
}

func newSlices(t *testing.T, awaited bool) *sliceFixture {
	t.Helper()
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pod", UID: "pod", Labels: map[string]string{"app": "a"}},
		Spec:       v1.PodSpec{NodeName: "node"},
		Status: v1.PodStatus{PodIP: "10.0.0.1", PodIPs: []v1.PodIP{{IP: "10.0.0.1"}}, Phase: v1.PodRunning,
			Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}}},
	}
	service := &v1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "service", UID: "service"},
		Spec: v1.ServiceSpec{
			Selector: map[string]string{"app": "a"}, IPFamilies: []v1.IPFamily{v1.IPv4Protocol}, Ports: []v1.ServicePort{{Port: 80}},
		},
	}
	w := &sliceFixture{cluster: fake.NewClientset(pod, service, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}})}
	w.informers = informers.NewSharedInformerFactory(w.cluster, 0)
	w.server = &sliceServer{watched: w.cluster}
	lister := w.informers.Discovery().V1().EndpointSlices()
	var seen transport.WrapperFunc
	if awaited {
		seen = readYourWrites("", func(ctx context.Context, _ schema.GroupResource, version string) error {
			return wait.PollUntilContextCancel(ctx, time.Millisecond, true, func(context.Context) (bool, error) {
				slice, err := lister.Lister().EndpointSlices("ns").Get(sliceName)
				return err == nil && slice.ResourceVersion == version, nil
			})
		})
	}
	client, err := kubernetes.NewForConfig(&rest.Config{
		Host: "http://server.test", Transport: w.server, WrapTransport: transport.Wrappers(seen, nil, nil),
		ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeJSON},
	})
	if err != nil {
		t.Fatal(err)
	}
	core := w.informers.Core().V1()
	c := endpointslice.NewController(t.Context(), core.Pods(), core.Services(), core.Nodes(), lister, 100, client, 0)
	w.run = func(ctx context.Context) { c.Run(ctx, 1) }
	return w
}

// start runs the controller until the end of the test, and returns when it has nothing left to do.
func (w *sliceFixture) start(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	w.informers.StartWithContext(ctx)
	var running sync.WaitGroup
	running.Go(func() { w.run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
		w.informers.Shutdown()
	})
	rest10s()
}

// rest10s lets virtual time pass until everything that was queued with a delay is done.
func rest10s() {
	time.Sleep(10 * time.Second) // virtual
	synctest.Wait()
}

// move gives the Pod another address.
func (w *sliceFixture) move(t *testing.T, ip string) {
	t.Helper()
	pod, err := w.cluster.CoreV1().Pods("ns").Get(t.Context(), "pod", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pod.Status.PodIP, pod.Status.PodIPs = ip, []v1.PodIP{{IP: ip}}
	version, _ := strconv.Atoi(pod.ResourceVersion)
	pod.ResourceVersion = strconv.Itoa(version + 1)
	if _, err := w.cluster.CoreV1().Pods("ns").Update(t.Context(), pod, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	rest10s()
}

// syncs returns how many syncs the process's EndpointSlice controllers have made.
func (w *sliceFixture) syncs(t *testing.T) float64 {
	t.Helper()
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := 0.0
	for _, family := range families {
		if family.GetName() == "endpoint_slice_controller_syncs" {
			for _, m := range family.GetMetric() {
				all += m.GetCounter().GetValue()
			}
		}
	}
	return all
}

const sliceName = "slice"

// sliceServer is an API server with room for one EndpointSlice. Its watches deliver a write shortly
// after the answer.
type sliceServer struct {
	watched *fake.Clientset

	mu    sync.Mutex
	slice discovery.EndpointSlice
}

func (s *sliceServer) address() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.slice.Endpoints) == 0 {
		return ""
	}
	return s.slice.Endpoints[0].Addresses[0]
}

// RoundTrip implements http.RoundTripper.
func (s *sliceServer) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	answer := func(status int, object any) (*http.Response, error) {
		body, err := json.Marshal(object)
		return &http.Response{
			Request: r, StatusCode: status, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(body)),
		}, err
	}
	var slice discovery.EndpointSlice
	if err := json.NewDecoder(r.Body).Decode(&slice); err != nil {
		return nil, err
	}
	slice.Name, slice.UID, slice.Generation = sliceName, types.UID(sliceName), s.slice.Generation+1
	slice.ResourceVersion = strconv.FormatInt(slice.Generation, 10)
	slice.TypeMeta = metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"}
	s.slice = slice
	tracker, gvr := s.watched.Tracker(), discovery.SchemeGroupVersion.WithResource("endpointslices")
	status := http.StatusOK
	switch r.Method {
	case http.MethodPost:
		status = http.StatusCreated
		time.AfterFunc(time.Millisecond, func() { _ = tracker.Create(gvr, slice.DeepCopy(), slice.Namespace) })
	case http.MethodPut:
		time.AfterFunc(time.Millisecond, func() { _ = tracker.Update(gvr, slice.DeepCopy(), slice.Namespace) })
	default:
		return answer(http.StatusMethodNotAllowed, metav1.Status{Status: metav1.StatusFailure, Code: http.StatusMethodNotAllowed})
	}
	return answer(status, slice)
}
