package fleet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/flotilla-kube/flotilla/internal/faults"
	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/election/membership"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// An object's annotations may have 256 KiB in all, and a plan with many errors has a long error
// text.
const (
	maxRejected = 64 << 10
	maxReason   = 1000
)

// ErrWithoutPlan is wrapped by the error of an EventPlanRefused if the member knows no good plan to
// work by instead.
var ErrWithoutPlan = errors.New("no plan is in force, so no shard runs")

// inForce is a plan that a member works by. It is immutable.
type inForce struct {
	plan    shard.Plan
	digest  string
	extents map[shard.ID]shard.Extent
	// leases has the shards by Lease name, without the fleet's prefix.
	leases map[string]shard.ID
	// shards are all shards, sorted by ID.
	shards []shard.Shard
	// strips index the shards by what they cover.
	strips []strip
}

func newInForce(plan shard.Plan) *inForce {
	f := &inForce{plan: plan, digest: plan.Digest(), extents: plan.Extents(), leases: map[string]shard.ID{}, shards: plan.Shards()}
	for id := range f.extents {
		f.leases[id.Ring+"-"+id.Name] = id
	}
	f.strips = stripsOf(f.shards, f.extents)
	return f
}

// shardOf returns the shard of the plan whose Lease has this name, and whether there is one.
func (f *inForce) shardOf(fleet, lease string) (shard.ID, bool) {
	name, ours := strings.CutPrefix(lease, fleet+"-")
	if !ours { // a leader lock, say
		return shard.ID{}, false
	}
	id, found := f.leases[name]
	return id, found
}

// has reports whether the shard is in the plan, with the same extent.
func (f *inForce) has(s shard.ID, e shard.Extent) bool {
	extent, found := f.extents[s]
	return found && extent.Equal(e)
}

// refusal is a plan on the plan's Lease that this member does not work by.
type refusal struct {
	text string // the plan
	verdict
}

// lastPlan caches the last plan that was read: members look at it far more often than it changes.
type lastPlan struct {
	text   string
	plan   shard.Plan
	digest string
	err    error
}

// planOf returns the plan on its Lease and the plan's digest.
func (m *Member) planOf(lease *coordinationv1.Lease) (plan shard.Plan, digest string, err error) {
	if lease == nil {
		return shard.Plan{}, "", leaseapi.ErrNoPlan
	}
	text := lease.Annotations[leaseapi.DocumentAnnotation]
	if last := m.lastPlan.Load(); last != nil && last.text == text {
		return last.plan, last.digest, last.err
	}
	last := &lastPlan{text: text}
	if last.plan, last.err = leaseapi.PlanOn(lease); last.err == nil {
		last.digest = last.plan.Digest()
	}
	m.lastPlan.Store(last)
	return last.plan, last.digest, last.err
}

// Plan returns the plan in force, and whether there is one yet.
func (m *Member) Plan() (shard.Plan, bool) {
	if f := m.inForce.Load(); f != nil {
		return f.plan, true
	}
	return shard.Plan{}, false
}

// Refused returns why this member does not work by the plan on the plan's Lease; nil if it does.
func (m *Member) Refused() error {
	if r := m.refused.Load(); r != nil {
		return r.err
	}
	return nil
}

// adopt brings the plan on its Lease into force, if that is allowed, and reports whether the plan
// in force has changed. A refused plan leaves the plan in force unchanged; a member that has just
// started then works by the last good one.
func (m *Member) adopt(ctx context.Context, roster membership.Roster) bool {
	lease := m.observer.Get(leaseapi.PlanLease(m.config.Fleet))
	if !lease.Exists {
		return false
	}
	current := m.inForce.Load()
	v := m.judge(current, lease, roster)
	if v.err != nil {
		m.refuse(ctx, lease, v)
	} else if m.refused.Swap(nil) != nil {
		m.membership.Touch()
	}
	if v.plan == nil || current != nil && current.plan.Generation == v.plan.plan.Generation {
		return false
	}
	m.inForce.Store(v.plan)
	m.tellLacks(ctx, v.plan.plan)
	m.membership.Touch()
	m.reportPlan(EventPlanAdopted, nil)
	klog.FromContext(ctx).Info("Adopted the plan", "generation", v.plan.plan.Generation, "shards", len(v.plan.plan.Shards()), "digest", v.plan.digest, "lastGood", v.err != nil)
	return true
}

// refuse reports the refusal, once for each version of the Lease and reason.
func (m *Member) refuse(ctx context.Context, lease election.Observation, v verdict) {
	r := refusal{text: lease.Annotations[leaseapi.DocumentAnnotation], verdict: v}
	if last := m.refused.Swap(&r); last != nil && last.text == r.text && last.err.Error() == v.err.Error() {
		return
	}
	m.membership.Touch()
	logger := klog.FromContext(ctx).WithValues("lease", lease.Name, "generation", v.generation)
	if v.plan == nil {
		logger.Error(v.err, "Refused the plan, and knows no good one: nothing is run until there is one")
		m.reportPlan(EventPlanRefused, fmt.Errorf("%w: %w", ErrWithoutPlan, v.err))
		return
	}
	logger.Error(v.err, "Refused the plan, keeping the last good one", "generationInForce", v.plan.plan.Generation)
	m.reportPlan(EventPlanRefused, v.err)
}

