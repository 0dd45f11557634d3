package fleet

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/flotilla-kube/flotilla/internal/faults"
	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/election/fence"
	"github.com/flotilla-kube/flotilla/pkg/fleet/shardrun"
)

// working carries out what shardrun.WorkStep decides under one claim. It belongs to the goroutine
// of the claim's work.
type working struct {
	*shardRunner
	claim *election.Claim
	// found are the Leases that concern the shard, as last seen.
	found others
	// predecessors has the terms of the predecessors that had to be released first, by Lease name.
	// dead are those whose holder has died since.
	predecessors map[string]int32
	dead         []election.Observation
	// waited is when the wait for predecessors began, with everything prepared; zero before.
	waited time.Time
	// hand is the instance to run next; nil if there is none.
	hand *preparation
	// shared is as in fence.Writes.
	shared bool
	// begun is set once EventBegun was reported, failed once the work could not be started.
	begun, failed bool
	backoff       wait.Backoff
}

// work runs the shard for one term. If the work cannot be started, work tries again while the claim
// holds: another member would hardly fare better, and the shard's health check reports the failure.
func (r *shardRunner) work(ctx context.Context, claim *election.Claim) {
	logger := klog.LoggerWithValues(klog.FromContext(ctx),
		"ring", r.shard.Ring, "shard", r.shard.Name, "term", claim.Term())
	ctx = klog.NewContext(ctx, logger)
	r.setWrites(&fence.Writes{Term: claim.Term(), Shared: true}) // until it is known
	defer func() {
		if a := r.term.abandon(claim.Term(), true); a != nil {
			r.conclude(EventAbandoned, claim.Term(), a, nil)
		}
	}()
	w := &working{
		shardRunner: r, claim: claim, predecessors: map[string]int32{}, backoff: r.member.retry(),
	}
	in := shardrun.Input{Begun: claim.Term(), Retry: r.member.config.Timing.RetryPeriod}
	for {
		in.Stopped = ctx.Err() != nil
		before, out := r.step(shardrun.WorkStep, in, nil)
		if out.State.Preparation != before.Preparation {
			r.claimant.Nudge()
		}
		in.Begun, in.Answer = 0, shardrun.Answer{}
		switch out.Action {
		case shardrun.Return:
			return
		case shardrun.Wait:
			r.member.pause(ctx, out.Wake.Sub(r.member.config.Clock.Now()))
		default:
			in.Answer = w.do(ctx, out.Action)
		}
	}
}

// do carries out an action and returns its answer.
func (w *working) do(ctx context.Context, action shardrun.Action) shardrun.Answer {
	answer := shardrun.Answer{To: action}
	switch action {
	case shardrun.Preflight:
		answer.Failed = !w.preflight(ctx)
		answer.Rivals = len(w.found.rivals) > 0
	case shardrun.Judge:
		answer.Failed = !w.judge(ctx)
	case shardrun.Prepare:
		answer.Failed = !w.prepare(ctx)
	case shardrun.Await:
		answer.Failed = !w.await(ctx)
		answer.Rivals = len(w.found.rivals) > 0
	case shardrun.Join:
		answer.Failed = !w.join(ctx)
	case shardrun.Build:
		answer.Pause, answer.Failed = w.attempted(ctx, w.build(ctx))
	case shardrun.Run:
		answer.Pause, answer.Failed = w.attempted(ctx, w.runInHand(ctx))
	case shardrun.Drop:
		w.discard(w.hand)
		w.hand = nil
	}
	return answer
}

// preflight finds out who else covers some of the shard, and fences those who died. It returns false if
// the shard may not run.
func (w *working) preflight(ctx context.Context) bool {
	claim := w.claim
	found, err := w.member.preflight(ctx, w.shardRunner)
	w.term.succeedDead(found.dead)
	// Fence even if the shard may not run here: the next holder will see it as released.
	fenced := w.fenceOff(ctx, claim, append(found.dead, claim.Before()))
	if err != nil && ctx.Err() == nil {
		w.refuse(claim.Term(), err)
	}
	if err != nil || !fenced {
		return false
	}
	_, left := claim.Before().Writes()
	w.shared = found.wroteSince(claim.Before().Seen) || claim.Before().Exists && !left
	w.setWrites(&fence.Writes{Term: claim.Term(), Shared: w.shared})
	w.found = found
	w.note(found.rivals)
	return true
}

// note records which shards of an older plan have to be released first.
func (w *working) note(rivals []election.Observation) {
	for _, o := range rivals {
		w.predecessors[o.Name] = o.Transitions
	}
}

