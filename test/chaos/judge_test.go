package main

import (
	"strings"
	"testing"

	"github.com/flotilla-kube/flotilla/pkg/audit"
)

func TestVerdict(t *testing.T) {
	for name, test := range map[string]struct {
		spoil  func(*audit.Report)
		faults string
		want   string
	}{
		"good":                     {func(*audit.Report) {}, "kill,rolling,scale", ""},
		"violation":                {func(r *audit.Report) { r.Violations = []audit.Violation{{Kind: audit.NotHolder}} }, "cut", "not the holder"},
		"late":                     {func(r *audit.Report) { r.Late = 1 }, "kill,rolling,scale", "1 writes came after"},
		"late, with another fault": {func(r *audit.Report) { r.Late = 1 }, "kill,stop", ""},
		"in flight":                {func(r *audit.Report) { r.InFlight = make([]audit.Flight, 1) }, "scale", "in flight"},
		"nothing created":          {func(r *audit.Report) { r.Objects.Creates = 0 }, "cut", "no pod that the fleet created"},
		"without the leader lock":  {func(r *audit.Report) { r.AgainstLeaderLock = 1 }, "cut", "only 1 of 2 writes"},
	} {
		t.Run(name, func(t *testing.T) {
			report := audit.Report{Objects: audit.Judged{Creates: 1}}
			report.ByVersion, report.AgainstLeaderLock = 2, 2
			test.spoil(&report)
			err := verdict(report, true, allClean(strings.Split(test.faults, ",")))
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("%v, want %q", err, test.want)
			}
		})
	}
}