func (m *Member) reportPlan(kind election.EventType, err error) {
	m.config.Observe(Event{Event: election.Event{Type: kind, Name: leaseapi.PlanLease(m.config.Fleet), Err: err}})
}

// memberAnnotations returns what a member publishes about itself on its Lease.
func (m *Member) memberAnnotations() map[string]string {
	a := map[string]string{
		leaseapi.RingsAnnotation: m.config.rings(), leaseapi.LeaderLocksAnnotation: strings.Join(m.config.LeaderLocks, ","),
		leaseapi.PlanAnnotation: "", leaseapi.GenerationAnnotation: "", leaseapi.RefusedAnnotation: "",
		leaseapi.CatalogueAnnotation: m.catalogue, leaseapi.FormatAnnotation: leaseapi.PlanFormat, leaseapi.StillAnnotation: m.stopping.annotation(),
		leaseapi.UseAnnotation: "", leaseapi.HealthAnnotation: "", leaseapi.NodeAnnotation: m.config.Node, leaseapi.ZoneAnnotation: m.config.Zone,
	}
	if f := m.inForce.Load(); f != nil {
		a[leaseapi.PlanAnnotation], a[leaseapi.GenerationAnnotation] = f.digest, strconv.FormatInt(f.plan.Generation, 10)
	}
	if r := m.refused.Load(); r != nil {
		a[leaseapi.RefusedAnnotation] = leaseapi.Shorten(fmt.Sprintf("%d: %v", r.generation, r.err), maxReason)
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
	changed, stop := m.observer.Subscribe(func(string) bool { return true })
	defer stop()
	backoff, said := m.retrySoon(), ""
	var notBefore time.Time // every Lease that changes ends a pause
	for {
		now := m.config.Clock.Now()
		pause := m.config.Timing.RetryPeriod
		if m.adopt(ctx, m.Roster()) {
			return true
		}
		if lease := m.observer.Get(leaseapi.PlanLease(m.config.Fleet)); !lease.Exists || lease.Annotations[leaseapi.DocumentAnnotation] == "" {
			witness := m.liveShard(now)
			if witness.Name == "" {
				witness = m.stillMember()
			}
			if witness.Name != "" {
				if said != witness.Name {
					klog.FromContext(ctx).Info("Waiting for the plan: a live Lease tells that there is one", "lease", witness.Name, "holder", witness.Holder)
				}
				said = witness.Name
			} else if now.Before(notBefore) {
				pause = notBefore.Sub(now)
			} else if err := m.writePlan(ctx, lease.Lease, m.config.Plan); err != nil {
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

// stillMember returns the Lease of another live member that is still because the fleet is stopped:
// that member knows the plan, and restores plan and stop. It returns the zero value if there is
// none.
func (m *Member) stillMember() election.Observation {
	for _, member := range m.Roster().Members() {
		if member.Incarnation != m.incarnation && member.Annotations[leaseapi.StillAnnotation] != "" {
			return m.observer.Get(leaserecord.MemberLease(m.config.Fleet, member.Name))
		}
	}
	return election.Observation{}
}

// liveShard returns a shard's Lease that has a live holder other than this incarnation, or the zero
// value if there is none.
func (m *Member) liveShard(now time.Time) election.Observation {
	all := m.observer.List()
	i := slices.IndexFunc(all, func(o election.Observation) bool { return m.isOthers(o, now) })
	if i < 0 {
		return election.Observation{}
	}
	return all[i]
}

// isOthers reports whether a Lease is a shard's that another incarnation holds.
func (m *Member) isOthers(o election.Observation, now time.Time) bool {
	return m.isShard(o) && m.isHeld(o, now) && o.Holder != m.incarnation
}

// writePlan writes the plan to its Lease as it was read, nil if there is none, and records what it
// has written.
func (m *Member) writePlan(ctx context.Context, lease *coordinationv1.Lease, plan shard.Plan) error {
	if faults.GenerationKept && plan.Generation > 1 {
		plan.Generation--
	}
	next, err := leaseapi.WithPlan(m.config.Fleet, lease, plan)
	if err != nil {
		return err
	}
	if stop := m.stopping.text(); stop != "" && (lease == nil || lease.Annotations[leaseapi.DocumentAnnotation] == "") {
		next.Annotations[leaseapi.StopAnnotation] = stop // lost with the Lease, still in force
	}
	ctx, cancel := context.WithTimeout(ctx, m.config.Timing.RenewDeadline/2)
	defer cancel()
	began := m.config.Clock.Now()
	var written *coordinationv1.Lease
	if lease == nil {
		// Nobody has held it, so nobody has to wait for a holder.
		next.Annotations[leaserecord.ReleasedAnnotation] = "0"
		written, err = m.config.Leases.Create(ctx, next, metav1.CreateOptions{})
	} else {
		written, err = m.config.Leases.Update(ctx, next, metav1.UpdateOptions{})
	}
	m.config.Observe(Event{Event: election.Event{Type: EventPlanWritten, Name: leaseapi.PlanLease(m.config.Fleet), Duration: m.config.Clock.Now().Sub(began), Err: err}})
	if err != nil {
		return err
	}
	m.observer.Observe(written)
	klog.FromContext(ctx).Info("Wrote the plan", "generation", plan.Generation, "shards", len(plan.Shards()), "digest", plan.Digest())
	return nil
}
