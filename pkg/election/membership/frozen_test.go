package membership

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/election/fence"
)

// machineClock is the clock of a virtual machine: it stops while the machine is paused.
type machineClock struct {
	clock.RealClock
	mu     sync.Mutex
	paused time.Time // since when; zero while the machine runs
	lost   time.Duration
}

func (c *machineClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.RealClock.Now()
	if !c.paused.IsZero() {
		now = c.paused
	}
	return now.Add(-c.lost)
}

func (c *machineClock) pause() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.paused = c.RealClock.Now()
}

func (c *machineClock) resume() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lost += c.RealClock.Now().Sub(c.paused)
	c.paused = time.Time{}
}

// TestFrozenClock pauses a holder for a minute, in which a rival acquires its Lease, and then lets
// it write. If its clock advanced, the fence refuses the first write. If its clock stopped too,
// writes pass until its next heartbeat is answered, or else until its renew deadline. Its watch
// delivers nothing: after such a pause its connection is gone.
func TestFrozenClock(t *testing.T) {
	timing := election.DefaultTiming()
	for name, test := range map[string]struct {
		frozen, answered bool
		// least and most bound how long writes pass after the holder resumes.
		least, most time.Duration
	}{
		"the clock advances": {answered: true},
		"the clock stops": {
			frozen: true, answered: true,
			least: time.Millisecond, most: timing.RetryPeriod + 10*time.Millisecond,
		},
		"the clock stops, and no answer": {
			frozen: true, least: timing.RenewDeadline - 2*timing.RetryPeriod, most: timing.RenewDeadline,
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, h *harness) {
				machine := &machineClock{}
				h.free(1)
				a := h.processOn(machine, "a_1", 1)
				h.Sleep(time.Second)
				b := h.process("b_1", 1)
				h.Sleep(20 * time.Second)
				f, err := fence.New(fence.Config{Member: "a_1", Shard: "ns-01", Clock: machine})
				if err != nil {
					t.Fatal(err)
				}
				f.Open(a.claimants[leaseName].Claim())
				write := f.Wrap(answering{})
				passes := func() bool { return fencePasses(t, write) }
				if !passes() {
					t.Fatal("the holder cannot write")
				}

				a.client.Block()
				a.watch.Block()
				if test.frozen {
					machine.pause()
				}
				h.Sleep(time.Minute)
				if b.held() == 0 || h.Holder(leaseName) != "b_1" {
					t.Fatalf("the Lease is held by %q, want b_1", h.Holder(leaseName))
				}
				if test.frozen {
					machine.resume()
				}
				if test.answered {
					a.client.Unblock()
				}

				woke := time.Now()
				for passes() {
					if time.Since(woke) > time.Minute {
						t.Fatal("writes pass forever")
					}
					time.Sleep(time.Millisecond) // virtual
					synctest.Wait()
				}
				if after := time.Since(woke); after < test.least || after > test.most {
					t.Errorf("refused %v after waking, want from %v to %v", after, test.least, test.most)
				}
				a.client.Unblock()
				a.watch.Unblock()
			})
		})
	}
}

// fencePasses reports whether fenced lets a write pass.
func fencePasses(t *testing.T, fenced http.RoundTripper) bool {
	t.Helper()
	body := strings.NewReader("{}")
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://server/api/v1/pods", body)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := fenced.RoundTrip(req)
	if err != nil {
		return false
	}
	return resp.Body.Close() == nil
}

// answering is a server that accepts every request.
type answering struct{}

func (answering) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
}
