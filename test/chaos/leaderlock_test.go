package main

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/flotilla-kube/flotilla/pkg/audit"
	"github.com/flotilla-kube/flotilla/pkg/shard"
	"github.com/flotilla-kube/flotilla/test/calibrate"
	"github.com/flotilla-kube/flotilla/test/harness"
)

const leaderLockHolder = "flotilla_fleet"

// leaderLockLine returns a write of the leader lock's Lease, which its holder acquired this long
// after the epoch.
func leaderLockLine(t *testing.T, after time.Duration, version int, holder string, term int, acquired time.Duration) *harness.Event {
	t.Helper()
	stamp := func(d time.Duration) string { return epoch.Add(d).Format("2006-01-02T15:04:05.000000Z") }
	return line(t, after, "update", "leases", "kube-system", stockName, "", "flotilla/v1", fmt.Sprintf(
		`{"metadata":{"resourceVersion":"%d"},"spec":{"holderIdentity":%q,"leaseTransitions":%d,"acquireTime":%q,"renewTime":%q}}`,
		version, holder, term, stamp(acquired), stamp(after)))
}

func leaderLockDeletion(t *testing.T, after time.Duration) *harness.Event {
	t.Helper()
	return line(t, after, "delete", "leases", "kube-system", stockName, "", "chaos", `{"kind":"Status"}`)
}

