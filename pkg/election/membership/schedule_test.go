package membership

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/klog/v2"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/election/leasetest"
)

var (
	seeds     = flag.Uint64("seeds", 500, "how many random schedules to try")
	firstSeed = flag.Uint64("first-seed", 0, "the seed to begin with")
)

// TestOneHolderUnderRandomFaults runs three members that want the same Lease through random faults,
// and checks for each schedule:
//
//   - the periods in which their claims were valid do not overlap;
//   - writes that were checked against the claim occur in the order of their terms;
//   - terms never repeat, unless the Lease was deleted, and no process releases while its work
//     runs;
//   - work that does not return ends its process, and no other;
//   - once the faults are over, somebody holds the Lease.
//
// Clocks differ in speed by up to a third and in their readings by hours.
func TestOneHolderUnderRandomFaults(t *testing.T) {
	n := *seeds
	if testing.Short() {
		n = min(n, 50)
	}
	for seed := *firstSeed; seed < *firstSeed+n && !t.Failed(); seed++ {
		synctest.Test(t, func(t *testing.T) {
			newSchedule(t, seed).run()
		})
	}
}

// schedule is one random history.
type schedule struct {
	t     *testing.T
	seed  uint64
	store *leasetest.Store
	rng   *rand.Rand // of the main goroutine
	peers []*peer

	mu      sync.Mutex
	claims  []span // when claims were valid
	works   []span // when work ran
	highest int32  // term of the writes so far
	removed bool   // the Lease has been deleted
}

// workTick is the interval at which work tries to write.
const workTick = 100 * time.Millisecond

// span is a period in the life of one process.
type span struct {
	who        string
	term       int32
	begin, end time.Time
}

// peer is one machine; its process may be restarted.
type peer struct {
	*schedule
	name          string
	client, watch *leasetest.Client
	clock         *leasetest.SkewedClock
	incarnation   int
	claimant      *election.Claimant
	membership    *Membership
	killed        chan struct{} // closed when the process must end
	acquired      time.Time     // of the current claim; belongs to the claimant's goroutine
	valid         time.Time     // when its work was last seen to have a right; guarded by schedule.mu
	claim         *election.Claim
	cancel        context.CancelFunc
	stopped       chan struct{}
}

func newSchedule(t *testing.T, seed uint64) *schedule {
	sc := &schedule{t: t, seed: seed, store: leasetest.NewStore(), rng: rand.New(rand.NewPCG(seed, 1))}
	sc.store.Put(leasetest.Lease(leaseName, "", 1))
	for i := range 3 {
		p := &peer{
			schedule: sc, name: string(rune('a' + i)),
			clock: &leasetest.SkewedClock{Begin: time.Now(), Shift: time.Duration(sc.rng.Int64N(int64(100*time.Hour))) - 50*time.Hour, Rate: 0.86 + 0.28*sc.rng.Float64()},
		}
		p.client, p.watch = sc.store.Client(p.name), sc.store.Client(p.name)
		latency := rand.New(rand.NewPCG(seed, uint64(2+i)))
		var mu sync.Mutex
		script := func(string) leasetest.Fault {
			mu.Lock()
			defer mu.Unlock()
			return leasetest.Fault{Out: upTo(latency, 20*time.Millisecond), Back: upTo(latency, 20*time.Millisecond)}
		}
		p.client.Script(script)
		p.watch.Script(script)
		sc.peers = append(sc.peers, p)
	}
	return sc
}

func upTo(rng *rand.Rand, d time.Duration) time.Duration {
	return time.Duration(rng.Int64N(int64(d)))
}

func (sc *schedule) failf(format string, args ...any) {
	sc.t.Errorf("seed %d, second %.3f: %s", sc.seed, time.Since(sc.peers[0].clock.Begin).Seconds(), fmt.Sprintf(format, args...))
}

