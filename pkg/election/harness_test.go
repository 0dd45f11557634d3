package election

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/flotilla-kube/flotilla/pkg/election/leasetest"
)

const leaseName = "f-ns-01"

// harness is one synctest bubble with a Lease store and a transcript.
type harness struct {
	t     *testing.T
	store *leasetest.Store
	begin time.Time
	leasetest.Transcript
}

// inBubble runs test in a bubble. The bubble fails the test if a goroutine is left behind.
func inBubble(t *testing.T, test func(t *testing.T, h *harness)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		h := &harness{t: t, store: leasetest.NewStore(), begin: time.Now(), Transcript: leasetest.Transcript{Begin: time.Now()}}
		t.Cleanup(h.store.Wait)
		test(t, h)
	})
}

// sleep lets d of virtual time pass, and waits until everything due by then has happened.
func (h *harness) sleep(d time.Duration) {
	time.Sleep(d) // virtual
	synctest.Wait()
}

// expect compares the transcript since the last call with want.
func (h *harness) expect(want string) {
	h.t.Helper()
	if problem := h.Compare(want); problem != "" {
		h.t.Error(problem)
	}
}

func (h *harness) holder(name string) string {
	return RecordFrom(h.store.Get(name)).Holder
}

// lease returns a Lease as another process may have left it, with timestamps that do not fit this
// process's clock. Without a holder it is released.
func lease(holder string, term int32) *coordinationv1.Lease {
	annotations := map[string]string{}
	if holder == "" {
		annotations[ReleasedAnnotation] = strconv.Itoa(int(term))
	}
	stamp := metav1.NewMicroTime(time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC))
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: leaseName, Annotations: annotations},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity:       &holder,
			LeaseTransitions:     &term,
			LeaseDurationSeconds: ptr.To[int32](15),
			AcquireTime:          &stamp,
			RenewTime:            &stamp,
		},
	}
}

// strike lists an incarnation as ended, as a judge would.
func (h *harness) strike(incarnation string) {
	name := MemberLease("f", MemberOf(incarnation))
	if h.store.Get(name) == nil {
		l := lease(incarnation, 1)
		l.Name = name
		h.store.Put(l)
	}
	h.store.Tamper(name, func(l *coordinationv1.Lease) {
		l.Spec.HolderIdentity = ptr.To("")
		l.Annotations = map[string]string{EndedAnnotation: incarnation, ProtocolAnnotation: "2"}
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

// node is one process with one claimant and a fake heartbeat. See process for real heartbeats.
type node struct {
	*harness
	name     string
	client   *leasetest.Client // of the claimant
	watch    *leasetest.Client // of the observer
	clock    *leasetest.JumpClock
	observer *Observer
	claimant *Claimant
	beats    *fakeHeartbeat
	revoked  chan struct{}
	linger   time.Duration // how long the work takes to return
	quiet    bool          // log no events
	stopped  chan struct{}
	cancel   context.CancelFunc
}

// node starts a process that claims leaseName.
func (h *harness) node(name string, changes ...func(*node, *ClaimantConfig)) *node {
	h.t.Helper()
	n := &node{
		harness: h, name: name,
		client: h.store.Client(name), watch: h.store.Client(name),
		clock: &leasetest.JumpClock{}, revoked: make(chan struct{}), stopped: make(chan struct{}),
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
		h.t.Fatal(err)
	}
	n.claimant.SetDesired(Held)
	n.start(n.claimant.Run)
	return n
}

// start runs run, and an observer that outlives it, until stop.
func (n *node) start(run func(context.Context)) {
	base := klog.NewContext(n.t.Context(), klog.Logger{})
	ctx, cancel := context.WithCancel(base)
	n.cancel = cancel
	observing, stopObserving := context.WithCancel(base)
	var observer sync.WaitGroup
	observer.Go(func() { n.observer.Run(observing) })
	go func() {
		defer close(n.stopped)
		run(ctx)
		stopObserving()
		observer.Wait()
	}()
	n.t.Cleanup(func() { n.cancel(); <-n.stopped })
}

func (h *harness) observer(client *leasetest.Client, clock Clock) *Observer {
	h.t.Helper()
	observer, err := NewObserver(ObserverConfig{Fleet: "f", Client: client, Clock: clock})
	if err != nil {
		h.t.Fatal(err)
	}
	return observer
}

// stop ends the process as planned and waits for it.
func (n *node) stop() {
	n.cancel()
	<-n.stopped
	synctest.Wait()
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
