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

// gatedManager is a shard's Manager as it is set up: a runnable that would wait for leader election
// waits for the claim.
type gatedManager struct {
	manager.Manager
	m        *shardManager
	webhooks *noWebhooks
}

// Add implements manager.Manager.
func (g *gatedManager) Add(r manager.Runnable) error {
	switch r := r.(type) {
	case interface{ GetCache() cache.Cache }: // another cluster, whose cache may be filled at any time
		return g.Manager.Add(r.(manager.Runnable))
	case manager.LeaderElectionRunnable:
		if !r.NeedLeaderElection() {
			return g.Manager.Add(r.(manager.Runnable))
		}
	}
	return g.Manager.Add(g.m.gate(r))
}

// Elected implements manager.Manager: it is closed once the shard is owned.
func (g *gatedManager) Elected() <-chan struct{} { return g.m.owned }

// GetWebhookServer implements manager.Manager. It cannot return an error, so misuse does.
func (g *gatedManager) GetWebhookServer() webhook.Server {
	if g.webhooks == nil {
		g.webhooks = &noWebhooks{mux: http.NewServeMux()}
	}
	return g.webhooks
}

func (g *gatedManager) misuse() error {
	if g.webhooks == nil {
		return nil
	}
	return errors.New("a shard's manager has no webhook server: webhooks are the process's, set them up with another manager")
}

// gated is a runnable that waits for the claim.
type gated struct {
	manager.Runnable
	m    *shardManager
	warm chan struct{}
}

// gate returns r as one that is started once the shard is owned. It is warmed up before, if it can
// be.
func (m *shardManager) gate(r manager.Runnable) gated {
	g := gated{Runnable: r, m: m, warm: make(chan struct{})}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.warmups = append(m.warmups, g.warm)
	return g
}

// Warmup is what the Manager calls once the caches are full, as it does of controllers.
func (g gated) Warmup(ctx context.Context) error {
	if w, ok := g.Runnable.(interface{ Warmup(context.Context) error }); ok {
		if err := w.Warmup(ctx); err != nil {
			return err // which ends the Manager
		}
	}
	close(g.warm)
	return nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (g gated) NeedLeaderElection() bool { return true }

// Start implements manager.Runnable. Workers begin with a queue that holds all there is, as
// those of a controller do that is not warmed up.
func (g gated) Start(ctx context.Context) error {
	select {
	case <-g.m.owned:
	case <-ctx.Done():
		return nil
	}
	if err := g.m.told(ctx); err != nil {
		return nil // ctx has ended
	}
	return g.Runnable.Start(ctx)
}

// noWebhooks is a webhook server that is never started.
type noWebhooks struct{ mux *http.ServeMux }

var _ webhook.Server = &noWebhooks{}

func (w *noWebhooks) NeedLeaderElection() bool                { return false }
func (w *noWebhooks) Register(path string, hook http.Handler) { w.mux.Handle(path, hook) }
func (w *noWebhooks) Start(context.Context) error             { return nil }
func (w *noWebhooks) StartedChecker() healthz.Checker         { return healthz.Ping }
func (w *noWebhooks) WebhookMux() *http.ServeMux              { return w.mux }
