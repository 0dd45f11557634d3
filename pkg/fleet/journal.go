package fleet

import (
	"slices"
	"sync"
	"time"

	"github.com/flotilla-kube/flotilla/internal/faults"
	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/election/membership"
	"github.com/flotilla-kube/flotilla/pkg/fleet/history"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// maxTransitions is how many transitions a member remembers.
const maxTransitions = 200

// A JournalEntry is one transition that a member has observed.
type JournalEntry struct {
	history.Transition
	// Seen is the time by the member's clock. At is the wall-clock time, for people.
	Seen, At time.Time
}

// Journal returns the last 200 transitions that this member has observed on the fleet's Leases
// since it started, oldest first, without intermediate steps (see [history.Kind.IsStep]). A release
// and another member's following acquisition are one handover, whose Gap ends with the acquisition.
// If the member could not watch the Leases for a while, the journal shows what can be inferred
// afterwards; see package history.
func (m *Member) Journal() []JournalEntry { return m.journal.list() }

// Observed returns what this member has observed of the fleet's Leases and leader locks, sorted by
// name. It also returns the time by the member's clock, with which to compare the observations'
// times. The slice must not be changed.
func (m *Member) Observed() ([]election.Observation, time.Time) {
	return m.observer.List(), m.config.Clock.Now()
}

// journal records what a member has observed. Its methods are safe for concurrent use.
type journal struct {
	fleet string
	clock election.Clock

	mu      sync.Mutex
	entries []JournalEntry
	// silent has the incarnation of each member that was silent at the last look.
	silent map[string]string
	last   membership.Roster
}

func newJournal(fleet string, clock election.Clock) *journal {
	return &journal{fleet: fleet, clock: clock, silent: map[string]string{}}
}

// follow records what the observer sees until stop is called. It inspects every change while the
// observer records it, because the observer may merge changes before it reports them. Whenever the
// plan changes, that blocks the observer for the milliseconds that reading a plan takes.
func (j *journal) follow(observer *election.Observer) (stop func()) {
	if faults.Bare {
		return func() {}
	}
	_, stop = observer.SubscribeChanges(func(before, after election.Observation) bool {
		if happened := history.Between(j.fleet, before, after); len(happened) > 0 {
			j.add(happened...)
		}
		return false
	})
	return stop
}

// look records which members have fallen silent, or have returned, since the last call: no change
// of a Lease shows that.
func (j *journal) look(s leaseapi.Snapshot) {
	if faults.Bare {
		return
	}
	roster := s.Roster()
	j.mu.Lock()
	last := j.last
	j.last = roster
	j.mu.Unlock()
	for _, m := range last.Members() {
		o := s.Get(leaserecord.MemberLease(j.fleet, m.Name))
		if _, live := roster.Get(m.Name); !live && o.Holder == m.Incarnation {
			j.mu.Lock()
			j.silent[m.Name] = m.Incarnation
			j.mu.Unlock()
			j.add(history.Lapsed(j.fleet, o))
		}
	}
	for _, m := range roster.Members() {
		j.mu.Lock()
		before, silent := j.silent[m.Name]
		delete(j.silent, m.Name)
		j.mu.Unlock()
		if silent && before == m.Incarnation {
			j.add(history.Resumed(j.fleet, s.Get(leaserecord.MemberLease(j.fleet, m.Name))))
		}
	}
}

// add records the transitions that belong to the fleet. It joins a release and the acquisition that
// follows it.
func (j *journal) add(happened ...history.Transition) {
	seen, at := j.clock.Now(), time.Now()
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, t := range happened {
		ours := t.Shard != (shard.ID{}) || t.Member != "" || t.Lease == leaseapi.PlanLease(j.fleet)
		if !ours || t.Kind.IsStep() || t.Kind == history.Silent && j.isSilent(t.Member) {
			continue
		}
		e := JournalEntry{Transition: t, Seen: seen, At: at}
		if t.Kind == history.Acquired {
			e = j.joinRelease(e)
		}
		if len(j.entries) == maxTransitions {
			j.entries = slices.Delete(j.entries, 0, 1)
		}
		j.entries = append(j.entries, e)
	}
}

// isSilent reports whether a member's latest entry says that it is silent.
func (j *journal) isSilent(member string) bool {
	for _, e := range slices.Backward(j.entries) {
		if e.Member == member {
			return e.Kind == history.Silent
		}
	}
	return false
}

// joinRelease returns the acquisition as a handover if the journal has another member's release of
// the previous term. It removes that release.
func (j *journal) joinRelease(e JournalEntry) JournalEntry {
	for i, r := range slices.Backward(j.entries) {
		if r.Lease != e.Lease {
			continue
		}
		if r.Kind == history.Released && r.Term == e.Term-1 {
			j.entries = slices.Delete(j.entries, i, i+1)
			e.From, e.Gap = r.From, r.Gap+e.Seen.Sub(r.Seen)
			if e.From != e.To {
				e.Kind = history.HandedOver
			}
		}
		break
	}
	return e
}

func (j *journal) list() []JournalEntry {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.entries)
}
