package fleet

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// patience is how long a member that was ready stays ready while it does not run a shard that it
// was given later. The alert FlotillaShardNotStarting waits as long before it pages.
const patience = 5 * time.Minute

// readiness is what a member's probe remembers between two requests. It is safe for concurrent use.
type readiness struct {
	mu sync.Mutex
	// once is set when the member is first complete.
	once bool
	// since has, for each shard that the member should run and does not, when a probe first found
	// that.
	since map[shard.ID]time.Time
	// hidden is when another fault began to hide which shards are missing; zero while that is
	// known.
	hidden time.Time
}

// complete records that the member runs every shard that it should.
func (r *readiness) complete() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.once, r.since, r.hidden = true, nil, time.Time{}
}

// hide records a fault other than missing shards. A Lease or leader lock that comes and goes gives
// no shard more time.
func (r *readiness) hide(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.hidden.IsZero() {
		r.hidden = now
	}
}

// patient records which shards the member should run and does not, and reports whether the member
// is ready all the same.
func (r *readiness) patient(missing []shard.ID, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.hidden.IsZero() && now.Sub(r.hidden) >= patience {
		r.since = nil // What was missing before a long outage indicates no fault.
	}
	r.hidden = time.Time{}
	since := make(map[shard.ID]time.Time, len(missing))
	overdue := false
	for _, id := range missing {
		first, known := r.since[id]
		if !known {
			first = now
		}
		since[id] = first
		overdue = overdue || now.Sub(first) >= patience
	}
	r.since = since
	return r.once && !overdue
}

// Ready returns nil when a rollout may go on; otherwise the error says what is missing. A member
// that has started is ready when it is complete ([Member.Complete]). After that it stays ready
// through takeovers, planned moves and changes of plan, unless a shard that it should run has not
// run for five minutes. Otherwise a fleet whose members take over from each other would end at
// once, because Kubernetes deletes every pod of a parallel StatefulSet that is outdated and not
// ready. The time counts from the first probe that finds the shard missing, and goes on through
// other faults of less than five minutes. What others keep because they refuse the plan, and a
// prepared shard that waits for shards of an older plan, do not count as missing: a rollout may be
// what replaces those others. No member is ready before it has joined the fleet or while the fleet
// is stopped.
func (m *Member) Ready() error {
	refusers := sync.OnceValue(func() map[string]bool { return leaseapi.Refusers(m.Roster().Members(), m.inForce.Load().Generation) })
	err := m.lacks(func(s ShardStatus) bool {
		return s.Owned && (s.Running || s.Prepared) || refusers()[s.Holder]
	})
	return m.readiness.judge(err, m.config.Clock.Now())
}

// judge returns why the member is not ready, given why it is not complete.
func (r *readiness) judge(incomplete error, now time.Time) error {
	var missing missingError
	switch {
	case incomplete == nil:
		r.complete()
	case !errors.As(incomplete, &missing):
		r.hide(now)
		return incomplete
	case !r.patient(missing.shards, now):
		return incomplete
	}
	return nil
}

// missingError lists the shards that a member should run and does not.
type missingError struct {
	member string
	shards []shard.ID
}

// Error implements error.
func (e missingError) Error() string {
	ids := make([]string, 0, len(e.shards))
	for _, id := range e.shards {
		ids = append(ids, id.String())
	}
	return fmt.Sprintf("member %s does not yet run %s", e.member, strings.Join(ids, ", "))
}

// Complete returns nil when the member counts for the rings, or is drained, and holds and runs
// every shard that they give it; otherwise the error says what is missing. While the fleet is
// stopped no member is complete.
func (m *Member) Complete() error {
	return m.lacks(func(s ShardStatus) bool { return s.Owned && s.Running })
}

// lacks returns why the member is not complete, if has tells which shards it has.
func (m *Member) lacks(has func(ShardStatus) bool) error {
	if stop := m.Stopped(); stop != nil {
		return m.stoppedBy(*stop)
	}
	pending := m.leadership.Pending(m.config.Clock.Now())
	if !m.started.Load() {
		err := fmt.Errorf("member %s has not joined the fleet %s", m.config.Member, m.config.Fleet)
		if failure := m.failure.Load(); failure != nil {
			err = fmt.Errorf("%w: %w", err, *failure)
		}
		if pending != nil {
			err = fmt.Errorf("%w: %w", err, pending)
		}
		if refused := m.Refused(); refused != nil {
			err = fmt.Errorf("%w: it refuses the plan: %w", err, refused)
		}
		return err
	}
	if pending != nil {
		return fmt.Errorf("member %s: %w", m.config.Member, pending)
	}
	if !slices.Contains(m.Assignment().Members(), m.config.Member) && !m.isDrained() {
		return fmt.Errorf("member %s is %s and has no shards", m.config.Member, m.membership.State())
	}
	if err := m.judge.Misfit(m.inForce.Load().Plan, m.config.Rings); err != nil {
		return fmt.Errorf("member %s gets %w", m.config.Member, err)
	}
	var missing []shard.ID
	for _, s := range m.Shards() {
		if s.Owner == m.config.Member && !has(s) {
			missing = append(missing, s.ID)
		}
	}
	if len(missing) > 0 {
		return missingError{m.config.Member, missing}
	}
	return nil
}

// Stopped returns the stop of the fleet, as this member sees it; nil if the fleet is not stopped.
func (m *Member) Stopped() *leaseapi.Stop { return m.leadership.Stopped() }

// stoppedBy returns why the member is not ready while the fleet is stopped.
func (m *Member) stoppedBy(stop leaseapi.Stop) error {
	if !m.leadership.IsStill() {
		return fmt.Errorf("%w%s: member %s has not yet released all of its shards", errStopped, stop, m.config.Member)
	}
	err := fmt.Errorf("%w%s: member %s stands by", errStopped, stop, m.config.Member)
	if pending := m.leadership.Pending(m.config.Clock.Now()); pending != nil {
		err = fmt.Errorf("%w: %w", err, pending)
	}
	return err
}
