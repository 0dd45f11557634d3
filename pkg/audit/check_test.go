package audit_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/flotilla-kube/flotilla/pkg/audit"
	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// handoff returns the writes of a Lease that member a holds in term 1 and releases, and member b
// holds in term 2.
func handoff(id string) []line {
	return []line{
		lease(id, a, 1, 10, 0), lease(id, a, 1, 20, 2), lease(id, "", 1, 30, 4),
		lease(id, b, 2, 40, 5), lease(id, b, 2, 50, 7),
	}
}

func TestNamespacesOfTheTest(t *testing.T) {
	p := plan(t)
	for namespace, want := range map[string]string{low: lower, high: upper} {
		if s, _ := p.ShardFor("namespaces", namespace); s.ID.String() != want {
			t.Errorf("%s is in %s, want %s", namespace, s.ID, want)
		}
	}
}

// TestVerdict plants a few writes into a handoff.
func TestVerdict(t *testing.T) {
	reviews := request("create", agent(a, lower, 1), "authorization.k8s.io", "subjectaccessreviews", "", "", 1)
	volume := request("patch", agent(a, lower, 1), "", "persistentvolumes", "", "pv", 1)
	node := request("patch", agent(a, lower, 1), "", "nodes", "", "node-000", 1)
	finalize := func(name string) line {
		return request("update", agent(a, lower, 1), "", "namespaces/finalize", name, name, 1)
	}
	tests := map[string]struct {
		lines []line
		want  []audit.Kind
	}{
		"nothing":                       {},
		"holder":                        {lines: []line{write(a, lower, 1, low, 15, 1)}},
		"holder, no version":            {lines: []line{write(a, lower, 1, low, 0, 1)}},
		"successor":                     {lines: []line{write(b, lower, 2, low, 45, 6)}},
		"not the holder":                {lines: []line{write(b, lower, 1, low, 15, 1)}, want: []audit.Kind{audit.NotHolder}},
		"another term":                  {lines: []line{write(a, lower, 2, low, 15, 1)}, want: []audit.Kind{audit.NotHolder}},
		"closed fence":                  {lines: []line{write(a, lower, 0, low, 15, 1)}, want: []audit.Kind{audit.NotHolder}},
		"after the release":             {lines: []line{write(a, lower, 1, low, 35, 4.5)}, want: []audit.Kind{audit.NotHolder}},
		"after the release, no version": {lines: []line{write(a, lower, 1, low, 0, 4.5)}, want: []audit.Kind{audit.NotHolder}},
		"after the handoff":             {lines: []line{write(a, lower, 1, low, 45, 6)}, want: []audit.Kind{audit.NotHolder}},
		// The write was already on the wire; see TestInFlight.
		"at the moment of the release":             {lines: []line{write(a, lower, 1, low, 31, 4.001)}},
		"at the moment of the release, no version": {lines: []line{write(a, lower, 1, low, 0, 4.001)}},
		"logged before its Lease":                  {lines: []line{write(a, lower, 1, low, 35, 3)}, want: []audit.Kind{audit.NotHolder}},
		"changes nothing":                          {lines: []line{write(b, lower, 2, low, 15, 6)}},
		"too early and changes nothing":            {lines: []line{write(b, lower, 2, low, 15, 3)}, want: []audit.Kind{audit.NotHolder}},
		"refused":                                  {lines: []line{write(b, lower, 1, low, 0, 1).code(409)}},
		"failed":                                   {lines: []line{write(b, lower, 1, low, 0, 1).code(500)}, want: []audit.Kind{audit.NotHolder}},
		"wrong range":                              {lines: []line{write(a, lower, 1, high, 15, 1)}, want: []audit.Kind{audit.WrongRange}},
		"wrong range, refused":                     {lines: []line{write(a, lower, 1, high, 0, 1).code(404)}, want: []audit.Kind{audit.WrongRange}},
		"wrong range and holder": {
			lines: []line{write(b, lower, 1, high, 15, 1)}, want: []audit.Kind{audit.WrongRange, audit.NotHolder},
		},
		"unknown shard":        {lines: []line{write(a, "namespaces/07", 1, low, 15, 1)}, want: []audit.Kind{audit.UnknownShard}},
		"own namespace":        {lines: []line{finalize(low)}},
		"another's namespace":  {lines: []line{finalize(high)}, want: []audit.Kind{audit.WrongRange}},
		"volume":               {lines: []line{volume}},
		"node":                 {lines: []line{node}, want: []audit.Kind{audit.WrongScope}},
		"review":               {lines: []line{reviews}},
		"event":                {lines: []line{request("create", agent(a, lower, 1), "", "events", high, "e", 6)}},
		"read":                 {lines: []line{write(b, lower, 1, high, 15, 1).with("verb", "get")}},
		"request not answered": {lines: []line{write(b, lower, 1, high, 15, 1).with("stage", "RequestReceived")}},
		"user's":               {lines: []line{write(b, lower, 1, high, 15, 1).with("userAgent", "kubectl/v1.37.1")}},
		"cut off user agent": {
			lines: []line{write(a, lower, 1, low, 15, 1).with("userAgent", client+" flotilla (member=flotilla-0...TRUNCATED")},
			want:  []audit.Kind{audit.BadAgent},
		},
		"unfenced":          {lines: []line{write(a, lower, 1, low, 15, 1).with("userAgent", client)}, want: []audit.Kind{audit.Unfenced}},
		"fleet's own event": {lines: []line{request("create", client, "", "events", low, "e", 1)}},
		"fleet's own token": {lines: []line{request("create", client, "", "serviceaccounts/token", low, "deployment-controller", 1)}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			// They come first in the log, because the order must not matter.
			report := check(t, append(test.lines, handoff(lower)...)...)
			requireKinds(t, report, test.want...)
		})
	}
}

