package leadership

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/flotilla-kube/flotilla/pkg/election"
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
func (l *Leadership) Stopped() *leaseapi.Stop {
	l.stop.mu.Lock()
	defer l.stop.mu.Unlock()
	if l.stop.state.stop == nil {
		return nil
	}
	stop := *l.stop.state.stop
	return &stop
}

// Halts reports whether the member must not claim or run anything.
func (l *Leadership) Halts() bool { return l.stop.halts() }

// IsStill reports whether the fleet is stopped and nothing runs on this member.
func (l *Leadership) IsStill() bool { return l.stop.isStill() }

// StopText returns the value of [leaseapi.StopAnnotation] that the member obeys; empty if there is
// none.
func (l *Leadership) StopText() string { return l.stop.text() }

// StillText returns the value of [leaseapi.StillAnnotation]; empty if the member is not still.
func (l *Leadership) StillText() string { return l.stop.annotation() }

// Claims records that the member may claim. From then on it says by Rest when it is still.
func (l *Leadership) Claims() { l.stop.begin() }

// Look records the stop on the plan's Lease, and reports whether the member must not claim or run
// anything.
func (l *Leadership) Look(ctx context.Context) bool {
	name := leaseapi.PlanLease(l.config.Fleet)
	before, after := l.stop.look(
		func() election.Observation { return l.config.Observer.Get(name) },
		func() bool { return l.config.Snapshot().OthersShard(l.config.Incarnation).Exists },
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
		l.config.Membership.Touch() // a still member publishes which stop it obeys
	}
	return l.stop.halts()
}

// Rest makes the member still if the fleet is stopped. The loop that claims calls it once nothing
// is held and nothing runs.
func (l *Leadership) Rest(ctx context.Context) { l.rest(ctx, true) }

// rest makes the member still, see stopping.rest, and reports whether it is.
func (l *Leadership) rest(ctx context.Context, byClaims bool) bool {
	still, now := l.stop.rest(byClaims)
	if now {
		klog.FromContext(ctx).Info("Nothing runs here any more: standing by until the fleet is started")
		l.config.Membership.Touch()
	}
	return still
}

// untilStill returns when the member has become still, or ctx has ended.
func (l *Leadership) untilStill(ctx context.Context) {
	changed, stop := l.config.Observer.Subscribe(func(name string) bool { return name == leaseapi.PlanLease(l.config.Fleet) })
	defer stop()
	for ctx.Err() == nil {
		l.Look(ctx)
		if l.rest(ctx, false) {
			return
		}
		select {
		case <-changed:
		case <-l.stop.stilled:
		case <-ctx.Done():
		}
	}
}

// standStill returns when the fleet is not stopped and the member's Lease does not say that it is
// still, or when ctx has ended. Until then it releases the leader locks as soon as every member is
// still.
func (l *Leadership) standStill(ctx context.Context) {
	changed, stop := l.config.Observer.SubscribeChanges(leaseapi.MayMoveShards)
	defer stop()
	var tried time.Time
	for ctx.Err() == nil {
		l.Look(ctx)
		// A member that has not joined and does not know of the stop yet takes a cleared leader
		// lock again.
		if now := l.config.Clock.Now(); l.rest(ctx, false) && l.Stopped() != nil && now.Sub(tried) >= l.config.Timing.RetryPeriod && l.mayRelease() {
			tried = now
			l.releaseStopped(ctx)
		}
		if works, now := l.stop.resume(); works {
			if now {
				l.config.Membership.Touch()
				l.config.Resumed()
			}
			own := l.config.Observer.Get(leaserecord.MemberLease(l.config.Fleet, l.config.Member))
			if own.Holder != l.config.Incarnation || own.Annotations[leaseapi.StillAnnotation] == "" {
				return
			}
		}
		pause := l.config.Timing.RetryPeriod
		if again := tried.Add(pause).Sub(l.config.Clock.Now()); again > 0 {
			pause = again
		}
		election.Await(ctx, l.config.Clock, changed, pause)
	}
}

// mayRelease reports whether a leader lock names the fleet and all members are still.
func (l *Leadership) mayRelease() bool {
	s := l.config.Snapshot()
	return l.allStill(s) == nil &&
		slices.ContainsFunc(l.config.Locks, func(name string) bool {
			return s.Get(name).Holder == leaseapi.LeaderLockIdentity(l.config.Fleet)
		})
}

// releaseStopped releases the leader locks that name the fleet if, by a fresh list, all members are
// still. If several members do so at once, only the first succeeds.
func (l *Leadership) releaseStopped(ctx context.Context) {
	logger := klog.FromContext(ctx)
	list, err := l.config.Read(ctx)
	if err != nil {
		logger.Error(err, "Could not read whether all members are still, leaving the leader locks as they are")
		return
	}
	if !l.mayRelease() {
		return
	}
	l.release(ctx, list, "the fleet is stopped, and all members are still", "it is tried again")
}

// allStill returns nil if every live member is still by the stop on the plan's Lease, and no shard
// is held.
func (l *Leadership) allStill(s leaseapi.Snapshot) error {
	text := l.stop.text()
	if said := s.Get(leaseapi.PlanLease(l.config.Fleet)).Annotations[leaseapi.StopAnnotation]; text == "" || said != text {
		return fmt.Errorf("the stop on the plan's Lease is %q, and %q is obeyed", said, text)
	}
	for _, member := range s.Roster().Members() {
		if member.Annotations[leaseapi.StillAnnotation] != text {
			return fmt.Errorf("member %s is not still", member.Name)
		}
	}
	for _, o := range s.Leases() {
		if s.IsShard(o) && s.IsHeld(o) {
			return fmt.Errorf("shard Lease %s is held by %s", o.Name, o.Holder)
		}
	}
	return nil
}
