package leaderlock

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/election/request"
)

// conflicts is after how many conflicts in a row a pause follows. The first few are normal when
// members start together, and the read after the second shows that another member has renewed.
const conflicts = 4

// heldFailures divides the rest of the right, and the usual pause. After a failure a holder's next
// request follows within a quarter of that rest, but not before a quarter of the usual pause.
const heldFailures = 4

// run is one call of Lock.Run. All its fields belong to the goroutine of Run.
type run struct {
	*Lock
	ctx    context.Context // Lives exactly as long as Run.
	logger klog.Logger

	state    state
	requests *request.Requester
	answers  chan func()          // capacity 1
	begun    time.Time            // when the right began
	before   election.Observation // the last observation that did not name the fleet
	told     election.Event       // the last EventWaiting or EventSuspended
}

// Run waits for the leader lock and keeps it until ctx ends or it is lost. When ctx ends, the right
// ends, the Lease stays as it is, and Run returns nil. When the leader lock is lost, Run closes
// Lost and returns an error that wraps ErrLost and says why. It returns after everything it started
// has ended.
func (l *Lock) Run(ctx context.Context) error {
	l.setRunning(true)
	defer l.setRunning(false)
	logger := klog.LoggerWithValues(klog.FromContext(ctx), "lease", l.cfg.Name)
	requests, cancel := context.WithCancel(klog.NewContext(ctx, logger))
	r := &run{Lock: l, ctx: requests, logger: logger, answers: make(chan func(), 1)}
	r.requests = request.New(request.Config{
		Reader: l.cfg.Client, Observer: l.cfg.Observer, Clock: l.cfg.Clock, Conflicts: conflicts, Answers: r.answers,
		Pause: func() time.Duration { return l.cfg.Jitter(l.cfg.Timing.RetryPeriod) },
	})
	changed, unsubscribe := l.cfg.Observer.Subscribe(func(name string) bool { return name == l.cfg.Name })
	defer unsubscribe()
	defer r.finish(cancel)
	for ctx.Err() == nil {
		in := r.input()
		out := step(in)
		r.state = out.state
		r.publish(out.validUntil)
		switch out.action {
		case actEnd:
			return r.end(in, out.reason)
		case actWait:
			r.tell(in, out)
			wake := out.wake
			if often := in.now.Add(r.cfg.Timing.RetryPeriod / 2); r.state.phase == phaseHeld && (wake.IsZero() || wake.After(often)) {
				wake = often // see Turned
			}
			r.wait(ctx.Done(), changed, in.now, wake)
		default:
			r.tell(in, out)
			r.send(in, out)
		}
	}
	return nil
}

func (r *run) input() input {
	observation := r.cfg.Observer.Get(r.cfg.Name)
	if observation.Holder != r.cfg.Identity {
		r.before = observation
	}
	in := input{
		self:        r.cfg.Identity,
		observation: observation,
		state:       r.state,
		timing:      r.cfg.Timing,
		busy:        r.requests.Busy(),
		// Last, so that nothing above is newer than it.
		now: r.cfg.Clock.Now(),
	}
	if r.state.phase == phaseHeld {
		turned := in.now // a copy, so that in does not escape to the heap
		r.turned.Store(&turned)
	}
	return in
}

// finish ends the right, cancels the request under way, and waits for it.
func (r *run) finish(cancel context.CancelFunc) {
	r.publish(time.Time{})
	r.turned.Store(nil)
	cancel()
	r.requests.Wait()
}

func (r *run) end(in input, reason election.Reason) error {
	close(r.lost)
	holder, lasted := in.observation.Holder, in.now.Sub(r.begun)
	r.logger.V(2).Info("Lost leader lock", "reason", reason, "holder", holder, "lasted", lasted)
	r.report(election.Event{Type: election.EventEnded, Term: r.state.term.transitions, Reason: reason, Holder: holder, Duration: lasted})
	if reason == election.ReasonOtherHolder {
		return fmt.Errorf("%w: %s %q", ErrLost, reason, holder)
	}
	return fmt.Errorf("%w: %s", ErrLost, reason)
}

// wait blocks until there may be something to do. Whichever event it was, the next step reads
// everything again.
func (r *run) wait(stop, changed <-chan struct{}, now, wake time.Time) {
	var timer <-chan time.Time
	if !wake.IsZero() {
		t := r.cfg.Clock.NewTimer(wake.Sub(now))
		defer t.Stop()
		timer = t.C()
	}
	select {
	case <-stop:
	case <-changed:
	case <-timer:
	case answered := <-r.answers:
		answered()
	}
}