func TestClusterShard(t *testing.T) {
	log := handoff(nodes)
	write := func(member string, term int, namespace string, version int, second float64) line {
		return write(member, nodes, term, namespace, version, second)
	}
	requireKinds(t, check(t, append(log, write(a, 1, low, 15, 1), write(a, 1, high, 16, 1), write(b, 2, "", 45, 6))...))
	requireKinds(t, check(t, append(log, write(b, 2, "", 15, 1))...), audit.NotHolder)
	if report := check(t, append(log, write(a, 1, low, 15, 1))...); len(report.Namespaces) != 0 {
		t.Errorf("namespaces %v, want none: a cluster shard has no part in them", report.Namespaces)
	}
}

func TestLeases(t *testing.T) {
	remove := lease(lower, "", 1, 30, 3).with("verb", "delete").with("responseObject", map[string]any{"kind": "Status"})
	retired := lease(lower, "", 1, 22, 2).notes(map[string]string{leaserecord.RetiredAnnotation: "2"})
	late := lease(lower, "", 1, 22, 3.2).notes(map[string]string{leaserecord.RetiredAnnotation: "2"})
	unanswered := retired.on(20).code(504)
	removeAt := func(version string) line {
		return remove.with("requestObject", map[string]any{"kind": "DeleteOptions", "preconditions": map[string]any{"resourceVersion": version}})
	}
	tests := map[string]struct {
		log  []line
		want []audit.Kind
	}{
		"handoff":             {log: handoff(lower)},
		"order does not tell": {log: []line{handoff(lower)[3], handoff(lower)[1], handoff(lower)[0], handoff(lower)[2]}},
		"ran out":             {log: []line{lease(lower, a, 1, 10, 0), lease(lower, b, 2, 20, 6.01)}},
		"taken early":         {log: []line{lease(lower, a, 1, 10, 0), lease(lower, b, 2, 20, 5.9)}, want: []audit.Kind{audit.TakenEarly}},
		"taken after a renewal": {
			log:  []line{lease(lower, a, 1, 10, 0), lease(lower, a, 1, 20, 5), lease(lower, b, 2, 30, 6.1)},
			want: []audit.Kind{audit.TakenEarly},
		},
		// A rival asks for the Lease of a dead holder, and waits until it expires.
		"asked for, then ran out": {log: []line{lease(lower, a, 1, 10, 0), asked(lease(lower, a, 1, 10, 0), 20, 4), lease(lower, b, 2, 30, 6.01)}},
		"asked for, taken early": {
			log:  []line{lease(lower, a, 1, 10, 0), asked(lease(lower, a, 1, 10, 0), 20, 4), lease(lower, b, 2, 30, 5.9)},
			want: []audit.Kind{audit.TakenEarly},
		},
		"same term": {log: []line{lease(lower, a, 1, 10, 0), lease(lower, "", 1, 20, 1), lease(lower, b, 1, 30, 2)}, want: []audit.Kind{audit.TermReused}},
		// Two holders overwrite each other.
		"two holders": {
			log: []line{lease(lower, a, 1, 10, 0), lease(lower, b, 2, 20, 1), lease(lower, a, 1, 30, 2), lease(lower, b, 2, 40, 3)},
			want: []audit.Kind{
				audit.TakenEarly, audit.TermReused, audit.TakenEarly, audit.Overlapping, audit.TermReused, audit.TakenEarly, audit.Overlapping,
			},
		},
		"taken again by itself": {log: []line{lease(lower, a, 1, 10, 0), lease(lower, a, 2, 20, 1)}},
		"deleted":               {log: []line{lease(lower, a, 1, 10, 0), remove}, want: []audit.Kind{audit.LeaseDeleted}},
		"retired, deleted": {
			log: []line{lease(lower, a, 1, 10, 0), lease(lower, "", 1, 20, 1), retired, remove, lease(lower, b, 1, 40, 30)},
		},
		// The garbage collector sees a write before its writer gets the answer.
		"retired, deleted before the answer": {
			log: []line{lease(lower, a, 1, 10, 0), lease(lower, "", 1, 20, 1), remove, late.arrived(2.9), lease(lower, b, 1, 40, 30)},
		},
		"deleted, retired after that": {
			log:  []line{lease(lower, a, 1, 10, 0), lease(lower, "", 1, 20, 1), remove, late.arrived(3.1)},
			want: []audit.Kind{audit.LeaseDeleted},
		},
		"retired, taken all the same, deleted": {
			log:  []line{lease(lower, a, 1, 10, 0), lease(lower, "", 1, 20, 1), retired, lease(lower, b, 2, 25, 2.5), remove},
			want: []audit.Kind{audit.LeaseDeleted},
		},
		"perhaps retired, deleted": {
			log: []line{lease(lower, a, 1, 10, 0), lease(lower, "", 1, 20, 1), unanswered, remove, lease(lower, b, 1, 40, 30)},
		},
		"perhaps retired, deleted by version": {
			log: []line{lease(lower, a, 1, 10, 0), lease(lower, "", 1, 20, 1), unanswered, removeAt("22"), lease(lower, b, 1, 40, 30)},
		},
		"not retired after all, deleted": {
			log:  []line{lease(lower, a, 1, 10, 0), lease(lower, "", 1, 20, 1), unanswered, removeAt("20")},
			want: []audit.Kind{audit.LeaseDeleted},
		},
		"perhaps retired, taken all the same, deleted": {
			log:  []line{lease(lower, a, 1, 10, 0), lease(lower, "", 1, 20, 1), unanswered, lease(lower, b, 2, 25, 2.5), remove},
			want: []audit.Kind{audit.LeaseDeleted},
		},
		"refused":                {log: []line{lease(lower, a, 1, 10, 0), lease(lower, b, 1, 20, 1).code(409)}},
		"outcome is not known":   {log: []line{lease(lower, a, 1, 10, 0), lease(lower, b, 1, 20, 1).code(504)}},
		"update without changes": {log: []line{lease(lower, a, 1, 10, 0), lease(lower, a, 1, 10, 9)}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			requireKinds(t, check(t, test.log...), test.want...)
		})
	}
}

