package audit_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/flotilla-kube/flotilla/pkg/audit"
)

const (
	lockName   = "kube-controller-manager"
	lockHolder = fleetName + "_fleet"
	stock      = "cp-1_0000"

	stockAgent = "kube-controller-manager/v1.37.1 (linux/amd64) kubernetes/0123456"
)

// lock returns a write of the stock controller manager's Lease, by anybody.
func lock(holder string, version int, second float64) line {
	l := lease("x/y", holder, 1, version, second)
	if holder != lockHolder {
		l = l.with("userAgent", stockAgent+"/leader-election")
	}
	l["objectRef"] = map[string]any{"apiGroup": "coordination.k8s.io", "resource": "leases", "namespace": "kube-system", "name": lockName}
	return l
}

// gone returns the leader lock's deletion, whose answer has no version.
func gone(second float64) line {
	return lock("", 0, second).with("verb", "delete").with("responseObject", map[string]any{"kind": "Status"})
}

// waits returns the Lease of an incarnation's member, which names its leader locks.
func waits(incarnation, leaderLocks string) line {
	l := lease("member/flotilla-0", incarnation, 1, 5, 0)
	l["responseObject"].(map[string]any)["metadata"] = map[string]any{
		"name": fmt.Sprintf("%s-member-flotilla-0", fleetName), "resourceVersion": "5", "annotations": map[string]any{"flotilla.dev/leader-locks": leaderLocks},
	}
	return l
}

// TestLeaderLock: member a holds a shard from version 10 on, at second 10, and writes at some time.
func TestLeaderLock(t *testing.T) {
	held := []line{lock(lockHolder, 6, 1), lock(lockHolder, 30, 12)}
	taken := append(slices.Clone(held), lock(stock, 40, 20))
	deleted := append(slices.Clone(held), gone(20), lock(lockHolder, 40, 21).with("verb", "create"))
	for name, test := range map[string]struct {
		leaderLocks string // Those that the member waits for.
		log         []line
		at          line
		want        []audit.Kind
	}{
		"held":                             {leaderLocks: lockName, log: held, at: write(a, lower, 1, low, 35, 13)},
		"held, no version":                 {leaderLocks: lockName, log: held, at: write(a, lower, 1, low, 0, 13)},
		"changed nothing":                  {leaderLocks: lockName, log: []line{lock(lockHolder, 30, 12)}, at: write(a, lower, 1, low, 20, 13)},
		"not held yet":                     {leaderLocks: lockName, log: []line{lock(lockHolder, 30, 14)}, at: write(a, lower, 1, low, 20, 13), want: []audit.Kind{audit.LeaderLockNotHeld}},
		"not held yet, no version":         {leaderLocks: lockName, log: []line{lock(lockHolder, 30, 14)}, at: write(a, lower, 1, low, 0, 13), want: []audit.Kind{audit.LeaderLockNotHeld}},
		"another holds it":                 {leaderLocks: lockName, log: []line{lock(stock, 6, 1)}, at: write(a, lower, 1, low, 35, 13), want: []audit.Kind{audit.LeaderLockNotHeld}},
		"nobody has ever had it":           {leaderLocks: lockName, at: write(a, lower, 1, low, 35, 13), want: []audit.Kind{audit.LeaderLockNotHeld}},
		"no leader locks":                  {log: []line{lock(stock, 6, 1)}, at: write(a, lower, 1, low, 35, 13)},
		"one of two":                       {leaderLocks: lockName + ",other", log: held, at: write(a, lower, 1, low, 35, 13), want: []audit.Kind{audit.LeaderLockNotHeld}},
		"before it was taken":              {leaderLocks: lockName, log: taken, at: write(a, lower, 1, low, 35, 19)},
		"after it was taken":               {leaderLocks: lockName, log: taken, at: write(a, lower, 1, low, 45, 21), want: []audit.Kind{audit.LeaderLockNotHeld}},
		"after it was taken, no version":   {leaderLocks: lockName, log: taken, at: write(a, lower, 1, low, 0, 21), want: []audit.Kind{audit.LeaderLockNotHeld}},
		"on the wire when it was taken":    {leaderLocks: lockName, log: taken, at: write(a, lower, 1, low, 45, 20.001)},
		"refused after it was taken":       {leaderLocks: lockName, log: taken, at: write(a, lower, 1, low, 0, 21).code(403)},
		"an old version after it was lost": {leaderLocks: lockName, log: append(slices.Clone(taken), does("update", by1, "apps", "replicasets", set, 35, 13)), at: does("update", by1, "apps", "replicasets", set, 35, 21), want: []audit.Kind{audit.LeaderLockNotHeld}},
		"while it is deleted":              {leaderLocks: lockName, log: deleted, at: write(a, lower, 1, low, 35, 20.5), want: []audit.Kind{audit.LeaderLockNotHeld}},
		"after it was written again":       {leaderLocks: lockName, log: deleted, at: write(a, lower, 1, low, 45, 22)},
		"deleted for good":                 {leaderLocks: lockName, log: append(slices.Clone(held), gone(20)), at: write(a, lower, 1, low, 35, 21), want: []audit.Kind{audit.LeaderLockNotHeld}},
		"the write failed, and took effect": {leaderLocks: lockName, at: write(a, lower, 1, low, 25, 11), log: []line{
			lock(stock, 6, 1), lock("", 7, 2), asking(lock(lockHolder, 0, 10).code(500), 7), asking(lock(lockHolder, 30, 12), 20)}},
		"taken early":               {leaderLocks: lockName, log: []line{lock(stock, 4, 1), lock(lockHolder, 6, 6.9)}, at: write(a, lower, 1, low, 35, 13), want: []audit.Kind{audit.TakenEarly}},
		"taken after it":            {leaderLocks: lockName, log: []line{lock(stock, 4, 1), lock(lockHolder, 6, 7.1)}, at: write(a, lower, 1, low, 35, 13)},
		"released before":           {leaderLocks: lockName, log: []line{lock(stock, 4, 1), lock("", 5, 2), lock(lockHolder, 6, 2.1)}, at: write(a, lower, 1, low, 35, 13)},
		"held elsewhere by another": {leaderLocks: lockName, log: append(slices.Clone(held), elsewhere(lock(stock, 32, 12.5))), at: write(a, lower, 1, low, 35, 13)},
		"held elsewhere":            {leaderLocks: lockName, log: []line{elsewhere(lock(lockHolder, 6, 1))}, at: write(a, lower, 1, low, 35, 13), want: []audit.Kind{audit.LeaderLockNotHeld, audit.Unfenced}},
	} {
		t.Run(name, func(t *testing.T) {
			// They come first in the log, because the order must not matter.
			lines := append([]line{test.at, waits(a, test.leaderLocks), lease(lower, a, 1, 10, 10), lease(lower, a, 1, 50, 15)}, test.log...)
			requireKinds(t, check(t, lines...), test.want...)
		})
	}
}

