package leadership

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/klog/v2"

	"github.com/flotilla-kube/flotilla/internal/faults"
	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/election/leaderlock"
	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/election/membership"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
)

// EventPrefix is the prefix of the events of a leader lock's Lease. The rest of the Type is that of
// the event of package election.
const EventPrefix election.EventType = "leader-lock-"

// Config configures a Leadership. All fields but Locks and Delay are required.
type Config struct {
	// Fleet is the fleet's name, Member and Incarnation are the member's.
	Fleet, Member, Incarnation string
	// Locks are the names of the leader locks. Delay is how long they must have been free of other
	// holders before an idle fleet begins.
	Locks  []string
	Delay  time.Duration
	Leases election.LeaseWriter
	// Read lists the Leases within a bound, and records them with the Observer. Snapshot returns
	// what is known of them.
	Read       func(context.Context) (*coordinationv1.LeaseList, error)
	Snapshot   func() leaseapi.Snapshot
	Observer   *election.Observer
	Membership *membership.Membership
	Clock      election.Clock
	Timing     election.Timing
	// Observe receives the events of the leader locks. Resumed is called when a fleet that was
	// stopped works again. Neither may block.
	Observe func(election.Event)
	Resumed func()
}

// Leadership is a member's part in holding the leader locks, and in a stop.
type Leadership struct {
	config Config
	stop   stopping
	// lost is closed once a leader lock that was held is lost.
	lost chan struct{}
	held atomic.Pointer[Hold]
}

// Hold is one period in which the fleet holds the leader locks or waits for them. A fleet that is
// stopped and started gets a new one.
type Hold struct {
	all []*leaderlock.Lock
	// secured is closed once all are held and the former holders have had time to stop. From then
	// on shards may be claimed.
	secured chan struct{}
}

// New returns a Leadership that holds nothing yet.
func New(c Config) (*Leadership, error) {
	l := &Leadership{config: c, stop: stopping{stilled: make(chan struct{}, 1)}, lost: make(chan struct{})}
	h, err := l.newHold()
	if err != nil {
		return nil, err
	}
	l.held.Store(h)
	return l, nil
}

// Current returns the present hold, or the coming one.
func (l *Leadership) Current() *Hold { return l.held.Load() }

// Lost returns a channel that is closed once a leader lock that was held is lost.
func (l *Leadership) Lost() <-chan struct{} { return l.lost }

func (l *Leadership) newHold() (*Hold, error) {
	c, h := l.config, &Hold{secured: make(chan struct{})}
	for _, name := range c.Locks {
		lock, err := leaderlock.New(leaderlock.Config{
			Name:     name,
			Identity: leaseapi.LeaderLockIdentity(c.Fleet),
			Client:   c.Leases,
			Observer: c.Observer,
			Clock:    c.Clock,
			Timing:   c.Timing,
			OnEvent:  func(e election.Event) { e.Type = EventPrefix + e.Type; c.Observe(e) },
		})
		if err != nil {
			return nil, fmt.Errorf("leader lock %q: %w", name, err)
		}
		h.all = append(h.all, lock)
	}
	if len(h.all) == 0 {
		close(h.secured)
	}
	return h, nil
}

