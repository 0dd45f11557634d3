package fence

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
)

// server is an http.RoundTripper that records the requests that reach it, and answers with handle.
type server struct {
	sent   []*http.Request
	handle func(*http.Request) (*http.Response, error)
}

func (t *server) RoundTrip(req *http.Request) (*http.Response, error) {
	t.sent = append(t.sent, req)
	if t.handle != nil {
		return t.handle(req)
	}
	return respond("ok"), nil
}

func respond(body string) *http.Response {
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(body))}
}

// jumpClock is the bubble's clock plus an offset, to simulate a suspended process.
type jumpClock struct{ offset time.Duration }

func (c *jumpClock) Now() time.Time       { return time.Now().Add(c.offset) }
func (c *jumpClock) jump(d time.Duration) { c.offset += d }

// fakeClaim is a claim of term 8 that is valid for 10 s, on a Lease that expires 5 s after that. If
// endless is set, it has neither limit, and term 0.
type fakeClaim struct {
	ctx     context.Context
	end     context.CancelCauseFunc
	began   time.Time
	endless bool
	// lapsed makes the claim invalid for a reason that the fence does not know.
	lapsed bool
}

func newFakeClaim(ctx context.Context, now time.Time) *fakeClaim {
	h := &fakeClaim{began: now}
	h.ctx, h.end = context.WithCancelCause(ctx)
	return h
}

func (h *fakeClaim) Term() int32 {
	if h.endless {
		return 0
	}
	return 8
}

func (h *fakeClaim) Context() context.Context { return h.ctx }

func (h *fakeClaim) Expiry() time.Time {
	if h.endless {
		return time.Time{}
	}
	return h.began.Add(15 * time.Second)
}

func (h *fakeClaim) Valid(now time.Time) bool {
	return h.ctx.Err() == nil && !h.lapsed && (h.endless || now.Before(h.began.Add(10*time.Second)))
}

// fenceTest is a fence before a server, and a claim on the fence's clock.
type fenceTest struct {
	t     *testing.T
	fence *Fence
	next  *server
	rt    http.RoundTripper
	clock *jumpClock
	claim *fakeClaim
}

func inFence(t *testing.T, test func(t *testing.T, f *fenceTest)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := &fenceTest{t: t, next: &server{}, clock: &jumpClock{}}
		var err error
		if f.fence, err = New(Config{Member: "a_1", Shard: "ns-01", Clock: f.clock}); err != nil {
			t.Fatal(err)
		}
		f.rt = f.fence.Wrap(f.next)
		f.claim = newFakeClaim(t.Context(), f.clock.Now())
		test(t, f)
	})
}

// send sends a request, closes the answer's body, and returns the error.
func (f *fenceTest) send(method string) error {
	f.t.Helper()
	resp, err := f.rt.RoundTrip(f.request(f.t.Context(), method))
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

func (f *fenceTest) request(ctx context.Context, method string) *http.Request {
	f.t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, "https://server/api/v1/pods", strings.NewReader("{}"))
	if err != nil {
		f.t.Fatal(err)
	}
	req.Header.Set("User-Agent", "kcm/v1.37")
	return req
}

func (f *fenceTest) expect(method, want string) {
	f.t.Helper()
	before := len(f.next.sent)
	err := f.send(method)
	if want == "" {
		if err != nil || len(f.next.sent) != before+1 {
			f.t.Errorf("%s = %v, want it sent", method, err)
		}
		return
	}
	var fenced *RefusedError
	if !errors.Is(err, ErrRefused) || !errors.As(err, &fenced) || fenced.Shard != "ns-01" || err.Error() != want {
		f.t.Errorf("%s = %v, want %s", method, err, want)
	}
	if len(f.next.sent) != before {
		f.t.Errorf("%s was sent", method)
	}
}

const closedFence = `refused by the fence: shard "ns-01", term 0`

