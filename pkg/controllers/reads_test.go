package controllers

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	fcache "k8s.io/client-go/tools/cache/testing"
	"k8s.io/controller-manager/pkg/clientbuilder"
	"k8s.io/kubernetes/cmd/kube-controller-manager/names"
	kubectrlmgrconfig "k8s.io/kubernetes/pkg/controller/apis/config"
	"k8s.io/kubernetes/pkg/controller/garbagecollector"
	"k8s.io/utils/ptr"
)

var podsResource = v1.SchemeGroupVersion.WithResource("pods")

// TestTrimKeepsWhatIsRead fills every field of an object's metadata and checks which ones are left.
// A new field upstream is dropped until somebody has checked whether the garbage collector reads
// it.
func TestTrimKeepsWhatIsRead(t *testing.T) {
	kept := []string{"Name", "Namespace", "UID", "ResourceVersion", "OwnerReferences", "Finalizers", "DeletionTimestamp"}
	m := allFields(t)
	whole := reflect.ValueOf(*m.DeepCopy())
	out, err := trim(&metav1.PartialObjectMetadata{ObjectMeta: m})
	if err != nil {
		t.Fatal(err)
	}
	left := reflect.ValueOf(out.(*metav1.PartialObjectMetadata).ObjectMeta)
	for i := range left.NumField() {
		name := left.Type().Field(i).Name
		want := reflect.Zero(left.Field(i).Type()).Interface()
		if slices.Contains(kept, name) {
			want = whole.Field(i).Interface()
		}
		if diff := gocmp.Diff(want, left.Field(i).Interface()); diff != "" {
			t.Errorf("field %s (-want +got):\n%s", name, diff)
		}
	}
}

// allFields returns metadata in which every field is set.
func allFields(t *testing.T) metav1.ObjectMeta {
	t.Helper()
	var m metav1.ObjectMeta
	now := metav1.Now().Rfc3339Copy()
	for name, value := range map[string]any{
		"Name": "n", "GenerateName": "n-", "Namespace": "ns", "SelfLink": "/n", "UID": types.UID("u"), "ResourceVersion": "7",
		"Generation": int64(3), "CreationTimestamp": now, "DeletionTimestamp": &now, "DeletionGracePeriodSeconds": ptr.To(int64(30)),
		"Labels": map[string]string{"a": "b"}, "Annotations": map[string]string{"c": "d"},
		"OwnerReferences": []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "o", UID: "ou", Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true)}},
		"Finalizers":      []string{metav1.FinalizerDeleteDependents}, "ManagedFields": []metav1.ManagedFieldsEntry{{Manager: "m"}},
	} {
		reflect.ValueOf(&m).Elem().FieldByName(name).Set(reflect.ValueOf(value))
	}
	for i := range reflect.TypeOf(m).NumField() {
		if reflect.ValueOf(m).Field(i).IsZero() {
			t.Errorf("field %s is new: see whether it is read, and give it a value here", reflect.TypeOf(m).Field(i).Name)
		}
	}
	return m
}

// TestTrimmedOnTheWire has the informers' clients watch an object with all fields. What they decode
// is what trim would have left of it.
func TestTrimmedOnTheWire(t *testing.T) {
	pod := &v1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: allFields(t), Spec: v1.PodSpec{NodeName: "n"}}
	partial := &metav1.PartialObjectMetadata{
		TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadata"}, ObjectMeta: allFields(t),
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf;stream=watch")
		if strings.Contains(r.Header.Get("Accept"), "PartialObjectMetadata") {
			sendAdded(t, w, partial)
			return
		}
		sendAdded(t, w, pod)
	}))
	defer server.Close()
	p := withFlags(func(*kubectrlmgrconfig.KubeControllerManagerConfiguration) {})
	p.root = clientbuilder.SimpleControllerClientBuilder{ClientConfig: &rest.Config{
		Host: server.URL, ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeProtobuf},
	}}
	typed, untyped, err := p.readers()
	if err != nil {
		t.Fatal(err)
	}
	pods, err := typed.CoreV1().Pods("").Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	metadata, err := untyped.Resource(podsResource).Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for object, from := range map[runtime.Object]watch.Interface{pod: pods, partial: metadata} {
		want, err := trim(object.DeepCopyObject())
		if err != nil {
			t.Fatal(err)
		}
		got := (<-from.ResultChan()).Object
		got.GetObjectKind().SetGroupVersionKind(object.GetObjectKind().GroupVersionKind())
		if diff := gocmp.Diff(want, any(got)); diff != "" {
			t.Errorf("%T (-trimmed +received):\n%s", object, diff)
		}
	}
}

