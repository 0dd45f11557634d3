package fence

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

const (
	execPath = "/api/v1/namespaces/n/pods/p/exec"
	// behindPath is the path of a server that looks like the API's.
	behindPath = "/api/clusters/c-1"
)

func TestIsAPIRead(t *testing.T) {
	for request, want := range map[string]bool{
		"GET /api/v1/namespaces/n/pods/p":                  true,
		" /api/v1/namespaces/n/pods/p":                     true,
		"HEAD /api/v1/namespaces/n/pods/p":                 true,
		"OPTIONS /api/v1/namespaces/n/pods/p":              true,
		"GET /api/v1/namespaces/n/pods/p/log":              true,
		"GET /version":                                     true,
		"POST /api/v1/namespaces/n/pods":                   false,
		"TRACE /api/v1/namespaces/n/pods/p":                false,
		"GET " + execPath:                                  false,
		" " + execPath:                                     false,
		"POST " + execPath:                                 false,
		"GET /api/v1/namespaces/n/pods/p/attach":           false,
		"GET /api/v1/namespaces/n/pods/p/portforward":      false,
		"GET /api/v1/namespaces/n/pods/p/proxy/do":         false,
		"HEAD /api/v1/namespaces/n/services/s/proxy":       false,
		"OPTIONS /api/v1/nodes/x/proxy/run/n/p/c":          false,
		"GET /apis/example.com/v1/namespaces/n/xs/x/proxy": false,
	} {
		method, path, _ := strings.Cut(request, " ")
		if got := IsAPIRead(method, path); got != want {
			t.Errorf("IsAPIRead(%q, %q) = %t, want %t", method, path, got, want)
		}
	}
}

// connect opens a connection by GET.
func connect(t *testing.T, rt http.RoundTripper, ctx context.Context, path string) (*http.Response, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://server"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	return rt.RoundTrip(req)
}

// TestConnectionsAreWrites opens connections without and with a claim, through servers with and
// without a path. What is a connection to the API server is none to another server.
func TestConnectionsAreWrites(t *testing.T) {
	for _, serverPath := range []string{"", behindPath} {
		synctest.Test(t, func(t *testing.T) {
			next, clock := &server{}, &jumpClock{}
			var told []Refusal
			fence, err := New(Config{
				Member: "a_1", Shard: "ns-01", ServerPath: serverPath, Clock: clock, OnRefused: func(why Refusal) { told = append(told, why) },
			})
			if err != nil {
				t.Fatal(err)
			}
			rt := fence.Wrap(next)
			open := func(rt http.RoundTripper) error {
				resp, err := connect(t, rt, t.Context(), serverPath+execPath)
				if err == nil {
					_ = resp.Body.Close()
				}
				return err
			}
			if err := open(rt); !errors.Is(err, ErrRefused) || len(next.sent) > 0 || len(told) != 1 || told[0] != RefusalClosed {
				t.Errorf("before the claim: %v, sent %d times, told %v; want it refused", err, len(next.sent), told)
			}
			if err := open(fence.WrapForeign(next)); err != nil {
				t.Errorf("a GET of another server before the claim: %v", err)
			}
			fence.Open(newFakeClaim(t.Context(), clock.Now()))
			if err := open(rt); err != nil || fence.Sent() != 1 {
				t.Errorf("under the claim: %v, and %d writes have passed", err, fence.Sent())
			}
			time.Sleep(10 * time.Second) // virtual: the claim is not valid any more
			if err := open(rt); !errors.Is(err, ErrRefused) {
				t.Errorf("after the claim: %v, want it refused", err)
			}
		})
	}
}

