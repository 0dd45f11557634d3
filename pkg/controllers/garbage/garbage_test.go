package garbage

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"reflect"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	pkgcontroller "k8s.io/kubernetes/pkg/controller"
	"k8s.io/utils/ptr"
)

// server answers discovery requests.
type server struct {
	discovery.ServerResourcesInterface
	lists []*metav1.APIResourceList
	err   error
}

func (s *server) ServerGroupsAndResources() ([]*metav1.APIGroup, []*metav1.APIResourceList, error) {
	return nil, s.lists, s.err
}

func resources(gv string, namespaced bool, kinds ...string) *metav1.APIResourceList {
	list := &metav1.APIResourceList{GroupVersion: gv}
	for _, k := range kinds {
		list.APIResources = append(list.APIResources, metav1.APIResource{Name: k + "s", Kind: k, Namespaced: namespaced},
			metav1.APIResource{Name: k + "s/status", Kind: k + "Status"})
	}
	return list
}

func ref(apiVersion, kind string, uid types.UID) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: apiVersion, Kind: kind, Name: "owner", UID: uid}
}

var (
	namespacedRef = ref("v1", "pod", "n")
	clusterRef    = ref("example.com/v1", "globe", "c")
	unknownRef    = ref("example.com/v1", "riddle", "u")
)

func newScopes(t *testing.T) (*server, *Scopes) {
	t.Helper()
	s := &server{lists: []*metav1.APIResourceList{resources("v1", true, "pod"), resources("example.com/v1", false, "globe")}}
	scopes := NewScopes(s)
	if err := scopes.Refresh(); err != nil {
		t.Fatal(err)
	}
	return s, scopes
}

func TestScopes(t *testing.T) {
	s, scopes := newScopes(t)
	want := func(when string, namespaced, cluster, unknown Scope) {
		t.Helper()
		for ref, scope := range map[*metav1.OwnerReference]Scope{&namespacedRef: namespaced, &clusterRef: cluster, &unknownRef: unknown} {
			if got := scopes.Of(*ref); got != scope {
				t.Errorf("%s: scope of %s is %v, want %v", when, ref.Kind, got, scope)
			}
		}
	}
	want("at first", Namespaced, Cluster, Unknown)
	if got := scopes.OfResource(schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "globes"}); got != Cluster {
		t.Errorf("scope of globes is %v, want %v", got, Cluster)
	}
	if got := scopes.Of(ref("v1", "podStatus", "s")); got != Unknown {
		t.Errorf("the kind of a subresource is known as %v", got)
	}

	s.lists = []*metav1.APIResourceList{resources("v1", true, "pod")}
	s.err = &discovery.ErrGroupDiscoveryFailed{Groups: map[schema.GroupVersion]error{{Group: "example.com", Version: "v1"}: errors.New("is away")}}
	if err := scopes.Refresh(); err != nil {
		t.Fatal(err)
	}
	want("while a group does not answer", Namespaced, Cluster, Unknown)

	s.lists, s.err = nil, errors.New("is away")
	if err := scopes.Refresh(); err == nil {
		t.Error("no error while the server is away")
	}
	want("while the server does not answer", Namespaced, Cluster, Unknown)

	s.lists, s.err = []*metav1.APIResourceList{resources("v1", true, "pod"), resources("example.com/v1", true, "riddle")}, nil
	if err := scopes.Refresh(); err != nil {
		t.Fatal(err)
	}
	want("after kinds have come and gone", Namespaced, Unknown, Namespaced)
}

// TestNewKindOfARange has the collector of a range hear of a cluster-scoped kind before the scopes
// do: it must not read all its objects.
func TestNewKindOfARange(t *testing.T) {
	s, scopes := newScopes(t)
	s.lists = append(s.lists, resources("new.example.com/v1", false, "star"))
	all := Informers(OfRange, scopes, nil) // it would panic if it were asked for the kind
	informer, err := all.ForResource(schema.GroupVersionResource{Group: "new.example.com", Version: "v1", Resource: "stars"})
	if err != nil {
		t.Fatal(err)
	}
	if _, is := informer.Informer().(silentInformer); !is {
		t.Errorf("the range reads a cluster-scoped kind with a %T", informer.Informer())
	}
}

func object(namespace string, finalizers []string, refs ...metav1.OwnerReference) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "x", UID: "x", ResourceVersion: "7", OwnerReferences: refs,
		Finalizers: finalizers, DeletionTimestamp: &metav1.Time{}, Labels: map[string]string{"a": "b"}}}
}

