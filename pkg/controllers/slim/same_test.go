package slim

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/kubernetes/pkg/controller/devicetainteviction"
	"k8s.io/kubernetes/pkg/controller/nodelifecycle"
	"k8s.io/kubernetes/pkg/controller/podgc"
	"k8s.io/kubernetes/pkg/controller/volume/attachdetach"
	"k8s.io/kubernetes/pkg/controller/volume/persistentvolume"
	"k8s.io/kubernetes/pkg/volume"
	"k8s.io/kubernetes/pkg/volume/csi"
	"k8s.io/kubernetes/pkg/volume/hostpath"
	"k8s.io/utils/ptr"
)

// orders is how often the history is run at most. Two workers of node-lifecycle may reach a Node at
// the same instant, and then the second may or may not overwrite the other's taint. So any history
// on whole Pods may agree with any on slim copies. A field that a copy lacks would show in all of
// them.
const orders = 6

// TestSameWrites runs the controllers that get slim copies through one history, on whole Pods and
// on slim copies. They must write the same.
func TestSameWrites(t *testing.T) {
	var whole, slim [][]string
	diff := "no run"
	for len(whole) < orders && diff != "" {
		synctest.Test(t, func(t *testing.T) { whole = append(whole, history(t, false)) })
		synctest.Test(t, func(t *testing.T) { slim = append(slim, history(t, true)) })
		for _, w := range whole {
			for _, s := range slim {
				if diff != "" {
					diff = cmp.Diff(w, s)
				}
			}
		}
	}
	t.Logf("%d histories of each kind until two agreed", len(whole))
	if diff != "" {
		t.Errorf("no history on whole Pods (-) agrees with one on slim copies (+); the last two:\n%s", diff)
	}
	for _, want := range []string{
		"update pods/status ns/on-silent", "patch pods/status ns/orphan", "delete pods ns/orphan", "delete pods ns/evicted", "delete pods ns/tainted",
		"patch pods/status ns/tainted", "patch pods/status ns/unscheduled", "delete pods ns/unscheduled", "create volumeattachments", "delete volumeattachments",
		"waiting for pod waits to be scheduled", "Volume is used by pods: ns/recycled",
	} {
		if !slices.ContainsFunc(whole[0], func(w string) bool { return strings.Contains(w, want) }) {
			t.Errorf("nobody wrote %q: the history does not cover it. Writes:\n%s", want, strings.Join(whole[0], "\n"))
		}
	}
}

// stage is a cluster in which controllers run.
type stage struct {
	t      *testing.T
	client *fake.Clientset
	mu     sync.Mutex
	// events are the Events that are sent past the fake client.
	events []string
	// version is the version of the last object that the history has written.
	version int
}

// core has a REST client, from which upstream makes another client.
func (s *stage) core() corev1.CoreV1Interface { return restful{s.client.CoreV1(), s} }

// RoundTrip implements http.RoundTripper for Events.
func (s *stage) RoundTrip(request *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(request.Body)
	if err != nil {
		return nil, err
	}
	var event v1.Event
	if err := json.Unmarshal(body, &event); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = append(s.events, "event: "+eventText(&event))
	return &http.Response{StatusCode: http.StatusCreated, Request: request, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(bytes.NewReader(body))}, nil
}

type restful struct {
	corev1.CoreV1Interface
	stage *stage
}

// RESTClient implements corev1.CoreV1Interface.
func (r restful) RESTClient() rest.Interface {
	config := &rest.Config{Host: "http://server.test", APIPath: "/api", Transport: r.stage, QPS: -1,
		ContentConfig: rest.ContentConfig{GroupVersion: &v1.SchemeGroupVersion, NegotiatedSerializer: scheme.Codecs.WithoutConversion()}}
	client, err := rest.RESTClientFor(config)
	if err != nil {
		r.stage.t.Error(err)
	}
	return client
}

// withREST is the fake client with a REST client for Events.
type withREST struct {
	kubernetes.Interface
	stage *stage
}

// CoreV1 implements kubernetes.Interface.
func (c withREST) CoreV1() corev1.CoreV1Interface { return c.stage.core() }

// eventText returns the content of an Event.
func eventText(e *v1.Event) string {
	return fmt.Sprintf("%s %s/%s %s: %s %s", e.Type, e.InvolvedObject.Namespace, e.InvolvedObject.Name, e.InvolvedObject.UID, e.Reason, e.Message)
}

