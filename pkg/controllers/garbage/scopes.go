package garbage

import (
	"fmt"
	"maps"
	"strings"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
)

// Scope says where the objects of a kind live.
type Scope int

const (
	// Unknown is the scope of a kind that the API server did not have when it was last asked.
	Unknown Scope = iota
	// Namespaced objects lie in a namespace.
	Namespaced
	// Cluster is the scope of objects without a namespace.
	Cluster
)

// Scopes knows the scope of every kind that the API server had when it was last asked. It never
// blocks, except in Refresh, because informers call it under their locks. Make one with
// [NewScopes]. All methods may be called concurrently.
type Scopes struct {
	discover discovery.ServerResourcesInterface
	known    atomic.Pointer[scopes]
}

type scopes struct {
	kinds     map[schema.GroupVersionKind]Scope
	resources map[schema.GroupVersionResource]Scope
}

// NewScopes returns Scopes that know nothing before the first Refresh.
func NewScopes(discover discovery.ServerResourcesInterface) *Scopes {
	s := &Scopes{discover: discover}
	s.known.Store(&scopes{})
	return s
}

// Of returns the scope of the kind that an owner reference names.
func (s *Scopes) Of(ref metav1.OwnerReference) Scope {
	return s.known.Load().kinds[schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind)]
}

// OfResource returns the scope of a resource.
func (s *Scopes) OfResource(gvr schema.GroupVersionResource) Scope {
	return s.known.Load().resources[gvr]
}

// Known reports whether a Refresh has succeeded.
func (s *Scopes) Known() bool { return len(s.known.Load().kinds) > 0 }

// Refresh asks the API server for all kinds. For groups that do not answer, what was known stays,
// and the error is nil. An error says that nothing was answered, and nothing has changed.
func (s *Scopes) Refresh() error {
	_, lists, err := s.discover.ServerGroupsAndResources()
	failed, partial := discovery.GroupDiscoveryFailedErrorGroups(err)
	if err != nil && !partial || len(lists) == 0 {
		return fmt.Errorf("discovering the scope of kinds: %w", err)
	}
	next := scopes{kinds: map[schema.GroupVersionKind]Scope{}, resources: map[schema.GroupVersionResource]Scope{}}
	before := s.known.Load()
	maps.Copy(next.kinds, before.kinds)
	maps.DeleteFunc(next.kinds, func(kind schema.GroupVersionKind, _ Scope) bool { return failed[kind.GroupVersion()] == nil })
	maps.Copy(next.resources, before.resources)
	maps.DeleteFunc(next.resources, func(r schema.GroupVersionResource, _ Scope) bool { return failed[r.GroupVersion()] == nil })
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			continue // as upstream; nothing can refer to it
		}
		for _, r := range list.APIResources {
			if strings.Contains(r.Name, "/") {
				continue // a subresource, perhaps of another kind
			}
			scope := Cluster
			if r.Namespaced {
				scope = Namespaced
			}
			next.kinds[gv.WithKind(r.Kind)], next.resources[gv.WithResource(r.Name)] = scope, scope
		}
	}
	s.known.Store(&next)
	return nil
}