func TestFenceRefusesWithoutClaim(t *testing.T) {
	inFence(t, func(t *testing.T, f *fenceTest) {
		for _, method := range []string{"GET", "HEAD", "OPTIONS"} {
			f.expect(method, "")
		}
		for _, method := range []string{"POST", "PUT", "PATCH", "DELETE", "TRACE", "CONNECT", "WHATEVER"} {
			f.expect(method, closedFence)
		}
		if got := f.fence.Refused(); got != 7 {
			t.Errorf("Refused() = %d, want 7", got)
		}
		f.fence.Open(f.claim)
		f.expect("POST", "")
		f.expect("GET", "")
		f.fence.Close()
		f.expect("POST", closedFence)
		f.expect("GET", closedFence)
	})
}

var errEnded = errors.New("another holds it")

// TestFenceSaysWhyItRefuses covers each reason, and checks that reads and sent writes report none.
func TestFenceSaysWhyItRefuses(t *testing.T) {
	inFence(t, func(t *testing.T, f *fenceTest) {
		var told []Refusal
		open := true
		fence, err := New(Config{
			Member: "a_1", Shard: "ns-01", Clock: f.clock,
			Permit:    func(time.Time) bool { return open },
			OnRefused: func(why Refusal) { told = append(told, why) },
		})
		if err != nil {
			t.Fatal(err)
		}
		f.fence, f.rt = fence, fence.Wrap(f.next)
		expect := func(what string, refused bool, want ...Refusal) {
			t.Helper()
			told = nil
			for _, method := range []string{"GET", "PUT"} {
				if err := f.send(method); method == "PUT" && (err != nil) != refused {
					t.Errorf("%s: %s = %v", what, method, err)
				}
			}
			if !slices.Equal(told, want) {
				t.Errorf("%s: told %v, want %v", what, told, want)
			}
		}
		expect("before the claim", true, RefusalClosed)
		fence.Open(f.claim)
		expect("with a claim", false)
		open = false
		expect("without a leader lock", true, RefusalNotPermitted)
		open = true
		time.Sleep(10 * time.Second) // virtual
		expect("after the renew deadline", true, RefusalExpired)
		open = false
		expect("without claim and leader lock", true, RefusalExpired)
		fence.Close()
		expect("after Close", true, RefusalClosed)
	})
}

// TestFenceEndsReads has work wait for the answer to a read when its claim ends, as when the API
// server hangs. If the fence did not end the read, the work could not return before the Lease
// expires, and the process would have to end.
func TestFenceEndsReads(t *testing.T) {
	inFence(t, func(t *testing.T, f *fenceTest) {
		f.fence.Open(f.claim)
		f.next.handle = func(req *http.Request) (*http.Response, error) {
			<-req.Context().Done()
			return nil, req.Context().Err()
		}
		time.AfterFunc(time.Second, func() { f.claim.end(errEnded) })
		begin := time.Now()
		if err := f.send("GET"); !errors.Is(err, ErrRefused) || time.Since(begin) != time.Second {
			t.Errorf("GET = %v after %v, want the fence to end it with the claim, after 1s", err, time.Since(begin))
		}
	})
}