func TestTold(t *testing.T) {
	_, scopes := newScopes(t)
	all := []metav1.OwnerReference{namespacedRef, clusterRef, unknownRef}
	finalizers := []string{"example.com/other", metav1.FinalizerDeleteDependents, metav1.FinalizerOrphanDependents}
	for name, tc := range map[string]struct {
		part       Part
		obj        *v1.Pod
		refs       []metav1.OwnerReference
		finalizers []string
		concerned  bool
	}{
		"range":                     {OfRange, object("a", finalizers, all...), []metav1.OwnerReference{namespacedRef, unknownRef}, finalizers, true},
		"range, nothing to take":    {OfRange, object("a", finalizers, namespacedRef), []metav1.OwnerReference{namespacedRef}, finalizers, true},
		"cluster":                   {OfCluster, object("a", finalizers, all...), []metav1.OwnerReference{clusterRef, unknownRef}, finalizers[:1], true},
		"cluster, namespaced owner": {OfCluster, object("a", finalizers[:1], namespacedRef), []metav1.OwnerReference{}, finalizers[:1], false},
		"cluster, finalizer":        {OfCluster, object("a", finalizers[1:], clusterRef), []metav1.OwnerReference{clusterRef}, []string{}, true},
		"cluster, cluster-scoped":   {OfCluster, object("", finalizers, all...), all, finalizers, true},
	} {
		t.Run(name, func(t *testing.T) {
			before := tc.obj.DeepCopy()
			told, ok := cut{tc.part, scopes}.tell(tc.obj).(metav1.Object)
			if !ok {
				t.Fatal("it gets nothing")
			}
			if got := told.GetOwnerReferences(); !reflect.DeepEqual(got, tc.refs) {
				t.Errorf("owners %v, want %v", got, tc.refs)
			}
			if got := told.GetFinalizers(); !reflect.DeepEqual(got, tc.finalizers) {
				t.Errorf("finalizers %v, want %v", got, tc.finalizers)
			}
			if told.GetName() != "x" || told.GetUID() != "x" || told.GetNamespace() != tc.obj.Namespace || told.GetResourceVersion() != "7" || told.GetDeletionTimestamp() == nil {
				t.Errorf("it gets another object: %+v", told)
			}
			if !reflect.DeepEqual(before, tc.obj) {
				t.Errorf("the object itself is %+v, was %+v", tc.obj, before)
			}
			if got := (cut{tc.part, scopes}).concerns(tc.obj); got != tc.concerned {
				t.Errorf("concerned: %t, want %t", got, tc.concerned)
			}
			tombstone, ok := cut{tc.part, scopes}.tell(cache.DeletedFinalStateUnknown{Key: "a/x", Obj: tc.obj}).(cache.DeletedFinalStateUnknown)
			if !ok || !reflect.DeepEqual(tombstone.Obj, any(told)) || tombstone.Key != "a/x" {
				t.Errorf("for a missed deletion it gets %+v", tombstone)
			}
		})
	}
	if told := (cut{OfRange, scopes}).tell(object("", nil, clusterRef)); told != nil {
		t.Errorf("a range gets a cluster-scoped object: %v", told)
	}
	if told := (cut{OfRange, scopes}).tell(cache.DeletedFinalStateUnknown{Obj: object("", nil)}); told != nil {
		t.Errorf("a range gets the deletion of a cluster-scoped object: %v", told)
	}
}

// store holds an API server's objects, and records the requests.
type store struct {
	objects map[string]*metav1.PartialObjectMetadata // By namespace and name.
	strict  bool                                     // It refuses strategic merge patches.
	deletes []metav1.DeletionPropagation
	patches []string
	// read is called after each object that is read, if it is set.
	read func(name string)
}

func (s *store) Resource(gvr schema.GroupVersionResource) metadata.Getter {
	return storeGetter{storeResource{nil, s, gvr, ""}}
}

type storeGetter struct{ storeResource }

func (g storeGetter) Namespace(namespace string) metadata.ResourceInterface {
	g.namespace = namespace
	return g.storeResource
}

type storeResource struct {
	metadata.ResourceInterface
	*store
	gvr       schema.GroupVersionResource
	namespace string
}