// judge takes the prepared instance in hand if it is fit for the claim: if its caches have seen
// everything that the last holder wrote.
func (w *working) judge(ctx context.Context) bool {
	p, began := w.now.Load().prepared, w.member.config.Clock.Now()
	err := w.fresh(ctx, p)
	w.begin(w.member.config.Clock.Now().Sub(began), err)
	if err != nil {
		return false
	}
	p.cancel() // Filling has ended.
	w.hand = p
	return true
}

// fresh returns nil once the caches of p have seen every write of the last holder. They have seen
// the writes of earlier holders if the preparation began within the last holder's term. If nobody
// recorded the last writes, fresh checks the caches against the present instead.
func (w *working) fresh(ctx context.Context, p *preparation) error {
	claim := w.claim
	writes, left := claim.Before().Writes()
	var unknown error
	switch {
	case p.unsecured:
		unknown = errors.New("it was begun before the fleet held the leader locks")
	case p.under != w.member.leadership.Current():
		unknown = errors.New("it was begun before the fleet was stopped and started again")
	case !left:
		last := claim.Before().Holder
		unknown = fmt.Errorf("the last holder, %q, did not leave what it wrote last", last)
	case len(writes.Unknown()) > 0:
		unknown = fmt.Errorf("the last holder does not know what became of its last writes to %v",
			writes.Unknown())
	case p.term != writes.Term:
		unknown = fmt.Errorf("it was begun in term %d, and the last one was %d", p.term, writes.Term)
	case w.found.wroteSince(p.began):
		unknown = errors.New("it was begun before others had stopped to write to some of the shard")
	case writes.Shared && !p.followed:
		unknown = errors.New("it was begun while others might still write to some of the shard")
	}
	if err := w.filled(ctx, p); err != nil {
		return err
	}
	if p.err != nil {
		return p.err
	}
	if unknown == nil {
		return w.within(ctx, func(ctx context.Context) error { return p.instance.CatchUp(ctx, writes) })
	}
	if standby, ok := p.instance.(Refresher); ok {
		if faults.StandbyStale {
			return nil
		}
		return w.member.refresh(ctx, standby, p.took)
	}
	return unknown
}

// fillTimeouts is how many HandoffTimeouts a claimed shard waits for caches that were being filled
// when it was claimed. To list again would take longer than the rest of a list. But a cache that
// never fills must not hold up the controllers that do without it.
const fillTimeouts = 24

// fillTimeout is that time.
func (m *Member) fillTimeout() time.Duration { return fillTimeouts * m.config.HandoffTimeout }

// filled returns nil once p has been filled, or has failed.
func (w *working) filled(ctx context.Context, p *preparation) error {
	most := w.member.fillTimeout()
	bounded, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	timer := w.member.config.Clock.NewTimer(w.member.config.HandoffTimeout)
	defer timer.Stop()
	for {
		select {
		case <-p.done:
			return nil
		case <-timer.C():
			klog.FromContext(ctx).Info("Waiting for the shard's caches, which were being filled when it was claimed", "shard", w.shard.ID, "atMost", most)
		case <-bounded.Done():
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return fmt.Errorf("its caches were still being filled after %v", most)
		}
	}
}

var errNotPrepared = errors.New("nothing was prepared")

// begin reports from which caches the work is about to begin.
func (w *working) begin(took time.Duration, cold error) {
	w.begun = true
	w.term.warm(took, cold)
	w.report(election.Event{Type: EventBegun, Term: w.claim.Term(), Duration: took, Err: cold})
}

// prepare builds and warms an instance while live Leases of an older plan generation cover some of
// the shard. It returns false if the work should stop, or if nobody has had the shard for as long
// as caches may take to fill.
func (w *working) prepare(ctx context.Context) bool {
	logger := klog.FromContext(ctx)
	logger.V(1).Info("Waiting for the shard's predecessors", "leases", names(w.found.rivals))
	patient, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	watching.Go(func() {
		if w.waitForDesertion(patient) {
			cancel()
		}
	})
	p, err := w.prepareSuccessor(patient)
	switch {
	case err == nil:
		w.hand = p
		return true
	case ctx.Err() == nil:
		logger.Info("The shard's predecessors have gone, and its caches are not full: beginning without them", "shard", w.shard.ID, "err", err)
	default:
		w.refuse(w.claim.Term(), err)
	}
	return false
}

// await waits until the predecessors are gone, and reads again. Meanwhile the Lease says that
// everything is prepared, so that their holders drain. It returns false if the shard may not run.
func (w *working) await(ctx context.Context) bool {
	if w.waited.IsZero() {
		w.waited = w.member.config.Clock.Now()
		w.report(election.Event{Type: EventReady, Term: w.claim.Term()})
	}
	if !w.waitForRelease(ctx) {
		return false
	}
	found, err := w.member.preflight(ctx, w.shardRunner)
	if err != nil {
		w.refuse(w.claim.Term(), err)
		return false
	}
	w.found, w.dead = found, append(w.dead, found.dead...)
	w.note(found.rivals)
	return true
}

