package fleet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"github.com/flotilla-kube/flotilla/internal/faults"
	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/election/fence"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
)

// preparation is an instance that is built ahead of the claim, behind a fence that is
// closed until then.
type preparation struct {
	instance Instance
	fence    *fence.Fence
	// closed is closed once the fence lets no write pass any more.
	closed     chan struct{}
	closeFence func()
	// running is called once the instance's controllers run.
	running func()
	// stopped is called once the fence lets no write pass any more, before closed is closed.
	stopped func()
	// term is the one that was held when the preparation began: what was written before
	// that term is in its caches.
	term int32
	// followed is set if that term's holder ran the shard by then, as it said: others that had written to some of it, and were
	// gone before, are in the caches, too.
	followed bool
	// began is when it did, and derived whether its caches may be filled from what others had read since the shard had no holder.
	began   time.Time
	derived bool
	// unsecured is set if the leader locks were not held when the preparation began: others than
	// the fleet's members have written since.
	unsecured bool
	// under is the hold of the leader locks in which it began. In another one others may have
	// written too.
	under *hold

	cancel context.CancelFunc
	// done is closed once the instance is warm, or err is set.
	done chan struct{}
	err  error
	// taken or rejected is closed once the claim's work has decided about it.
	taken, rejected chan struct{}
}

// drainTimeout is how long the work of a shard may take to return once it has been asked to stop.
// For the first part of it the work may still write.
func (m *Member) drainTimeout() time.Duration { return m.config.HandoffTimeout + m.overtime() }

// overtime is how long work may go on behind a closed fence.
func (m *Member) overtime() time.Duration {
	most, shutdown := m.config.Timing.LeaseDuration, m.config.ShutdownTimeout
	if m.membership.State() == election.MemberLeaving && shutdown > 0 && !faults.ShutdownIgnored {
		return min(most, shutdown)
	}
	return most
}

// newPreparation returns one that has not been built.
func (r *shardRunner) newPreparation() (*preparation, error) {
	m := r.member
	f, err := fence.New(fence.Config{
		Member: m.incarnation, Shard: r.shard.ID.String(), Clock: m.config.Clock,
		Permit: m.leaderLocks.permit, OnRefused: r.refusedWrite,
	})
	if err != nil {
		return nil, err
	}
	p := &preparation{fence: f, closed: make(chan struct{}), done: make(chan struct{}), taken: make(chan struct{}), rejected: make(chan struct{}), cancel: func() {}, running: func() {}, stopped: func() {}}
	p.closeFence = sync.OnceFunc(func() { f.Close(); p.stopped(); close(p.closed) })
	return p, nil
}

// build builds the instance. ctx gives it its values; it may not end before the instance
// does. unheld is as in Work.
func (p *preparation) build(ctx context.Context, r *shardRunner, unheld time.Time) error {
	m := r.member
	ring, _ := r.plan.Load().plan.Ring(r.shard.Ring)
	work := Work{
		Shard:       r.shard,
		Controllers: slices.DeleteFunc(slices.Clone(r.extent.Controllers), func(c string) bool { return slices.Contains(r.lacks, c) }),
		Share:       1,
		Shards:      len(ring.Shards),
		Unheld:      unheld,
		Fence:       p.fence.Wrap,
		Term:        p.fence.Term,
		Closed:      p.closed,
		Running:     func() { p.running() },
	}
	if r.shard.Namespaced() {
		work.Share = m.Assignment().Share(ring.Name, len(ring.Shards))
	}
	var err error
	p.instance, err = m.config.Build(ctx, work)
	return err
}

// discard gives the instance up.
func (p *preparation) discard() {
	p.closeFence()
	if p.instance != nil && !faults.PreparedLeaked {
		p.instance.Close()
		forget(p.instance)
		p.instance = nil
	}
}

// forget has an instance that has ended, and has no way to write, give up its caches.
func forget(instance Instance) {
	if f, ok := instance.(Forgetter); ok {
		f.Forget()
	}
}

