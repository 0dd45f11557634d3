package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/flotilla-kube/flotilla/pkg/audit"
	"github.com/flotilla-kube/flotilla/pkg/controllers/catalogue"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// tampering is the time in which somebody else wrote a Lease. Violations of the Lease's rules in
// that time are not the fleet's fault; see the guarantees of package election.
type tampering struct {
	lease string
	// shard is the Lease's shard; zero for a leader lock.
	shard    shard.ID
	from, to time.Time
	// ended is when the shard's holder must have learned of it at the latest, and write no more.
	ended time.Time
}

// excuses reports whether the tampering caused the violation.
func (t tampering) excuses(v audit.Violation) bool {
	if v.Time.Before(t.from) || v.Time.After(t.to) {
		return false
	}
	if t.shard == (shard.ID{}) {
		return v.Kind == audit.LeaderLockNotHeld
	}
	switch v.Kind {
	case audit.LeaseDeleted, audit.TermReused, audit.TakenEarly, audit.WrongLayout, audit.HolderNotEnded:
	case audit.NotHolder, audit.Overlapping, audit.OverlappingShards:
		if v.Time.After(t.ended) {
			return false
		}
	default:
		return false
	}
	return strings.Contains(v.Detail, t.shard.String()) || strings.HasSuffix(v.URI, "/"+t.lease)
}

// judge compares the audit log with the Leases and returns its findings in words. It returns an
// error if no tampering excuses a violation, if the fleet should have a leader lock and some writes
// could not be compared with it, or if something is late, in flight or undecided although all
// faults were clean.
func judge(log, copied string, plan shard.Plan, withLock, clean bool, tamperings []tampering) ([]string, error) {
	broken, err := copyWhole(log, copied)
	if err != nil {
		return nil, err
	}
	file, err := os.Open(copied)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	report, err := audit.Judge(audit.Options{Fleet: fleetName, Plan: &plan, Controllers: catalogue.Identities()}, audit.Log{Reader: file})
	if err != nil {
		return nil, err
	}
	all := len(report.Violations)
	report.Violations = slices.DeleteFunc(report.Violations, func(v audit.Violation) bool {
		return slices.ContainsFunc(tamperings, func(t tampering) bool { return t.excuses(v) })
	})
	terms := 0
	for _, t := range report.Terms {
		terms += len(t)
	}
	released, expired := report.Gaps()
	lines := []string{
		fmt.Sprintf("%d lines, %d of them broken; %d writes joined with their Lease by version, %d by time; %d terms",
			report.Lines, broken, report.ByVersion, report.ByTime, terms),
		fmt.Sprintf("not judged: %d refused, %d Events, %d that store nothing, %d of the fleet's own; %d came after the Lease had run out, %d Lease writes with an unknown end, %d other writes lost",
			report.Refused, report.Events, report.StoreNothing, report.FleetOwn, report.Late, report.LeaseUnknown, report.Lost),
		fmt.Sprintf("in flight when their term ended: %d; refused after it: %d; overlaps: %d; objects judged: %d creates, %d deletes",
			len(report.InFlight), deniedLate(report), len(report.Overlaps), report.Objects.Creates, report.Objects.Deletes),
		"without a holder when handed over:             " + durations(released),
		"without a holder when lost, since last renewal: " + durations(expired),
		fmt.Sprintf("checked against the leader lock: %d", report.AgainstLeaderLock),
		fmt.Sprintf("undecided: %d", len(report.Undecided)),
		fmt.Sprintf("violations: %d, and %d more that tampering explains", len(report.Violations), all-len(report.Violations)),
	}
	for _, doubt := range report.Undecided {
		lines = append(lines, "undecided: "+doubt.String())
	}
	return lines, verdict(report, withLock, clean)
}

// verdict returns nil if the report has what it should, see judge.
func verdict(report audit.Report, withLock, clean bool) error {
	errs := []error{report.Err()}
	if clean {
		errs = append(errs, report.Undisturbed())
	}
	if report.Objects.Creates == 0 {
		errs = append(errs, errors.New("no pod that the fleet created was judged"))
	}
	if writes := report.ByVersion + report.ByTime; withLock && report.AgainstLeaderLock < writes {
		errs = append(errs, fmt.Errorf("only %d of %d writes could be compared with the leader lock: do all members say that they wait for it?", report.AgainstLeaderLock, writes))
	}
	return errors.Join(errs...)
}

// deniedLate counts the requests that were refused because they came after their term.
func deniedLate(report audit.Report) int {
	n := 0
	for _, inCode := range report.DeniedLate {
		n += inCode
	}
	return n
}

func durations(sorted []time.Duration) string {
	s := newSpread("", sorted)
	return fmt.Sprintf("n=%d p50 %v p99 %v worst %v", s.n, millis(s.p50), millis(s.p99), millis(s.worst))
}

// copyWhole copies the log without broken lines, which a killed server leaves.
func copyWhole(log, copied string) (broken int, err error) {
	from, err := os.Open(log)
	if err != nil {
		return 0, err
	}
	defer from.Close()
	to, err := os.Create(copied)
	if err != nil {
		return 0, err
	}
	broken, err = wholeLines(to, from)
	return broken, errors.Join(err, to.Close())
}
