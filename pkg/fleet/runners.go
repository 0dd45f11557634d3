package fleet

import (
	"context"
	"maps"
	"slices"
	"sync"

	"k8s.io/klog/v2"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/fleet/inforce"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// runners has a member's runners: one for each shard in the plan, and one for each shard that has
// left the plan until its work has ended.
type runners struct {
	all sync.WaitGroup
	// left receives after a runner has ended, and whenever the assignment must be computed again.
	left chan struct{}

	mu sync.Mutex
	by map[shard.ID]*shardRunner
	// sorted are the runners, sorted by ID; nil if they have changed since it was made.
	sorted []*shardRunner
}

func newRunners() runners {
	return runners{left: make(chan struct{}, 1), by: map[shard.ID]*shardRunner{}}
}

// list returns the runners, sorted by ID. The slice must not be changed.
func (rs *runners) list() []*shardRunner {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if rs.sorted == nil {
		rs.sorted = slices.SortedFunc(maps.Values(rs.by), func(a, b *shardRunner) int { return a.shard.ID.Compare(b.shard.ID) })
	}
	return rs.sorted
}

// addLocked adds a runner, which replaces that of the same shard.
func (rs *runners) addLocked(r *shardRunner) { rs.by[r.shard.ID], rs.sorted = r, nil }

func (rs *runners) remove(id shard.ID) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	delete(rs.by, id)
	rs.sorted = nil
}

// startLocked runs r until ctx ends or r is cancelled.
func (rs *runners) startLocked(ctx context.Context, r *shardRunner) {
	ctx, r.cancel = context.WithCancel(ctx)
	rs.addLocked(r)
	rs.all.Go(func() {
		defer r.cancel()
		r.run(ctx)
		r.report(election.Event{Type: EventForgotten})
		rs.remove(r.shard.ID)
		select {
		case rs.left <- struct{}{}:
		default:
		}
	})
}

// follow keeps a runner for every shard in the plan, and ends those of other shards as soon as
// possible: at once if nothing runs, or if somebody has deleted the Lease, whether or not there is
// another one by now, because successors that looked meanwhile do not wait; otherwise when all
// their successors are ready.
func (m *Member) follow(ctx, claimCtx context.Context, s leaseapi.Snapshot) {
	plan := m.inForce.Load()
	ready := sync.OnceValue(func() func(shard.Extent) bool { return plan.SuccessorsReady(s, &m.covers) })
	retiring := false
	for _, r := range m.runners.list() {
		if r.now.Load().plan == plan {
			continue
		}
		if plan.Has(r.shard.ID, r.extent) {
			r.update(func(now *standing) { now.plan = plan })
			continue
		}
		if !retiring {
			retiring = true
			m.retiring.Store(true) // before ready looks at successors, so that no change is put off
		}
		if !r.state().Work.IsRunning() || r.lostLease(s) || ready()(r.extent) {
			r.cancel()
		} else {
			klog.FromContext(ctx).V(2).Info("Waiting for the successors of a shard that is not in the plan any more", "shard", r.shard.ID)
		}
	}
	if !retiring {
		m.retiring.Store(false)
	}
	m.runners.mu.Lock()
	defer m.runners.mu.Unlock()
	for _, planned := range plan.Shards() {
		if _, exists := m.runners.by[planned.ID]; exists {
			continue // perhaps one that has still to end
		}
		r, err := m.newShardRunner(planned, plan)
		if err != nil {
			klog.FromContext(ctx).Error(err, "Could not claim a shard", "shard", planned.ID)
			continue
		}
		m.runners.startLocked(claimCtx, r)
	}
	// Once others may list this incarnation as ended, a runner that was started to release a Lease
	// would give up at once and be started again forever.
	if heard, _ := m.membership.Confirmed(); s.Now().Before(heard.Add(m.config.Timing.LeaseDuration)) {
		m.releaseStraysLocked(ctx, claimCtx, plan, s)
	}
}

// lostLease reports whether the Lease that the runner's claim acquired does not exist any more.
func (r *shardRunner) lostLease(s leaseapi.Snapshot) bool {
	o, claim := s.Get(r.lease), r.claimant.Claim()
	return !o.Exists || claim != nil && o.Lease.UID != claim.LeaseUID()
}

// releaseStraysLocked releases Leases that name this incarnation, have no runner, and belong to
// shards that are not in the plan. Such a Lease comes from an acquisition that the API server
// carried out after its caller had stopped waiting. The incarnation would hold it as long as its
// heartbeat goes on, and the shard's successors would wait forever. The claim first lets a Lease
// that it did not ask for stand still for a lease duration.
func (m *Member) releaseStraysLocked(ctx, claimCtx context.Context, plan *inforce.Plan, s leaseapi.Snapshot) {
	for _, o := range s.Leases() {
		if o.Holder != m.incarnation || !s.IsShard(o) {
			continue
		}
		id, labelled := leaseapi.ShardOn(m.config.Fleet, o)
		_, planned := plan.Extents()[id]
		if _, exists := m.runners.by[id]; exists || planned || !labelled {
			continue
		}
		r, err := m.newShardRunner(shard.Shard{ID: id}, plan)
		if err != nil {
			klog.FromContext(ctx).Error(err, "Could not release a shard that is not in the plan", "shard", id)
			continue
		}
		klog.FromContext(ctx).V(1).Info("Releasing a shard that is not in the plan, and that nobody here has claimed", "shard", id, "term", o.Transitions)
		m.runners.startLocked(claimCtx, r)
		r.cancel()
	}
}