// Run holds the leader locks until ctx ends, except while the fleet is stopped. It returns the
// errors of leader locks that were lost.
func (l *Leadership) Run(ctx context.Context) error {
	for {
		l.standStill(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err := l.keep(ctx, l.Current()); err != nil || ctx.Err() != nil {
			return err
		}
		h, err := l.newHold()
		if err != nil {
			return err
		}
		l.held.Store(h)
	}
}

// keep holds the leader locks until ctx ends or the member is still. When one is lost it revokes
// all claims of the process. It acquires them in order, each once the one before it is held: a
// fleet that held the second lock while waiting for the first would keep the second lock's
// controllers from the holder of the first. The stock controller manager does the same with the
// Lease of a leader migration. keep returns the errors of leader locks that were lost.
func (l *Leadership) keep(ctx context.Context, h *Hold) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	errs := make([]error, len(h.all))
	var running sync.WaitGroup
	end := sync.OnceFunc(func() {
		l.config.Membership.Revoke()
		close(l.lost)
		cancel()
	})
	running.Go(func() { l.untilStill(ctx); cancel() })
	if len(h.all) > 0 {
		running.Go(func() { l.wait(ctx, h) })
	}
	for i, lock := range h.all {
		running.Go(func() {
			if i > 0 {
				select {
				case <-h.all[i-1].Held():
				case <-ctx.Done():
					return
				}
			}
			if errs[i] = lock.Run(ctx); errs[i] != nil {
				end()
			}
		})
	}
	running.Wait()
	return errors.Join(errs...)
}

// wait closes secured once all leader locks are held and nobody else has held one of them for
// Config.Delay: a holder that has just released a leader lock may still be stopping. There is no
// delay for a member that joins a fleet at work. wait returns after that, or when ctx has ended.
func (l *Leadership) wait(ctx context.Context, h *Hold) {
	for i, lock := range h.all {
		if name := l.config.Locks[i]; !lock.Valid(l.config.Clock.Now()) {
			klog.FromContext(ctx).V(1).Info("Waiting for the leader lock: nothing runs before the fleet holds it", "lease", name, "holder", lock.Holder())
		}
		select {
		case <-lock.Held():
		case <-ctx.Done():
			return
		}
	}
	if s := l.config.Snapshot(); !(h.inherited() && l.othersWork(s)) && !faults.LeaderLockDelayIgnored {
		election.Await(ctx, l.config.Clock, nil, max(0, l.config.Delay-s.Now().Sub(h.freeSince())))
	}
	if ctx.Err() == nil {
		close(h.secured)
	}
}

// othersWork reports whether a shard has another holder that this process has seen renew: the fleet
// has then held the leader locks before. The holders of a fleet that has been dead for long hold
// their shards until somebody lists them as ended.
func (l *Leadership) othersWork(s leaseapi.Snapshot) bool {
	return slices.ContainsFunc(s.Leases(), func(o election.Observation) bool {
		return s.IsOthers(o, l.config.Incarnation) && o.Heartbeat != nil && o.Heartbeat.Renewed.After(o.Heartbeat.HolderSeen)
	})
}

// inherited reports whether this process has never seen a leader lock with another holder or none.
// Otherwise a member that works may not know yet that the fleet had lost the leader lock: its
// machine was paused while somebody else led.
func (h *Hold) inherited() bool {
	return !slices.ContainsFunc(h.all, func(lock *leaderlock.Lock) bool { return !lock.Inherited() })
}

// freeSince returns the time since which nobody but the fleet has held any of the leader locks, all
// of which are held.
func (h *Hold) freeSince() time.Time {
	var since time.Time
	for _, lock := range h.all {
		if free := lock.FreeSince(); free.After(since) {
			since = free
		}
	}
	return since
}

// IsSecured reports whether shards may be claimed: the fleet holds all leader locks, and the former
// holders have had time to stop.
func (l *Leadership) IsSecured() bool { return l.Current().IsSecured() }

// IsSecured reports the same of this hold.
func (h *Hold) IsSecured() bool {
	select {
	case <-h.secured:
		return true
	default:
		return faults.LeaderLockIgnored
	}
}

// Awaited returns a channel that is closed once shards may be claimed; nil if they already may.
func (l *Leadership) Awaited() <-chan struct{} {
	if h := l.Current(); !h.IsSecured() {
		return h.secured
	}
	return nil
}

// Permit reports whether the fleet holds all leader locks at now.
func (l *Leadership) Permit(now time.Time) bool {
	for _, lock := range l.Current().all {
		if !lock.Valid(now) {
			return false
		}
	}
	return true
}

