package election

import (
	"context"
	"errors"
	"maps"
	"strconv"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flotilla-kube/flotilla/internal/faults"
	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/election/request"
)

// send sends the request of a step.
func (r *run) send(in Input, out Output) {
	timeout := r.cfg.Timing.RequestTimeout()
	if out.Action == Release {
		// Once others may list this incarnation as ended, nobody waits for the release.
		timeout = min(timeout, in.Confirmed.Add(in.Timing.LeaseDuration).Sub(in.Now))
	}
	_, _, touched := r.orders()
	marks := leaserecord.Stamp{Labels: r.cfg.Labels, Annotations: r.cfg.Annotations()}
	sent := order{action: out.Action, before: in.Observation, version: in.Observation.ResourceVersion, term: out.Term, touched: touched}
	sent.fresh = r.state.Phase == Idle && (out.Action == Create || out.Action == Acquire)
	if u := r.unanswered; sent.fresh && u.fresh && in.Observation.Holder == in.Self && in.Observation.Transitions == u.term {
		sent.before = u.before // what is observed is that attempt, under which nothing ran
	}
	r.sent = out.Action
	r.requests.Send(r.ctx, request.Request{
		Name: r.cfg.Name, Version: in.Observation.ResourceVersion, Timeout: timeout, Creates: out.Action == Create, Reread: true,
		Do: func(ctx context.Context, start time.Time) (*coordinationv1.Lease, error) {
			switch out.Action {
			case Create:
				return r.create(ctx, in, out, marks, start)
			case Acquire, Renew:
				return r.update(ctx, in, out, marks, start)
			case Ask:
				return r.cfg.Client.Update(ctx, leaserecord.Asked(in.Observation.Lease, in.Self), metav1.UpdateOptions{})
			case Unask:
				return r.cfg.Client.Update(ctx, leaserecord.Asked(in.Observation.Lease, ""), metav1.UpdateOptions{})
			default:
				return r.release(ctx, in)
			}
		},
		Then: func(a request.Answer) { r.receive(sent, a) },
	})
}

func (r *run) create(ctx context.Context, in Input, out Output, marks leaserecord.Stamp, now time.Time) (*coordinationv1.Lease, error) {
	lease := marks.Held(nil, r.cfg.Name, in.Self, out.Term, in.Timing.LeaseDuration, now)
	return r.cfg.Client.Create(ctx, lease, metav1.CreateOptions{})
}

// update writes the Lease as observed: its resourceVersion makes the server refuse the write if the
// Lease has changed since.
func (r *run) update(ctx context.Context, in Input, out Output, marks leaserecord.Stamp, now time.Time) (*coordinationv1.Lease, error) {
	lease := marks.Held(in.Observation.Lease, r.cfg.Name, in.Self, out.Term, in.Timing.LeaseDuration, now)
	return r.cfg.Client.Update(ctx, lease, metav1.UpdateOptions{})
}