func TestFenceRefusesAfterClaim(t *testing.T) {
	t.Run("ended", func(t *testing.T) {
		inFence(t, func(t *testing.T, f *fenceTest) {
			f.fence.Open(f.claim)
			f.expect("PUT", "")
			f.claim.end(errEnded)
			f.expect("PUT", `refused by the fence: shard "ns-01", term 8: another holds it`)
			f.expect("GET", `refused by the fence: shard "ns-01", term 8: another holds it`)
		})
	})
	t.Run("out of time", func(t *testing.T) {
		inFence(t, func(t *testing.T, f *fenceTest) {
			f.fence.Open(f.claim)
			time.Sleep(10*time.Second - time.Nanosecond) // virtual
			f.expect("PUT", "")
			time.Sleep(time.Nanosecond) // virtual
			f.expect("PUT", `refused by the fence: shard "ns-01", term 8`)
		})
	})
	t.Run("lapsed", func(t *testing.T) {
		inFence(t, func(t *testing.T, f *fenceTest) {
			f.fence.Open(f.claim)
			f.claim.lapsed = true
			f.expect("PUT", `refused by the fence: shard "ns-01", term 8`)
		})
	})
	t.Run("suspended", func(t *testing.T) {
		inFence(t, func(t *testing.T, f *fenceTest) {
			f.fence.Open(f.claim)
			f.clock.jump(10 * time.Second)
			f.expect("PUT", `refused by the fence: shard "ns-01", term 8`)
		})
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// TestSuspendedBeforeTheWire suspends the process when the fence has let a write pass, and before
// its body is sent: at first, and when the transport tries it again on another connection.
func TestSuspendedBeforeTheWire(t *testing.T) {
	bodies := map[string]func(*http.Request) io.Reader{
		"first": func(req *http.Request) io.Reader { return req.Body },
		"again": func(req *http.Request) io.Reader {
			again, err := req.GetBody()
			if err != nil {
				t.Fatal(err)
			}
			return again
		},
	}
	for name, body := range bodies {
		for pause, want := range map[time.Duration]string{15*time.Second - 1: "{}", 15 * time.Second: "", time.Hour: ""} {
			inFence(t, func(t *testing.T, f *fenceTest) {
				f.fence.Open(f.claim)
				var got []byte
				var fault error
				rt := f.fence.Wrap(roundTripper(func(req *http.Request) (*http.Response, error) {
					f.clock.jump(pause)
					got, fault = io.ReadAll(body(req))
					return respond("ok"), nil
				}))
				resp, err := rt.RoundTrip(f.request(t.Context(), "POST"))
				if err != nil {
					t.Fatal(err)
				}
				if err := resp.Body.Close(); err != nil {
					t.Error(err)
				}
				if string(got) != want || errors.Is(fault, ErrRefused) != (want == "") {
					t.Errorf("%s, after %v: %q is sent, error %v; want %q", name, pause, got, fault, want)
				}
			})
		}
	}
	inFence(t, func(t *testing.T, f *fenceTest) {
		f.claim.endless = true
		f.fence.Open(f.claim)
		rt := f.fence.Wrap(roundTripper(func(req *http.Request) (*http.Response, error) {
			f.clock.jump(1000 * time.Hour)
			if got, err := io.ReadAll(req.Body); string(got) != "{}" || err != nil {
				t.Errorf("under an endless claim %q is sent, error %v", got, err)
			}
			return respond("ok"), nil
		}))
		if _, err := rt.RoundTrip(f.request(t.Context(), "POST")); err != nil {
			t.Fatal(err)
		}
	})
}

// TestHalfARequest checks that a server gets no whole request from a process that was suspended
// after the check, and that the caller learns why, with either version of HTTP.
func TestHalfARequest(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("http2: %t", http2), func(t *testing.T) {
			var whole atomic.Int32
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				if _, err := io.ReadAll(req.Body); err == nil {
					whole.Add(1)
				}
			}))
			server.EnableHTTP2 = http2
			server.StartTLS()
			defer server.Close()
			clock := &jumpClock{}
			fence, err := New(Config{Member: "a_1", Shard: "ns-01", Clock: clock})
			if err != nil {
				t.Fatal(err)
			}
			fence.Open(newFakeClaim(t.Context(), clock.Now()))
			var pause time.Duration
			rt := fence.Wrap(roundTripper(func(req *http.Request) (*http.Response, error) {
				clock.jump(pause)
				return server.Client().Transport.RoundTrip(req)
			}))
			send := func() error {
				req, err := http.NewRequestWithContext(t.Context(), "POST", server.URL+"/api/v1/pods", strings.NewReader("{}"))
				if err != nil {
					t.Fatal(err)
				}
				resp, err := rt.RoundTrip(req)
				if err != nil {
					return err
				}
				if got := resp.ProtoMajor == 2; got != http2 {
					t.Errorf("the answer has %s", resp.Proto)
				}
				return resp.Body.Close()
			}
			if err := send(); err != nil || whole.Load() != 1 {
				t.Fatalf("%d whole requests, error %v", whole.Load(), err)
			}
			pause = time.Minute
			if err := send(); !errors.Is(err, ErrRefused) {
				t.Errorf("suspended: error %v, want a refusal", err)
			}
			server.Close() // waits for handlers
			if got := whole.Load(); got != 1 {
				t.Errorf("the server has %d whole requests, want the first only", got)
			}
		})
	}
}

