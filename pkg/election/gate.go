package election

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
)

// ErrGateLost is what Gate.Run returns when the gate was held and is no more: somebody else holds it, or it was not seen
// renewed in time.
var ErrGateLost = errors.New("gate lost")

// ErrGateBusy is what Gate.Release returns when the gate is not to be released: it was renewed meanwhile, so another member
// runs, or this process's own Run has not returned.
var ErrGateBusy = errors.New("gate is in use")

// EventSuspended says that the Lease of a held gate was cleared or deleted, as Reason says. The right is not valid until the Lease
// names the fleet again.
const EventSuspended EventType = "suspended"

// GateConfig configures a Gate. Fields without a default are required.
type GateConfig struct {
	// Name of the foreign Lease. The Observer must keep it, see ObserverConfig.Extra.
	Name string
	// Identity under which the fleet holds the Lease, the same for all its members and for nobody else: "<fleet>_fleet".
	Identity string
	// Client writes Leases of the namespace that the Observer watches. Its reads must be answered with what is current, as
	// gets without a resourceVersion are.
	Client LeaseWriter
	// Observer tells what others have written, and is told what this gate has read and written.
	Observer *Observer
	// Clock must be the Observer's.
	Clock Clock
	// Timing of the gate. LeaseDuration is what standbys are told to wait; RenewDeadline how long the right lasts from a
	// moment before the last renewal; RetryPeriod the longest time between looks at the Lease, and between the fleet's renewals.
	// If RenewDeadline is less than about five times RetryPeriod, every member renews by itself.
	Timing Timing
	// OnEvent is called for every event, in order, from the goroutine of Run: EventWaiting, EventAcquired when the right
	// begins, EventRenewed when it is extended, EventSuspended, EventEnded, EventConflict and EventFailed. A read counts as
	// Renew. It must not block. Default: none.
	OnEvent func(Event)
	// Jitter lengthens the pause after a failed request, and the time until the next read from RetryPeriod/1.2 on, so that
	// members do not do the same thing at the same time. Default: by up to a fifth, at random.
	Jitter func(time.Duration) time.Duration
}

func (cfg GateConfig) validate() error {
	var errs []error
	require := func(ok bool, field, value, allowed string) {
		if !ok {
			errs = append(errs, fmt.Errorf("GateConfig.%s is %s, must %s", field, value, allowed))
		}
	}
	require(cfg.Name != "", "Name", "empty", "be the Lease's name")
	require(cfg.Identity != "", "Identity", "empty", "be the fleet's identity")
	require(cfg.Client != nil, "Client", "nil", "write Leases")
	require(cfg.Observer != nil, "Observer", "nil", "observe the same Leases")
	require(cfg.Observer == nil || cfg.Observer.Watches(cfg.Name), "Name", fmt.Sprintf("%q", cfg.Name), "be a Lease that the Observer keeps")
	require(cfg.Clock != nil, "Clock", "nil", "be the Observer's clock")
	if err := cfg.Timing.Validate(); err != nil {
		errs = append(errs, fmt.Errorf("GateConfig.%w", err))
	}
	return errors.Join(errs...)
}

// Gate holds a foreign Lease together with the other members of the fleet: that of the stock controller manager's leader
// election, so that replicas of it that are left running stay standbys. While the gate is valid, nobody who takes part in
// that election as client-go does believes to be its leader. The package comment has the argument.
//
// A gate serves for one hold: once lost, make a new one. Run must be called once; the other methods are safe for concurrent
// use at any time.
//
//	          the fleet is seen to hold the Lease           renew deadline, or another holder or term
//	(waiting) ───────────────────────────────────▶ (held) ───────────────────────────────────────────▶ (lost)
//	                                                │  ▲
//	                     Lease cleared, deleted     ▼  │    written again
//	                                             (suspended)
type Gate struct {
	cfg   GateConfig
	held  chan struct{}
	lost  chan struct{}
	reply chan gateAnswer // capacity 1: the outcome of the one request under way

	mu         sync.Mutex
	validUntil time.Time // zero if there is no right now
	freeSince  time.Time // set when held is closed
	running    bool
}

// NewGate returns a gate that is not held. The error names every field that is out of bounds.
func NewGate(cfg GateConfig) (*Gate, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if cfg.OnEvent == nil {
		cfg.OnEvent = func(Event) {}
	}
	if cfg.Jitter == nil {
		cfg.Jitter = func(d time.Duration) time.Duration { return wait.Jitter(d, jitterFactor-1) }
	}
	return &Gate{cfg: cfg, held: make(chan struct{}), lost: make(chan struct{}), reply: make(chan gateAnswer, 1)}, nil
}

// Held is closed once the gate is held for the first time: from then on the process may claim shards, until Lost.
func (g *Gate) Held() <-chan struct{} { return g.held }

// Lost is closed when the gate was held and the right has ended, other than by the end of Run's ctx. All claims of the
// process must end. It may come late if the process was suspended: ask Valid before each write.
func (g *Gate) Lost() <-chan struct{} { return g.lost }

// Valid tells whether the right is held at now, a reading of the fleet's Clock taken for this question. It may be false for
// some time, and true again, while the Lease was cleared or deleted by somebody; after Lost, and after Run, it stays false.
func (g *Gate) Valid(now time.Time) bool {
	return now.Before(g.ValidUntil())
}

// ValidUntil returns when the right ends unless a renewal moves it: no write may start from then on. It is zero if there is
// no right now.
func (g *Gate) ValidUntil() time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.validUntil
}

// Holder returns who holds the Lease as last seen: the gate's Identity, somebody else, or nobody. It is for people; ask Valid.
func (g *Gate) Holder() string {
	return g.cfg.Observer.Get(g.cfg.Name).Holder
}

// FreeSince returns a time, by Clock, since which this process knows that nobody but the fleet has
// kept the Lease: the last sign of life of a holder whose Lease expired, or when the Lease was seen
// to be absent or without a holder, or at the latest when it was first seen to name the fleet. It
// is zero before Held is closed.
func (g *Gate) FreeSince() time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.freeSince
}

// Release clears the holder if the Lease, freshly fetched, still names Identity, so that a standby need not wait until it has
// expired. Only the last member of the fleet to leave may call it, after its work and Run have returned: the others would
// have lost their right without knowing until they see it. Should the Lease have been renewed meanwhile, it is left alone
// and the error is ErrGateBusy. After any other error it may be tried again; if it is not, the Lease expires.
func (g *Gate) Release(ctx context.Context) error {
	g.mu.Lock()
	running := g.running
	g.mu.Unlock()
	if running {
		return fmt.Errorf("%w: it is kept by this process", ErrGateBusy)
	}
	lease, err := g.cfg.Client.Get(ctx, g.cfg.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read Lease %s to release it: %w", g.cfg.Name, err)
	}
	g.cfg.Observer.Observe(lease)
	return g.releaseAt(ctx, lease)
}

func (g *Gate) publish(validUntil time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.validUntil = validUntil
}

func (g *Gate) setFreeSince(since time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.freeSince = since
}

func (g *Gate) setRunning(running bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.running = running
}
