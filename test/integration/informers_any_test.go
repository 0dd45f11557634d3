package integration

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	clientfeatures "k8s.io/client-go/features"
	clientfeaturestesting "k8s.io/client-go/features/testing"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/flotilla-kube/flotilla/pkg/informer"
	"github.com/flotilla-kube/flotilla/pkg/shard"
	"github.com/flotilla-kube/flotilla/test/controlplane"
)

var docks = schema.GroupVersionResource{Group: "any.flotilla.dev", Version: "v1", Resource: "docks"}

// Dock is a custom resource with its authors' Go types.
type Dock struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Length int64 `json:"length,omitempty"`
}

// DeepCopyObject implements runtime.Object.
func (d *Dock) DeepCopyObject() runtime.Object {
	out := *d
	out.ObjectMeta = *d.ObjectMeta.DeepCopy()
	return &out
}

// DockList is a list of Docks.
type DockList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Dock `json:"items"`
}

// DeepCopyObject implements runtime.Object.
func (l *DockList) DeepCopyObject() runtime.Object {
	out := *l
	out.Items = nil
	for i := range l.Items {
		out.Items = append(out.Items, *l.Items[i].DeepCopyObject().(*Dock))
	}
	return &out
}

// typedDocks reads Docks with a scheme of their own, as clients of custom resources do.
func typedDocks(t testing.TB, config *rest.Config) cache.ListerWatcher {
	t.Helper()
	scheme := runtime.NewScheme()
	scheme.AddKnownTypes(docks.GroupVersion(), &Dock{}, &DockList{})
	metav1.AddToGroupVersion(scheme, docks.GroupVersion())
	config = rest.CopyConfig(config)
	gv := docks.GroupVersion()
	config.GroupVersion, config.APIPath = &gv, "/apis"
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	client, err := rest.RESTClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	codec := runtime.NewParameterCodec(scheme)
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list := &DockList{}
			return list, client.Get().Resource(docks.Resource).VersionedParams(&o, codec).Do(ctx).Into(list)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.Watch = true
			return client.Get().Resource(docks.Resource).VersionedParams(&o, codec).Watch(ctx)
		},
	}
}

// anyTest is a process with two shards, each with informers of Docks in all forms.
type anyTest struct {
	t      *testing.T
	mode   informer.Mode
	client dynamic.Interface
	meta   metadata.Interface
	wire   *wire
	pool   *informer.Pool
	halves []*informer.Factory
	// forms are the informers of the two shards, by form.
	forms map[string][]cache.SharedIndexInformer
	// namespaces are by shard.
	namespaces [2][]string
}

// TestAnyResourceIsPartitioned has two shards with informers of a custom resource, as dynamic
// objects, as metadata and as typed objects. It runs on an API server that filters and on one that
// does not, before the resource is defined and after it is removed.
func TestAnyResourceIsPartitioned(t *testing.T) {
	stock, err := controlplane.Start(t.Context(), controlplane.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := stock.Stop(); err != nil {
			t.Error(err)
		}
	})
	planes := map[informer.Mode]*controlplane.ControlPlane{informer.ServerSide: plane, informer.ClientSide: stock}
	for _, streaming := range []bool{true, false} {
		t.Run(fmt.Sprintf("%s=%t", clientfeatures.WatchListClient, streaming), func(t *testing.T) {
			clientfeaturestesting.SetFeatureDuringTest(t, clientfeatures.WatchListClient, streaming)
			for mode, p := range planes {
				t.Run(string(mode), func(t *testing.T) {
					t.Parallel()
					a := newAnyTest(t, mode, p.AdminConfig())
					a.beforeItIsDefined()
					undefine := a.define()
					a.fill()
					a.compare("at first")
					a.checkWho()
					a.catchUp()
					a.compare("after writes")
					undefine()
					a.afterItIsGone()
					undefine = a.define()
					a.fill()
					a.compare("after it has come back")
					a.refresh()
					// A late process finds objects, and knows whether the server filters from
					// these.
					late := a.another(p.AdminConfig())
					late.compare("to one that comes late")
					late.checkWho()
					undefine()
				})
			}
		})
	}
}

func newAnyTest(t *testing.T, mode informer.Mode, config *rest.Config) *anyTest {
	t.Helper()
	m := newMutator(t, newRandom(t), config)
	a := &anyTest{t: t, mode: mode, client: m.client, meta: m.metadata}
	a.prepare(config)
	a.makeNamespaces(m)
	return a
}

// another returns another process with two shards, started.
func (a *anyTest) another(config *rest.Config) *anyTest {
	a.t.Helper()
	b := &anyTest{t: a.t, mode: a.mode, client: a.client, meta: a.meta, namespaces: a.namespaces}
	b.prepare(config)
	for _, f := range b.halves {
		f.StartWithContext(a.t.Context())
	}
	return b
}