func (sc *schedule) run() {
	for _, p := range sc.peers {
		p.start()
	}
	for begin := time.Now(); time.Since(begin) < 150*time.Second; {
		time.Sleep(upTo(sc.rng, 4*time.Second)) // virtual
		sc.restart()
		p := sc.peers[sc.rng.IntN(len(sc.peers))]
		p.fault()
	}
	sc.restart()
	for _, p := range sc.peers {
		p.client.Heal()
		p.watch.Heal()
		p.claimant.SetDesired(election.Held)
	}
	for range 60 {
		time.Sleep(time.Second) // virtual
		sc.restart()
	}
	synctest.Wait()
	valid := 0
	for _, p := range sc.peers {
		if claim := p.claimant.Claim(); claim != nil && claim.Valid(p.clock.Now()) {
			valid++
		}
	}
	if valid != 1 {
		sc.failf("%d valid claims a minute after the last fault, want 1", valid)
	}
	for _, p := range sc.peers {
		p.stop()
	}
	sc.store.Wait()
	sc.judge()
}

// restart restarts the processes that must end or have lost their membership.
func (sc *schedule) restart() {
	for _, p := range sc.peers {
		if isClosed(p.killed) || isClosed(p.membership.Lost()) {
			p.stop()
			p.start()
		}
	}
}

// fault injects one fault. It deletes the Lease at most once: a member that misses a second
// deletion because it still waits for the event of the first is not protected.
func (p *peer) fault() {
	d := upTo(p.rng, 20*time.Second)
	verbs := [][]string{nil, {"create", "update"}, {"get"}, {"watch"}}[p.rng.IntN(4)]
	n := 1 + p.rng.IntN(3)
	switch p.rng.IntN(15) {
	case 0, 1:
		p.client.Block(verbs...)
		time.AfterFunc(d, func() { p.client.Unblock() })
	case 2:
		p.watch.Block()
		time.AfterFunc(d, func() { p.watch.Unblock() })
	case 3:
		p.client.Delay(n, upTo(p.rng, 8*time.Second), upTo(p.rng, 8*time.Second), verbs...)
	case 4:
		p.client.Drop(n, verbs...)
	case 5:
		p.client.DropReply(n, verbs...)
	case 6:
		p.client.Conflict(n)
	case 7:
		p.watch.LagWatch(d / 2)
	case 8:
		p.store.BreakWatches()
	case 9:
		claimant := p.claimant
		claimant.SetDesired(election.Released)
		time.AfterFunc(d/4, func() { claimant.SetDesired(election.Held) })
	case 10:
		p.stop()
		p.start()
	case 11:
		p.store.Tamper(leaseName, func(l *coordinationv1.Lease) {
			l.Annotations = map[string]string{"next": p.name}
			*l.Spec.LeaseDurationSeconds = int32(1 + p.rng.IntN(20))
		})
	case 12:
		p.mu.Lock()
		defer p.mu.Unlock()
		p.removed = p.removed || p.store.Remove(leaseName)
	case 13:
		p.store.Tamper(leaseName, func(l *coordinationv1.Lease) { *l.Spec.HolderIdentity = "" })
	case 14:
		p.store.Remove(leaserecord.MemberLease("f", p.name))
	}
}

// start starts a new incarnation.
func (p *peer) start() {
	p.incarnation++
	observer, err := election.NewObserver(election.ObserverConfig{Fleet: "f", Client: p.watch, Clock: p.clock})
	if err != nil {
		p.t.Fatal(err)
	}
	linger := upTo(p.rng, 3*time.Second)
	killed := make(chan struct{})
	p.killed = killed
	// Work that hangs never returns by itself.
	hangs := p.rng.IntN(10) == 0
	identity := fmt.Sprintf("%s_%d", p.name, p.incarnation)
	p.membership, err = New(Config{
		Fleet: "f", Incarnation: identity, Client: p.client, Observer: observer, Clock: p.clock, Timing: election.DefaultTiming(),
	})
	if err != nil {
		p.t.Fatal(err)
	}
	p.claimant, err = election.NewClaimant(election.ClaimantConfig{
		Name: leaseName, Identity: identity, Client: p.client, Observer: observer, Clock: p.clock,
		Timing: election.DefaultTiming(), Heartbeat: p.membership, Revoked: p.membership.Lost(), OnEvent: p.event,
		Work: func(ctx context.Context, claim *election.Claim) {
			if hangs {
				linger = time.Hour
			}
			p.work(ctx, claim, linger, killed)
		},
		OnStuck: func(s election.StuckClaim) {
			if !hangs {
				p.failf("%s is stuck: %+v", p.name, s)
				return
			}
			// The process is gone with its work, and nothing that it sends arrives.
			p.client.Block()
			close(killed)
		},
	})
	if err != nil {
		p.t.Fatal(err)
	}
	p.claimant.SetDesired(election.Held)
	base := klog.NewContext(p.t.Context(), klog.Logger{})
	ctx, cancel := context.WithCancel(base)
	joined, leave := context.WithCancel(base)
	observing, stopObserving := context.WithCancel(base)
	p.cancel, p.stopped = cancel, make(chan struct{})
	go func(claimant *election.Claimant, membership *Membership, stopped chan struct{}) {
		defer close(stopped)
		var member, watch sync.WaitGroup
		watch.Go(func() { observer.Run(observing) })
		member.Go(func() { _ = membership.Run(joined) })
		claimant.Run(ctx)
		leave()
		member.Wait()
		stopObserving()
		watch.Wait()
	}(p.claimant, p.membership, p.stopped)
}

