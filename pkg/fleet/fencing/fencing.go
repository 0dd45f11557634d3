package fencing

import (
	"context"
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
	"github.com/flotilla-kube/flotilla/pkg/election/request"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
)

const (
	// EventFenced: a dead incarnation, Holder, was fenced on its member's Lease, in Duration.
	EventFenced election.EventType = "fenced"
	// EventRefused: the API server did not let this member write the mark, because of Err.
	EventRefused election.EventType = "fence-refused"
)

// Config configures a Fencing. All fields are required.
type Config struct {
	// Fleet is the fleet's name, Incarnation the member's.
	Fleet, Incarnation string
	Leases             election.LeaseWriter
	Observer           *election.Observer
	Clock              election.Clock
	Timing             election.Timing
	// Enforced reports whether the API server refuses fenced credentials. Marked is called once,
	// when this incarnation turns out to have been fenced. Neither may block, nor call the Fencing.
	Enforced func() bool
	Marked   func()
	// Observe receives the events.
	Observe func(election.Event)
}

// Fencing marks the Leases of dead members, so that the API server refuses what they still send. It
// also notices when this member has been marked.
type Fencing struct {
	config Config
	// turn holds one token: a mark is written once, however many shards a dead member leaves.
	turn chan struct{}
	// self is set once this incarnation has been fenced.
	self atomic.Bool

	mu sync.Mutex
	// seen is when this process first saw each incarnation fenced.
	seen map[string]time.Time
	// refused are the incarnations that the API server did not let this process mark, as long as no
	// other incarnation holds the member's Lease.
	refused map[string]bool
}

// New returns a Fencing that has seen nothing.
func New(c Config) *Fencing {
	return &Fencing{config: c, turn: make(chan struct{}, 1), seen: map[string]time.Time{}, refused: map[string]bool{}}
}

// IsMarked reports whether this incarnation has been fenced.
func (f *Fencing) IsMarked() bool { return f.self.Load() }

// Look records when incarnations were first seen fenced, calls Marked if this one is, and forgets
// refusals that do not matter any more.
func (f *Fencing) Look(ctx context.Context, s leaseapi.Snapshot) {
	f.mu.Lock()
	defer f.mu.Unlock()
	seen := make(map[string]time.Time, len(f.seen))
	for _, incarnation := range f.marked(s.Leases()) {
		seen[incarnation] = s.Now()
		if first, known := f.seen[incarnation]; known {
			seen[incarnation] = first
		}
	}
	f.seen = seen
	for incarnation := range f.refused {
		// While the Lease has no holder, because of the strike, a mark may still be asked for.
		lease := s.Get(f.leaseOf(incarnation))
		if !lease.Exists || lease.Holder != "" && lease.Holder != incarnation {
			delete(f.refused, incarnation)
		}
	}
	if _, marked := seen[f.config.Incarnation]; marked && !f.self.Swap(true) {
		klog.FromContext(ctx).Error(nil, "Fenced by another member: the API server refuses this process's credentials", "incarnation", f.config.Incarnation)
		f.config.Marked()
	}
}

// marked returns the incarnations that are fenced on their members' Leases. A mark on another Lease
// may be anybody's.
func (f *Fencing) marked(leases []election.Observation) []string {
	var all []string
	for _, o := range leases {
		for _, incarnation := range o.FencedIncarnations() {
			if f.leaseOf(incarnation) == o.Name {
				all = append(all, incarnation)
			}
		}
	}
	return all
}

// leaseOf returns the name of the Lease of an incarnation's member.
func (f *Fencing) leaseOf(incarnation string) string {
	return leaserecord.MemberLease(f.config.Fleet, leaserecord.MemberOf(incarnation))
}

// markedAt returns when this process first saw the incarnation fenced, which may be now.
func (f *Fencing) markedAt(incarnation string, now time.Time) time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, known := f.seen[incarnation]; !known {
		f.seen[incarnation] = now
	}
	return f.seen[incarnation]
}

