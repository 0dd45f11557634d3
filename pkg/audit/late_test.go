package audit_test

import (
	"maps"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/flotilla-kube/flotilla/pkg/audit"
)

// arrived moves the arrival of a request to a second of the log.
func (l line) arrived(second float64) line {
	at := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC).Add(time.Duration(second * float64(time.Second)))
	return l.with("requestReceivedTimestamp", at.Format("2006-01-02T15:04:05.000000Z"))
}

// TestInFlight has writes that take effect after the release, which arrived at 3.998 s and was
// answered at 4 s.
func TestInFlight(t *testing.T) {
	tests := map[string]struct {
		write line
		want  []audit.Kind
		after time.Duration
		doubt []audit.Kind
	}{
		"under way":            {write: write(a, lower, 1, low, 35, 4.5).arrived(3.9), after: 500 * time.Millisecond},
		"until after the next": {write: write(a, lower, 1, low, 45, 6).arrived(3.9), after: 2 * time.Second},
		"at the last moment":   {write: write(a, lower, 1, low, 35, 4.5).arrived(4), after: 500 * time.Millisecond},
		"too late":             {write: write(a, lower, 1, low, 35, 4.5).arrived(4.001), want: []audit.Kind{audit.NotHolder}},
		"another's":            {write: write(b, lower, 1, low, 35, 4.5).arrived(3.9), want: []audit.Kind{audit.NotHolder}},
		"before its term":      {write: write(b, lower, 2, low, 35, 4.5).arrived(3.9), want: []audit.Kind{audit.NotHolder}},
		"as long as may be":    {write: write(a, lower, 1, low, 35, 68.9).arrived(3.9), after: 64*time.Second + 900*time.Millisecond},
		"for too long":         {write: write(a, lower, 1, low, 35, 69).arrived(3.9), after: 65 * time.Second, doubt: []audit.Kind{audit.LongFlight}},
		"no version":           {write: write(a, lower, 1, low, 0, 4.5).arrived(3.9), after: 500 * time.Millisecond},
		"before the end":       {write: write(a, lower, 1, low, 25, 4.5).arrived(3.9), after: -1},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			report := check(t, append(handoff(lower), test.write)...)
			requireKinds(t, report, test.want...)
			requireDoubts(t, report, test.doubt...)
			if test.want != nil || test.after < 0 {
				if len(report.InFlight) > 0 {
					t.Errorf("in flight: %v, want none", report.InFlight)
				}
				return
			}
			if len(report.InFlight) != 1 {
				t.Fatalf("in flight: %v, want one", report.InFlight)
			}
			if f := report.InFlight[0]; f.Member != a || f.Line != 6 || f.Ended != 30 || f.After != test.after || !f.Released {
				t.Errorf("in flight: %+v", f)
			}
			if report.Flying != 1 || report.FlyingReleased != 1 || report.Undisturbed() == nil {
				t.Errorf("%d in flight, %d after a release, undisturbed %v, want 1, 1, and an error", report.Flying, report.FlyingReleased, report.Undisturbed())
			}
		})
	}
}

// TestLateFlight has a Lease that expires at 6 s and that member b takes at 8 s.
func TestLateFlight(t *testing.T) {
	log := []line{lease(lower, a, 1, 10, 0), lease(lower, b, 2, 40, 8)}
	for name, test := range map[string]struct {
		write line
		late  int
		want  []audit.Kind
		doubt []audit.Kind
	}{
		"in time":                          {write: write(a, lower, 1, low, 20, 5)},
		"nobody had it":                    {write: write(a, lower, 1, low, 20, 7), late: 1},
		"under way when it ran out":        {write: write(a, lower, 1, low, 45, 9).arrived(5.9)},
		"arrived later":                    {write: write(a, lower, 1, low, 45, 9).arrived(7.9), doubt: []audit.Kind{audit.LateFlight}},
		"arrived after the next had begun": {write: write(a, lower, 1, low, 45, 9), want: []audit.Kind{audit.NotHolder}},
	} {
		t.Run(name, func(t *testing.T) {
			report := check(t, append(log, test.write)...)
			requireKinds(t, report, test.want...)
			requireDoubts(t, report, test.doubt...)
			if report.Late != test.late || (report.Undisturbed() == nil) != (name == "in time" || test.want != nil) {
				t.Errorf("%d late, want %d; undisturbed: %v", report.Late, test.late, report.Undisturbed())
			}
		})
	}
}