func TestFenceWithoutElection(t *testing.T) {
	inFence(t, func(t *testing.T, f *fenceTest) {
		f.claim.endless = true
		f.fence.Open(f.claim)
		f.clock.jump(1000 * time.Hour)
		f.next.handle = func(req *http.Request) (*http.Response, error) {
			select {
			case <-req.Context().Done():
				return nil, req.Context().Err()
			case <-time.After(1000 * time.Hour):
				return respond("late"), nil
			}
		}
		f.expect("PUT", "") // however long it takes
		f.claim.end(nil)
		f.expect("PUT", `refused by the fence: shard "ns-01", term 0: context canceled`)
	})
}

func TestFenceIdentifies(t *testing.T) {
	inFence(t, func(t *testing.T, f *fenceTest) {
		req := f.request(t.Context(), "GET")
		if _, err := f.rt.RoundTrip(req); err != nil {
			t.Fatal(err)
		}
		f.fence.Open(f.claim)
		f.expect("PUT", "")
		for i, want := range []string{
			"kcm/v1.37 flotilla (member=a_1; shard=ns-01; term=0)",
			"kcm/v1.37 flotilla (member=a_1; shard=ns-01; term=8)",
		} {
			if got := f.next.sent[i].Header.Get("User-Agent"); got != want {
				t.Errorf("User-Agent is %q, want %q", got, want)
			}
		}
		if got := req.Header.Get("User-Agent"); got != "kcm/v1.37" {
			t.Errorf("The caller's request has User-Agent %q, want it unchanged", got)
		}
	})
}

// A mutating request may last until the Lease expires, by the claim's clock; reads have no such
// limit.
func TestFenceBoundsRequests(t *testing.T) {
	inFence(t, func(t *testing.T, f *fenceTest) {
		f.next.handle = func(req *http.Request) (*http.Response, error) {
			select {
			case <-req.Context().Done():
				return nil, req.Context().Err()
			case <-time.After(time.Minute):
				return respond("late"), nil
			}
		}
		f.fence.Open(f.claim)
		f.clock.jump(2 * time.Second) // 8 s to the deadline, 13 to the expiry.
		begin := time.Now()
		err := f.send("PUT")
		if took := time.Since(begin); took != 13*time.Second || !errors.Is(err, ErrRefused) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("PUT = %v after %v, want the fence to give it up after 13s", err, took)
		}
		begin = time.Now()
		if err := f.send("GET"); err != nil || time.Since(begin) != time.Minute {
			t.Errorf("GET = %v after %v, want it answered after a minute", err, time.Since(begin))
		}
	})
}

// renewedClaim is a fakeClaim that heartbeats renew.
type renewedClaim struct {
	*fakeClaim
	renewals atomic.Int64
	every    time.Duration
}

func (h *renewedClaim) renewed() time.Duration { return time.Duration(h.renewals.Load()) * h.every }

func (h *renewedClaim) Expiry() time.Time { return h.fakeClaim.Expiry().Add(h.renewed()) }

func (h *renewedClaim) Valid(now time.Time) bool { return h.fakeClaim.Valid(now.Add(-h.renewed())) }

