package fleet

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/fleet/inforce"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// ErrWithoutPlan is wrapped by the error of an EventPlanRefused if the member knows no good plan to
// work by instead.
var ErrWithoutPlan = errors.New("no plan is in force, so no shard runs")

// refusal is a plan on the plan's Lease that this member does not work by.
type refusal struct {
	text string // the plan
	inforce.Verdict
}

// Plan returns the plan in force, and whether there is one yet.
func (m *Member) Plan() (shard.Plan, bool) {
	if f := m.inForce.Load(); f != nil {
		return f.Plan, true
	}
	return shard.Plan{}, false
}

// Refused returns why this member does not work by the plan on the plan's Lease; nil if it does.
func (m *Member) Refused() error {
	if r := m.refused.Load(); r != nil {
		return r.Err
	}
	return nil
}

// refusedVerdict returns the verdict by which this member does not work by the plan on the plan's
// Lease; nil if it does.
func (m *Member) refusedVerdict() *inforce.Verdict {
	if r := m.refused.Load(); r != nil {
		return &r.Verdict
	}
	return nil
}

// adopt brings the plan on its Lease into force, if that is allowed, and reports whether the plan
// in force has changed. A refused plan leaves the plan in force unchanged; a member that has just
// started then works by the last good one.
func (m *Member) adopt(ctx context.Context, s leaseapi.Snapshot) bool {
	lease := s.Get(leaseapi.PlanLease(m.config.Fleet))
	if !lease.Exists {
		return false
	}
	current := m.inForce.Load()
	v := m.judge.Of(current, lease, s)
	if v.Err != nil {
		m.refuse(ctx, lease, v)
	} else if m.refused.Swap(nil) != nil {
		m.membership.Touch()
	}
	if v.Plan == nil || current != nil && current.Generation == v.Plan.Generation {
		return false
	}
	m.inForce.Store(v.Plan)
	m.tellLacks(ctx, v.Plan.Plan)
	m.membership.Touch()
	m.reportPlan(EventPlanAdopted, nil)
	klog.FromContext(ctx).Info("Adopted the plan", "generation", v.Plan.Generation, "shards", len(v.Plan.Shards()), "digest", v.Plan.Digest(), "lastGood", v.Err != nil)
	return true
}

// refuse reports the refusal, once for each version of the Lease and reason.
func (m *Member) refuse(ctx context.Context, lease election.Observation, v inforce.Verdict) {
	r := refusal{text: lease.Annotations[leaseapi.DocumentAnnotation], Verdict: v}
	if last := m.refused.Swap(&r); last != nil && last.text == r.text && last.Err.Error() == v.Err.Error() {
		return
	}
	m.membership.Touch()
	logger := klog.FromContext(ctx).WithValues("lease", lease.Name, "generation", v.Generation)
	if v.Plan == nil {
		logger.Error(v.Err, "Refused the plan, and knows no good one: nothing is run until there is one")
		m.reportPlan(EventPlanRefused, fmt.Errorf("%w: %w", ErrWithoutPlan, v.Err))
		return
	}
	logger.Error(v.Err, "Refused the plan, keeping the last good one", "generationInForce", v.Plan.Generation)
	m.reportPlan(EventPlanRefused, v.Err)
}

func (m *Member) reportPlan(kind election.EventType, err error) {
	m.report(election.Event{Type: kind, Name: leaseapi.PlanLease(m.config.Fleet), Err: err})
}

// memberAnnotations returns what a member publishes about itself on its Lease.
func (m *Member) memberAnnotations() map[string]string {
	a := map[string]string{
		leaseapi.RingsAnnotation: m.config.rings(), leaseapi.LeaderLocksAnnotation: strings.Join(m.config.LeaderLocks, ","),
		leaseapi.PlanAnnotation: "", leaseapi.GenerationAnnotation: "", leaseapi.RefusedAnnotation: "",
		leaseapi.CatalogueAnnotation: m.judge.Catalogue(), leaseapi.FormatAnnotation: leaseapi.PlanFormat, leaseapi.StillAnnotation: m.leadership.StillText(),
		leaseapi.UseAnnotation: "", leaseapi.HealthAnnotation: "", leaseapi.NodeAnnotation: m.config.Node, leaseapi.ZoneAnnotation: m.config.Zone,
	}
	if f := m.inForce.Load(); f != nil {
		a[leaseapi.PlanAnnotation], a[leaseapi.GenerationAnnotation] = f.Digest(), strconv.FormatInt(f.Generation, 10)
	}
	if r := m.refused.Load(); r != nil {
		a[leaseapi.RefusedAnnotation] = leaseapi.Shorten(fmt.Sprintf("%d: %v", r.Generation, r.Err), leaseapi.MaxText)
	}
	if text := m.memory.Load(); text != nil {
		a[leaseapi.MemoryAnnotation] = *text
	}
	if use := m.use.Load(); use != nil {
		a[leaseapi.UseAnnotation] = use.String()
		if use.Health != nil {
			a[leaseapi.HealthAnnotation] = use.Health.String()
		}
	}
	return a
}

// waitForPlan returns true once a plan is in force, and false when ctx has ended or the membership
// is lost. If there is no plan and no live Lease shows that there was one, it writes the first.
func (m *Member) waitForPlan(ctx context.Context) bool {
	changed, stop := m.observer.SubscribeChanges(leaseapi.MayMoveShards)
	defer stop()
	backoff, said := m.config.Timing.RetrySoon(), ""
	var notBefore time.Time // a change that may move shards ends a pause
	for {
		now := m.config.Clock.Now()
		pause := m.config.Timing.RetryPeriod
		if m.adopt(ctx, m.snapshot()) {
			return true
		}
		if lease := m.observer.Get(leaseapi.PlanLease(m.config.Fleet)); !lease.Exists || lease.Annotations[leaseapi.DocumentAnnotation] == "" {
			s := m.snapshot()
			witness := s.OthersShard(m.incarnation)
			if witness.Name == "" {
				witness = m.stillMember(s)
			}
			if witness.Name != "" {
				if said != witness.Name {
					klog.FromContext(ctx).Info("Waiting for the plan: a live Lease tells that there is one", "lease", witness.Name, "holder", witness.Holder)
				}
				said = witness.Name
			} else if now.Before(notBefore) {
				pause = notBefore.Sub(now)
			} else if err := m.planner.Write(ctx, lease.Lease, m.config.Plan); err != nil {
				pause = backoff.Step()
				notBefore = m.config.Clock.Now().Add(pause)
				if !apierrors.IsAlreadyExists(err) && !apierrors.IsConflict(err) {
					m.failure.Store(&err)
					klog.FromContext(ctx).Error(err, "Could not write the first plan, trying again", "after", pause)
				}
			} else {
				continue
			}
		}
		timer := m.config.Clock.NewTimer(pause)
		select {
		case <-changed:
		case <-timer.C():
		case <-m.membership.Lost():
			timer.Stop()
			return false
		case <-ctx.Done():
			timer.Stop()
			return false
		}
		timer.Stop()
	}
}

// stillMember returns the Lease of another live member that stands by because the fleet is stopped,
// and works by a plan: that member restores plan and stop. It returns the zero value if there is
// none.
func (m *Member) stillMember(s leaseapi.Snapshot) election.Observation {
	for _, member := range s.Roster().Members() {
		if member.Incarnation != m.incarnation && member.Annotations[leaseapi.StillAnnotation] != "" && leaseapi.PlanSaidOn(member.Annotations).Known() {
			return s.Get(leaserecord.MemberLease(m.config.Fleet, member.Name))
		}
	}
	return election.Observation{}
}