// TestLeaderLockOfOurPrefix has a leader lock whose name begins with the fleet's, as the library
// allows.
func TestLeaderLockOfOurPrefix(t *testing.T) {
	const name = fleetName + "-old"
	of := func(holder string, version int, second float64) line {
		l := lock(holder, version, second)
		l["objectRef"] = map[string]any{"apiGroup": "coordination.k8s.io", "resource": "leases", "namespace": "kube-system", "name": name}
		return l
	}
	log := []line{waits(a, name), lease(lower, a, 1, 10, 10), lease(lower, a, 1, 50, 15), of(lockHolder, 6, 1), write(a, lower, 1, low, 35, 13)}
	requireKinds(t, check(t, log...))
	requireKinds(t, check(t, append(log, of(stock, 32, 12))...), audit.LeaderLockNotHeld)
}

// TestLeaderLockHole: whether the leader lock was free is not known if the write before is not
// logged.
func TestLeaderLockHole(t *testing.T) {
	report := check(t, waits(a, lockName), lock(stock, 4, 1), asking(lock(lockHolder, 30, 2), 25), lease(lower, a, 1, 40, 3))
	requireKinds(t, report)
	requireDoubts(t, report, audit.LeaseHole)
}

// TestCollectionOfLeases deletes all Leases of the namespace in one request.
func TestCollectionOfLeases(t *testing.T) {
	all := func(second float64, names ...string) line {
		var items []any
		for _, name := range names {
			items = append(items, map[string]any{"metadata": map[string]any{"name": name}})
		}
		return request("deletecollection", user, "coordination.k8s.io", "leases", "kube-system", "", second).
			with("responseObject", map[string]any{"kind": "LeaseList", "items": items})
	}
	const ours = fleetName + "-namespaces-00"
	requireKinds(t, check(t, append(handoff(lower), all(8, ours))...), audit.LeaseDeleted)
	requireKinds(t, check(t, append(handoff(lower), all(8, ours).code(403))...))
	requireKinds(t, check(t, append(handoff(lower), all(8, "kube-scheduler"))...))
	report := check(t, append(handoff(lower), all(8).code(504))...)
	requireKinds(t, report)
	requireDoubts(t, report, audit.LeaseUnanswered)
	requireKinds(t, check(t, waits(a, lockName), lease(lower, a, 1, 10, 10), lease(lower, a, 1, 50, 15), lock(lockHolder, 6, 1), lock(lockHolder, 30, 12), all(20, lockName),
		lock(lockHolder, 40, 21).with("verb", "create"), write(a, lower, 1, low, 35, 20.5)), audit.LeaderLockNotHeld)
}

// asking returns a write of the leader lock with its request, made on a version.
func asking(l line, based int) line {
	metadata := map[string]any{"name": lockName, "resourceVersion": fmt.Sprint(based)}
	spec := map[string]any{"holderIdentity": lockHolder, "leaseTransitions": 1, "leaseDurationSeconds": leaseTime, "renewTime": fmt.Sprintf("2026-07-01T12:00:%02d.000000Z", based)}
	return l.with("requestObject", map[string]any{"kind": "Lease", "metadata": metadata, "spec": spec})
}

// elsewhere returns the same Lease in another namespace.
func elsewhere(l line) line {
	return l.with("objectRef", map[string]any{"apiGroup": "coordination.k8s.io", "resource": "leases", "namespace": "other", "name": lockName})
}

// TestLeaderLockInFlight: the report lists what was on the wire when the leader lock was taken.
func TestLeaderLockInFlight(t *testing.T) {
	report := check(t, waits(a, lockName), lock(lockHolder, 6, 1), lease(lower, a, 1, 10, 10), write(a, lower, 1, low, 35, 13),
		lock(stock, 40, 20), write(a, lower, 1, low, 45, 20.5).arrived(19.9), lease(lower, a, 1, 50, 15))
	requireKinds(t, report)
	if len(report.InFlight) != 1 || report.InFlight[0].Ended != 40 || report.AgainstLeaderLock != 2 {
		t.Errorf("in flight %+v, %d against the leader lock, want one when version 40 ended the hold, and 2", report.InFlight, report.AgainstLeaderLock)
	}
}
