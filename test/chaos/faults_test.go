package main

import (
	"errors"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flotilla-kube/flotilla/pkg/controllers/catalogue"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// TestGoesOn checks that each fault of the list comes once, and that faults then continue for
// -minutes.
func TestGoesOn(t *testing.T) {
	for _, test := range []struct {
		args string
		done int
		ago  time.Duration // since each had come
		want bool
	}{
		{"-faults kill,cut", 1, 0, true},
		{"-faults kill,cut", 2, 0, false},
		{"-faults kill,cut -minutes 1", 1, 0, true},
		{"-faults kill,cut -minutes 1", 2, 0, true},
		{"-faults kill,cut -minutes 1", 9, 30 * time.Second, true},
		{"-faults kill,cut -minutes 1", 9, 90 * time.Second, false},
		{"-faults kill,cut -rounds 1", 0, 0, true},
		{"-faults kill,cut -rounds 1", 1, 0, false},
		{"-faults kill,cut -rounds 5", 4, 0, true},
	} {
		c := &chaos{environment: &environment{opts: testOptions(t, strings.Fields(test.args)...)}}
		var dealt time.Time
		if test.done >= 2 {
			dealt = time.Now().Add(-test.ago)
		}
		if got := c.goesOn(test.done, dealt); got != test.want {
			t.Errorf("%s: after %d, %v since each had come: %t, want %t", test.args, test.done, test.ago, got, test.want)
		}
	}
}

func TestOutcomeTable(t *testing.T) {
	got := outcomeTable([]string{"kill", "cut", "twin"}, []outcome{
		{name: "cut", took: 4 * time.Second, err: errors.New("no")}, {name: "kill", took: time.Second}, {name: "cut", took: 2 * time.Second},
	})
	want := `
FAULT  TIMES  RESULT    MEAN   LONGEST
kill   1      held      1.0 s  1.0 s
cut    2      FAILED 1  3.0 s  4.0 s
twin   0      not run
`
	var lines []string
	for line := range strings.Lines(got) {
		lines = append(lines, strings.TrimRight(line, " \n"))
	}
	if text := "\n" + strings.Join(lines, "\n") + "\n"; text != want {
		t.Errorf("got %s\nwant %s", text, want)
	}
}

// TestAftermath covers the possible states of a shard's Lease after tampering.
func TestAftermath(t *testing.T) {
	before := hold{holder: "a_1", term: 3}
	late := testOptions(t).timing.LeaseDuration
	for name, test := range map[string]struct {
		then  aftermath
		after hold
		taken time.Duration
		want  string
	}{
		"kept":                      {keepsClaim, before, 0, ""},
		"kept, another holder":      {keepsClaim, hold{holder: "b_1", term: 4}, late, "the claim must go on"},
		"kept, another term":        {keepsClaim, hold{holder: "a_1", term: 4}, 0, "the claim must go on"},
		"new":                       {newClaim, hold{holder: "a_1", term: 4}, 0, ""},
		"new, the same":             {newClaim, before, 0, "must be above 3"},
		"runs out":                  {runsOut, hold{holder: "b_1", term: 4}, late, ""},
		"runs out, taken early":     {runsOut, hold{holder: "b_1", term: 4}, late - time.Millisecond, "must be 6s or later"},
		"runs out, nobody took it":  {runsOut, before, 0, "must be 6s or later"},
		"runs out, an earlier term": {runsOut, hold{holder: "b_1", term: 2}, late, "must be above 3"},
	} {
		err := test.then(before, test.after, test.taken, testOptions(t).timing)
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
}

// TestAnotherDivisionLeavesTraces checks that Leases of another number of shards are found, by name
// or by extent.
func TestAnotherDivisionLeavesTraces(t *testing.T) {
	plan, err := catalogue.DefaultPlan(4)
	if err != nil {
		t.Fatal(err)
	}
	other, err := catalogue.DefaultPlan(5)
	if err != nil {
		t.Fatal(err)
	}
	if err := strayLeases(leasesOf(plan), plan, nil); err != nil {
		t.Errorf("the plan's own: %v", err)
	}
	err = strayLeases(leasesOf(other), plan, nil)
	if err == nil || !strings.Contains(err.Error(), "flotilla-namespaces-04 belongs to no shard") || !strings.Contains(err.Error(), "flotilla-namespaces-01 covers") {
		t.Errorf("another's: %v", err)
	}
	if err := samePlan(plan, plan); err != nil {
		t.Error(err)
	}
	if samePlan(plan, other) == nil || samePlan(other, plan) == nil {
		t.Error("plans of 4 and of 5 shards are the same")
	}
}

func leasesOf(plan shard.Plan) []coordinationv1.Lease {
	var leases []coordinationv1.Lease
	for id, e := range plan.Extents() {
		lease := coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
			Name: leaseapi.ShardLease(fleetName, id), Labels: map[string]string{leaseapi.ShardLabel: id.Name},
		}}
		if s, _ := plan.Shard(id); s.Namespaced() {
			lease.Annotations = map[string]string{leaseapi.RangeAnnotation: e.Range.String()}
		}
		leases = append(leases, lease)
	}
	return leases
}