// history returns the controllers' writes, sorted within each step.
func history(t *testing.T, slimmed bool) []string {
	s := &stage{t: t, client: fake.NewClientset()}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	s.scene()
	var log []string
	seen := len(s.client.Actions())
	note := func(step string) {
		synctest.Wait()
		actions := s.client.Actions()
		var part []string
		for _, a := range actions[seen:] {
			if w := written(t, a); w != "" {
				part = append(part, step+": "+w)
			}
		}
		seen = len(actions)
		s.mu.Lock()
		for _, e := range s.events {
			part = append(part, step+": "+e)
		}
		s.events = nil
		s.mu.Unlock()
		slices.Sort(part)
		log = append(log, slices.Compact(part)...) // The binder's workers sometimes write the same twice.
	}
	s.run(ctx, slimmed, &running)
	time.Sleep(5 * time.Minute) // virtual: several rounds of each controller
	note("start")
	for _, step := range s.steps() {
		step.act()
		time.Sleep(step.wait) // virtual
		note(step.name)
	}
	return log
}

func (s *stage) run(ctx context.Context, slimmed bool, running *sync.WaitGroup) {
	t := s.t
	f := informers.NewSharedInformerFactory(s.client, 0)
	pods, nodes := f.Core().V1().Pods(), f.Core().V1().Nodes()
	var base kubernetes.Interface = withREST{s.client, s}
	client := base
	if slimmed {
		if err := pods.Informer().SetTransform(func(obj any) (any, error) { return Pod(obj), nil }); err != nil {
			t.Fatal(err)
		}
		client = Client(client)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	lifecycle, err := nodelifecycle.NewNodeLifecycleController(ctx, f.Coordination().V1().Leases(), pods, nodes, f.Apps().V1().DaemonSets(), client,
		5*time.Second, time.Minute, 50*time.Second, 0.1, 0.01, 50, 0.55)
	must(err)
	gc := podgc.NewPodGC(ctx, base, pods, nodes, 1)
	resources := f.Resource().V1()
	eviction := devicetainteviction.New(base, pods, resources.ResourceClaims(), resources.ResourceSlices(), resources.DeviceTaintRules(),
		resources.DeviceClasses(), "device-taint-eviction")
	binder, err := persistentvolume.NewController(ctx, persistentvolume.ControllerParameters{
		KubeClient: base, SyncPeriod: 15 * time.Second, VolumePlugins: hostpath.ProbeVolumePlugins(volume.VolumeConfig{
			RecyclerPodTemplate: volume.NewPersistentVolumeRecyclerPodTemplate(), RecyclerMinimumTimeout: 60, RecyclerTimeoutIncrement: 1}),
		VolumeInformer: f.Core().V1().PersistentVolumes(), ClaimInformer: f.Core().V1().PersistentVolumeClaims(),
		ClassInformer: f.Storage().V1().StorageClasses(), PodInformer: pods, NodeInformer: nodes,
	})
	must(err)
	attacher, err := attachdetach.NewAttachDetachController(ctx, base, pods, nodes, f.Core().V1().PersistentVolumeClaims(),
		f.Core().V1().PersistentVolumes(), f.Storage().V1().CSINodes(), f.Storage().V1().CSIDrivers(), f.Storage().V1().VolumeAttachments(),
		csi.ProbeVolumePlugins(), nil, false, time.Minute, false, attachdetach.DefaultTimerConfig)
	must(err)
	f.StartWithContext(ctx)
	f.WaitForCacheSyncWithContext(ctx)
	running.Go(func() { lifecycle.Run(ctx) })
	running.Go(func() { gc.Run(ctx) })
	running.Go(func() { _ = eviction.Run(ctx, 2) })
	running.Go(func() { binder.Run(ctx) })
	running.Go(func() { attacher.Run(ctx) })
	running.Go(func() { <-ctx.Done(); f.Shutdown() })
}

// The history's own changes go to the tracker, which does not record them as actions.

// next gives an object the next version.
func (s *stage) next(obj runtime.Object) {
	s.version++
	obj.(metav1.Object).SetResourceVersion(fmt.Sprint(s.version))
}

func (s *stage) add(obj runtime.Object) {
	s.t.Helper()
	s.next(obj)
	if err := s.client.Tracker().Add(obj); err != nil {
		s.t.Fatal(err)
	}
}

func (s *stage) get(resource schema.GroupVersionResource, namespace, name string) runtime.Object {
	s.t.Helper()
	obj, err := s.client.Tracker().Get(resource, namespace, name)
	if err != nil {
		s.t.Fatal(err)
	}
	return obj.DeepCopyObject()
}

func (s *stage) set(resource schema.GroupVersionResource, obj metav1.Object) {
	s.t.Helper()
	s.next(obj.(runtime.Object))
	if err := s.client.Tracker().Update(resource, obj.(runtime.Object), obj.GetNamespace()); err != nil {
		s.t.Fatal(err)
	}
}

func (s *stage) remove(resource, namespace, name string) {
	s.t.Helper()
	if err := s.client.Tracker().Delete(v1.SchemeGroupVersion.WithResource(resource), namespace, name); err != nil {
		s.t.Fatal(err)
	}
}

// scene creates the initial objects.
func (s *stage) scene() {
	for _, name := range []string{"alive", "silent", "goes"} {
		s.add(&v1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Annotations: map[string]string{
				"volumes.kubernetes.io/controller-managed-attach-detach": "true"}},
			Status: v1.NodeStatus{Conditions: []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue,
				LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now()}}},
		})
		s.add(&storagev1.CSINode{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: "driver", NodeID: name}}},
		})
	}
	s.add(&storagev1.CSIDriver{
		ObjectMeta: metav1.ObjectMeta{Name: "driver"}, Spec: storagev1.CSIDriverSpec{AttachRequired: ptr.To(true)}})
	wait := storagev1.VolumeBindingWaitForFirstConsumer
	s.add(&storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: "later"}, Provisioner: "kubernetes.io/no-provisioner", VolumeBindingMode: &wait})
	s.volume("disk", v1.PersistentVolumeReclaimRetain, v1.PersistentVolumeSource{
		CSI: &v1.CSIPersistentVolumeSource{Driver: "driver", VolumeHandle: "handle"}})
	s.volume("old", v1.PersistentVolumeReclaimRecycle, v1.PersistentVolumeSource{HostPath: &v1.HostPathVolumeSource{Path: "/none"}})
	s.add(&v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "unbound", Namespace: "ns", UID: "unbound"},
		Spec:       v1.PersistentVolumeClaimSpec{StorageClassName: ptr.To("later"), AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}},
		Status:     v1.PersistentVolumeClaimStatus{Phase: v1.ClaimPending},
	})
	claims := func(name string) []v1.Volume {
		return []v1.Volume{
			{Name: "scratch", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}},
			{Name: "disk", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: name}}},
			{Name: "token", VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{}}},
		}
	}
	s.pod("uses", "alive", func(p *v1.Pod) { p.Spec.Volumes = claims("disk") })
	s.pod("recycled", "alive", func(p *v1.Pod) { p.Spec.Volumes = claims("old") })
	s.pod("waits", "", func(p *v1.Pod) { p.Spec.Volumes = claims("unbound"); p.Status.Phase = v1.PodPending })
	s.pod("on-silent", "silent", nil)
	s.pod("orphan", "goes", nil)
	s.pod("done", "alive", func(p *v1.Pod) { p.Status.Phase = v1.PodSucceeded })
	s.pod("unscheduled", "", func(p *v1.Pod) { p.DeletionTimestamp = ptr.To(metav1.Now()); p.Finalizers = []string{"test/hold"} })
	s.pod("tainted", "alive", func(p *v1.Pod) {
		p.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "device", ResourceClaimTemplateName: ptr.To("template")}}
		p.Status.ResourceClaimStatuses = []v1.PodResourceClaimStatus{{Name: "device", ResourceClaimName: ptr.To("device")}}
	})
	s.add(&resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "device", Namespace: "ns", UID: "device", OwnerReferences: []metav1.OwnerReference{{
			APIVersion: "v1", Kind: "Pod", Name: "tainted", UID: "uid-tainted", Controller: ptr.To(true)}}},
		Status: resourceapi.ResourceClaimStatus{
			ReservedFor: []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: "tainted", UID: "uid-tainted"}},
			Allocation: &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{Results: []resourceapi.DeviceRequestAllocationResult{{
				Request: "one", Driver: "devices", Pool: "pool", Device: "device-1"}}}},
		},
	})
	s.slice()
}

