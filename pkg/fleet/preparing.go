package fleet

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"github.com/flotilla-kube/flotilla/internal/faults"
	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/election/fence"
	"github.com/flotilla-kube/flotilla/pkg/election/membership"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leadership"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/fleet/shardrun"
)

// preparation is an instance built ahead of the claim, behind a fence that is closed until then.
type preparation struct {
	instance Instance
	fence    *fence.Fence
	// closed is closed once the fence is closed for good.
	closed     chan struct{}
	closeFence func()
	// running is called once the instance's controllers run.
	running func()
	// stopped is called once the fence is closed for good, before closed is closed.
	stopped func()
	// term was held when the preparation began: everything written before that term is in the
	// caches.
	term int32
	// followed is set if that term's holder had by then published that it runs the shard. Then the
	// caches also have the writes of others that had written to some of it and were gone before.
	followed bool
	// began is when the preparation began.
	began time.Time
	// unsecured is set if the fleet did not hold the leader locks when the preparation began:
	// others than its members have written since.
	unsecured bool
	// under is the hold of the leader locks in which the preparation began. Between two holds,
	// others may have written too.
	under *leadership.Hold

	// filling ends when filling should stop; cancel ends it.
	filling context.Context // Lives only as long as its filling.
	cancel  context.CancelFunc
	// done is closed once the instance is warm or err is set. took is how long it took to be warm.
	done chan struct{}
	err  error
	took time.Duration
}

// drainTimeout is how long the work of a shard may take to return after it was asked to stop.
// During the first part of it the work may still write.
func (m *Member) drainTimeout() time.Duration { return m.config.HandoffTimeout + m.overtime() }

// overtime is how long work may go on behind a closed fence.
func (m *Member) overtime() time.Duration {
	most, shutdown := m.config.Timing.LeaseDuration, m.config.ShutdownTimeout
	if m.membership.State() == membership.Leaving && shutdown > 0 && !faults.ShutdownIgnored {
		return min(most, shutdown)
	}
	return most
}

// newPreparation returns a preparation that has not been built.
func (r *shardRunner) newPreparation() (*preparation, error) {
	m := r.member
	f, err := fence.New(fence.Config{
		Member: m.incarnation, Shard: r.shard.ID.String(), ServerPath: m.config.ServerPath, Clock: m.config.Clock,
		Permit: m.leadership.Permit, OnRefused: r.refusedWrite,
	})
	if err != nil {
		return nil, err
	}
	p := &preparation{
		fence: f, closed: make(chan struct{}), done: make(chan struct{}),
		cancel: func() {}, running: func() {}, stopped: func() {},
	}
	p.closeFence = sync.OnceFunc(func() { f.Close(); p.stopped(); close(p.closed) })
	return p, nil
}

// build builds the instance. ctx supplies values; it must not end before the instance does.
func (p *preparation) build(ctx context.Context, r *shardRunner) error {
	m := r.member
	ring, _ := r.now.Load().plan.Ring(r.shard.Ring)
	lacking := func(c string) bool { return slices.Contains(r.lacks, c) }
	work := Work{
		Shard:        r.shard,
		Controllers:  slices.DeleteFunc(slices.Clone(r.extent.Controllers), lacking),
		Share:        1,
		Shards:       len(ring.Shards),
		Fence:        p.fence.Wrap,
		FenceForeign: p.fence.WrapForeign,
		Term:         p.fence.Term,
		Closed:       p.closed,
		Close:        p.closeFence,
		Running:      func() { p.running() },
	}
	if r.shard.Namespaced() {
		work.Share = m.Assignment().Share(ring.Name, len(ring.Shards))
	}
	var err error
	p.instance, err = m.config.Build(ctx, work)
	return err
}

// discard closes the fence and the instance.
func (r *shardRunner) discard(p *preparation) {
	given := make(chan struct{})
	close(given)
	defer r.bound(given)()
	p.discard()
}

