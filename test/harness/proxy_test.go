package harness

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"testing"
	"time"
)

// silence is how long ask waits before it concludes that no answer comes.
const silence = 100 * time.Millisecond

// startProxy starts a proxy in front of an echo server.
func startProxy(t *testing.T) *Proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	group.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			group.Go(func() {
				defer conn.Close()
				_, _ = io.Copy(conn, conn)
			})
		}
	})
	p, err := newProxy("127.0.0.1:0", listener.Addr().String(), tls.Certificate{}, http.NotFoundHandler())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	group.Go(func() { p.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		_ = listener.Close()
		group.Wait()
	})
	return p
}

func dial(t *testing.T, p *Proxy) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", p.listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// ask sends a byte and returns the outcome: "echo", "silence" or "end".
func ask(t *testing.T, conn net.Conn, within time.Duration) string {
	t.Helper()
	if _, err := conn.Write([]byte{1}); err != nil {
		return "end"
	}
	if err := conn.SetReadDeadline(time.Now().Add(within)); err != nil {
		t.Fatal(err)
	}
	_, err := conn.Read(make([]byte, 1))
	switch {
	case err == nil:
		return "echo"
	case errors.Is(err, os.ErrDeadlineExceeded):
		return "silence"
	default:
		return "end"
	}
}

func TestProxyModes(t *testing.T) {
	for _, test := range []struct {
		name string
		mode Mode
		// old is a connection made before the mode was set, fresh one made after.
		old, fresh string
	}{
		{"pass", Pass, "end", "echo"},
		{"cut", Cut, "silence", "silence"},
		{"late", Late, "silence", "silence"},
		{"replies cut", CutReplies, "silence", "silence"},
		{"half open", HalfOpen, "end", "silence"},
		{"stranded", Stranded, "silence", "echo"},
		{"slow", Slow, "echo", "echo"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			p := startProxy(t)
			old := dial(t, p)
			if got := ask(t, old, Patience); got != "echo" {
				t.Fatalf("%s before any fault", got)
			}
			p.Set(test.mode)
			within := func(want string) time.Duration {
				if want == "silence" {
					return silence
				}
				return Patience
			}
			if got := ask(t, old, within(test.old)); got != test.old {
				t.Errorf("an old connection: %s, want %s", got, test.old)
			}
			if got := ask(t, dial(t, p), within(test.fresh)); got != test.fresh {
				t.Errorf("a new connection: %s, want %s", got, test.fresh)
			}
			p.Set(Pass)
			if got := ask(t, dial(t, p), Patience); got != "echo" {
				t.Errorf("%s after the fault", got)
			}
		})
	}
}

// TestIdentities requires that a request with a token is not sent with the manager's certificate.
func TestIdentities(t *testing.T) {
	as := func(name string) http.RoundTripper {
		return roundTripper(func(*http.Request) (*http.Response, error) { return &http.Response{Status: name}, nil })
	}
	both := identities{manager: as("manager"), bearer: as("bearer")}
	for token, want := range map[string]string{"": "manager", "Bearer x": "bearer"} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api", nil)
		if token != "" {
			r.Header.Set("Authorization", token)
		}
		if response, err := both.RoundTrip(r); err != nil || response.Status != want {
			t.Errorf("with token %q: sent as %v, %v, want %s", token, response, err, want)
		}
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
