package garbage

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	svmv1 "k8s.io/api/storagemigration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	svmlisters "k8s.io/client-go/listers/storagemigration/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/garbagecollector"
)

const (
	// monitorsPeriod is how often the monitors check which resources are being migrated.
	monitorsPeriod = 5 * time.Second
	// fillPatience bounds how long the migrator waits for empty monitors. One that cannot be filled
	// must not hold up other migrations for ever.
	fillPatience = 10 * time.Minute
)

// MonitorsConfig is the configuration of monitors. All fields are required.
type MonitorsConfig struct {
	// Client is for events, of which there are none, and Metadata reads.
	Client   kubernetes.Interface
	Metadata metadata.Interface
	// Discovery says which resources exist. Mapper must not use it.
	Discovery discovery.ServerResourcesInterface
	Mapper    meta.ResettableRESTMapper
	// Migrations lists all migrations, once Listed returns true.
	Migrations svmlisters.StorageVersionMigrationLister
	Listed     cache.InformerSynced
	// Transform is applied to what is cached; it may remove all but name, namespace, UID and
	// version.
	Transform cache.TransformFunc
}

// Monitors are what the storage version migrator reads from. Upstream gives it the garbage
// collector's graph builder; this is one without a graph. It reads all objects of the resources
// that are being migrated, for as long as they are. With a garbage collector that has only a part
// of them, the migrator would report success too early.
type Monitors struct {
	collector *garbagecollector.GarbageCollector
	migrated  migrated
	listed    cache.InformerSynced
}

// NewMonitors returns monitors that read nothing before Run. ctx must not end before Run does.
func NewMonitors(ctx context.Context, c MonitorsConfig) (*Monitors, error) {
	graph := garbagecollector.NewDependencyGraphBuilder(ctx, c.Metadata, c.Mapper, nil, monitored{c.Metadata, c.Transform}, closed)
	collector, err := garbagecollector.NewComposedGarbageCollector(ctx, c.Client, c.Metadata, c.Mapper, graph)
	if err != nil {
		return nil, fmt.Errorf("making monitors: %w", err)
	}
	return &Monitors{collector, migrated{c.Discovery, c.Migrations}, c.Listed}, nil
}

// Graph returns the graph builder that the storage version migrator asks for monitors.
func (m *Monitors) Graph() *garbagecollector.GraphBuilder {
	return m.collector.GetDependencyGraphBuilder()
}

// Run reads until ctx ends, and runs migrator, the storage version migrator, once the resources of
// the migrations that have begun are read. A migrator that finds a monitor empty waits for it for
// 10 s, and fails for good a migration that is older than a minute: in stock this may happen after
// each change of leaders, and here it would with each move of the shard. Run returns when
// everything that it started has ended; migrator is called even if ctx has ended, to end what it
// was made with.
func (m *Monitors) Run(ctx context.Context, migrator func(context.Context)) {
	var running sync.WaitGroup
	running.Go(func() { m.collector.Run(ctx, 0, SyncPeriod) }) // no workers: its graph stays empty
	running.Go(func() {
		if cache.WaitForCacheSync(ctx.Done(), m.listed) {
			m.collector.Sync(ctx, m.migrated, monitorsPeriod)
		}
	})
	running.Go(func() {
		logger := klog.FromContext(ctx)
		filling, cancel := context.WithTimeout(ctx, fillPatience)
		defer cancel()
		if !cache.WaitForCacheSync(filling.Done(), func() bool { return m.Graph().IsSynced(logger) }) && ctx.Err() == nil {
			logger.Info("Could not read all resources that are being migrated, beginning with the others", "waited", fillPatience)
		}
		migrator(ctx)
	})
	running.Wait()
}

// migrated is discovery of the resources that are being migrated.
type migrated struct {
	discovery.ServerResourcesInterface
	migrations svmlisters.StorageVersionMigrationLister
}

// always there, since upstream takes an empty answer for none at all, and changes nothing.
var migrations = schema.GroupVersionResource{Group: svmv1.GroupName, Version: "v1", Resource: "storageversionmigrations"}

// ServerPreferredResources implements discovery.ServerResourcesInterface.
func (m migrated) ServerPreferredResources() ([]*metav1.APIResourceList, error) {
	none := &metav1.APIResourceList{GroupVersion: migrations.GroupVersion().String(), APIResources: []metav1.APIResource{
		{Name: migrations.Resource, Kind: "StorageVersionMigration", Verbs: metav1.Verbs{"delete", "list", "watch"}},
	}}
	pending, err := m.pending()
	if err != nil {
		return nil, err
	}
	if len(pending) == 0 {
		return []*metav1.APIResourceList{none}, nil
	}
	lists, err := m.ServerResourcesInterface.ServerPreferredResources()
	if _, partly := discovery.GroupDiscoveryFailedErrorGroups(err); err != nil && !partly {
		return nil, err // with none, upstream would take all others for gone, and forget what it has read
	}
	for _, list := range lists {
		gv, parseErr := schema.ParseGroupVersion(list.GroupVersion)
		list.APIResources = slices.DeleteFunc(list.APIResources, func(r metav1.APIResource) bool {
			return parseErr != nil || !slices.Contains(pending, metav1.GroupResource{Group: gv.Group, Resource: r.Name}) || gv.WithResource(r.Name) == migrations
		})
	}
	return append(lists, none), err
}

// pending returns the resources of migrations that have not ended.
func (m migrated) pending() ([]metav1.GroupResource, error) {
	all, err := m.migrations.List(labels.Everything())
	if err != nil {
		return nil, err
	}
	var pending []metav1.GroupResource
	for _, each := range all {
		if !meta.IsStatusConditionTrue(each.Status.Conditions, string(svmv1.MigrationSucceeded)) &&
			!meta.IsStatusConditionTrue(each.Status.Conditions, string(svmv1.MigrationFailed)) {
			pending = append(pending, each.Spec.Resource)
		}
	}
	return pending, nil
}

// monitored makes informers that read while their controller runs, which the graph builder starts
// and ends. They have no handlers.
type monitored struct {
	metadata  metadata.Interface
	transform cache.TransformFunc
}

// Start implements informerfactory.InformerFactory.
func (m monitored) Start(<-chan struct{}) {}

// ForResource implements informerfactory.InformerFactory.
func (m monitored) ForResource(gvr schema.GroupVersionResource) (informers.GenericInformer, error) {
	resource := m.metadata.Resource(gvr)
	store, controller := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: &cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return resource.List(ctx, o) },
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				return resource.Watch(ctx, o)
			},
		},
		ObjectType: &metav1.PartialObjectMetadata{}, Handler: cache.ResourceEventHandlerFuncs{}, Transform: m.transform,
	})
	return generic{monitor{newSilent(gvr), store, controller}, silent(gvr)}, nil
}

// monitor is a store and what fills it.
type monitor struct {
	silentInformer
	store      cache.Store
	controller cache.Controller
}

// GetStore implements cache.SharedInformer.
func (m monitor) GetStore() cache.Store { return m.store }

// GetController implements cache.SharedInformer.
func (m monitor) GetController() cache.Controller { return m.controller }
