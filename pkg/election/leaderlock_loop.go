package election

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
)

// lockConflicts is how many conflicts in a row are followed by a pause. The first are usual when
// members start together, and the read after the second tells that another member has renewed.
const lockConflicts = 4

// heldFailures divides what is left of the right, and the usual pause: after a failure the next
// request of a holder follows within a quarter of what is left, and no sooner than after a quarter
// of the usual pause.
const heldFailures = 4

// lockRun is one call of LeaderLock.Run. All its fields belong to the goroutine of Run.
type lockRun struct {
	*LeaderLock
	ctx    context.Context // Lives exactly as long as Run.
	logger klog.Logger

	state    lockState
	busy     bool
	failures int         // failed requests in a row
	begun    time.Time   // when the right began
	before   Observation // the last one that did not name the fleet
	told     Event       // the last EventWaiting or EventSuspended
}

// Run waits for the leader lock and keeps it until ctx ends or it is lost. When ctx ends the right
// ends, the Lease is left as it is, and Run returns nil. When the leader lock is lost, Run closes
// Lost and returns an error that is ErrLeaderLockLost and says why. It returns after everything it
// started has ended.
func (l *LeaderLock) Run(ctx context.Context) error {
	l.setRunning(true)
	defer l.setRunning(false)
	logger := klog.LoggerWithValues(klog.FromContext(ctx), "lease", l.cfg.Name)
	requests, cancel := context.WithCancel(klog.NewContext(ctx, logger))
	r := &lockRun{LeaderLock: l, ctx: requests, logger: logger}
	changed, unsubscribe := l.cfg.Observer.Subscribe(func(name string) bool { return name == l.cfg.Name })
	defer unsubscribe()
	defer r.finish(cancel)
	for ctx.Err() == nil {
		in := r.input()
		out := lockStep(in)
		r.state = out.state
		r.publish(out.validUntil)
		switch out.action {
		case lockEnd:
			return r.end(in, out.reason)
		case lockWait:
			r.tell(in, out)
			r.wait(ctx.Done(), changed, in.now, out.wake)
		default:
			r.tell(in, out)
			r.send(in, out)
		}
	}
	return nil
}

func (r *lockRun) input() lockInput {
	observation := r.cfg.Observer.Get(r.cfg.Name)
	if observation.Holder != r.cfg.Identity {
		r.before = observation
	}
	return lockInput{
		self:        r.cfg.Identity,
		observation: observation,
		state:       r.state,
		timing:      r.cfg.Timing,
		busy:        r.busy,
		// Last, so that nothing above is newer than it.
		now: r.cfg.Clock.Now(),
	}
}

// finish ends the right, and waits for the request under way.
func (r *lockRun) finish(cancel context.CancelFunc) {
	r.publish(time.Time{})
	cancel()
	if r.busy {
		<-r.reply
	}
}

func (r *lockRun) end(in lockInput, reason Reason) error {
	close(r.lost)
	holder, lasted := in.observation.Holder, in.now.Sub(r.begun)
	r.logger.V(2).Info("Lost leader lock", "reason", reason, "holder", holder, "lasted", lasted)
	r.report(Event{Type: EventEnded, Term: r.state.term.transitions, Reason: reason, Holder: holder, Duration: lasted})
	if reason == ReasonOtherHolder {
		return fmt.Errorf("%w: %s %q", ErrLeaderLockLost, reason, holder)
	}
	return fmt.Errorf("%w: %s", ErrLeaderLockLost, reason)
}

// wait blocks until there may be something to do. Whatever it was, the next step reads everything again.
func (r *lockRun) wait(stop, changed <-chan struct{}, now, wake time.Time) {
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
	case answer := <-r.reply:
		r.receive(answer)
	}
}

// send carries out one request on a goroutine of its own and leaves the outcome in r.reply. What the server answers is
// told to the observer first, so that the next step knows it.
func (r *lockRun) send(in lockInput, out lockOutput) {
	ctx, cancel := context.WithTimeout(r.ctx, r.cfg.Timing.requestTimeout())
	r.busy = true
	stamp := in.now
	if out.action == lockRenew || r.state.phase == lockHeld {
		stamp = stampAfter(later(in.observation.RenewTime, r.state.stamp), in.now)
	}
	go func() {
		defer cancel()
		answer := lockAnswer{action: out.action, start: r.cfg.Clock.Now()}
		var lease *coordinationv1.Lease
		switch out.action {
		case lockRead:
			lease, answer.err = r.read(ctx, in)
		case lockCreate:
			wanted := leaseNaming(nil, r.cfg.Name, in.self, out.term, in.timing.LeaseDuration, stamp)
			lease, answer.err = r.cfg.Client.Create(ctx, wanted, metav1.CreateOptions{})
		default:
			wanted := leaseNaming(in.observation.Lease, r.cfg.Name, in.self, out.term, in.timing.LeaseDuration, stamp)
			lease, answer.err = r.cfg.Client.Update(ctx, wanted, metav1.UpdateOptions{})
		}
		// A create that finds nothing has found no namespace.
		gone := apierrors.IsNotFound(answer.err) && out.action != lockCreate
		answer.conflict = gone || apierrors.IsConflict(answer.err) || apierrors.IsAlreadyExists(answer.err)
		if answer.err == nil && lease != nil {
			r.cfg.Observer.Observe(lease)
			answer.shown = RecordFrom(lease)
		}
		answer.end = r.cfg.Clock.Now()
		r.reply <- answer
	}()
}