// release reads the Lease and clears its holder if that is still this incarnation: it must not
// release a successor's claim. The update is conditional on the resourceVersion read. It returns
// nil if there was nothing to release.
func (r *run) release(ctx context.Context, in Input) (*coordinationv1.Lease, error) {
	lease, err := r.cfg.Client.Get(ctx, r.cfg.Name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	r.cfg.Observer.Observe(lease)
	term := leaserecord.From(lease).Transitions
	if leaserecord.From(lease).Holder != in.Self {
		return nil, nil
	}
	released := map[string]string{leaserecord.ReleasedAnnotation: strconv.Itoa(int(term))}
	left := leaserecord.Overlay(maps.Clone(r.cfg.Leave(term)), released)
	written, err := r.cfg.Client.Update(ctx, leaserecord.WithoutHolder(lease, left, r.cfg.Clock.Now()), metav1.UpdateOptions{})
	if request.IsRefused(err) {
		// The next holder can do without what the term leaves, but not without a release.
		return r.cfg.Client.Update(ctx, leaserecord.WithoutHolder(lease, released, r.cfg.Clock.Now()), metav1.UpdateOptions{})
	}
	return written, err
}

// order is what a request was sent for.
type order struct {
	action  Action
	fresh   bool // the request begins a claim, rather than keeping one
	before  Observation
	version string // of the Lease that the request is conditional on
	term    int32
	touched int
}

// receive records the outcome of a request in the state.
func (r *run) receive(sent order, a request.Answer) {
	if sent.action == Release && (a.Err == nil || a.Conflict) {
		r.unanswered = order{} // the Lease has been read
	}
	switch {
	case (sent.action == Renew || sent.action == Create) && !sent.fresh && !r.state.held():
		return // The claim has ended meanwhile; the observer knows what was written.
	case sent.action == Ask && errors.Is(a.Err, context.Canceled):
		return // The holder has let go meanwhile.
	case a.Err != nil:
		r.failed(sent, a)
		return
	}
	r.requests.Succeeded()
	r.state.NotBefore = time.Time{}
	switch {
	case sent.action == Release:
		if a.Lease != nil {
			r.logger.V(2).Info("Released Lease", "term", sent.term)
			r.report(Event{Type: EventReleased, Term: sent.term, Action: Release, Duration: a.Took()})
		}
	case sent.action == Ask:
		r.logger.V(2).Info("Asked for the Lease", "holder", sent.before.Holder, "term", sent.term)
		r.report(Event{Type: EventAsked, Term: sent.term, Action: Ask, Holder: sent.before.Holder, Duration: a.Took()})
	case sent.action == Unask:
		r.logger.V(2).Info("Withdrew the request for the Lease", "holder", sent.before.Holder, "term", sent.term)
	case sent.fresh:
		r.begin(sent, a)
	default:
		r.renewed(sent, a)
	}
}

// begin creates the claim on an acquired Lease. The claim may be over already if the answer took
// long: the next step checks.
func (r *run) begin(sent order, a request.Answer) {
	r.state = r.state.acquired(sent.term)
	r.begun = a.End
	r.touchedDone = sent.touched
	claim := newClaim(r.ctx, r.cfg.Name, r.cfg.Identity, sent.term, r.cfg.Heartbeat, func() bool {
		lease := r.cfg.Observer.Get(r.cfg.Name)
		return lease.Exists && lease.Holder == r.cfg.Identity && lease.Transitions == sent.term
	}, r.cfg.Timing)
	claim.lease, claim.before = a.Lease.UID, sent.before
	r.unanswered = order{}
	r.setClaim(claim)
	r.logger.V(2).Info("Acquired Lease", "term", sent.term)
	r.report(Event{Type: EventAcquired, Term: sent.term, Action: sent.action, Holder: r.cfg.Identity, Duration: a.Took()})
}

// renewed records that the Lease was written again in the current claim's term.
func (r *run) renewed(sent order, a request.Answer) {
	if r.state.Term != sent.term {
		return // Not for this claim.
	}
	r.written = r.cfg.Clock.Now()
	if !faults.TouchForever {
		r.touchedDone = sent.touched
	}
	r.report(Event{Type: EventRenewed, Term: sent.term, Action: sent.action, Holder: r.cfg.Identity, Duration: a.Took()})
}

// failed reports the failure and sets when the next request may be sent.
func (r *run) failed(sent order, a request.Answer) {
	event := Event{Type: EventFailed, Term: sent.term, Action: sent.action, Duration: a.Took(), Err: a.Err}
	now := r.cfg.Observer.Get(r.cfg.Name)
	if a.Conflict {
		event.Type = EventConflict
	}
	// A conflict may be with this request itself, if something in between has sent it twice.
	if sent.fresh && !request.IsRefused(a.Err) && (!a.Conflict || now.Holder == r.cfg.Identity && now.Transitions == sent.term) {
		r.unanswered = sent
	}
	pause := r.requests.Failed(a)
	if sent.action == Ask {
		// Only the next request for the Lease waits: the holder may have heard this one and let go.
		r.state.Asked = later(r.state.Asked, a.Start.Add(pause-r.cfg.Timing.RetryPeriod))
	} else {
		r.state.NotBefore = a.Start.Add(pause)
	}
	event.Holder = now.Holder
	r.logger.V(r.requests.Verbosity()).Info("Failed to write Lease", "action", sent.action, "term", sent.term, "conflict", a.Conflict, "err", a.Err)
	r.report(event)
}