// prepare creates the process's pool, two shards, and their informers.
func (a *anyTest) prepare(config *rest.Config) {
	a.t.Helper()
	t := a.t
	a.wire, a.forms = newWire(), map[string][]cache.SharedIndexInformer{}
	config = a.wire.over(config)
	c := informer.PoolConfig{Client: kubernetes.NewForConfigOrDie(config), Metadata: metadata.NewForConfigOrDie(config), Dynamic: dynamic.NewForConfigOrDie(config)}
	var err error
	if a.pool, err = informer.NewPool(c); err != nil {
		t.Fatal(err)
	}
	ranges, err := shard.EqualRanges(2)
	if err != nil {
		t.Fatal(err)
	}
	custom := informer.Resource{GVR: docks, Scope: meta.RESTScopeNameNamespace, Object: &Dock{}, ListerWatcher: typedDocks(t, config)}
	for _, r := range ranges {
		f := a.pool.NewFactory(r, func(gvr schema.GroupVersionResource) (bool, error) { return gvr == docks, nil })
		t.Cleanup(f.Shutdown)
		a.halves = append(a.halves, f)
		a.ask(f, custom)
	}
}

// ask gives a shard informers of Docks, and fails the test if a handler receives another type.
func (a *anyTest) ask(f *informer.Factory, custom informer.Resource) {
	objects, err := f.Dynamic(docks)
	if err != nil {
		a.t.Fatal(err)
	}
	partial, err := f.Metadata(docks)
	if err != nil {
		a.t.Fatal(err)
	}
	typed, err := f.Custom(custom)
	if err != nil {
		a.t.Fatal(err)
	}
	for form, i := range map[string]cache.SharedIndexInformer{"dynamic": objects.Informer(), "metadata": partial.Informer(), "custom": typed} {
		a.forms[form] = append(a.forms[form], i)
		_, err := i.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(obj any) {
			switch o := obj.(type) {
			case *unstructured.Unstructured:
				if form == "dynamic" && o.GetKind() == "Dock" {
					return
				}
			case *metav1.PartialObjectMetadata:
				if form == "metadata" {
					return
				}
			case *Dock:
				if form == "custom" && o.Length > 0 {
					return
				}
			}
			a.t.Errorf("a handler of %s objects was given %T %v", form, obj, obj)
		}})
		if err != nil {
			a.t.Fatal(err)
		}
	}
}

// makeNamespaces creates three namespaces in each range.
func (a *anyTest) makeNamespaces(m *mutator) {
	for half, f := range a.halves {
		for len(a.namespaces[half]) < 3 {
			if name := uuid(m.random); f.Range().ContainsNamespace(name) {
				m.create(namespaceSubject, types.NamespacedName{Name: name})
				a.namespaces[half] = append(a.namespaces[half], name)
			}
		}
	}
}

// bounded returns a context for steps that must not take long.
func (a *anyTest) bounded() context.Context {
	ctx, cancel := context.WithTimeout(a.t.Context(), patience)
	a.t.Cleanup(cancel)
	return ctx
}

// beforeItIsDefined starts the shards: nothing waits for a resource that does not exist.
func (a *anyTest) beforeItIsDefined() {
	for _, f := range a.halves {
		if err := f.Warm(a.bounded()); err != nil {
			a.t.Fatalf("Warm waits for a resource that is not defined: %v", err)
		}
		if f.HasSynced() {
			a.t.Error("informers of a resource that is not defined have synced")
		}
		f.StartWithContext(a.t.Context())
	}
	a.refresh()
}

// refresh requires that all caches prove to be current.
func (a *anyTest) refresh() {
	a.t.Helper()
	for _, f := range a.halves {
		if err := f.Refresh(a.bounded()); err != nil {
			a.t.Errorf("Refresh: %v", err)
		}
	}
}

// define defines Docks, and returns a function that removes the definition.
func (a *anyTest) define() (end func()) {
	a.t.Helper()
	definitions := a.client.Resource(crdsResource)
	definition := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": docks.GroupResource().String()},
		"spec": map[string]any{
			"group": docks.Group, "scope": "Namespaced",
			"names": map[string]any{"plural": docks.Resource, "kind": "Dock"},
			"versions": []any{map[string]any{
				"name": docks.Version, "served": true, "storage": true,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{
					"type": "object", "properties": map[string]any{"length": map[string]any{"type": "integer"}},
				}},
			}},
		},
	}}
	if _, err := definitions.Create(a.t.Context(), definition, metav1.CreateOptions{}); err != nil {
		a.t.Fatal(err)
	}
	over := false
	end = func() {
		if !over {
			over = true
			undefine(a.t, a.client, docks)
		}
	}
	a.t.Cleanup(end)
	eventually(a.t, func() error {
		_, err := a.client.Resource(docks).List(a.t.Context(), metav1.ListOptions{})
		return err
	})
	return end
}