// prepareWhileWanted builds and warms an instance whenever another member holds the shard
// that this one is to own, asks for it, and keeps it warm until the claim's work takes it. As
// a standby it does the same for a shard that it would own if the holder failed, and does not
// ask. It returns when ctx has ended and nothing prepared is left.
func (r *shardRunner) prepareWhileWanted(ctx context.Context) {
	backoff := r.member.retry()
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.changed:
		}
		for r.prepares() && ctx.Err() == nil {
			if !r.acquireSlot(ctx) {
				continue
			}
			release := sync.OnceFunc(func() { <-r.member.slots })
			err := r.prepare(ctx, release)
			release()
			pause := r.member.config.Timing.RetryPeriod
			if err == nil {
				backoff = r.member.retry()
			} else {
				pause = backoff.Step()
				klog.FromContext(ctx).Error(err, "Could not prepare for the shard, trying again", "shard", r.shard.ID, "after", pause)
			}
			r.member.pause(ctx, pause)
		}
	}
}

// acquireSlot waits for its turn: so many shards are prepared at a time, lest a member that
// is to own many holds many caches twice and lists the world at once.
func (r *shardRunner) acquireSlot(ctx context.Context) bool {
	select {
	case r.member.slots <- struct{}{}:
		return true
	case <-r.changed: // perhaps not wanted any more
	case <-ctx.Done():
	}
	return false
}

// prepares reports whether there is something to prepare for.
func (r *shardRunner) prepares() bool { return r.wanted.Load() || r.standby.Load() }

// prepare returns when the preparation was taken or is not wanted any more. The error says
// why it failed. release lets others prepare.
func (r *shardRunner) prepare(ctx context.Context, release func()) error {
	m := r.member
	if !r.prepares() || r.claimant.Claim() != nil {
		return nil
	}
	p, err := r.newPreparation()
	if err != nil {
		return err
	}
	warming, cancel := context.WithCancel(ctx)
	defer cancel()
	p.cancel = cancel
	p.under = m.leaderLocks.current()
	p.unsecured = !p.under.isSecured()
	p.began = m.config.Clock.Now()
	lease := m.observer.Get(leaseapi.ShardLease(m.config.Fleet, r.shard.ID))
	p.term, p.followed = lease.Transitions, leaseapi.SaysRunning(lease)
	r.setPrepared(p)
	unheld := r.unheldByOthers(lease)
	p.derived = !unheld.IsZero()
	if p.err = p.build(context.WithoutCancel(ctx), r, unheld); p.err == nil {
		p.err = p.instance.Warm(warming)
	}
	if faults.RunUnclaimed && p.err == nil {
		p.err = p.instance.Run(warming)
	}
	close(p.done)
	err = p.err
	if err == nil {
		took := m.config.Clock.Now().Sub(p.began)
		r.report(election.Event{Type: EventPrepared, Term: p.term, Duration: took})
		err = r.holdUntilTaken(ctx, p, release)
		r.claimant.SetAsk(false)
	}
	if r.unprepare(p) {
		p.discard()
		if ctx.Err() != nil || !r.owned.Load() && !r.standby.Load() {
			return nil
		}
		return err
	}
	select {
	case <-p.taken:
	case <-p.rejected:
		p.discard()
	}
	return nil
}

// holdUntilTaken asks for the shard, unless p is a standby, and returns when the work is about
// to take p, when p is not wanted any more, or with an error when the holder does not give the
// shard up, so that others get the slot.
func (r *shardRunner) holdUntilTaken(ctx context.Context, p *preparation, release func()) error {
	patience := 2 * r.member.config.HandoffTimeout
	timer := r.member.config.Clock.NewTimer(patience)
	defer func() { timer.Stop() }()
	asking, asked := true, false
	for r.owned.Load() || r.standby.Load() {
		// A standby waits for as long as it takes, and the others need not wait for it.
		if ask := !r.standby.Load(); ask != asking {
			timer.Stop()
			timer = r.member.config.Clock.NewTimer(patience)
			asking = ask
		}
		if asking && !asked {
			r.term.ask(r.member.observer.Get(leaseapi.ShardLease(r.member.config.Fleet, r.shard.ID)).Holder, r.member.config.Clock.Now())
		}
		asked = asking
		r.claimant.SetAsk(asking)
		var tooLong <-chan time.Time
		if asking {
			tooLong = timer.C()
		} else {
			release()
		}
		select {
		case <-p.taken:
			return nil
		case <-p.rejected:
			return nil
		case <-ctx.Done():
			return nil
		case <-tooLong:
			return fmt.Errorf("its holder was asked for it and has not given it up within %v", patience)
		case <-r.changed:
		}
	}
	return nil
}

