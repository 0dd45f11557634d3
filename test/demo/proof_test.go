package main

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/flotilla-kube/flotilla/pkg/audit"
)

var (
	noon = time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	dead = loss{incarnation: "flotilla-1_old", at: noon}
)

// goodReport describes a fleet in which flotilla-1 had everything, was replaced by flotilla-0 seven
// seconds after its death, and came back.
func goodReport(t *testing.T) audit.Report {
	t.Helper()
	_, plan, _ := defaults(t)
	report := audit.Report{Namespaces: map[string][]audit.TermWrites{}, Objects: audit.Judged{Creates: 1}}
	for _, namespace := range namespaces {
		id, _ := shardOf(plan, namespace)
		for i, member := range []string{dead.incarnation, "flotilla-0_x", "flotilla-1_new"} {
			at := noon.Add(time.Duration(i)*10*time.Second - 3*time.Second)
			report.Namespaces[namespace] = append(report.Namespaces[namespace], audit.TermWrites{
				Identity: audit.Identity{Member: member, Shard: id, Term: int32(i + 1)}, Writes: 2, First: at, Last: at,
			})
		}
	}
	return report
}

func TestFaults(t *testing.T) {
	_, plan, _ := defaults(t)
	moved := namespaces[:3]
	if err := faults(goodReport(t), plan, moved, dead); err != nil {
		t.Errorf("good report: %v", err)
	}
	first := namespaces[0]
	tests := map[string]struct {
		spoil func(*audit.Report)
		want  string
	}{
		"violation":     {func(r *audit.Report) { r.Violations = []audit.Violation{{Kind: audit.NotHolder}} }, "not the holder"},
		"late":          {func(r *audit.Report) { r.Late = 1 }, "1 writes came after their Lease had run out"},
		"nothing made":  {func(r *audit.Report) { r.Objects.Creates = 0 }, "no pod that the fleet created was judged"},
		"silence":       {func(r *audit.Report) { delete(r.Namespaces, namespaces[9]) }, "nobody wrote in " + namespaces[9]},
		"another shard": {func(r *audit.Report) { r.Namespaces[first][0].Shard.Name = "99" }, "but was written by"},
		"no successor":  {func(r *audit.Report) { r.Namespaces[first] = r.Namespaces[first][:1] }, "was not served by"},
		"no return":     {func(r *audit.Report) { r.Namespaces[first] = r.Namespaces[first][:2] }, "was not served by"},
		"dead one lives": {func(r *audit.Report) {
			r.Namespaces[first] = append(r.Namespaces[first], r.Namespaces[first][0])
		}, "was not served by"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			report := goodReport(t)
			test.spoil(&report)
			err := faults(report, plan, moved, dead)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("faults: %v, want %q", err, test.want)
			}
		})
	}
}

func TestSummary(t *testing.T) {
	lines := summary(goodReport(t), namespaces[:1], dead)
	want := []string{
		"0 writes to 0 shards by 0 incarnations in 0 terms: each in its shard's range, each by the Lease's holder",
		"(joined with the Lease by version 0, by time 0; not judged: 0 refused, 0 Events; 0 came after the Lease had run out)",
		"data-reports       flotilla-1 (term 1, 2 writes), then flotilla-0 (term 2, 2 writes), then flotilla-1 (term 3, 2 writes)",
		"without a holder when a shard was handed over: never",
		"without a holder when it was lost, since its last renewal: never",
		"from the kill to the successor's first write in a namespace: n=1, median 7s, longest 7s",
	}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Errorf("summary (-want +got):\n%s", diff)
	}
}
