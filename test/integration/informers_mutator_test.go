package integration

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
)

// mutator makes random changes on an API server and knows which objects exist. Only one goroutine
// may use it.
type mutator struct {
	t        testing.TB
	random   *rand.Rand
	client   dynamic.Interface
	metadata metadata.Interface
	// names are all possible names of namespaces; objects are those that exist.
	names   []string
	objects map[schema.GroupVersionResource]map[types.NamespacedName]bool
	writes  int
}

// newMutator returns a mutator whose objects are deleted when the test ends.
func newMutator(t testing.TB, random *rand.Rand, config *rest.Config) *mutator {
	t.Helper()
	m := &mutator{t: t, random: random, objects: map[schema.GroupVersionResource]map[types.NamespacedName]bool{}}
	var err error
	if m.client, err = dynamic.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	if m.metadata, err = metadata.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	for i := range 8 {
		m.names = append(m.names, fmt.Sprintf("ns-%d", i), uuid(random), fmt.Sprintf("%s-%d-prod", uuid(random)[:8], i))
	}
	t.Cleanup(m.clear)
	return m
}

// uuid returns a random name that looks generated.
func uuid(r *rand.Rand) string {
	a, b := r.Uint64(), r.Uint64()
	return fmt.Sprintf("%08x-%04x-%04x-%04x-%012x", a>>32, a>>16&0xffff, a&0xffff, b>>48, b&0xffffffffffff)
}

// populate creates namespaces and an object in each.
func (m *mutator) populate(namespaces int) {
	for _, name := range m.names[:namespaces] {
		m.create(namespaceSubject, types.NamespacedName{Name: name})
	}
	for range 4 * namespaces {
		m.change()
	}
}

// sorted returns the objects of a resource in a fixed order.
func (m *mutator) sorted(gvr schema.GroupVersionResource) []types.NamespacedName {
	return slices.SortedFunc(maps.Keys(m.objects[gvr]), func(a, b types.NamespacedName) int {
		return strings.Compare(a.String(), b.String())
	})
}

// change makes one random change.
func (m *mutator) change() {
	m.t.Helper()
	s := subjects[m.random.IntN(len(subjects))]
	name := types.NamespacedName{Name: string(rune('a' + m.random.IntN(4)))}
	switch {
	case s.isNamespace():
		name.Name = m.names[m.random.IntN(len(m.names))]
	case s.namespaced:
		there := m.sorted(namespacesResource)
		name.Namespace = there[m.random.IntN(len(there))].Name
	}
	switch {
	case !m.objects[s.gvr][name]:
		m.create(s, name)
	case m.random.IntN(3) > 0 || s.isNamespace() && m.random.IntN(3) > 0:
		m.update(s, name)
	case s.isNamespace() && len(m.objects[s.gvr]) == 1:
		m.update(s, name) // objects need a namespace
	case s.isNamespace():
		m.empty(name.Name)
		m.delete(s, name)
	default:
		m.delete(s, name)
	}
}

func (m *mutator) resource(s subject, namespace string) dynamic.ResourceInterface {
	if s.namespaced {
		return m.client.Resource(s.gvr).Namespace(namespace)
	}
	return m.client.Resource(s.gvr)
}

func (m *mutator) create(s subject, names ...types.NamespacedName) {
	m.t.Helper()
	if m.objects[s.gvr] == nil {
		m.objects[s.gvr] = map[types.NamespacedName]bool{}
	}
	slots := make(chan struct{}, 8)
	errs := make([]error, len(names))
	var creating sync.WaitGroup
	for i, name := range names {
		creating.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			errs[i] = m.createOne(s, name)
		})
	}
	creating.Wait()
	for i, name := range names {
		if errs[i] != nil {
			m.t.Fatalf("creating %s %s: %v", s.kind, name, errs[i])
		}
		m.objects[s.gvr][name] = true
		m.writes++
	}
}

// createOne retries while the API server's admission still takes the namespace for its deleted
// predecessor of that name.
func (m *mutator) createOne(s subject, name types.NamespacedName) error {
	terminating := func(err error) bool { return apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) }
	return retry.OnError(wait.Backoff{Duration: 20 * time.Millisecond, Factor: 1.5, Steps: 15}, terminating, func() error {
		_, err := m.resource(s, name.Namespace).Create(m.t.Context(), s.object(name), metav1.CreateOptions{})
		return err
	})
}

func (m *mutator) update(s subject, name types.NamespacedName) {
	m.t.Helper()
	m.writes++
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{"write":"%d"}}}`, m.writes)
	if _, err := m.resource(s, name.Namespace).Patch(m.t.Context(), name.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		m.t.Fatalf("updating %s %s: %v", s.kind, name, err)
	}
}

func (m *mutator) delete(s subject, name types.NamespacedName) {
	m.t.Helper()
	if err := m.remove(s, name); err != nil {
		m.t.Fatalf("deleting %s %s: %v", s.kind, name, err)
	}
	delete(m.objects[s.gvr], name)
	m.writes++
}

// remove deletes an object, and a namespace as the namespace controller would.
func (m *mutator) remove(s subject, name types.NamespacedName) error {
	ctx := context.WithoutCancel(m.t.Context()) // it also cleans up
	if err := m.resource(s, name.Namespace).Delete(ctx, name.Name, metav1.DeleteOptions{}); err != nil || !s.isNamespace() {
		return err
	}
	object, err := m.client.Resource(s.gvr).Get(ctx, name.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	unstructured.RemoveNestedField(object.Object, "spec", "finalizers")
	_, err = m.client.Resource(s.gvr).Update(ctx, object, metav1.UpdateOptions{}, "finalize")
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// empty deletes everything in a namespace.
func (m *mutator) empty(namespace string) {
	m.t.Helper()
	for _, s := range subjects {
		for _, name := range m.sorted(s.gvr) {
			if s.namespaced && name.Namespace == namespace {
				m.delete(s, name)
			}
		}
	}
}

// clear deletes everything, namespaces last.
func (m *mutator) clear() {
	for _, s := range subjects {
		var deleting sync.WaitGroup
		slots := make(chan struct{}, 8)
		for name := range m.objects[s.gvr] {
			deleting.Go(func() {
				slots <- struct{}{}
				defer func() { <-slots }()
				if err := m.remove(s, name); err != nil {
					m.t.Errorf("deleting %s %s: %v", s.kind, name, err)
				}
			})
		}
		deleting.Wait()
	}
}
