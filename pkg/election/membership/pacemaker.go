package membership

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"math"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/flotilla-kube/flotilla/internal/faults"
	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/election/heartbeat"
	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/election/request"
)

// Leases reads and writes Leases for a member.
type Leases interface {
	election.LeaseReader
	election.LeaseWriter
}

// pacemaker keeps a member's Lease as [heartbeat.Step] decides, and judges other members as
// [heartbeat.JudgeStep] decides. The fields below touched belong to the goroutine of run.
type pacemaker struct {
	m       *Membership
	client  Leases
	revoked <-chan struct{}
	wake    chan struct{} // capacity 1: touch was called
	answers chan func()

	mu      sync.Mutex
	rights  rights
	touched int // counts calls of touch

	// own is the member's Lease as this step knows it. The step's write is conditional on that
	// version.
	own         election.Observation
	spread      float64
	members     []election.Observation // the members' Leases, as this step knows them
	named       map[string]time.Time   // incarnations, by when a Lease that names them last changed
	state       heartbeat.State
	beats       *request.Requester
	touchedDone int
	judged      map[string]*judgement // by member
	waiting     election.Event
	foreign     election.Observation // the Lease of a live member that follows another protocol
	activating  sync.WaitGroup
}

// rights is what the member's claims rely on.
type rights struct {
	confirmed time.Time
	right     bool
}

// judgement is the state of judging one member.
type judgement struct {
	requests  *request.Requester
	notBefore time.Time
	last      string // whom the last request that succeeded was about
}

func newPacemaker(m *Membership, revoked <-chan struct{}) *pacemaker {
	if m.cfg.Jitter == nil {
		m.cfg.Jitter = request.Jitter
	}
	p := &pacemaker{
		m: m, client: m.cfg.Client, revoked: revoked, wake: make(chan struct{}, 1), answers: make(chan func()),
		judged: map[string]*judgement{}, spread: spreadOf(m.cfg.Incarnation),
	}
	p.beats = p.requester()
	return p
}

// requester returns a requester for the heartbeat, or for judging one member.
func (p *pacemaker) requester() *request.Requester {
	return request.New(request.Config{
		Reader: p.client, Observer: p.m.cfg.Observer, Clock: p.m.cfg.Clock, Conflicts: 2, Answers: p.answers,
		Pause: func() time.Duration { return p.m.cfg.Jitter(p.m.cfg.Timing.RetryPeriod) },
	})
}

// spreadOf returns a number in [0, 1) that differs from incarnation to incarnation.
func spreadOf(incarnation string) float64 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(incarnation))
	return float64(h.Sum32()) / (1 << 32)
}

func (p *pacemaker) confirmed() (time.Time, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.rights.confirmed, p.rights.right
}

func (p *pacemaker) touch() {
	p.mu.Lock()
	p.touched++
	p.mu.Unlock()
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

func (p *pacemaker) touches() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.touched
}

// name returns the name of the member's own Lease.
func (p *pacemaker) name() string { return leaserecord.MemberLease(p.m.cfg.Fleet, p.m.member) }

