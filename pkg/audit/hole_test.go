package audit_test

import (
	"testing"

	"github.com/flotilla-kube/flotilla/pkg/audit"
)

// TestHoles judges logs that lack a write of the Lease, as the next write shows.
func TestHoles(t *testing.T) {
	held, next := lease(lower, a, 1, 10, 1), lease(lower, b, 2, 40, 3).on(30)
	hole := []audit.Kind{audit.LeaseHole}
	tests := map[string]struct {
		lines []line
		want  []audit.Kind
		doubt []audit.Kind
	}{
		"none":                          {lines: []line{held, lease(lower, "", 1, 30, 2).on(10), next}},
		"whether it was released":       {lines: []line{held, next}, doubt: hole},
		"and a write before it":         {lines: []line{held, write(a, lower, 1, low, 20, 2), next}, doubt: hole},
		"and a write of the next in it": {lines: []line{held, write(b, lower, 2, low, 20, 2), next}, doubt: []audit.Kind{audit.LeaseHole, audit.LeaseHole}},
		"and a write without a version": {
			lines: []line{held, write(b, lower, 2, low, 0, 2), next}, doubt: []audit.Kind{audit.LeaseHole, audit.LeaseHole},
		},
		"and a write that came later":  {lines: []line{held, next, write(a, lower, 1, low, 50, 4)}, want: []audit.Kind{audit.NotHolder}, doubt: hole},
		"in a term":                    {lines: []line{held, lease(lower, a, 1, 40, 3).on(30)}, doubt: hole},
		"and the term was used before": {lines: []line{held, lease(lower, b, 1, 40, 3).on(30)}, want: []audit.Kind{audit.TermReused}, doubt: hole},
		"half of it is known": {
			lines: []line{held, lease(lower, a, 1, 0, 2.1).on(20).code(504), next}, doubt: hole,
		},
		"nobody knows what was asked for": {
			lines: []line{held, lease(lower, "", 1, 0, 2).code(504), lease(lower, a, 1, 40, 3)}, doubt: []audit.Kind{audit.LeaseUnanswered},
		},
		"the server has not read what was asked for": {
			lines: []line{held, lease(lower, "", 1, 0, 2).code(504).with("level", "RequestResponse"), lease(lower, a, 1, 40, 3)},
		},
		"the log has no requests": {
			lines: []line{held, lease(lower, "", 1, 0, 2).code(504).with("level", "Metadata"), lease(lower, a, 1, 40, 3)}, doubt: []audit.Kind{audit.LeaseUnanswered},
		},
		"a write of a term that there was none of": {
			lines: []line{held, write(b, lower, 5, low, 20, 2), lease(lower, a, 7, 40, 3).on(30)}, doubt: []audit.Kind{audit.LeaseHole, audit.LeaseHole},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			report := check(t, test.lines...)
			requireKinds(t, report, test.want...)
			requireDoubts(t, report, test.doubt...)
			if (report.Undisturbed() == nil) != (test.doubt == nil) {
				t.Errorf("undisturbed: %v", report.Undisturbed())
			}
		})
	}
}

// TestLaterLog judges logs that begin in the middle of a term.
func TestLaterLog(t *testing.T) {
	first := lease(lower, a, 3, 40, 10).on(30)
	tests := map[string]struct {
		lines []line
		want  []audit.Kind
		doubt []audit.Kind
	}{
		"its holder":               {lines: []line{write(a, lower, 3, low, 35, 9), first}},
		"its holder, no version":   {lines: []line{write(a, lower, 3, low, 0, 9), first}},
		"the one before":           {lines: []line{write(b, lower, 2, low, 35, 9), first}, doubt: []audit.Kind{audit.LeaseHole}},
		"the one before, too late": {lines: []line{first, write(b, lower, 2, low, 45, 11)}, want: []audit.Kind{audit.NotHolder}},
		"it was released":          {lines: []line{write(a, lower, 3, low, 35, 9), lease(lower, "", 3, 40, 10).on(30)}, doubt: []audit.Kind{audit.LeaseHole}},
		"not the beginning":        {lines: []line{lease(lower, a, 3, 40, 10), write(b, lower, 2, low, 35, 9)}, want: []audit.Kind{audit.NotHolder}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			report := check(t, test.lines...)
			requireKinds(t, report, test.want...)
			requireDoubts(t, report, test.doubt...)
			if want := 1; (report.Partial == want) != (name != "not the beginning") {
				t.Errorf("%d Leases are older than the log", report.Partial)
			}
		})
	}
}

// TestLeaseIsNotWritten judges a log of a time in which nothing happened to the shard's Lease. That
// is one doubt for each claim, and the other rules still hold.
func TestLeaseIsNotWritten(t *testing.T) {
	other := lease(upper, b, 1, 10, 0)
	report := check(t, other, write(a, lower, 3, low, 35, 9), write(a, lower, 3, low, 36, 9), write(b, lower, 2, low, 37, 9))
	requireKinds(t, report)
	requireDoubts(t, report, audit.LeaseHole, audit.LeaseHole)
	report = check(t, other, write(a, lower, 3, high, 35, 9))
	requireKinds(t, report, audit.WrongRange)
	requireDoubts(t, report, audit.LeaseHole)
}

// TestLaterLeaderLock judges logs that begin while a leader lock is held.
func TestLaterLeaderLock(t *testing.T) {
	shards := []line{waits(a, lockName), lease(lower, a, 1, 10, 10), write(a, lower, 1, low, 20, 11)}
	renewed := asking(lock(lockHolder, 30, 12), 25)
	requireKinds(t, check(t, append(shards, renewed)...))
	report := check(t, append(shards, asking(lock(stock, 30, 12), 25))...)
	requireKinds(t, report)
	requireDoubts(t, report, audit.LeaseHole)
	requireKinds(t, check(t, append(shards, lock(stock, 30, 12))...), audit.LeaderLockNotHeld)
}