// join fences the predecessors' holders who died. It reports whether the instance in hand has seen
// the last writes of all predecessors.
func (w *working) join(ctx context.Context) bool {
	released := w.member.config.Clock.Now()
	var gone []election.Observation
	for _, name := range slices.Sorted(maps.Keys(w.predecessors)) {
		gone = append(gone, w.member.observer.Get(name))
	}
	w.term.succeed(gone, w.waited, released)
	// Fence all of them, even if what is prepared turns out to be of no use.
	if !w.fenceOff(ctx, w.claim, w.dead) {
		return false
	}
	err := w.catchUp(ctx)
	if ctx.Err() != nil {
		return false
	}
	w.begin(w.member.config.Clock.Now().Sub(released), err)
	return err == nil
}

// build makes an instance with empty caches.
func (w *working) build(ctx context.Context) error {
	if !w.begun {
		w.begin(0, errNotPrepared)
	}
	// Each attempt gets a fence of its own, so that leftovers of an earlier one have no way to
	// write.
	p, err := w.newPreparation()
	if err != nil {
		return err
	}
	if err := p.build(context.WithoutCancel(ctx), w.shardRunner); err != nil {
		w.discard(p)
		return err
	}
	w.hand = p
	return nil
}

// attempted returns how long to wait before the next attempt, and whether this one failed.
func (w *working) attempted(ctx context.Context, err error) (time.Duration, bool) {
	if w.failed {
		w.setWrites(nil) // the outcome of the other attempt's writes is unknown
	}
	if err == nil {
		return 0, false
	}
	w.failed = true
	pause := w.backoff.Step()
	if ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "Could not start the shard's work, trying again",
			"after", pause)
	}
	return pause, true
}

// runInHand opens the fence of the instance in hand and runs it until ctx ends. It returns an error
// if the instance could not be started. It returns once the fence is closed and all of the work has
// ended.
func (w *working) runInHand(ctx context.Context) error {
	m, claim, p := w.member, w.claim, w.hand
	w.hand = nil
	if isClosed(p.closed) {
		w.discard(p)
		return errors.New("the work has closed its fence before it began")
	}
	p.stopped = func() { w.term.stop(claim.Term(), m.config.Clock.Now()) }
	defer p.closeFence()
	w.term.resume(claim.Term())
	for !claim.Valid(m.config.Clock.Now()) {
		// Either the process was suspended, and the claimant is about to notice; or somebody has
		// deleted the Lease, which ends nothing: the claimant creates it again.
		if m.pause(ctx, m.config.Timing.RetryPeriod/8); ctx.Err() != nil {
			w.discard(p)
			return nil
		}
	}
	p.fence.Open(claim)
	defer context.AfterFunc(claim.Context(), p.closeFence)()
	instance := p.instance
	p.instance = nil
	p.running = func() {
		w.update(func(now *standing) { now.run = now.run.Raised(claim.Term()) })
		w.ran(claim.Term())
	}
	w.update(func(now *standing) { now.counted = nil })
	counting, stop := context.WithCancel(ctx)
	var beside sync.WaitGroup
	beside.Go(func() { w.takeCensus(counting, instance, p.fence.Sent) })
	beside.Go(func() { w.boundDrain(ctx, p) })
	err := instance.Run(ctx)
	stop()
	p.closeFence()
	beside.Wait()
	forget(instance)
	// Others may hold the shard before this member holds it again, and what they publish stays.
	w.update(func(now *standing) { now.census, now.takes, now.writing = "", nil, nil })
	p.fence.Await()
	writes := p.fence.Writes(claim.Term())
	writes.Shared = w.shared
	w.setWrites(&writes)
	return err
}

// setWrites records the last writes of the work; nil if unknown.
func (r *shardRunner) setWrites(writes *fence.Writes) {
	r.update(func(now *standing) { now.writes = writes })
}

// boundDrain closes the fence of work that goes on for HandoffTimeout after ctx has ended. It
// returns once the fence is closed.
func (w *working) boundDrain(ctx context.Context, p *preparation) {
	select {
	case <-ctx.Done():
	case <-p.closed:
		return
	}
	if faults.DrainUnbounded {
		return
	}
	afterOrDone(w.member.config.Clock.NewTimer(w.member.config.HandoffTimeout), p.closed, func() {
		w.term.overrun(w.claim.Term())
		p.closeFence()
		if w.claim.Context().Err() == nil {
			w.claimant.Touch() // to publish it on the Lease
			left := w.member.overtime()
			w.report(election.Event{Type: EventOverdue, Term: w.claim.Term(), Duration: left})
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
