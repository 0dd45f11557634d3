package garbage

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/kubernetes/pkg/controller/garbagecollector"
)

// SyncPeriod is how often upstream asks which resources exist, and how long it waits for their
// informers at the start (cmd/kube-controller-manager/app/core.go: garbageCollectorController.Run).
const SyncPeriod = 30 * time.Second

// Config is the configuration of a collector. All fields are required.
type Config struct {
	// Name is the controller's name.
	Name string
	// Client writes events, Metadata everything else: see [RangeClient] and [ClusterClient].
	Client   kubernetes.Interface
	Metadata metadata.Interface
	// Discovery says which resources exist. Mapper must not use it.
	Discovery discovery.ServerResourcesInterface
	Mapper    meta.ResettableRESTMapper
	// Graph is built on [Informers].
	Graph *garbagecollector.GraphBuilder
	// Workers is how many objects are looked at, and how many are orphaned, concurrently.
	Workers int
	// Period is SyncPeriod, except in tests.
	Period time.Duration
}

// Collector is upstream's garbage collector on one part of the graph. Upstream's constructor makes
// its own client, so this package puts the collector together in the same way.
type Collector struct {
	*garbagecollector.GarbageCollector
	config Config
}

// New returns a collector that has not begun. ctx is for its events, and must not end before Run
// does.
func New(ctx context.Context, c Config) (*Collector, error) {
	collector, err := garbagecollector.NewComposedGarbageCollector(ctx, c.Client, c.Metadata, c.Mapper, c.Graph)
	if err != nil {
		return nil, fmt.Errorf("failed to init the generic garbage collector: %w", err)
	}
	return &Collector{collector, c}, nil
}

// Name returns the controller's name.
func (c *Collector) Name() string { return c.config.Name }

// Run collects until ctx ends, and returns when everything that it started has ended.
func (c *Collector) Run(ctx context.Context) {
	var running sync.WaitGroup
	running.Go(func() { c.GarbageCollector.Run(ctx, c.config.Workers, c.config.Period) })
	running.Go(func() { c.Sync(ctx, c.config.Discovery, c.config.Period) })
	running.Wait()
}