// run is Membership.Run.
func (p *pacemaker) run(ctx context.Context) error {
	logger := klog.LoggerWithValues(klog.FromContext(ctx), "lease", p.name())
	requests, stop := context.WithCancel(klog.NewContext(context.WithoutCancel(ctx), logger))
	defer p.finish(stop)
	active, leave := context.WithCancel(requests)
	defer leave()
	changed, unsubscribe := p.m.cfg.Observer.SubscribeChanges(p.concerned)
	defer unsubscribe()
	var lost error
	for {
		left := ctx.Err() != nil
		in, hung := p.input(!left)
		out := heartbeat.Step(in)
		if isClosed(p.revoked) && p.state.Phase == heartbeat.Live && !left {
			out = heartbeat.Output{Action: heartbeat.End, State: p.state, Reason: heartbeat.Reason(election.ReasonRevoked)}
			out.State.Phase = heartbeat.Over
		}
		if faults.StrikeOutlived && out.Action == heartbeat.End && !left {
			out = heartbeat.Output{State: in.State, Right: heartbeat.Right{Until: in.Now.Add(time.Hour)}}
			out.State.Confirmed = in.Now
		}
		p.take(out)
		if in.State.Confirmed.IsZero() && !p.state.Confirmed.IsZero() {
			p.join(active)
		}
		switch {
		case out.Action == heartbeat.End:
			leave()
			if out.Reason != heartbeat.ReasonLeft {
				lost = p.end(logger, election.Reason(out.Reason), hung)
			}
			continue
		case out.Settled, p.state.Phase == heartbeat.Over && left && !p.beats.Busy() && !in.Now.Before(p.expiry()):
			return lost
		case out.Action != heartbeat.Wait:
			p.send(requests, in, out)
			continue
		}
		if p.tell(requests, in) {
			continue
		}
		if out.Reason != "" {
			p.reportWaiting(logger, p.waitingFor(out.Reason), hung)
		}
		wake := p.judge(requests, in)
		if out.Reason == heartbeat.ReasonHung {
			// No event reports that the loop has iterated after all.
			out.Wake = in.Now.Add(p.m.cfg.Timing.RetryPeriod / 8)
		}
		if out.Wake.IsZero() || !wake.IsZero() && wake.Before(out.Wake) {
			out.Wake = wake
		}
		p.pause(ctx, left, changed, out.Wake, in.Now)
	}
}

// finish calls stop, and waits for everything that run has started.
func (p *pacemaker) finish(stop func()) {
	stop()
	p.beats.Wait()
	for _, j := range p.judged {
		j.requests.Wait()
	}
	p.activating.Wait()
}

// concerned reports whether a change of a Lease may need action at once. Renewals of other members
// do not: the pacemaker looks at those when they are due.
func (p *pacemaker) concerned(before, after election.Observation) bool {
	return after.Name == p.name() || before.Exists != after.Exists && leaserecord.IsMemberLease(p.m.cfg.Fleet, after.Name)
}

func (p *pacemaker) input(want bool) (heartbeat.Input, string) {
	o := p.m.cfg.Observer
	in := heartbeat.Input{
		Self: p.m.cfg.Incarnation, Want: want, State: p.state, Timing: heartbeat.Timing(p.m.cfg.Timing), Busy: p.beats.Busy(), Spread: p.spread,
		// The caller ends run's context only after all work has returned.
		Holding: want,
	}
	// Through first: what is read after it includes every write up to Through.
	in.Through = o.Through()
	p.own = o.Get(p.name())
	in.Member = viewOf(p.own)
	p.members, p.named = o.Living()
	for incarnation := range p.named {
		if leaserecord.MemberOf(incarnation) == p.m.member {
			in.Named = append(in.Named, incarnation)
		}
	}
	var slow string
	in.Now = p.m.cfg.Clock.Now()
	in.Turned, slow = p.m.cfg.Turned()
	if in.Turned.IsZero() {
		in.Turned = in.Now
	}
	if !in.Turned.Before(p.state.Sent) {
		slow = ""
	}
	p.foreign = election.Observation{}
	for _, lease := range p.members {
		name, _ := leaserecord.MemberOfLease(p.m.cfg.Fleet, lease.Name)
		if leaserecord.MemberOf(lease.Holder) == name && viewOf(lease).Foreign(in.Now, p.m.cfg.Timing.LeaseDuration) &&
			(!in.Foreign || lease.Name < p.foreign.Name) {
			in.Foreign, p.foreign = true, lease
		}
	}
	return in, slow
}

