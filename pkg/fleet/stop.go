package fleet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/election/leaderlock"
	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
)

// stopState is what a member concludes from the stops that it has read.
type stopState struct {
	// decided is set once there was a plan's Lease to read.
	decided bool
	// stop is nil if the fleet should work. text is the annotation it was read from, empty if the
	// member stops by itself.
	stop *leaseapi.Stop
	text string
	// fault is why the annotation cannot be read; nil if it can.
	fault error
}

// next returns the state after the plan's Lease was seen like this. An unreadable stop changes
// nothing. Neither does a Lease that is absent or has no plan: somebody has deleted it, and the
// planner restores plan and stop. A member that has just started and cannot read the stop works if
// others do; othersWork reports whether another member runs a shard. next is pure.
func (s stopState) next(lease election.Observation, othersWork bool) stopState {
	if !lease.Exists || lease.Annotations[leaseapi.DocumentAnnotation] == "" {
		return s
	}
	stop, err := leaseapi.StopOn(lease.Lease)
	switch {
	case err == nil:
		return stopState{decided: true, stop: stop, text: lease.Annotations[leaseapi.StopAnnotation]}
	case s.decided || othersWork:
		s.decided, s.fault = true, err
		return s
	default:
		return stopState{decided: true, stop: &leaseapi.Stop{}, fault: err}
	}
}

// stopping is a member's part in a stop. Its methods are safe for concurrent use.
//
//	        StopAnnotation          nothing held, nothing runs       all members are still
//	working ─────────────▶ draining ─────────────────────────▶ still ────────────────────▶ released
//	   ▲                       │                                 │
//	   └───────────────────────┴─────────────────────────────────┘ no StopAnnotation
//
// A member stops keeping its leader locks before its Lease says that it is still, and removes that
// from its Lease before it takes them again. So a member that sees in one list that every live
// member is still may release the leader locks as they are in that list.
type stopping struct {
	// stilled receives after the member has become still.
	stilled chan struct{}

	mu    sync.Mutex
	state stopState
	// claims is set once the member may claim. From then on the loop that claims says when the
	// member is still.
	claims bool
	still  bool
}

// look records the plan's Lease, and returns the state before and after.
func (s *stopping) look(read func() election.Observation, othersWork func() bool) (before, after stopState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before = s.state
	// Read under the lock: of two concurrent calls, the one that writes last has also read last.
	s.state = s.state.next(read(), before.decided || othersWork())
	return before, s.state
}

// begin records that the member may claim.
func (s *stopping) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.claims = true
}

// halts reports whether the member must not claim or run anything.
func (s *stopping) halts() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state.stop != nil || s.still
}

func (s *stopping) isStill() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.still
}

// rest makes the member still if the fleet is stopped. byClaims is set by the loop that claims,
// which knows that nothing is held and nothing runs. rest reports whether the member is still, and
// whether this call made it so.
func (s *stopping) rest(byClaims bool) (still, now bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.still || s.state.stop == nil || s.claims != byClaims {
		return s.still, false
	}
	s.still = true
	select {
	case s.stilled <- struct{}{}:
	default:
	}
	return true, true
}

// resume ends the stillness unless the fleet is stopped. It reports whether the fleet works, and
// whether this call changed anything.
func (s *stopping) resume() (works, now bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state.stop != nil {
		return false, false
	}
	now, s.still = s.still, false
	return true, now
}

// annotation returns the value of StillAnnotation; empty if the member is not still.
func (s *stopping) annotation() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.still {
		return ""
	}
	return s.state.text
}

// text returns the value of StopAnnotation that the member obeys; empty if there is none.
func (s *stopping) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state.text
}

// Stopped returns the stop of the fleet, as this member sees it; nil if the fleet is not stopped.
func (m *Member) Stopped() *leaseapi.Stop {
	m.stopping.mu.Lock()
	defer m.stopping.mu.Unlock()
	if m.stopping.state.stop == nil {
		return nil
	}
	stop := *m.stopping.state.stop
	return &stop
}

var errStopped = errors.New("the fleet is stopped")

// lookForStop records the stop on the plan's Lease, and reports whether the member must not claim
// or run anything.
func (m *Member) lookForStop(ctx context.Context) bool {
	name := leaseapi.PlanLease(m.config.Fleet)
	before, after := m.stopping.look(
		func() election.Observation { return m.observer.Get(name) },
		func() bool { return m.liveShard(m.config.Clock.Now()).Name != "" },
	)
	logger := klog.FromContext(ctx).WithValues("lease", name)
	if after.fault != nil && (before.fault == nil || before.fault.Error() != after.fault.Error()) {
		logger.Error(after.fault, "Could not read whether the fleet is stopped: going on as before", "stopped", after.stop != nil)
	}
	switch {
	case before.text == after.text && (before.stop == nil) == (after.stop == nil):
	case after.stop == nil:
		logger.Info("The fleet is started")
	default:
		logger.Info("The fleet is stopped: releasing all shards", "since", after.stop.Since, "by", after.stop.By)
		m.membership.Touch() // a still member publishes which stop it obeys
	}
	return m.stopping.halts()
}

// restIfDrained makes the member still once it holds nothing and runs nothing. The loop that claims
// calls it.
func (m *Member) restIfDrained(ctx context.Context) {
	if slices.ContainsFunc(m.runners.list(), func(r *shardRunner) bool { return r.claimant.Claim() != nil || r.state().Work.IsRunning() }) {
		return
	}
	m.rest(ctx, true)
}

