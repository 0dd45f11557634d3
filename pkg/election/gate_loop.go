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

// gateConflicts is how many conflicts in a row are followed by a pause. The first are usual when members start together, and
// the read after the second tells that another member has renewed.
const gateConflicts = 4

// heldFailures divides what is left of the right, and the usual pause: after a failure the next
// request of a holder follows within a quarter of what is left, and no sooner than after a quarter
// of the usual pause.
const heldFailures = 4

// gateRun is one call of Gate.Run. All its fields belong to the goroutine of Run.
type gateRun struct {
	*Gate
	ctx    context.Context // Lives exactly as long as Run.
	logger klog.Logger

	state    gateState
	busy     bool
	failures int         // failed requests in a row
	begun    time.Time   // when the right began
	before   Observation // the last one that did not name the fleet
	told     Event       // the last EventWaiting or EventSuspended
}

// Run waits for the gate and keeps it until ctx ends or it is lost. When ctx ends the right ends, the Lease is left as it is,
// and Run returns nil. When the gate is lost, Run closes Lost and returns an error that is ErrGateLost and says why. It
// returns after everything it started has ended.
func (g *Gate) Run(ctx context.Context) error {
	g.setRunning(true)
	defer g.setRunning(false)
	logger := klog.LoggerWithValues(klog.FromContext(ctx), "lease", g.cfg.Name)
	requests, cancel := context.WithCancel(klog.NewContext(ctx, logger))
	r := &gateRun{Gate: g, ctx: requests, logger: logger}
	changed, unsubscribe := g.cfg.Observer.Subscribe(func(name string) bool { return name == g.cfg.Name })
	defer unsubscribe()
	defer r.finish(cancel)
	for ctx.Err() == nil {
		in := r.input()
		out := gateStep(in)
		r.state = out.state
		r.publish(out.validUntil)
		switch out.action {
		case gateEnd:
			return r.end(in, out.reason)
		case gateWait:
			r.tell(in, out)
			r.wait(ctx.Done(), changed, in.now, out.wake)
		default:
			r.tell(in, out)
			r.send(in, out)
		}
	}
	return nil
}

func (r *gateRun) input() gateInput {
	observation := r.cfg.Observer.Get(r.cfg.Name)
	if observation.Holder != r.cfg.Identity {
		r.before = observation
	}
	return gateInput{
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
func (r *gateRun) finish(cancel context.CancelFunc) {
	r.publish(time.Time{})
	cancel()
	if r.busy {
		<-r.reply
	}
}

func (r *gateRun) end(in gateInput, reason Reason) error {
	close(r.lost)
	holder, lasted := in.observation.Holder, in.now.Sub(r.begun)
	r.logger.V(2).Info("Lost gate", "reason", reason, "holder", holder, "lasted", lasted)
	r.report(Event{Type: EventEnded, Term: r.state.term.transitions, Reason: reason, Holder: holder, Duration: lasted})
	if reason == ReasonOtherHolder {
		return fmt.Errorf("%w: %s %q", ErrGateLost, reason, holder)
	}
	return fmt.Errorf("%w: %s", ErrGateLost, reason)
}

// wait blocks until there may be something to do. Whatever it was, the next step reads everything again.
func (r *gateRun) wait(stop, changed <-chan struct{}, now, wake time.Time) {
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
func (r *gateRun) send(in gateInput, out gateOutput) {
	ctx, cancel := context.WithTimeout(r.ctx, r.cfg.Timing.requestTimeout())
	r.busy = true
	stamp := in.now
	if out.action == gateRenew || r.state.phase == gateHeld {
		stamp = stampAfter(later(in.observation.RenewTime, r.state.stamp), in.now)
	}
	go func() {
		defer cancel()
		answer := gateAnswer{action: out.action, start: r.cfg.Clock.Now()}
		var lease *coordinationv1.Lease
		switch out.action {
		case gateRead:
			lease, answer.err = r.read(ctx, in)
		case gateCreate:
			wanted := gateLease(nil, r.cfg.Name, in.self, out.term, in.timing.LeaseDuration, stamp)
			lease, answer.err = r.cfg.Client.Create(ctx, wanted, metav1.CreateOptions{})
		default:
			wanted := gateLease(in.observation.Lease, r.cfg.Name, in.self, out.term, in.timing.LeaseDuration, stamp)
			lease, answer.err = r.cfg.Client.Update(ctx, wanted, metav1.UpdateOptions{})
		}
		// A create that finds nothing has found no namespace.
		gone := apierrors.IsNotFound(answer.err) && out.action != gateCreate
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
func (r *gateRun) read(ctx context.Context, in gateInput) (*coordinationv1.Lease, error) {
	lease, err := r.cfg.Client.Get(ctx, r.cfg.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		r.cfg.Observer.Missing(r.cfg.Name, in.observation.ResourceVersion)
		return nil, nil
	}
	return lease, err
}

// receive adds the outcome of a request to the state, and says what has come of it.
func (r *gateRun) receive(answer gateAnswer) {
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
		r.logger.V(2).Info("Held gate", "term", event.Term, "action", answer.action)
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
func (r *gateRun) period() time.Duration {
	return time.Duration(float64(r.cfg.Jitter(r.cfg.Timing.RetryPeriod)) / jitterFactor)
}

// failed decides when the next request may be sent.
func (r *gateRun) failed(answer gateAnswer) {
	r.failures++
	event := Event{Type: EventFailed, Term: r.state.term.transitions, Action: answer.action.event(), Duration: answer.end.Sub(answer.start), Err: answer.err}
	pause := r.cfg.Jitter(r.cfg.Timing.RetryPeriod)
	if answer.conflict {
		event.Type = EventConflict
		pause /= conflictPause
		if r.failures%gateConflicts != 0 {
			pause = 0
		}
	} else if r.state.phase == gateHeld {
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
	r.logger.V(verbosity).Info("Failed to keep gate", "action", answer.action, "conflict", answer.conflict, "err", answer.err)
	r.report(event)
}

// tell reports why the gate is not valid, once per reason and holder.
func (r *gateRun) tell(in gateInput, out gateOutput) {
	event := Event{Type: EventWaiting, Name: r.cfg.Name, Reason: out.reason, Holder: in.observation.Holder}
	if r.state.phase == gateHeld {
		event.Type, event.Term = EventSuspended, r.state.term.transitions
	}
	if out.reason == "" {
		r.told = Event{}
	} else if event != r.told {
		r.told = event
		r.logger.V(2).Info("Waited for gate", "reason", event.Reason, "holder", event.Holder, "suspended", event.Type == EventSuspended)
		r.cfg.OnEvent(event)
	}
}

func (r *gateRun) report(event Event) {
	event.Name = r.cfg.Name
	r.cfg.OnEvent(event)
}