// bound ends the process if a preparation that was given up has not ended long after: this member
// would never prepare the shard again, nor be able to leave the fleet. The caller calls ended when
// it has.
func (r *shardRunner) bound(givenUp <-chan struct{}) (ended func()) {
	done := make(chan struct{})
	var bounding sync.WaitGroup
	bounding.Go(func() {
		select {
		case <-givenUp:
		case <-done:
			return
		}
		most := r.member.discardTimeout()
		afterOrDone(r.member.config.Clock.NewTimer(most), done, func() {
			r.member.config.Exit(fmt.Sprintf(
				"what was prepared for %s has not ended %v after it was given up", r.shard.ID, most))
		})
	})
	return func() {
		close(done)
		bounding.Wait()
	}
}

// discardTimeouts is how many HandoffTimeouts a preparation that is given up may take to end. Its
// fence is closed, so there is no hurry.
const discardTimeouts = 24

// discardTimeout is that time.
func (m *Member) discardTimeout() time.Duration {
	return discardTimeouts * m.config.HandoffTimeout
}

// discard closes the fence and the instance.
func (p *preparation) discard() {
	p.closeFence()
	if p.instance != nil && !faults.PreparedLeaked {
		p.instance.Close()
		forget(p.instance)
		p.instance = nil
	}
}

// forget makes an instance discard its caches. The instance must have ended and have no way to
// write.
func forget(instance Instance) {
	if f, ok := instance.(Forgetter); ok {
		f.Forget()
	}
}

// preparing carries out what shardrun.PrepareStep decides, in the turns of the claimant's loop. It
// builds and warms an instance whenever another member holds the shard that this one should own. It
// then asks for the shard, and keeps the instance warm until the claim's work takes it. As a
// standby it does the same for a shard that it would own if the holder failed, and does not ask.
type preparing struct {
	*shardRunner
	// p is the latest preparation.
	p *preparation
	// slot is what the preparation has, or waits for; nil for neither.
	slot *slot
	// answers receives the answer to the last request, requests waits for all of them.
	answers  chan shardrun.Answer
	requests sync.WaitGroup
	backoff  wait.Backoff
}

// longestFills is how many HandoffTimeouts a preparation may take to be filled: 10 minutes by
// default. After that others get its slot, and it begins again.
const longestFills = 120

// longestFill is that time.
func (m *Member) longestFill() time.Duration { return longestFills * m.config.HandoffTimeout }

// turn steps until only a change, an answer or next can bring more to do. It has settled when ctx
// has ended and nothing prepared is left. It does not block.
func (l *preparing) turn(ctx context.Context) (next time.Time, settled bool) {
	in := shardrun.Input{
		Ending: ctx.Err() != nil, Claimed: l.claimant.Claim() != nil,
		Retry: l.member.config.Timing.RetryPeriod, Patience: l.patience(),
		Longest: l.member.longestFill(),
	}
	select {
	case in.Answer = <-l.answers:
	default:
	}
	for {
		in.Slot = l.queue()
		var ahead *preparation
		if in.Slot {
			ahead = l.newAhead(ctx)
		}
		_, out := l.step(shardrun.PrepareStep, in, ahead)
		if ahead != nil && out.Action != shardrun.Fill {
			ahead.cancel()
		}
		in.Answer = shardrun.Answer{}
		p := out.State.Preparation
		if l.slot != nil && p.Stage != shardrun.Queued && !p.Slot {
			l.slot.giveBack()
			l.slot = nil
		}
		switch out.Action {
		case shardrun.End:
			return time.Time{}, true
		case shardrun.Wait:
			if p.Stage != shardrun.Queued || l.slot != nil {
				return out.Wake, false
			}
		case shardrun.Fill:
			l.p = ahead
			l.request(func() shardrun.Answer { return l.fill(ctx, ahead, p.Number) })
		default:
			l.do(ctx, out)
		}
	}
}

// queue reports whether a Queued preparation has a slot. If it has not, it waits for one.
func (l *preparing) queue() bool {
	if l.state().Preparation.Stage != shardrun.Queued {
		return false
	}
	if l.slot == nil {
		l.slot = l.member.slots.ask(l.claimant.Nudge)
	}
	return isClosed(l.slot.granted)
}

// request carries out an action that takes its time, beside the loop, and has its answer taken in
// the next turn. Only the answer to the last one counts.
func (l *preparing) request(action func() shardrun.Answer) {
	answers := make(chan shardrun.Answer, 1)
	l.answers = answers
	l.requests.Go(func() {
		answers <- action()
		l.claimant.Nudge()
	})
}

