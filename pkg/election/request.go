package election

import (
	"context"
	"maps"
	"strconv"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flotilla-kube/flotilla/internal/faults"
)

// conflictPause is the pause after every second conflict in a row, as a part of RetryPeriod. After the others the request
// is repeated at once, with what was just read: after a pause that is old again if somebody writes all the time.
const conflictPause = 4

// reply is the outcome of one request to the API server.
type reply struct {
	action   Action
	fresh    bool // the request was to begin a claim, not to keep one
	before   Observation
	term     int32
	touched  int
	start    time.Time // when the request was started
	end      time.Time // when its answer was there
	err      error
	conflict bool // err says that the Lease is not as observed; it has been read again
	released bool // Release has found the Lease released, or released it
}

// send carries out one request on a goroutine of its own and leaves the outcome in r.reply. What the server answers is
// told to the observer first, so that the next step knows it.
func (r *run) send(in Input, out Output) {
	timeout := r.cfg.Timing.requestTimeout()
	if out.Action == Release {
		// Once others may list the incarnation as ended, nobody waits for the release.
		timeout = min(timeout, in.Confirmed.Add(in.Timing.LeaseDuration).Sub(in.Now))
	}
	ctx, cancel := context.WithTimeout(r.ctx, timeout)
	if r.state.held() {
		r.updating = cancel // The end of the claim ends it too.
	}
	r.busy = true
	_, _, touched := r.orders()
	marks := stamp{labels: r.cfg.Labels, annotations: r.cfg.Annotations()}
	fresh := r.state.Phase == Idle && (out.Action == Create || out.Action == Acquire)
	go func() {
		defer cancel()
		answer := reply{action: out.Action, fresh: fresh, before: in.Observation, term: out.Term, touched: touched, start: r.cfg.Clock.Now()}
		switch out.Action {
		case Create:
			answer.err = r.create(ctx, in, out, marks, answer.start)
		case Acquire, Renew:
			answer.err = r.update(ctx, in, out, marks, answer.start)
		case Ask:
			answer.err = r.ask(ctx, in)
		default:
			answer.released, answer.err = r.release(ctx, in)
		}
		// A create that finds nothing has found no namespace.
		gone := apierrors.IsNotFound(answer.err) && out.Action != Create
		answer.conflict = gone || apierrors.IsConflict(answer.err) || apierrors.IsAlreadyExists(answer.err)
		if answer.conflict {
			r.refresh(ctx, in)
		}
		answer.end = r.cfg.Clock.Now()
		r.reply <- answer
	}()
}

func (r *run) create(ctx context.Context, in Input, out Output, marks stamp, now time.Time) error {
	lease := marks.held(nil, r.cfg.Name, in.Self, out.Term, in.Timing.LeaseDuration, now)
	written, err := r.cfg.Client.Create(ctx, lease, metav1.CreateOptions{})
	return r.observe(written, err)
}

// update writes the Lease as it was observed: its resourceVersion makes the server refuse if it has changed since.
func (r *run) update(ctx context.Context, in Input, out Output, marks stamp, now time.Time) error {
	lease := marks.held(in.Observation.Lease, r.cfg.Name, in.Self, out.Term, in.Timing.LeaseDuration, now)
	written, err := r.cfg.Client.Update(ctx, lease, metav1.UpdateOptions{})
	return r.observe(written, err)
}

// ask leaves a request on the Lease as it was observed.
func (r *run) ask(ctx context.Context, in Input) error {
	written, err := r.cfg.Client.Update(ctx, asked(in.Observation.Lease, in.Self), metav1.UpdateOptions{})
	return r.observe(written, err)
}

// release clears the holder of the Lease as it is now, if that is still this incarnation: a successor's claim must not be
// released. The resourceVersion fetched makes sure that nothing happens in between.
func (r *run) release(ctx context.Context, in Input) (bool, error) {
	lease, err := r.cfg.Client.Get(ctx, r.cfg.Name, metav1.GetOptions{})
	if err := r.observe(lease, err); err != nil {
		return false, err
	}
	if RecordFrom(lease).Holder != in.Self {
		return false, nil
	}
	term := RecordFrom(lease).Transitions
	left := overlay(maps.Clone(r.cfg.Leave(term)), map[string]string{ReleasedAnnotation: strconv.Itoa(int(term))})
	written, err := r.cfg.Client.Update(ctx, released(lease, left, r.cfg.Clock.Now()), metav1.UpdateOptions{})
	err = r.observe(written, err)
	return err == nil, err
}

