package informer

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/metadata"
)

// ObjectOrMetadata is the informers of a factory for a controller that goes through all resources there are: by their
// metadata, but for those of which whole objects are cached anyway or are asked for. It implements
// k8s.io/controller-manager's informerfactory.InformerFactory.
//
// Which those are is decided at the first question and stays so: what the controller counts and what it is told of come
// from one cache. So ask after the controllers have been built that read whole objects.
type ObjectOrMetadata struct {
	factory *Factory
	whole   map[schema.GroupResource]bool
	// pick says which objects of namespaced resources it holds; nil for all.
	pick func(obj metav1.Object) bool
}

// ObjectOrMetadata returns the factory as its other half; both share their informers, Start and Shutdown. Of the built-in
// resources named whole it answers with typed informers in any case: their objects are cast.
func (f *Factory) ObjectOrMetadata(whole ...schema.GroupResource) ObjectOrMetadata {
	o := ObjectOrMetadata{factory: f, whole: make(map[schema.GroupResource]bool, len(whole))}
	for _, resource := range whole {
		o.whole[resource] = true
	}
	return o
}

// ForResource returns an informer for any resource. It does not fail: a resource
// that the server does not have is retried, as by client-go's metadata informers.
func (o ObjectOrMetadata) ForResource(gvr schema.GroupVersionResource) (informers.GenericInformer, error) {
	if o.pick != nil {
		return o.factory.picked(gvr, o.pick), nil
	}
	if o.whole[gvr.GroupResource()] || o.factory.readsWhole(gvr) {
		if typed, err := o.factory.ForResource(gvr); err == nil {
			return typed, nil
		}
	}
	return o.factory.metadata(gvr), nil
}

// Reader returns the client that the factory's metadata informers read with.
func (f *Factory) Reader() metadata.Interface { return f.pool.config.Metadata }

// Start starts the factory's informers that do not run yet.
func (o ObjectOrMetadata) Start(stopCh <-chan struct{}) { o.factory.Start(stopCh) }

// Typed returns the factory with ForResource of o, for a controller that asks both of them and must get the same informer.
func (o ObjectOrMetadata) Typed() informers.SharedInformerFactory { return either{o.factory, o} }

// readsWhole reports whether whole objects of a resource are cached, and its metadata is not.
func (f *Factory) readsWhole(gvr schema.GroupVersionResource) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, whole := f.informers[sharedKey{resource: gvr}]
	_, metadata := f.informers[sharedKey{resource: gvr, metadata: true}]
	return whole && !metadata
}

// either is a factory that answers for a resource as an ObjectOrMetadata does.
type either struct {
	*Factory
	generic ObjectOrMetadata
}

// ForResource implements informers.SharedInformerFactory.
func (e either) ForResource(gvr schema.GroupVersionResource) (informers.GenericInformer, error) {
	return e.generic.ForResource(gvr)
}
