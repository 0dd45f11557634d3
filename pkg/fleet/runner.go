package fleet

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/flotilla-kube/flotilla/internal/faults"
	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/election/fence"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// shardRunner claims one shard and does its work.
type shardRunner struct {
	member   *Member
	shard    shard.Shard
	extent   shard.Extent
	claimant *election.Claimant
	// lacks are those of its controllers that this member's build does not have.
	lacks []string
	// cancel ends run.
	cancel context.CancelFunc
	// plan is the last one in force that had the shard.
	plan atomic.Pointer[inForce]
	// ready is the term in which everything is prepared and the shard waits for its predecessors; 0
	// otherwise.
	ready atomic.Int32
	// shunned is the plan on its Lease without which the shard was found, when it was claimed.
	shunned atomic.Pointer[string]
	// runs is the term in which the work runs; 0 otherwise.
	runs atomic.Int32
	// census is what the shard's namespaces weighed last.
	census atomic.Pointer[string]
	// takes is what it took of the memory.
	takes atomic.Pointer[leaseapi.ShardMemory]
	// counted is how many objects and namespaces that was.
	counted atomic.Pointer[Counted]
	// running reports whether the work has been started and has not returned, up whether its
	// controllers run, waits whether its predecessors must be released first.
	running, up, waits atomic.Bool
	// term is how the shard came here and goes; born is when the runner was made.
	term termRecord
	born time.Time
	// owned, wanted and standby are those of its goal. changed is told of each change.
	owned, wanted, standby atomic.Bool
	changed                chan struct{}
	// writes is what the last work has written last.
	writes atomic.Pointer[fence.Writes]

	mu       sync.Mutex
	prepared *preparation
}

func (m *Member) newShardRunner(s shard.Shard, plan *inForce) (*shardRunner, error) {
	r := &shardRunner{member: m, shard: s, extent: plan.extents[s.ID], changed: make(chan struct{}, 1), born: m.config.Clock.Now()}
	r.plan.Store(plan)
	r.lacks = m.config.Catalogue.Lacks(r.extent.Controllers, scopeOf(s))
	var err error
	r.claimant, err = election.NewClaimant(election.ClaimantConfig{
		Name:         leaseapi.ShardLease(m.config.Fleet, s.ID),
		Identity:     m.incarnation,
		Client:       m.config.Leases,
		Observer:     m.observer,
		Clock:        m.config.Clock,
		Timing:       m.config.Timing,
		Labels:       leaseapi.ShardLabels(m.config.Fleet, s.ID),
		Annotations:  r.annotations,
		Leave:        r.leave,
		Heartbeat:    m.membership,
		Revoked:      m.membership.Lost(),
		Work:         r.work,
		OnEvent:      r.observe,
		DrainTimeout: m.drainTimeout,
		OnStuck:      func(stuck election.StuckClaim) { m.config.Exit(stuckReason(stuck)) },
	})
	return r, err
}

// run claims and prepares as assigned until ctx ends, and returns when all of it has ended.
func (r *shardRunner) run(ctx context.Context) {
	var all sync.WaitGroup
	all.Go(func() { r.claimant.Run(ctx) })
	all.Go(func() { r.prepareWhileWanted(ctx) })
	all.Wait()
}

// annotations are what the holder says on the shard's Lease.
func (r *shardRunner) annotations() map[string]string {
	plan := r.plan.Load()
	a := map[string]string{
		leaseapi.PlanAnnotation:        plan.digest,
		leaseapi.GenerationAnnotation:  strconv.FormatInt(plan.plan.Generation, 10),
		leaseapi.ControllersAnnotation: strings.Join(slices.Sorted(slices.Values(r.extent.Controllers)), ","),
		leaseapi.LacksAnnotation:       strings.Join(r.lacks, ","),
		leaseapi.RangeAnnotation:       "",
		leaseapi.ReadyAnnotation:       "",
		leaseapi.RunningAnnotation:     "",
		leaseapi.CensusAnnotation:      "",
	}
	if r.shard.Namespaced() {
		a[leaseapi.RangeAnnotation] = r.shard.Range.String()
	}
	if term := r.ready.Load(); term > 0 && !faults.ReadyUnsaid {
		a[leaseapi.ReadyAnnotation] = strconv.Itoa(int(term))
	}
	if term := r.runs.Load(); term > 0 {
		a[leaseapi.RunningAnnotation] = strconv.Itoa(int(term))
	}
	if claim := r.claimant.Claim(); claim != nil {
		a[election.StoppedAnnotation] = ""
		if d, stopped := r.term.overdue(claim.Term(), r.member.config.Clock.Now()); stopped {
			a[election.StoppedAnnotation] = election.StoppedText(claim.Term(), d)
		}
	}
	if census := r.census.Load(); census != nil {
		a[leaseapi.CensusAnnotation] = *census
	}
	if takes := r.takes.Load(); takes != nil {
		a[leaseapi.MemoryAnnotation] = takes.String()
	}
	return a
}

// leave returns what to leave on the Lease of a term for the next holder.
func (r *shardRunner) leave(term int32) map[string]string {
	left := map[string]string{}
	if d, known := r.term.unrun(term, r.member.config.Clock.Now()); known {
		left[election.StoppedAnnotation] = election.StoppedText(term, d)
	}
	if writes := r.writes.Load(); writes != nil {
		left[election.WritesAnnotation] = writes.Annotation()
	}
	return left
}

// goal is what a runner is to reach.
type goal struct {
	// desired is the state of its claim.
	desired election.Desired
	// owned: this member is to own the shard. wanted: another one holds it meanwhile. standby: this
	// member would own it if its holder failed.
	owned, wanted, standby bool
}