// refresh reads the Lease after a conflict. Should that fail too, the watch will tell.
func (r *run) refresh(ctx context.Context, in Input) {
	lease, err := r.cfg.Client.Get(ctx, r.cfg.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		r.cfg.Observer.Missing(r.cfg.Name, in.Observation.ResourceVersion)
		return
	}
	_ = r.observe(lease, err)
}

func (r *run) observe(lease *coordinationv1.Lease, err error) error {
	if err != nil {
		return err
	}
	r.cfg.Observer.Observe(lease)
	return nil
}

// receive adds the outcome of a request to the state.
func (r *run) receive(answer reply) {
	r.busy = false
	r.updating = nil
	switch {
	case (answer.action == Renew || answer.action == Create) && !answer.fresh && !r.state.held():
		// The claim has ended meanwhile; whatever was written is known to the observer.
	case answer.err != nil:
		r.failed(answer)
	case answer.action == Release:
		r.succeeded()
		if answer.released {
			r.logger.V(2).Info("Released Lease", "term", answer.term)
			r.report(Event{Type: EventReleased, Term: answer.term, Action: Release, Duration: answer.end.Sub(answer.start)})
		}
	case answer.action == Ask:
		r.succeeded()
		r.logger.V(2).Info("Asked for the Lease", "holder", answer.before.Holder, "term", answer.term)
		r.report(Event{Type: EventAsked, Term: answer.term, Action: Ask, Holder: answer.before.Holder, Duration: answer.end.Sub(answer.start)})
	case answer.fresh:
		r.succeeded()
		r.begin(answer)
	default:
		r.succeeded()
		r.renewed(answer)
	}
}

func (r *run) succeeded() {
	r.failures = 0
	r.state.NotBefore = time.Time{}
}

// begin makes a claim of an acquired Lease. It may be over already if the answer was long in coming: the next step looks.
func (r *run) begin(answer reply) {
	r.state = r.state.acquired(answer.term)
	r.begun = answer.end
	r.touchedDone = answer.touched
	claim := newClaim(r.ctx, r.cfg.Name, r.cfg.Identity, answer.term, r.cfg.Heartbeat, func() bool {
		lease := r.cfg.Observer.Get(r.cfg.Name)
		return lease.Exists && lease.Holder == r.cfg.Identity && lease.Transitions == answer.term
	}, r.cfg.Timing)
	claim.before = answer.before
	r.setClaim(claim)
	r.logger.V(2).Info("Acquired Lease", "term", answer.term)
	r.report(Event{Type: EventAcquired, Term: answer.term, Action: answer.action, Holder: r.cfg.Identity, Duration: answer.end.Sub(answer.start)})
}

// renewed records that the Lease was written again in the present claim's term.
func (r *run) renewed(answer reply) {
	if r.state.Term != answer.term {
		return // Not for this claim.
	}
	r.written = r.cfg.Clock.Now()
	if !faults.TouchForever {
		r.touchedDone = answer.touched
	}
	r.report(Event{Type: EventRenewed, Term: answer.term, Action: answer.action, Holder: r.cfg.Identity, Duration: answer.end.Sub(answer.start)})
}

// failed decides when the next request may be sent.
func (r *run) failed(answer reply) {
	r.failures++
	event := Event{Type: EventFailed, Term: answer.term, Action: answer.action, Duration: answer.end.Sub(answer.start), Err: answer.err}
	if answer.conflict {
		event.Type = EventConflict
	}
	// From its start: a request that hung until its time was up has waited long enough, and a claim's time is running.
	r.state.NotBefore = answer.start.Add(pauseAfter(r.failures, answer.conflict, r.cfg.Jitter(r.cfg.Timing.RetryPeriod)))
	event.Holder = r.cfg.Observer.Get(r.cfg.Name).Holder
	verbosity := 4
	if r.failures == 2 {
		verbosity = 2 // Once per series; a single failure is nothing.
	}
	r.logger.V(verbosity).Info("Failed to write Lease", "action", answer.action, "term", answer.term, "conflict", answer.conflict, "err", answer.err)
	r.report(event)
}