// TestDeniedLate: only requests that were refused after the end of their term count, by status
// code.
func TestDeniedLate(t *testing.T) {
	report := check(t, append(handoff(lower),
		write(a, lower, 1, low, 0, 3).code(409),   // In time.
		write(a, lower, 1, low, 0, 5).code(403),   // Late.
		write(a, lower, 1, low, 0, 5.5).code(403), // Late.
		write(a, lower, 1, low, 0, 6).code(409),   // Late.
		write(b, lower, 2, low, 0, 8).code(403),   // Not ended.
		write(a, lower, 7, low, 0, 8).code(403),   // No such term.
	)...)
	requireKinds(t, report)
	if diff := cmp.Diff(map[int32]int{403: 2, 409: 1}, report.DeniedLate); diff != "" || report.Refused != 6 {
		t.Errorf("denied late (-want +got), of %d refused, want 6:\n%s", report.Refused, diff)
	}
	accepted := check(t, append(handoff(lower), write(a, lower, 1, low, 35, 5))...)
	requireKinds(t, accepted, audit.NotHolder)
}

// made returns the request for a version of its object.
func (l line) made(version string) line {
	ref := maps.Clone(l["objectRef"].(map[string]any))
	ref["resourceVersion"] = version
	return l.with("objectRef", ref)
}

// TestOvertaken: the previous holder sends an update when it wakes up, and hangs up before the
// answer. Member b has written version 45 by 6 s.
func TestOvertaken(t *testing.T) {
	late := write(a, lower, 1, low, 0, 6.5).code(504)
	elsewhere := request("update", agent(a, lower, 1), "apps", "replicasets", low, "other", 6.5).code(504)
	for name, test := range map[string]struct {
		write line
		want  []audit.Kind
	}{
		"of a version that is gone":           {late.made("25"), nil},
		"of the status":                       {request("update", agent(a, lower, 1), "apps", "replicasets/status", low, "web", 6.5).code(504).made("25"), nil},
		"of the version that there is":        {late.made("45"), []audit.Kind{audit.NotHolder}},
		"of a later version":                  {late.made("46"), []audit.Kind{audit.NotHolder}},
		"of any version":                      {late, []audit.Kind{audit.NotHolder}},
		"of nonsense":                         {late.made("x"), []audit.Kind{audit.NotHolder}},
		"of another object":                   {elsewhere.made("25"), []audit.Kind{audit.NotHolder}},
		"that came before the other's answer": {late.made("25").arrived(5.9), []audit.Kind{audit.NotHolder}},
		"that was accepted":                   {write(a, lower, 1, low, 46, 6.5).made("25"), []audit.Kind{audit.NotHolder}},
		"that is a patch":                     {late.made("25").with("verb", "patch"), []audit.Kind{audit.NotHolder}},
	} {
		t.Run(name, func(t *testing.T) {
			report := check(t, append(handoff(lower), write(b, lower, 2, low, 45, 6), test.write)...)
			requireKinds(t, report, test.want...)
			if test.want == nil && report.DeniedLate[504] != 1 {
				t.Errorf("denied late: %v, want one 504", report.DeniedLate)
			}
		})
	}
	// The update of b was refused, so it replaced nothing.
	report := check(t, append(handoff(lower), write(b, lower, 2, low, 45, 6).code(409), late.made("25"))...)
	requireKinds(t, report, audit.NotHolder)
}
