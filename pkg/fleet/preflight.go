package fleet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"github.com/flotilla-kube/flotilla/internal/faults"
	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
)

// waitForLeases waits until all Leases have been listed, and logs why it waits.
func (m *Member) waitForLeases(ctx context.Context) bool {
	logger := klog.FromContext(ctx)
	last := ""
	synced, stop := m.observer.Subscribe(func(string) bool { return true })
	defer stop()
	if !m.observer.HasSynced() {
		m.await(ctx, synced, m.config.Timing.RetryPeriod) // usually milliseconds
	}
	err := wait.PollUntilContextCancel(ctx, m.config.Timing.RetryPeriod, true, func(ctx context.Context) (bool, error) {
		if m.observer.HasSynced() {
			m.failure.Store(nil)
			return true, nil
		}
		// The observer retries by itself and logs little. Ask once, to log the reason.
		_, err := m.list(ctx, metav1.ListOptions{Limit: 1})
		if err != nil && err.Error() != last {
			last = err.Error()
			m.failure.Store(&err)
			logger.Error(err, "Waiting to list and watch Leases: without them nothing is claimed", "member", m.config.Member)
		}
		return false, nil
	})
	return err == nil
}

// list reads the Leases within a bound. Without it, a lost answer would keep the caller waiting as
// long as the claim lives, which is forever: the heartbeat goes on meanwhile.
func (m *Member) list(ctx context.Context, options metav1.ListOptions) (*coordinationv1.LeaseList, error) {
	ctx, cancel := context.WithTimeout(ctx, m.config.Timing.RequestTimeout())
	defer cancel()
	return m.config.Leases.List(ctx, options)
}

// read lists the Leases, and records those that the observer keeps.
func (m *Member) read(ctx context.Context) (*coordinationv1.LeaseList, error) {
	list, err := m.list(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for _, lease := range list.Items { // a copy each: a pointer into the list would keep all of it
		if m.observer.Watches(lease.Name) {
			m.observer.Observe(&lease)
		}
	}
	return list, nil
}

// readAll reads the Leases, and returns what is now known of each that was there, sorted by name.
func (m *Member) readAll(ctx context.Context) ([]election.Observation, error) {
	list, err := m.read(ctx)
	if err != nil {
		return nil, err
	}
	var seen []election.Observation
	for i := range list.Items {
		if name := list.Items[i].Name; m.observer.Watches(name) {
			seen = append(seen, m.observer.Get(name))
		}
	}
	slices.SortFunc(seen, func(a, b election.Observation) int { return strings.Compare(a.Name, b.Name) })
	return seen, nil
}

var errStopped = errors.New("the fleet is stopped")

var errNotInPlan = errors.New("the shard is not in the plan")

// others are the Leases of other shards that cover some of what a shard covers.
type others struct {
	all []election.Observation
	// rivals are live, and must be released before the shard may run. dead are those whose holder
	// has died.
	rivals, dead []election.Observation
}

// wroteSince reports whether a holder of any of them may have written after then.
func (o others) wroteSince(then time.Time) bool {
	return slices.ContainsFunc(o.all, func(o election.Observation) bool { return o.Holder != "" || o.Seen.After(then) })
}

// preflight returns the Leases that concern a claim before it is used. It reads plan and Leases as
// they were when the claim was written to its Lease, or later. As each claim is on its Lease before
// its holder's preflight, at least one of two holders sees the other. preflight tries until it has
// read the Leases or ctx ends. It returns an error if the shard may not run at all.
func (m *Member) preflight(ctx context.Context, r *shardRunner) (others, error) {
	if m.awaitOwn(ctx, r) {
		return m.preflightIn(ctx, m.observer.List(), r)
	}
	backoff := m.config.Timing.RetrySoon()
	for ctx.Err() == nil {
		seen, err := m.lists.read(ctx, m.runners.all.Go, m.readAll)
		if err == nil {
			return m.preflightIn(ctx, seen, r)
		}
		if ctx.Err() != nil {
			break
		}
		pause := backoff.Step()
		klog.FromContext(ctx).Error(err, "Could not read the Leases before running the shard, trying again", "after", pause)
		m.pause(ctx, pause)
	}
	return others{}, context.Cause(ctx)
}

// awaitOwn returns true once the watch has reached the last write to the shard's Lease: then
// everything that anybody wrote before is known. A healthy watch delivers that within milliseconds.
// awaitOwn gives up on a watch that delivers nothing for a while, and on one whose versions cannot
// be compared; the caller then lists all Leases. A list costs a thousand times as much, so a watch
// that is merely behind, as all are under heavy writes, gets more time.
func (m *Member) awaitOwn(ctx context.Context, r *shardRunner) bool {
	reached, known := m.observer.ReachedSelf(r.lease)
	if !known {
		return false
	}
	if faults.PreflightHasty {
		return true
	}
	latest := m.config.Clock.Now().Add(m.config.Timing.RenewDeadline / 2)
	for ctx.Err() == nil && m.config.Clock.Now().Before(latest) {
		through := m.observer.Through()
		m.await(ctx, reached, m.config.Timing.RetryPeriod/2)
		if isClosed(reached) {
			return true
		}
		if m.observer.Through() == through {
			return false
		}
	}
	return false
}

func (m *Member) preflightIn(ctx context.Context, seen []election.Observation, r *shardRunner) (others, error) {
	if lease := m.observer.Get(r.lease); lease.Holder != m.incarnation {
		return others{}, fmt.Errorf("the Lease %s names %q", lease.Name, lease.Holder)
	}
	s := m.snapshotOf(seen, m.config.Clock.Now())
	plan := m.inForce.Load()
	if o := s.Get(leaseapi.PlanLease(m.config.Fleet)); o.Exists {
		plan = m.judge.Of(plan, o, m.snapshot()).Plan
	}
	if m.leadership.Look(ctx) {
		return others{}, errStopped
	}
	if !plan.Has(r.shard.ID, r.extent) {
		return others{}, fmt.Errorf("%w of generation %d", errNotInPlan, plan.Generation)
	}
	found := others{all: m.covers.Overlapping(s, plan, r.shard.ID, r.extent)}
	for _, o := range found.all {
		switch {
		case s.IsHeld(o) && !faults.PredecessorsIgnored:
			found.rivals = append(found.rivals, o)
		case o.Holder != "":
			found.dead = append(found.dead, o)
		}
	}
	return found, nil
}