// asked returns a Lease on which a rival has left a request. Only its spec is unchanged.
func asked(l line, version int, second float64) line {
	answer := jsonObject(l["responseObject"].(map[string]any)).set("metadata", "resourceVersion", fmt.Sprint(version)).
		set("metadata", "annotations", map[string]any{"flotilla.dev/next-holder": b})
	at := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC).Add(time.Duration(second * float64(time.Second)))
	return l.with("responseObject", map[string]any(answer)).with("stageTimestamp", at.Format("2006-01-02T15:04:05.000000Z")).arrived(second - 0.002)
}

// TestAskedFor checks that the age of a Lease counts from its last renewal, not from what a rival
// wrote on it.
func TestAskedFor(t *testing.T) {
	log := []line{lease(lower, a, 1, 10, 0), asked(lease(lower, a, 1, 10, 0), 20, 4), write(a, lower, 1, low, 21, 8), lease(lower, b, 2, 30, 9)}
	report := check(t, log...)
	requireKinds(t, report)
	_, expired := report.Gaps()
	if diff := cmp.Diff([]time.Duration{9 * time.Second}, expired); diff != "" || report.Late != 1 {
		t.Errorf("%d late, want 1; gaps (-want +got):\n%s", report.Late, diff)
	}
	for id, u := range report.Unowned() {
		if id.String() == lower && u.WorstUnplanned != 9*time.Second {
			t.Errorf("worst unplanned is %v, want 9s", u.WorstUnplanned)
		}
	}
}

