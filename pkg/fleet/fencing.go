package fleet

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/flotilla-kube/flotilla/internal/faults"
	"github.com/flotilla-kube/flotilla/pkg/election"
)

const (
	// EventFenced: a dead incarnation, Holder, has been fenced on its member's Lease. Duration is
	// how long that took.
	EventFenced election.EventType = "fenced"
	// EventFenceRefused: the API server does not let this member write the mark, because of Err.
	EventFenceRefused election.EventType = "fence-refused"
)

// ErrFenced is why Run returns when another member has fenced this incarnation.
var ErrFenced = errors.New("fenced by another member")

// fencing marks the Leases of dead members, so that the API server refuses what they still send,
// and finds out when this member has been marked itself.
type fencing struct {
	// turn holds one token: a mark is written once, however many shards a dead member leaves.
	turn chan struct{}
	// self is set once this incarnation has been fenced.
	self atomic.Bool

	mu sync.Mutex
	// seen is when this process first saw each incarnation fenced.
	seen map[string]time.Time
	// refused are those that the API server did not let this process mark.
	refused map[string]bool
}

func newFencing() *fencing {
	return &fencing{turn: make(chan struct{}, 1), seen: map[string]time.Time{}, refused: map[string]bool{}}
}

// PublishCredential has the id of a credential of this process's controllers written on the
// member's Lease, by which it can be fenced. Where the API server enforces the fence it returns
// once the id is there, and on an error the credential must not be used; else it does not wait.
func (m *Member) PublishCredential(ctx context.Context, c election.Credential) error {
	if !m.config.Enforced() {
		m.membership.Announce(c)
		return nil
	}
	// By then the member's Lease has been renewed, or is lost.
	ctx, cancel := context.WithTimeout(ctx, m.config.Timing.RenewDeadline)
	defer cancel()
	return m.membership.Publish(ctx, c)
}

// noteMarks remembers since when incarnations are fenced, and ends the membership if this one is.
func (m *Member) noteMarks(ctx context.Context, observations []election.Observation, now time.Time) {
	f := m.fencing
	f.mu.Lock()
	defer f.mu.Unlock()
	seen := make(map[string]time.Time, len(f.seen))
	for _, o := range observations {
		for _, incarnation := range o.FencedIncarnations() {
			if election.MemberLease(m.config.Fleet, election.MemberOf(incarnation)) != o.Name {
				continue // anybody may have written it
			}
			seen[incarnation] = now
			if first, known := f.seen[incarnation]; known {
				seen[incarnation] = first
			}
		}
	}
	f.seen = seen
	if _, marked := seen[m.incarnation]; marked && !f.self.Swap(true) {
		klog.FromContext(ctx).Error(nil, "Fenced by another member: the API server refuses this process's credentials", "incarnation", m.incarnation)
		m.membership.Revoke()
	}
}

// markedAt returns when this process first saw the incarnation fenced. It is now if it is only seen
// now.
func (f *fencing) markedAt(incarnation string, now time.Time) time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, known := f.seen[incarnation]; !known {
		f.seen[incarnation] = now
	}
	return f.seen[incarnation]
}

