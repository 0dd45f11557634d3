package audit_test

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestVerdictText prints a report with something of every kind.
func TestVerdictText(t *testing.T) {
	report := check(t, append(handoff(lower),
		write(a, lower, 1, low, 35, 4.5).arrived(3.9), write(a, lower, 1, low, 0, 5).code(403), write(b, lower, 1, low, 15, 1),
		lease(upper, a, 1, 11, 0), lease(upper, b, 2, 12, 1))...)
	verdict := report.Verdict()
	var text strings.Builder
	if err := verdict.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"2 writes checked against their Lease", "denied late: 403 1", "in flight when their term ended: 1, after a release: 1", "answered 500ms after that",
		"namespaces/00  2", "overlaps: 1", "flotilla-0_aaa, term 1 and flotilla-1_bbb, term 2 for 4.998s",
		"violations: 2 (not the holder 1, taken early 1)", "line 8",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("text does not have %q:\n%s", want, &text)
		}
	}
	data, err := json.Marshal(verdict)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"clean":false`, `"judgedWrites":2`, `"violationsByKind":{"not the holder":1,"taken early":1}`, `"deniedLate":{"403":1}`,
		`"secondsAfterEnd":0.5`, `"shard":"namespaces/00"`, `"plannedWorstSeconds":1`,
	} {
		if !strings.Contains(string(data), want) {
			t.Errorf("JSON does not have %s:\n%s", want, data)
		}
	}
	if empty, _ := json.Marshal(check(t).Verdict()); !strings.Contains(string(empty), `"violations":[]`) {
		t.Errorf("JSON of an empty log: %s", empty)
	}
}
