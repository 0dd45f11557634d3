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

// Add implements manager.Manager.
func (d *deferringManager) Add(r manager.Runnable) error {
	switch r := r.(type) {
	case interface{ GetCache() cache.Cache }: // another cluster, whose cache may be filled at any time
		return d.Manager.Add(r.(manager.Runnable))
	case manager.LeaderElectionRunnable:
		if !r.NeedLeaderElection() {
			return d.Manager.Add(r.(manager.Runnable))
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
	if w, ok := d.Runnable.(interface{ Warmup(context.Context) error }); ok {
		if err := w.Warmup(ctx); err != nil {
			return err // which ends the Manager
		}
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
	return d.Runnable.Start(ctx)
}

// noWebhooks is a webhook server that is never started.
type noWebhooks struct{ mux *http.ServeMux }

var _ webhook.Server = &noWebhooks{}

func (w *noWebhooks) NeedLeaderElection() bool                { return false }
func (w *noWebhooks) Register(path string, hook http.Handler) { w.mux.Handle(path, hook) }
func (w *noWebhooks) Start(context.Context) error             { return nil }
func (w *noWebhooks) StartedChecker() healthz.Checker         { return healthz.Ping }
func (w *noWebhooks) WebhookMux() *http.ServeMux              { return w.mux }
