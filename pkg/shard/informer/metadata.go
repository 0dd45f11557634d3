package informer

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
)

// ObjectOrMetadata is the informers of a factory for controllers that go through
// all resources there are: typed where the kind is built in, else metadata only.
// It implements k8s.io/controller-manager's informerfactory.InformerFactory.
//
// Built-in kinds must be typed: the quota controller casts Pods, Services,
// PersistentVolumeClaims and ResourceClaims, and the informer is then the one that
// other controllers of the shard use.
type ObjectOrMetadata struct{ factory *Factory }

// ObjectOrMetadata returns the factory as its other half; both share their
// informers, Start and Shutdown.
func (f *Factory) ObjectOrMetadata() ObjectOrMetadata { return ObjectOrMetadata{f} }

// ForResource returns an informer for any resource. It does not fail: a resource
// that the server does not have is retried, as by client-go's metadata informers.
func (o ObjectOrMetadata) ForResource(gvr schema.GroupVersionResource) (informers.GenericInformer, error) {
	if typed, err := o.factory.ForResource(gvr); err == nil {
		return typed, nil
	}
	return o.factory.metadata(gvr), nil
}

// Start starts the factory's informers that do not run yet.
func (o ObjectOrMetadata) Start(stopCh <-chan struct{}) { o.factory.Start(stopCh) }
