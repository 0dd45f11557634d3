package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// junkPlan is half a plan, as an editor that was closed too early leaves it.
const junkPlan = `{"generation": 7, "rings": [`

// planFault writes something to the plan's Lease that is not a plan. The fleet must keep the last
// good plan and restore it.
type planFault struct {
	env *environment
	was shard.Plan
}

// Begin implements fault.
func (f *planFault) Begin(ctx context.Context) (expectation, error) {
	env := f.env
	if _, err := env.loadedVictim(ctx); err != nil {
		return expectation{}, err
	}
	var err error
	if _, f.was, err = env.planNow(ctx); err != nil {
		return expectation{}, err
	}
	err = env.tamper(ctx, leaseapi.PlanLease(fleetName), func(l *coordinationv1.Lease) *coordinationv1.Lease {
		l.Annotations[leaseapi.DocumentAnnotation] = junkPlan
		return l
	})
	if err != nil {
		return expectation{}, err
	}
	took, err := env.await(ctx, env.opts.timing.LeaseDuration+env.opts.margin, "the plan is put back", f.back)
	env.out.printf("      the plan was put back after %.1f s", took.Seconds())
	return expectation{lasts: env.opts.timing.LeaseDuration, progress: true, verify: f.verify}, err
}

// End implements fault.
func (f *planFault) End(context.Context) error { return nil }

func (f *planFault) back(ctx context.Context) error {
	lease, plan, err := f.env.planNow(ctx)
	switch {
	case err != nil:
		return err
	case plan.Generation <= f.was.Generation:
		return fmt.Errorf("generation %d: must be above %d", plan.Generation, f.was.Generation)
	case lease.Annotations[leaseapi.RejectedAnnotation] != junkPlan:
		return fmt.Errorf("annotation %s is %q: must be as before", leaseapi.RejectedAnnotation, lease.Annotations[leaseapi.RejectedAnnotation])
	}
	return samePlan(f.was, plan)
}

func (f *planFault) verify(ctx context.Context) error {
	return errors.Join(f.back(ctx), f.env.strays(ctx))
}

// samePlan returns an error unless both plans have the same shards with the same extents.
func samePlan(before, after shard.Plan) error {
	was, is := before.Extents(), after.Extents()
	for id, e := range was {
		if other, ok := is[id]; !ok || !other.Equal(e) {
			return fmt.Errorf("shard %s is not in the plan as it was", id)
		}
	}
	if len(is) != len(was) {
		return fmt.Errorf("the plan has %d shards, and had %d", len(is), len(was))
	}
	return nil
}

// shardsFault starts a member with another --shards. The flag must have no effect, because there is
// a plan: the member must take its part in that plan.
type shardsFault struct {
	env   *environment
	other *manager
	lease *coordinationv1.Lease
	was   shard.Plan
}

// Begin implements fault.
func (f *shardsFault) Begin(ctx context.Context) (expectation, error) {
	env := f.env
	if _, err := env.loadedVictim(ctx); err != nil {
		return expectation{}, err
	}
	var err error
	if f.lease, f.was, err = env.planNow(ctx); err != nil {
		return expectation{}, err
	}
	shards := env.opts.shards + 1 + env.random.IntN(7)
	name := "other-" + strconv.Itoa(shards)
	// The last of two equal flags counts.
	if f.other, err = env.join(name, name, fmt.Sprintf("--shards=%d", shards)); err != nil {
		return expectation{}, err
	}
	began := time.Now()
	if err := f.other.up(); err != nil {
		return expectation{}, err
	}
	took, err := env.awaitWhole(ctx, began)
	if err != nil {
		return expectation{}, err
	}
	env.out.printf("      a member with --shards=%d works by the plan of %d shards after %.1f s%s", shards, len(f.was.Shards()), took.Seconds(), env.holdsOf(f.other))
	return expectation{progress: true, verify: f.verify}, f.adopted(ctx)
}

// adopted returns an error unless the member says that it follows the plan.
func (f *shardsFault) adopted(ctx context.Context) error {
	name := leaserecord.MemberLease(fleetName, f.other.member)
	lease, err := f.env.client.CoordinationV1().Leases(metav1.NamespaceSystem).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	a, generation := lease.Annotations, strconv.FormatInt(f.was.Generation, 10)
	if a[leaseapi.PlanAnnotation] != f.was.Digest() || a[leaseapi.GenerationAnnotation] != generation || a[leaseapi.RefusedAnnotation] != "" {
		return fmt.Errorf("%s says plan %q, generation %q, refused %q: must be %s, generation %s, and none refused",
			name, a[leaseapi.PlanAnnotation], a[leaseapi.GenerationAnnotation], a[leaseapi.RefusedAnnotation], f.was.Digest(), generation)
	}
	return nil
}

// verify returns an error if the plan has changed, or if there are Leases of another division of
// the namespaces.
func (f *shardsFault) verify(ctx context.Context) error {
	lease, _, err := f.env.planNow(ctx)
	if err != nil {
		return err
	}
	if before, after := f.lease.Annotations[leaseapi.DocumentAnnotation], lease.Annotations[leaseapi.DocumentAnnotation]; before != after {
		return fmt.Errorf("the plan was\n%s\nand is\n%s", before, after)
	}
	return f.env.strays(ctx)
}

// End implements fault.
func (f *shardsFault) End(ctx context.Context) error {
	if f.other == nil {
		return nil
	}
	return f.other.leave(ctx)
}

// memberFault writes another holder to a member's own Lease. Its process must end, because another
// of its name may run. The others take over its shards.
type memberFault struct {
	env    *environment
	victim *manager
}

// Begin implements fault.
func (f *memberFault) Begin(ctx context.Context) (expectation, error) {
	var err error
	if f.victim, err = f.env.loadedVictim(ctx); err != nil {
		return expectation{}, err
	}
	e := expectation{victims: []string{f.victim.name}, ends: true}
	return e, f.env.tamper(ctx, leaserecord.MemberLease(fleetName, f.victim.member), forgeLease)
}

// End implements fault.
func (f *memberFault) End(context.Context) error { return nil }
