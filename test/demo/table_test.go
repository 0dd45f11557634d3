package main

import (
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/google/go-cmp/cmp"

	"github.com/flotilla-kube/flotilla/pkg/controllers/catalogue"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// smallTable has four ranges and five groups; one member has been killed and one has not begun.
func smallTable(t *testing.T) table {
	t.Helper()
	plan, err := catalogue.DefaultPlan(4)
	if err != nil {
		t.Fatal(err)
	}
	holders := map[string]string{
		"namespaces/00": "flotilla-0_a", "namespaces/01": "flotilla-1_b", "namespaces/02": "flotilla-0_a",
		"cluster/garbage": "flotilla-0_a", "cluster/nodes": "flotilla-1_b", "cluster/policy": "flotilla-0_a",
	}
	var leases []*coordinationv1.Lease
	for name, holder := range holders {
		id, err := shard.ParseID(name)
		if err != nil {
			t.Fatal(err)
		}
		leases = append(leases, shardLease(id, holder, 3))
	}
	members := []string{"flotilla-0", "flotilla-1", "flotilla-2"}
	states := map[string]string{"flotilla-0": "active", "flotilla-1": killedState}
	// In the ranges 00, 01, 02 and 03 of four.
	some := tenantsIn(tenants(), []string{"data-reports", "web-frontend", "maps-tiles", "shop-catalog"})
	result := newTable(plan, members, states, some, view{leases: leases})
	result.work = []work{{kind: "deployments", done: 2, total: 4}, {kind: "jobs", done: 1, total: 1}}
	return result
}

func TestTableLines(t *testing.T) {
	want := strings.TrimPrefix(`
MEMBER       STATE     SHARDS NAMESPACES  SHARD(TERM)
flotilla-0   active         4          2  cluster/garbage(3) cluster/policy(3)
                                          00(3) 02(3)
flotilla-1   killed         2          1  cluster/nodes(3) 01(3)
flotilla-2   starting       0          0
nobody                      3          1  cluster/certificates(0)
                                          cluster/volumes(0) 03(0)

WORK  deployments 2/4   jobs 1/1
`, "\n")
	got := strings.Join(smallTable(t).lines(80), "\n") + "\n"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
}

func TestTableFits(t *testing.T) {
	for width := range 200 {
		for _, line := range smallTable(t).lines(width) {
			if len(line) > width {
				t.Fatalf("width %d: line %q has %d", width, line, len(line))
			}
		}
	}
}

func TestTableLine(t *testing.T) {
	table := smallTable(t)
	const shards = "shards: flotilla-0 active 4, flotilla-1 killed 2, flotilla-2 starting 0, nobody 3; work: "
	for _, test := range []struct {
		work []work
		want string
	}{
		{table.work, "deployments 2/4"},
		{[]work{{kind: "jobs", done: 0, total: 2}}, "none yet"},
		{[]work{{kind: "jobs", done: 2, total: 2}}, "all done"},
	} {
		table.work = test.work
		if got := table.line(); got != shards+test.want {
			t.Errorf("line %q, want %q", got, shards+test.want)
		}
	}
}
