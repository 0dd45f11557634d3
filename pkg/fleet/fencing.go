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
	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/election/membership"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
)

const (
	// EventFenced: a dead incarnation, Holder, was fenced on its member's Lease, in Duration.
	EventFenced election.EventType = "fenced"
	// EventFenceRefused: the API server did not let this member write the mark, because of Err.
	EventFenceRefused election.EventType = "fence-refused"
)

// ErrFenced is returned by Run when another member has fenced this incarnation.
var ErrFenced = errors.New("fenced by another member")

// fencing marks the Leases of dead members, so that the API server refuses what they still send. It
// also notices when this member has been marked.
type fencing struct {
	// turn holds one token: a mark is written once, however many shards a dead member leaves.
	turn chan struct{}
	// self is set once this incarnation has been fenced.
	self atomic.Bool

	mu sync.Mutex
	// seen is when this process first saw each incarnation fenced.
	seen map[string]time.Time
	// refused are the incarnations that the API server did not let this process mark.
	refused map[string]bool
}

func newFencing() *fencing {
	return &fencing{turn: make(chan struct{}, 1), seen: map[string]time.Time{}, refused: map[string]bool{}}
}

// PublishCredential writes the id of a credential of this process's controllers to the member's
// Lease, so that others can fence it. If the API server enforces the fence, PublishCredential
// returns once the id is there, and after an error the credential must not be used. Otherwise it
// does not wait.
func (m *Member) PublishCredential(ctx context.Context, c membership.Credential) error {
	if !m.config.Enforced() {
		m.membership.Announce(c)
		return nil
	}
	// By this deadline the member's Lease has been renewed or is lost.
	ctx, cancel := context.WithTimeout(ctx, m.config.Timing.RenewDeadline)
	defer cancel()
	return m.membership.Publish(ctx, c)
}

// noteMarks records when incarnations were first seen fenced, and ends the membership if this one
// is.
func (m *Member) noteMarks(ctx context.Context, s leaseapi.Snapshot) {
	f := m.fencing
	f.mu.Lock()
	defer f.mu.Unlock()
	seen := make(map[string]time.Time, len(f.seen))
	for _, o := range s.Leases() {
		for _, incarnation := range o.FencedIncarnations() {
			if leaserecord.MemberLease(m.config.Fleet, leaserecord.MemberOf(incarnation)) != o.Name {
				continue // anybody may have written it
			}
			seen[incarnation] = s.Now()
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

// markedAt returns when this process first saw the incarnation fenced, which may be now.
func (f *fencing) markedAt(incarnation string, now time.Time) time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, known := f.seen[incarnation]; !known {
		f.seen[incarnation] = now
	}
	return f.seen[incarnation]
}

// fenceOff fences the holders that these Leases name, because they did not release the Leases. It
// returns once the API server refuses what they may still send; nobody runs what the shard covers
// before that. It returns false if ctx has ended. Even then it goes on, for at most HandoffTimeout
// until the holders are marked, and then for FenceDelay. The next holder finds a Lease that was
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
			r.setWrites(nil) // the Lease's record of last writes proves nothing
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

// fencedSince returns the time since which a dead holder is fenced. Usually the mark came with the
// strike; if the striking member did not know of the policy, fencedSince writes it. It returns the
// zero time if the holder is empty because it released the shard, and if the API server does not
// enforce the fence or does not let this member mark the Lease. Then only the Lease's expiry
// protects the shard. The result is meaningless if ctx has ended.
func (m *Member) fencedSince(ctx context.Context, dead string) time.Time {
	if dead == "" || dead == m.incarnation || !m.config.Enforced() || faults.MarkSkipped {
		return time.Time{}
	}
	return m.mark(ctx, dead)
}

// mark fences a dead incarnation and returns the time since which it is fenced, or the zero time if
// there was nothing to fence or this member lacks permission. It tries until it has an answer or
// ctx ends.
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
		name := leaserecord.MemberLease(m.config.Fleet, leaserecord.MemberOf(dead))
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
			if lease := m.observer.Get(leaserecord.MemberLease(m.config.Fleet, leaserecord.MemberOf(dead))); !lease.Fenced(dead) {
				return time.Time{}
			}
			return f.markedAt(dead, now)
		case done:
			f.refused[dead] = true
			report(EventFenceRefused, err)
			return time.Time{}
		case apierrors.IsConflict(err) && !conflict:
			conflict = true
			continue // tryMark has read the Lease again
		}
		conflict = false
		pause := backoff.Step()
		klog.FromContext(ctx).Error(err, "Could not fence a dead member, trying again", "incarnation", dead, "after", pause)
		m.pause(ctx, pause)
	}
	return time.Time{}
}

// tryMark writes the mark on the Lease as it was observed. done means that there is nothing left to
// try; with an error, the failure is final. marked reports whether this call wrote the mark.
// Without done, the caller should try again because of the error.
func (m *Member) tryMark(ctx context.Context, dead string) (done, marked bool, err error) {
	name := leaserecord.MemberLease(m.config.Fleet, leaserecord.MemberOf(dead))
	lease, needed := leaserecord.FenceIncarnation(m.observer.Get(name).Lease, dead)
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
