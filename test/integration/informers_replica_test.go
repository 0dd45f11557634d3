package integration

import (
	"fmt"
	"maps"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// content is a cache's content: object keys and versions.
type content map[string]string

func contentOf(objects []any) content {
	c := content{}
	for _, obj := range objects {
		o := accessor(obj)
		c[key(o)] = version(o)
	}
	return c
}

func key(o metav1.Object) string { return cache.NewObjectName(o.GetNamespace(), o.GetName()).String() }

func version(o metav1.Object) string { return string(o.GetUID()) + "@" + o.GetResourceVersion() }

func accessor(obj any) metav1.Object {
	if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = gone.Obj
	}
	o, err := meta.Accessor(obj)
	if err != nil {
		panic(err)
	}
	return o
}

// diff returns an error unless both are the same.
func (c content) diff(got content) error {
	if diff := cmp.Diff(c, got); diff != "" {
		return fmt.Errorf("(-want +got):\n%s", diff)
	}
	return nil
}

// replica is a handler that keeps a copy of the cache from its notifications alone.
type replica struct {
	// belongs reports whether it may be notified of an object.
	belongs func(metav1.Object) bool

	mu      sync.Mutex
	objects content
	faults  []string
	// over is set once the shard has been shut down.
	over bool
}

func newReplica(belongs func(metav1.Object) bool) *replica {
	return &replica{belongs: belongs, objects: content{}}
}

// told checks one notification: the version known before, "" for none, and the version after.
func (r *replica) told(call string, o metav1.Object, before, after string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	known := r.objects[key(o)]
	if known == "" != (before == "") || call == "update" && known != before {
		r.faults = append(r.faults, fmt.Sprintf("%s of %s, %q to %q, while %q is known", call, key(o), before, after, known))
	}
	if r.over {
		r.faults = append(r.faults, fmt.Sprintf("%s of %s after the shard was shut down", call, key(o)))
	}
	if !r.belongs(o) {
		r.faults = append(r.faults, fmt.Sprintf("%s of %s, which is outside the range", call, key(o)))
	}
	if after == "" {
		delete(r.objects, key(o))
		return
	}
	r.objects[key(o)] = after
}

// OnAdd implements cache.ResourceEventHandler.
func (r *replica) OnAdd(obj any, _ bool) { r.told("add", accessor(obj), "", version(accessor(obj))) }

// OnUpdate implements cache.ResourceEventHandler.
func (r *replica) OnUpdate(old, obj any) {
	r.told("update", accessor(obj), version(accessor(old)), version(accessor(obj)))
}

// OnDelete implements cache.ResourceEventHandler. The last state need not be known.
func (r *replica) OnDelete(obj any) { r.told("delete", accessor(obj), version(accessor(obj)), "") }

// check compares the replica with the cache. A fault is permanent.
func (r *replica) check(want content) (fault, difference error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case len(r.faults) > 0:
		return fmt.Errorf("handler was told: %q", r.faults), nil
	case r.over:
		return nil, nil
	}
	return nil, want.diff(r.objects)
}

// readBy is one informer and the replicas of its notifications.
type readBy struct {
	subject
	informer cache.SharedIndexInformer
	belongs  func(metav1.Object) bool
	replicas []*replica
}

func (b *readBy) addReplica(t testing.TB) {
	t.Helper()
	r := newReplica(b.belongs)
	if _, err := b.informer.AddEventHandler(r); err != nil {
		t.Fatal(err)
	}
	b.replicas = append(b.replicas, r)
}

// check returns the cache's content. A fault is permanent; a difference may go away.
func (b *readBy) check() (got content, fault, difference error) {
	if !b.informer.HasSynced() {
		return nil, nil, fmt.Errorf("%s have not been listed yet", b.gvr.Resource)
	}
	objects := b.informer.GetStore().List()
	got = contentOf(objects)
	for _, obj := range objects {
		if o := accessor(obj); !b.belongs(o) {
			return nil, fmt.Errorf("%s %s is outside the range", b.kind, key(o)), nil
		}
	}
	indexed := content{}
	for _, namespace := range b.informer.GetIndexer().ListIndexFuncValues(cache.NamespaceIndex) {
		in, err := b.informer.GetIndexer().ByIndex(cache.NamespaceIndex, namespace)
		if err != nil {
			return nil, err, nil
		}
		maps.Copy(indexed, contentOf(in))
	}
	if err := got.diff(indexed); err != nil {
		difference = fmt.Errorf("%s by namespace: %w", b.kind, err)
	}
	for i, r := range b.replicas {
		f, d := r.check(got)
		if f != nil {
			return nil, fmt.Errorf("%s: %w", b.kind, f), nil
		}
		if d != nil {
			difference = fmt.Errorf("%s, handler %d: %w", b.kind, i, d)
		}
	}
	return got, nil, difference
}