// rest makes the member still, see stopping.rest, and reports whether it is.
func (m *Member) rest(ctx context.Context, byClaims bool) bool {
	still, now := m.stopping.rest(byClaims)
	if now {
		klog.FromContext(ctx).Info("Nothing runs here any more: standing by until the fleet is started")
		m.membership.Touch()
	}
	return still
}

// untilStill returns when the member has become still, or ctx has ended.
func (m *Member) untilStill(ctx context.Context) {
	changed, stop := m.observer.Subscribe(func(name string) bool { return name == leaseapi.PlanLease(m.config.Fleet) })
	defer stop()
	for ctx.Err() == nil {
		m.lookForStop(ctx)
		if m.rest(ctx, false) {
			return
		}
		select {
		case <-changed:
		case <-m.stopping.stilled:
		case <-ctx.Done():
		}
	}
}

// standStill returns when the fleet is not stopped and the member's Lease does not say that it is
// still, or when ctx has ended. Until then it releases the leader locks as soon as every member is
// still.
func (m *Member) standStill(ctx context.Context) {
	changed, stop := m.observer.Subscribe(func(string) bool { return true })
	defer stop()
	var tried time.Time
	for ctx.Err() == nil {
		m.lookForStop(ctx)
		// A member that has not joined and does not know of the stop yet takes a cleared leader
		// lock again.
		if now := m.config.Clock.Now(); m.rest(ctx, false) && m.Stopped() != nil && now.Sub(tried) >= m.config.Timing.RetryPeriod && m.mayRelease() {
			tried = now
			m.releaseStopped(ctx)
		}
		if works, now := m.stopping.resume(); works {
			if now {
				m.membership.Touch()
				m.reassign()
			}
			own := m.observer.Get(leaserecord.MemberLease(m.config.Fleet, m.config.Member))
			if own.Holder != m.incarnation || own.Annotations[leaseapi.StillAnnotation] == "" {
				return
			}
		}
		m.await(ctx, changed, m.config.Timing.RetryPeriod)
	}
}

// reassign triggers a new assignment.
func (m *Member) reassign() {
	select {
	case m.runners.left <- struct{}{}:
	default:
	}
}

// mayRelease reports whether a leader lock names the fleet and all members are still.
func (m *Member) mayRelease() bool {
	return m.allStill() == nil &&
		slices.ContainsFunc(m.config.LeaderLocks, func(name string) bool {
			return m.observer.Get(name).Holder == leaseapi.LeaderLockIdentity(m.config.Fleet)
		})
}

// releaseStopped releases the leader locks that name the fleet if, by a fresh list, all members are
// still. If several members do so at once, only the first succeeds.
func (m *Member) releaseStopped(ctx context.Context) {
	logger := klog.FromContext(ctx)
	list, err := m.list(ctx, metav1.ListOptions{})
	if err != nil {
		logger.Error(err, "Could not read whether all members are still, leaving the leader locks as they are")
		return
	}
	m.observeAll(list)
	if !m.mayRelease() {
		return
	}
	h := m.leaderLocks.current()
	for i, lock := range slices.Backward(h.all) {
		name := m.config.LeaderLocks[i]
		item := slices.IndexFunc(list.Items, func(l coordinationv1.Lease) bool { return l.Name == name })
		if item < 0 || leaserecord.From(&list.Items[item]).Holder != leaseapi.LeaderLockIdentity(m.config.Fleet) {
			continue
		}
		releasing, cancel := context.WithTimeout(ctx, m.config.Timing.RenewDeadline/2)
		switch err := lock.ReleaseAt(releasing, &list.Items[item]); {
		case errors.Is(err, leaderlock.ErrBusy):
			logger.V(2).Info("Another member has released the leader lock, or keeps it", "lease", name)
		case err != nil:
			logger.Error(err, "Could not release the leader lock, trying again", "lease", name)
		default:
			logger.Info("Released the leader lock: the fleet is stopped, and all members are still", "lease", name)
		}
		cancel()
	}
}

// allStill returns nil if every live member is still by the stop on the plan's Lease, and no shard
// is held.
func (m *Member) allStill() error {
	text, now := m.stopping.text(), m.config.Clock.Now()
	if said := m.observer.Get(leaseapi.PlanLease(m.config.Fleet)).Annotations[leaseapi.StopAnnotation]; text == "" || said != text {
		return fmt.Errorf("the stop on the plan's Lease is %q, and %q is obeyed", said, text)
	}
	for _, member := range m.Roster().Members() {
		if member.Annotations[leaseapi.StillAnnotation] != text {
			return fmt.Errorf("member %s is not still", member.Name)
		}
	}
	for _, o := range m.observer.List() {
		if m.isShard(o) && m.isHeld(o, now) {
			return fmt.Errorf("shard Lease %s is held by %s", o.Name, o.Holder)
		}
	}
	return nil
}

// stoppedBy returns why the member is not ready while the fleet is stopped.
func (m *Member) stoppedBy(stop leaseapi.Stop) error {
	member, now := m.config.Member, m.config.Clock.Now()
	if !m.stopping.isStill() {
		return fmt.Errorf("%w%s: member %s has not yet released all of its shards", errStopped, stop, member)
	}
	err := fmt.Errorf("%w%s: member %s stands by", errStopped, stop, member)
	if pending := m.leaderLocks.pending(now); pending != nil {
		err = fmt.Errorf("%w: %w", err, pending)
	}
	return err
}
