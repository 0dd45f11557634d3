package manager

import (
	"context"
	"errors"
	"net/http"

	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
)

// deferringManager is a shard's Manager during its setup: a runnable that would wait for leader
// election waits for the claim.
type deferringManager struct {
	manager.Manager
	m        *shardManager
	webhooks *noWebhooks
}

// Owns reports whether the shard of mgr owns the objects of a namespace, as [flotilla.Shard.Owns].
// A Manager that is not a shard's, such as that of a reconciler's own test, owns everything: give
// it the Manager that setup received, not one that wraps it. Ask it where events of cluster-scoped
// objects are mapped to objects in namespaces: all shards get these events.
func Owns(mgr manager.Manager, namespace string) bool {
	d, is := mgr.(*deferringManager)
	return !is || d.m.shard.Owns(namespace)
}

// Add implements manager.Manager.
func (d *deferringManager) Add(r manager.Runnable) error {
	switch of := r.(type) {
	case *manager.Server:
		if !of.NeedLeaderElection() {
			return d.Manager.Add(r) // which starts it before anything else
		}
	case webhook.Server:
		return d.Manager.Add(r) // likewise
	case interface{ GetCache() cache.Cache }: // another cluster, whose cache may be filled at any time
		return d.Manager.Add(cluster{atOnce{r, d.m}, of.GetCache()})
	case manager.LeaderElectionRunnable:
		if !of.NeedLeaderElection() {
			return d.Manager.Add(atOnce{r, d.m})
		}
	}
	return d.Manager.Add(d.m.untilOwned(r))
}

// Elected implements manager.Manager: the channel is closed once the shard is owned.
func (d *deferringManager) Elected() <-chan struct{} { return d.m.owned }

// GetWebhookServer implements manager.Manager. It cannot return an error, so using what it returns
// causes one.
func (d *deferringManager) GetWebhookServer() webhook.Server {
	if d.webhooks == nil {
		d.webhooks = &noWebhooks{mux: http.NewServeMux()}
	}
	return d.webhooks
}

func (d *deferringManager) misuse() error {
	if d.webhooks == nil {
		return nil
	}
	return errors.New("a shard's manager has no webhook server: webhooks are the process's, set them up with another manager")
}

// AddHealthzCheck implements manager.Manager.
func (d *deferringManager) AddHealthzCheck(string, healthz.Checker) error { return errNoServers }

// AddReadyzCheck implements manager.Manager.
func (d *deferringManager) AddReadyzCheck(string, healthz.Checker) error { return errNoServers }

// AddMetricsServerExtraHandler implements manager.Manager.
func (d *deferringManager) AddMetricsServerExtraHandler(string, http.Handler) error {
	return errNoServers
}

var errNoServers = errors.New("a shard's manager serves no probes and no metrics: they are the " +
	"process's, set them up with another manager")

// atOnce is a runnable that does not wait for the claim.
type atOnce struct {
	manager.Runnable
	m *shardManager
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (o atOnce) NeedLeaderElection() bool { return false }

// Warmup is called by the Manager.
func (o atOnce) Warmup(ctx context.Context) error { return o.m.warmUp(ctx, o.Runnable) }

// Start implements manager.Runnable.
func (o atOnce) Start(ctx context.Context) error { return o.m.run(ctx, o.Runnable) }

// cluster is another cluster whose objects a controller reads.
type cluster struct {
	atOnce
	cache cache.Cache
}

// GetCache is called by the Manager.
func (c cluster) GetCache() cache.Cache { return endingCache{c.cache, c.m} }

type endingCache struct {
	cache.Cache
	m *shardManager
}

// WaitForCacheSync implements cache.Informers.
func (c endingCache) WaitForCacheSync(ctx context.Context) bool { return c.m.waitFor(ctx, c.Cache) }

// waitFor waits until the cache has synced, and reports whether it has. It also returns true when
// the Manager is ending: otherwise a Manager that waits for its caches would never end.
func (m *shardManager) waitFor(ctx context.Context, c cache.Cache) bool {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(m.ctx, cancel)()
	return c.WaitForCacheSync(ctx) || m.ctx.Err() != nil
}

// run starts a runnable, unless the Manager is ending. Its error fails the shard at once: the
// Manager returns it only after all other runnables have ended.
func (m *shardManager) run(ctx context.Context, r manager.Runnable) error {
	if m.ctx.Err() != nil {
		return nil
	}
	return m.failing(ctx, r.Start(ctx))
}

// warmUp warms r up, if it can be. An error ends the Manager.
func (m *shardManager) warmUp(ctx context.Context, r manager.Runnable) error {
	if w, ok := r.(interface{ Warmup(context.Context) error }); ok {
		return m.failing(ctx, w.Warmup(ctx))
	}
	return nil
}

// failing returns err, after telling the shard.
func (m *shardManager) failing(ctx context.Context, err error) error {
	if err != nil && ctx.Err() == nil && m.ctx.Err() == nil {
		m.shard.Fail(err)
	}
	return err
}

// deferred is a runnable that waits for the claim.
type deferred struct {
	manager.Runnable
	m    *shardManager
	warm chan struct{}
}

// untilOwned returns a runnable that starts r once the shard is owned. It warms r up before, if r
// can be warmed up.
func (m *shardManager) untilOwned(r manager.Runnable) deferred {
	d := deferred{Runnable: r, m: m, warm: make(chan struct{})}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.warmups = append(m.warmups, d.warm)
	return d
}

// Warmup is called by the Manager once the caches are full, as for controllers.
func (d deferred) Warmup(ctx context.Context) error {
	if err := d.m.warmUp(ctx, d.Runnable); err != nil {
		return err
	}
	close(d.warm)
	return nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (d deferred) NeedLeaderElection() bool { return true }

// Start implements manager.Runnable. Workers begin with a queue that holds every object, like those
// of a controller that was not warmed up.
func (d deferred) Start(ctx context.Context) error {
	select {
	case <-d.m.owned:
	case <-ctx.Done():
		return nil
	}
	if err := d.m.told(ctx); err != nil {
		return nil // ctx has ended
	}
	return d.m.run(ctx, d.Runnable)
}

// noWebhooks is a webhook server that is never started.
type noWebhooks struct{ mux *http.ServeMux }

var _ webhook.Server = &noWebhooks{}

func (w *noWebhooks) NeedLeaderElection() bool                { return false }
func (w *noWebhooks) Register(path string, hook http.Handler) { w.mux.Handle(path, hook) }
func (w *noWebhooks) Start(context.Context) error             { return nil }
func (w *noWebhooks) StartedChecker() healthz.Checker         { return healthz.Ping }
func (w *noWebhooks) WebhookMux() *http.ServeMux              { return w.mux }