// viewOf returns a member's Lease as package heartbeat sees it.
func viewOf(o election.Observation) heartbeat.MemberView {
	v := heartbeat.MemberView{
		MemberRecord: heartbeat.MemberRecord{
			Version: heartbeat.ParseVersion(o.ResourceVersion), Holder: o.Holder, Beat: o.RenewTime.UnixMicro(), Ended: o.Ended(),
			Duration: o.Duration, Protocol: o.Protocol(),
		},
		Exists: o.Exists, Seen: o.Seen, HolderSeen: o.HolderSeen,
	}
	if o.Lease != nil {
		v.UID = string(o.Lease.UID)
	}
	return v
}

// take records what a step has decided, and publishes the rights to claims at once.
func (p *pacemaker) take(out heartbeat.Output) {
	p.state = out.State
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rights.right = !out.Right.Until.IsZero()
	if p.rights.right {
		p.rights.confirmed = p.state.Confirmed
	}
}

// join begins the membership, once the first heartbeat is confirmed.
func (p *pacemaker) join(active context.Context) {
	term := p.m.cfg.Observer.Get(p.name()).Transitions
	close(p.m.joined)
	p.report(election.Event{Type: election.EventStarted, Term: term, Holder: p.m.cfg.Incarnation})
	p.activating.Go(func() { p.m.activate(active, term) })
}

// expiry returns when others may list this incarnation as ended, whatever it still sends.
func (p *pacemaker) expiry() time.Time {
	last := p.state.Confirmed
	if p.state.Sent.After(last) {
		last = p.state.Sent
	}
	return last.Add(p.m.cfg.Timing.LeaseDuration)
}

// end ends a lost membership. hung names the loop that hangs, if any.
func (p *pacemaker) end(logger klog.Logger, reason election.Reason, hung string) error {
	lease := p.m.cfg.Observer.Get(p.name())
	if reason == election.ReasonRenewDeadline && hung != "" {
		reason = election.ReasonHung
	}
	logger.V(2).Info("Lost claim", "term", lease.Transitions, "reason", reason, "holder", lease.Holder, "loop", hung)
	close(p.m.lost)
	p.report(election.Event{Type: election.EventEnded, Term: lease.Transitions, Reason: reason, Holder: lease.Holder})
	if reason == election.ReasonHung {
		return fmt.Errorf("%w: %s: %s has not come round", ErrLost, reason, hung)
	}
	return fmt.Errorf("%w: %s", ErrLost, reason)
}

// send carries out what a step of the heartbeat asks for.
func (p *pacemaker) send(ctx context.Context, in heartbeat.Input, out heartbeat.Output) {
	lease, live := p.own, p.state.Phase == heartbeat.Live
	touched, until := p.touches(), p.state.Deadline(in.Timing)
	q := p.request(lease)
	var refusal error // why the last incarnation could not be marked
	q.Creates = out.Action == heartbeat.Create
	if out.Action == heartbeat.Read {
		q.Timeout = min(q.Timeout, max(until.Sub(in.Now)/2, p.m.cfg.Timing.RetryPeriod/4))
	}
	q.Do = func(ctx context.Context, start time.Time) (*coordinationv1.Lease, error) {
		switch out.Action {
		case heartbeat.Read:
			list, err := p.client.List(ctx, metav1.ListOptions{})
			if err == nil {
				p.m.cfg.Observer.Listed(list)
			}
			return nil, err
		case heartbeat.Create:
			return p.client.Create(ctx, p.beaten(nil, lease.HighTerm, live, out.Member, start), metav1.CreateOptions{})
		case heartbeat.Release:
			return p.client.Update(ctx, withEnded(leaserecord.WithoutHolder(lease.Lease, nil, start), out.Member), metav1.UpdateOptions{})
		default:
			beaten := p.beaten(lease.Lease, lease.HighTerm, live, out.Member, start)
			written, err := p.client.Update(ctx, beaten, metav1.UpdateOptions{})
			if request.IsRefused(err) && leaserecord.TakeMarksOf(beaten, lease.Lease) {
				// As in a strike: without a mark a write may pass, but without the heartbeat this
				// member could never come back.
				refusal = err
				return p.client.Update(ctx, beaten, metav1.UpdateOptions{})
			}
			return written, err
		}
	}
	q.Then = func(a request.Answer) {
		pause := p.received(a, touched)
		switch {
		case a.Err == nil:
			p.done(out.Action, a)
			if refusal != nil {
				struck, _ := lease.Unmarked()
				p.report(election.Event{Type: election.EventUnmarked, Holder: cmp.Or(lease.Holder, struck), Err: refusal})
			}
		case out.Action == heartbeat.Read:
			// A read is sent when little time is left. One that fails must leave time for another,
			// but with a pause in between.
			pause = min(pause, max(until.Sub(a.End)/4, p.m.cfg.Timing.RetryPeriod/4)+a.Took())
			p.state.NotBefore = a.Start.Add(pause)
		}
	}
	p.beats.Send(ctx, q)
}

