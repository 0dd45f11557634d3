package fleet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/flotilla-kube/flotilla/internal/faults"
	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/election/leaderlock"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
)

// EventLeaderLock is the prefix of the events of a leader lock's Lease. The rest of the Type is
// that of the event of package election.
const EventLeaderLock election.EventType = "leader-lock-"

// leaderLocks are the foreign Leases that the fleet must hold while any member runs.
type leaderLocks struct {
	member *Member
	// lost is closed once a leader lock that was held is lost.
	lost chan struct{}
	held atomic.Pointer[hold]
}

// hold is one period in which the fleet holds the leader locks or waits for them. A fleet that is
// stopped and started gets a new one.
type hold struct {
	all []*leaderlock.Lock
	// secured is closed once all are held and the former holders have had time to stop. From then
	// on shards may be claimed.
	secured chan struct{}
}

func (m *Member) newLeaderLocks() (*leaderLocks, error) {
	l := &leaderLocks{member: m, lost: make(chan struct{})}
	h, err := l.newHold()
	if err != nil {
		return nil, err
	}
	l.held.Store(h)
	return l, nil
}

// current returns the present hold, or the coming one.
func (l *leaderLocks) current() *hold { return l.held.Load() }

func (l *leaderLocks) newHold() (*hold, error) {
	m, h := l.member, &hold{secured: make(chan struct{})}
	for _, name := range m.config.LeaderLocks {
		lock, err := leaderlock.New(leaderlock.Config{
			Name:     name,
			Identity: leaseapi.LeaderLockIdentity(m.config.Fleet),
			Client:   m.config.Leases,
			Observer: m.observer,
			Clock:    m.config.Clock,
			Timing:   m.config.Timing,
			OnEvent:  func(e election.Event) { e.Type = EventLeaderLock + e.Type; m.config.Observe(Event{Event: e}) },
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

// run holds the leader locks until ctx ends, except while the fleet is stopped. It returns the
// errors of leader locks that were lost.
func (l *leaderLocks) run(ctx context.Context) error {
	for {
		l.member.standStill(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err := l.keep(ctx, l.current()); err != nil || ctx.Err() != nil {
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
func (l *leaderLocks) keep(ctx context.Context, h *hold) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	errs := make([]error, len(h.all))
	var running sync.WaitGroup
	end := sync.OnceFunc(func() {
		l.member.membership.Revoke()
		close(l.lost)
		cancel()
	})
	running.Go(func() { l.member.untilStill(ctx); cancel() })
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
// LeaderLockDelay: a holder that has just released a leader lock may still be stopping. There is no
// delay for a member that joins a fleet at work. wait returns after that, or when ctx has ended.
func (l *leaderLocks) wait(ctx context.Context, h *hold) {
	for i, lock := range h.all {
		if name := l.member.config.LeaderLocks[i]; !lock.Valid(l.member.config.Clock.Now()) {
			klog.FromContext(ctx).V(1).Info("Waiting for the leader lock: nothing runs before the fleet holds it", "lease", name, "holder", lock.Holder())
		}
		select {
		case <-lock.Held():
		case <-ctx.Done():
			return
		}
	}
	m := l.member
	if now := m.config.Clock.Now(); !(h.inherited() && m.othersWork(now)) && !faults.LeaderLockDelayIgnored {
		m.pause(ctx, max(0, m.config.LeaderLockDelay-now.Sub(h.freeSince())))
	}
	if ctx.Err() == nil {
		close(h.secured)
	}
}

// othersWork reports whether a shard has another holder that this process has seen renew: the fleet
// has then held the leader locks before. The holders of a fleet that has been dead for long hold
// their shards until somebody lists them as ended.
func (m *Member) othersWork(now time.Time) bool {
	return slices.ContainsFunc(m.observer.List(), func(o election.Observation) bool {
		return m.isOthers(o, now) && o.Heartbeat != nil && o.Heartbeat.Renewed.After(o.Heartbeat.HolderSeen)
	})
}

// inherited reports whether this process has never seen a leader lock with another holder or none.
// Otherwise a member that works may not know yet that the fleet had lost the leader lock: its
// machine was paused while somebody else led.
func (h *hold) inherited() bool {
	return !slices.ContainsFunc(h.all, func(lock *leaderlock.Lock) bool { return !lock.Inherited() })
}

// freeSince returns the time since which nobody but the fleet has held any of the leader locks, all
// of which are held.
func (h *hold) freeSince() time.Time {
	var since time.Time
	for _, lock := range h.all {
		if free := lock.FreeSince(); free.After(since) {
			since = free
		}
	}
	return since
}

// isSecured reports whether shards may be claimed; see hold.
func (l *leaderLocks) isSecured() bool {
	return l.current().isSecured()
}

func (h *hold) isSecured() bool { return isClosed(h.secured) || faults.LeaderLockIgnored }

// awaited returns a channel that is closed once shards may be claimed; nil if they already may.
func (l *leaderLocks) awaited() <-chan struct{} {
	if h := l.current(); !h.isSecured() {
		return h.secured
	}
	return nil
}

// permit reports whether the fleet holds all leader locks at now.
func (l *leaderLocks) permit(now time.Time) bool {
	for _, lock := range l.current().all {
		if !lock.Valid(now) {
			return false
		}
	}
	return true
}

// pending returns an error that names the first leader lock that is not held; nil if all are.
func (l *leaderLocks) pending(now time.Time) error {
	for i, lock := range l.current().all {
		if !lock.Valid(now) {
			name, holder := l.member.config.LeaderLocks[i], lock.Holder()
			if holder == "" {
				return fmt.Errorf("the leader lock, Lease %s, is held by nobody yet", name)
			}
			return fmt.Errorf("the leader lock, Lease %s, is held by %q", name, holder)
		}
	}
	return nil
}

// release gives the leader locks up if no other member is left to hold them. This member has
// already released its own Lease, so of two leaving members at least one sees that nobody is left.
func (l *leaderLocks) release(ctx context.Context) {
	m, h := l.member, l.current()
	if len(h.all) == 0 || !m.started.Load() {
		return
	}
	logger := klog.FromContext(ctx)
	list, err := m.list(ctx, metav1.ListOptions{})
	if err != nil {
		logger.Error(err, "Could not see whether other members are left, leaving the leader locks to expire")
		return
	}
	m.observeAll(list)
	roster := m.Roster()
	if others := roster.Live(); len(others) > 0 {
		logger.V(1).Info("Left the leader locks to the other members", "members", others)
		return
	}
	for i, lock := range slices.Backward(h.all) {
		if lock.Holder() != leaseapi.LeaderLockIdentity(m.config.Fleet) {
			continue // By the list just read, the fleet was still waiting.
		}
		releasing, cancel := context.WithTimeout(ctx, m.config.Timing.RenewDeadline/2)
		if err := lock.Release(releasing); err != nil {
			logger.Error(err, "Could not release the leader lock, it expires", "lease", m.config.LeaderLocks[i])
		} else {
			logger.Info("Released the leader lock: this was the last member", "lease", m.config.LeaderLocks[i])
		}
		cancel()
	}
}
