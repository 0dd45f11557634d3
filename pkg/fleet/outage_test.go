package fleet

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"

	"github.com/flotilla-kube/flotilla/pkg/election/leasetest"
)

// readers records when members read all Leases: by a list, or by a watch that begins with all.
// While the API server is down, connections are refused.
type readers struct {
	down atomic.Bool

	mu    sync.Mutex
	times []time.Time
}

// ask records the request if it reads all Leases, and returns an error if the server is down.
func (r *readers) ask(all bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.down.Load() {
		return &url.Error{Op: "Get", URL: "https://192.0.2.1/", Err: syscall.ECONNREFUSED}
	}
	if all {
		r.times = append(r.times, time.Now())
	}
	return nil
}

// since returns the times from then on, in order.
func (r *readers) since(begin time.Time) []time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := slices.IndexFunc(r.times, func(t time.Time) bool { return !t.Before(begin) })
	if i < 0 {
		return nil
	}
	return slices.Clone(r.times[i:])
}

// readingClient is a member's client, whose reads are recorded.
type readingClient struct {
	*leasetest.Client
	readers *readers
}

// List implements Leases.
func (c readingClient) List(ctx context.Context, opts metav1.ListOptions) (*coordinationv1.LeaseList, error) {
	if err := c.readers.ask(true); err != nil {
		return nil, err
	}
	return c.Client.List(ctx, opts)
}

// Watch implements Leases.
func (c readingClient) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	if err := c.readers.ask(ptr.Deref(opts.SendInitialEvents, false)); err != nil {
		return nil, err
	}
	return c.Client.Watch(ctx, opts)
}

// TestReadsAfterAnOutage restarts the API server, after which nobody can continue a watch. Each
// member reads all Leases once, some twice, not all of them at the same time, and none ends.
func TestReadsAfterAnOutage(t *testing.T) {
	const members, window = 40, 250 * time.Millisecond
	inBubble(t, 2, func(t *testing.T, s *testFleet) {
		var all readers
		var processes []*process
		for i := range members {
			processes = append(processes, s.launch(fmt.Sprintf("m%02d", i), func(c *Config) {
				c.Leases = readingClient{c.Leases.(*leasetest.Client), &all}
			}))
		}
		pass(30 * time.Second)
		for _, p := range processes {
			p.client.Script(func(string) leasetest.Fault { return leasetest.Fault{Error: true} })
		}
		all.down.Store(true)
		s.store.BreakWatches()
		pass(5 * time.Second)
		s.store.Put(leasetest.Lease("somebody-elses", "x", 1)) // Nobody has seen the latest version.
		s.store.Forget()
		up := time.Now()
		all.down.Store(false)
		for _, p := range processes {
			p.client.Script(nil)
		}
		pass(20 * time.Second)
		reads := all.since(up)
		if len(reads) == 0 {
			t.Fatal("no member has read all Leases")
		}
		most := 0
		for i, first := range reads {
			n, _ := slices.BinarySearchFunc(reads[i:], first.Add(window), time.Time.Compare)
			most = max(most, n)
		}
		t.Logf("%d members read all Leases %d times, %d of them within %v, the last %v after the outage", members, len(reads), most, window, reads[len(reads)-1].Sub(up))
		if len(reads) < members || len(reads) > members*3/2 || most > members/2 {
			t.Errorf("%d members read all Leases %d times after the outage, and %d times within %v; want about once each, and at most %d of them within that time",
				members, len(reads), most, window, members/2)
		}
		for _, p := range processes {
			select {
			case <-p.ended:
				t.Errorf("%s has ended: %v", p.config.Member, p.err)
			default:
			}
		}
	})
}