// TestFenceLetsAForeignWriteTakeLongerThanTheLease has a server that answers after 20 s, as clouds
// do, and what is behind the proxy of a pod, and a Lease that expires 15 s after the last of some
// heartbeats. The API server itself gets no more time for a heartbeat: its answer may have got
// lost.
func TestFenceLetsAForeignWriteTakeLongerThanTheLease(t *testing.T) {
	const every = 2 * time.Second
	for name, tc := range map[string]struct {
		renewals int64
		answered bool
		took     time.Duration
	}{
		"heartbeats go on":         {10, true, 20 * time.Second},
		"just enough heartbeats":   {3, true, 20 * time.Second},
		"the heartbeats end early": {2, false, 19 * time.Second},
		"there is none":            {0, false, 15 * time.Second},
	} {
		for _, to := range []string{"the API server", "another server", "a pod"} {
			t.Run(fmt.Sprintf("%s, to %s", name, to), func(t *testing.T) {
				inFence(t, func(t *testing.T, f *fenceTest) {
					f.next.handle = func(req *http.Request) (*http.Response, error) {
						select {
						case <-req.Context().Done():
							return nil, req.Context().Err()
						case <-time.After(20 * time.Second):
							return respond("late"), nil
						}
					}
					claim := &renewedClaim{fakeClaim: f.claim, every: every}
					f.fence.Open(claim)
					req := f.request(t.Context(), "POST")
					answered, want := tc.answered, tc.took
					switch to {
					case "the API server":
						answered, want = false, 15*time.Second
					case "another server":
						f.rt = f.fence.WrapForeign(f.next)
					case "a pod":
						req.Method, req.URL.Path = "GET", "/api/v1/namespaces/n/pods/p/proxy/do"
					}
					var beating sync.WaitGroup
					beating.Go(func() {
						for range tc.renewals {
							time.Sleep(every) // virtual
							claim.renewals.Add(1)
						}
					})
					defer beating.Wait()
					begin := time.Now()
					resp, err := f.rt.RoundTrip(req)
					if took := time.Since(begin); (err == nil) != answered || took != want {
						t.Errorf("%s = %v after %v, want it answered: %t after %v", req.Method, err, took, answered, want)
					}
					if err != nil && (!errors.Is(err, ErrRefused) || !errors.Is(err, context.DeadlineExceeded)) {
						t.Errorf("%s = %v, want a refusal that says that the time is over", req.Method, err)
					}
					if err == nil {
						_ = resp.Body.Close()
					}
				})
			})
		}
	}
}

func TestFenceCancelsRequestsWhenClaimEnds(t *testing.T) {
	inFence(t, func(t *testing.T, f *fenceTest) {
		f.next.handle = func(req *http.Request) (*http.Response, error) {
			<-req.Context().Done()
			return nil, req.Context().Err()
		}
		f.fence.Open(f.claim)
		time.AfterFunc(time.Second, func() { f.claim.end(errEnded) })
		begin := time.Now()
		if err := f.send("PUT"); time.Since(begin) != time.Second || !errors.Is(err, ErrRefused) {
			t.Errorf("PUT = %v after %v, want the fence to give it up after 1s", err, time.Since(begin))
		}
	})
}

// TestFenceAwaitsAnswers has callers that give up a request after a second.
func TestFenceAwaitsAnswers(t *testing.T) {
	cancelled := func(ctx context.Context) (context.Context, context.CancelFunc) {
		ctx, cancel := context.WithCancel(ctx)
		time.AfterFunc(time.Second, cancel)
		return ctx, cancel
	}
	late := func(ctx context.Context) (context.Context, context.CancelFunc) {
		return context.WithTimeout(ctx, time.Second)
	}
	atOnce := func(ctx context.Context) (context.Context, context.CancelFunc) {
		ctx, cancel := context.WithCancel(ctx)
		cancel()
		return ctx, cancel
	}
	for name, tc := range map[string]struct {
		method  string
		caller  func(context.Context) (context.Context, context.CancelFunc)
		answer  time.Duration // after which the server answers
		ends    time.Duration // when the claim does
		err     error
		took    time.Duration
		sent    int
		unknown bool
	}{
		"a write that is answered soon":  {"PUT", cancelled, 1900 * time.Millisecond, time.Hour, nil, 1900 * time.Millisecond, 1, false},
		"a write that is not":            {"PUT", cancelled, time.Minute, time.Hour, context.Canceled, 2 * time.Second, 1, true},
		"the claim ends":                 {"PUT", cancelled, time.Minute, 1500 * time.Millisecond, ErrRefused, 1500 * time.Millisecond, 1, true},
		"a deadline":                     {"PUT", late, 1900 * time.Millisecond, time.Hour, context.DeadlineExceeded, time.Second, 1, true},
		"a read":                         {"GET", cancelled, 1900 * time.Millisecond, time.Hour, context.Canceled, time.Second, 1, false},
		"a caller that gave up long ago": {"PUT", atOnce, 0, time.Hour, context.Canceled, 0, 0, false},
		"the same, when the claim has":   {"PUT", atOnce, 0, 0, ErrRefused, 0, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			inFence(t, func(t *testing.T, f *fenceTest) {
				f.next.handle = func(req *http.Request) (*http.Response, error) {
					select {
					case <-req.Context().Done():
						return nil, req.Context().Err()
					case <-time.After(tc.answer):
						resp := respond(`{"metadata":{"resourceVersion":"7"}}`)
						resp.Header = http.Header{"Content-Type": {"application/json"}}
						return resp, nil
					}
				}
				f.claim.endless = true
				f.fence.Open(f.claim)
				end := time.AfterFunc(tc.ends, func() { f.claim.end(errEnded) })
				defer end.Stop()
				synctest.Wait() // for a claim that has ended
				ctx, cancel := tc.caller(t.Context())
				defer cancel()
				began := time.Now()
				resp, err := f.rt.RoundTrip(f.request(ctx, tc.method))
				if took := time.Since(began); !errors.Is(err, tc.err) || took != tc.took || len(f.next.sent) != tc.sent {
					t.Errorf("%v after %v, %d requests sent; want %v after %v, %d", err, took, len(f.next.sent), tc.err, tc.took, tc.sent)
				}
				if err == nil {
					if _, err := io.Copy(io.Discard, resp.Body); err != nil {
						t.Errorf("the answer cannot be read: %v", err)
					}
					_ = resp.Body.Close()
				}
				f.fence.Close()
				writes := f.fence.Writes(8)
				if unknown := len(writes.Unknown()) > 0; unknown != tc.unknown {
					t.Errorf("writes of unknown outcome: %v", writes.Unknown())
				}
			})
		})
	}
}

