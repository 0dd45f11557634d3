package election

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/utils/ptr"

	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/election/leasetest"
)

const leaseName = "f-ns-01"

// harness is a bubble with processes of this package.
type harness struct{ *leasetest.Bubble }

// inBubble runs test in a bubble.
func inBubble(t *testing.T, test func(t *testing.T, h *harness)) {
	t.Helper()
	leasetest.InBubble(t, func(t *testing.T, b *leasetest.Bubble) { test(t, &harness{b}) })
}

func lease(holder string, term int32) *coordinationv1.Lease {
	return leasetest.Lease(leaseName, holder, term)
}

// strike lists an incarnation as ended, as a judge would.
func (h *harness) strike(incarnation string) {
	name := leaserecord.MemberLease("f", leaserecord.MemberOf(incarnation))
	if h.Store.Get(name) == nil {
		l := lease(incarnation, 1)
		l.Name = name
		h.Store.Put(l)
	}
	h.Store.Tamper(name, func(l *coordinationv1.Lease) {
		l.Spec.HolderIdentity = ptr.To("")
		l.Annotations = map[string]string{leaserecord.EndedAnnotation: incarnation, leaserecord.ProtocolAnnotation: "2"}
	})
}

// fakeHeartbeat is confirmed every RetryPeriod until it is stopped.
type fakeHeartbeat struct {
	clock Clock
	begin time.Time

	mu       sync.Mutex
	stopped  time.Time // zero until stop
	finished bool      // it gives no rights
}

func (p *fakeHeartbeat) Confirmed() (start time.Time, right bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.clock.Now()
	if !p.stopped.IsZero() {
		now = p.stopped
	}
	return p.begin.Add(now.Sub(p.begin).Truncate(DefaultTiming().RetryPeriod)), !p.finished
}

// stop prevents further confirmations.
func (p *fakeHeartbeat) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopped = p.clock.Now()
}

// finish ends all rights.
func (p *fakeHeartbeat) finish() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.finished = true
}

// node is one process with one claimant and a fake heartbeat. Package membership tests claims with
// real ones.
type node struct {
	*harness
	*leasetest.Process
	name     string
	client   *leasetest.Client // of the claimant
	watch    *leasetest.Client // of the observer
	clock    *leasetest.JumpClock
	observer *Observer
	claimant *Claimant
	beats    *fakeHeartbeat
	revoked  chan struct{}
	desired  Desired       // from the start
	linger   time.Duration // how long the work takes to return
	quiet    bool          // log no events
}

// node starts a process that claims leaseName.
func (h *harness) node(name string, changes ...func(*node, *ClaimantConfig)) *node {
	h.T.Helper()
	n := &node{
		harness: h, name: name,
		client: h.Store.Client(name), watch: h.Store.Client(name),
		clock: &leasetest.JumpClock{}, revoked: make(chan struct{}), desired: Held,
	}
	// A millisecond each way gives the events of two nodes an order.
	n.client.Script(func(string) leasetest.Fault {
		return leasetest.Fault{Out: time.Millisecond, Back: time.Millisecond}
	})
	n.observer = h.observer(n.watch, n.clock)
	n.beats = &fakeHeartbeat{clock: n.clock, begin: n.clock.Now()}
	cfg := ClaimantConfig{
		Name: leaseName, Identity: name + "_1", Client: n.client, Observer: n.observer, Clock: n.clock,
		Timing: DefaultTiming(), Heartbeat: n.beats, Revoked: n.revoked, Work: n.work, OnEvent: n.event, OnStuck: n.stuck,
		Jitter: func(d time.Duration) time.Duration { return d },
	}
	for _, change := range changes {
		change(n, &cfg)
	}
	var err error
	if n.claimant, err = NewClaimant(cfg); err != nil {
		h.T.Fatal(err)
	}
	n.claimant.SetDesired(n.desired)
	n.Process = h.Run(n.claimant.Run, n.observer.Run)
	return n
}

func (h *harness) observer(client *leasetest.Client, clock Clock) *Observer {
	h.T.Helper()
	observer, err := NewObserver(ObserverConfig{Fleet: "f", Client: client, Clock: clock})
	if err != nil {
		h.T.Fatal(err)
	}
	return observer
}

func (n *node) work(ctx context.Context, claim *Claim) {
	<-ctx.Done()
	if n.linger > 0 {
		time.Sleep(n.linger) // virtual
	}
	n.Logf("%s work returns: %v, valid %t", n.name, context.Cause(ctx), claim.Valid(n.clock.Now()))
}

func (n *node) event(e Event) {
	if n.quiet || e.Type == EventRenewed || e.Reason == ReasonUnknown {
		return // Whether the first step knows anything is up to the scheduler.
	}
	line := fmt.Sprintf("%s %s", n.name, e.Type)
	if e.Term != 0 {
		line += fmt.Sprintf(" %d", e.Term)
	}
	if e.Reason != "" {
		line += fmt.Sprintf(" (%s)", e.Reason)
	}
	n.Logf("%s", line)
}

func (n *node) stuck(s StuckClaim) {
	n.Logf("%s stuck %d (%s) since %v", n.name, s.Term, s.Reason, s.Since)
}

func lingering(d time.Duration) func(*node, *ClaimantConfig) {
	return func(n *node, _ *ClaimantConfig) { n.linger = d }
}

// drainingWithin sets how long the work may take to return; zero leaves the default.
func drainingWithin(d time.Duration) func(*node, *ClaimantConfig) {
	return func(_ *node, cfg *ClaimantConfig) {
		if d > 0 {
			cfg.DrainTimeout = func() time.Duration { return d }
		}
	}
}

// drainingWithinNow sets the same in nanoseconds, to be changed meanwhile.
func drainingWithinNow(within *atomic.Int64) func(*node, *ClaimantConfig) {
	return func(_ *node, cfg *ClaimantConfig) {
		cfg.DrainTimeout = func() time.Duration { return time.Duration(within.Load()) }
	}
}
