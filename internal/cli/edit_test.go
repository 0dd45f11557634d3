package cli

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"k8s.io/utils/ptr"

	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// clone returns a copy of the plan that the caller may change.
func clone(plan shard.Plan) shard.Plan {
	plan.Rings = slices.Clone(plan.Rings)
	for i := range plan.Rings {
		plan.Rings[i].Shards = slices.Clone(plan.Rings[i].Shards)
	}
	return plan
}

// split cuts the first range in two, without names.
func split(plan shard.Plan) shard.Plan {
	plan = clone(plan)
	whole := plan.Rings[0].Shards[0]
	low, high := whole, whole
	low.Name, high.Name = "", ""
	low.Range.End, high.Range.Start = whole.Range.End/2, whole.Range.End/2
	plan.Rings[0].Shards = slices.Replace(plan.Rings[0].Shards, 0, 1, low, high)
	return plan
}

// TestPrepareKeepsHomes checks that shards that an edit does not touch stay where they are.
func TestPrepareKeepsHomes(t *testing.T) {
	plan := testPlan(t)
	l := newLeases(t, plan)
	l.at("03").Spec.HolderIdentity = ptr.To("stranger_1") // It may not become a home.
	e, err := Prepare(l.read(), split(plan), acceptAll)
	if err != nil {
		t.Fatal(err)
	}
	if e.Next.Generation != 4 {
		t.Errorf("generation %d, want 4", e.Next.Generation)
	}
	homes := map[string]string{}
	for _, s := range e.Next.Rings[0].Shards {
		homes[s.Name] = s.Home
	}
	want := map[string]string{"g4-00": "", "g4-01": "", "01": "flotilla-1", "02": "flotilla-0", "03": ""}
	for name, home := range want {
		if got, found := homes[name]; !found || got != home {
			t.Errorf("shard %s: home %q (there: %v), want %q", name, got, found, home)
		}
	}
	if len(e.Changes) != 3 || len(e.Kept) != 2 {
		t.Errorf("changes %v, kept %v; want only the three of the split", e.Changes, e.Kept)
	}
	// A pin alone cuts nothing, and gives no shard a home.
	pinned := clone(plan)
	pinned.Rings[0].Shards[1].Pin = "flotilla-0"
	if e, err = Prepare(l.read(), pinned, acceptAll); err != nil || len(e.Kept) != 0 || len(e.Changes) != 1 {
		t.Errorf("pin: %v, kept %v, changes %v", err, e.Kept, e.Changes)
	}
}

func TestPrepareRefuses(t *testing.T) {
	plan := testPlan(t)
	served := func(l leases, rings string) leases {
		for _, name := range []string{"flotilla-0", "flotilla-1"} {
			l[leaserecord.MemberLease(testFleet, name)].Annotations[leaseapi.RingsAnnotation] = rings
		}
		return l
	}
	newRing := func() shard.Plan {
		p := clone(plan)
		p.Rings[1].Shards = p.Rings[1].Shards[:1]
		volumes := plan.Rings[1].Shards[1]
		volumes.Ring = "disks"
		p.Rings = append(p.Rings, shard.Ring{Name: "disks", Scope: shard.ScopeCluster, Shards: []shard.Shard{volumes}})
		return p
	}
	gap := clone(plan)
	gap.Rings[0].Shards = gap.Rings[0].Shards[1:]
	stale, ahead, beyond := clone(plan), clone(plan), clone(plan)
	stale.Generation, ahead.Generation, beyond.Generation = 2, 9, shard.MaxGeneration+1
	for _, test := range []struct {
		name   string
		leases leases
		edited shard.Plan
		check  func(shard.Plan) error
		want   []string
	}{
		{"stale", newLeases(t, plan), stale, acceptAll, []string{"generation 2", "generation 3", "changed the plan since"}},
		{"ahead", newLeases(t, plan), ahead, acceptAll, []string{"generation 9", "generation 3"}},
		{"gap", newLeases(t, plan), gap, acceptAll, []string{"rings[0].shards", "0x0000000000000000-0x4000000000000000", "no shard covers"}},
		{"check", newLeases(t, plan), newRing(), func(shard.Plan) error { return errors.New("unknown controller") }, []string{"unknown controller"}},
		{"unserved ring", served(newLeases(t, plan), "namespaces,cluster"), newRing(), acceptAll, []string{"rings[2].name", `"disks"`, "no live member", "--rings=disks"}},
		{"a generation beyond all", func() leases {
			l := newLeases(t, plan)
			l[leaseapi.PlanLease(testFleet)].Annotations[leaseapi.DocumentAnnotation] = "junk"
			return l
		}(), beyond, acceptAll, []string{"generation", "9007199254740992", "from 1 to 9007199254740991"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := Prepare(test.leases.read(), test.edited, test.check)
			if err == nil {
				t.Fatal("accepted")
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q does not say %q", err, want)
				}
			}
		})
	}
	if _, err := Prepare(served(newLeases(t, plan), "namespaces,cluster,disks").read(), newRing(), acceptAll); err != nil {
		t.Errorf("a ring that is served was refused: %v", err)
	}
	e, err := Prepare(served(newLeases(t, plan), "cluster").read(), split(plan), acceptAll)
	if err != nil || !slices.ContainsFunc(e.Warnings, func(w string) bool { return strings.Contains(w, "ring namespaces is served by no live member") }) {
		t.Errorf("a ring of the plan in force that nobody serves: %v, warnings %q; want a warning", err, e.Warnings)
	}
}