// TestFenceAwait has a write that is answered, and whose answer is read, some time after the fence
// has closed.
func TestFenceAwait(t *testing.T) {
	for name, tc := range map[string]struct {
		answer, read time.Duration // since Close
		took         time.Duration
		unknown      bool
	}{
		"answered before":     {-2 * time.Millisecond, -time.Millisecond, 0, false},
		"answered soon":       {300 * time.Millisecond, 300 * time.Millisecond, 300 * time.Millisecond, false},
		"read later":          {300 * time.Millisecond, 500 * time.Millisecond, 500 * time.Millisecond, false},
		"answered too late":   {1100 * time.Millisecond, 1100 * time.Millisecond, time.Second, true},
		"read too late":       {300 * time.Millisecond, 1100 * time.Millisecond, time.Second, true},
		"answered in a while": {900 * time.Millisecond, 900 * time.Millisecond, 900 * time.Millisecond, false},
	} {
		t.Run(name, func(t *testing.T) {
			inFence(t, func(t *testing.T, f *fenceTest) {
				closes := time.Now().Add(time.Second)
				f.next.handle = func(*http.Request) (*http.Response, error) {
					time.Sleep(time.Until(closes.Add(tc.answer))) // virtual
					resp := respond(`{"metadata":{"resourceVersion":"7"}}`)
					resp.Header = http.Header{"Content-Type": {"application/json"}}
					return resp, nil
				}
				f.claim.endless = true
				f.fence.Open(f.claim)
				var writing sync.WaitGroup
				writing.Go(func() {
					resp, err := f.rt.RoundTrip(f.request(t.Context(), "PUT"))
					if err != nil {
						t.Errorf("PUT = %v", err)
						return
					}
					time.Sleep(time.Until(closes.Add(tc.read))) // virtual
					if _, err := io.Copy(io.Discard, resp.Body); err != nil {
						t.Errorf("the answer cannot be read: %v", err)
					}
					_ = resp.Body.Close()
				})
				time.Sleep(time.Until(closes)) // virtual
				f.fence.Close()
				f.fence.Await()
				if took := time.Since(closes); took != tc.took {
					t.Errorf("waited for %v, want %v", took, tc.took)
				}
				writes := f.fence.Writes(8)
				if unknown := len(writes.Unknown()) > 0; unknown != tc.unknown || !unknown && writes.Resources["pods"].Version != "7" {
					t.Errorf("the writes are %+v, want unknown: %t", writes.Resources, tc.unknown)
				}
				writing.Wait()
			})
		})
	}
}