// fenceOff fences the holders that these Leases name, and returns once the API server refuses what
// they may still send: they did not release the Leases, and nobody runs what the shard covers
// before. It returns false if ctx has ended. Even then it goes on: for HandoffTimeout at most until
// they are marked, and for FenceDelay after that. Whoever has the shard next finds a Lease that was
// released, and fences nobody.
func (r *shardRunner) fenceOff(ctx context.Context, claim *election.Claim, leases []election.Observation) bool {
	m, held := r.member, klog.NewContext(claim.Context(), klog.FromContext(ctx))
	marking, cancel := context.WithCancel(held)
	defer cancel()
	defer context.AfterFunc(ctx, func() {
		afterOrDone(m.config.Clock.NewTimer(m.config.HandoffTimeout), marking.Done(), cancel)
	})()
	var last time.Time
	for _, o := range leases {
		since := m.fencedSince(marking, o.Holder)
		if marking.Err() != nil {
			r.setWrites(nil) // what is left on the Lease proves nothing
			return false
		}
		last = latest(last, since)
	}
	if left := last.Add(m.config.FenceDelay).Sub(m.config.Clock.Now()); left > 0 {
		m.pause(held, left)
	}
	if held.Err() != nil {
		r.setWrites(nil)
		return false
	}
	return ctx.Err() == nil
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// fencedSince returns the time since which a dead holder is fenced. As a rule the mark came with
// the strike; where the member that struck did not know of the policy, it is written here. It is
// long ago when the holder had released the shard and so is empty, when the API server enforces
// nothing, or when it does not let this member mark a Lease; then the Lease's expiry is all there
// is. It means nothing if ctx has ended.
func (m *Member) fencedSince(ctx context.Context, dead string) time.Time {
	if dead == "" || dead == m.incarnation || !m.config.Enforced() || faults.MarkSkipped {
		return time.Time{}
	}
	return m.mark(ctx, dead)
}

// mark fences a dead incarnation and returns the time since which it is fenced: long ago, if there
// was nothing to fence, or if this member has no right to. It tries until it has an answer, or ctx
// ends.
func (m *Member) mark(ctx context.Context, dead string) time.Time {
	f := m.fencing
	select {
	case f.turn <- struct{}{}:
		defer func() { <-f.turn }()
	case <-ctx.Done():
		return time.Time{}
	}
	if f.refused[dead] {
		return time.Time{}
	}
	began := m.config.Clock.Now()
	report := func(kind election.EventType, err error) {
		name := election.MemberLease(m.config.Fleet, election.MemberOf(dead))
		m.config.Observe(Event{Event: election.Event{Type: kind, Name: name, Holder: dead, Duration: m.config.Clock.Now().Sub(began), Err: err}})
	}
	backoff := m.retrySoon()
	for conflict := false; ctx.Err() == nil; {
		done, marked, err := m.tryMark(ctx, dead)
		now := m.config.Clock.Now()
		switch {
		case done && marked:
			since := f.markedAt(dead, now)
			report(EventFenced, nil)
			return since
		case done && err == nil:
			if lease := m.observer.Get(election.MemberLease(m.config.Fleet, election.MemberOf(dead))); !lease.Fenced(dead) {
				return time.Time{}
			}
			return f.markedAt(dead, now)
		case done:
			f.refused[dead] = true
			report(EventFenceRefused, err)
			return time.Time{}
		case apierrors.IsConflict(err) && !conflict:
			conflict = true
			continue // it has been read again
		}
		conflict = false
		pause := backoff.Step()
		klog.FromContext(ctx).Error(err, "Could not fence a dead member, trying again", "incarnation", dead, "after", pause)
		m.pause(ctx, pause)
	}
	return time.Time{}
}

// tryMark writes the mark on the Lease as it was observed. It is done, with or without a mark of
// its own, or to be tried again because of the error; done with an error is for good.
func (m *Member) tryMark(ctx context.Context, dead string) (done, marked bool, err error) {
	name := election.MemberLease(m.config.Fleet, election.MemberOf(dead))
	lease, needed := election.FenceIncarnation(m.observer.Get(name).Lease, dead)
	if !needed {
		return true, false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, m.config.Timing.RenewDeadline/2)
	defer cancel()
	written, err := m.config.Leases.Update(ctx, lease, metav1.UpdateOptions{})
	switch {
	case err == nil:
		m.observer.Observe(written)
		return true, true, nil
	case apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsNotFound(err):
		return true, false, fmt.Errorf("marking Lease %s: %w", name, err)
	case !apierrors.IsConflict(err):
		return false, false, err
	}
	current, getErr := m.config.Leases.Get(ctx, name, metav1.GetOptions{})
	if getErr != nil {
		return false, false, getErr
	}
	m.observer.Observe(current)
	return false, false, err
}