// TestWhatIsConnectedIsNotLogged checks that the next holder's caches need not see anything of a
// connection: neither while it is open, nor if its answer is lost, nor if it has no object.
func TestWhatIsConnectedIsNotLogged(t *testing.T) {
	inFence(t, func(t *testing.T, f *fenceTest) {
		f.claim.endless = true
		f.fence.Open(f.claim)
		for name, answer := range map[string]func() (*http.Response, error){
			"lost":         func() (*http.Response, error) { return nil, io.ErrUnexpectedEOF },
			"text":         func() (*http.Response, error) { return respond("ok"), nil },
			"server error": func() (*http.Response, error) { return answered(504, "text/plain", "no"), nil },
			"an object": func() (*http.Response, error) {
				return answered(200, "application/json", `{"kind":"Pod","metadata":{"resourceVersion":"30"}}`), nil
			},
			"handed over": func() (*http.Response, error) {
				return &http.Response{StatusCode: http.StatusSwitchingProtocols, Body: &halfClosed{}}, nil
			},
		} {
			for _, method := range []string{http.MethodGet, http.MethodPost} {
				f.next.handle = func(*http.Request) (*http.Response, error) {
					if under := f.fence.Writes(8); len(under.Resources) > 0 {
						t.Errorf("%s by %s: under way are %+v", name, method, under.Resources)
					}
					return answer()
				}
				req, err := http.NewRequestWithContext(t.Context(), method, "https://server"+execPath, nil)
				if err != nil {
					t.Fatal(err)
				}
				resp, err := f.rt.RoundTrip(req)
				if err == nil {
					if _, err := io.Copy(io.Discard, resp.Body); err != nil {
						t.Error(err)
					}
					_ = resp.Body.Close()
				}
				if w := f.fence.Writes(8); len(w.Resources) > 0 {
					t.Errorf("%s by %s: the last writes are %+v, want none", name, method, w.Resources)
				}
			}
		}
	})
}

// handedOver makes a server of f that hands connections over, and returns the servers' ends. A
// connection has no other tie to its request: client-go and net/http leave it alone when the
// request's context ends.
func (f *fenceTest) handedOver() chan net.Conn {
	conns := make(chan net.Conn, 1)
	f.next.handle = func(*http.Request) (*http.Response, error) {
		mine, theirs := net.Pipe()
		conns <- mine
		return &http.Response{StatusCode: http.StatusSwitchingProtocols, Body: theirs}, nil
	}
	return conns
}

// TestConnectionsEndWithTheClaim has open connections: to a pod, and through an aggregated API by a
// subresource that the fence takes for a read.
func TestConnectionsEndWithTheClaim(t *testing.T) {
	const every = 2 * time.Second
	for name, tc := range map[string]struct {
		renewals int64
		ends     time.Duration // when the claim ends
		lasts    time.Duration
	}{
		"heartbeats go on": {30, time.Minute, time.Minute},
		"heartbeats end":   {2, time.Hour, 19 * time.Second},
		"there is none":    {0, time.Hour, 15 * time.Second},
		"the claim ends":   {30, 3 * time.Second, 3 * time.Second},
	} {
		for _, path := range []string{execPath, "/apis/subresources.kubevirt.io/v1/namespaces/n/vms/v/console"} {
			t.Run(name+" "+path, func(t *testing.T) {
				inFence(t, func(t *testing.T, f *fenceTest) {
					conns := f.handedOver()
					claim := &renewedClaim{fakeClaim: f.claim, every: every}
					f.fence.Open(claim)
					var beating sync.WaitGroup
					defer beating.Wait()
					beating.Go(func() {
						for range tc.renewals {
							time.Sleep(every) // virtual
							claim.renewals.Add(1)
						}
					})
					ending := time.AfterFunc(tc.ends, func() { f.claim.end(errEnded) })
					defer ending.Stop()
					began := time.Now()
					// The caller bounds the opening, not the connection.
					ctx, opened := context.WithTimeout(t.Context(), time.Second)
					resp, err := connect(t, f.rt, ctx, path)
					if err != nil {
						t.Fatal(err)
					}
					opened()
					server := <-conns
					go func() { _, _ = server.Write([]byte("prompt")) }()
					conn, ok := resp.Body.(io.ReadWriteCloser)
					if !ok {
						t.Fatalf("the connection is a %T that cannot be written", resp.Body)
					}
					text := make([]byte, 6)
					if n, err := conn.Read(text); err != nil || string(text[:n]) != "prompt" {
						t.Fatalf("read %q, %v", text[:n], err)
					}
					_, err = conn.Read(text)
					if lasted := time.Since(began); lasted != tc.lasts || !errors.Is(err, ErrRefused) {
						t.Errorf("the connection has lasted %v, want %v; reading it: %v, want a refusal", lasted, tc.lasts, err)
					}
					if _, err := conn.Write([]byte("rm")); !errors.Is(err, ErrRefused) {
						t.Errorf("writing to the closed connection: %v, want a refusal", err)
					}
					if _, err := server.Read(text); !errors.Is(err, io.EOF) {
						t.Errorf("the server reads %v, want that the connection was closed", err)
					}
					_ = conn.Close()
				})
			})
		}
	}
}

