package fleet

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/klog/v2"

	"github.com/flotilla-kube/flotilla/internal/faults"
	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
)

// prepareSuccessor builds and warms an instance, in turn with other preparations. It tries until it
// succeeds or ctx ends.
func (w *working) prepareSuccessor(ctx context.Context) (*preparation, error) {
	m := w.member
	backoff := m.retry()
	for {
		slot, err := m.slots.wait(ctx)
		if err != nil {
			return nil, err
		}
		p, err := w.warmed(ctx)
		slot.giveBack()
		if err == nil || ctx.Err() != nil {
			return p, err
		}
		pause := backoff.Step()
		klog.FromContext(ctx).Error(err, "Could not prepare for the shard, trying again", "shard", w.shard.ID, "after", pause)
		m.pause(ctx, pause)
	}
}

// warmed returns an instance whose caches are filled. It gives up after as long as any preparation
// may take, so that others get its slot.
func (w *working) warmed(ctx context.Context) (*preparation, error) {
	longest := w.member.longestFill()
	ctx, cancel := context.WithTimeoutCause(ctx, longest, fmt.Errorf("the caches are not filled after %v", longest))
	defer cancel()
	p, err := w.newPreparation()
	if err != nil {
		return nil, err
	}
	p.began = w.member.config.Clock.Now()
	defer w.bound(ctx.Done())()
	if err = p.build(context.WithoutCancel(ctx), w.shardRunner); err == nil {
		err = p.instance.Warm(ctx)
	}
	if err != nil {
		w.discard(p)
		return nil, err
	}
	w.prepared(p, w.claim.Term())
	return p, nil
}

// waitForRelease returns true when none of the rivals last found holds any of the shard, and false
// when ctx has ended, as it does when the shard leaves the plan. The caller then looks again by the
// newest plan. That look must not count any of these as rivals, or the two would loop forever.
func (w *working) waitForRelease(ctx context.Context) bool {
	m := w.member
	names := names(w.found.rivals)
	// A rival that renews goes on; the loop sees that when the rival would have expired. A hundred
	// shards of a member may wait here while a thousand move, so only changes that matter wake
	// them.
	changed, stop := m.observer.SubscribeChanges(func(before, after election.Observation) bool {
		if _, member := leaseapi.MemberOn(m.config.Fleet, after); member {
			return before.Exists != after.Exists || before.Annotations[leaserecord.EndedAnnotation] != after.Annotations[leaserecord.EndedAnnotation]
		}
		return slices.Contains(names, after.Name) && leaseapi.MayMoveShards(before, after)
	})
	defer stop()
	for ctx.Err() == nil {
		now := m.config.Clock.Now()
		rivals := w.holding(names, now)
		if len(rivals) == 0 {
			return true
		}
		next := m.nextExpiry(rivals).Sub(now)
		if next <= 0 {
			next = m.config.Timing.RetryPeriod // silent, and about to be listed as ended
		}
		m.await(ctx, changed, next)
	}
	return false
}

// holding returns those of the named Leases that have a holder and cover some of the shard.
func (w *working) holding(names []string, now time.Time) []election.Observation {
	m := w.member
	plan := m.inForce.Load()
	var rivals []election.Observation
	for _, name := range names {
		o := m.observer.Get(name)
		if says, _ := m.covers.Of(o, m.config.Fleet, plan); says.Overlaps(w.extent) && o.IsHeld(now, m.config.Timing.LeaseDuration) {
			rivals = append(rivals, o)
		}
	}
	return rivals
}

// waitForDesertion returns true when none of the rivals last found has held any of the shard for
// fillTimeout, and false when ctx has ended.
func (w *working) waitForDesertion(ctx context.Context) bool {
	m := w.member
	for w.waitForRelease(ctx) {
		m.pause(ctx, m.fillTimeout())
		if ctx.Err() == nil && len(w.holding(names(w.found.rivals), m.config.Clock.Now())) == 0 {
			return true
		}
	}
	return false
}

// nextExpiry returns when the first of the Leases expires.
func (m *Member) nextExpiry(leases []election.Observation) time.Time {
	var first time.Time
	for _, o := range leases {
		if at := o.ExpiresAt(m.config.Timing.LeaseDuration); first.IsZero() || at.Before(first) {
			first = at
		}
	}
	return first
}

// catchUp returns nil once the caches of the instance in hand have seen the last writes of the
// predecessors in their terms. The holders that died have already been fenced.
func (w *working) catchUp(ctx context.Context) error {
	m, instance := w.member, w.hand.instance
	var unknown error
	for _, name := range slices.Sorted(maps.Keys(w.predecessors)) {
		lease := m.observer.Get(name)
		writes, left := lease.Writes()
		if !left || writes.Term != w.predecessors[name] || len(writes.Unknown()) > 0 {
			unknown = fmt.Errorf("the last holder of %s did not leave what it wrote last", name)
			continue
		}
		if faults.SuccessionStale {
			continue
		}
		if err := w.within(ctx, func(ctx context.Context) error { return instance.CatchUp(ctx, writes) }); err != nil {
			return err
		}
	}
	if unknown == nil || faults.SuccessionStale {
		return nil
	}
	if refresher, ok := instance.(Refresher); ok {
		return m.refresh(ctx, refresher, w.hand.took)
	}
	return unknown
}

// refreshTimeouts is the least bound of a check of caches against the present, in HandoffTimeouts.
// Where nothing changes, a check needs a watch of a second or two for each kind, a few kinds at a
// time.
const refreshTimeouts = 3

// refresh checks a prepared instance against the present. It may take as long as it took to fill
// the caches, but no longer than fillTimeout: to fill empty ones would probably take that long
// again, and gives a member that is short of CPU even more to do.
func (m *Member) refresh(ctx context.Context, refresher Refresher, filling time.Duration) error {
	most := min(max(refreshTimeouts*m.config.HandoffTimeout, filling), m.fillTimeout())
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	return refresher.Refresh(ctx)
}

// within runs a step of a handoff within HandoffTimeout.
func (w *working) within(ctx context.Context, step func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, w.member.config.HandoffTimeout)
	defer cancel()
	return step(ctx)
}

func names(leases []election.Observation) []string {
	var out []string
	for _, o := range leases {
		out = append(out, o.Name)
	}
	return out
}