func (r *shardRunner) setPrepared(p *preparation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.prepared = p
}

// unprepare takes p back, unless the work has it.
func (r *shardRunner) unprepare(p *preparation) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.prepared != p {
		return false
	}
	r.prepared = nil
	return true
}

// take returns what has been prepared, if it is fit for the claim: its caches have seen all
// that the last holder wrote. Anything else is discarded.
func (r *shardRunner) take(ctx context.Context, claim *election.Claim, found others) *preparation {
	r.mu.Lock()
	p := r.prepared
	r.prepared = nil
	r.mu.Unlock()
	if p == nil {
		r.begun(claim.Term(), 0, errNotPrepared)
		return nil
	}
	began := r.member.config.Clock.Now()
	err := r.fresh(ctx, claim, p, found)
	r.begun(claim.Term(), r.member.config.Clock.Now().Sub(began), err)
	if err != nil {
		p.cancel()
		close(p.rejected)
		return nil
	}
	close(p.taken)
	return p
}

var errNotPrepared = errors.New("nothing was prepared")

// begun says from what caches the work is about to begin.
func (r *shardRunner) begun(term int32, took time.Duration, cold error) {
	r.term.warm(took, cold)
	r.report(election.Event{Type: EventBegun, Term: term, Duration: took, Err: cold})
}

func (r *shardRunner) refusedWrite(why fence.Refusal) {
	r.report(election.Event{Type: EventWriteRefused, Reason: election.Reason(why)})
}

func (r *shardRunner) report(e election.Event) {
	e.Name = leaseapi.ShardLease(r.member.config.Fleet, r.shard.ID)
	r.member.config.Observe(Event{ID: r.shard.ID, Event: e})
}

// fresh returns nil once the caches of p have seen every write of the last holder. They
// have seen those of the holders before it if the preparation began within its term. Where
// nobody says what was written last, the caches are held against the present instead.
func (r *shardRunner) fresh(ctx context.Context, claim *election.Claim, p *preparation, found others) error {
	writes, left := claim.Before().Writes()
	var unknown error
	switch {
	case p.unsecured:
		unknown = errors.New("it was begun before the fleet held the leader locks")
	case p.under != r.member.leaderLocks.current():
		unknown = errors.New("it was begun before the fleet was stopped and started again")
	case !left:
		unknown = fmt.Errorf("the last holder, %q, did not leave what it wrote last", claim.Before().Holder)
	case len(writes.Unknown()) > 0:
		unknown = fmt.Errorf("the last holder does not know what became of its last writes to %v", writes.Unknown())
	case p.term != writes.Term:
		unknown = fmt.Errorf("it was begun in term %d, and the last one was %d", p.term, writes.Term)
	case found.wroteSince(p.began):
		unknown = errors.New("it was begun before others had stopped to write to some of the shard")
	case writes.Shared && (p.derived || !p.followed):
		unknown = errors.New("it was begun while others might still write to some of the shard")
	}
	bounded, cancel := context.WithTimeout(ctx, r.member.config.HandoffTimeout)
	defer cancel()
	select {
	case <-p.done:
	case <-bounded.Done():
		return context.Cause(bounded)
	}
	if p.err != nil {
		return p.err
	}
	if unknown == nil {
		return p.instance.CatchUp(bounded, writes)
	}
	if standby, ok := p.instance.(Refresher); ok {
		if faults.StandbyStale {
			return nil
		}
		return r.member.refresh(ctx, standby)
	}
	return unknown
}

// retry is the pace at which work that cannot be started is tried again.
func (m *Member) retry() wait.Backoff {
	return wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.2, Steps: 6, Cap: 30 * time.Second}
}

// retrySoon is the pace at which a request is tried again that a claimed shard waits for.
func (m *Member) retrySoon() wait.Backoff {
	return wait.Backoff{Duration: 50 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 6, Cap: m.config.Timing.RetryPeriod}
}

// pause returns after d, or when ctx ends.
func (m *Member) pause(ctx context.Context, d time.Duration) { m.await(ctx, nil, d) }

// await returns when changed receives, after d, or when ctx ends.
func (m *Member) await(ctx context.Context, changed <-chan struct{}, d time.Duration) {
	timer := m.config.Clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-changed:
	case <-timer.C():
	case <-ctx.Done():
	}
}
