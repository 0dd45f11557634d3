package informer

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/metadata"
)

// ObjectOrMetadata is a factory's informers for a controller that goes through all resources: by
// their metadata, except where whole objects are cached anyway or asked for. It implements
// k8s.io/controller-manager's informerfactory.InformerFactory.
//
// The first request for a resource decides its form for good, so that what the controller counts
// and the events it receives come from one cache. So first build the controllers that read whole
// objects.
type ObjectOrMetadata struct {
	factory *Factory
	whole   map[schema.GroupResource]bool
	// pick decides which objects of namespaced resources it holds; nil for all.
	pick func(obj metav1.Object) bool
}

// ObjectOrMetadata returns the factory in this form; both share their informers, Start and
// Shutdown. For the built-in resources listed in whole, it always returns typed informers, because
// their objects are cast.
func (f *Factory) ObjectOrMetadata(whole ...schema.GroupResource) ObjectOrMetadata {
	o := ObjectOrMetadata{factory: f, whole: make(map[schema.GroupResource]bool, len(whole))}
	for _, resource := range whole {
		o.whole[resource] = true
	}
	return o
}

// ForResource returns an informer for any resource. It does not fail: it retries a resource that
// the server does not have, or cannot list, like client-go's metadata informers. [Factory.Warm]
// does not wait long for such a resource, so the caller must.
func (o ObjectOrMetadata) ForResource(gvr schema.GroupVersionResource) (informers.GenericInformer, error) {
	if o.pick != nil {
		i := o.factory.picked(gvr, o.pick)
		for _, picked := range []bool{false, true} { // of a cluster-scoped resource it is all
			o.factory.setOptional(sharedKey{resource: gvr, metadata: true, picked: picked}, true)
		}
		return i, nil
	}
	if o.whole[gvr.GroupResource()] || o.factory.readsWhole(gvr) {
		if typed, err := o.factory.ForResource(gvr); err == nil {
			return typed, nil
		}
	}
	i := o.factory.metadata(gvr)
	o.factory.setOptional(sharedKey{resource: gvr, metadata: true}, true)
	return i, nil
}

// Reader returns the client with which the factory's metadata informers read.
func (f *Factory) Reader() metadata.Interface { return f.pool.config.Metadata }

// Start starts the factory's informers that do not run yet.
func (o ObjectOrMetadata) Start(stopCh <-chan struct{}) { o.factory.Start(stopCh) }

// Typed returns the factory with ForResource of o, for a controller that asks both of them and must
// get the same informer.
func (o ObjectOrMetadata) Typed() informers.SharedInformerFactory { return either{o.factory, o} }

// readsWhole reports whether whole objects of a resource are cached, and its metadata is not.
func (f *Factory) readsWhole(gvr schema.GroupVersionResource) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, whole := f.informers[sharedKey{resource: gvr}]
	_, metadata := f.informers[sharedKey{resource: gvr, metadata: true}]
	return whole && !metadata
}

// either is a factory whose ForResource is that of an ObjectOrMetadata.
type either struct {
	*Factory
	generic ObjectOrMetadata
}

// ForResource implements informers.SharedInformerFactory.
func (e either) ForResource(gvr schema.GroupVersionResource) (informers.GenericInformer, error) {
	return e.generic.ForResource(gvr)
}

// sheds returns what reduces a whole object to what an informer of key keeps; nil for all of it.
func (p *Pool) sheds(key sharedKey) func(obj any) any {
	switch {
	case key.metadata:
		return asMetadata
	case key.slim:
		return p.config.Slim[key.resource]
	default:
		return nil
	}
}

func asMetadata(obj any) any {
	if _, is := obj.(*metav1.PartialObjectMetadata); is {
		return obj
	}
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return obj
	}
	return meta.AsPartialObjectMetadata(accessor)
}
