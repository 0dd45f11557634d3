package fleet

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync"
	"testing"

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

// TestLeasesHaveAConnectionOfTheirOwn checks that Leases do not share a connection with informers.
// There, a renewal's answer would come after everything that the API server had sent to them
// before, on a slow network later than the renew deadline.
func TestLeasesHaveAConnectionOfTheirOwn(t *testing.T) {
	seen := &peers{byPath: map[string]string{}}
	server := httptest.NewUnstartedServer(seen)
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	kubeconfig := &rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{CAData: authority}}

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
