package integration

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/flotilla-kube/flotilla/pkg/election/fence"
	"github.com/flotilla-kube/flotilla/pkg/informer"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// marking is a namespace whose objects are written through a fence, and the cache of a successor,
// whose watches can be held up.
type marking struct {
	t         *testing.T
	namespace string
	// client is not behind the fence, fenced and light (metadata only) are.
	client, fenced kubernetes.Interface
	light          metadata.Interface
	fence          *fence.Fence
	wire           *wire
	factory        *informer.Factory
	caches         map[string]cache.SharedIndexInformer
}

// endless is a claim that is valid for ever.
type endless struct{ ctx context.Context }

func (endless) Term() int32                { return 7 }
func (e endless) Context() context.Context { return e.ctx }
func (endless) Expiry() time.Time          { return time.Time{} }
func (endless) Valid(time.Time) bool       { return true }

func newMarking(t *testing.T) *marking {
	t.Helper()
	m := &marking{t: t, client: kubernetes.NewForConfigOrDie(plane.AdminConfig()), wire: newWire()}
	m.namespace = testNamespace(t, m.client, "marks-")
	var err error
	if m.fence, err = fence.New(fence.Config{Member: "m_1", Shard: "r/s", Clock: clock.RealClock{}}); err != nil {
		t.Fatal(err)
	}
	m.fence.Open(endless{t.Context()})
	behind := rest.CopyConfig(plane.AdminConfig())
	behind.ContentType, behind.AcceptContentTypes = "application/vnd.kubernetes.protobuf", "application/vnd.kubernetes.protobuf,application/json"
	behind.Wrap(m.fence.Wrap)
	m.fenced, m.light = kubernetes.NewForConfigOrDie(behind), metadata.NewForConfigOrDie(behind)

	config := m.wire.over(plane.AdminConfig())
	pool, err := informer.NewPool(informer.PoolConfig{Client: kubernetes.NewForConfigOrDie(config), Metadata: metadata.NewForConfigOrDie(config), Dynamic: dynamic.NewForConfigOrDie(config)})
	if err != nil {
		t.Fatal(err)
	}
	ranges, err := shard.EqualRanges(1)
	if err != nil {
		t.Fatal(err)
	}
	m.factory = pool.NewFactory(ranges[0], func(schema.GroupVersionResource) (bool, error) { return true, nil })
	t.Cleanup(m.factory.Shutdown)
	m.caches = map[string]cache.SharedIndexInformer{
		"pods": m.factory.Core().V1().Pods().Informer(), "configmaps": m.factory.Core().V1().ConfigMaps().Informer(),
		"namespaces": m.factory.Core().V1().Namespaces().Informer(),
	}
	return m
}

// other is the name of a namespace that is being deleted.
func (m *marking) other() string { return m.namespace + "-other" }

func (m *marking) deleteOther(finalizers ...string) {
	m.t.Helper()
	_, err := m.client.CoreV1().Namespaces().Create(m.t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: m.other(), Finalizers: finalizers}}, metav1.CreateOptions{})
	m.must(err)
	m.must(m.client.CoreV1().Namespaces().Delete(m.t.Context(), m.other(), metav1.DeleteOptions{}))
}

// content is the namespace's objects and the other namespace, by kind and name, each with whether it
// is being deleted.
func (m *marking) content() map[string]bool {
	m.t.Helper()
	out := map[string]bool{}
	maps, err := m.client.CoreV1().ConfigMaps(m.namespace).List(m.t.Context(), metav1.ListOptions{})
	if err != nil {
		m.t.Fatal(err)
	}
	for _, o := range maps.Items {
		out["configmaps/"+o.Name] = o.DeletionTimestamp != nil
	}
	pods, err := m.client.CoreV1().Pods(m.namespace).List(m.t.Context(), metav1.ListOptions{})
	if err != nil {
		m.t.Fatal(err)
	}
	for _, o := range pods.Items {
		out["pods/"+o.Name] = o.DeletionTimestamp != nil
	}
	switch other, err := m.client.CoreV1().Namespaces().Get(m.t.Context(), m.other(), metav1.GetOptions{}); {
	case err == nil:
		out["namespaces/"+other.Name] = other.DeletionTimestamp != nil
	case !apierrors.IsNotFound(err):
		m.t.Fatal(err)
	}
	return out
}

