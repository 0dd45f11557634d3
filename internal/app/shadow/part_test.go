package shadow

import (
	"fmt"
	"strings"
	"testing"

	"github.com/flotilla-kube/flotilla/pkg/controllers/catalogue"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// TestPart parses valid and invalid values of --shadow.
func TestPart(t *testing.T) {
	for text, want := range map[string]Part{
		"1/1": {1, 1}, "1/4": {1, 4}, "4/4": {4, 4}, "256/256": {256, 256},
		"": {}, "0/4": {}, "5/4": {}, "1": {}, "1/": {}, "/4": {}, "1/257": {}, "-1/4": {}, "true": {}, "1/4/4": {}, "1 /4": {},
	} {
		var p Part
		err := p.Set(text)
		if p != want || (err == nil) != want.Enabled() {
			t.Errorf("%q: %+v, %v, want %+v", text, p, err, want)
		}
		if err != nil && !strings.Contains(err.Error(), "K/N") {
			t.Errorf("%q: %v does not say what is allowed", text, err)
		}
		if err == nil && p.String() != text {
			t.Errorf("%q is %q again", text, &p)
		}
	}
}

// TestAssign checks that the parts of a fleet add up to its plan, each shard once. A member that
// serves one ring gets nothing from others.
func TestAssign(t *testing.T) {
	plan, err := catalogue.DefaultPlan(16)
	if err != nil {
		t.Fatal(err)
	}
	for n := 1; n <= 7; n++ {
		owner := map[shard.ID]int{}
		for k := 1; k <= n; k++ {
			all, err := (&Part{k, n}).Assign("flotilla", plan, nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, a := range all {
				if owner[a.Shard.ID] != 0 {
					t.Errorf("%d and %d of %d have %s", owner[a.Shard.ID], k, n, a.Shard.ID)
				}
				owner[a.Shard.ID] = k
				if len(a.Controllers) == 0 || a.Shards == 0 || a.Shard.Namespaced() && a.Share != (16+n-1)/n {
					t.Errorf("of %d: %+v", n, a)
				}
			}
		}
		if len(owner) != len(plan.Shards()) {
			t.Errorf("%d members have %d of %d shards", n, len(owner), len(plan.Shards()))
		}
	}
	all, err := (&Part{1, 1}).Assign("flotilla", plan, []string{catalogue.NamespacesRing})
	if err != nil || len(all) != 16 {
		t.Errorf("the ring has %d shards of 16: %v", len(all), err)
	}
}

// TestAssignByHome checks that homes in the plan count if they have the manifests' names.
func TestAssignByHome(t *testing.T) {
	plan, err := catalogue.DefaultPlan(4)
	if err != nil {
		t.Fatal(err)
	}
	plan = plan.WithShards(func(s *shard.Shard) {
		if s.ID.Ring == catalogue.NamespacesRing {
			s.Home = "f-" + fmt.Sprint((s.ID.Name[1]-'0')%2)
		}
	})
	all, err := (&Part{2, 2}).Assign("f", plan, []string{catalogue.NamespacesRing})
	if err != nil || len(all) != 2 || all[0].Shard.ID.Name != "01" || all[1].Shard.ID.Name != "03" {
		t.Errorf("the second of two has %+v: %v", all, err)
	}
}
