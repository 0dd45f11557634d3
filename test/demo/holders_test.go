package main

import (
	"cmp"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/flotilla-kube/flotilla/pkg/controllers/catalogue"
	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/election/membership"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// defaults returns the options without flags, with their plan and owners.
func defaults(t *testing.T) (options, shard.Plan, map[shard.ID]string) {
	t.Helper()
	opts, err := parseFlags(nil, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	plan, err := catalogue.DefaultPlan(opts.shards)
	if err != nil {
		t.Fatal(err)
	}
	owned, err := owners(plan, opts.members(), opts.members())
	if err != nil {
		t.Fatal(err)
	}
	return opts, plan, owned
}

// TestSpread checks that the names of the namespaces spread as the demo needs.
func TestSpread(t *testing.T) {
	opts, plan, owned := defaults(t)
	inShard := map[shard.ID]int{}
	for _, namespace := range namespaces {
		id, ok := shardOf(plan, namespace)
		if !ok {
			t.Fatalf("%s is in no shard", namespace)
		}
		inShard[id]++
	}
	ring, _ := plan.Ring(catalogue.NamespacesRing)
	for _, id := range ring.IDs() {
		if n := inShard[id]; n < 1 || n > 3 {
			t.Errorf("%s has %d namespaces, want 1 to 3", id, n)
		}
	}
	served := byOwner(plan, owned, namespaces)
	for _, member := range opts.members() {
		if n := len(served[member]); n < 4 || n > 12 {
			t.Errorf("%s serves %d of %d namespaces, want 4 to 12", member, n, len(namespaces))
		}
	}
	victim := busiest(plan, owned, namespaces)
	for member, in := range served {
		if len(in) > len(served[victim]) {
			t.Errorf("the victim %s serves %d namespaces, but %s serves %d", victim, len(served[victim]), member, len(in))
		}
	}
	left, err := owners(plan, opts.members(), without(opts.members(), victim))
	if err != nil {
		t.Fatal(err)
	}
	for id, owner := range left {
		if owner == victim || owner == "" {
			t.Errorf("without %s, %s is owned by %q", victim, id, owner)
		}
	}
}

// TestTenants checks that every replica gets some work of every kind.
func TestTenants(t *testing.T) {
	_, plan, owned := defaults(t)
	for _, check := range checks {
		byMember := map[string]int{}
		for _, tenant := range tenants() {
			if id, _ := shardOf(plan, tenant.namespace); check.has(tenant) {
				byMember[owned[id]]++
			}
		}
		if len(byMember) < 2 {
			t.Errorf("only %[2]v do %[1]s", check.kind, byMember)
		}
	}
	if all := tenantsIn(tenants(), namespaces[:2]); len(all) != 2 || all[1].namespace != namespaces[1] {
		t.Errorf("tenants in %v are %v", namespaces[:2], all)
	}
}

// smallFleet returns the Leases of a fleet with the default plan and two members, of which one
// holds no shard.
func smallFleet(t *testing.T) view {
	t.Helper()
	_, plan, _ := defaults(t)
	planLease, err := leaseapi.WithPlan(fleetName, nil, plan)
	if err != nil {
		t.Fatal(err)
	}
	v := view{leases: []coordinationv1.Lease{*planLease}}
	for _, name := range []string{"flotilla-0", "flotilla-1"} {
		v.leases = append(v.leases, lease(leaserecord.MemberLease(fleetName, name), name+"_uid"))
	}
	for _, s := range plan.Shards() {
		v.leases = append(v.leases, lease(leaseapi.ShardLease(fleetName, s.ID), "flotilla-0_uid"))
	}
	return v
}

// lease returns a Lease as its holder writes it.
func lease(name, holder string) coordinationv1.Lease {
	now := ptr.To(metav1.NowMicro())
	return coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{leaserecord.StateAnnotation: string(membership.Active)}},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: &holder, LeaseTransitions: ptr.To[int32](1), LeaseDurationSeconds: ptr.To[int32](6), AcquireTime: now, RenewTime: now,
		},
	}
}

func TestHeldBy(t *testing.T) {
	_, plan, owned := defaults(t)
	holders := map[shard.ID]string{}
	for _, s := range plan.Shards() {
		holders[s.ID] = cmp.Or(owned[s.ID], "flotilla-0")
	}
	if err := heldBy(plan, holders, owned); err != nil {
		t.Error(err)
	}
	if got := counts(plan, holders); strings.Contains(got, "nobody") || !strings.HasPrefix(got, "flotilla-0 ") {
		t.Errorf("counts: %s", got)
	}
	// The first shards have no owner of their own, and the last ones have.
	shards := plan.Shards()
	last := len(shards) - 1
	delete(holders, shards[0].ID)
	holders[shards[1].ID] = "flotilla-9"
	delete(holders, shards[last].ID)
	holders[shards[last-1].ID] = "flotilla-9"
	err := heldBy(plan, holders, owned)
	if err == nil || !strings.HasPrefix(err.Error(), "4 of 21 shards") {
		t.Errorf("with two shards unowned and two held by a stranger: %v", err)
	}
	if got := counts(plan, holders); !strings.HasSuffix(got, "flotilla-9 2, nobody 2") {
		t.Errorf("counts: %s", got)
	}
}

// TestFleet reads the Leases of one shard that is released, and one that has run out.
func TestFleet(t *testing.T) {
	_, plan, _ := defaults(t)
	v := smallFleet(t)
	if got := counts(plan, v.fleet().Holders()); got != "flotilla-0 21" {
		t.Errorf("counts: %s", got)
	}
	last := len(v.leases) - 1
	v.leases[last].Spec.HolderIdentity = ptr.To("")
	v.leases[last-1].Spec.RenewTime = ptr.To(metav1.NewMicroTime(v.leases[0].CreationTimestamp.Time))
	if got := counts(plan, v.fleet().Holders()); got != "flotilla-0 19, nobody 2" {
		t.Errorf("counts: %s", got)
	}
}