// cached is content by the caches.
func (m *marking) cached() map[string]bool {
	out := map[string]bool{}
	for resource, informer := range m.caches {
		for _, obj := range informer.GetStore().List() {
			if o := accessor(obj); o.GetNamespace() == m.namespace || o.GetName() == m.other() {
				out[resource+"/"+o.GetName()] = o.GetDeletionTimestamp() != nil
			}
		}
	}
	return out
}

func (m *marking) must(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatal(err)
	}
}

func (m *marking) configMap(name string, finalizers ...string) {
	m.t.Helper()
	o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: finalizers}}
	_, err := m.client.CoreV1().ConfigMaps(m.namespace).Create(m.t.Context(), o, metav1.CreateOptions{})
	m.must(err)
	for range finalizers {
		m.t.Cleanup(func() {
			_, _ = m.client.CoreV1().ConfigMaps(m.namespace).Patch(context.WithoutCancel(m.t.Context()), name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		})
	}
}

// deletedConfigMap creates a ConfigMap and deletes it, but for its finalizer.
func (m *marking) deletedConfigMap() {
	m.t.Helper()
	m.configMap("a", "flotilla.dev/test")
	m.must(m.client.CoreV1().ConfigMaps(m.namespace).Delete(m.t.Context(), "a", metav1.DeleteOptions{}))
}

// pod creates a pod that a node has, and whose deletion takes a grace period.
func (m *marking) pod(name string, finalizers ...string) {
	m.t.Helper()
	_, err := m.client.CoreV1().Pods(m.namespace).Create(m.t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: finalizers},
		Spec:       corev1.PodSpec{NodeName: "none", Containers: []corev1.Container{{Name: "c", Image: "none"}}},
	}, metav1.CreateOptions{})
	m.must(err)
	m.t.Cleanup(func() {
		ctx := context.WithoutCancel(m.t.Context())
		_, _ = m.client.CoreV1().Pods(m.namespace).Patch(ctx, name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		_ = m.client.CoreV1().Pods(m.namespace).Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)})
	})
}

const withoutFinalizers = `{"metadata":{"finalizers":null}}`

