package fleet

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// ShardState is what a member knows of one shard.
type ShardState struct {
	ID shard.ID
	// Owned tells whether this member holds a valid claim, of this Term.
	Owned bool
	Term  int32
	// Running tells whether the shard's work has been started.
	Running bool
	// Waiting tells whether it is prepared and waits for shards of an older plan generation to be released.
	Waiting bool
	// Stage is where it stands on this member.
	Stage Stage
	// Counted is what it weighed last under this claim; nil if it is not owned or has not been counted.
	Counted *Counted
	// RenewAge is how long ago the member's last confirmed heartbeat was started; 0 when not owned.
	RenewAge time.Duration
	// Owner is the member that the ring wants; empty while the fleet is stopped.
	Owner string
	// Holder is the incarnation that the Lease names, empty if none.
	Holder string
}

// Shards returns the state of every shard of the plan, and of those of an older plan that this member still has, sorted by ID.
func (m *Member) Shards() []ShardState {
	now, wishes, halts := m.config.Clock.Now(), m.Wishes(), m.stopping.halts()
	runners := m.runners.list()
	states := make([]ShardState, 0, len(runners))
	for _, r := range runners {
		s := ShardState{ID: r.shard.ID, Owner: wishes.Owner(r.shard.ID), Running: r.running.Load(), Waiting: r.ready.Load() > 0}
		if halts {
			s.Owner = ""
		}
		s.Holder = m.observer.Get(ShardLease(m.config.Fleet, s.ID)).Holder
		claim := r.claimant.Claim()
		s.Stage = r.stage(claim)
		if claim != nil && claim.Valid(now) {
			s.Owned, s.Term, s.RenewAge, s.Counted = true, claim.Term(), now.Sub(claim.LastRenew()), r.counted.Load()
		}
		states = append(states, s)
	}
	return states
}

// Ready returns nil when the member counts for the rings, or is drained, and holds and runs every shard
// that they give it, else an error that says what is missing. While the fleet is stopped no member is ready.
func (m *Member) Ready() error {
	if stop := m.Stopped(); stop != nil {
		return m.stoppedBy(*stop)
	}
	if !m.started.Load() {
		err := fmt.Errorf("member %s has not joined the fleet %s", m.config.Member, m.config.Fleet)
		if failure := m.failure.Load(); failure != nil {
			err = fmt.Errorf("%w: %w", err, *failure)
		}
		if pending := m.gates.pending(m.config.Clock.Now()); pending != nil {
			err = fmt.Errorf("%w: %w", err, pending)
		}
		if refused := m.Refused(); refused != nil {
			err = fmt.Errorf("%w: it refuses the plan: %w", err, refused)
		}
		return err
	}
	if !slices.Contains(m.Wishes().members, m.config.Member) && !m.isDrained() {
		return fmt.Errorf("member %s is %s and has no shards", m.config.Member, m.membership.State())
	}
	if err := m.misfit(); err != nil {
		return err
	}
	var missing []string
	for _, s := range m.Shards() {
		if s.Owner == m.config.Member && !(s.Owned && s.Running) {
			missing = append(missing, s.ID.String())
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("member %s does not yet run %s", m.config.Member, strings.Join(missing, ", "))
	}
	return nil
}

// isDrained tells whether an operator has drained this member.
func (m *Member) isDrained() bool {
	return m.observer.Get(election.MemberLease(m.config.Fleet, m.config.Member)).Annotations[DrainAnnotation] != ""
}
