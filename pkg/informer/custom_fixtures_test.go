package informer

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/flotilla-kube/flotilla/pkg/informer/internal/informertest"
	"github.com/flotilla-kube/flotilla/pkg/informer/internal/listwatch"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// berth is a type that client-go does not know.
type berth struct {
	metav1.TypeMeta
	metav1.ObjectMeta
	Length string
}

// DeepCopyObject implements runtime.Object.
func (b *berth) DeepCopyObject() runtime.Object {
	out := *b
	out.ObjectMeta = *b.ObjectMeta.DeepCopy()
	return &out
}

type berthList struct {
	metav1.TypeMeta
	metav1.ListMeta
	Items []berth
}

// DeepCopyObject implements runtime.Object.
func (l *berthList) DeepCopyObject() runtime.Object {
	out := *l
	out.Items = slices.Clone(l.Items)
	return &out
}

// quay is an API server with one custom resource, berths, in every form that a client may ask for.
type quay struct {
	*fakeResource
	// absent says that the server does not have the resource; refused counts the requests for it
	// during that time.
	absent  atomic.Bool
	refused atomic.Int64
	// broken says that the server has the resource and cannot list it.
	broken atomic.Bool
	// filters says that the server honours selectors for the halves and sixteenths of the keyspace.
	// It never echoes them.
	filters bool
}

// sixteenths are the parts of the keyspace in a plan of 16 shards.
var sixteenths, _ = shard.EqualRanges(16)

var errBroken = apierrors.NewInternalError(errors.New("conversion webhook for berths failed"))

func newBerth(namespace, name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"length": "long"}}
	u.SetAPIVersion(berths.GroupVersion().String())
	u.SetKind("Berth")
	u.SetNamespace(namespace)
	u.SetName(name)
	u.SetUID(types.UID(namespace + "/" + name))
	return u
}

func (q *quay) keeps(o metav1.ListOptions, obj any) bool {
	accessor, err := meta.Accessor(obj)
	return err == nil && (!q.filters || o.ShardSelector == "" || slices.ContainsFunc(slices.Concat(listwatch.KeyspaceHalves, sixteenths), func(part shard.Range) bool {
		return o.ShardSelector == part.Selector() && part.ContainsNamespace(accessor.GetNamespace())
	}))
}

// list fills list with objects made by as.
func (q *quay) list(ctx context.Context, o metav1.ListOptions, list runtime.Object, as func(*unstructured.Unstructured) runtime.Object) error {
	if q.absent.Load() {
		q.refused.Add(1)
		return apierrors.NewNotFound(berths.GroupResource(), "")
	}
	if q.broken.Load() {
		return errBroken
	}
	all, err := q.fakeResource.List(ctx, o)
	if err != nil {
		return err
	}
	objects, err := meta.ExtractList(all)
	if err != nil {
		return err
	}
	slices.SortFunc(objects, func(a, b runtime.Object) int { return strings.Compare(informertest.Name(a), informertest.Name(b)) })
	var items []runtime.Object
	for _, obj := range objects {
		if q.keeps(o, obj) && (o.Limit == 0 || int64(len(items)) < o.Limit) {
			items = append(items, as(obj.(*unstructured.Unstructured)))
		}
	}
	from, err := meta.ListAccessor(all)
	if err != nil {
		return err
	}
	to, err := meta.ListAccessor(list)
	if err != nil {
		return err
	}
	to.SetResourceVersion(from.GetResourceVersion())
	return meta.SetList(list, items)
}

func (q *quay) watch(ctx context.Context, o metav1.ListOptions, as func(*unstructured.Unstructured) runtime.Object) (watch.Interface, error) {
	if q.absent.Load() {
		q.refused.Add(1)
		return nil, apierrors.NewNotFound(berths.GroupResource(), "")
	}
	if q.broken.Load() {
		return nil, errBroken
	}
	w, err := q.fakeResource.Watch(ctx, o)
	if err != nil {
		return nil, err
	}
	return listwatch.FilterWatch(w, func(obj any) (any, bool) {
		if !q.keeps(o, obj) {
			return nil, false
		}
		return as(obj.(*unstructured.Unstructured)), true
	}, nil, false), nil
}

func asUnstructured(u *unstructured.Unstructured) runtime.Object { return u }

func asPartial(u *unstructured.Unstructured) runtime.Object {
	return meta.AsPartialObjectMetadata(u)
}