func (r storeResource) Get(_ context.Context, name string, _ metav1.GetOptions, _ ...string) (*metav1.PartialObjectMetadata, error) {
	if obj, ok := r.objects[r.namespace+"/"+name]; ok {
		if r.read != nil {
			defer r.read(name)
		}
		return obj.DeepCopy(), nil
	}
	return nil, apierrors.NewNotFound(r.gvr.GroupResource(), name)
}

func (r storeResource) Delete(_ context.Context, _ string, options metav1.DeleteOptions, _ ...string) error {
	r.deletes = append(r.deletes, *options.PropagationPolicy)
	return nil
}

func (r storeResource) Patch(_ context.Context, name string, pt types.PatchType, data []byte, _ metav1.PatchOptions, _ ...string) (*metav1.PartialObjectMetadata, error) {
	if r.strict && pt == types.StrategicMergePatchType {
		return nil, &apierrors.StatusError{ErrStatus: metav1.Status{Code: http.StatusUnsupportedMediaType, Reason: metav1.StatusReasonUnsupportedMediaType}}
	}
	r.patches = append(r.patches, string(pt)+" "+string(data))
	return r.objects[r.namespace+"/"+name], nil
}

func metaOf(namespace, name string, waiting bool, refs ...metav1.OwnerReference) *metav1.PartialObjectMetadata {
	m := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(name), ResourceVersion: "7", OwnerReferences: refs}}
	if waiting {
		m.DeletionTimestamp, m.Finalizers = &metav1.Time{}, []string{metav1.FinalizerDeleteDependents}
	}
	return m
}

var things = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "things"}

// TestClusterDeletes checks that the collector checks owners and deletes dependents as upstream's
// does.
func TestClusterDeletes(t *testing.T) {
	background, foreground := metav1.DeletePropagationBackground, metav1.DeletePropagationForeground
	owners := []metav1.OwnerReference{{Name: "k", UID: "k"}, {Name: "n", UID: "n"}}
	for name, tc := range map[string]struct {
		namespace string
		k, n      *metav1.PartialObjectMetadata
		policy    metav1.DeletionPropagation
		// after changes the objects between the check of the owners and the deletion.
		after func(*store)
		want  []metav1.DeletionPropagation
		fails bool
	}{
		"owners are gone":                {"a", nil, nil, background, nil, []metav1.DeletionPropagation{background}, false},
		"the cluster's waits":            {"a", metaOf("", "k", true), nil, background, nil, []metav1.DeletionPropagation{foreground}, false},
		"a namespaced one waits":         {"a", nil, metaOf("a", "n", true), background, nil, nil, true},
		"both wait":                      {"a", metaOf("", "k", true), metaOf("a", "n", true), background, nil, nil, true},
		"its own finalizer would orphan": {"a", metaOf("", "k", true), nil, metav1.DeletePropagationOrphan, nil, []metav1.DeletionPropagation{foreground}, false},
		"orphans, nobody waits":          {"a", metaOf("", "k", false), nil, metav1.DeletePropagationOrphan, nil, []metav1.DeletionPropagation{metav1.DeletePropagationOrphan}, false},
		"its own finalizer in a circle":  {"a", metaOf("", "k", true), metaOf("a", "n", true), foreground, nil, nil, true},
		"cluster-scoped itself":          {"", metaOf("", "k", true), nil, background, nil, []metav1.DeletionPropagation{background}, false},
		"the cluster's stops waiting":    {"a", metaOf("", "k", true), nil, background, func(s *store) { delete(s.objects, "/k") }, []metav1.DeletionPropagation{background}, false},
		"the namespaced one is gone": {"a", metaOf("", "k", true), metaOf("a", "n", true), background, func(s *store) { delete(s.objects, "a/n") },
			[]metav1.DeletionPropagation{foreground}, false},
		"another object has the name": {"a", metaOf("", "k", true), nil, background, func(s *store) { s.objects["/k"].UID = "other" },
			[]metav1.DeletionPropagation{background}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := &store{objects: map[string]*metav1.PartialObjectMetadata{tc.namespace + "/x": metaOf(tc.namespace, "x", false, owners...)}}
			if tc.k != nil {
				s.objects["/k"] = tc.k
			}
			if tc.n != nil {
				s.objects["a/n"] = tc.n
			}
			c := ClusterClient(s, newMapper())
			_, _ = c.Resource(things).Namespace("").Get(t.Context(), "k", metav1.GetOptions{})
			_, _ = c.Resource(things).Namespace("a").Get(t.Context(), "n", metav1.GetOptions{})
			if tc.after != nil {
				tc.after(s)
			}
			err := c.Resource(things).Namespace(tc.namespace).Delete(t.Context(), "x", metav1.DeleteOptions{PropagationPolicy: &tc.policy})
			if (err != nil) != tc.fails || !slices.Equal(s.deletes, tc.want) {
				t.Errorf("deletes %v (%v), want %v", s.deletes, err, tc.want)
			}
		})
	}
}