// send sends the request of a step.
func (r *run) send(in input, out output) {
	stamp := in.now
	if out.action == actRenew || r.state.phase == phaseHeld {
		stamp = stampAfter(later(in.observation.RenewTime, r.state.stamp), in.now)
	}
	duration := in.timing.LeaseDuration
	if out.action == actRenew {
		duration = declares(in.observation.Record, duration)
	}
	naming := func(lease *coordinationv1.Lease) *coordinationv1.Lease {
		return leaseNaming(lease, r.cfg.Name, in.self, out.term, duration, stamp)
	}
	known := in.observation.ResourceVersion
	r.requests.Send(r.ctx, request.Request{
		Name: r.cfg.Name, Version: known, Timeout: r.cfg.Timing.RequestTimeout(), Creates: out.action == actCreate,
		Do: func(ctx context.Context, _ time.Time) (*coordinationv1.Lease, error) {
			switch out.action {
			case actRead:
				return r.requests.Get(ctx, r.cfg.Name, known)
			case actCreate:
				return r.cfg.Client.Create(ctx, naming(nil), metav1.CreateOptions{})
			default:
				return r.cfg.Client.Update(ctx, naming(in.observation.Lease), metav1.UpdateOptions{})
			}
		},
		Then: func(a request.Answer) { r.receive(out.action, a) },
	})
}

// receive records the outcome of a request in the state, and reports it.
func (r *run) receive(did action, a request.Answer) {
	before, now := r.state, r.cfg.Clock.Now()
	r.state = before.answered(r.cfg.Identity, did, a, r.cfg.Observer.Get(r.cfg.Name), now, r.cfg.Timing, r.period())
	event := election.Event{Term: r.state.term.transitions, Action: did.event(), Holder: r.cfg.Identity, Duration: a.Took()}
	switch {
	case a.Err != nil:
		r.failed(did, a)
		return
	case before.phase != r.state.phase:
		r.begun = now
		r.setFreeSince(freeSince(r.before, r.cfg.Observer.Get(r.cfg.Name), r.cfg.Timing.LeaseDuration), !r.before.Known())
		r.publish(r.state.deadline())
		close(r.held)
		r.logger.V(2).Info("Held leader lock", "term", event.Term, "action", did)
		event.Type = election.EventAcquired
	case !before.lastRenew.Equal(r.state.lastRenew):
		event.Type = election.EventRenewed
	default:
		return // A read that showed nothing new: it does not end a series of failures.
	}
	r.requests.Succeeded()
	r.report(event)
}

// period returns the time until the next read: at most RetryPeriod. So with the default timing a
// member that only reads still has RenewDeadline minus twice that, and one request that hangs
// leaves time for another.
func (r *run) period() time.Duration {
	return time.Duration(float64(r.cfg.Jitter(r.cfg.Timing.RetryPeriod)) / request.JitterFactor)
}

// failed reports the failure and sets when the next request may be sent.
func (r *run) failed(did action, a request.Answer) {
	event := election.Event{Type: election.EventFailed, Term: r.state.term.transitions, Action: did.event(), Duration: a.Took(), Err: a.Err}
	pause := r.requests.Failed(a)
	if a.Conflict {
		event.Type = election.EventConflict
	} else if r.state.phase == phaseHeld {
		// If the right ends, so does the whole process, and a single answer would keep it.
		left := r.state.deadline().Sub(a.End)
		pause = min(pause, max(left/heldFailures, pause/heldFailures))
	}
	r.state.notBefore = a.Start.Add(pause)
	event.Holder = r.Holder()
	r.logger.V(r.requests.Verbosity()).Info("Failed to keep leader lock", "action", did, "conflict", a.Conflict, "err", a.Err)
	r.report(event)
}

// tell reports why the leader lock is not valid, once per reason and holder.
func (r *run) tell(in input, out output) {
	event := election.Event{Type: election.EventWaiting, Name: r.cfg.Name, Reason: out.reason, Holder: in.observation.Holder}
	if r.state.phase == phaseHeld {
		event.Type, event.Term = EventSuspended, r.state.term.transitions
	}
	if out.reason == "" {
		r.told = election.Event{}
	} else if event != r.told {
		r.told = event
		r.logger.V(2).Info("Waited for leader lock", "reason", event.Reason, "holder", event.Holder, "suspended", event.Type == EventSuspended)
		r.cfg.OnEvent(event)
	}
}

func (r *run) report(event election.Event) {
	event.Name = r.cfg.Name
	r.cfg.OnEvent(event)
}