func (s *stage) slice() {
	s.add(&resourceapi.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: "slice"},
		Spec: resourceapi.ResourceSliceSpec{Driver: "devices", Pool: resourceapi.ResourcePool{Name: "pool", ResourceSliceCount: 1}, NodeName: ptr.To("alive"),
			Devices: []resourceapi.Device{{Name: "device-1"}}},
	})
}

// volume makes a volume with a claim of the same name.
func (s *stage) volume(name string, policy v1.PersistentVolumeReclaimPolicy, source v1.PersistentVolumeSource) {
	size := v1.ResourceList{}
	s.add(&v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("volume-" + name)},
		Spec: v1.PersistentVolumeSpec{PersistentVolumeSource: source, PersistentVolumeReclaimPolicy: policy, Capacity: size,
			AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
			ClaimRef:    &v1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: "ns", Name: name, UID: types.UID("claim-" + name)}},
		Status: v1.PersistentVolumeStatus{Phase: v1.VolumeBound},
	})
	s.add(&v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns", UID: types.UID("claim-" + name),
			Annotations: map[string]string{"pv.kubernetes.io/bind-completed": "yes"}},
		Spec:   v1.PersistentVolumeClaimSpec{VolumeName: name, StorageClassName: ptr.To(""), AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}},
		Status: v1.PersistentVolumeClaimStatus{Phase: v1.ClaimBound},
	})
}

