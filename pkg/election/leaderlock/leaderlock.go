package leaderlock

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/election/request"
)

// ErrLost is what Lock.Run returns when the leader lock was held and is no more:
// somebody else holds it, or it was not seen renewed in time.
var ErrLost = errors.New("leader lock lost")

// ErrBusy is what Lock.Release returns when the leader lock is not to be released:
// it was renewed meanwhile, so another member runs, or this process's own Run has not returned.
var ErrBusy = errors.New("leader lock is in use")

// EventSuspended says that the Lease of a held leader lock was cleared or deleted, as Reason says.
// The right is not valid until the Lease names the fleet again.
const EventSuspended election.EventType = "suspended"

// Config configures a Lock. Fields without a default are required.
type Config struct {
	// Name of the foreign Lease. The Observer must keep it, see ObserverConfig.Extra.
	Name string
	// Identity under which the fleet holds the Lease, the same for all its members and for nobody
	// else: "<fleet>_fleet".
	Identity string
	// Client writes Leases of the namespace that the Observer watches. Its reads must be answered
	// with what is current, as gets without a resourceVersion are.
	Client election.LeaseWriter
	// Observer tells what others have written, and is told what this leader lock has read and
	// written.
	Observer *election.Observer
	// Clock must be the Observer's.
	Clock election.Clock
	// Timing of the leader lock. LeaseDuration is what standbys are told to wait; RenewDeadline how
	// long the right lasts from a moment before the last renewal; RetryPeriod the longest time
	// between looks at the Lease, and between the fleet's renewals. If RenewDeadline is less than
	// about five times RetryPeriod, every member renews by itself.
	Timing election.Timing
	// OnEvent is called for every event, in order, from the goroutine of Run: EventWaiting,
	// EventAcquired when the right begins, EventRenewed when it is extended, EventSuspended,
	// EventEnded, EventConflict and EventFailed. A read counts as Renew. It must not block.
	// Default: none.
	OnEvent func(election.Event)
	// Jitter lengthens the pause after a failed request, and the time until the next read from
	// RetryPeriod/1.2 on, so that members do not do the same thing at the same time. Default: by up
	// to a fifth, at random.
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

// Lock holds a foreign Lease together with the other members of the fleet: that of the stock
// controller manager's leader election, so that replicas of it that are left running stay standbys.
// While the leader lock is valid, nobody who takes part in that election as client-go does believes
// to be its leader. The package comment has the argument.
//
// A leader lock serves for one hold: once lost, make a new one. Run must be called once; the other
// methods are safe for concurrent use at any time.
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

	mu         sync.Mutex
	validUntil time.Time // zero if there is no right now
	freeSince  time.Time // set when held is closed
	running    bool
}

// New returns a leader lock that is not held. The error names every field that is out of
// bounds.
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

// Held is closed once the leader lock is held for the first time: from then on the process may
// claim shards, until Lost.
func (l *Lock) Held() <-chan struct{} { return l.held }

// Lost is closed when the leader lock was held and the right has ended, other than by the end of
// Run's ctx. All claims of the process must end. It may come late if the process was suspended: ask
// Valid before each write.
func (l *Lock) Lost() <-chan struct{} { return l.lost }

// Valid reports whether the right is held at now, a reading of the fleet's Clock taken for this
// question. It may be false for some time, and true again, while the Lease was cleared or deleted
// by somebody; after Lost, and after Run, it stays false.
func (l *Lock) Valid(now time.Time) bool {
	return now.Before(l.ValidUntil())
}

// ValidUntil returns when the right ends unless a renewal moves it: no write may start from then
// on. It is zero if there is no right now.
func (l *Lock) ValidUntil() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.validUntil
}

// Holder returns who holds the Lease as last seen: the leader lock's Identity, somebody else, or
// nobody. It is for people; ask Valid.
func (l *Lock) Holder() string {
	return l.cfg.Observer.Get(l.cfg.Name).Holder
}

// FreeSince returns a time, by Clock, since which this process knows that nobody but the fleet has
// kept the Lease: the last sign of life of a holder whose Lease expired, or when the Lease was seen
// to be absent or without a holder, or at the latest when it was first seen to name the fleet. It
// is zero before Held is closed.
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

func (l *Lock) setFreeSince(since time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.freeSince = since
}

func (l *Lock) setRunning(running bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.running = running
}