// TestConnectionsOfCallersThatLeave closes connections, and has servers that close their side
// alone, as after the last of the input. No handoff waits for an open connection.
func TestConnectionsOfCallersThatLeave(t *testing.T) {
	inFence(t, func(t *testing.T, f *fenceTest) {
		conns := f.handedOver()
		f.claim.endless = true
		f.fence.Open(f.claim)
		resp, err := connect(t, f.rt, t.Context(), execPath)
		if err != nil {
			t.Fatal(err)
		}
		server := <-conns
		began := time.Now()
		f.fence.Await()
		if took := time.Since(began); took > 0 {
			t.Errorf("a handoff waits %v for an open connection", took)
		}
		_ = resp.Body.Close()
		if _, err := server.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("the server reads %v, want that the connection was closed", err)
		}
		if _, err := resp.Body.Read(make([]byte, 1)); err == nil || errors.Is(err, ErrRefused) {
			t.Errorf("a caller that has closed its connection reads %v", err)
		}
		half := &halfClosed{}
		f.next.handle = func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusSwitchingProtocols, Body: half}, nil
		}
		if resp, err = connect(t, f.rt, t.Context(), execPath); err != nil {
			t.Fatal(err)
		}
		if n, err := resp.Body.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
			t.Errorf("read %d, %v, want the end", n, err)
		}
		synctest.Wait()
		if half.closed {
			t.Error("the connection was closed when the server's side ended")
		}
		_ = resp.Body.Close()
		if !half.closed {
			t.Error("the connection is not closed")
		}
	})
}

// halfClosed is a connection whose server sends nothing more.
type halfClosed struct{ closed bool }

func (*halfClosed) Read([]byte) (int, error)    { return 0, io.EOF }
func (*halfClosed) Write(p []byte) (int, error) { return len(p), nil }
func (h *halfClosed) Close() error              { h.closed = true; return nil }

// TestConnectionOverTheWire has a real server hand a connection over, and end the claim.
func TestConnectionOverTheWire(t *testing.T) {
	ended := make(chan error, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, both, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = fmt.Fprint(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n")
		_, err = io.Copy(io.Discard, both)
		ended <- err
	}))
	defer server.Close()
	fence, err := New(Config{Member: "a_1", Shard: "ns-01", Clock: &jumpClock{}})
	if err != nil {
		t.Fatal(err)
	}
	claim := newFakeClaim(t.Context(), time.Now())
	claim.endless = true
	fence.Open(claim)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+execPath, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", "SPDY/3.1")
	resp, err := fence.Wrap(server.Client().Transport).RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := resp.Body.(io.Writer).Write([]byte("ls")); err != nil {
		t.Error(err)
	}
	claim.end(errEnded)
	if _, err := resp.Body.Read(make([]byte, 1)); !errors.Is(err, ErrRefused) || !errors.Is(err, errEnded) {
		t.Errorf("reading after the claim: %v, want a refusal and its reason", err)
	}
	if err := <-ended; err != nil {
		t.Errorf("the server's end: %v", err)
	}
}
