package main

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

// Silence is what is not heard within this time, patience is for what must be heard.
const (
	silence  = 100 * time.Millisecond
	patience = time.Minute
)

// startProxy starts a proxy before a server that sends back what it hears.
func startProxy(t *testing.T) *proxy {
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
	p, err := newProxy(listener.Addr().String(), tls.Certificate{}, http.NotFoundHandler())
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

func dial(t *testing.T, p *proxy) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", p.listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// ask sends a byte and returns what came of it: "echo", "silence" or "end".
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
		mode mode
		// old is a connection from before, fresh one from after the mode was set.
		old, fresh string
	}{
		{"pass", pass, "end", "echo"},
		{"cut", cut, "silence", "silence"},
		{"late", late, "silence", "silence"},
		{"replies cut", cutReplies, "silence", "silence"},
		{"half open", halfOpen, "end", "silence"},
		{"slow", slow, "echo", "echo"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			p := startProxy(t)
			old := dial(t, p)
			if got := ask(t, old, patience); got != "echo" {
				t.Fatalf("%s before anything has happened", got)
			}
			p.Set(test.mode)
			within := func(want string) time.Duration {
				if want == "silence" {
					return silence
				}
				return patience
			}
			if got := ask(t, old, within(test.old)); got != test.old {
				t.Errorf("a connection from before: %s, want %s", got, test.old)
			}
			if got := ask(t, dial(t, p), within(test.fresh)); got != test.fresh {
				t.Errorf("a new connection: %s, want %s", got, test.fresh)
			}
			p.Set(pass)
			if got := ask(t, dial(t, p), patience); got != "echo" {
				t.Errorf("%s when it is over", got)
			}
		})
	}
}

func TestWeatherAnswersAndEndsWatches(t *testing.T) {
	w := &weather{random: newRandom(1, 1), watches: map[int]context.CancelFunc{}}
	began := make(chan struct{}, 1)
	w.asUser = http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		if isWatch(r) {
			began <- struct{}{}
			<-r.Context().Done()
		}
		out.WriteHeader(http.StatusAccepted)
	})
	w.asBearer = http.HandlerFunc(func(out http.ResponseWriter, _ *http.Request) { out.WriteHeader(http.StatusCreated) })
	get := func(path, token string) int {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
		if token != "" {
			r.Header.Set("Authorization", token)
		}
		recorder := httptest.NewRecorder()
		w.ServeHTTP(recorder, r)
		return recorder.Code
	}
	if user, bearer := get("/api", ""), get("/api", "Bearer x"); user != http.StatusAccepted || bearer != http.StatusCreated {
		t.Errorf("answered by %d and %d", user, bearer)
	}
	w.Set(0, 1)
	if watch, list := get("/api?watch=true", ""), get("/api", ""); watch != http.StatusGone || list != http.StatusAccepted {
		t.Errorf("a watch is answered with %d, a list with %d", watch, list)
	}
	w.Set(1, 0)
	if code := get("/api", ""); code < 409 || w.Injected() != 2 {
		t.Errorf("answered with %d, %d made up", code, w.Injected())
	}
	w.Set(0, 0)
	var group sync.WaitGroup
	group.Go(func() { get("/api?watch=1", "") })
	<-began
	w.EndWatches()
	group.Wait()
}