// TestOwnersChangeMeanwhile has the owners of an object change while the client looks whether they
// wait. Without a version as a precondition, only the client can notice.
func TestOwnersChangeMeanwhile(t *testing.T) {
	for name, tc := range map[string]struct {
		// changes is the object after whose reading the owners change, and version the
		// precondition.
		changes string
		version *string
		deleted bool
	}{
		"they do not change":         {"", nil, true},
		"they change":                {"k", nil, false},
		"they change, for a version": {"k", ptr.To("7"), true}, // the API server would refuse it
	} {
		t.Run(name, func(t *testing.T) {
			x := metaOf("a", "x", false, metav1.OwnerReference{Name: "k", UID: "k"})
			s := &store{objects: map[string]*metav1.PartialObjectMetadata{"a/x": x, "/k": metaOf("", "k", true)}}
			c := ClusterClient(s, newMapper()).Resource(things)
			if _, err := c.Namespace("").Get(t.Context(), "k", metav1.GetOptions{}); err != nil {
				t.Fatal(err)
			}
			s.read = func(name string) {
				if name == tc.changes {
					x.OwnerReferences = nil
				}
			}
			err := c.Namespace("a").Delete(t.Context(), "x", metav1.DeleteOptions{
				PropagationPolicy: ptr.To(metav1.DeletePropagationBackground), Preconditions: &metav1.Preconditions{ResourceVersion: tc.version},
			})
			if tc.deleted != (len(s.deletes) == 1) || apierrors.IsConflict(err) == tc.deleted {
				t.Errorf("deletes %v (%v)", s.deletes, err)
			}
		})
	}
}

// newMapper returns a mapper that knows the kinds of namespacedRef and clusterRef, but not that of
// unknownRef.
func newMapper() meta.RESTMapper {
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(schema.FromAPIVersionAndKind(namespacedRef.APIVersion, namespacedRef.Kind), meta.RESTScopeNamespace)
	mapper.Add(schema.FromAPIVersionAndKind(clusterRef.APIVersion, clusterRef.Kind), meta.RESTScopeRoot)
	return mapper
}

// failingMapper is a mapper whose discovery has failed.
type failingMapper struct{ meta.RESTMapper }

// RESTMapping implements meta.RESTMapper.
func (failingMapper) RESTMapping(schema.GroupKind, ...string) (*meta.RESTMapping, error) {
	return nil, errors.New("discovery has failed")
}

