package leaderlock

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/election/leasetest"
)

var (
	seeds     = flag.Uint64("seeds", 125, "how many random schedules to try")
	firstSeed = flag.Uint64("first-seed", 0, "the seed to begin with")
)

// TestLeaderLockAgainstStockElector runs three members with a leader lock and two stock candidates,
// which use client-go's elector, through random faults: stalls, partitions, lost and late answers,
// kills, planned ends with a release. It checks for each schedule:
//
//   - no leader lock is valid while a candidate believes that it leads;
//   - no leader lock is valid when a candidate's acquisition is written;
//   - once the faults are over, a candidate leads, or every member holds its leader lock.
//
// In half of the schedules some members have Leases that last four times as long, as in a rolling
// restart that changes the flags. Members' clocks differ in speed from the candidates' by up to a
// quarter, and in their readings by hours. The test leaves out faults that client-go's elector does not tolerate by itself:
// candidates are never stalled, and get their answers within half a second. A candidate believes
// that it leads for up to RetryPeriod + RenewDeadline from an answer, which leaves three of
// LeaseDuration's fifteen seconds.
func TestLeaderLockAgainstStockElector(t *testing.T) {
	n := *seeds
	if testing.Short() {
		n = min(n, 50)
	}
	var total lockTally
	for seed := *firstSeed; seed < *firstSeed+n && !t.Failed(); seed++ {
		synctest.Test(t, func(t *testing.T) {
			sc := newLeaderLockSchedule(t, seed)
			sc.run()
			total.add(sc.tally)
		})
	}
	t.Logf("%d schedules: %+v", n, total)
	if n >= 50 && (total.Leaders == 0 || total.Held == 0 || total.Lost == 0 || total.Released == 0) {
		t.Errorf("The schedules do not cover everything: %+v", total)
	}
}

// lockTally counts events.
type lockTally struct {
	Leaders, Held, Lost, Suspended, Released int
}

func (c *lockTally) add(other lockTally) {
	c.Leaders += other.Leaders
	c.Held += other.Held
	c.Lost += other.Lost
	c.Suspended += other.Suspended
	c.Released += other.Released
}

// lockSchedule is one random history.
type lockSchedule struct {
	t       *testing.T
	seed    uint64
	begin   time.Time
	store   *leasetest.Store
	rng     *rand.Rand // of the main goroutine
	members []*lockMember
	stocks  []*stock

	mu    sync.Mutex
	tally lockTally
}

// lockMember is one machine with a member; its process may be restarted.
type lockMember struct {
	*lockSchedule
	name          string
	client, watch *leasetest.Client
	timing        election.Timing
	observed      *leasetest.SkewedClock // of the observer
	clock         *stallClock
	cancel        context.CancelFunc
	stopped       chan struct{}

	lock *Lock // of the current process; nil if there is none. Guarded by mu.
}

// stallClock can block its readers, to simulate a stalled process.
type stallClock struct {
	*leasetest.SkewedClock
	mu    sync.Mutex
	until chan struct{}
}

func (c *stallClock) Now() time.Time {
	for {
		c.mu.Lock()
		until := c.until
		c.mu.Unlock()
		if until == nil {
			return c.SkewedClock.Now()
		}
		<-until
	}
}

// stall blocks readers of the clock for d.
func (c *stallClock) stall(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.until == nil {
		c.until = make(chan struct{})
		time.AfterFunc(d, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			close(c.until)
			c.until = nil
		})
	}
}

// stock is one stock replica.
type stock struct {
	*lockSchedule
	name    string
	client  *leasetest.Client
	leading bool // Guarded by mu.
	cancel  context.CancelFunc
	stopped chan struct{}
}

// slowTiming is for an API server that restarts slowly.
var slowTiming = election.Timing{LeaseDuration: 60 * time.Second, RenewDeadline: 40 * time.Second, RetryPeriod: 5 * time.Second}

