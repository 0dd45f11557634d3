package fleet

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/flotilla-kube/flotilla/internal/faults"
	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/election/fence"
	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/fleet/inforce"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/fleet/shardrun"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// shardRunner claims one shard and does its work. Package shardrun decides the next action, in two
// lanes: preparing.go carries out what it decides ahead of a claim, working.go what it decides
// under one. The claim and the lane that prepares take turns on one goroutine, the claimant's. The
// lane that works has one while it works.
type shardRunner struct {
	member *Member
	shard  shard.Shard
	// lease is the name of the shard's Lease.
	lease     string
	extent    shard.Extent
	claimant  *election.Claimant
	preparing *preparing
	// lacks are those of the shard's controllers that this member's build does not have.
	lacks []string
	// cancel ends run.
	cancel context.CancelFunc
	// term records how the shard comes here and goes. born is when the runner was made.
	term termRecord
	born time.Time

	// mu is held while now is replaced.
	mu  sync.Mutex
	now atomic.Pointer[standing]
}

// standing is everything known of a runner at one time. It is replaced, never changed.
type standing struct {
	run shardrun.State
	// prepared is the current preparation, from Filling until it is discarded or the work takes it.
	prepared *preparation
	// plan is the last plan in force that had the shard.
	plan *inforce.Plan
	// shunned is the plan on the plan's Lease that did not have the shard when it was claimed.
	shunned *string
	// writes are the last writes of the last work; nil if unknown.
	writes *fence.Writes
	// census is the last weight of the shard's namespaces, takes the memory that it took, writing
	// its recent writes, and counted the objects and namespaces; empty and nil before the first
	// count.
	census  string
	takes   *leaseapi.ShardMemory
	writing *int64
	counted *Counted
}

// update replaces the standing.
func (r *shardRunner) update(change func(*standing)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	next := *r.now.Load()
	change(&next)
	r.now.Store(&next)
}

// state returns where the shard stands.
func (r *shardRunner) state() shardrun.State { return r.now.Load().run }

// step makes a lane decide by the present state. It returns that state and the lane's next action.
// filled becomes the current preparation if the lane decides to fill it.
func (r *shardRunner) step(
	decide func(shardrun.Input) shardrun.Output, in shardrun.Input, filled *preparation,
) (before shardrun.State, out shardrun.Output) {
	r.mu.Lock()
	now := r.now.Load()
	before = now.run
	in.State, in.Now = before, r.member.config.Clock.Now()
	out = decide(in)
	if out.State != before { // in most turns nothing has changed
		next := *now
		next.run = out.State
		switch {
		case out.Action == shardrun.Fill:
			next.prepared = filled
		case !out.State.Preparation.Exists():
			next.prepared = nil
		}
		r.now.Store(&next)
	}
	r.mu.Unlock()
	if before.Work.Ready() != out.State.Work.Ready() {
		r.claimant.Touch() // to publish it on the Lease
	}
	return before, out
}

func (m *Member) newShardRunner(s shard.Shard, plan *inforce.Plan) (*shardRunner, error) {
	r := &shardRunner{
		member: m, shard: s, lease: leaseapi.ShardLease(m.config.Fleet, s.ID), extent: plan.Extents()[s.ID],
		born: m.config.Clock.Now(),
	}
	r.preparing = &preparing{shardRunner: r, backoff: m.retry()}
	r.now.Store(&standing{plan: plan})
	r.lacks = m.config.Catalogue.Lacks(r.extent.Controllers, scopeOf(s))
	var err error
	r.claimant, err = election.NewClaimant(election.ClaimantConfig{
		Name:         r.lease,
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
		Beside:       r.preparing.turn,
		Work:         r.work,
		OnEvent:      r.observe,
		DrainTimeout: m.drainTimeout,
		OnStuck:      func(stuck election.StuckClaim) { m.config.Exit(stuckReason(stuck)) },
	})
	return r, err
}

// run claims and prepares as assigned until ctx ends, and returns when all of it has ended.
func (r *shardRunner) run(ctx context.Context) {
	r.claimant.Run(ctx)
	r.preparing.requests.Wait()
}

// annotations returns what the holder publishes on the shard's Lease.
func (r *shardRunner) annotations() map[string]string {
	now := r.now.Load()
	plan := now.plan
	controllers := slices.Sorted(slices.Values(r.extent.Controllers))
	a := map[string]string{
		leaseapi.PlanAnnotation:        plan.Digest(),
		leaseapi.GenerationAnnotation:  strconv.FormatInt(plan.Generation, 10),
		leaseapi.ControllersAnnotation: strings.Join(controllers, ","),
		leaseapi.LacksAnnotation:       strings.Join(r.lacks, ","),
		leaseapi.RangeAnnotation:       "",
		leaseapi.ReadyAnnotation:       "",
		leaseapi.RunningAnnotation:     "",
		leaseapi.CensusAnnotation:      "",
	}
	if r.shard.Namespaced() {
		a[leaseapi.RangeAnnotation] = r.shard.Range.String()
	}
	if term := now.run.Work.Ready(); term > 0 && !faults.ReadyUnsaid {
		a[leaseapi.ReadyAnnotation] = strconv.Itoa(int(term))
	}
	if term := now.run.Work.Running(); term > 0 {
		a[leaseapi.RunningAnnotation] = strconv.Itoa(int(term))
	}
	if claim := r.claimant.Claim(); claim != nil {
		a[leaserecord.StoppedAnnotation] = ""
		if d, stopped := r.term.overdue(claim.Term(), r.member.config.Clock.Now()); stopped {
			a[leaserecord.StoppedAnnotation] = leaserecord.StoppedText(claim.Term(), d)
		}
	}
	if now.census != "" {
		a[leaseapi.CensusAnnotation] = now.census
	}
	if now.takes != nil {
		a[leaseapi.MemoryAnnotation] = now.takes.String()
	}
	if now.writing != nil {
		a[leaseapi.RecentWritesAnnotation] = strconv.FormatInt(*now.writing, 10)
	}
	return a
}

// leave returns the annotations that a term leaves on the Lease for the next holder.
func (r *shardRunner) leave(term int32) map[string]string {
	left := map[string]string{}
	if d, known := r.term.unrun(term, r.member.config.Clock.Now()); known {
		left[leaserecord.StoppedAnnotation] = leaserecord.StoppedText(term, d)
	}
	if writes := r.now.Load().writes; writes != nil {
		left[leaserecord.WritesAnnotation] = writes.Annotation()
	}
	return left
}

// goal is what a runner should reach: the state of its claim, and what it should prepare.
type goal struct {
	desired election.Desired
	// holder is the incarnation that holds a Wanted shard, for term.
	holder string
	term   int32
	shardrun.Goal
}

// assign gives the runner a goal.
func (r *shardRunner) assign(g goal) {
	r.claimant.SetDesired(g.desired)
	if g.Wanted {
		r.term.want(g.holder, g.term) // another one may hold it by now
	}
	if r.state().Goal == g.Goal {
		return // the usual case, for most of a thousand shards
	}
	if !g.Owned {
		r.term.want("", 0)
	}
	r.update(func(now *standing) { now.run.Goal = g.Goal })
	r.claimant.Nudge()
}