// read fetches the Lease; it is nil if there is none.
func (r *lockRun) read(ctx context.Context, in lockInput) (*coordinationv1.Lease, error) {
	lease, err := r.cfg.Client.Get(ctx, r.cfg.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		r.cfg.Observer.Missing(r.cfg.Name, in.observation.ResourceVersion)
		return nil, nil
	}
	return lease, err
}

// receive adds the outcome of a request to the state, and says what has come of it.
func (r *lockRun) receive(answer lockAnswer) {
	r.busy = false
	before, now := r.state, r.cfg.Clock.Now()
	r.state = before.answered(r.cfg.Identity, answer, r.cfg.Observer.Get(r.cfg.Name), now, r.cfg.Timing, r.period())
	event := Event{Term: r.state.term.transitions, Action: answer.action.event(), Holder: r.cfg.Identity, Duration: answer.end.Sub(answer.start)}
	switch {
	case answer.err != nil:
		r.failed(answer)
		return
	case before.phase != r.state.phase:
		r.begun = now
		r.setFreeSince(freeSince(r.before, r.cfg.Observer.Get(r.cfg.Name), r.cfg.Timing.LeaseDuration))
		r.publish(r.state.lastRenew.Add(r.cfg.Timing.RenewDeadline))
		close(r.held)
		r.logger.V(2).Info("Held leader lock", "term", event.Term, "action", answer.action)
		event.Type = EventAcquired
	case !before.lastRenew.Equal(r.state.lastRenew):
		event.Type = EventRenewed
	default:
		return // A read that has shown nothing new: it ends no series of failures.
	}
	r.failures = 0
	r.report(event)
}

// period is the time until the next read: RetryPeriod at most, so that with the default timing a member that only reads still
// has RenewDeadline minus twice that, and one request that hangs leaves time for another.
func (r *lockRun) period() time.Duration {
	return time.Duration(float64(r.cfg.Jitter(r.cfg.Timing.RetryPeriod)) / jitterFactor)
}

// failed decides when the next request may be sent.
func (r *lockRun) failed(answer lockAnswer) {
	r.failures++
	event := Event{Type: EventFailed, Term: r.state.term.transitions, Action: answer.action.event(), Duration: answer.end.Sub(answer.start), Err: answer.err}
	pause := r.cfg.Jitter(r.cfg.Timing.RetryPeriod)
	if answer.conflict {
		event.Type = EventConflict
		pause /= conflictPause
		if r.failures%lockConflicts != 0 {
			pause = 0
		}
	} else if r.state.phase == lockHeld {
		// With the right the whole process ends, and one answer keeps it.
		left := r.state.lastRenew.Add(r.cfg.Timing.RenewDeadline).Sub(answer.end)
		pause = min(pause, max(left/heldFailures, pause/heldFailures))
	}
	// From its start: a request that hung until its time was up has waited long enough.
	r.state.notBefore = answer.start.Add(pause)
	event.Holder = r.Holder()
	verbosity := 4
	if r.failures == 2 {
		verbosity = 2 // Once per series; a single failure is nothing.
	}
	r.logger.V(verbosity).Info("Failed to keep leader lock", "action", answer.action, "conflict", answer.conflict, "err", answer.err)
	r.report(event)
}

// tell reports why the leader lock is not valid, once per reason and holder.
func (r *lockRun) tell(in lockInput, out lockOutput) {
	event := Event{Type: EventWaiting, Name: r.cfg.Name, Reason: out.reason, Holder: in.observation.Holder}
	if r.state.phase == lockHeld {
		event.Type, event.Term = EventSuspended, r.state.term.transitions
	}
	if out.reason == "" {
		r.told = Event{}
	} else if event != r.told {
		r.told = event
		r.logger.V(2).Info("Waited for leader lock", "reason", event.Reason, "holder", event.Holder, "suspended", event.Type == EventSuspended)
		r.cfg.OnEvent(event)
	}
}

func (r *lockRun) report(event Event) {
	event.Name = r.cfg.Name
	r.cfg.OnEvent(event)
}