func (a *anyTest) write(namespace, name string, length int64) (version string) {
	a.t.Helper()
	dock := &unstructured.Unstructured{Object: map[string]any{"apiVersion": docks.GroupVersion().String(), "kind": "Dock", "length": length}}
	dock.SetNamespace(namespace)
	dock.SetName(name)
	client := a.client.Resource(docks).Namespace(namespace)
	written, err := client.Create(a.t.Context(), dock, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		if written, err = client.Get(a.t.Context(), name, metav1.GetOptions{}); err == nil {
			written.Object["length"] = length
			written, err = client.Update(a.t.Context(), written, metav1.UpdateOptions{})
		}
	}
	if err != nil {
		a.t.Fatal(err)
	}
	return written.GetResourceVersion()
}

func (a *anyTest) fill() {
	a.t.Helper()
	for _, namespaces := range a.namespaces {
		for _, namespace := range namespaces {
			for i := range 3 {
				// The API server may notice late that a definition has come back.
				eventually(a.t, func() error {
					_, err := a.client.Resource(docks).Namespace(namespace).List(a.t.Context(), metav1.ListOptions{})
					return err
				})
				a.write(namespace, fmt.Sprintf("dock-%d", i), int64(i+1))
			}
		}
	}
}

// compare waits until both shards' caches, in each form, equal the API server's state, and requires
// that no object is in both.
func (a *anyTest) compare(what string) {
	a.t.Helper()
	for form, informers := range a.forms {
		eventually(a.t, func() error {
			want, err := live(a.t.Context(), a.meta, docks)
			if err != nil {
				return err
			}
			first, second := contentOf(informers[0].GetStore().List()), contentOf(informers[1].GetStore().List())
			union := maps.Clone(first)
			for name, version := range second {
				if _, twice := union[name]; twice {
					a.t.Fatalf("%s: %s: %s is in both shards", what, form, name)
				}
				union[name] = version
			}
			for half, got := range []content{first, second} {
				for name := range got {
					namespace, _, _ := cache.SplitMetaNamespaceKey(name)
					if !slices.Contains(a.namespaces[half], namespace) {
						a.t.Fatalf("%s: %s: %s is not in the range of shard %d", what, form, name, half)
					}
				}
			}
			if err := want.diff(union); err != nil {
				return fmt.Errorf("%s: %s: %w", what, form, err)
			}
			return nil
		})
	}
}

// checkWho requires that the right side filters: each shard has its own watches, or both share
// them.
func (a *anyTest) checkWho() {
	a.t.Helper()
	watches := len(a.forms)
	if a.mode == informer.ServerSide {
		watches *= len(a.halves)
	}
	eventually(a.t, func() error {
		if got := a.pool.Modes()[docks]; got != a.mode {
			return fmt.Errorf("filtered at the %s, want %s", got, a.mode)
		}
		if got := a.wire.watches(docks.Resource); got != watches {
			return fmt.Errorf("%d watches in %d forms, want %d", got, len(a.forms), watches)
		}
		return nil
	})
}

// catchUp writes, and requires that the caches have the write as soon as CatchUp returns.
func (a *anyTest) catchUp() {
	a.t.Helper()
	for i := range 30 {
		half := i % 2
		namespace := a.namespaces[half][i%3]
		name := fmt.Sprintf("dock-%d", i%5)
		version := a.write(namespace, name, int64(100+i))
		mark := map[schema.GroupResource]informer.Mark{docks.GroupResource(): {Version: version}}
		if err := a.halves[half].CatchUp(a.bounded(), mark); err != nil {
			a.t.Fatal(err)
		}
		for form, informers := range a.forms {
			obj, there, err := informers[half].GetStore().GetByKey(namespace + "/" + name)
			if err != nil || !there || accessor(obj).GetResourceVersion() != version {
				a.t.Errorf("%s: caught up without %s/%s at version %s", form, namespace, name, version)
			}
		}
	}
	if got := a.halves[0].Weights()[a.namespaces[0][0]]; got == 0 || got > 5 {
		a.t.Errorf("a namespace with up to 5 objects, cached in three forms, has the weight %d", got)
	}
}

// afterItIsGone requires that the caches are empty, and that nothing waits.
func (a *anyTest) afterItIsGone() {
	a.t.Helper()
	for form, informers := range a.forms {
		for _, i := range informers {
			eventually(a.t, func() error {
				if left := i.GetStore().ListKeys(); len(left) != 0 {
					return fmt.Errorf("%s: %v are left after their resource was removed", form, left)
				}
				return nil
			})
		}
	}
	a.refresh()
}