func (p *peer) stop() {
	p.cancel()
	told := time.Now()
	<-p.stopped
	if took := time.Since(told); took > time.Minute {
		p.failf("%s took %v to stop", p.name, took)
	}
	if isClosed(p.killed) {
		p.client.Heal() // for the next incarnation
		return
	}
	// Work that is left behind ends here, so that it is judged too.
	close(p.killed)
	synctest.Wait()
}

func (p *peer) event(e election.Event) {
	switch e.Type {
	case election.EventAcquired:
		p.acquired, p.claim = time.Now(), p.claimant.Claim()
	case election.EventEnded:
		end := time.Now()
		if deadline := p.clock.Real(p.claim.Deadline()); deadline.Before(end) {
			end = deadline
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		// While its Lease is absent a claim continues, but is not valid.
		if lapsed := p.valid.Add(workTick); p.valid.After(p.acquired) && lapsed.Before(end) {
			end = lapsed
		}
		p.claims = append(p.claims, span{p.name, e.Term, p.acquired, end})
	}
}

// work writes every workTick while its claim is valid, and keeps trying for linger after it was
// asked to stop.
func (p *peer) work(ctx context.Context, claim *election.Claim, linger time.Duration, killed <-chan struct{}) {
	ran := span{who: p.name, term: claim.Term(), begin: time.Now()}
	tick := time.NewTicker(workTick)
	defer tick.Stop()
	var done <-chan time.Time
	stop := ctx.Done()
	for {
		p.mu.Lock()
		if claim.Valid(p.clock.Now()) {
			if claim.Term() < p.highest && !p.removed {
				p.failf("%s wrote in term %d after a write in term %d", p.name, claim.Term(), p.highest)
			}
			p.highest, p.valid = claim.Term(), time.Now()
		}
		p.mu.Unlock()
		select {
		case <-tick.C:
		case <-stop:
			stop, done = nil, time.After(linger)
		case <-killed:
			p.ran(ran)
			return
		case <-done:
			p.ran(ran)
			return
		}
	}
}

// ran records that work has ended.
func (p *peer) ran(work span) {
	work.end = time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.works = append(p.works, work)
}

// judge checks the history as a whole.
func (sc *schedule) judge() {
	slices.SortFunc(sc.claims, func(a, b span) int { return cmp.Or(a.begin.Compare(b.begin), a.end.Compare(b.end)) })
	begin := sc.peers[0].clock.Begin
	for i := 1; i < len(sc.claims); i++ {
		a, b := sc.claims[i-1], sc.claims[i]
		if b.begin.Before(a.end) {
			sc.failf("claims overlap: %s, term %d, to %v; %s, term %d, from %v", a.who, a.term, a.end.Sub(begin), b.who, b.term, b.begin.Sub(begin))
		}
		if b.term <= a.term && !sc.removed {
			sc.failf("term %d of %s comes after term %d of %s", b.term, b.who, a.term, a.who)
		}
	}
	for _, write := range sc.store.History() {
		if write.Verb != "update" || write.Client == "" || write.After.Name != leaseName || *write.After.Spec.HolderIdentity != "" {
			continue
		}
		for _, ran := range sc.works {
			if ran.who == write.Client && ran.begin.Before(write.Time) && write.Time.Before(ran.end) {
				sc.failf("%s released at %v while its work ran from %v to %v", write.Client, write.Time.Sub(begin), ran.begin.Sub(begin), ran.end.Sub(begin))
			}
		}
	}
}
