package membership

import (
	"context"
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

// judge lists dead incarnations that hold shards as ended: of other members, and older ones of its
// own. An acquisition lists only the incarnation that it replaces, so after the member's Lease was
// deleted, nothing lists those from before. It returns when to look again.
func (p *pacemaker) judge(ctx context.Context, in heartbeat.Input) time.Time {
	if p.state.Phase != heartbeat.Live {
		return time.Time{}
	}
	o := p.m.cfg.Observer
	holders := map[string]map[string]time.Time{}
	for incarnation, changed := range p.named {
		member := leaserecord.MemberOf(incarnation)
		if member == p.m.member && (incarnation == p.m.cfg.Incarnation || !p.own.Exists) {
			continue // a heartbeat creates the member's own Lease
		}
		if holders[member] == nil {
			holders[member] = map[string]time.Time{}
		}
		holders[member][incarnation] = changed
	}
	var wake time.Time
	live := RosterFrom(p.m.cfg.Fleet, p.members, p.m.cfg.Timing.LeaseDuration, in.Now).Live()
	for member, named := range holders {
		j := p.judged[member]
		if j == nil {
			j = &judgement{requests: p.requester()}
			p.judged[member] = j
		}
		lease := o.Get(leaserecord.MemberLease(p.m.cfg.Fleet, member))
		step := heartbeat.JudgeInput{
			Now: in.Now, Right: heartbeat.Right{Until: p.state.Confirmed.Add(p.m.cfg.Timing.RenewDeadline)}, Member: viewOf(lease), Holders: named,
			Delay: turn(live, p.m.member, member, in.Timing), NotBefore: j.notBefore, Timing: in.Timing, Busy: j.requests.Busy(),
		}
		if faults.ExpiryEarly {
			step.Timing.LeaseDuration /= 2
			step.Member.Duration = 0
		}
		out := heartbeat.JudgeStep(step)
		if out.Action != heartbeat.JudgeWait {
			p.strike(ctx, j, member, lease, out)
		}
		if !out.Wake.IsZero() && (wake.IsZero() || out.Wake.Before(wake)) {
			wake = out.Wake
		}
	}
	return wake
}

// turn returns how long a judge waits before it strikes, so that usually only one judge does. All
// live members but the judged one take turns, and the judged member's name decides who is first.
func turn(live []string, self, judged string, timing heartbeat.Timing) time.Duration {
	judges, rank, first := 0, -1, 0
	for _, name := range live {
		if name == judged {
			continue
		}
		if name == self {
			rank = judges
		}
		judges++
	}
	if rank < 0 {
		rank, judges = judges, judges+1 // it counts itself last
	}
	for _, c := range []byte(judged) {
		first = (first*31 + int(c)) % judges
	}
	rank = (rank - first + judges) % judges
	return min(time.Duration(rank)*timing.RetryPeriod/8, timing.LeaseDuration/3)
}

// strike carries out a judgement.
func (p *pacemaker) strike(ctx context.Context, j *judgement, member string, lease election.Observation, out heartbeat.JudgeOutput) {
	klog.FromContext(ctx).V(2).Info("Judged a member that holds shards", "member", member, "incarnation", out.Dead, "action", out.Action)
	q := p.request(lease)
	q.Creates = out.Action == heartbeat.JudgeRestore
	q.Do = func(ctx context.Context, now time.Time) (*coordinationv1.Lease, error) {
		if out.Action == heartbeat.JudgeRestore {
			s := leaserecord.Stamp{Labels: p.m.cfg.Labels}
			restored := s.Held(nil, leaserecord.MemberLease(p.m.cfg.Fleet, member), out.Dead, max(1, lease.HighTerm), p.m.cfg.Timing.LeaseDuration, now)
			return p.client.Create(ctx, withEnded(restored, out.Member), metav1.CreateOptions{})
		}
		marked, err := p.client.Update(ctx, struck(lease.Lease, out, p.m.cfg.Fences() && !faults.MarkSkipped), metav1.UpdateOptions{})
		if request.IsRefused(err) {
			// Something in the API server refuses the mark. A shard without a holder is worse than
			// one without a fence.
			return p.client.Update(ctx, struck(lease.Lease, out, false), metav1.UpdateOptions{})
		}
		return marked, err
	}
	q.Then = func(a request.Answer) { p.judgedWith(j, member, out, a) }
	j.requests.Send(ctx, q)
}

// struck returns the Lease after a strike. If marked is set, it also fences the dead incarnation in
// the API server, see [leaserecord.FenceIncarnation].
func struck(lease *coordinationv1.Lease, out heartbeat.JudgeOutput, marked bool) *coordinationv1.Lease {
	if marked {
		lease, _ = leaserecord.FenceIncarnation(lease, out.Dead)
	}
	after := withEnded(leaserecord.Storable(lease), out.Member)
	if out.Member.Holder == "" {
		holder := ""
		after.Spec.HolderIdentity = &holder
	}
	return after
}

// judgedWith records the outcome of a judge's request.
func (p *pacemaker) judgedWith(j *judgement, member string, out heartbeat.JudgeOutput, a request.Answer) {
	if a.Err != nil {
		// A conflict means that the member lives, or that another judge was faster.
		j.notBefore = a.Start.Add(j.requests.Failed(a))
		return
	}
	j.requests.Succeeded()
	if j.last == out.Dead {
		// What was written did not have its effect: something in the API server has changed it.
		j.notBefore = a.Start.Add(p.m.cfg.Timing.RetryPeriod)
	}
	j.last = out.Dead
	if out.Action == heartbeat.JudgeStrike {
		p.m.cfg.OnEvent(election.Event{Type: election.EventStruck, Name: leaserecord.MemberLease(p.m.cfg.Fleet, member), Holder: out.Dead, Duration: a.Took()})
	}
}
