package live

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/flotilla-kube/flotilla/test/controlplane"
)

// proxy stands between one member and the API server. By itself it changes nothing.
type proxy struct {
	// kubeconfig is what the member is given.
	kubeconfig string

	mu sync.Mutex
	// meddle sees each request first. It may change it, or keep it for a while. ended is closed when it is over.
	meddle func(r *http.Request, ended <-chan struct{})
	ended  chan struct{}
}

// startProxy starts a proxy that ends TLS, so it answers for the identity of those who come with a certificate: those
// without a token are taken for the controller manager.
func startProxy(t *testing.T, plane *controlplane.ControlPlane) *proxy {
	t.Helper()
	certificate, err := plane.ServingCertificate("proxy")
	if err != nil {
		t.Fatal(err)
	}
	const user = "system:kube-controller-manager"
	config, err := plane.ConfigFor(user)
	if err != nil {
		t.Fatal(err)
	}
	asManager, err := rest.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
	asBearer, err := rest.TransportFor(rest.AnonymousClientConfig(config))
	if err != nil {
		t.Fatal(err)
	}
	target, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{ended: make(chan struct{})}
	reverse := &httputil.ReverseProxy{
		FlushInterval: -1,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Host = ""
		},
		Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			if r.Header.Get("Authorization") != "" {
				return asBearer.RoundTrip(r)
			}
			return asManager.RoundTrip(r)
		}),
		// Who has gone does not want to hear of it.
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		meddle, ended := p.meddle, p.ended
		p.mu.Unlock()
		if meddle != nil {
			meddle(r, ended)
		}
		reverse.ServeHTTP(w, r)
	}))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}}
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	path, err := plane.Kubeconfig(user)
	if err != nil {
		t.Fatal(err)
	}
	file, err := clientcmd.LoadFromFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, cluster := range file.Clusters {
		cluster.Server = "https://" + net.JoinHostPort("127.0.0.1", strings.TrimPrefix(server.URL, "https://127.0.0.1:"))
	}
	p.kubeconfig = filepath.Join(t.TempDir(), "proxy.kubeconfig")
	if err := clientcmd.WriteToFile(*file, p.kubeconfig); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(p.kubeconfig); err != nil {
		t.Fatal(err)
	}
	return p
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// set has all requests from now on go through a function; nil changes nothing. What the one before keeps is let go.
func (p *proxy) set(meddle func(r *http.Request, ended <-chan struct{})) {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.ended)
	p.meddle, p.ended = meddle, make(chan struct{})
}

// keep holds a request back for a while, until whoever sent it gives up, or until it is over.
func keep(r *http.Request, d time.Duration, ended <-chan struct{}) {
	ctx, cancel := context.WithTimeout(r.Context(), d)
	defer cancel()
	select {
	case <-ctx.Done():
	case <-ended:
	}
}
