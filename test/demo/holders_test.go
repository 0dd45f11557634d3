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

// shardLease returns a shard's Lease as its holder writes it.
func shardLease(id shard.ID, holder string, term int32) *coordinationv1.Lease {
	return lease(leaseapi.ShardLease(fleetName, id), holder, term)
}

func lease(name, holder string, term int32) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseTransitions: &term, LeaseDurationSeconds: ptr.To[int32](6)},
	}
}

func TestHolds(t *testing.T) {
	_, plan, owned := defaults(t)
	var leases []*coordinationv1.Lease
	for _, s := range plan.Shards() {
		leases = append(leases, shardLease(s.ID, cmp.Or(owned[s.ID], "flotilla-0")+"_uid", 1))
	}
	all := holds(plan, leases)
	if err := heldBy(all, owned); err != nil {
		t.Error(err)
	}
	if got := counts(all); strings.Contains(got, nobody) || !strings.HasPrefix(got, "flotilla-0 ") {
		t.Errorf("counts: %s", got)
	}
	leases[0].Spec.HolderIdentity = ptr.To("")
	err := heldBy(holds(plan, leases[:len(leases)-1]), owned)
	if err == nil || !strings.HasPrefix(err.Error(), "2 of 21 shards") {
		t.Errorf("with one Lease missing and one released: %v", err)
	}
}

func TestMemberStates(t *testing.T) {
	member := func(name, holder, state string) *coordinationv1.Lease {
		l := lease(leaserecord.MemberLease(fleetName, name), holder, 1)
		l.Annotations = map[string]string{leaserecord.StateAnnotation: state}
		return l
	}
	leases := []*coordinationv1.Lease{
		member("flotilla-0", "flotilla-0_a", "active"), member("flotilla-1", "flotilla-1_b", "active"),
		member("flotilla-2", "", "leaving"), lease("flotilla-namespaces-00", "flotilla-0_a", 1),
	}
	got := memberStates(leases, "flotilla-1_b")
	if len(got) != 1 || got["flotilla-0"] != "active" {
		t.Errorf("states %v, want flotilla-0 alone: flotilla-1 is dead, flotilla-2 has released its Lease", got)
	}
	if got := incarnation(leases, "flotilla-1"); got != "flotilla-1_b" {
		t.Errorf("incarnation %q", got)
	}
}
