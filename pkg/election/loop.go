package election

import (
	"context"
	"time"

	"k8s.io/klog/v2"

	"github.com/flotilla-kube/flotilla/internal/faults"
	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/election/request"
)

// run is one call of Claimant.Run. All its fields belong to the goroutine of Run.
type run struct {
	*Claimant
	// ctx has the values of the caller's context but not its end: requests continue while the claim
	// is drained and released.
	ctx    context.Context // Lives exactly as long as Run.
	logger klog.Logger

	state    State
	requests *request.Requester
	sent     Action      // of the last request
	answers  chan func() // capacity 1

	unanswered  order     // the last acquisition that failed and may have been carried out
	begun       time.Time // when the present claim was acquired
	endReason   Reason    // why the last claim ended
	stopWork    context.CancelCauseFunc
	returned    chan struct{} // closed when the work has returned; nil if none was started
	touchedDone int           // calls of Touch whose changes have been written
	written     time.Time     // when the held Lease was last written
	waiting     Event         // the last EventWaiting
}

// Run claims and releases until ctx ends. It then behaves as for Released: it drains, waits for the
// work to return while the claim holds, releases, and returns once everything it started has ended.
// If it cannot reach the API server, it gives up releasing once others may list the incarnation as
// ended.
func (c *Claimant) Run(ctx context.Context) {
	logger := klog.LoggerWithValues(klog.FromContext(ctx), "lease", c.cfg.Name)
	r := &run{
		Claimant: c,
		ctx:      klog.NewContext(context.WithoutCancel(ctx), logger),
		logger:   logger,
		answers:  make(chan func(), 1),
	}
	r.requests = request.New(request.Config{
		Reader: c.cfg.Client, Observer: c.cfg.Observer, Clock: c.cfg.Clock, Conflicts: 2, Answers: r.answers,
		Pause: func() time.Duration { return c.cfg.Jitter(c.cfg.Timing.RetryPeriod) },
	})
	changed, unsubscribe := c.cfg.Observer.subscribeLease(c.cfg.Name)
	defer unsubscribe()
	for {
		// wait uses what this step knew of ctx's end and of the revocation: either must wake it if
		// it comes later.
		ended := ctx.Err() != nil
		in := r.input(ended)
		if r.sent == Ask && in.Busy && in.Observation.Exists && in.Observation.Holder == "" {
			r.requests.Cancel() // the holder has heard it, or need not hear it any more
		}
		out := Step(in)
		if r.do(in, out) {
			continue
		}
		next, settled := r.cfg.Beside(ctx)
		if out.Settled && ended && settled {
			return
		}
		stop, revoked := ctx.Done(), r.cfg.Revoked
		if ended {
			stop = nil
		}
		if in.Revoked {
			revoked = nil
		}
		wake := out.Wake
		if wake.IsZero() || !next.IsZero() && next.Before(wake) {
			wake = next
		}
		r.wait(changed, stop, revoked, wake)
	}
}

func (r *run) input(ended bool) Input {
	desired, ask, touched := r.orders()
	if ended {
		desired = Released
	}
	in := Input{
		Self:         r.cfg.Identity,
		Desired:      desired,
		Revoked:      closed(r.cfg.Revoked),
		Observation:  r.cfg.Observer.Get(r.cfg.Name),
		State:        r.state,
		Timing:       r.cfg.Timing,
		Busy:         r.requests.Busy(),
		Returned:     r.returned != nil && (closed(r.returned) || faults.ReleaseBeforeStop && r.state.Phase == Draining),
		DrainTimeout: r.cfg.DrainTimeout(),
		Touch:        touched != r.touchedDone,
		Ask:          ask,
	}
	in.Unanswered = r.unanswered.fresh && in.Observation.ResourceVersion == r.unanswered.version
	in.Confirmed, in.Right = r.cfg.Heartbeat.Confirmed()
	// Last, so that nothing above is newer than it.
	in.Now = r.cfg.Clock.Now()
	turned := in.Now // a copy, so that in does not escape to the heap
	r.turned.Store(&turned)
	if r.state.held() && !faults.TouchForever {
		in.Touch = r.lacks(in.Observation) && (in.Touch || !in.Now.Before(r.written.Add(in.Timing.RetryPeriod)))
	}
	return in
}

// lacks reports whether the Lease differs from the duration, annotations and labels that a claim
// writes on it.
func (r *run) lacks(lease Observation) bool {
	if !lease.Exists {
		return false
	}
	differs := func(want, have map[string]string) bool {
		for key, value := range want {
			if have[key] != value {
				return true
			}
		}
		return false
	}
	declares := time.Duration(leaserecord.Declared(r.cfg.Timing.LeaseDuration)) * time.Second
	return lease.Duration != declares || differs(r.cfg.Annotations(), lease.Annotations) || differs(r.cfg.Labels, lease.Labels)
}