// assign gives the runner a goal.
func (r *shardRunner) assign(g goal) {
	r.claimant.SetDesired(g.desired)
	changed := r.owned.Swap(g.owned) != g.owned
	changed = r.standby.Swap(g.standby) != g.standby || changed
	if r.wanted.Swap(g.wanted) != g.wanted || changed {
		select {
		case r.changed <- struct{}{}:
		default:
		}
	}
}

// work runs the shard for one term. Work that cannot be started is tried again while
// the claim holds: another member would hardly fare better, and the shard's failing
// is reported by its health check.
func (r *shardRunner) work(ctx context.Context, claim *election.Claim) {
	logger := klog.LoggerWithValues(klog.FromContext(ctx), "ring", r.shard.Ring, "shard", r.shard.Name, "term", claim.Term())
	ctx = klog.NewContext(ctx, logger)
	r.writes.Store(&fence.Writes{Term: claim.Term(), Shared: true}) // until it is known
	defer func() {
		if a := r.term.abandon(claim.Term(), true); a != nil {
			r.conclude(EventAbandoned, claim.Term(), a, nil)
		}
	}()
	found, err := r.member.look(ctx, r)
	r.term.succeedDead(found.dead)
	// Even if the shard may not run here: whoever has it next finds that it was released.
	fenced := r.fenceOff(ctx, claim, append(found.dead, claim.Before()))
	if err != nil && ctx.Err() == nil {
		r.refuse(claim.Term(), err)
	}
	if err != nil || !fenced {
		return
	}
	_, left := claim.Before().Writes()
	shared := found.wroteSince(claim.Before().Seen) || claim.Before().Exists && !left
	r.writes.Store(&fence.Writes{Term: claim.Term(), Shared: shared})
	var prepared *preparation
	var unheld time.Time
	if len(found.rivals) > 0 {
		if prepared, err = r.awaitPredecessors(ctx, claim, found.rivals); err != nil {
			r.refuse(claim.Term(), err)
			return
		}
	} else {
		prepared = r.take(ctx, claim, found)
		unheld = r.unheldAtClaim(claim)
	}
	backoff, failed := r.member.retry(), false
	for ctx.Err() == nil {
		err := r.once(ctx, claim, prepared, unheld, shared)
		if failed {
			r.writes.Store(nil) // what became of those of the other attempt is not known
		}
		if err == nil || ctx.Err() != nil {
			break
		}
		failed, prepared, unheld = true, nil, time.Time{}
		pause := backoff.Step()
		logger.Error(err, "Could not start the shard's work, trying again", "after", pause)
		r.member.pause(ctx, pause)
	}
	if prepared != nil && prepared.instance != nil {
		prepared.discard() // asked to stop before it began
	}
}

// once runs the shard until ctx ends, or returns why it could not be started. What was
// prepared is used up; unheld, as in Work, is for where nothing was; shared is as in
// fence.Writes.
func (r *shardRunner) once(ctx context.Context, claim *election.Claim, p *preparation, unheld time.Time, shared bool) error {
	m := r.member
	if p == nil {
		// A fence of its own for each attempt: what an earlier one may have left behind
		// has no way to write.
		var err error
		if p, err = r.newPreparation(); err != nil {
			return err
		}
		if err := p.build(context.WithoutCancel(ctx), r, unheld); err != nil {
			p.discard()
			return err
		}
	}
	if ctx.Err() != nil {
		p.discard()
		return nil // asked to stop while it was built
	}
	p.stopped = func() { r.term.stop(claim.Term(), m.config.Clock.Now()) }
	defer p.closeFence()
	r.term.resume(claim.Term())
	p.fence.Open(claim)
	if !claim.Valid(m.config.Clock.Now()) {
		p.discard()
		return nil // suspended meanwhile, and the claimant is about to notice
	}
	defer context.AfterFunc(claim.Context(), p.closeFence)()
	instance := p.instance
	p.instance = nil
	r.running.Store(true)
	defer r.running.Store(false)
	p.running = func() { r.up.Store(true); r.ran(claim.Term()) }
	defer r.up.Store(false)
	r.runs.Store(claim.Term())
	defer r.runs.Store(0)
	r.counted.Store(nil)
	counting, stop := context.WithCancel(ctx)
	var beside sync.WaitGroup
	beside.Go(func() { r.takeCensus(counting, instance) })
	beside.Go(func() { r.boundDrain(ctx, claim, p) })
	err := instance.Run(ctx)
	stop()
	p.closeFence()
	beside.Wait()
	forget(instance)
	writes := p.fence.Writes(claim.Term())
	writes.Shared = shared
	r.writes.Store(&writes)
	return err
}

// boundDrain closes the fence of work that goes on for HandoffTimeout after ctx has ended. It
// returns once the fence is closed.
func (r *shardRunner) boundDrain(ctx context.Context, claim *election.Claim, p *preparation) {
	select {
	case <-ctx.Done():
	case <-p.closed:
		return
	}
	if faults.DrainUnbounded {
		return
	}
	afterOrDone(r.member.config.Clock.NewTimer(r.member.config.HandoffTimeout), p.closed, func() {
		r.term.overrun(claim.Term())
		p.closeFence()
		if claim.Context().Err() == nil {
			r.claimant.Touch() // the Lease says so
			r.report(election.Event{Type: EventOverdue, Term: claim.Term(), Duration: r.member.overtime()})
		}
	})
}

// afterOrDone calls f when the timer fires, unless done is closed before.
func afterOrDone(timer clock.Timer, done <-chan struct{}, f func()) {
	defer timer.Stop()
	select {
	case <-timer.C():
		f()
	case <-done:
	}
}
