package harness

import (
	"cmp"
	"errors"
	"os"
	"testing"

	"github.com/flotilla-kube/flotilla/pkg/audit"
	"github.com/flotilla-kube/flotilla/test/controlplane"
)

// Report judges the audit log of a control plane by the fleet's promises. The fleet is [Fleet] if
// the options name none. Without Controllers the judge does not know writes that lack the user
// agent of a member.
func Report(t *testing.T, plane *controlplane.ControlPlane, o audit.Options) audit.Report {
	t.Helper()
	o.Fleet = cmp.Or(o.Fleet, Fleet)
	log, err := os.Open(plane.AuditLog())
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	report, err := audit.Judge(o, audit.Log{Reader: log})
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// Judge is Report, and fails the test if anything is wrong or if the fleet has written nothing.
// Without faults of servers, networks or clocks, and without suspended members, nothing may be
// late, in flight or undecided either.
func Judge(t *testing.T, plane *controlplane.ControlPlane, o audit.Options) audit.Report {
	t.Helper()
	report := JudgeDisturbed(t, plane, o)
	if err := report.Undisturbed(); err != nil {
		t.Error(err)
	}
	return report
}

// JudgeDisturbed is Judge for a fleet with such faults or suspended members.
func JudgeDisturbed(t *testing.T, plane *controlplane.ControlPlane, o audit.Options) audit.Report {
	t.Helper()
	report := Report(t, plane, o)
	err := report.Err()
	if report.ByVersion+report.ByTime == 0 {
		err = errors.Join(err, errors.New("the fleet wrote nothing that could be judged"))
	}
	if err != nil {
		t.Error(err)
	}
	t.Logf("%d writes judged; objects: %+v", report.ByVersion+report.ByTime, report.Objects)
	return report
}