// do carries out any other action. To Yield, turn gives the slot back.
func (l *preparing) do(ctx context.Context, out shardrun.Output) {
	switch out.Action {
	case shardrun.Cancel:
		l.p.cancel()
	case shardrun.Ask:
		lease := l.member.observer.Get(l.lease)
		l.term.ask(lease.Holder, l.member.config.Clock.Now())
		l.claimant.SetAsk(true)
	case shardrun.Unask:
		l.claimant.SetAsk(false)
	case shardrun.Discard:
		l.claimant.SetAsk(false)
		l.p.cancel()
		discarded, pause := l.p, l.pauseAfter(ctx, out.Why)
		l.request(func() shardrun.Answer {
			l.discard(discarded)
			return shardrun.Answer{To: shardrun.Discard, Pause: pause}
		})
	}
}

// patience is how long an asked holder has to give the shard up.
func (l *preparing) patience() time.Duration { return 2 * l.member.config.HandoffTimeout }

// pauseAfter returns how long to wait before the next preparation. It logs the failure if the last
// one failed.
func (l *preparing) pauseAfter(ctx context.Context, why shardrun.Why) time.Duration {
	var err error
	switch why {
	case shardrun.Unfilled:
		err = l.p.err
	case shardrun.Ungiven:
		err = fmt.Errorf("its holder was asked for it and has not given it up within %v", l.patience())
	default:
		l.backoff = l.member.retry()
		return l.member.config.Timing.RetryPeriod
	}
	pause := l.backoff.Step()
	klog.FromContext(ctx).Error(err, "Could not prepare for the shard, trying again",
		"shard", l.shard.ID, "after", pause)
	return pause
}

// newAhead returns a preparation that is about to be filled, with what is known as it begins.
func (r *shardRunner) newAhead(ctx context.Context) *preparation {
	m := r.member
	p, err := r.newPreparation()
	if err != nil {
		done := make(chan struct{})
		return &preparation{err: err, done: done, cancel: func() {}, closeFence: func() {}}
	}
	p.under = m.leadership.Current()
	p.unsecured = !p.under.IsSecured()
	p.began = m.config.Clock.Now()
	lease := m.observer.Get(r.lease)
	p.term, p.followed = lease.Transitions, leaseapi.SaysRunning(lease)
	p.filling, p.cancel = context.WithCancel(ctx)
	return p
}

// fill builds and warms p, and returns the lane's answer.
func (l *preparing) fill(ctx context.Context, p *preparation, number int) shardrun.Answer {
	if p.err == nil {
		defer l.bound(p.filling.Done())()
		p.err = p.build(context.WithoutCancel(ctx), l.shardRunner)
	}
	if p.err == nil {
		p.err = p.instance.Warm(p.filling)
	}
	if faults.RunUnclaimed && p.err == nil {
		p.err = p.instance.Run(p.filling)
	}
	if p.err == nil {
		l.prepared(p, p.term)
	}
	close(p.done)
	return shardrun.Answer{To: shardrun.Fill, Number: number, Failed: p.err != nil}
}

// prepared notes and reports how long p took to be warm.
func (r *shardRunner) prepared(p *preparation, term int32) {
	p.took = r.member.config.Clock.Now().Sub(p.began)
	r.report(election.Event{Type: EventPrepared, Term: term, Duration: p.took})
}

func (r *shardRunner) refusedWrite(why fence.Refusal) {
	r.report(election.Event{Type: EventWriteRefused, Reason: election.Reason(why)})
}

func (r *shardRunner) report(e election.Event) {
	e.Name = r.lease
	r.member.config.Observe(Event{ID: r.shard.ID, Event: e})
}

// retry is the backoff for work that could not be started.
func (m *Member) retry() wait.Backoff {
	return wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.2, Steps: 6, Cap: 30 * time.Second}
}

// pause returns after d, or when ctx ends.
func (m *Member) pause(ctx context.Context, d time.Duration) { m.await(ctx, nil, d) }

// await returns when changed receives, after d, or when ctx ends.
func (m *Member) await(ctx context.Context, changed <-chan struct{}, d time.Duration) {
	election.Await(ctx, m.config.Clock, changed, d)
}
