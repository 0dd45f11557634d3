package shard

import (
	"fmt"
	"strings"
	"testing"
)

// groupsPlan returns a plan with the groups. Each goes beside the one after its colon.
func groupsPlan(groups ...string) Plan {
	ring := Ring{Name: "cluster", Scope: ScopeCluster}
	for i, g := range groups {
		group, beside, _ := strings.Cut(g, ":")
		ring.Shards = append(ring.Shards, Shard{
			ID: ID{Ring: "cluster", Name: group}, Group: group, ColocateWith: beside, Controllers: []string{fmt.Sprintf("controller-%d", i)},
		})
	}
	return Plan{Generation: 1, Rings: []Ring{ring}}
}

func TestColocatedGroupsGoTogether(t *testing.T) {
	apart, together := groupsPlan("nodes", "volumes", "garbage"), groupsPlan("nodes", "volumes:nodes", "garbage")
	nodes, volumes, garbage := ID{"cluster", "nodes"}, ID{"cluster", "volumes"}, ID{"cluster", "garbage"}
	parted := 0
	for n := 1; n <= 12; n++ {
		var members []string
		for i := range n {
			members = append(members, fmt.Sprintf("flotilla-%d", i))
		}
		a, err := apart.HomesOf("cluster", members)
		if err != nil {
			t.Fatal(err)
		}
		b, err := together.HomesOf("cluster", members)
		if err != nil {
			t.Fatal(err)
		}
		if a.owners[nodes] != a.owners[volumes] {
			parted++
		}
		if b.owners[volumes] != b.owners[nodes] {
			t.Errorf("%d members: volumes belongs to %s, but nodes, with which it goes, to %s", n, b.owners[volumes], b.owners[nodes])
		}
		if a.owners[nodes] != b.owners[nodes] || a.owners[garbage] != b.owners[garbage] {
			t.Errorf("%d members: a group without a colocation was moved: %v, was %v", n, b.owners, a.owners)
		}
		if got := b.Of(b.owners[nodes]); len(got) < 2 || b.Len() != 3 {
			t.Errorf("%d members: %s has %v, and %d shards are placed", n, b.owners[nodes], got, b.Len())
		}
	}
	if parted == 0 {
		t.Error("the hash puts them together for every roster: the test proves nothing")
	}
}

func TestPinAndHomeAreBeforeColocateWith(t *testing.T) {
	members := []string{"a", "b", "c"}
	for _, set := range []func(*Shard, string){
		func(s *Shard, m string) { s.Pin = m },
		func(s *Shard, m string) { s.Home = m },
	} {
		for _, m := range members {
			plan := groupsPlan("nodes", "volumes:nodes")
			shards := plan.Rings[0].Shards
			set(&shards[1], m)
			if got, _ := plan.HomesOf("cluster", members); got.owners[shards[1].ID] != m {
				t.Errorf("volumes belongs to %q, want %q, which the plan names", got.owners[shards[1].ID], m)
			}
			// A colocated group also follows the other's pin or home.
			plan = groupsPlan("nodes", "volumes:nodes")
			shards = plan.Rings[0].Shards
			set(&shards[0], m)
			if got, _ := plan.HomesOf("cluster", members); got.owners[shards[1].ID] != m {
				t.Errorf("volumes belongs to %q, want %q with nodes", got.owners[shards[1].ID], m)
			}
		}
	}
}

func TestColocateWithIsValidated(t *testing.T) {
	ranges := Plan{Generation: 1, Rings: []Ring{{
		Name: "namespaces", Scope: ScopeNamespaced, Controllers: []string{"deployment-controller"},
		Shards: []Shard{{ID: ID{"namespaces", "00"}, ColocateWith: "nodes"}},
	}}}
	for want, plan := range map[string]Plan{
		"":                                     groupsPlan("nodes", "volumes:nodes", "garbage:nodes"),
		`"nowhere": must be another group`:     groupsPlan("nodes", "volumes:nowhere"),
		`"volumes": must be another group`:     groupsPlan("nodes", "volumes:volumes"),
		`"volumes": must be a group that goes`: groupsPlan("nodes", "volumes:nodes", "garbage:volumes"),
		"only a group goes with another":       ranges,
	} {
		err := plan.Validate()
		switch {
		case want == "" && err != nil:
			t.Errorf("a good plan is refused: %v", err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), ".colocateWith")):
			t.Errorf("error %v, want it to name the field and say %q", err, want)
		}
	}
}

func TestColocateWithIsKeptAndCounted(t *testing.T) {
	plan, without := groupsPlan("nodes", "volumes:nodes"), groupsPlan("nodes", "volumes")
	if plan.Digest() == without.Digest() {
		t.Error("two plans that place differently have one digest")
	}
	if plain := groupsPlan("nodes"); plain.Digest() != "b231bc28886d7dde" {
		t.Errorf("a plan without the field has digest %s, which members of other versions do not know", plain.Digest())
	}
	text, err := plan.Document()
	if err != nil {
		t.Fatal(err)
	}
	back, err := ParsePlan([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if back.Digest() != plan.Digest() {
		t.Errorf("the plan that was read is %+v, want %+v", back, plan)
	}
	if changes := Diff(without, plan); len(changes) != 1 || changes[0].Kind != ChangeShardMoved || !strings.Contains(changes[0].Text, `colocateWith "nodes"`) {
		t.Errorf("the diff is %+v, want volumes to go with nodes", changes)
	}
}

// Uneven numbers of homes must not make shards leave their home while another member is away.
func TestNothingLeavesItsHomeWhileAnotherMemberIsAway(t *testing.T) {
	plan := groupsPlan("nodes", "volumes:nodes", "garbage:nodes", "policy", "certificates")
	members := []string{"flotilla-0", "flotilla-1", "flotilla-2", "flotilla-3"}
	homes, err := plan.HomesOf("cluster", members)
	if err != nil {
		t.Fatal(err)
	}
	if heaviest := homes.Of(homes.owners[ID{"cluster", "nodes"}]); len(heaviest) < 3 {
		t.Fatalf("the member of nodes has %v: three groups go there, so homes are not uneven and the test shows nothing", heaviest)
	}
	for away := range members {
		left := append(append([]string{}, members[:away]...), members[away+1:]...)
		settled := Settle(plan.Rings[0].IDs(), left, homes, homes.owners)
		for id, home := range homes.owners {
			if owner := settled.owners[id]; home != members[away] && owner != home {
				t.Errorf("while %s is away, %s would leave %s for %s", members[away], id, home, owner)
			}
			if settled.owners[id] == members[away] || settled.owners[id] == "" {
				t.Errorf("while %s is away, %s would be on %q", members[away], id, settled.owners[id])
			}
		}
	}
}
