package main

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/flotilla-kube/flotilla/pkg/controllers/catalogue"
	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// TestOperatorsPlans checks that an operator's plan may follow the plan in force, makes the stated
// number of changes, and may be followed by the first plan under its old names.
func TestOperatorsPlans(t *testing.T) {
	for name, test := range map[string]struct {
		edit  func(shard.Plan, *rand.Rand) shard.Plan
		added int
	}{
		"split": {edit: splitShard, added: 1},
		"ring":  {edit: moveJobs, added: 2},
	} {
		for _, shards := range []int{1, 2, 16} {
			first, err := catalogue.DefaultPlan(shards)
			if err != nil {
				t.Fatal(err)
			}
			document, err := first.Document()
			if err != nil {
				t.Fatal(err)
			}
			edited, err := first.Successor(test.edit(first, newRandom(uint64(shards), faultChance)))
			if err != nil {
				t.Fatalf("%s, %d: %v", name, shards, err)
			}
			if got := len(edited.Shards()) - len(first.Shards()); got != test.added {
				t.Errorf("%s, %d: %d shards more, want %d", name, shards, got, test.added)
			}
			if after, _ := first.Document(); after != document {
				t.Errorf("%s, %d: the plan in force was changed", name, shards)
			}
			back, err := edited.Successor(first)
			if err != nil {
				t.Fatal(err)
			}
			if samePlan(first, back) != nil || samePlan(back, first) != nil || samePlan(first, edited) == nil {
				t.Errorf("%s, %d: the restored plan is not the first one, or nothing was changed", name, shards)
			}
		}
	}
}

func shardLease(name, holder string) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{leaseapi.ShardLabel: name}},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: ptr.To(holder)},
	}
}

// TestSignals checks that the failure begins once the operation has begun, or once a shard has
// changed hands after that. Earlier changes and renewals do not count.
func TestSignals(t *testing.T) {
	mark := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Name: leaserecord.MemberLease(fleetName, "a"), Annotations: map[string]string{leaseapi.DrainAnnotation: "now"},
	}}
	unmarked := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: mark.Name}}
	leases := []*coordinationv1.Lease{
		shardLease("s", "a_1"), unmarked, shardLease("s", ""), mark, shardLease("s", ""), shardLease("s", "b_1"), shardLease("new", "b_1"),
	}
	for after, want := range []int{3, 5, 6} {
		s := signals{operation: &drain{member: &manager{member: "a"}}, holders: map[string]string{}, after: after}
		if got := slices.IndexFunc(leases, s.enough); got != want {
			t.Errorf("enough for %d at %d, want %d", after, got, want)
		}
	}
}

// TestAdopt checks that a plan that was changed and restored is followed by Lease and by namespace.
// Shards in no plan may still name a dead holder, but not a live one.
func TestAdopt(t *testing.T) {
	first, err := catalogue.DefaultPlan(2)
	if err != nil {
		t.Fatal(err)
	}
	next, err := first.Successor(splitShard(first, newRandom(1, faultChance)))
	if err != nil {
		t.Fatal(err)
	}
	env := &environment{opts: testOptions(t), plan: first, first: first, retired: map[string]bool{}, journal: newJournal(shardLeases(first), "")}
	env.namespaces, env.homes = spreadNamespaces(first)
	env.adopt(next)
	for namespace, id := range env.homes {
		if s, ok := next.Shard(id); !ok || !s.Range.ContainsNamespace(namespace) {
			t.Errorf("%s is not in %s", namespace, id)
		}
	}
	if len(env.retired) != 1 || len(env.leases()) != len(first.Shards())+1 {
		t.Errorf("retired %v, leases %v", env.retired, env.leases())
	}
	all := append(leasesOf(first), leasesOf(next)...)
	if err := strayLeases(all, next, env.retired); err != nil {
		t.Error(err)
	}
	if strayLeases(all, next, nil) == nil {
		t.Error("a Lease that was not retired is not reported")
	}
	member := coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: leaserecord.MemberLease(fleetName, "a")}, Spec: coordinationv1.LeaseSpec{HolderIdentity: ptr.To("a_1")},
	}
	for i := range all {
		all[i].Spec.HolderIdentity = ptr.To("a_1")
	}
	if err := heldBeside(all, next); err != nil {
		t.Errorf("held by a dead member: %v", err)
	}
	if err := heldBeside(append(all, member), next); err == nil || !strings.Contains(err.Error(), "is held by a_1 and is not in the plan of generation 2") {
		t.Errorf("held by a live member: %v", err)
	}
}

// TestMixed checks that two versions must be at work, each in its members.
func TestMixed(t *testing.T) {
	members := []*manager{{name: "a", member: "a"}, {name: "b", member: "b"}, {name: "c", member: "c"}}
	for builds, want := range map[string]string{
		"1 1 2": "",
		"1 1 1": "must be of another version",
		"1 2 2": "b writes as",
		"2 1 1": "b writes as",
		"1 1 -": `c writes as ""`,
	} {
		env := &environment{journal: newJournal(nil, "")}
		for i, version := range strings.Fields(builds) {
			if version == "-" {
				continue
			}
			agent := "flotilla/v1." + version + " (linux) flotilla (member=" + members[i].member + "_1; shard=namespaces/00; term=1)"
			env.journal.add(line(t, time.Second, "update", "pods", "x", "p", "", agent, `{}`))
		}
		err := env.mixed(members, 2)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", builds, err, want)
		}
	}
}