// Turned returns the leader lock whose loop last iterated longest ago, and when, among those that
// the fleet holds. The time is zero if there is none.
func (l *Leadership) Turned() (oldest time.Time, lock string) {
	for i, held := range l.Current().all {
		if at, ok := held.Turned(); ok && (oldest.IsZero() || at.Before(oldest)) {
			oldest, lock = at, l.config.Locks[i]
		}
	}
	return oldest, lock
}

// Pending returns an error that names the first leader lock that is not held; nil if all are.
func (l *Leadership) Pending(now time.Time) error {
	for i, lock := range l.Current().all {
		if !lock.Valid(now) {
			name, holder := l.config.Locks[i], lock.Holder()
			if holder == "" {
				return fmt.Errorf("the leader lock, Lease %s, is held by nobody yet", name)
			}
			return fmt.Errorf("the leader lock, Lease %s, is held by %q", name, holder)
		}
	}
	return nil
}

// LockState is what a member knows of one leader lock.
type LockState struct {
	// Lease is the leader lock's name.
	Lease string
	// Held reports whether the fleet holds it. Holder is the holder that the Lease names.
	Held   bool
	Holder string
	// Live reports whether the Lease names a holder, the fleet or another, that this member has
	// seen renew it within the lease duration, or within the duration that the Lease declares but
	// at most a minute ago.
	Live bool
}

// silence is how long a silent holder of a leader lock counts as live, whatever its Lease declares.
const silence = time.Minute

// Locks returns the state of every leader lock, in the order of Config.Locks.
func (l *Leadership) Locks() []LockState {
	now, duration := l.config.Clock.Now(), l.config.Timing.LeaseDuration
	states := make([]LockState, 0, len(l.config.Locks))
	for i, lock := range l.Current().all {
		name := l.config.Locks[i]
		lease := l.config.Observer.Get(name)
		states = append(states, LockState{
			Lease: name, Held: lock.Valid(now), Holder: lock.Holder(),
			Live: lease.IsHeld(now, duration) && now.Sub(lease.Seen) < max(silence, duration),
		})
	}
	return states
}

// Release gives the leader locks up if no other member is left to hold them. Call it after Run has
// returned and this member has released its own Lease: so of two leaving members at least one sees
// that nobody is left.
func (l *Leadership) Release(ctx context.Context) {
	h := l.Current()
	if len(h.all) == 0 {
		return
	}
	logger := klog.FromContext(ctx)
	list, err := l.config.Read(ctx)
	if err != nil {
		logger.Error(err, "Could not see whether other members are left, leaving the leader locks to expire")
		return
	}
	if others := l.config.Snapshot().Roster().Live(); len(others) > 0 {
		logger.V(1).Info("Left the leader locks to the other members", "members", others)
		return
	}
	l.release(ctx, list, "this was the last member", "it expires")
}

// release releases the leader locks that name the fleet as the list has them, because of the first
// text: a member that has written one since keeps it. The second text says what follows a failure.
func (l *Leadership) release(ctx context.Context, list *coordinationv1.LeaseList, because, otherwise string) {
	logger := klog.FromContext(ctx)
	for i, lock := range slices.Backward(l.Current().all) {
		name := l.config.Locks[i]
		item := slices.IndexFunc(list.Items, func(lease coordinationv1.Lease) bool { return lease.Name == name })
		if item < 0 || leaserecord.From(&list.Items[item]).Holder != leaseapi.LeaderLockIdentity(l.config.Fleet) {
			continue
		}
		releasing, cancel := context.WithTimeout(ctx, l.config.Timing.RequestTimeout())
		switch err := lock.Release(releasing, &list.Items[item]); {
		case errors.Is(err, leaderlock.ErrBusy):
			logger.Info("Left the leader lock as it is: somebody has written its Lease meanwhile", "lease", name)
		case err != nil:
			logger.Error(err, "Could not release the leader lock", "lease", name, "then", otherwise)
		default:
			logger.Info("Released the leader lock", "lease", name, "because", because)
		}
		cancel()
	}
}
