package garbage

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/flotilla-kube/flotilla/pkg/shard"
	"github.com/flotilla-kube/flotilla/test/controlplane"
	"github.com/flotilla-kube/flotilla/test/harness"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
)

// kind is a kind of object in the graphs.
type kind struct {
	gvr        schema.GroupVersionResource
	name       string
	namespaced bool
}

func (k kind) apiVersion() string { return k.gvr.GroupVersion().String() }

const customGroup = "garbage.flotilla.dev"

func custom(resource, name string, namespaced bool) kind {
	return kind{schema.GroupVersionResource{Group: customGroup, Version: "v1", Resource: resource}, name, namespaced}
}

var (
	configMap   = kind{schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, "ConfigMap", true}
	clusterRole = kind{schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"}, "ClusterRole", false}
	thing       = custom("things", "Thing", true)
	globe       = custom("globes", "Globe", false)
	lateThing   = custom("latethings", "LateThing", true)
	lateGlobe   = custom("lateglobes", "LateGlobe", false)

	kinds = []kind{configMap, thing, clusterRole, globe, lateThing, lateGlobe}

	crds = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
)

// api has the administrator's clients.
type api struct {
	config   *rest.Config
	client   kubernetes.Interface
	dynamic  dynamic.Interface
	metadata metadata.Interface
	away     outage
}

func newAPI(t testing.TB) *api {
	t.Helper()
	return newAPIOf(t, plane)
}

func newAPIOf(t testing.TB, plane *controlplane.ControlPlane) *api {
	t.Helper()
	config := rest.CopyConfig(plane.AdminConfig())
	config.QPS = -1
	a := &api{config: config}
	var errs [3]error
	a.client, errs[0] = kubernetes.NewForConfig(config)
	a.dynamic, errs[1] = dynamic.NewForConfig(config)
	a.metadata, errs[2] = metadata.NewForConfig(config)
	if err := errors.Join(errs[:]...); err != nil {
		t.Fatal(err)
	}
	return a
}

// define creates a kind, and returns when the API server serves it.
func (a *api) define(t testing.TB, k kind) {
	t.Helper()
	scope := "Cluster"
	if k.namespaced {
		scope = "Namespaced"
	}
	crd := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": k.gvr.Resource + "." + k.gvr.Group},
		"spec": map[string]any{
			"group": k.gvr.Group, "scope": scope,
			"names": map[string]any{"plural": k.gvr.Resource, "singular": strings.ToLower(k.name), "kind": k.name, "listKind": k.name + "List"},
			"versions": []any{map[string]any{"name": k.gvr.Version, "served": true, "storage": true,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object"}}}},
		},
	}}
	harness.Eventually(t, *patience, k.name+" is defined", func(ctx context.Context) error {
		_, err := a.dynamic.Resource(crds).Create(ctx, crd, metav1.CreateOptions{})
		if !apierrors.IsAlreadyExists(err) {
			return err
		}
		there, err := a.dynamic.Resource(crds).Get(ctx, crd.GetName(), metav1.GetOptions{})
		if err != nil || there.GetDeletionTimestamp() != nil {
			return fmt.Errorf("the last definition is still being deleted (%v)", err)
		}
		return nil
	})
	harness.Eventually(t, *patience, "the server serves "+k.name, func(ctx context.Context) error {
		_, err := a.dynamic.Resource(k.gvr).List(ctx, metav1.ListOptions{})
		return err
	})
}

// undefine removes a kind, and returns when the API server does not serve it.
func (a *api) undefine(t testing.TB, k kind) {
	t.Helper()
	err := a.dynamic.Resource(crds).Delete(t.Context(), k.gvr.Resource+"."+k.gvr.Group, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	harness.Eventually(t, *patience, "the server serves "+k.name+" no more", func(ctx context.Context) error {
		_, err := a.dynamic.Resource(k.gvr).List(ctx, metav1.ListOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("%s is still served (%v)", k.name, err)
	})
}

// sandbox is the part of the API server that one set of collectors sees: objects that have the
// sandbox's name as a label.
type sandbox struct {
	*api
	name   string
	spaces []string

	mu sync.Mutex
	// uids has the created objects' UIDs by id.
	uids map[id]types.UID
	// withheld is set if collectors are to start without all objects.
	withheld bool
}

// id names an object, the same in each sandbox. space is the number of its namespace, -1 for none.
type id struct {
	kind  string
	space int
	name  string
}

const label = "garbage-world"

// newSandbox creates a sandbox with this many namespaces.
func newSandbox(t testing.TB, a *api, name string, spaces int) *sandbox {
	t.Helper()
	sb := &sandbox{api: a, name: name, uids: map[id]types.UID{}}
	for i := range spaces {
		sb.spaces = append(sb.spaces, spread(name, i))
	}
	err := harness.InParallel(spaces, func(i int) error {
		_, err := a.client.CoreV1().Namespaces().Create(t.Context(), &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: sb.spaces[i]}}, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return sb
}

// spread returns a name for namespace i of a sandbox. Four in a row lie in the four quarters of the
// keyspace, the first two of them in different halves. Names that differ only at the end would lie
// close together.
func spread(name string, i int) string {
	quarter := []uint64{0, 2, 1, 3}[i%4]
	for try := 0; ; try++ {
		if space := fmt.Sprintf("%x-%s-%d", try, name, i); shard.Hash(space)>>62 == quarter {
			return space
		}
	}
}

// equalRanges divides the keyspace.
func equalRanges(t testing.TB, n int) []shard.Range {
	t.Helper()
	ranges, err := shard.EqualRanges(n)
	if err != nil {
		t.Fatal(err)
	}
	return ranges
}

func kindOf(name string) kind {
	return kinds[slices.IndexFunc(kinds, func(k kind) bool { return k.name == name })]
}

// resource returns the client for an object's resource and the object's name.
func (sb *sandbox) resource(o id) (dynamic.ResourceInterface, string) {
	k := kindOf(o.kind)
	if !k.namespaced {
		return sb.dynamic.Resource(k.gvr), sb.name + "-" + o.name
	}
	return sb.dynamic.Resource(k.gvr).Namespace(sb.spaces[o.space]), o.name
}

// edge is an owner reference.
type edge struct {
	owner id
	// fault is what is wrong with it.
	fault    fault
	blocking bool
}

type fault string

const (
	sound     fault = ""
	wrongUID  fault = "wrong UID"
	wrongName fault = "wrong name"
	wrongKind fault = "wrong kind"
	never     fault = "never was"
	noKind    fault = "no such kind"
)

// reference returns the owner reference; ok is false if the owner has not been created yet.
func (sb *sandbox) reference(e edge) (ref metav1.OwnerReference, ok bool) {
	sb.mu.Lock()
	uid, ok := sb.uids[e.owner]
	sb.mu.Unlock()
	k := kindOf(e.owner.kind)
	_, name := sb.resource(e.owner)
	ref = metav1.OwnerReference{APIVersion: k.apiVersion(), Kind: k.name, Name: name, UID: uid}
	if e.blocking {
		ref.BlockOwnerDeletion = &e.blocking
	}
	switch e.fault {
	case wrongUID:
		ref.UID = types.UID("00000000-0000-0000-0000-" + strings.Repeat("0", 6) + "bad" + fmt.Sprintf("%03d", len(name)))
	case wrongName:
		ref.Name = "not-" + name
	case wrongKind: // of the other scope
		other := clusterRole
		if !k.namespaced {
			other = configMap
		}
		ref.APIVersion, ref.Kind = other.apiVersion(), other.name
	case noKind:
		ref.APIVersion, ref.Kind = "riddles.example.com/v1", "Riddle"
	case never:
		ref.Name, ref.UID = "never-"+name, types.UID("never-"+sb.name+"-"+name)
		return ref, true
	}
	return ref, ok
}

// create creates an object with those owners that exist, and reports whether these are all.
func (sb *sandbox) create(ctx context.Context, o id, edges []edge) (complete bool, err error) {
	k := kindOf(o.kind)
	resource, name := sb.resource(o)
	obj := &unstructured.Unstructured{}
	obj.SetAPIVersion(k.apiVersion())
	obj.SetKind(k.name)
	obj.SetName(name)
	obj.SetLabels(map[string]string{label: sb.name})
	refs, complete := sb.references(edges)
	obj.SetOwnerReferences(refs)
	made, err := resource.Create(ctx, obj, metav1.CreateOptions{})
	if err != nil {
		return false, err
	}
	sb.mu.Lock()
	defer sb.mu.Unlock()
	sb.uids[o] = made.GetUID()
	return complete, nil
}

func (sb *sandbox) references(edges []edge) (refs []metav1.OwnerReference, complete bool) {
	complete = true
	for _, e := range edges {
		ref, ok := sb.reference(e)
		if complete = complete && ok; ok {
			refs = append(refs, ref)
		}
	}
	return refs, complete
}

// own sets an object's owners.
func (sb *sandbox) own(ctx context.Context, o id, edges []edge) error {
	resource, name := sb.resource(o)
	refs, _ := sb.references(edges)
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		obj, err := resource.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		obj.SetOwnerReferences(refs)
		_, err = resource.Update(ctx, obj, metav1.UpdateOptions{})
		return err
	})
}

func (sb *sandbox) delete(ctx context.Context, o id, policy metav1.DeletionPropagation) error {
	resource, name := sb.resource(o)
	return resource.Delete(ctx, name, metav1.DeleteOptions{PropagationPolicy: &policy})
}

// make creates the objects with all their owners. No collector may look at them before it returns.
func (sb *sandbox) make(ctx context.Context, objects map[id][]edge) error {
	all := slices.Collect(maps.Keys(objects))
	var incomplete sync.Map
	err := harness.InParallel(len(all), func(i int) error {
		complete, err := sb.create(ctx, all[i], objects[all[i]])
		if !complete {
			incomplete.Store(all[i], true)
		}
		return err
	})
	if err != nil {
		return err
	}
	return harness.InParallel(len(all), func(i int) error {
		if _, ok := incomplete.Load(all[i]); !ok {
			return nil
		}
		return sb.own(ctx, all[i], objects[all[i]])
	})
}

// state is the content of a sandbox, in terms that are the same in each.
type state map[id]object

type object struct {
	// dying is set while the object is being deleted; finalizers lists its finalizers.
	dying      bool
	finalizers string
	// owners are sorted. Namespaced owners of cluster-scoped objects are left out: see
	// docs/design/garbage.md.
	owners string
}

func (sb *sandbox) state(ctx context.Context, of []kind) (state, error) {
	s := state{}
	for _, k := range of {
		list, err := sb.metadata.Resource(k.gvr).List(ctx, metav1.ListOptions{LabelSelector: label + "=" + sb.name})
		if apierrors.IsNotFound(err) {
			continue // not defined
		}
		if err != nil {
			return nil, err
		}
		for i := range list.Items {
			m := &list.Items[i]
			s[sb.id(k, m)] = object{m.DeletionTimestamp != nil, strings.Join(m.Finalizers, " "), sb.ownersOf(k, m)}
		}
	}
	return s, nil
}

func (sb *sandbox) id(k kind, m *metav1.PartialObjectMetadata) id {
	if !k.namespaced {
		return id{k.name, -1, strings.TrimPrefix(m.Name, sb.name+"-")}
	}
	return id{k.name, slices.Index(sb.spaces, m.Namespace), m.Name}
}

func (sb *sandbox) ownersOf(k kind, m *metav1.PartialObjectMetadata) string {
	var owners []string
	for _, ref := range m.OwnerReferences {
		if !k.namespaced && kindOf(ref.Kind).namespaced {
			continue
		}
		owners = append(owners, ref.Kind+"/"+strings.ReplaceAll(ref.Name, sb.name+"-", ""))
	}
	slices.Sort(owners)
	return strings.Join(owners, " ")
}

// distinct makes the names that busy uses unique.
var distinct atomic.Int32

// busy makes the collectors delete something in each namespace, and outside of them, and waits for
// that.
func (sb *sandbox) busy(t *testing.T) {
	t.Helper()
	sb.collects(t, [][2]kind{{configMap, configMap}, {thing, clusterRole}, {clusterRole, clusterRole}, {globe, clusterRole}})
}

// collects creates objects of kinds, in each namespace if they are namespaced, whose owners of other
// kinds, each the second of two, never were. It waits until the collectors have deleted them.
func (sb *sandbox) collects(t *testing.T, pairs [][2]kind) {
	t.Helper()
	made := map[id]bool{}
	for _, pair := range pairs {
		spaces := 1
		if pair[0].namespaced {
			spaces = len(sb.spaces)
		}
		for space := range spaces {
			o := named(pair[0], space, fmt.Sprintf("busy-%d", distinct.Add(1)))
			_, err := sb.create(t.Context(), o, []edge{{owner: named(pair[1], space, "owner"), fault: never}})
			if err != nil && !apierrors.HasStatusCause(err, v1.NamespaceTerminatingCause) {
				t.Fatal(err)
			}
			made[o] = true
		}
	}
	harness.Eventually(t, *patience, "something else is collected", func(ctx context.Context) error {
		now, err := sb.state(ctx, kinds)
		for o := range now {
			if made[o] {
				return fmt.Errorf("%v exists", o)
			}
		}
		return err
	})
}

// decided leaves out of objects that wait in the foreground the owners that wait too, or are gone.
// Upstream removes the reference to an owner that waits if the object then has an owner that does
// not, and it is a matter of luck which of the two it looks at first.
func (s state) decided() state {
	decided := maps.Clone(s)
	waits := func(o object) bool { return strings.Contains(o.finalizers, metav1.FinalizerDeleteDependents) }
	for o, obj := range s {
		if !waits(obj) {
			continue
		}
		obj.owners = strings.Join(slices.DeleteFunc(strings.Fields(obj.owners), func(owner string) bool {
			kind, name, _ := strings.Cut(owner, "/")
			at, there := s[id{kind, o.space, name}]
			if !there {
				at, there = s[id{kind, -1, name}]
			}
			return !there || waits(at)
		}), " ")
		decided[o] = obj
	}
	return decided
}

// differences describes how got differs from want.
func differences(want, got state) (diff []string) {
	for o, w := range want {
		if g, ok := got[o]; !ok {
			diff = append(diff, fmt.Sprintf("%v is gone, stock keeps it: %+v", o, w))
		} else if g != w {
			diff = append(diff, fmt.Sprintf("%v is %+v, with stock %+v", o, g, w))
		}
	}
	for o, g := range got {
		if _, ok := want[o]; !ok {
			diff = append(diff, fmt.Sprintf("%v exists, stock deletes it: %+v", o, g))
		}
	}
	slices.Sort(diff)
	return diff
}