func newLeaderLockSchedule(t *testing.T, seed uint64) *lockSchedule {
	sc := &lockSchedule{t: t, seed: seed, begin: time.Now(), store: leasetest.NewStore(), rng: rand.New(rand.NewPCG(seed, 1))}
	first := lease([]string{"", "stock-0", lockSelf}[seed%3], 1)
	sc.store.Put(first)
	for i := range 3 {
		m := &lockMember{
			lockSchedule: sc, name: string(rune('a' + i)),
			observed: &leasetest.SkewedClock{Begin: sc.begin, Shift: time.Duration(sc.rng.Int64N(int64(100*time.Hour))) - 50*time.Hour, Rate: 0.8 + 0.25*sc.rng.Float64()},
		}
		m.clock, m.timing = &stallClock{SkewedClock: m.observed}, election.DefaultTiming()
		if slow := int(seed / 3 % 6); i < slow && slow < len(sc.members) {
			m.timing = slowTiming
		}
		m.client, m.watch = sc.client(m.name, uint64(2+i)), sc.client(m.name, uint64(5+i))
		sc.members = append(sc.members, m)
	}
	for i := range 2 {
		name := fmt.Sprintf("stock-%d", i)
		sc.stocks = append(sc.stocks, &stock{lockSchedule: sc, name: name, client: sc.client(name, uint64(8+i))})
	}
	return sc
}

// client returns a client with random latency.
func (sc *lockSchedule) client(name string, seed uint64) *leasetest.Client {
	c := sc.store.Client(name)
	latency := rand.New(rand.NewPCG(sc.seed, seed))
	var mu sync.Mutex
	c.Script(func(string) leasetest.Fault {
		mu.Lock()
		defer mu.Unlock()
		return leasetest.Fault{Out: upTo(latency, 20*time.Millisecond), Back: upTo(latency, 20*time.Millisecond)}
	})
	return c
}

func (sc *lockSchedule) failf(format string, args ...any) {
	sc.t.Errorf("seed %d, second %.3f: %s", sc.seed, time.Since(sc.begin).Seconds(), fmt.Sprintf(format, args...))
}

func (sc *lockSchedule) run() {
	ctx, cancel := context.WithCancel(klog.NewContext(sc.t.Context(), klog.Logger{}))
	var judges sync.WaitGroup
	judges.Go(func() { sc.judgePeriodically(ctx) })
	judges.Go(func() { sc.judgeWrites(ctx) })
	for _, m := range sc.members {
		m.start()
	}
	for _, c := range sc.stocks {
		c.start()
	}
	for time.Since(sc.begin) < 200*time.Second {
		time.Sleep(upTo(sc.rng, 4*time.Second)) // virtual
		if i := sc.rng.IntN(len(sc.members) + len(sc.stocks)); i < len(sc.members) {
			sc.members[i].fault()
		} else {
			sc.stocks[i-len(sc.members)].fault()
		}
	}
	for _, m := range sc.members {
		m.client.Heal()
		m.watch.Heal()
		m.start()
	}
	for _, c := range sc.stocks {
		c.client.Heal()
		c.start()
	}
	time.Sleep(slowTiming.LeaseDuration * 3 / 2) // virtual
	synctest.Wait()
	sc.judgeFinalState()
	for _, m := range sc.members {
		m.stop()
	}
	for _, c := range sc.stocks {
		c.stop(false)
	}
	cancel()
	judges.Wait()
	sc.store.Wait()
}

func (m *lockMember) fault() {
	d := upTo(m.rng, 20*time.Second)
	verbs := [][]string{nil, {"create", "update"}, {"get"}, {"get", "update"}}[m.rng.IntN(4)]
	n := 1 + m.rng.IntN(4)
	switch m.rng.IntN(15) {
	case 0, 1:
		m.client.Block(verbs...)
		time.AfterFunc(d, func() { m.client.Unblock() })
	case 2:
		m.client.Block()
		m.watch.Block()
		time.AfterFunc(d, func() { m.client.Unblock(); m.watch.Unblock() })
	case 3:
		m.watch.Block()
		time.AfterFunc(d, func() { m.watch.Unblock() })
	case 4, 5:
		m.client.Delay(n, upTo(m.rng, 8*time.Second), upTo(m.rng, 8*time.Second), verbs...)
	case 6:
		m.client.Drop(n, verbs...)
	case 7:
		m.client.DropReply(n, verbs...)
	case 8:
		m.client.Conflict(n)
	case 9:
		m.watch.LagWatch(d / 2)
	case 10:
		m.clock.stall(d)
	case 11:
		m.stop()
		time.AfterFunc(d, m.start)
	case 12: // The fleet is scaled to zero, and up again later.
		for _, other := range m.members {
			other.stop()
		}
		m.release()
		for _, other := range m.members {
			time.AfterFunc(d+upTo(m.rng, 20*time.Second), other.start)
		}
	case 13, 14:
		m.commonFault()
	}
}