func (s *stage) pod(name, node string, change func(*v1.Pod)) {
	p := whole(name, node)
	p.CreationTimestamp = metav1.Now()
	p.Generation, p.Status.ObservedGeneration = 3, 2
	if change != nil {
		change(p)
	}
	s.add(p)
}

func (s *stage) update(name string, change func(*v1.Pod)) {
	p := s.get(Pods, "ns", name).(*v1.Pod)
	change(p)
	s.set(Pods, p)
}

// step is an event, and how long the controllers then have.
type step struct {
	name string
	act  func()
	wait time.Duration
}

func (s *stage) steps() []step {
	attachments, slices := storagev1.SchemeGroupVersion.WithResource("volumeattachments"), resourceapi.SchemeGroupVersion.WithResource("resourceslices")
	return []step{
		{"attached", func() {
			all, err := s.client.Tracker().List(attachments, storagev1.SchemeGroupVersion.WithKind("VolumeAttachment"), "")
			if err != nil {
				s.t.Fatal(err)
			}
			for _, a := range all.(*storagev1.VolumeAttachmentList).Items {
				a.Status.Attached = true
				s.set(attachments, &a)
			}
		}, time.Minute},
		{"a Node goes", func() { s.remove("nodes", "", "goes") }, 3 * time.Minute},
		{"evicted", func() {
			s.pod("evicted", "alive", func(p *v1.Pod) { p.Status.Phase, p.Status.Reason = v1.PodFailed, "Evicted" })
		}, time.Minute},
		{"a device is tainted", func() {
			slice := s.get(slices, "", "slice").(*resourceapi.ResourceSlice)
			slice.Spec.Devices[0].Taints = []resourceapi.DeviceTaint{{Key: "broken", Effect: resourceapi.DeviceTaintEffectNoExecute, TimeAdded: ptr.To(metav1.Now())}}
			s.set(slices, slice)
		}, time.Minute},
		{"a claim in use goes", func() { s.remove("persistentvolumeclaims", "ns", "old") }, time.Minute},
		{"being deleted, and running", func() {
			s.update("uses", func(p *v1.Pod) { p.DeletionTimestamp = ptr.To(metav1.Now()); p.Finalizers = []string{"test/hold"} })
		}, 10 * time.Minute},
		{"ended", func() {
			s.update("uses", func(p *v1.Pod) {
				p.Status.ContainerStatuses[0].State = v1.ContainerState{Terminated: &v1.ContainerStateTerminated{}}
			})
		}, 10 * time.Minute},
	}
}

var (
	// stamps matches times: upstream's timers have jitter.
	stamps = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`)
	// order matches the order in which a patch leaves the conditions of the cached status.
	order = regexp.MustCompile(`"\$setElementOrder/[a-zA-Z]+":\[[^\]]*\],?`)
)

// written describes what an action writes, or returns an empty string.
func written(t *testing.T, action clienttesting.Action) string {
	resource := action.GetResource().Resource
	if resource == "events" && action.GetVerb() == "patch" {
		return "" // It is a repetition.
	}
	if action.GetSubresource() != "" {
		resource += "/" + action.GetSubresource()
	}
	var object runtime.Object
	text, name := "", ""
	switch a := action.(type) {
	case clienttesting.PatchAction:
		text, name = string(a.GetPatch()), a.GetName()
	case clienttesting.DeleteAction:
		options, err := json.Marshal(a.GetDeleteOptions())
		if err != nil {
			t.Fatal(err)
		}
		text, name = string(options), a.GetName()
	case clienttesting.CreateAction:
		object = a.GetObject()
	default:
		return ""
	}
	if object != nil {
		accessor, ok := object.(metav1.Object)
		if !ok {
			t.Fatalf("%T", object)
		}
		copied := object.DeepCopyObject().(metav1.Object)
		copied.SetResourceVersion("")
		content, err := json.Marshal(copied)
		if err != nil {
			t.Fatal(err)
		}
		text, name = string(content), accessor.GetName()
		if event, is := object.(*v1.Event); is {
			text, name = eventText(event), ""
		}
	}
	text = order.ReplaceAllString(stamps.ReplaceAllString(text, "then"), "")
	return fmt.Sprintf("%s %s %s/%s %s", action.GetVerb(), resource, action.GetNamespace(), name, text)
}