// TestOwnersThatCannotBeMapped: upstream asks the mapper again for the same owner. If it then gets
// an answer, a cluster-scoped object would be deleted because of an owner that it looks for in the
// wrong place.
func TestOwnersThatCannotBeMapped(t *testing.T) {
	for name, tc := range map[string]struct {
		obj   *metav1.PartialObjectMetadata
		fails bool
	}{
		"cluster-scoped":             {metaOf("", "x", false, namespacedRef), true},
		"cluster-scoped, of nothing": {metaOf("", "x", false), false},
		"namespaced":                 {metaOf("a", "x", false, namespacedRef), false},
	} {
		s := &store{objects: map[string]*metav1.PartialObjectMetadata{tc.obj.Namespace + "/x": tc.obj}}
		_, err := ClusterClient(s, failingMapper{}).Resource(things).Namespace(tc.obj.Namespace).Get(t.Context(), "x", metav1.GetOptions{})
		if (err != nil) != tc.fails {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestReadWithoutOwners: a collector decides by the owners of the object that it reads. It must see
// none where upstream's, with an up-to-date graph, would not decide by owners.
func TestReadWithoutOwners(t *testing.T) {
	all := []metav1.OwnerReference{clusterRef, unknownRef, namespacedRef}
	for name, tc := range map[string]struct {
		obj                *metav1.PartialObjectMetadata
		inRange, inCluster bool // Whether the collector of a range, and of the cluster, sees owners.
	}{
		"namespaced":                          {metaOf("a", "x", false, all...), true, true},
		"namespaced, is being deleted":        {metaOf("a", "x", true, all...), false, false},
		"cluster-scoped":                      {metaOf("", "x", false, all[:2]...), true, true},
		"cluster-scoped, is being deleted":    {metaOf("", "x", true, all[:2]...), false, false},
		"cluster-scoped, names a namespaced":  {metaOf("", "x", false, all...), true, false},
		"cluster-scoped, names no other kind": {metaOf("", "x", false, namespacedRef), true, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := &store{objects: map[string]*metav1.PartialObjectMetadata{tc.obj.Namespace + "/x": tc.obj}}
			for collector, c := range map[string]metadata.Interface{
				"range":   RangeClient(s, func(string) bool { return true }),
				"cluster": ClusterClient(s, newMapper()),
			} {
				want := tc.obj.DeepCopy()
				if sees := map[string]bool{"range": tc.inRange, "cluster": tc.inCluster}[collector]; !sees {
					want.OwnerReferences = nil
				}
				got, err := c.Resource(things).Namespace(tc.obj.Namespace).Get(t.Context(), "x", metav1.GetOptions{})
				if err != nil || !reflect.DeepEqual(got, want) {
					t.Errorf("the collector of the %s reads %+v (%v), want %+v", collector, got, err, want)
				}
			}
		})
	}
}

func TestRangeWritesWithin(t *testing.T) {
	s := &store{objects: map[string]*metav1.PartialObjectMetadata{}}
	c := RangeClient(s, func(namespace string) bool { return namespace == "in" })
	for namespace, within := range map[string]bool{"in": true, "out": false, "": false} {
		s.deletes, s.patches = nil, nil
		r := c.Resource(things).Namespace(namespace)
		failed := r.Delete(t.Context(), "x", metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)})
		_, alsoFailed := r.Patch(t.Context(), "x", types.MergePatchType, nil, metav1.PatchOptions{})
		if (failed == nil) != within || (alsoFailed == nil) != within || (len(s.deletes)+len(s.patches) > 0) != within {
			t.Errorf("in namespace %q: %v, %v, sent %v %v", namespace, failed, alsoFailed, s.deletes, s.patches)
		}
	}
}

// TestPatchesOfCustomResources checks that a strategic merge patch of owner references is carried
// out on the object's current references.
func TestPatchesOfCustomResources(t *testing.T) {
	blocked := clusterRef
	blocked.BlockOwnerDeletion = ptr.To(true)
	remove, err := pkgcontroller.GenerateDeleteOwnerRefStrategicMergeBytes("x", []types.UID{namespacedRef.UID})
	if err != nil {
		t.Fatal(err)
	}
	unblocked := blocked
	unblocked.BlockOwnerDeletion = ptr.To(false)
	unblock, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": "x", "creationTimestamp": nil, "ownerReferences": []metav1.OwnerReference{unblocked}}})
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		patch []byte
		want  []metav1.OwnerReference
	}{
		"an owner is removed":     {remove, []metav1.OwnerReference{blocked}},
		"an owner stops blocking": {unblock, []metav1.OwnerReference{unblocked, namespacedRef}},
	} {
		t.Run(name, func(t *testing.T) {
			s := &store{strict: true, objects: map[string]*metav1.PartialObjectMetadata{"a/x": metaOf("a", "x", false, blocked, namespacedRef)}}
			if _, err := ClusterClient(s, newMapper()).Resource(things).Namespace("a").Patch(t.Context(), "x", types.StrategicMergePatchType, tc.patch, metav1.PatchOptions{}); err != nil {
				t.Fatal(err)
			}
			refs, err := json.Marshal(tc.want)
			if err != nil {
				t.Fatal(err)
			}
			want := []string{string(types.MergePatchType) + ` {"metadata":{"resourceVersion":"7","ownerReferences":` + string(refs) + `}}`}
			if !slices.Equal(s.patches, want) {
				t.Errorf("sent %q, want %q", s.patches, want)
			}

			s.objects["a/x"].UID, s.patches = "another", nil
			_, err = ClusterClient(s, newMapper()).Resource(things).Namespace("a").Patch(t.Context(), "x", types.StrategicMergePatchType, tc.patch, metav1.PatchOptions{})
			if !apierrors.IsConflict(err) || len(s.patches) > 0 {
				t.Errorf("for another object of the name: %v, sent %q; want a conflict", err, s.patches)
			}
		})
	}
}