// commonFault hits all members at about the same time for about as long as a Lease lasts.
func (m *lockMember) commonFault() {
	for _, other := range m.members {
		d := 12*time.Second + upTo(m.rng, 12*time.Second)
		time.Sleep(upTo(m.rng, 2*time.Second)) // virtual
		switch m.rng.IntN(6) {
		case 0, 1:
			other.client.Block()
			time.AfterFunc(d, func() { other.client.Unblock() })
		case 2:
			other.client.Block("update")
			time.AfterFunc(d, func() { other.client.Unblock() })
		case 3:
			other.clock.stall(d)
		case 4:
			other.client.Delay(4, upTo(m.rng, 2*time.Second), 2*time.Second+upTo(m.rng, 3*time.Second))
			time.AfterFunc(4*time.Second, func() { other.client.Block() })
			time.AfterFunc(d, func() { other.client.Unblock() })
		case 5:
			other.client.Block()
			other.watch.LagWatch(d / 2)
			time.AfterFunc(d, func() { other.client.Unblock(); other.watch.LagWatch(0) })
		}
	}
}

// start starts a process unless one runs. A process that has lost its leader lock is restarted, as
// a pod is.
func (m *lockMember) start() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.cancel != nil {
		return
	}
	ctx, cancel := context.WithCancel(klog.NewContext(m.t.Context(), klog.Logger{}))
	m.cancel, m.stopped = cancel, make(chan struct{})
	go func(stopped chan struct{}) {
		defer close(stopped)
		for ctx.Err() == nil {
			if err := m.live(ctx); err != nil {
				if !errors.Is(err, ErrLost) {
					m.failf("Run() of %s = %v", m.name, err)
				}
				m.clock.Now()
				time.Sleep(time.Second) // virtual
			}
		}
	}(m.stopped)
}

// live runs one process.
func (m *lockMember) live(ctx context.Context) error {
	observer, err := election.NewObserver(election.ObserverConfig{Fleet: "f", Extra: []string{lockName}, Client: m.watch, Clock: m.observed})
	if err != nil {
		return err
	}
	lock, err := New(Config{
		Name: lockName, Identity: lockSelf, Client: m.client, Observer: observer, Clock: m.clock, Timing: m.timing, OnEvent: m.event,
	})
	if err != nil {
		return err
	}
	m.mu.Lock()
	m.lock = lock
	m.mu.Unlock()
	observing, stop := context.WithCancel(klog.NewContext(m.t.Context(), klog.Logger{}))
	var all sync.WaitGroup
	all.Go(func() { observer.Run(observing) })
	err = lock.Run(ctx)
	stop()
	all.Wait()
	return err
}

// stop ends the process, if one runs.
func (m *lockMember) stop() {
	m.mu.Lock()
	cancel, stopped := m.cancel, m.stopped
	m.mu.Unlock()
	if cancel == nil {
		return
	}
	cancel()
	<-stopped
	m.mu.Lock()
	m.cancel = nil
	m.mu.Unlock()
}

// release clears the leader lock after the last member has stopped.
func (m *lockMember) release() {
	m.mu.Lock()
	lock := m.lock
	for _, other := range m.members {
		if other.cancel != nil {
			m.mu.Unlock()
			return // An earlier fault has restarted it, so this is not the last.
		}
	}
	m.mu.Unlock()
	ctx, cancel := context.WithTimeout(m.t.Context(), 100*time.Millisecond)
	defer cancel()
	if lock == nil {
		return
	}
	lease, err := m.client.Get(ctx, lockName, metav1.GetOptions{})
	if err == nil && lock.Release(ctx, lease) == nil {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.tally.Released++
	}
}

func (m *lockMember) event(e election.Event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch e.Type {
	case election.EventAcquired:
		m.tally.Held++
		m.judge("a leader lock was acquired")
	case election.EventEnded:
		m.tally.Lost++
	case EventSuspended:
		m.tally.Suspended++
	}
}

func (c *stock) fault() {
	d := upTo(c.rng, 20*time.Second)
	n := 1 + c.rng.IntN(4)
	switch c.rng.IntN(8) {
	case 0, 1:
		c.client.Block()
		time.AfterFunc(d, func() { c.client.Unblock() })
	case 2:
		c.client.Drop(n)
	case 3:
		c.client.DropReply(n)
	case 4:
		c.client.Delay(n, upTo(c.rng, 8*time.Second), upTo(c.rng, 500*time.Millisecond))
	case 5, 6:
		c.stop(false)
		time.AfterFunc(2*d, c.start)
	case 7:
		c.stop(true)
		time.AfterFunc(2*d, c.start)
	}
}