// request returns the fields that all requests for a Lease, last observed as before, share.
func (p *pacemaker) request(before election.Observation) request.Request {
	return request.Request{
		Name: before.Name, Version: before.ResourceVersion, Timeout: p.m.cfg.Timing.RequestTimeout(), Reread: true,
	}
}

// beaten returns the Lease after a heartbeat that writes record. A Lease that named another holder,
// or none, gets the next term, if there is one. No right depends on a member's term.
func (p *pacemaker) beaten(
	lease *coordinationv1.Lease, high int32, live bool, record heartbeat.MemberRecord, now time.Time,
) *coordinationv1.Lease {
	before := leaserecord.From(lease)
	term := before.Transitions
	switch {
	case lease == nil && live:
		term = max(1, high)
	case before.Holder != record.Holder:
		term = min(high, math.MaxInt32-1) + 1
	}
	s := leaserecord.Stamp{Labels: p.m.cfg.Labels, Annotations: p.m.annotations()}
	out := s.Held(lease, p.name(), record.Holder, term, p.m.cfg.Timing.LeaseDuration, now)
	beat := metav1.NewMicroTime(time.UnixMicro(record.Beat))
	out.Spec.RenewTime = &beat
	return withEnded(out, record)
}

// withEnded sets the record's ended incarnations and protocol on lease, in place.
func withEnded(lease *coordinationv1.Lease, record heartbeat.MemberRecord) *coordinationv1.Lease {
	lease.Annotations = leaserecord.Overlay(lease.Annotations, map[string]string{
		leaserecord.EndedAnnotation:    strings.Join(record.Ended, ","),
		leaserecord.ProtocolAnnotation: fmt.Sprint(record.Protocol),
	})
	return lease
}

// tell writes changed annotations between heartbeats, and reports whether it sent a request. Such a
// write is not a heartbeat and extends no right.
func (p *pacemaker) tell(ctx context.Context, in heartbeat.Input) bool {
	touched, lease := p.touches(), p.own
	if p.beats.Busy() || touched == p.touchedDone || p.state.Phase != heartbeat.Live || in.Now.Before(p.state.NotBefore) || lease.Holder != in.Self {
		return false
	}
	told := leaserecord.Storable(lease.Lease)
	told.Annotations = leaserecord.Overlay(told.Annotations, p.m.annotations())
	if maps.Equal(told.Annotations, lease.Annotations) {
		if !faults.TouchForever {
			p.touchedDone = touched
		}
		return false
	}
	q := p.request(lease)
	q.Do = func(ctx context.Context, _ time.Time) (*coordinationv1.Lease, error) {
		return p.client.Update(ctx, told, metav1.UpdateOptions{})
	}
	q.Then = func(a request.Answer) {
		if p.received(a, touched); a.Err == nil {
			p.state = p.state.Done()
		}
	}
	p.beats.Send(ctx, q)
	return true
}

