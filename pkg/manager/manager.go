package manager

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/flotilla-kube/flotilla/pkg/flotilla"
)

// Setup adds controllers, indexes and anything else to the Manager of a shard. It is called for
// each preparation of a shard and each attempt to start it, before the shard is owned, perhaps for
// several shards concurrently. What may be done only once in a process, such as registering
// metrics, belongs elsewhere.
type Setup func(mgr manager.Manager) error

// Build returns a function that runs the controllers of setup on a shard, for flotilla.Fleet's
// Namespaced or Singleton. scheme is as in manager.Options. The Managers of one controller share
// one RESTMapper, within the controller's limit of requests. The result may be given to several
// controllers and fleets: each has its own RESTMapper. For anything that setup needs of the shard,
// such as Shard.AnyNamespace, write the flotilla.Build yourself and call [New] in it.
func Build(scheme *runtime.Scheme, setup Setup) flotilla.Build {
	shared := &mappers{}
	return func(ctx context.Context, s *flotilla.Shard) (flotilla.Runnable, error) {
		options := Options(s, scheme)
		options.MapperProvider = shared.of(s)
		return New(ctx, s, options, setup)
	}
}

// Options returns the options of a shard's Manager, for [New], which provides its cache. The logger
// is controller-runtime's with the shard's name.
func Options(s *flotilla.Shard, scheme *runtime.Scheme) manager.Options {
	return manager.Options{
		Scheme:  scheme,
		Logger:  log.Log.WithValues("shard", s.String()),
		Metrics: metricsserver.Options{BindAddress: "0"},
		// The fence bounds how long a handoff may take.
		GracefulShutdownTimeout: ptr.To(time.Duration(-1)),
		Controller: config.Controller{
			// Each shard has a controller of the same name.
			SkipNameValidation: ptr.To(true),
			EnableWarmup:       ptr.To(true),
			// The fleet bounds how long a shard is prepared, by default to as long. To fail earlier
			// would only begin the lists of a large cluster again.
			CacheSyncTimeout: 10 * time.Minute,
		},
	}
}

// New makes a Manager of a shard from [Options], which the caller may have changed, and calls setup
// with it. Its runnables find the values of ctx, such as a logger, in their contexts, unless
// options have a BaseContext. The error is setup's, or names an option that a shard's Manager
// cannot have; see the package comment.
func New(
	ctx context.Context, s *flotilla.Shard, options manager.Options, setup Setup,
) (flotilla.Runnable, error) {
	if err := check(options); err != nil {
		return nil, fmt.Errorf("manager of shard %s: %w", s, err)
	}
	m := newShardManager(ctx, s)
	if options.BaseContext == nil {
		options.BaseContext = func() context.Context { return context.WithoutCancel(ctx) }
	}
	options.NewCache = m.newCache
	options.Client.Cache = unshared(options.Client.Cache)
	inner, err := manager.New(s.Config(), options)
	if err != nil {
		return nil, fmt.Errorf("manager of shard %s: %w", s, err)
	}
	m.inner = inner
	// Makes sure that the caches are full once Warm returns, whatever setup adds.
	nothing := manager.RunnableFunc(func(context.Context) error { return nil })
	if err := inner.Add(m.untilOwned(nothing)); err != nil {
		return nil, fmt.Errorf("manager of shard %s: %w", s, err)
	}
	face := &deferringManager{Manager: inner, m: m}
	if err := errors.Join(setup(face), face.misuse()); err != nil {
		return nil, fmt.Errorf("setting up the manager of shard %s: %w", s, err)
	}
	return m, nil
}

// unshared returns a copy: controller-runtime sets the Reader, and a program may give the same
// options to all of its shards.
func unshared(o *client.CacheOptions) *client.CacheOptions {
	if o == nil {
		return nil
	}
	own := *o
	return &own
}

// check returns an error that names each option at fault.
func check(o manager.Options) error {
	var errs []error
	refuse := func(wrong bool, field, why string) {
		if wrong {
			errs = append(errs, fmt.Errorf("option %s %s", field, why))
		}
	}
	const (
		once   = "must be off: what a process has once does not belong to a shard"
		shared = "must not be set: what is cached is shared with other controllers, " +
			"which may need all of it"
		ranges = "must not be set: a shard has the namespaces of its range; select by label instead"
		ours   = "must not be set: the cache of a shard is Flotilla's"
	)
	refuse(o.LeaderElection || o.LeaderElectionResourceLockInterface != nil,
		"LeaderElection", "must be off: the claim of the shard takes its place")
	refuse(o.Metrics.BindAddress != "0", "Metrics.BindAddress", `must be "0": `+once)
	refuse(!off(o.HealthProbeBindAddress), "HealthProbeBindAddress", once)
	refuse(!off(o.PprofBindAddress), "PprofBindAddress", once)
	refuse(o.WebhookServer != nil, "WebhookServer", once)
	//lint:ignore SA1019 it is looked at only to refuse it
	refuse(o.EventBroadcaster != nil, "EventBroadcaster",
		"must not be set: a shard's Manager must end its own, with the shard")
	refuse(o.NewCache != nil, "NewCache", ours)
	refuse(o.Cache.NewInformer != nil, "Cache.NewInformer", ours)
	refuse(o.Client.HTTPClient != nil,
		"Client.HTTPClient", "must not be set: the client of a shard is fenced")
	refuse(o.Client.Cache != nil && o.Client.Cache.Reader != nil, "Client.Cache.Reader", ours)
	refuse(o.Client.Cache != nil && ptr.Deref(o.Client.Cache.EnableReadYourWritesConsistency, false),
		"Client.Cache.EnableReadYourWritesConsistency",
		"must be off: the cache never sees writes outside the range")
	refuse(!ptr.Deref(o.Controller.SkipNameValidation, false),
		"Controller.SkipNameValidation", "must be true: each shard has a controller of each name")
	refuse(ptr.Deref(o.GracefulShutdownTimeout, 0) >= 0,
		"GracefulShutdownTimeout", "must be negative: a shard is handed over once all of it has ended")
	c := o.Cache
	refuse(c.DefaultNamespaces != nil, "Cache.DefaultNamespaces", valueOf(c.DefaultNamespaces)+ranges)
	refuse(c.DefaultTransform != nil, "Cache.DefaultTransform", shared)
	refuse(c.DefaultWatchErrorHandler != nil, "Cache.DefaultWatchErrorHandler", shared)
	if err := checkField(c.DefaultFieldSelector); err != nil {
		refuse(true, "Cache.DefaultFieldSelector", err.Error())
	}
	for object, by := range c.ByObject {
		of := fmt.Sprintf("Cache.ByObject[%T].", object)
		refuse(by.Namespaces != nil, of+"Namespaces", valueOf(by.Namespaces)+ranges)
		refuse(by.Transform != nil, of+"Transform", shared)
		if err := checkField(by.Field); err != nil {
			refuse(true, of+"Field", err.Error())
		}
	}
	return errors.Join(errs...)
}

// valueOf returns the namespaces of an option as text.
func valueOf(namespaces map[string]cache.Config) string {
	return fmt.Sprintf("is %q and ", slices.Sorted(maps.Keys(namespaces)))
}

// off reports whether an address means that there is no server.
func off(address string) bool { return address == "" || address == "0" }
