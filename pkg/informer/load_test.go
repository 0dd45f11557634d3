package informer

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/clock"

	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// laden is a number of Pods in two namespaces, as an API server sends them. It implements listwatch.Reader.
type laden struct {
	namespaces [2]string
	pods       int
}

func ladenPod(namespace string, n int) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: fmt.Sprintf("web-6d4cf56db6-%05d", n), Namespace: namespace, UID: "6f7c2b0e-5a0c-4a38-9d5f-6c0d6a1b7e55", ResourceVersion: fmt.Sprint(n + 10),
		Labels:          map[string]string{"app": "web", "pod-template-hash": "6d4cf56db6", "tier": strings.Repeat("f", n%17)},
		Annotations:     map[string]string{"example.com/note": strings.Repeat("x", 40+n%200)},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web-6d4cf56db6", UID: "a8a2b0de-5a0c-4a38-9d5f-6c0d6a1b7e55"}},
	}}
	p.Spec.NodeName = fmt.Sprintf("node-%d", n%50)
	for c := range 1 + n%3 {
		p.Spec.Containers = append(p.Spec.Containers, v1.Container{
			Name: fmt.Sprintf("c%d", c), Image: "registry.example.com/some/where/image:v1.2.3", Args: []string{"--one=1", "--two=2", "--three=3"},
			Env:          []v1.EnvVar{{Name: "A", Value: "some value"}, {Name: "B", Value: "another value"}},
			Resources:    v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("100m"), v1.ResourceMemory: resource.MustParse("128Mi")}},
			VolumeMounts: []v1.VolumeMount{{Name: "data", MountPath: "/var/lib/data"}},
		})
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, v1.ContainerStatus{
			Name: fmt.Sprintf("c%d", c), Image: "registry.example.com/some/where/image:v1.2.3", ContainerID: "containerd://" + strings.Repeat("a", 64),
			State: v1.ContainerState{Running: &v1.ContainerStateRunning{}},
		})
	}
	p.Spec.Volumes = []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}}
	p.Status.Phase = v1.PodRunning
	for _, kind := range []v1.PodConditionType{v1.PodInitialized, v1.PodReady, v1.ContainersReady, v1.PodScheduled} {
		p.Status.Conditions = append(p.Status.Conditions, v1.PodCondition{Type: kind, Status: v1.ConditionTrue, LastTransitionTime: metav1.NewTime(time.Unix(1e9, 0))})
	}
	return p
}

// List implements listwatch.Reader.
func (l laden) List(context.Context, metav1.ListOptions) (kruntime.Object, error) {
	list := &v1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "7"}}
	for n := range l.pods {
		data, err := ladenPod(l.namespaces[n%2], n).Marshal()
		if err != nil {
			return nil, err
		}
		var p v1.Pod
		if err := p.Unmarshal(data); err != nil {
			return nil, err
		}
		list.Items = append(list.Items, p)
	}
	return list, nil
}

// Watch implements listwatch.Reader.
func (l laden) Watch(_ context.Context, o metav1.ListOptions) (watch.Interface, error) {
	if o.SendInitialEvents != nil {
		return nil, errors.New("no streaming lists")
	}
	return watch.NewFake(), nil
}

// TestLoadIsWhatTheHeapHolds compares the estimate with the live heap for 6,000 Pods, of ranges and
// of slim copies that two groups share.
func TestLoadIsWhatTheHeapHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inLow, inHigh := namesInHalves(t)
		pods := laden{namespaces: [2]string{inLow, inHigh}, pods: 6000}
		gvr := schema.GroupVersionResource{Version: "v1", Resource: "pods"}
		pool := newTestPool(t, &apiServer{shards: true}, clock.RealClock{}, 0)
		pool.config.Slim = map[schema.GroupVersionResource]func(any) any{gvr: func(obj any) any {
			whole := obj.(*v1.Pod)
			return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: strings.Clone(whole.Name), Namespace: strings.Clone(whole.Namespace), UID: whole.UID, ResourceVersion: whole.ResourceVersion}}
		}}
		ranges, err := shard.EqualRanges(2)
		if err != nil {
			t.Fatal(err)
		}
		begin := func(r shard.Range, key sharedKey) *Factory {
			f := pool.NewFactory(r, nil)
			f.informer(key, nil, true, pods, &v1.Pod{})
			f.StartWithContext(t.Context())
			if err := f.WaitForCacheSyncWithContext(t.Context()).Err; err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			return f
		}
		before := liveHeap()
		check := func(what string, estimate int64) {
			t.Helper()
			real := (liveHeap() - before) * (1 << 20)
			t.Logf("%s: %.2f MB estimated, %.2f MB in use, %.0f bytes an object", what, float64(estimate)/1e6, real/1e6, real/6000)
			if ratio := float64(estimate) / real; ratio < 0.9 || ratio > 1.1 {
				t.Errorf("%s: estimated %.2f of what is in use, want 0.9 to 1.1", what, ratio)
			}
		}
		load := func(f *Factory) Load {
			t.Helper()
			l, there := f.Load()
			if !there {
				t.Error("a factory that is in use has ended")
			}
			return l
		}
		low, high := begin(ranges[0], sharedKey{resource: gvr}), begin(ranges[1], sharedKey{resource: gvr})
		a, b := load(low), load(high)
		check("two ranges", a.Namespaces[inLow]+b.Namespaces[inHigh])
		if len(a.Namespaces) != 1 || a.Shared != 0 || a.Objects != 3000 {
			t.Errorf("a range has %+v, want 3,000 objects in %s", a, inLow)
		}
		if again := load(low); again.Namespaces[inLow] != a.Namespaces[inLow] {
			t.Errorf("asked again, it has %d bytes, not %d", again.Namespaces[inLow], a.Namespaces[inLow])
		}
		for _, f := range []*Factory{low, high} {
			f.Shutdown()
			f.Forget()
		}
		if _, there := low.Load(); there {
			t.Error("what has ended takes nothing, instead of not being weighed")
		}
		low, high = nil, nil
		one, two := begin(shard.Everything(), sharedKey{resource: gvr, slim: true}), begin(shard.Everything(), sharedKey{resource: gvr, slim: true})
		a, b = load(one), load(two)
		check("two groups with slim copies", a.Shared+b.Shared)
		if a.Shared != b.Shared || len(a.Namespaces) != 0 || a.Objects != 6000 || pool.Load() != 0 {
			t.Errorf("groups have %+v and %+v, and nobody %d", a, b, pool.Load())
		}
		two.Shutdown()
		two.Forget()
		if alone := load(one); alone.Shared < 2*a.Shared-1 {
			t.Errorf("when the other group has left, it has %d, want twice %d", alone.Shared, a.Shared)
		}
		one.Shutdown()
		one.Forget()
		runtime.KeepAlive(pods)
	})
}
