package leaderlock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/election/leasetest"
)

const s = time.Second

// harness is a bubble with processes of this package.
type harness struct{ *leasetest.Bubble }

// inBubble runs test in a bubble.
func inBubble(t *testing.T, test func(t *testing.T, h *harness)) {
	t.Helper()
	leasetest.InBubble(t, func(t *testing.T, b *leasetest.Bubble) { test(t, &harness{b}) })
}

// lockNode is a process with a leader lock.
type lockNode struct {
	*harness
	*leasetest.Process
	name     string
	client   *leasetest.Client // of the leader lock
	clock    *leasetest.JumpClock
	observer *election.Observer
	lock     *Lock
	err      error
	quiet    bool // log no events

	mu   sync.Mutex
	sent map[string]int // requests by verb, while counting
}

// leaderLock starts a process with a leader lock on lockName. Requests take 10ms, watch events 5ms.
func (h *harness) leaderLock(name string, changes ...func(*lockNode, *Config)) *lockNode {
	h.T.Helper()
	p := &lockNode{
		harness: h, name: name, client: h.Store.Client(name), clock: &leasetest.JumpClock{}, sent: map[string]int{},
	}
	p.client.Script(func(verb string) leasetest.Fault {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.sent[verb]++
		return leasetest.Fault{Out: 5 * time.Millisecond, Back: 5 * time.Millisecond}
	})
	watch := h.Store.Client(name)
	watch.LagWatch(5 * time.Millisecond)
	p.observer = h.observer(watch, p.clock)
	cfg := Config{
		Name: lockName, Identity: lockSelf, Client: p.client, Observer: p.observer, Clock: p.clock, Timing: election.DefaultTiming(),
		OnEvent: p.event, Jitter: func(d time.Duration) time.Duration { return d },
	}
	for _, change := range changes {
		change(p, &cfg)
	}
	var err error
	if p.lock, err = New(cfg); err != nil {
		h.T.Fatal(err)
	}
	p.Process = h.Run(func(ctx context.Context) { p.err = p.lock.Run(ctx) }, p.observer.Run)
	return p
}

func (h *harness) observer(client *leasetest.Client, clock election.Clock) *election.Observer {
	h.T.Helper()
	observer, err := election.NewObserver(election.ObserverConfig{Fleet: "f", Extra: []string{lockName}, Client: client, Clock: clock})
	if err != nil {
		h.T.Fatal(err)
	}
	return observer
}

func (p *lockNode) event(e election.Event) {
	if p.quiet || e.Type == election.EventRenewed || e.Reason == election.ReasonUnknown {
		return // Whether the first step knows anything is up to the scheduler.
	}
	line := fmt.Sprintf("%s %s", p.name, e.Type)
	if e.Term != 0 {
		line += fmt.Sprintf(" %d", e.Term)
	}
	if e.Reason != "" {
		line += fmt.Sprintf(" (%s)", e.Reason)
	}
	p.Logf("%s", line)
}

func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

func quietly(p *lockNode, _ *Config) { p.quiet = true }

func (p *lockNode) valid() bool { return p.lock.Valid(p.clock.Now()) }

// left returns how much longer the right lasts.
func (p *lockNode) left() time.Duration { return p.lock.ValidUntil().Sub(p.clock.Now()) }

func (p *lockNode) expectHeld(held, valid, lost bool) {
	p.T.Helper()
	if h, v, l := isClosed(p.lock.Held()), p.valid(), isClosed(p.lock.Lost()); h != held || v != valid || l != lost {
		p.T.Errorf("%s at %v: held %t, valid %t, lost %t, want %t, %t, %t", p.name, time.Since(p.Begin), h, v, l, held, valid, lost)
	}
}

func (p *lockNode) expectLost(reason election.Reason) {
	p.T.Helper()
	p.expectHeld(true, false, true)
	if !errors.Is(p.err, ErrLost) || !strings.Contains(fmt.Sprint(p.err), string(reason)) {
		p.T.Errorf("Run() of %s = %v, want ErrLost for %s", p.name, p.err, reason)
	}
}

// put writes the Lease as a stock leader or an earlier fleet leaves it.
func (h *harness) put(holder string, term int32) {
	h.Store.Put(lease(holder, term))
}

func (h *harness) record() leaserecord.Record { return leaserecord.From(h.Store.Get(lockName)) }

func (h *harness) expectRecord(holder string, term int32) {
	h.T.Helper()
	if r := h.record(); r.Holder != holder || r.Transitions != term {
		h.T.Errorf("Lease names %q in term %d, want %q in %d", r.Holder, r.Transitions, holder, term)
	}
}

// lease returns the Lease as another process may have left it, with timestamps that do not fit this
// process's clock.
func lease(holder string, term int32) *coordinationv1.Lease {
	stamp := metav1.NewMicroTime(time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC))
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: lockName},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: &holder, LeaseTransitions: &term, LeaseDurationSeconds: ptr.To[int32](15), AcquireTime: &stamp, RenewTime: &stamp,
		},
	}
}
