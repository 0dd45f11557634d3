package fleet

import (
	"context"
	"encoding/pem"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// peers records the connection of each request.
type peers struct {
	mu     sync.Mutex
	byPath map[string]string
}

func (p *peers) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.byPath[r.URL.Path] = r.RemoteAddr
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write([]byte(`{}`))
}

// serving returns the configuration for an API server that is handler.
func serving(t *testing.T, handler http.Handler) *rest.Config {
	t.Helper()
	server := httptest.NewUnstartedServer(handler)
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	return &rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{CAData: authority}}
}

// TestLeasesHaveAConnectionOfTheirOwn checks that Leases do not share a connection with informers.
// There, a renewal's answer would come after everything that the API server had sent to them
// before, on a slow network later than the renew deadline.
func TestLeasesHaveAConnectionOfTheirOwn(t *testing.T) {
	seen := &peers{byPath: map[string]string{}}
	kubeconfig := serving(t, seen)

	work := func() kubernetes.Interface {
		c, err := kubernetes.NewForConfig(rest.AddUserAgent(rest.CopyConfig(kubeconfig), "work"))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	leases, err := kubernetes.NewForConfig(LeaseConfig(kubeconfig, "fleet-0"))
	if err != nil {
		t.Fatal(err)
	}
	// Keep both alive at once, as a process does: client-go shares a connection only among clients
	// that have not been garbage collected.
	first, second := work(), work()
	ctx, options := t.Context(), metav1.GetOptions{}
	for name, get := range map[string]func() error{
		"pod":     func() error { _, err := first.CoreV1().Pods("ns").Get(ctx, "pod", options); return err },
		"secret":  func() error { _, err := second.CoreV1().Secrets("ns").Get(ctx, "secret", options); return err },
		"lease a": func() error { _, err := leases.CoordinationV1().Leases("ns").Get(ctx, "a", options); return err },
		"lease b": func() error { _, err := leases.CoordinationV1().Leases("ns").Get(ctx, "b", options); return err },
	} {
		if err := get(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	runtime.KeepAlive(first)
	runtime.KeepAlive(second)
	pod, secret := seen.byPath["/api/v1/namespaces/ns/pods/pod"], seen.byPath["/api/v1/namespaces/ns/secrets/secret"]
	a, b := seen.byPath["/apis/coordination.k8s.io/v1/namespaces/ns/leases/a"], seen.byPath["/apis/coordination.k8s.io/v1/namespaces/ns/leases/b"]
	if pod == "" || pod != secret || a == "" || a != b {
		t.Fatalf("pod and secret came by %q and %q, two Leases by %q and %q, want two connections", pod, secret, a, b)
	}
	if a == pod {
		t.Errorf("Leases came by %s, as the controllers' requests did", a)
	}
}

// wire is a connection that can lose what is sent, as when the machine at the other end has no
// power.
type wire struct {
	net.Conn
	dead, closed atomic.Bool
	// lost receives a value, if there is room for it, when something is lost.
	lost chan struct{}
}

func (w *wire) Write(b []byte) (int, error) {
	if w.dead.Load() {
		select {
		case w.lost <- struct{}{}:
		default:
		}
		return len(b), nil
	}
	return w.Conn.Write(b)
}

func (w *wire) Close() error {
	w.closed.Store(true)
	return w.Conn.Close()
}

// lapsing is a context whose deadline passes when its channel is closed.
type lapsing struct {
	context.Context
	done chan struct{}
}

func (c lapsing) Done() <-chan struct{} { return c.done }

func (c lapsing) Err() error {
	select {
	case <-c.done:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// TestSilentConnectionIsReplaced checks that a request after one that got no answer uses another
// connection, unless the first connection has brought something meanwhile.
func TestSilentConnectionIsReplaced(t *testing.T) {
	arrived, release := make(chan struct{}), make(chan struct{})
	arrive := sync.OnceFunc(func() { close(arrived) })
	seen := &peers{byPath: map[string]string{}}
	kubeconfig := serving(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/apis/coordination.k8s.io/v1/namespaces/ns/leases/slow" {
			arrive()
			select {
			case <-release:
			case <-r.Context().Done():
			}
		}
		seen.ServeHTTP(w, r)
	}))
	t.Cleanup(func() { close(release) }) // before the server is closed
	var wires []*wire
	kubeconfig.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		wires = append(wires, &wire{Conn: conn, lost: make(chan struct{}, 1)})
		return wires[len(wires)-1], nil
	}
	client, err := kubernetes.NewForConfig(LeaseConfig(kubeconfig, "fleet-0"))
	if err != nil {
		t.Fatal(err)
	}
	get := func(ctx context.Context, name string) error {
		_, err := client.CoordinationV1().Leases("ns").Get(ctx, name, metav1.GetOptions{})
		return err
	}
	// until sends a request whose deadline passes once somebody has said so.
	until := func(lapse <-chan struct{}, name string) error {
		ctx := lapsing{t.Context(), make(chan struct{})}
		answer := make(chan error, 1)
		go func() { answer <- get(ctx, name) }()
		select {
		case <-lapse:
		case err := <-answer:
			return err
		}
		close(ctx.done)
		return <-answer
	}
	if err := get(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}

	beside := make(chan struct{})
	go func() {
		defer close(beside)
		<-arrived
		if err := get(t.Context(), "b"); err != nil {
			t.Error(err)
		}
	}()
	if err := until(beside, "slow"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the slow request ended with %v", err)
	}
	if err := get(t.Context(), "c"); err != nil || len(wires) != 1 {
		t.Errorf("%v, %d connections after a request that took too long beside others, want one", err, len(wires))
	}

	wires[0].dead.Store(true)
	if err := until(wires[0].lost, "d"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the lost request ended with %v", err)
	}
	if !wires[0].closed.Load() {
		t.Error("the dead connection is kept")
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := get(ctx, "e"); err != nil || len(wires) != 2 {
		t.Errorf("%v, %d connections after the first has died, want two", err, len(wires))
	}
}
