package manager

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// selection is the part of a kind that a Manager wants to see. The shard's cache, which others
// share, still holds the whole kind: a handoff can then wait until the cache has seen the last
// writes, whichever objects they changed.
type selection struct {
	label labels.Selector
	field fields.Selector
}

// The fields that every object has. Only the API server knows other fields.
const (
	nameField      = "metadata.name"
	namespaceField = "metadata.namespace"
)

// selectionOf returns the selection of a kind in options, by controller-runtime's rules: the
// defaults apply where ByObject says nothing.
func selectionOf(
	o cache.Options, scheme *runtime.Scheme, gvk schema.GroupVersionKind,
) (selection, error) {
	s := selection{o.DefaultLabelSelector, o.DefaultFieldSelector}
	for object, by := range o.ByObject {
		of, err := apiutil.GVKForObject(object, scheme)
		if err != nil {
			return selection{}, err
		}
		if of != gvk {
			continue
		}
		if by.Label != nil {
			s.label = by.Label
		}
		if by.Field != nil {
			s.field = by.Field
		}
	}
	return s, nil
}

// isAll reports whether the selection has every object.
func (s selection) isAll() bool {
	return (s.label == nil || s.label.Empty()) && (s.field == nil || s.field.Empty())
}

// has reports whether the selection has an object, or a deleted object's tombstone.
func (s selection) has(obj any) bool {
	if d, is := obj.(toolscache.DeletedFinalStateUnknown); is {
		obj = d.Obj
	}
	m, err := meta.Accessor(obj)
	if err != nil {
		return false
	}
	at := fields.Set{nameField: m.GetName(), namespaceField: m.GetNamespace()}
	return (s.label == nil || s.label.Matches(labels.Set(m.GetLabels()))) &&
		(s.field == nil || s.field.Matches(at))
}

// checkField returns an error if the process cannot apply the selector.
func checkField(s fields.Selector) error {
	if s == nil {
		return nil
	}
	for _, r := range s.Requirements() {
		if r.Field != nameField && r.Field != namespaceField {
			return fmt.Errorf(
				"is %q: must select by %s and %s alone: what is cached is shared, and the others are "+
					"known to the API server only", s, nameField, namespaceField,
			)
		}
	}
	return nil
}

// selectedIndexer has a cache's selected objects.
type selectedIndexer struct {
	toolscache.Indexer
	selection selection
}

// of returns the selected objects among objs.
func (i selectedIndexer) of(objs []any) []any {
	var selected []any
	for _, o := range objs {
		if i.selection.has(o) {
			selected = append(selected, o)
		}
	}
	return selected
}

// keys returns the keys whose objects are selected.
func (i selectedIndexer) keys(keys []string) []string {
	var selected []string
	for _, key := range keys {
		if _, there, err := i.GetByKey(key); there && err == nil {
			selected = append(selected, key)
		}
	}
	return selected
}

// List implements cache.Store.
func (i selectedIndexer) List() []any { return i.of(i.Indexer.List()) }

// ListKeys implements cache.Store.
func (i selectedIndexer) ListKeys() []string { return i.keys(i.Indexer.ListKeys()) }

// Get implements cache.Store.
func (i selectedIndexer) Get(obj any) (any, bool, error) { return i.found(i.Indexer.Get(obj)) }

// GetByKey implements cache.Store.
func (i selectedIndexer) GetByKey(key string) (any, bool, error) {
	return i.found(i.Indexer.GetByKey(key))
}

func (i selectedIndexer) found(obj any, there bool, err error) (any, bool, error) {
	if !there || err != nil || !i.selection.has(obj) {
		return nil, false, err
	}
	return obj, true, nil
}

// Index implements cache.Indexer.
func (i selectedIndexer) Index(index string, obj any) ([]any, error) {
	objs, err := i.Indexer.Index(index, obj)
	return i.of(objs), err
}

// ByIndex implements cache.Indexer.
func (i selectedIndexer) ByIndex(index, value string) ([]any, error) {
	objs, err := i.Indexer.ByIndex(index, value)
	return i.of(objs), err
}

// IndexKeys implements cache.Indexer.
func (i selectedIndexer) IndexKeys(index, value string) ([]string, error) {
	keys, err := i.Indexer.IndexKeys(index, value)
	return i.keys(keys), err
}
