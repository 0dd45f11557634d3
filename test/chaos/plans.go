package main

import (
	"context"
	"errors"
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/util/retry"

	"github.com/flotilla-kube/flotilla/pkg/controllers/catalogue"
	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// shardLeases returns the plan's shards by Lease name.
func shardLeases(plan shard.Plan) map[string]shard.ID {
	leases := map[string]shard.ID{}
	for _, s := range plan.Shards() {
		leases[leaseapi.ShardLease(fleetName, s.ID)] = s.ID
	}
	return leases
}

// adopt makes another plan the one by which the fleet is judged. Leases of shards that it lacks
// stay for ever, and are not leftovers of another division of the namespaces.
func (env *environment) adopt(plan shard.Plan) {
	leases := shardLeases(plan)
	for _, name := range env.leases() {
		if _, stays := leases[name]; !stays {
			env.retired[name] = true
		}
	}
	env.plan = plan
	for namespace := range env.homes {
		s, _ := plan.ShardFor(catalogue.NamespacesRing, namespace)
		env.homes[namespace] = s.ID
	}
	env.journal.follow(leases)
}

// planNow returns the plan's Lease and the plan on it.
func (env *environment) planNow(ctx context.Context) (*coordinationv1.Lease, shard.Plan, error) {
	lease, err := env.client.CoordinationV1().Leases(metav1.NamespaceSystem).Get(ctx, leaseapi.PlanLease(fleetName), metav1.GetOptions{})
	if err != nil {
		return nil, shard.Plan{}, err
	}
	plan, err := leaseapi.PlanOn(lease)
	return lease, plan, err
}

// putBack makes the first plan the next one, without the homes that a manual change gives to
// shards. Those would keep joining members from getting any.
func (env *environment) putBack(ctx context.Context) error {
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		lease, plan, err := env.planNow(ctx)
		if err != nil {
			return err
		}
		next, err := plan.Successor(env.first)
		if err != nil {
			return err
		}
		if next.Digest() == plan.Digest() {
			env.adopt(plan)
			return nil
		}
		if lease, err = leaseapi.WithPlan(fleetName, lease, next); err != nil {
			return err
		}
		if _, err := env.client.CoordinationV1().Leases(metav1.NamespaceSystem).Update(ctx, lease, metav1.UpdateOptions{}); err != nil {
			return err
		}
		env.adopt(next)
		return nil
	})
}

// fleetLeases returns all of the fleet's Leases in the API server.
func (env *environment) fleetLeases(ctx context.Context) ([]coordinationv1.Lease, error) {
	selector := labels.Set{leaseapi.FleetLabel: fleetName}.String()
	leases, err := env.client.CoordinationV1().Leases(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, err
	}
	return leases.Items, nil
}

// followed returns nil if no live member holds a shard that is not in the plan.
func (env *environment) followed(ctx context.Context) error {
	leases, err := env.fleetLeases(ctx)
	if err != nil {
		return err
	}
	return heldBeside(leases, env.plan)
}

// heldBeside returns an error for every shard that a live member holds and that is not in the plan.
// The Lease of a shard that was given up keeps the name of a holder that died with it.
func heldBeside(leases []coordinationv1.Lease, plan shard.Plan) error {
	planned, live := shardLeases(plan), map[string]bool{}
	var records []leaserecord.Record
	for i := range leases {
		record := leaserecord.From(&leases[i])
		records = append(records, record)
		if leaserecord.IsMemberLease(fleetName, record.Name) && record.Holder != "" {
			live[record.Holder] = true
		}
	}
	var errs []error
	for _, r := range records {
		if _, ok := planned[r.Name]; !ok && r.Labels[leaseapi.ShardLabel] != "" && live[r.Holder] {
			errs = append(errs, fmt.Errorf("%s is held by %s and is not in the plan of generation %d", r.Name, r.Holder, plan.Generation))
		}
	}
	return errors.Join(errs...)
}

// strays returns an error if there is a Lease of a shard that no plan has had.
func (env *environment) strays(ctx context.Context) error {
	leases, err := env.fleetLeases(ctx)
	if err != nil {
		return err
	}
	return strayLeases(leases, env.plan, env.retired)
}

// strayLeases returns an error for every Lease whose shard is neither in the plan nor retired, or
// that records another extent for its shard.
func strayLeases(leases []coordinationv1.Lease, plan shard.Plan, retired map[string]bool) error {
	extents := map[string]shard.Extent{}
	for id, e := range plan.Extents() {
		extents[leaseapi.ShardLease(fleetName, id)] = e
	}
	var errs []error
	for _, lease := range leases {
		extent, planned := extents[lease.Name]
		text, ranged := lease.Annotations[leaseapi.RangeAnnotation]
		switch {
		case lease.Labels[leaseapi.ShardLabel] == "":
		case !planned && !retired[lease.Name]:
			errs = append(errs, fmt.Errorf("%s belongs to no shard of the plan", lease.Name))
		case planned && ranged && text != extent.Range.String():
			errs = append(errs, fmt.Errorf("%s covers %s, but by the plan it covers %s", lease.Name, text, extent.Range))
		}
	}
	return errors.Join(errs...)
}