func asBerth(u *unstructured.Unstructured) runtime.Object {
	length, _, _ := unstructured.NestedString(u.Object, "length")
	return &berth{ObjectMeta: meta.AsPartialObjectMetadata(u).ObjectMeta, Length: length}
}

// resource returns the Resource that a caller with its own scheme would pass.
func (q *quay) resource(scope meta.RESTScopeName) Resource {
	return Resource{GVR: berths, Scope: scope, Object: &berth{}, ListerWatcher: &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list := &berthList{}
			return list, q.list(ctx, o, list, asBerth)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return q.watch(ctx, o, asBerth)
		},
	}}
}

type quayDynamic struct {
	dynamic.Interface
	quay *quay
}

func (d quayDynamic) Resource(schema.GroupVersionResource) dynamic.NamespaceableResourceInterface {
	return quayDynamicResource{quay: d.quay}
}

type quayDynamicResource struct {
	dynamic.NamespaceableResourceInterface
	quay *quay
}

func (d quayDynamicResource) List(ctx context.Context, o metav1.ListOptions) (*unstructured.UnstructuredList, error) {
	list := &unstructured.UnstructuredList{}
	return list, d.quay.list(ctx, o, list, asUnstructured)
}

func (d quayDynamicResource) Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	return d.quay.watch(ctx, o, asUnstructured)
}

type quayMetadata struct {
	metadata.Interface
	quay *quay
}

func (m quayMetadata) Resource(schema.GroupVersionResource) metadata.Getter {
	return quayMetadataResource{quay: m.quay}
}

type quayMetadataResource struct {
	metadata.Getter
	quay *quay
}

func (m quayMetadataResource) List(ctx context.Context, o metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	list := &metav1.PartialObjectMetadataList{}
	return list, m.quay.list(ctx, o, list, asPartial)
}

func (m quayMetadataResource) Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	return m.quay.watch(ctx, o, asPartial)
}

// newQuay returns a server and a pool that reads from it.
func newQuay(t *testing.T) (*quay, *Pool) {
	t.Helper()
	q := &quay{fakeResource: newFakeResource(t)}
	pool := newTestPool(t, &apiServer{}, clock.RealClock{}, 0)
	pool.config.Metadata, pool.config.Dynamic = quayMetadata{quay: q}, quayDynamic{quay: q}
	return q, pool
}

// namespacedBerths is a ScopeFunc for which berths are namespaced.
func namespacedBerths(gvr schema.GroupVersionResource) (bool, error) {
	if gvr == berths {
		return true, nil
	}
	return false, apierrors.NewNotFound(gvr.GroupResource(), "")
}

// halvesOf returns two factories that know the scope of berths.
func halvesOf(t *testing.T, p *Pool, scope ScopeFunc) (low, high *Factory) {
	t.Helper()
	low, high = p.NewFactory(listwatch.KeyspaceHalves[0], scope), p.NewFactory(listwatch.KeyspaceHalves[1], scope)
	t.Cleanup(low.Shutdown)
	t.Cleanup(high.Shutdown)
	return low, high
}

// eachForm runs a test in virtual time for each way to ask for berths.
func eachForm(t *testing.T, test func(t *testing.T, form form, q *quay, pool *Pool)) {
	t.Helper()
	for _, form := range forms {
		t.Run(form.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q, pool := newQuay(t)
				test(t, form, q, pool)
			})
		})
	}
}

// form is one way to ask for berths.
type form struct {
	name string
	ask  func(*testing.T, *Factory, *quay) cache.SharedIndexInformer
	is   func(obj any) bool
}

func isType[T any](obj any) bool { _, is := obj.(T); return is }

var forms = []form{
	{"dynamic", func(t *testing.T, f *Factory, _ *quay) cache.SharedIndexInformer {
		i, err := f.Dynamic(berths)
		if err != nil {
			t.Fatal(err)
		}
		return i.Informer()
	}, isType[*unstructured.Unstructured]},
	{"metadata", func(t *testing.T, f *Factory, _ *quay) cache.SharedIndexInformer {
		i, err := f.Metadata(berths)
		if err != nil {
			t.Fatal(err)
		}
		return i.Informer()
	}, isType[*metav1.PartialObjectMetadata]},
	{"custom", func(t *testing.T, f *Factory, q *quay) cache.SharedIndexInformer {
		i, err := f.Custom(q.resource(meta.RESTScopeNameNamespace))
		if err != nil {
			t.Fatal(err)
		}
		return i
	}, isType[*berth]},
}
