package leaderlock

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/election/request"
)

// ErrLost is returned by Lock.Run when a held leader lock is lost: somebody else holds it, or no
// renewal was seen in time.
var ErrLost = errors.New("leader lock lost")

// ErrBusy is returned by Lock.Release when the leader lock is in use: its Lease was written
// meanwhile, perhaps by another member that runs, or this process's own Run has not returned.
var ErrBusy = errors.New("leader lock is in use")

// EventSuspended reports that the Lease of a held leader lock was cleared or deleted, as Reason
// says. The right is not valid until the Lease names the fleet again.
const EventSuspended election.EventType = "suspended"

// Config configures a Lock. Fields without a default are required.
type Config struct {
	// Name of the foreign Lease. The Observer must keep it, see ObserverConfig.Extra.
	Name string
	// Identity under which the fleet holds the Lease, shared by all its members and nobody else:
	// "<fleet>_fleet".
	Identity string
	// Client writes Leases of the namespace that the Observer watches. Its reads must be
	// consistent, as gets without a resourceVersion are.
	Client election.LeaseWriter
	// Observer provides what others have written, and records what this leader lock reads and
	// writes.
	Observer *election.Observer
	// Clock must be the Observer's.
	Clock election.Clock
	// Timing of the leader lock. LeaseDuration is how long the Lease tells standbys to wait.
	// RenewDeadline is how long the right lasts from a moment before the last renewal. RetryPeriod
	// is the longest time between reads of the Lease, and between the fleet's renewals. If
	// RenewDeadline is less than about five times RetryPeriod, every member renews by itself.
	Timing election.Timing
	// OnEvent is called for every event, in order, from the goroutine of Run: EventWaiting,
	// EventAcquired when the right begins, EventRenewed when it is extended, EventSuspended,
	// EventEnded, EventConflict and EventFailed. A read counts as Renew. It must not block.
	// Default: none.
	OnEvent func(election.Event)
	// Jitter lengthens the pause after a failed request, and the pause before the next read, which
	// is RetryPeriod/1.2 without jitter, so that members do not act at the same time. Default: by
	// up to a fifth, at random.
	Jitter func(time.Duration) time.Duration
}

func (cfg Config) validate() error {
	var errs []error
	require := func(ok bool, field, value, allowed string) {
		if !ok {
			errs = append(errs, fmt.Errorf("leaderlock.Config.%s is %s, must %s", field, value, allowed))
		}
	}
	require(cfg.Name != "", "Name", "empty", "be the Lease's name")
	require(cfg.Identity != "", "Identity", "empty", "be the fleet's identity")
	require(cfg.Client != nil, "Client", "nil", "write Leases")
	require(cfg.Observer != nil, "Observer", "nil", "observe the same Leases")
	require(cfg.Observer == nil || cfg.Observer.Watches(cfg.Name), "Name", fmt.Sprintf("%q", cfg.Name), "be a Lease that the Observer keeps")
	require(cfg.Clock != nil, "Clock", "nil", "be the Observer's clock")
	if err := cfg.Timing.Validate(); err != nil {
		errs = append(errs, fmt.Errorf("leaderlock.Config.%w", err))
	}
	return errors.Join(errs...)
}

// Lock holds somebody else's Lease together with the other members of the fleet: for example that
// of the stock controller manager's leader election, so that stock replicas still running stay
// standbys. While the leader lock is valid, no client-go elector for that Lease believes that it
// leads. The package comment has the argument.
//
// A Lock serves one hold: once lost, make a new one. Call Run once; the other methods are safe for
// concurrent use at any time.
//
//	          the fleet is seen to hold the Lease           renew deadline, or another holder or term
//	(waiting) ───────────────────────────────────▶ (held) ───────────────────────────────────────────▶ (lost)
//	                                                │  ▲
//	                     Lease cleared, deleted     ▼  │    written again
//	                                             (suspended)
type Lock struct {
	cfg  Config
	held chan struct{}
	lost chan struct{}
	// turned is when Run's loop last began an iteration while the leader lock was held.
	turned atomic.Pointer[time.Time]

	mu         sync.Mutex
	validUntil time.Time // zero while there is no right
	// freeSince and inherited are set when held is closed.
	freeSince time.Time
	inherited bool
	running   bool
}

// New returns a leader lock that is not held. The error names every invalid field.
func New(cfg Config) (*Lock, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if cfg.OnEvent == nil {
		cfg.OnEvent = func(election.Event) {}
	}
	if cfg.Jitter == nil {
		cfg.Jitter = request.Jitter
	}
	return &Lock{cfg: cfg, held: make(chan struct{}), lost: make(chan struct{})}, nil
}

// Held returns a channel that is closed once the leader lock is held: the process may claim shards
// from then on, until Lost.
func (l *Lock) Held() <-chan struct{} { return l.held }

// Lost returns a channel that is closed when the leader lock is lost, other than by the end of
// Run's ctx. All claims of the process must then end. It may be closed late if the process was
// suspended: call Valid before each write.
func (l *Lock) Lost() <-chan struct{} { return l.lost }

// Valid reports whether the right is held at now, which must be a fresh reading of the fleet's
// Clock. After somebody cleared or deleted the Lease it may be false for some time, then true
// again. After Lost and after Run it stays false.
func (l *Lock) Valid(now time.Time) bool {
	return now.Before(l.ValidUntil())
}

// ValidUntil returns when the right ends unless a renewal moves it: no write may start from then
// on. It is zero while there is no right.
func (l *Lock) ValidUntil() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.validUntil
}

// Turned returns when Run's loop last began an iteration, which it does at least twice per
// RetryPeriod while the leader lock is held. Before that and after Run it returns false.
func (l *Lock) Turned() (time.Time, bool) {
	if at := l.turned.Load(); at != nil {
		return *at, true
	}
	return time.Time{}, false
}

// Holder returns the Lease's holder as last seen: the leader lock's Identity, somebody else, or
// nobody. It is for people; decisions use Valid.
func (l *Lock) Holder() string {
	return l.cfg.Observer.Get(l.cfg.Name).Holder
}

// FreeSince returns a time, by Clock, since which this process knows that nobody but the fleet has
// kept the Lease. That is the last sign of life of a holder whose Lease expired, or when the Lease
// was seen absent or without a holder, or at the latest when it was first seen to name the fleet.
// It is zero before Held is closed.
func (l *Lock) FreeSince() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.freeSince
}

func (l *Lock) publish(validUntil time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.validUntil = validUntil
}

// Inherited reports whether the Lease has named the fleet for as long as this process has known it:
// members that run held it before. It is false before Held is closed.
func (l *Lock) Inherited() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.inherited
}

func (l *Lock) setFreeSince(since time.Time, inherited bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.freeSince, l.inherited = since, inherited
}

func (l *Lock) setRunning(running bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.running = running
}