// TestMarksOfWrites writes through a fence while the watches of a cache are held up. By the marks of
// these writes the cache must not be current then, and as soon as it is, it must hold what the API
// server does. Where no mark can prove that, the fence must say so.
func TestMarksOfWrites(t *testing.T) {
	for name, tc := range map[string]struct {
		before, write func(*marking)
		// unknown is set if no mark can prove anything, all if the mark is to name all objects.
		unknown, all bool
	}{
		"create": {write: func(m *marking) {
			_, err := m.fenced.CoreV1().ConfigMaps(m.namespace).Create(m.t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "new"}}, metav1.CreateOptions{})
			m.must(err)
		}},
		"delete": {before: func(m *marking) { m.configMap("a") }, write: func(m *marking) {
			m.must(m.fenced.CoreV1().ConfigMaps(m.namespace).Delete(m.t.Context(), "a", metav1.DeleteOptions{}))
		}},
		"delete with a grace period": {before: func(m *marking) { m.pod("a") }, write: func(m *marking) {
			m.must(m.fenced.CoreV1().Pods(m.namespace).Delete(m.t.Context(), "a", metav1.DeleteOptions{}))
		}},
		"delete in the foreground": {before: func(m *marking) { m.configMap("a", "flotilla.dev/test") }, write: func(m *marking) {
			m.must(m.fenced.CoreV1().ConfigMaps(m.namespace).Delete(m.t.Context(), "a", metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationForeground)}))
		}},
		"the last finalizer": {before: (*marking).deletedConfigMap, write: func(m *marking) {
			_, err := m.fenced.CoreV1().ConfigMaps(m.namespace).Patch(m.t.Context(), "a", types.MergePatchType, []byte(withoutFinalizers), metav1.PatchOptions{})
			m.must(err)
		}},
		"the last finalizer, by metadata": {before: (*marking).deletedConfigMap, write: func(m *marking) {
			_, err := m.light.Resource(corev1.SchemeGroupVersion.WithResource("configmaps")).Namespace(m.namespace).Patch(m.t.Context(), "a", types.MergePatchType, []byte(withoutFinalizers), metav1.PatchOptions{})
			m.must(err)
		}},
		"the last finalizer of a pod that still has its grace period": {before: func(m *marking) {
			m.pod("a", "flotilla.dev/test")
			m.must(m.client.CoreV1().Pods(m.namespace).Delete(m.t.Context(), "a", metav1.DeleteOptions{}))
		}, write: func(m *marking) {
			_, err := m.fenced.CoreV1().Pods(m.namespace).Patch(m.t.Context(), "a", types.MergePatchType, []byte(withoutFinalizers), metav1.PatchOptions{})
			m.must(err)
		}},
		"the status of a namespace that is being deleted": {before: func(m *marking) { m.deleteOther() }, write: func(m *marking) {
			other, err := m.client.CoreV1().Namespaces().Get(m.t.Context(), m.other(), metav1.GetOptions{})
			m.must(err)
			other.Status.Conditions = []corev1.NamespaceCondition{{Type: corev1.NamespaceContentRemaining, Status: corev1.ConditionTrue}}
			_, err = m.fenced.CoreV1().Namespaces().UpdateStatus(m.t.Context(), other, metav1.UpdateOptions{})
			m.must(err)
		}},
		"the last finalizer of a namespace": {before: func(m *marking) { m.deleteOther() }, write: func(m *marking) {
			other, err := m.client.CoreV1().Namespaces().Get(m.t.Context(), m.other(), metav1.GetOptions{})
			m.must(err)
			other.Spec.Finalizers = nil
			_, err = m.fenced.CoreV1().Namespaces().Finalize(m.t.Context(), other, metav1.UpdateOptions{})
			m.must(err)
		}},
		"the finalizer of a namespace's metadata, by metadata": {before: func(m *marking) { m.deleteOther("flotilla.dev/test") }, write: func(m *marking) {
			_, err := m.light.Resource(corev1.SchemeGroupVersion.WithResource("namespaces")).Patch(m.t.Context(), m.other(), types.MergePatchType, []byte(withoutFinalizers), metav1.PatchOptions{})
			m.must(err)
		}, unknown: true},
		"a collection": {before: func(m *marking) { m.configMap("a"); m.configMap("b", "flotilla.dev/test") }, write: func(m *marking) {
			m.must(m.fenced.CoreV1().ConfigMaps(m.namespace).DeleteCollection(m.t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}))
		}, all: true},
		"a collection of which one waits for the garbage collector": {before: func(m *marking) {
			m.configMap("a")
			m.must(m.client.CoreV1().ConfigMaps(m.namespace).Delete(m.t.Context(), "a", metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationForeground)}))
		}, write: func(m *marking) {
			m.must(m.fenced.CoreV1().ConfigMaps(m.namespace).DeleteCollection(m.t.Context(), metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)}, metav1.ListOptions{}))
			if content := m.content(); len(content) > 0 {
				m.t.Fatalf("%v are left of a collection that was deleted", content)
			}
		}, unknown: true},
		"a collection, by metadata": {before: func(m *marking) { m.configMap("a") }, write: func(m *marking) {
			m.must(m.light.Resource(corev1.SchemeGroupVersion.WithResource("configmaps")).Namespace(m.namespace).DeleteCollection(m.t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}))
		}, all: true},
		"a collection with grace periods": {before: func(m *marking) { m.pod("a"); m.pod("b") }, write: func(m *marking) {
			m.must(m.fenced.CoreV1().Pods(m.namespace).DeleteCollection(m.t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}))
		}, all: true},
		"a collection, refused halfway": {before: func(m *marking) { m.configMap("a"); m.configMap("protected"); m.protect("protected") }, write: func(m *marking) {
			err := m.fenced.CoreV1().ConfigMaps(m.namespace).DeleteCollection(m.t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{})
			if !apierrors.IsInvalid(err) && !apierrors.IsForbidden(err) {
				m.t.Fatalf("deleting a collection with a protected object: %v", err)
			}
		}, unknown: true},
		"an eviction": {before: func(m *marking) { m.pod("a") }, write: func(m *marking) {
			m.must(m.fenced.CoreV1().Pods(m.namespace).EvictV1(m.t.Context(), &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: m.namespace}}))
		}, unknown: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMarking(t)
			if tc.before != nil {
				tc.before(m)
			}
			m.must(m.factory.Warm(t.Context()))
			eventually(t, func() error {
				if cached, content := m.cached(), m.content(); !maps.Equal(cached, content) {
					return fmt.Errorf("the cache holds %v, want %v", cached, content)
				}
				return nil
			})
			m.wire.hold()
			tc.write(m)
			writes := m.fence.Writes(7)
			if unknown := len(writes.Unknown()) > 0; unknown || tc.unknown {
				if unknown != tc.unknown {
					t.Fatalf("the marks are %+v, want unknown: %t", writes.Resources, tc.unknown)
				}
				return
			}
			marks := map[schema.GroupResource]informer.Mark{}
			for resource, mark := range writes.Marks() {
				marks[resource] = informer.Mark(mark)
			}
			if all := len(m.cached()); tc.all && len(marks[schema.GroupResource{Resource: "configmaps"}].Deleted)+len(marks[schema.GroupResource{Resource: "pods"}].Deleted) != all {
				t.Errorf("the marks are %+v, want all %d objects of the collection", marks, all)
			}
			now, cancel := context.WithCancel(t.Context())
			cancel()
			if err := m.factory.CatchUp(now, marks); !errors.Is(err, context.Canceled) {
				t.Errorf("a cache that has not seen the write is current by its mark, %+v: %v", marks, err)
			}
			m.wire.release(goneStatus)
			bounded, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			m.must(m.factory.CatchUp(bounded, marks))
			if cached, content := m.cached(), m.content(); !maps.Equal(cached, content) {
				t.Errorf("a cache that is current by its mark, %+v, holds %v, want %v", marks, cached, content)
			}
		})
	}
}