// A request's context must end when its answer has been read, and not before.
func TestFenceBoundsBodies(t *testing.T) {
	inFence(t, func(t *testing.T, f *fenceTest) {
		f.fence.Open(f.claim)
		put := func() (*http.Response, context.Context) {
			resp, err := f.rt.RoundTrip(f.request(t.Context(), "PUT"))
			if err != nil {
				t.Fatal(err)
			}
			sent := f.next.sent[len(f.next.sent)-1].Context()
			if sent.Err() != nil {
				t.Error("The request's context has ended before its answer was read")
			}
			return resp, sent
		}
		resp, ctx := put()
		if got, err := io.ReadAll(resp.Body); err != nil || string(got) != "ok" || ctx.Err() == nil {
			t.Errorf("Read %q, %v, context %v, want ok and the context ended", got, err, ctx.Err())
		}
		resp, ctx = put()
		if err := resp.Body.Close(); err != nil || ctx.Err() == nil {
			t.Errorf("Close() = %v, context %v, want it ended", err, ctx.Err())
		}
		_, ctx = put()
		time.Sleep(15 * time.Second) // virtual
		synctest.Wait()
		if ctx.Err() == nil {
			t.Error("The answer can be read after the Lease has expired")
		}
		f.claim = newFakeClaim(t.Context(), f.clock.Now())
		f.claim.endless = true
		f.fence.Open(f.claim)
		f.next.handle = func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusSwitchingProtocols, Body: duplex{}}, nil
		}
		resp, _ = put()
		if _, ok := resp.Body.(io.ReadWriteCloser); !ok {
			t.Errorf("Body of an upgraded connection is a %T that cannot be written", resp.Body)
		}
		_ = resp.Body.Close()
		f.next.handle = func(*http.Request) (*http.Response, error) { return &http.Response{}, nil }
		if resp, err := f.rt.RoundTrip(f.request(t.Context(), "PUT")); err != nil || resp.Body != nil {
			t.Errorf("A response without a body became %+v, %v", resp, err)
		}
	})
}

type duplex struct{ io.ReadWriter }

func (duplex) Close() error { return nil }

func TestFenceClosesRefusedBody(t *testing.T) {
	inFence(t, func(t *testing.T, f *fenceTest) {
		body := &closing{}
		req := f.request(t.Context(), "PUT")
		req.Body = body
		if _, err := f.rt.RoundTrip(req); !errors.Is(err, ErrRefused) || !body.closed {
			t.Errorf("PUT = %v, body closed %t, want it refused and closed", err, body.closed)
		}
	})
}

type closing struct {
	strings.Reader
	closed bool
}

func (c *closing) Close() error {
	c.closed = true
	return nil
}

func TestFenceFitsClientGo(t *testing.T) {
	inFence(t, func(t *testing.T, f *fenceTest) {
		wrapper, ok := f.rt.(utilnet.RoundTripperWrapper)
		if !ok || wrapper.WrappedRoundTripper() != http.RoundTripper(f.next) {
			t.Error("client-go cannot find the transport behind the fence")
		}
		config := &rest.Config{Host: "https://server", UserAgent: "kcm/v1.37", Transport: f.next}
		config.Wrap(f.fence.Wrap)
		client, err := rest.HTTPClientFor(config)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.Post("https://server/", "", nil); !errors.Is(err, ErrRefused) {
			t.Errorf("Post() = %v through a rest.Config, want it refused", err)
		}
		f.fence.Open(f.claim)
		resp, err := client.Post("https://server/", "", nil)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if got := f.next.sent[0].Header.Get("User-Agent"); got != "kcm/v1.37 flotilla (member=a_1; shard=ns-01; term=8)" {
			t.Errorf("User-Agent is %q", got)
		}
	})
}

func TestNewNamesInvalidFields(t *testing.T) {
	_, err := New(Config{Member: "a; b", Shard: "", ServerPath: "k8s/"})
	for _, want := range []string{`fence.Config.Member is "a; b", must be`, `fence.Config.Shard is "", must be`, `fence.Config.ServerPath is "k8s/", must be`, "fence.Config.Clock is nil"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("New() = %v, want it to say %s", err, want)
		}
	}
}