// sendAdded sends an event as an API server does.
func sendAdded(t *testing.T, w io.Writer, object runtime.Object) {
	known := runtime.NewScheme()
	utilruntime.Must(scheme.AddToScheme(known))
	utilruntime.Must(metav1.AddMetaToScheme(known))
	event := &metav1.WatchEvent{Type: string(watch.Added)}
	var err error
	if event.Object.Raw, err = runtime.Encode(protobuf.NewSerializer(known, known), object); err != nil {
		t.Error(err)
	}
	frames := protobuf.LengthDelimitedFramer.NewFrameWriter(w)
	if err := streaming.NewEncoder(frames, protobuf.NewRawSerializer(known, known)).Encode(event); err != nil {
		t.Error(err)
	}
}

// TestTrimLeavesObjectsWhole checks that a whole object loses only its managed fields, because some
// objects are written back.
func TestTrimLeavesObjectsWhole(t *testing.T) {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"c": "d"}},
		Spec: v1.PodSpec{NodeName: "n", Containers: []v1.Container{{Name: "c", Image: "i"}}}, Status: v1.PodStatus{Phase: v1.PodRunning}}
	want := pod.DeepCopy()
	pod.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "m"}}
	got, err := trim(pod)
	if diff := gocmp.Diff(any(want), got); err != nil || diff != "" {
		t.Errorf("error %v, (-want +got):\n%s", err, diff)
	}
}

// The quota controller is given what the other controllers of its shard have asked for.
func TestQuotaIsBuiltLast(t *testing.T) {
	got := buildOrder([]string{names.TTLAfterFinishedController, names.ResourceQuotaController, names.DeploymentController})
	want := []string{names.DeploymentController, names.TTLAfterFinishedController, names.ResourceQuotaController}
	if !slices.Equal(got, want) {
		t.Errorf("controllers are built in the order %v, want %v", got, want)
	}
}

// TestGraphFromSlimMetadata gives upstream's graph builder the same random changes twice, with
// whole metadata and with what trim leaves of it. The graphs, and what is queued for deletion and
// orphaning, must be the same.
func TestGraphFromSlimMetadata(t *testing.T) {
	interesting := 0
	for seed := range uint64(20) {
		whole, slim := newGraph(t, nil), newGraph(t, trim)
		for _, change := range changes(rand.New(rand.NewPCG(seed, 7))) {
			for _, g := range []*graph{whole, slim} {
				change(g.source)
				<-g.told // otherwise client-go may merge changes, and not the same ones for both
			}
		}
		want, got := whole.end(t), slim.end(t)
		if diff := gocmp.Diff(want, got); diff != "" {
			t.Fatalf("seed %d: graphs of whole metadata (-) and of what trim leaves (+):\n%s", seed, diff)
		}
		if strings.Contains(want, "beingDeleted=\"true\"") && strings.Contains(want, "deletingDependents=\"true\"") && !strings.Contains(want, "orphan: 0") {
			interesting++
		}
	}
	if interesting < 5 {
		t.Errorf("only %d of 20 graphs have objects that are being deleted, in the foreground, and that orphan others", interesting)
	}
}

// changes returns random changes to a dozen objects of one kind that own each other.
func changes(r *rand.Rand) []func(*fcache.FakeControllerSource) {
	const objects = 12
	present := map[int]bool{}
	var all []func(*fcache.FakeControllerSource)
	for range 200 {
		i := r.IntN(objects)
		obj := randomMetadata(r, i, objects)
		switch {
		case !present[i]:
			present[i] = true
			all = append(all, func(s *fcache.FakeControllerSource) { s.Add(obj.DeepCopy()) })
		case r.IntN(6) == 0:
			delete(present, i)
			all = append(all, func(s *fcache.FakeControllerSource) { s.Delete(obj.DeepCopy()) })
		default:
			all = append(all, func(s *fcache.FakeControllerSource) { s.Modify(obj.DeepCopy()) })
		}
	}
	// Upstream's dump of a graph picks nodes at random for missing objects' dependents, and leaves
	// out objects that depend on nothing. So at the end every object exists and has an owner.
	for i := range objects {
		obj := randomMetadata(r, i, objects)
		obj.OwnerReferences = append(obj.OwnerReferences, metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: "nobody", UID: "uid-nobody"})
		if present[i] {
			all = append(all, func(s *fcache.FakeControllerSource) { s.Modify(obj.DeepCopy()) })
		} else {
			all = append(all, func(s *fcache.FakeControllerSource) { s.Add(obj.DeepCopy()) })
		}
	}
	return all
}