// TestJournalOfLeaderLock covers the fleet's term, a forgery, and a deletion that is logged after
// the write that answers it.
func TestJournalOfLeaderLock(t *testing.T) {
	j := newJournal(map[string]shard.ID{testLease: testShard}, stockName)
	for _, e := range []*harness.Event{
		leaderLockLine(t, 0, 10, leaderLockHolder, 1, 0),
		leaderLockLine(t, 1*time.Second, 12, leaderLockHolder, 1, 0),
		leaderLockLine(t, 900*time.Millisecond, 11, leaderLockHolder, 1, 0), // logged late
		leaderLockLine(t, 2*time.Second, 13, forgedHolder, 1, 0),
		leaderLockLine(t, 8*time.Second, 14, leaderLockHolder, 2, 8*time.Second),
		leaderLockDeletion(t, 9*time.Second),
		leaderLockLine(t, 10*time.Second, 15, leaderLockHolder, 2, 8*time.Second),
		leaderLockDeletion(t, 9900*time.Millisecond),
		leaderLockLine(t, 11*time.Second, 16, leaderLockHolder, 2, 11*time.Second),
	} {
		j.add(e)
	}
	var got []string
	for _, c := range j.leaderLockChangesSince(epoch.Add(time.Second)) {
		got = append(got, fmt.Sprintf("%s %d>%s %d", c.from.holder, c.from.transitions, c.to.holder, c.to.transitions))
	}
	want := []string{
		"flotilla_fleet 1>" + forgedHolder + " 1",
		forgedHolder + " 1>flotilla_fleet 2",
		"flotilla_fleet 2> 0",
		" 0>flotilla_fleet 2",
		"flotilla_fleet 2>flotilla_fleet 2", // another term of the same number
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if now := j.leaderLockNow(); now.holder != leaderLockHolder || !now.renewed.Equal(epoch.Add(11*time.Second)) {
		t.Errorf("now %+v", now)
	}
	if len(j.changesSince(epoch)) > 0 || len(j.snapshot()) > 0 {
		t.Error("the leader lock counts as a shard's Lease")
	}
}

// TestRoundWantsLeaderLockKept checks that faults of something else leave the leader lock alone,
// and that renewals are no change.
func TestRoundWantsLeaderLockKept(t *testing.T) {
	for name, test := range map[string]struct {
		log  []*harness.Event
		e    expectation
		want string // in the error
	}{
		"renewed":             {log: []*harness.Event{leaderLockLine(t, 2*time.Second, 11, leaderLockHolder, 1, 0)}},
		"released":            {log: []*harness.Event{leaderLockLine(t, 2*time.Second, 11, "", 1, 0)}, want: `the leader lock went from "flotilla_fleet" (term 1) to "" (term 1)`},
		"another term":        {log: []*harness.Event{leaderLockLine(t, 2*time.Second, 11, leaderLockHolder, 2, 2*time.Second)}, want: `to "flotilla_fleet" (term 2)`},
		"the fault is for it": {log: []*harness.Event{leaderLockLine(t, 2*time.Second, 11, "", 1, 0)}, e: expectation{leaderLockMoves: true}},
		"everyone was hit":    {log: []*harness.Event{leaderLockLine(t, 2*time.Second, 11, "", 1, 0)}, e: expectation{everyone: true}},
	} {
		t.Run(name, func(t *testing.T) {
			env := &environment{journal: newJournal(nil, stockName)}
			env.journal.add(leaderLockLine(t, 0, 10, leaderLockHolder, 1, 0))
			for _, e := range test.log {
				env.journal.add(e)
			}
			err := (&round{env: env}).leaderLock(test.e, epoch.Add(time.Second))
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

// TestLeaderLockFaultsJudge covers the possible outcomes for a cleared and for a forged leader
// lock.
func TestLeaderLockFaultsJudge(t *testing.T) {
	timing := testOptions(t).timing
	forged := func(t *testing.T) *harness.Event { return leaderLockLine(t, 1*time.Second, 11, forgedHolder, 1, 0) }
	cleared := func(t *testing.T) *harness.Event { return leaderLockLine(t, 1*time.Second, 11, "", 1, 0) }
	write := func(t *testing.T, after time.Duration) *harness.Event {
		return line(t, after, "update", "replicasets", "a", "b", "", "flotilla/v1 flotilla (member=m_1; shard=namespaces/00; term=1)", `{}`)
	}
	late := time.Second + timing.LeaseDuration + time.Millisecond
	tooLate := late + restartPause + calibrate.Takeover
	for name, test := range map[string]struct {
		log   []*harness.Event
		taken bool
		want  string
	}{
		"cleared, written again":   {log: []*harness.Event{cleared(t), leaderLockLine(t, 1400*time.Millisecond, 12, leaderLockHolder, 1, 0)}},
		"cleared, written late":    {log: []*harness.Event{cleared(t), leaderLockLine(t, 2*time.Second, 12, leaderLockHolder, 1, 0)}, want: "must be at most 500ms"},
		"cleared, a new term":      {log: []*harness.Event{cleared(t), leaderLockLine(t, 2*time.Second, 12, leaderLockHolder, 2, 2*time.Second)}, want: "must be back in term 1"},
		"cleared, somebody else's": {log: []*harness.Event{cleared(t), leaderLockLine(t, 2*time.Second, 12, "cp-1_1", 2, 2*time.Second)}, want: `the leader lock went to "cp-1_1"`},
		"nothing":                  {want: "no change"},
		"forged, taken":            {taken: true, log: []*harness.Event{forged(t), write(t, 1500*time.Millisecond), leaderLockLine(t, late, 12, leaderLockHolder, 2, late)}},
		"forged, taken late":       {taken: true, log: []*harness.Event{forged(t), leaderLockLine(t, tooLate, 12, leaderLockHolder, 2, tooLate)}, want: "must be at most 8s"},
		"forged, taken early":      {taken: true, log: []*harness.Event{forged(t), leaderLockLine(t, 4*time.Second, 12, leaderLockHolder, 2, 4*time.Second)}, want: "must be 6s or later"},
		"forged, the old term":     {taken: true, log: []*harness.Event{forged(t), leaderLockLine(t, late, 12, leaderLockHolder, 1, 0)}, want: "must be the fleet's, above term 1"},
		"forged, not taken":        {taken: true, log: []*harness.Event{forged(t)}, want: "must be the fleet's"},
		"forged, written under":    {taken: true, log: []*harness.Event{forged(t), write(t, 6*time.Second), leaderLockLine(t, late, 12, leaderLockHolder, 2, late)}, want: "1 writes of members arrived"},
	} {
		t.Run(name, func(t *testing.T) {
			env := &environment{opts: testOptions(t), out: newPrinter(io.Discard), journal: newJournal(nil, stockName)}
			env.journal.add(leaderLockLine(t, 0, 10, leaderLockHolder, 1, 0))
			f := &leaderLockFault{env: env, taken: test.taken, before: env.journal.leaderLockNow(), began: epoch.Add(time.Second)}
			for _, e := range test.log {
				env.journal.add(e)
			}
			verify := f.verifyKept
			if test.taken {
				verify = f.verifyTaken
			}
			err := verify(t.Context())
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

func testOptions(t *testing.T, args ...string) options {
	t.Helper()
	o, err := parseFlags(args, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// TestLeaderLockOfOptions checks that a fleet has the default leader lock unless its flags say
// otherwise.
func TestLeaderLockOfOptions(t *testing.T) {
	for flags, want := range map[string]string{
		"":                                 stockName,
		"--leader-lock=none":               "",
		"--leader-elect=false":             "",
		"--leader-lock=other":              "other",
		"--v=4 --leader-lock=none":         "",
		"--leader-elect=true":              stockName,
		"--leader-elect-resource-name=kcm": "kcm",
	} {
		if got := testOptions(t, "-replica-flags", flags).leaderLock(); got != want {
			t.Errorf("%s: %q, want %q", flags, got, want)
		}
	}
	if got := testOptions(t, "-target", "stock").leaderLock(); got != "" {
		t.Errorf("stock has leader lock %q", got)
	}
}

func TestLeaderLockTamperingExcusesWritesWithoutLeaderLockOnly(t *testing.T) {
	tampered := tampering{lease: stockName, from: epoch, to: epoch.Add(time.Minute)}
	for name, test := range map[string]struct {
		v    audit.Violation
		want bool
	}{
		"a write":      {audit.Violation{Kind: audit.LeaderLockNotHeld, Time: epoch.Add(time.Second)}, true},
		"too late":     {audit.Violation{Kind: audit.LeaderLockNotHeld, Time: epoch.Add(time.Hour)}, false},
		"another rule": {audit.Violation{Kind: audit.NotHolder, Time: epoch.Add(time.Second)}, false},
		"taken early":  {audit.Violation{Kind: audit.TakenEarly, URI: "/" + stockName, Time: epoch.Add(time.Second)}, false},
	} {
		if got := tampered.excuses(test.v); got != test.want {
			t.Errorf("%s: excused %t, want %t", name, got, test.want)
		}
	}
	shards := tampering{lease: testLease, shard: testShard, from: epoch, to: epoch.Add(time.Minute)}
	if shards.excuses(audit.Violation{Kind: audit.LeaderLockNotHeld, Detail: testShard.String(), Time: epoch}) {
		t.Error("a shard's Lease excuses what the leader lock forbids")
	}
}
