package audit_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/flotilla-kube/flotilla/pkg/audit"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// labelled returns a Lease of a shard as the fleet writes it, without a range if r is empty.
func labelled(id, r string) line {
	l := lease(id, a, 1, 10, 0)
	ring, name, _ := strings.Cut(id, "/")
	answer := jsonObject(l["responseObject"].(map[string]any)).
		set("metadata", "labels", map[string]any{"flotilla.dev/fleet": fleetName, "flotilla.dev/ring": ring, "flotilla.dev/shard": name})
	if r != "" {
		answer = answer.set("metadata", "annotations", map[string]any{"flotilla.dev/range": r})
	}
	return l.with("responseObject", answer)
}

func TestReadPlan(t *testing.T) {
	want := plan(t)
	halves := want.Rings[0].Shards
	leases := []line{labelled(nodes, ""), labelled(upper, halves[1].Range.String()), labelled(lower, halves[0].Range.String())}
	got, err := audit.ReadPlan(audit.Options{Fleet: fleetName}, reading(logOf(t, append(handoff(lower), leases...)...)))
	if err != nil {
		t.Fatal(err)
	}
	describe := func(p shard.Plan) (all []string) {
		for _, s := range p.Shards() {
			all = append(all, s.ID.String()+" "+s.Group+" "+s.Range.String())
		}
		return all
	}
	// The rings are in the order of their names.
	want.Rings[0], want.Rings[1] = want.Rings[1], want.Rings[0]
	if diff := cmp.Diff(describe(want), describe(got)); diff != "" {
		t.Errorf("plan (-want +got):\n%s", diff)
	}
	faults := map[string]struct {
		lines []line
		want  string
	}{
		"no Lease":      {nil, "no write of a Lease"},
		"a part":        {leases[:2], "no shard covers this range"},
		"it changed":    {append(leases, labelled(lower, halves[1].Range.String())), "had"},
		"not a range":   {append(leases, labelled(lower, "all")), "two bounds"},
		"other fleet's": {[]line{labelled(nodes, "").with("responseObject", map[string]any{"kind": "Lease", "metadata": map[string]any{"resourceVersion": "1"}})}, "no write of a Lease"},
	}
	for name, test := range faults {
		_, err := audit.ReadPlan(audit.Options{Fleet: fleetName}, reading(logOf(t, test.lines...)))
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
}

// TestSeveralLogs reads a log in two parts, the later one first.
func TestSeveralLogs(t *testing.T) {
	first := logOf(t, handoff(lower)...)
	second := logOf(t, write(a, lower, 1, low, 15, 1), write(b, lower, 1, low, 15, 1))
	report, err := audit.Judge(options(plan(t)), reading(first), reading(second))
	if err != nil {
		t.Fatal(err)
	}
	requireKinds(t, report, audit.NotHolder)
	if v := report.Violations[0]; v.Log != 2 || v.Line != 2 || !strings.Contains(v.String(), "log 2 line 2") || report.Lines != 7 {
		t.Errorf("violation %+v of %d lines", v, report.Lines)
	}
	if _, err := audit.Judge(options(plan(t)), reading(first), reading("?\n")); err == nil || !strings.Contains(err.Error(), "log 2") {
		t.Errorf("garbage in the second log: %v", err)
	}
}