// start starts a process unless one runs. A process that has lost its leadership is restarted.
func (c *stock) start() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cancel != nil {
		return
	}
	ctx, cancel := context.WithCancel(klog.NewContext(c.t.Context(), klog.Logger{}))
	c.cancel, c.stopped = cancel, make(chan struct{})
	go func(stopped chan struct{}) {
		defer close(stopped)
		for ctx.Err() == nil {
			c.live(ctx)
		}
	}(c.stopped)
}

func (c *stock) live(ctx context.Context) {
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: leasetest.Namespace, Name: lockName},
			Client:     leasetest.ElectorLeases{Client: c.client},
			LockConfig: resourcelock.ResourceLockConfig{Identity: c.name},
		},
		LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(leading context.Context) {
				c.mu.Lock()
				defer c.mu.Unlock()
				if leading.Err() == nil {
					c.leading = true
					c.tally.Leaders++
					c.judge("a stock candidate became leader")
				}
			},
			OnStoppedLeading: func() {
				c.mu.Lock()
				defer c.mu.Unlock()
				c.leading = false
			},
		},
	})
	if err != nil {
		c.failf("%v", err)
		return
	}
	elector.Run(ctx)
}

// stop ends the process, if one runs. If planned is set, it then releases the Lease, as a replica
// does that stops its controllers first.
func (c *stock) stop(planned bool) {
	c.mu.Lock()
	cancel, stopped := c.cancel, c.stopped
	c.mu.Unlock()
	if cancel == nil {
		return
	}
	cancel()
	<-stopped
	c.mu.Lock()
	c.cancel = nil
	c.mu.Unlock()
	if planned {
		c.store.Tamper(lockName, func(l *coordinationv1.Lease) {
			if *l.Spec.HolderIdentity == c.name {
				*l.Spec.HolderIdentity, *l.Spec.LeaseDurationSeconds = "", 1
			}
		})
	}
}

// valid returns the members whose leader lock is valid. mu must be held.
func (sc *lockSchedule) valid() []string {
	var names []string
	for _, m := range sc.members {
		if m.lock != nil && m.lock.Valid(m.observed.Now()) {
			names = append(names, m.name)
		}
	}
	return names
}

// judge checks that no leader lock is valid while a candidate leads. mu must be held.
func (sc *lockSchedule) judge(when string) {
	for _, c := range sc.stocks {
		if valid := sc.valid(); c.leading && len(valid) > 0 {
			sc.failf("when %s: %s leads while the leader locks of %v are valid", when, c.name, valid)
		}
	}
}

func (sc *lockSchedule) judgePeriodically(ctx context.Context) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for ctx.Err() == nil && !sc.t.Failed() {
		select {
		case <-ctx.Done():
		case <-tick.C:
			sc.mu.Lock()
			sc.judge("checked periodically")
			sc.mu.Unlock()
		}
	}
}

// judgeWrites checks the leader locks whenever a candidate's acquisition is written: no virtual
// time passes before its event arrives.
func (sc *lockSchedule) judgeWrites(ctx context.Context) {
	events, err := sc.store.Client("judge").Watch(ctx, metav1.ListOptions{})
	if err != nil {
		sc.failf("%v", err)
		return
	}
	defer events.Stop()
	for event := range events.ResultChan() {
		l, ok := event.Object.(*coordinationv1.Lease)
		if !ok || leaserecord.From(l).Holder == lockSelf || leaserecord.From(l).Holder == "" {
			continue
		}
		sc.mu.Lock()
		if valid := sc.valid(); len(valid) > 0 {
			sc.failf("%s wrote its name while the leader locks of %v are valid", leaserecord.From(l).Holder, valid)
		}
		sc.mu.Unlock()
	}
}

func (sc *lockSchedule) judgeFinalState() {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	leaders := 0
	for _, c := range sc.stocks {
		if c.leading {
			leaders++
		}
	}
	valid := sc.valid()
	if leaders == 0 && len(valid) != len(sc.members) || leaders > 1 || leaders == 1 && len(valid) > 0 {
		sc.failf("%d leaders and valid leader locks of %v after the last fault, Lease of %q", leaders, valid, leaserecord.From(sc.store.Get(lockName)).Holder)
	}
}

func upTo(rng *rand.Rand, d time.Duration) time.Duration {
	return time.Duration(rng.Int64N(int64(d)))
}
