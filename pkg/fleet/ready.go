package fleet

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// patience is for how long a member that has been ready stays so while it does not run a shard that
// it was given since: as long as the alert FlotillaShardNotStarting waits before it pages.
const patience = 5 * time.Minute

// readiness is what a member's probe remembers between two questions. It is safe for concurrent
// use.
type readiness struct {
	mu sync.Mutex
	// once is set when the member has been complete for the first time.
	once bool
	// since is from when on it has not run a shard that it is to run, as far as it was asked.
	since map[shard.ID]time.Time
	// hidden is from when on something else has been wrong, so that it is not known what is
	// missing; zero while that is known.
	hidden time.Time
}

// complete records that every shard is run that is to be.
func (r *readiness) complete() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.once, r.since, r.hidden = true, nil, time.Time{}
}

// hide records that something else is wrong than that shards are not run. A Lease or a leader lock
// that comes and goes gives no shard more time.
func (r *readiness) hide(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.hidden.IsZero() {
		r.hidden = now
	}
}

// patient records which shards are to be run and are not, and reports whether the member is ready
// all the same.
func (r *readiness) patient(missing []shard.ID, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.hidden.IsZero() && now.Sub(r.hidden) >= patience {
		r.since = nil // What was missing before a long outage is no sign of a fault.
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

// Ready returns nil when a rollout may go on, else an error that says what is missing. A member
// that has started is ready when it is complete ([Member.Complete]). After that a takeover, a
// planned move or another plan leaves it ready, unless a shard that it is to run has not run for
// five minutes: Kubernetes deletes every pod of a parallel StatefulSet that is to be replaced and
// is not ready, so a fleet whose members were unready while they take over from each other would
// end at once. Time counts from when it was first asked, and goes on while something else is wrong
// for less than five minutes. Out of the fleet, and while that is stopped, no member is ready.
func (m *Member) Ready() error {
	err := m.Complete()
	return m.readiness.judge(err, m.config.Clock.Now())
}

// judge returns why the member is not ready, by why it is not complete.
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

// missingError says which shards a member is to run and does not.
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
// every shard that they give it, else an error that says what is missing. While the fleet is
// stopped no member is complete.
func (m *Member) Complete() error {
	if stop := m.Stopped(); stop != nil {
		return m.stoppedBy(*stop)
	}
	pending := m.leaderLocks.pending(m.config.Clock.Now())
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
	if err := m.misfit(); err != nil {
		return err
	}
	var missing []shard.ID
	for _, s := range m.Shards() {
		if s.Owner == m.config.Member && !(s.Owned && s.Running) {
			missing = append(missing, s.ID)
		}
	}
	if len(missing) > 0 {
		return missingError{m.config.Member, missing}
	}
	return nil
}
