package sim

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/election/leasetest"
	"github.com/flotilla-kube/flotilla/pkg/fleet"
)

// unwell is how long a process is excused after it was suspended or resumed. It notices within a
// renew deadline what it has lost; its timers, and its next steps, may be late by as much.
const unwell = 20 * time.Second

// process is one start of a member: an incarnation.
type process struct {
	*fleet.Member
	sim     *simulation
	seat    *seat
	rings   []string
	started time.Time
	client  *leasetest.Client
	clock   *skewedClock
	barrier *barrier
	cancel  context.CancelFunc
	ended   chan struct{}
	// unwanted tells the supervisor that the process was ended on purpose.
	unwanted atomic.Bool
	// beat is when the last heartbeat started, by the process's clock. Guarded by sim.mu.
	beat   time.Time
	buried sync.Once
	// credential is what its work writes with, once published.
	credential credential

	mu     sync.Mutex
	random *rand.Rand
	// resumed is when the process was last suspended or resumed, thawed when it last resumed with a
	// frozen clock.
	resumed, thawed time.Time
	dead            bool
	// outage is the share of its writes to the API server that are lost or refused.
	outage float64
}

// launch starts a process for a seat.
func (sim *simulation) launch(s *seat) {
	s.start = time.Time{}
	b := &barrier{}
	p := &process{
		sim: sim, seat: s, barrier: b, ended: make(chan struct{}), client: sim.store.Client(s.name), rings: s.rings, started: time.Now(),
		clock:  &skewedClock{barrier: b, begin: sim.begin, rate: s.rate},
		random: rand.New(rand.NewPCG(sim.seed, uint64(1+len(sim.all)))), credential: credential{turn: make(chan struct{}, 1)},
	}
	p.clock.jump(time.Duration(sim.random.Int64N(int64(100 * time.Hour))))
	p.client.Script(func(string) leasetest.Fault {
		return leasetest.Fault{Out: p.upTo(20 * time.Millisecond), Back: p.upTo(20 * time.Millisecond)}
	})
	config := fleet.Config{
		Fleet: fleetName, Member: s.name, Plan: sim.plan, Leases: barrierClient{p, p.client}, Clock: p.clock,
		Timing: election.DefaultTiming(), RebalanceDelay: rebalanceDelay, HandoffTimeout: handoffTimeout,
		Build: p.build, Observe: func(e fleet.Event) { sim.observe(p, e) }, Exit: func(reason string) { sim.exit(p, reason) },
	}
	sim.configure(&config, s)
	sim.equip(&config, s)
	var err error
	if p.Member, err = fleet.New(config); err != nil {
		sim.t.Fatal(err)
	}
	s.process = p
	sim.all = append(sim.all, p)
	sim.notef("%s starts, rate %.2f, rings %v", p.name(), s.rate, s.rings)
	var ctx context.Context
	ctx, p.cancel = context.WithCancel(sim.t.Context())
	go func() {
		defer close(p.ended)
		err := p.Run(ctx)
		sim.notef("%s has ended: %v", p.name(), err)
	}()
}

// name returns a short form of the incarnation.
func (p *process) name() string {
	suffix := p.Incarnation()[strings.LastIndexByte(p.Incarnation(), '_')+1:]
	return p.seat.name + "_" + suffix[:min(4, len(suffix))]
}

func (p *process) upTo(d time.Duration) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return upTo(p.random, d)
}

// chance returns true with the probability.
func (p *process) chance(probability float64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.random.Float64() < probability
}

// over reports whether the process has ended or is dead.
func (p *process) over() bool { return p.hasEnded() || p.isDead() }

func (p *process) hasEnded() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

func (p *process) isDead() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dead
}

// stop sends SIGTERM. A suspended process notices it when resumed.
func (p *process) stop() {
	p.unwanted.Store(true)
	p.barrier.whenOpen(p.cancel)
}

// kill is SIGKILL: the work is gone at once. Requests already sent arrive.
func (p *process) kill() {
	p.barrier.kill()
	p.mu.Lock()
	p.dead = true
	p.mu.Unlock()
	p.sim.forget(p)
}

// bury ends the goroutines of a dead process, long after its death.
func (p *process) bury() {
	if !p.isDead() {
		return
	}
	p.cancel()
	p.clock.thaw()
	p.buried.Do(func() { p.clock.jump(24 * time.Hour) })
	p.barrier.bury()
}

// suspend models SIGSTOP, or a sleeping machine whose timers fire late afterwards, or, if frozen, a
// virtual machine that is paused with its clock.
func (p *process) suspend(d, late time.Duration, frozen bool) {
	if frozen {
		p.clock.freeze()
	}
	p.clock.held.Store(int64(late))
	p.touch(false)
	p.barrier.close()
	time.AfterFunc(d, p.resume)
}

func (p *process) resume() {
	thawed := p.clock.thaw()
	if thawed {
		p.sim.tally(thaws)
	}
	if thawed || p.barrier.isClosed() { // at the end of all faults, those that run are resumed too
		p.touch(thawed)
	}
	p.barrier.open()
}

func (p *process) touch(thawed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.resumed = time.Now()
	if thawed {
		p.thawed = p.resumed
	}
}

// wasSuspended reports whether the process is suspended, or was recently.
func (p *process) wasSuspended() bool {
	closed := p.barrier.isClosed()
	p.mu.Lock()
	defer p.mu.Unlock()
	return closed || !p.resumed.IsZero() && time.Since(p.resumed) < unwell
}

// isWaking reports whether answers to requests from before a pause may still arrive.
func (p *process) isWaking() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.resumed.IsZero() && time.Since(p.resumed) <= longestWire
}

// wasFrozen reports whether the process's clock stands still, or did recently.
func (p *process) wasFrozen() bool {
	if p.clock.isFrozen() {
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.thawed.IsZero() && time.Since(p.thawed) < unwell
}

// blind returns how much longer events do not reach the process because its machine was paused: its
// connections are dead, and it does not know.
func (p *process) blind() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.thawed.IsZero() {
		return 0
	}
	return max(0, 2*time.Second-time.Since(p.thawed))
}

// fail sets the share of writes to the API server that are lost or refused.
func (p *process) fail(share float64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.outage = share
}

func (p *process) fails() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.random.Float64() < p.outage
}

// heal ends all faults of the process.
func (p *process) heal() {
	p.fail(0)
	p.client.Heal()
	p.clock.held.Store(0)
	p.resume()
}
