package live

import (
	"context"
	"net/http"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/flotilla-kube/flotilla/test/controlplane"
	"github.com/flotilla-kube/flotilla/test/harness"
)

// proxy stands between one member and the API server. By default it changes nothing.
type proxy struct {
	// kubeconfig is the file for the member.
	kubeconfig string

	mu sync.Mutex
	// meddle sees each request first, and may change or delay it. ended is closed when meddle is
	// replaced.
	meddle func(r *http.Request, ended <-chan struct{})
	ended  chan struct{}
}

func startProxy(t *testing.T, plane *controlplane.ControlPlane) *proxy {
	t.Helper()
	p := &proxy{ended: make(chan struct{}), kubeconfig: filepath.Join(t.TempDir(), "proxy.kubeconfig")}
	way, err := harness.NewProxy(plane, func(forward http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			p.mu.Lock()
			meddle, ended := p.meddle, p.ended
			p.mu.Unlock()
			if meddle != nil {
				meddle(r, ended)
			}
			forward.ServeHTTP(w, r)
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := way.WriteKubeconfig(p.kubeconfig); err != nil {
		t.Fatal(err)
	}
	way.Set(harness.Terminate)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() { way.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	return p
}

// set makes all further requests go through meddle; nil changes nothing. It lets go of requests
// that the previous function delays.
func (p *proxy) set(meddle func(r *http.Request, ended <-chan struct{})) {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.ended)
	p.meddle, p.ended = meddle, make(chan struct{})
}

// keep delays a request until d has passed, the sender gives up, or ended is closed.
func keep(r *http.Request, d time.Duration, ended <-chan struct{}) {
	ctx, cancel := context.WithTimeout(r.Context(), d)
	defer cancel()
	select {
	case <-ctx.Done():
	case <-ended:
	}
}