// TestPrepareWithAnotherBuild cuts a range with a build that objects to the controllers of the plan
// in force, which another build has written.
func TestPrepareWithAnotherBuild(t *testing.T) {
	plan := testPlan(t)
	objects := func(shard.Plan) error { return errors.New("a controller of this build is in no ring") }
	if _, err := Prepare(newLeases(t, plan).read(), split(plan), objects); err != nil {
		t.Errorf("refused, although no controller moves: %v", err)
	}
}

// TestPrepareByTheLastGoodPlan replaces a plan that cannot be used. The new plan must be a valid
// successor of the last good one, by which members judge it. If the Lease has no last good plan, an
// operator's plan is written even if it changes nothing.
func TestPrepareByTheLastGoodPlan(t *testing.T) {
	plan := testPlan(t)
	l := newLeases(t, plan)
	l[leaseapi.PlanLease(testFleet)].Annotations[leaseapi.DocumentAnnotation] = "{"
	edited := clone(plan)
	first := edited.Rings[0].Shards[0]
	edited.Rings[0].Shards[0].Range.End -= 7
	edited.Rings[0].Shards[1].Range.Start -= 7
	e, err := Prepare(l.read(), edited, acceptAll)
	if err != nil {
		t.Fatal(err)
	}
	if err := shard.CheckSuccessor(plan, e.Next); err != nil {
		t.Errorf("the plan that replaces junk is not a successor of the last good plan: %v", err)
	}
	if _, found := e.Next.Shard(first.ID); found {
		t.Errorf("%s means something else under the same name", first.ID)
	}

	l = newLeases(t, plan)
	if e, err := Prepare(l.read(), plan, acceptAll); err != nil || !e.Same() {
		t.Errorf("the unchanged plan: %v, want nothing to write", err)
	}
	delete(l[leaseapi.PlanLease(testFleet)].Annotations, leaseapi.LastGoodAnnotation)
	if e, err := Prepare(l.read(), plan, acceptAll); err != nil || e.Same() {
		t.Errorf("the unchanged plan, without a last good one: %v, want a write", err)
	}
}

// TestPrepareReplacesJunk checks that without any usable plan the edited one is written, under a
// generation that no member has seen.
func TestPrepareReplacesJunk(t *testing.T) {
	plan := testPlan(t)
	for _, test := range []struct {
		name       string
		change     func(leases)
		generation int64
	}{
		{"junk", func(l leases) { l[leaseapi.PlanLease(testFleet)].Annotations[leaseapi.DocumentAnnotation] = "{" }, 4},
		{"missing annotation", func(l leases) { delete(l[leaseapi.PlanLease(testFleet)].Annotations, leaseapi.DocumentAnnotation) }, 4},
		{"missing Lease", func(l leases) { delete(l, leaseapi.PlanLease(testFleet)) }, 4},
		{"member is ahead", func(l leases) {
			delete(l, leaseapi.PlanLease(testFleet))
			l[leaserecord.MemberLease(testFleet, "flotilla-1")].Annotations[leaseapi.GenerationAnnotation] = "7"
		}, 8},
		{"beyond all generations", func(l leases) {
			text := l[leaseapi.PlanLease(testFleet)].Annotations[leaseapi.DocumentAnnotation]
			l[leaseapi.PlanLease(testFleet)].Annotations[leaseapi.DocumentAnnotation] = strings.Replace(text, `"generation": 3`, `"generation": 9223372036854775807`, 1)
			l[leaserecord.MemberLease(testFleet, "flotilla-1")].Annotations[leaseapi.GenerationAnnotation] = "9223372036854775807"
		}, 4},
		{"nothing at all", func(l leases) { clear(l) }, 3},
	} {
		t.Run(test.name, func(t *testing.T) {
			l := newLeases(t, plan)
			test.change(l)
			e, err := Prepare(l.read(), plan, acceptAll)
			if err != nil {
				t.Fatal(err)
			}
			if e.Next.Generation != test.generation || e.Next.Digest() != plan.Digest() || e.Same() {
				t.Errorf("generation %d, digest %s, same %v; want %d, %s and to be written", e.Next.Generation, e.Next.Digest(), e.Same(), test.generation, plan.Digest())
			}
			warns := slices.ContainsFunc(e.Warnings, func(w string) bool {
				return strings.Contains(w, "no Leases of fleet flotilla") && strings.Contains(w, "--fleet-name")
			})
			if warns != (len(l) == 0) {
				t.Errorf("warnings: %q", e.Warnings)
			}
		})
	}
}