func randomMetadata(r *rand.Rand, i, objects int) *metav1.PartialObjectMetadata {
	m := metav1.ObjectMeta{
		Namespace: "ns", Name: fmt.Sprintf("pod-%d", i), UID: types.UID(fmt.Sprintf("uid-%d", i)), GenerateName: "pod-",
		Labels: map[string]string{"app": "web"}, Annotations: map[string]string{"note": "long"}, Generation: r.Int64(),
	}
	for owner := range objects {
		if owner != i && r.IntN(5) == 0 {
			m.OwnerReferences = append(m.OwnerReferences, metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: fmt.Sprintf("pod-%d", owner),
				UID: types.UID(fmt.Sprintf("uid-%d", owner)), BlockOwnerDeletion: ptr.To(r.IntN(2) == 0)})
		}
	}
	if r.IntN(3) == 0 {
		m.DeletionTimestamp = ptr.To(metav1.Now())
	}
	for _, f := range []string{metav1.FinalizerDeleteDependents, metav1.FinalizerOrphanDependents, "test.flotilla.dev/other"} {
		if r.IntN(3) == 0 {
			m.Finalizers = append(m.Finalizers, f)
		}
	}
	return &metav1.PartialObjectMetadata{ObjectMeta: m}
}

// graph is one of upstream's graphs, without workers.
type graph struct {
	source *fcache.FakeControllerSource
	// told receives after each notification of the informer.
	told      chan struct{}
	builder   *garbagecollector.GraphBuilder
	collector *garbagecollector.GarbageCollector
}

func newGraph(t *testing.T, transform cache.TransformFunc) *graph {
	t.Helper()
	source := fcache.NewFakeControllerSource()
	informer := cache.NewSharedIndexInformer(source, &metav1.PartialObjectMetadata{}, 0, cache.Indexers{})
	if err := informer.SetTransform(transform); err != nil {
		t.Fatal(err)
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(v1.SchemeGroupVersion.WithKind("Pod"), meta.RESTScopeNamespace)
	started := make(chan struct{})
	close(started)
	factory := oneInformer{informer}
	ctx, cancel := context.WithCancel(t.Context())
	g := &graph{source: source, told: make(chan struct{}, 1)}
	tell := func() { g.told <- struct{}{} }
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { tell() }, UpdateFunc: func(_, _ any) { tell() }, DeleteFunc: func(any) { tell() },
	})
	if err != nil {
		t.Fatal(err)
	}
	g.builder = garbagecollector.NewDependencyGraphBuilder(ctx, nil, resettable{mapper}, nil, factory, started)
	if g.collector, err = garbagecollector.NewComposedGarbageCollector(ctx, nil, nil, resettable{mapper}, g.builder); err != nil {
		t.Fatal(err)
	}
	var running wait.Group
	running.StartWithContext(ctx, g.builder.Run)
	running.StartWithContext(ctx, func(ctx context.Context) { g.collector.Sync(ctx, onlyPods{}, time.Hour) })
	running.StartWithContext(ctx, informer.RunWithContext)
	t.Cleanup(func() { cancel(); g.source.Shutdown() })
	g.eventually(t, func() bool { return g.builder.IsResourceSynced(podsResource) })
	return g
}

func (g *graph) eventually(t *testing.T, done func() bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, time.Minute, true, func(context.Context) (bool, error) { return done(), nil })
	if err != nil {
		t.Fatal(err)
	}
}

// end returns the graph once it has seen all changes.
func (g *graph) end(t *testing.T) string {
	t.Helper()
	last := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "last", UID: "uid-last"}}
	last.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "nobody", UID: "uid-nobody"}}
	g.source.Add(last)
	var dot string
	g.eventually(t, func() bool {
		recorder := httptest.NewRecorder()
		g.collector.DebuggingHandler().ServeHTTP(recorder, httptest.NewRequest("GET", "/graph", nil))
		dot = recorder.Body.String()
		return strings.Contains(dot, "uid-last")
	})
	// Vertices come in no particular order.
	vertices := strings.Split(dot, ";\n")
	slices.Sort(vertices)
	toDelete, toOrphan, _ := g.builder.GetGraphResources()
	return fmt.Sprintf("%s\ndelete: %d\norphan: %d\n", strings.Join(vertices, "\n"), toDelete.Len(), toOrphan.Len())
}

type oneInformer struct{ cache.SharedIndexInformer }

func (o oneInformer) ForResource(schema.GroupVersionResource) (informers.GenericInformer, error) {
	return o, nil
}
func (o oneInformer) Informer() cache.SharedIndexInformer { return o.SharedIndexInformer }
func (o oneInformer) Lister() cache.GenericLister         { return nil }
func (o oneInformer) Start(<-chan struct{})               {}

type resettable struct{ *meta.DefaultRESTMapper }

func (resettable) Reset() {}

type onlyPods struct {
	discovery.ServerResourcesInterface
}

func (onlyPods) ServerPreferredResources() ([]*metav1.APIResourceList, error) {
	return []*metav1.APIResourceList{{GroupVersion: "v1", APIResources: []metav1.APIResource{
		{Name: "pods", Namespaced: true, Kind: "Pod", Verbs: []string{"delete", "list", "watch"}},
	}}}, nil
}
