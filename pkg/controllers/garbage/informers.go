package garbage

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/controller-manager/pkg/informerfactory"
	"k8s.io/klog/v2"
)

// Pick returns a function that picks the namespaced objects that the cluster's collector needs:
// those with an owner that is, or may be, cluster-scoped.
func Pick(scopes *Scopes) func(obj metav1.Object) bool { return cut{OfCluster, scopes}.concerns }

// Informers returns informers that send their handlers events of one part of the graph. For
// [OfRange], all must hold the range's namespaced objects; it is not asked for cluster-scoped
// kinds, whose informers have synced and never send events. For [OfCluster] it must hold
// cluster-scoped objects and those that [Pick] picks; it may hold more.
//
// Caches are not cut: an object from a cache is complete.
func Informers(part Part, scopes *Scopes, all informerfactory.InformerFactory) informerfactory.InformerFactory {
	return cutInformers{all, cut{part, scopes}}
}

type cutInformers struct {
	informerfactory.InformerFactory
	cut cut
}

// ForResource implements informerfactory.InformerFactory.
func (f cutInformers) ForResource(gvr schema.GroupVersionResource) (informers.GenericInformer, error) {
	if f.cut.part == OfRange && f.scopeOf(gvr) == Cluster {
		return silent(gvr), nil
	}
	all, err := f.InformerFactory.ForResource(gvr)
	if err != nil {
		return nil, err
	}
	return generic{cutInformer{all.Informer(), f.cut}, all}, nil
}

// scopeOf returns the scope of a resource. The collector may have heard of a new one before the
// scopes have.
func (f cutInformers) scopeOf(gvr schema.GroupVersionResource) Scope {
	if scope := f.cut.scopes.OfResource(gvr); scope != Unknown {
		return scope
	}
	if err := f.cut.scopes.Refresh(); err != nil {
		klog.Background().Error(err, "Could not look which scope a new kind has, it is read as if it were namespaced", "resource", gvr.GroupResource())
	}
	return f.cut.scopes.OfResource(gvr)
}

// generic is an informer with the lister of another one.
type generic struct {
	informer cache.SharedIndexInformer
	informers.GenericInformer
}

// Informer implements informers.GenericInformer.
func (g generic) Informer() cache.SharedIndexInformer { return g.informer }

// cutInformer sends its handlers events of one part of the graph.
type cutInformer struct {
	cache.SharedIndexInformer
	cut cut
}

// AddEventHandler implements cache.SharedInformer.
func (i cutInformer) AddEventHandler(h cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	return i.SharedIndexInformer.AddEventHandler(cutHandler{h, i.cut})
}

// AddEventHandlerWithResyncPeriod implements cache.SharedInformer.
func (i cutInformer) AddEventHandlerWithResyncPeriod(h cache.ResourceEventHandler, resync time.Duration) (cache.ResourceEventHandlerRegistration, error) {
	return i.SharedIndexInformer.AddEventHandlerWithResyncPeriod(cutHandler{h, i.cut}, resync)
}

// AddEventHandlerWithOptions implements cache.SharedInformer.
func (i cutInformer) AddEventHandlerWithOptions(h cache.ResourceEventHandler, o cache.HandlerOptions) (cache.ResourceEventHandlerRegistration, error) {
	return i.SharedIndexInformer.AddEventHandlerWithOptions(cutHandler{h, i.cut}, o)
}

// cutHandler receives events of one part of the graph.
type cutHandler struct {
	cache.ResourceEventHandler
	cut cut
}

// OnAdd implements cache.ResourceEventHandler.
func (h cutHandler) OnAdd(obj any, initial bool) {
	if told := h.cut.tell(obj); told != nil {
		h.ResourceEventHandler.OnAdd(told, initial)
	}
}

// OnUpdate implements cache.ResourceEventHandler.
func (h cutHandler) OnUpdate(before, obj any) {
	if told := h.cut.tell(obj); told != nil {
		h.ResourceEventHandler.OnUpdate(h.cut.tell(before), told)
	}
}

// OnDelete implements cache.ResourceEventHandler.
func (h cutHandler) OnDelete(obj any) {
	if told := h.cut.tell(obj); told != nil {
		h.ResourceEventHandler.OnDelete(told)
	}
}

// silent returns an informer that is empty, has synced and never sends events.
func silent(gvr schema.GroupVersionResource) informers.GenericInformer {
	return silentGeneric{newSilent(gvr), gvr}
}

func newSilent(gvr schema.GroupVersionResource) silentInformer {
	return silentInformer{
		SharedIndexInformer: cache.NewSharedIndexInformer(&cache.ListWatch{}, &metav1.PartialObjectMetadata{}, 0, cache.Indexers{}),
		resource:            gvr,
	}
}

type silentGeneric struct {
	informer silentInformer
	resource schema.GroupVersionResource
}

// Informer implements informers.GenericInformer.
func (g silentGeneric) Informer() cache.SharedIndexInformer { return g.informer }

// Lister implements informers.GenericInformer.
func (g silentGeneric) Lister() cache.GenericLister {
	return cache.NewGenericLister(g.informer.GetIndexer(), g.resource.GroupResource())
}

// silentInformer is never run.
type silentInformer struct {
	cache.SharedIndexInformer
	resource schema.GroupVersionResource
}

// AddEventHandler implements cache.SharedInformer.
func (i silentInformer) AddEventHandler(cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	return i, nil
}

// AddEventHandlerWithResyncPeriod implements cache.SharedInformer.
func (i silentInformer) AddEventHandlerWithResyncPeriod(cache.ResourceEventHandler, time.Duration) (cache.ResourceEventHandlerRegistration, error) {
	return i, nil
}

// AddEventHandlerWithOptions implements cache.SharedInformer.
func (i silentInformer) AddEventHandlerWithOptions(cache.ResourceEventHandler, cache.HandlerOptions) (cache.ResourceEventHandlerRegistration, error) {
	return i, nil
}

// RemoveEventHandler implements cache.SharedInformer.
func (i silentInformer) RemoveEventHandler(cache.ResourceEventHandlerRegistration) error { return nil }

// Run implements cache.SharedInformer, and cache.Controller.
func (i silentInformer) Run(<-chan struct{}) {}

// RunWithContext implements cache.SharedInformer, and cache.Controller.
func (i silentInformer) RunWithContext(context.Context) {}

// GetController implements cache.SharedInformer.
func (i silentInformer) GetController() cache.Controller { return i }

// HasSynced implements cache.SharedInformer, and cache.Controller.
func (i silentInformer) HasSynced() bool { return true }

// HasSyncedChecker implements cache.SharedInformer, and cache.Controller.
func (i silentInformer) HasSyncedChecker() cache.DoneChecker { return always{i.resource} }

// LastSyncResourceVersion implements cache.SharedInformer, and cache.Controller.
func (i silentInformer) LastSyncResourceVersion() string { return "" }

// always is always done.
type always struct{ resource schema.GroupVersionResource }

// Name implements cache.DoneChecker.
func (a always) Name() string { return "Silent informer of " + a.resource.String() }

// Done implements cache.DoneChecker.
func (a always) Done() <-chan struct{} { return closed }

var closed = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()