// received updates the state by what all answers for the member's own Lease share. It returns the
// pause after a failed request.
func (p *pacemaker) received(a request.Answer, touched int) time.Duration {
	if a.Err == nil {
		p.beats.Succeeded()
		if a.Lease != nil {
			p.touchedDone = touched
		}
		return 0
	}
	pause := p.beats.Failed(a)
	p.state.NotBefore = a.Start.Add(pause)
	event := election.Event{
		Type: election.EventFailed, Action: election.Renew, Duration: a.Took(), Err: a.Err,
		Holder: p.m.cfg.Observer.Get(p.name()).Holder,
	}
	if a.Conflict {
		event.Type = election.EventConflict
	}
	p.report(event)
	return pause
}

// done records in the state that a request of the heartbeat has succeeded.
func (p *pacemaker) done(action heartbeat.Action, a request.Answer) {
	lease := p.m.cfg.Observer.Get(p.name())
	switch action {
	case heartbeat.Read:
		p.state = p.state.Done()
	case heartbeat.Release:
		p.state = p.state.Done()
		klog.Background().V(2).Info("Released Lease", "lease", p.name(), "term", lease.Transitions)
		p.report(election.Event{Type: election.EventReleased, Term: lease.Transitions, Action: election.Release, Duration: a.Took()})
	default:
		kind, action := election.EventRenewed, election.Renew
		if p.state.Phase == heartbeat.Waiting {
			kind, action = election.EventAcquired, election.Acquire
		}
		p.state = p.state.Beaten(a.Start, p.m.cfg.Clock.Now(), heartbeat.ParseVersion(a.Lease.ResourceVersion))
		p.report(election.Event{Type: kind, Term: lease.Transitions, Action: action, Holder: p.m.cfg.Incarnation, Duration: a.Took()})
	}
}

// pause blocks until there may be something to do.
func (p *pacemaker) pause(ctx context.Context, left bool, changed <-chan struct{}, wake, now time.Time) {
	// At least this often, judge looks at all members' Leases and the heartbeat checks for hung
	// loops.
	d := p.m.cfg.Timing.RetryPeriod
	if !wake.IsZero() {
		d = min(d, max(0, wake.Sub(now)))
	}
	timer := p.m.cfg.Clock.NewTimer(d)
	defer timer.Stop()
	stop, revoked := ctx.Done(), p.revoked
	if left {
		stop = nil
	}
	if p.state.Phase != heartbeat.Live || left {
		revoked = nil
	}
	var confirmed <-chan struct{}
	// Once the right is over, a confirmed heartbeat changes nothing.
	if v := p.state.Pending.Version; v != 0 && p.state.Phase != heartbeat.Over {
		confirmed = p.m.cfg.Observer.Reached(v)
	}
	select {
	case <-changed:
	case <-p.wake:
	case <-confirmed:
	case <-timer.C():
	case answered := <-p.answers:
		answered()
	case <-stop:
	case <-revoked:
	}
}

func (p *pacemaker) report(event election.Event) {
	event.Name = p.name()
	if event.Type == election.EventRenewed || event.Type == election.EventStarted {
		p.waiting = election.Event{}
	}
	p.m.cfg.OnEvent(event)
}

// waitingFor returns the event that there is no right, or no heartbeat, for this reason.
func (p *pacemaker) waitingFor(reason heartbeat.Reason) election.Event {
	event := election.Event{Type: election.EventWaiting, Name: p.name(), Reason: election.Reason(reason), Holder: p.own.Holder}
	if reason == heartbeat.ReasonProtocol {
		event.Holder = p.foreign.Holder
		event.Err = fmt.Errorf("member %s follows protocol %d, and this build follows protocol %d: its fleet cannot be joined", event.Holder, p.foreign.Protocol(), heartbeat.Protocol)
	}
	return event
}

// reportWaiting reports an event of waitingFor, once per reason and holder.
func (p *pacemaker) reportWaiting(logger klog.Logger, event election.Event, loop string) {
	same := event
	same.Err = nil
	if same == p.waiting {
		return
	}
	p.waiting = same
	logger.V(2).Info("Waited for the Lease", "reason", event.Reason, "holder", event.Holder, "loop", loop)
	p.m.cfg.OnEvent(event)
}