// Since returns the time since which everybody who has died is fenced, the given holders of Leases
// among them; an empty holder is none. Usually the mark came with the strike; if the striking
// member did not know of the policy, Since writes it. It does so for all who were struck without a
// mark, even if there is no dead holder: the member that took their shards may have died before it
// had written the mark, or have given a shard back without it. Since returns the zero time if
// nobody is marked, and if the API server does not enforce the fence or lets nobody be marked. Then
// only the Lease's expiry protects the shard. If ctx has ended, marks may be missing.
func (f *Fencing) Since(ctx context.Context, holders ...string) time.Time {
	if !f.config.Enforced() || faults.MarkSkipped {
		return time.Time{}
	}
	var since time.Time
	for _, dead := range holders {
		if dead == "" || dead == f.config.Incarnation {
			continue
		}
		if at := f.mark(ctx, dead); at.After(since) {
			since = at
		}
	}
	for _, incarnation := range f.unmarked() {
		f.mark(ctx, incarnation)
	}
	now := f.config.Clock.Now()
	for _, incarnation := range f.marked(f.config.Observer.List()) {
		if at := f.markedAt(incarnation, now); at.After(since) {
			since = at
		}
	}
	return since
}

// unmarked returns the incarnations that were struck without a mark, except those whose credentials
// have expired long ago: each mark costs every write of the cluster a little.
func (f *Fencing) unmarked() []string {
	var all []string
	now := f.config.Clock.Now()
	for _, o := range f.config.Observer.List() {
		if now.Sub(o.Seen) > leaserecord.FencedFor {
			continue
		}
		if incarnation, found := o.Unmarked(); found && f.leaseOf(incarnation) == o.Name {
			all = append(all, incarnation)
		}
	}
	return all
}

// mark fences a dead incarnation and returns the time since which it is fenced, or the zero time if
// there was nothing to fence or this member lacks permission. It tries until it has an answer or
// ctx ends.
func (f *Fencing) mark(ctx context.Context, dead string) time.Time {
	select {
	case f.turn <- struct{}{}:
		defer func() { <-f.turn }()
	case <-ctx.Done():
		return time.Time{}
	}
	if f.isRefused(dead) {
		return time.Time{}
	}
	began := f.config.Clock.Now()
	report := func(kind election.EventType, err error) {
		name := f.leaseOf(dead)
		f.config.Observe(election.Event{Type: kind, Name: name, Holder: dead, Duration: f.config.Clock.Now().Sub(began), Err: err})
	}
	backoff := f.config.Timing.RetrySoon()
	for conflict := false; ctx.Err() == nil; {
		done, marked, err := f.tryMark(ctx, dead)
		now := f.config.Clock.Now()
		switch {
		case done && marked:
			since := f.markedAt(dead, now)
			report(EventFenced, nil)
			return since
		case done && err == nil:
			if lease := f.config.Observer.Get(f.leaseOf(dead)); !lease.Fenced(dead) {
				return time.Time{}
			}
			return f.markedAt(dead, now)
		case done:
			f.setRefused(dead)
			report(EventRefused, err)
			return time.Time{}
		case apierrors.IsConflict(err) && !conflict:
			conflict = true
			continue // tryMark has read the Lease again
		}
		conflict = false
		pause := backoff.Step()
		klog.FromContext(ctx).Error(err, "Could not fence a dead member, trying again", "incarnation", dead, "after", pause)
		election.Await(ctx, f.config.Clock, nil, pause)
	}
	return time.Time{}
}

// tryMark writes the mark on the Lease as it was observed. done means that there is nothing left to
// try; with an error, the failure is final. marked reports whether this call wrote the mark.
// Without done, the caller should try again because of the error.
func (f *Fencing) tryMark(ctx context.Context, dead string) (done, marked bool, err error) {
	name := f.leaseOf(dead)
	lease, needed := leaserecord.FenceIncarnation(f.config.Observer.Get(name).Lease, dead)
	if !needed {
		return true, false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, f.config.Timing.RequestTimeout())
	defer cancel()
	written, err := f.config.Leases.Update(ctx, lease, metav1.UpdateOptions{})
	switch {
	case err == nil:
		f.config.Observer.Observe(written)
		return true, true, nil
	case request.IsRefused(err) || apierrors.IsNotFound(err):
		return true, false, fmt.Errorf("marking Lease %s: %w", name, err)
	case !apierrors.IsConflict(err):
		return false, false, err
	}
	current, getErr := f.config.Leases.Get(ctx, name, metav1.GetOptions{})
	if getErr != nil {
		return false, false, getErr
	}
	f.config.Observer.Observe(current)
	return false, false, err
}

func (f *Fencing) isRefused(incarnation string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.refused[incarnation]
}

func (f *Fencing) setRefused(incarnation string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refused[incarnation] = true
}