func TestReport(t *testing.T) {
	lines := append(handoff(lower),
		lease(upper, a, 1, 11, 0),
		write(a, lower, 1, low, 15, 1), write(a, lower, 1, low, 0, 2),
		write(b, lower, 2, low, 45, 6),
		write(a, upper, 1, high, 16, 7), // More than the 6 s of the Lease after its only write.
		write(a, upper, 1, high, 0, 8).code(409),
		request("create", agent(a, upper, 1), "", "events", high, "e", 6),
		request("create", agent(a, upper, 1), "authentication.k8s.io", "tokenreviews", "", "", 6),
		lease(upper, a, 1, 60, 9).code(500),
	)
	report := check(t, lines...)
	requireKinds(t, report)
	id := func(s string) shard.ID { id, _ := shard.ParseID(s); return id }
	want := audit.Counts{
		Lines: 14, ByVersion: 3, ByTime: 1, Late: 1, Refused: 1, Events: 1, StoreNothing: 1, FleetOwn: 7, LeaseUnknown: 1,
	}
	if diff := cmp.Diff(want, report.Counts); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
	wantWrites := map[shard.ID]map[string]int{id(lower): {a: 2, b: 1}, id(upper): {a: 1}}
	if diff := cmp.Diff(wantWrites, report.Writes); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
	var terms []string
	for _, term := range report.Namespaces[low] {
		terms = append(terms, term.String())
	}
	if diff := cmp.Diff([]string{a + " for namespaces/00, term 1", b + " for namespaces/00, term 2"}, terms); diff != "" {
		t.Errorf("who wrote in %s (-want +got):\n%s", low, diff)
	}
	if first := report.Namespaces[low][0]; first.Writes != 2 || first.Last.Sub(first.First) != time.Second {
		t.Errorf("first term is %+v, want 2 writes within a second", first)
	}
	if diff := cmp.Diff([]string{"another"}, report.Unwritten([]string{low, "another", high})); diff != "" {
		t.Errorf("unwritten (-want +got):\n%s", diff)
	}
	released, expired := report.Gaps()
	if diff := cmp.Diff([]time.Duration{time.Second}, released); diff != "" || len(expired) != 0 {
		t.Errorf("gaps after a release (-want +got), and after expiry %v, want none:\n%s", expired, diff)
	}
}

// TestLate checks that lateness counts from the last renewal before the request, whatever version
// the answer has.
func TestLate(t *testing.T) {
	log := []line{lease(lower, a, 1, 10, 0), lease(lower, a, 1, 20, 5), lease(lower, a, 1, 30, 20)}
	for second, want := range map[float64]int{9: 0, 10.9: 0, 11.1: 1, 19: 1, 21: 0} {
		report := check(t, append(log, write(a, lower, 1, low, 15, second))...)
		requireKinds(t, report)
		if report.Late != want {
			t.Errorf("at %v s: %d late, want %d", second, report.Late, want)
		}
	}
}

func TestViolationNamesItsLine(t *testing.T) {
	err := check(t, append(handoff(lower), write(b, lower, 1, low, 15, 1))...).Err()
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"1 violations", "line 6", "audit ID id-web", "update /replicasets/web", "not the holder", b, "12:00:01"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q does not have %q", err, want)
		}
	}
}

func TestIncompleteLog(t *testing.T) {
	log := logOf(t, append(handoff(lower), write(b, lower, 1, low, 15, 1))...)
	report, err := audit.Judge(options(plan(t)), reading(log[:len(log)-10]))
	if err != nil || !report.Cut || report.Lines != 5 {
		t.Errorf("cut log: %d lines, cut %t, %v, want 5 lines, cut", report.Lines, report.Cut, err)
	}
	if _, err := audit.Judge(options(plan(t)), reading("\nno JSON\n")); err == nil || !strings.Contains(err.Error(), "line 2") {
		t.Errorf("garbage: %v, want an error that names line 2", err)
	}
	withoutObject := lease(lower, a, 1, 10, 0).with("responseObject", nil)
	if _, err := audit.Judge(options(plan(t)), reading(logOf(t, withoutObject))); err == nil {
		t.Error("a log without the Leases' objects was accepted")
	}
	if _, err := audit.Judge(options(shard.Plan{}), reading("")); err == nil {
		t.Error("an empty plan was accepted")
	}
}

func requireKinds(t *testing.T, report audit.Report, want ...audit.Kind) {
	t.Helper()
	if diff := cmp.Diff(want, kindsOf(report.Violations)); diff != "" {
		t.Errorf("violations (-want +got):\n%s\n%v", diff, report.Violations)
	}
}

func requireDoubts(t *testing.T, report audit.Report, want ...audit.Kind) {
	t.Helper()
	if diff := cmp.Diff(want, kindsOf(report.Undecided)); diff != "" {
		t.Errorf("undecided (-want +got):\n%s\n%v", diff, report.Undecided)
	}
}

func kindsOf(all []audit.Violation) (kinds []audit.Kind) {
	for _, v := range all {
		kinds = append(kinds, v.Kind)
	}
	return kinds
}