// protect returns once the API server lets nobody delete the namespace's ConfigMap of this name.
func (m *marking) protect(name string) {
	m.t.Helper()
	admission, ctx := m.client.AdmissionregistrationV1(), m.t.Context()
	policy := &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: m.namespace},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{
				NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: m.namespace}},
				ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{admissionv1.Delete},
					Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
				}}},
			},
			Validations: []admissionv1.Validation{{Expression: fmt.Sprintf("oldObject.metadata.name != %q", name)}},
		},
	}
	_, err := admission.ValidatingAdmissionPolicies().Create(ctx, policy, metav1.CreateOptions{})
	m.must(err)
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: m.namespace},
		Spec:       admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: m.namespace, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny}},
	}
	_, err = admission.ValidatingAdmissionPolicyBindings().Create(ctx, binding, metav1.CreateOptions{})
	m.must(err)
	m.t.Cleanup(func() {
		ctx := context.WithoutCancel(ctx)
		_ = admission.ValidatingAdmissionPolicyBindings().Delete(ctx, m.namespace, metav1.DeleteOptions{})
		_ = admission.ValidatingAdmissionPolicies().Delete(ctx, m.namespace, metav1.DeleteOptions{})
	})
	eventually(m.t, func() error {
		err := m.client.CoreV1().ConfigMaps(m.namespace).Delete(ctx, name, metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil {
			return errors.New("the protected object may be deleted")
		}
		if !strings.Contains(err.Error(), m.namespace) {
			return err
		}
		return nil
	})
}