// do carries out one action and reports whether to step again at once.
func (r *run) do(in Input, out Output) bool {
	r.state = out.State
	holder := in.Observation.Holder
	switch out.Action {
	case Wait:
		if out.Reason != "" {
			r.reportWaiting(Event{Type: EventWaiting, Name: r.cfg.Name, Reason: out.Reason, Holder: holder})
		}
		return false
	case Create, Acquire, Renew, Ask, Unask, Release:
		r.send(in, out)
	case Start:
		r.startWork()
	case Drain:
		r.Claim().drain()
		r.stopWork(ErrDraining)
		r.report(Event{Type: EventDraining, Term: r.state.Term, Holder: holder})
	case End:
		r.endClaim(in, out.Reason)
	case Rest:
		r.returned = nil
		r.report(Event{Type: EventReturned, Term: r.state.Term, Holder: holder, Duration: in.Now.Sub(r.state.EndedAt)})
	case Stuck:
		stuck := StuckClaim{Name: r.cfg.Name, Term: r.state.Term, Reason: r.endReason, Since: in.Now.Sub(r.state.EndedAt)}
		if r.state.Phase == Draining {
			stuck.Reason, stuck.Since = "", in.Now.Sub(r.state.DrainingSince)
		}
		if !faults.StuckUntold {
			r.cfg.OnStuck(stuck)
		}
	}
	return true
}

// startWork calls Work on its own goroutine. The work's context derives from the claim's and ends
// with it.
func (r *run) startWork() {
	claim := r.Claim()
	ctx, cancel := context.WithCancelCause(claim.Context())
	r.stopWork = cancel
	returned := make(chan struct{})
	r.returned = returned
	r.report(Event{Type: EventStarted, Term: claim.Term(), Holder: r.cfg.Identity})
	go func() {
		defer close(returned)
		defer cancel(nil)
		r.cfg.Work(ctx, claim)
	}()
}

// endClaim ends the claim and everything that depends on it before it reports the end.
func (r *run) endClaim(in Input, reason Reason) {
	claim := r.Claim()
	if !faults.LostLeaseIgnored || reason.Planned() {
		claim.end(reason, in.Observation.Holder)
	}
	r.setClaim(nil)
	if !reason.Planned() || r.sent == Renew {
		// Nobody runs what the Lease covers until it is released. A Lease that is being created
		// after a planned end is waited for: it would have to be found first.
		r.requests.Cancel()
	}
	if in.Returned {
		r.returned = nil
	}
	r.endReason = reason
	lasted := in.Now.Sub(r.begun)
	if reason.Planned() {
		r.logger.V(2).Info("Ended claim", "term", claim.Term(), "reason", reason, "lasted", lasted)
	} else {
		r.logger.V(2).Info("Lost claim", "term", claim.Term(), "reason", reason, "holder", in.Observation.Holder, "lasted", lasted)
	}
	r.report(Event{Type: EventEnded, Term: claim.Term(), Reason: reason, Holder: in.Observation.Holder, Duration: lasted})
}

// wait blocks until there may be something to do: a change of the Lease, a call of Nudge,
// SetDesired, SetAsk or Touch, an answer, the work's return, the end of Run's context, a
// revocation, or wake. Whichever it was, the next step reads everything again.
func (r *run) wait(changed, stop, revoked <-chan struct{}, wake time.Time) {
	var timer <-chan time.Time
	if !wake.IsZero() {
		t := r.cfg.Clock.NewTimer(wake.Sub(r.cfg.Clock.Now()))
		defer t.Stop()
		timer = t.C()
	}
	select {
	case <-changed:
	case <-r.wake:
	case <-timer:
	case answered := <-r.answers:
		answered()
	case <-stop:
	case <-revoked:
	case <-r.returned:
	}
}

func (r *run) report(event Event) {
	event.Name = r.cfg.Name
	if event.Type != EventRenewed && event.Type != EventFailed && event.Type != EventConflict {
		r.waiting = Event{}
	}
	r.cfg.OnEvent(event)
}

// reportWaiting reports why the Lease cannot be acquired, once per reason and holder.
func (r *run) reportWaiting(event Event) {
	if event == r.waiting {
		return
	}
	r.waiting = event
	r.logger.V(2).Info("Waited for the Lease", "reason", event.Reason, "holder", event.Holder)
	r.cfg.OnEvent(event)
}

func closed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}
