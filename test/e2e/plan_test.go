package e2e

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"

	"github.com/flotilla-kube/flotilla/pkg/audit"
	"github.com/flotilla-kube/flotilla/pkg/controllers/catalogue"
	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/fleet/assignment"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
	"github.com/flotilla-kube/flotilla/test/controlplane"
	"github.com/flotilla-kube/flotilla/test/harness"
)

var (
	replans    = flag.Int("replans", 4, "number of plan changes in TestPlanChanges")
	replanSeed = flag.Uint64("replan-seed", 0, "repeat the changes and kills of this seed")
)

// mostEvents is about how many changes of Leases a change of plan makes. A kill comes after some of
// them.
const mostEvents = 25

// TestPlanChanges changes the plan under load, again and again: ranges split, merge and move,
// controllers move to a ring of their own and back, a group is split. In every other change a
// member is killed at a moment that the seed decides. A shard in the plan before and after may not
// stop unless its holder was killed. The audit log shows whether two members ever held the same
// part.
func TestPlanChanges(t *testing.T) {
	t.Parallel()
	seed := cmp.Or(*replanSeed, rand.Uint64())
	t.Logf("-replan-seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	plan, err := catalogue.DefaultPlan(6)
	if err != nil {
		t.Fatal(err)
	}
	plane := harness.StartPlane(t, controlplane.Options{Nodes: 3, Scheduler: true, AuditObjects: true})
	f := newFleetRun(t, plane, plan, append([]string{"--shards=6", "--handoff-timeout=30s"}, quick...)...)
	names := []string{"plan-0", "plan-1", "plan-2"}
	for _, name := range names {
		f.start(t, name)
	}
	f.settle(t, leaseDuration+harness.Patience)
	f.createWork(t)
	f.workDone(t, 3)
	f.requireCollected(t)

	replicas := 3
	for round := range *replans {
		before := f.terms(t)
		victim := ""
		if round%2 == 1 {
			victim = names[random.IntN(len(names))]
		}
		next := f.changed(t, random, round)
		replicas = 7 - replicas
		f.scale(t, replicas)
		kill := f.killAfter(t, victim, 1+random.IntN(mostEvents))
		began := time.Now()
		f.apply(t, next)
		kill()
		if victim != "" {
			delete(f.members, victim)
			f.start(t, victim)
		}
		f.followed(t)
		t.Logf("change %d to generation %d, kill of %q: %d shards, settled after %.2f s", round, next.Generation, victim, len(next.Shards()), time.Since(began).Seconds())
		f.workDone(t, int32(replicas))
		if victim == "" {
			f.requireUnstopped(t, before)
		}
	}
	f.spoil(t)
	f.end(t)
	f.plan = plan // the judge needs the first
	report := f.judge(t)
	var planned, all []time.Duration
	for _, s := range report.Successions() {
		if all = append(all, s.Gap()); s.Planned {
			planned = append(planned, s.Gap())
		}
	}
	slices.Sort(planned)
	slices.Sort(all)
	t.Logf("%d changes of plan; released parts were unowned for: p50 %v, p99 %v, worst %v (%d parts); all parts: worst %v (%d)", *replans,
		audit.Percentile(planned, 50), audit.Percentile(planned, 99), audit.Percentile(planned, 100), len(planned), audit.Percentile(all, 100), len(all))
	if len(planned) == 0 {
		t.Error("no part of the keyspace moved from one shard to another")
	}
	if worst := audit.Percentile(all, 100); worst > leaseDuration+slack {
		t.Errorf("a part was unowned for %v, longer than a takeover", worst)
	}
}

// followed waits until exactly the plan's shards run. Members may have no shard of a ring, because
// operators assign homes.
func (f *fleetRun) followed(t *testing.T) {
	t.Helper()
	harness.Eventually(t, leaseDuration+harness.Patience, "the plan is followed", f.checkFollowed)
}

func (f *fleetRun) checkFollowed(ctx context.Context) error {
	for _, m := range f.members {
		if err := m.Complete(ctx); err != nil {
			return err
		}
	}
	leases, err := f.client.CoordinationV1().Leases(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{LabelSelector: leaseapi.FleetLabel + "=" + f.name})
	if err != nil {
		return err
	}
	live := map[string]bool{}
	for i := range leases.Items {
		if record := leaserecord.From(&leases.Items[i]); leaserecord.IsMemberLease(harness.Fleet, record.Name) {
			live[record.Holder] = true
		}
	}
	// The Lease of a shard that is in no plan keeps the name of a member that died with it.
	held := map[string]bool{}
	for i := range leases.Items {
		if record := leaserecord.From(&leases.Items[i]); record.Labels[leaseapi.ShardLabel] != "" {
			held[record.Name] = live[record.Holder]
		}
	}
	for _, s := range f.plan.Shards() {
		name := leaseapi.ShardLease(harness.Fleet, s.ID)
		if !held[name] {
			return fmt.Errorf("%s is not held", s.ID)
		}
		delete(held, name)
	}
	for name, still := range held {
		if still {
			return fmt.Errorf("%s is held and not in the plan", name)
		}
	}
	return nil
}

// changed returns the plan of the next generation.
func (f *fleetRun) changed(t *testing.T, random *rand.Rand, round int) shard.Plan {
	t.Helper()
	holders := f.holders(t)
	edited := assignment.KeepHomes(f.plan, catalogue.NamespacesRing, func(id shard.ID) string { return holders[id.String()] })
	ring := &edited.Rings[slices.IndexFunc(edited.Rings, func(r shard.Ring) bool { return r.Name == catalogue.NamespacesRing })]
	ring.Shards = slices.Clone(ring.Shards)
	slices.SortFunc(ring.Shards, func(a, b shard.Shard) int { return cmp.Compare(a.Range.Start, b.Range.Start) })
	i := random.IntN(len(ring.Shards) - 1)
	switch round % 4 {
	case 0:
		old := ring.Shards[i]
		second := old
		ring.Shards[i].Range.End = old.Range.Start + (old.Range.End-old.Range.Start)/2
		second.Range.Start, second.Name = ring.Shards[i].Range.End, old.Name+"b"
		ring.Shards = slices.Insert(ring.Shards, i+1, second)
	case 1:
		moveJobs(&edited, ring)
	case 2:
		ring.Shards[i].Range.End = ring.Shards[i+1].Range.End
		ring.Shards = slices.Delete(ring.Shards, i+1, i+2)
	default:
		step := (ring.Shards[i].Range.End - ring.Shards[i].Range.Start) / 3
		ring.Shards[i].Range.End -= step
		ring.Shards[i+1].Range.Start -= step
	}
	next, err := f.plan.Successor(edited)
	if err != nil {
		t.Fatal(err)
	}
	return next
}

// moveJobs moves the job controllers to a ring of their own, or back to the common ring.
func moveJobs(plan *shard.Plan, ring *shard.Ring) {
	jobs := []string{"cronjob-controller", "job-controller", "ttl-after-finished-controller"}
	if i := slices.IndexFunc(plan.Rings, func(r shard.Ring) bool { return r.Name == "batch" }); i >= 0 {
		ring.Controllers = slices.Sorted(slices.Values(append(slices.Clone(ring.Controllers), jobs...)))
		plan.Rings = slices.Delete(plan.Rings, i, i+1)
		return
	}
	ring.Controllers = slices.DeleteFunc(slices.Clone(ring.Controllers), func(c string) bool { return slices.Contains(jobs, c) })
	batch := shard.Ring{Name: "batch", Scope: shard.ScopeNamespaced, Controllers: jobs}
	for i, s := range ring.Shards[:3] {
		part := shard.Shard{ID: shard.ID{Ring: "batch", Name: fmt.Sprintf("%d-%d", plan.Generation, i)}, Range: s.Range}
		if i == 2 {
			part.Range.End = 0 // to the end of the keyspace
		}
		batch.Shards = append(batch.Shards, part)
	}
	plan.Rings = append(plan.Rings, batch)
}

// apply writes the plan as an operator does.
func (f *fleetRun) apply(t *testing.T, plan shard.Plan) {
	t.Helper()
	leases := f.client.CoordinationV1().Leases(metav1.NamespaceSystem)
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		lease, err := leases.Get(t.Context(), leaseapi.PlanLease(harness.Fleet), metav1.GetOptions{})
		if err != nil {
			return err
		}
		if lease, err = leaseapi.WithPlan(harness.Fleet, lease, plan); err != nil {
			return err
		}
		_, err = leases.Update(t.Context(), lease, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	f.plan = plan
}

// spoil writes junk in the plan's place, and requires that members restore the last good plan and
// report it, and that nothing stops.
func (f *fleetRun) spoil(t *testing.T) {
	t.Helper()
	const junk = "{junk"
	before := f.terms(t)
	leases := f.client.CoordinationV1().Leases(metav1.NamespaceSystem)
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		lease, err := leases.Get(t.Context(), leaseapi.PlanLease(harness.Fleet), metav1.GetOptions{})
		if err != nil {
			return err
		}
		lease.Annotations[leaseapi.DocumentAnnotation] = junk
		_, err = leases.Update(t.Context(), lease, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, harness.Patience, "the plan is put back", func(ctx context.Context) error {
		lease, err := leases.Get(ctx, leaseapi.PlanLease(harness.Fleet), metav1.GetOptions{})
		if err != nil {
			return err
		}
		plan, err := leaseapi.PlanOn(lease)
		if err != nil {
			return err
		}
		if kept := lease.Annotations[leaseapi.RejectedAnnotation]; kept != junk || plan.Digest() != f.plan.Digest() {
			return fmt.Errorf("digest %s, want %s; kept %q", plan.Digest(), f.plan.Digest(), kept)
		}
		events, err := f.client.CoreV1().Events(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{FieldSelector: "reason=PlanRestored"})
		if err == nil && len(events.Items) == 0 {
			err = errors.New("no event says so")
		}
		return err
	})
	f.requireUnstopped(t, before)
}

// killAfter returns a function that kills a member once the plan has changed and this many changes
// of Leases have been seen, not counting renewals, or none comes for a while.
func (f *fleetRun) killAfter(t *testing.T, name string, events int) func() {
	t.Helper()
	if name == "" {
		return func() {}
	}
	watch, err := f.client.CoordinationV1().Leases(metav1.NamespaceSystem).Watch(t.Context(),
		metav1.ListOptions{LabelSelector: leaseapi.FleetLabel + "=" + f.name, TimeoutSeconds: ptr.To[int64](8)})
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		defer watch.Stop()
		changed, said := false, map[string]string{}
		for event := range watch.ResultChan() {
			lease, ok := event.Object.(*coordinationv1.Lease)
			if !ok {
				t.Fatalf("watching Leases: %v", event.Object)
			}
			record := leaserecord.From(lease)
			says := record.Holder + record.Annotations[leaseapi.ReadyAnnotation] + record.Annotations[leaseapi.DocumentAnnotation]
			before, known := said[lease.Name]
			said[lease.Name] = says
			changed = changed || known && says != before && lease.Name == leaseapi.PlanLease(harness.Fleet)
			if !changed || says == before {
				continue
			}
			if events--; events <= 0 {
				break
			}
		}
		if err := f.members[name].Kill(); err != nil {
			t.Fatal(err)
		}
	}
}

// requireUnstopped requires that every shard that stayed in the plan kept its term.
func (f *fleetRun) requireUnstopped(t *testing.T, before map[string]int32) {
	t.Helper()
	after := f.terms(t)
	for _, s := range f.plan.Shards() {
		name := leaseapi.ShardLease(harness.Fleet, s.ID)
		if term, known := before[name]; known && after[name] != term {
			t.Errorf("%s is in both plans but was stopped: term %d became %d", s.ID, term, after[name])
		}
	}
}

// requireCollected makes the fleet's own garbage collector delete a retired Lease.
func (f *fleetRun) requireCollected(t *testing.T) {
	t.Helper()
	leases := f.client.CoordinationV1().Leases(metav1.NamespaceSystem)
	old := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "flotilla-namespaces-old"}}
	if _, err := leases.Create(t.Context(), leaserecord.Retired(old, "1", true), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, harness.Patience, "a retired Lease is collected", func(ctx context.Context) error {
		switch _, err := leases.Get(ctx, old.Name, metav1.GetOptions{}); {
		case apierrors.IsNotFound(err):
			return nil
		case err != nil:
			return err
		}
		return errors.New("it is there")
	})
}
