package audit_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/flotilla-kube/flotilla/pkg/audit"
	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

const (
	nextA  = "flotilla-0_nnn" // The incarnation after a.
	forged = "forged_000"
)

// sentBy returns the line with another sender: a member, or kubectl.
func (l line) sentBy(sender string) line {
	if sender == user {
		return l.with("userAgent", user)
	}
	return l.with("userAgent", client+"/fleet-member/"+sender)
}

// ofMember returns a write of a member's Lease, with its holder, the holder's last renewal, and who
// has ended.
func ofMember(sender, name, holder string, renewed float64, version int, second float64, ended ...string) line {
	l := lease("member/"+name, holder, 1, version, renewed)
	answer := jsonObject(l["responseObject"].(map[string]any))
	at := request("update", "", "", "leases", "", "", second)
	l = l.with("requestReceivedTimestamp", at["requestReceivedTimestamp"]).with("stageTimestamp", at["stageTimestamp"])
	l = l.with("responseObject", map[string]any(answer)).notes(map[string]string{"flotilla.dev/protocol": "2"}).sentBy(sender)
	if len(ended) > 0 {
		l = l.notes(map[string]string{"flotilla.dev/ended": strings.Join(ended, ",")})
	}
	return l
}

// beats returns a heartbeat.
func beats(incarnation string, version int, second float64, ended ...string) line {
	own := leaserecord.MemberOf(incarnation)
	return ofMember(own, own, incarnation, second, version, second, ended...)
}

// ends returns a write that lists an incarnation, last renewed at second renewed, as ended, and
// names no holder: a strike, or its own release.
func ends(sender, incarnation string, renewed float64, version int, second float64) line {
	return ofMember(sender, leaserecord.MemberOf(incarnation), "", renewed, version, second, incarnation)
}

// release returns a release of a shard's Lease.
func release(id string, term, version int, second float64) line {
	return lease(id, "", term, version, second).notes(map[string]string{"flotilla.dev/released": fmt.Sprint(term)}).sentBy("flotilla-0")
}

func created(l line) line { return l.with("verb", "create") }

// takeover returns a scene in which member a holds a shard and dies after its heartbeat at second
// 4. Member b strikes it at 10.1 and takes the shard at 10.2. The next incarnation of a starts at
// 13.
func takeover() map[string]line {
	return map[string]line{
		"a 0":    created(beats(a, 5, 0)),
		"b 0":    created(beats(b, 6, 0)),
		"held":   lease(lower, a, 1, 10, 0.5),
		"a 2":    beats(a, 12, 2),
		"b 2":    beats(b, 13, 2),
		"a 4":    beats(a, 14, 4),
		"b 4":    beats(b, 15, 4),
		"b 6":    beats(b, 22, 6),
		"b 8":    beats(b, 26, 8),
		"b 10":   beats(b, 29, 10),
		"strike": ends("flotilla-1", a, 4, 30, 10.1),
		"taken":  lease(lower, b, 2, 40, 10.2),
		"b 12":   beats(b, 44, 12),
		"write":  write(b, lower, 2, low, 45, 12.5),
		"next":   beats(nextA, 50, 13, a),
		"next 2": beats(nextA, 60, 15),
	}
}

// judged is a fault to plant into a scene, and the expected verdict.
type judged struct {
	plant func(s map[string]line)
	want  []audit.Kind
	doubt []audit.Kind
	// overlaps counts overlaps of terms.
	overlaps int
}

func (j judged) check(t *testing.T, scene map[string]line) audit.Report {
	t.Helper()
	if j.plant != nil {
		j.plant(scene)
	}
	report := check(t, linesOf(scene)...)
	for what, kinds := range map[string][2][]audit.Kind{
		"violations": {j.want, kindsOf(report.Violations)}, "undecided": {j.doubt, kindsOf(report.Undecided)},
	} {
		slices.Sort(kinds[1])
		if want := slices.Sorted(slices.Values(kinds[0])); !slices.Equal(want, kinds[1]) {
			t.Errorf("%s: %q, want %q: %v, %v", what, kinds[1], want, report.Violations, report.Undecided)
		}
	}
	return report
}

// TestMembersAreNotRead has a log without the content of members' Leases: nothing shows who had
// ended, so nobody is acquitted.
func TestMembersAreNotRead(t *testing.T) {
	scene := takeover()
	for name, l := range scene {
		if name != "held" && name != "taken" && name != "write" {
			delete(l, "requestObject")
			delete(l, "responseObject")
		}
	}
	judged{doubt: []audit.Kind{audit.EndUnknown, audit.EndUnknown, audit.EndUnknown}}.check(t, scene)
}

// TestWriterEnded plants a write of member a at some time, while it dies and is struck.
func TestWriterEnded(t *testing.T) {
	for name, test := range map[string]struct {
		write        line
		want         []audit.Kind
		doubt        []audit.Kind
		late, flying int
	}{
		"while it lives":              {write: write(a, lower, 1, low, 16, 4.1)},
		"after its last heartbeat":    {write: write(a, lower, 1, low, 28, 9.9)},
		"after its time":              {write: write(a, lower, 1, low, 29, 10.05), late: 1},
		"after its time, no version":  {write: write(a, lower, 1, low, 0, 10.05), late: 1},
		"after the strike":            {write: write(a, lower, 1, low, 32, 10.15), want: []audit.Kind{audit.WriterEnded}},
		"after it, no version":        {write: write(a, lower, 1, low, 0, 10.15), want: []audit.Kind{audit.WriterEnded}},
		"under way at the strike":     {write: write(a, lower, 1, low, 32, 10.15).arrived(9.9), flying: 1},
		"sent too late for it":        {write: write(a, lower, 1, low, 32, 10.15).arrived(10.05), flying: 1, doubt: []audit.Kind{audit.LateFlight}},
		"under way, no version":       {write: write(a, lower, 1, low, 0, 10.15).arrived(9.9), flying: 1},
		"under way until it is taken": {write: write(a, lower, 1, low, 42, 10.3).arrived(9.9), flying: 1},
		"after it is taken":           {write: write(a, lower, 1, low, 42, 10.3), want: []audit.Kind{audit.NotHolder}},
		"after that, no version":      {write: write(a, lower, 1, low, 0, 10.3), want: []audit.Kind{audit.NotHolder}},
		"refused":                     {write: write(a, lower, 1, low, 0, 10.15).code(403)},
	} {
		t.Run(name, func(t *testing.T) {
			scene := takeover()
			scene["x"] = test.write
			report := judged{want: test.want, doubt: test.doubt}.check(t, scene)
			if report.Late != test.late || len(report.InFlight) != test.flying {
				t.Errorf("%d late, in flight %v, want %d and %d", report.Late, report.InFlight, test.late, test.flying)
			}
			for _, f := range report.InFlight {
				if f.Ended != 30 || f.Released {
					t.Errorf("in flight: %+v, want that the strike at version 30 ended the term", f)
				}
			}
			if refused := name == "refused"; refused != (report.DeniedLate[403] == 1) {
				t.Errorf("denied late: %v", report.DeniedLate)
			}
		})
	}
}

// TestTaken: member b takes the shard, with and without the right to do so.
func TestTaken(t *testing.T) {
	hole, notEnded, early := []audit.Kind{audit.EndUnknown}, []audit.Kind{audit.HolderNotEnded}, []audit.Kind{audit.TakenEarly}
	emptied := lease(lower, "", 1, 20, 5).sentBy(user)
	soon, later := lease(lower, b, 2, 24, 6.5), lease(lower, b, 2, 42, 11.1)
	tests := map[string]judged{
		"after the strike": {},
		"without one":      {plant: func(s map[string]line) { delete(s, "strike") }, want: notEnded},
		"before it":        {plant: func(s map[string]line) { s["strike"] = ends("flotilla-1", a, 4, 41, 10.1) }, want: notEnded},
		"from a live holder": {plant: func(s map[string]line) {
			delete(s, "strike")
			s["a 6"], s["a 8"], s["a 10"], s["a 12"] = beats(a, 21, 6), beats(a, 25, 8), beats(a, 28, 10), beats(a, 43, 12)
			s["next"] = beats(nextA, 90, 18.1, a)
			s["next 2"] = beats(nextA, 91, 20)
		}, want: notEnded, overlaps: 1},
		"after it ended long ago": {plant: func(s map[string]line) { // It was off the list when its write came.
			s["held"], s["taken"] = lease(lower, a, 1, 70, 17), lease(lower, b, 2, 80, 17.5)
			s["write"] = write(b, lower, 2, low, 85, 18)
			s["b 14"], s["b 16"] = beats(b, 55, 14), beats(b, 65, 16)
		}},
		"after its own release": {plant: func(s map[string]line) { s["strike"] = ends("flotilla-0", a, 4, 18, 5) }},
		"by the next incarnation": {plant: func(s map[string]line) {
			delete(s, "strike")
			s["next"], s["next 2"] = beats(nextA, 30, 10.1, a), beats(nextA, 39, 10.15)
		}},
		"after the shard's release": {plant: func(s map[string]line) { s["x"], s["taken"] = release(lower, 1, 20, 5), soon }},
		"after somebody else's release": {plant: func(s map[string]line) {
			delete(s, "strike")
			s["x"], s["taken"] = release(lower, 1, 20, 5).sentBy("flotilla-1"), soon
		}, want: notEnded},
		"of another term": {plant: func(s map[string]line) { s["x"], s["taken"] = release(lower, 7, 20, 5), soon }, want: []audit.Kind{audit.TermReused}},
		"after a release for another": {plant: func(s map[string]line) {
			s["x"], s["taken"] = emptied.notes(map[string]string{"flotilla.dev/released": "7"}), soon
		}, want: early, overlaps: 1},
		"after a release, and what follows": {plant: func(s map[string]line) {
			s["x"], s["y"], s["taken"] = release(lower, 1, 20, 5), lease(lower, "", 1, 21, 5).sentBy(user), soon
		}},
		"after it was emptied":      {plant: func(s map[string]line) { s["x"], s["taken"] = emptied, soon }, want: early, overlaps: 1},
		"long after it was emptied": {plant: func(s map[string]line) { s["x"], s["taken"] = emptied, later }},
		"emptied before the log":    {plant: func(s map[string]line) { s["held"], s["taken"] = emptied, soon }},
		"created emptied":           {plant: func(s map[string]line) { s["held"], s["taken"] = created(emptied), soon }, want: early},
		"again by itself": {plant: func(s map[string]line) {
			s["x"] = lease(lower, a, 2, 20, 3)
			s["taken"] = lease(lower, b, 3, 40, 10.2)
			s["write"] = write(b, lower, 3, low, 45, 12.5)
		}},
		"by a stranger": {plant: func(s map[string]line) {
			s["taken"], s["write"] = lease(lower, "nobody", 2, 20, 5).sentBy(user), write(a, lower, 1, low, 16, 4.1)
		}, want: notEnded, overlaps: 1},
		"from a stranger":                     {plant: func(s map[string]line) { s["x"], s["taken"] = lease(lower, "nobody", 1, 20, 5).sentBy(user), soon }, want: []audit.Kind{audit.TermReused, audit.HolderNotEnded, audit.TakenEarly}, overlaps: 2},
		"from a stranger, later":              {plant: func(s map[string]line) { s["x"], s["taken"] = lease(lower, "nobody", 1, 20, 5).sentBy(user), later }, want: []audit.Kind{audit.TermReused, audit.HolderNotEnded}, overlaps: 1},
		"from a forged name that was struck":  {plant: forge(7, 13.1, "flotilla-1"), want: []audit.Kind{audit.TermReused, audit.HolderNotEnded}, overlaps: 1},
		"from a forged name struck too early": {plant: forge(7, 12.9, "flotilla-1"), want: []audit.Kind{audit.TermReused, audit.HolderNotEnded, audit.EndedEarly}, overlaps: 1},
		"from a forged name":                  {plant: forge(7, 15, user), want: []audit.Kind{audit.TermReused, audit.HolderNotEnded, audit.HolderNotEnded}, overlaps: 1},

		"after its deletion":           {plant: recreated(11.1, b, 2), want: []audit.Kind{audit.LeaseDeleted}},
		"soon after its deletion":      {plant: recreated(8, b, 2), want: []audit.Kind{audit.LeaseDeleted, audit.TakenEarly}, overlaps: 1},
		"again after its deletion":     {plant: recreated(8, a, 1), want: []audit.Kind{audit.LeaseDeleted}},
		"after what the log lacks":     {plant: func(s map[string]line) { s["taken"] = created(s["taken"]) }, doubt: []audit.Kind{audit.LeaseHole}},
		"while the log has no members": {plant: func(s map[string]line) { deleteAll(s, "a 0", "a 2", "a 4", "strike", "next", "next 2") }, doubt: hole},
		"and nobody wrote after it":    {plant: func(s map[string]line) { deleteAll(s, "strike", "next", "next 2") }, doubt: hole},
		"without an answer":            {plant: func(s map[string]line) { s["strike"] = s["strike"].on(14).code(504); deleteAll(s, "next", "next 2") }, doubt: hole},
		"without an answer, but with a successor": {plant: func(s map[string]line) {
			s["strike"] = s["strike"].on(14).code(504)
			s["next"] = s["next"].on(30)
		}},
		"without an answer, and in vain": {plant: func(s map[string]line) {
			s["strike"] = s["strike"].on(14).code(504)
			s["next"] = s["next"].on(14)
		}, want: notEnded},
		"from a hole of the shard's own": {plant: func(s map[string]line) {
			delete(s, "strike")
			s["held"], s["taken"] = s["held"].on(9), s["taken"].on(35)
		}, doubt: []audit.Kind{audit.LeaseHole}},
		"soon, and nobody wrote after it": {plant: func(s map[string]line) {
			deleteAll(s, "strike", "next", "next 2")
			s["taken"] = lease(lower, b, 2, 21, 5.1)
		}, doubt: hole},
		"by what the log lacks": {plant: func(s map[string]line) {
			delete(s, "strike")
			s["next"] = s["next"].on(30)
		}, doubt: []audit.Kind{audit.EndUnknown, audit.EndUnknown}},
		"from a member whose Lease was deleted": {plant: func(s map[string]line) {
			delete(s, "strike")
			s["x"] = ends("flotilla-1", a, 4, 0, 5).with("verb", "delete").with("responseObject", map[string]any{"kind": "Status"})
			s["next"] = created(s["next"])
		}, want: notEnded},
		"from a heartbeat on that the log lacks": {plant: func(s map[string]line) { s["a 4"] = s["a 4"].on(13) }},
		"a log from the middle on":               {plant: func(s map[string]line) { deleteAll(s, "a 0", "b 0", "a 2", "a 4", "held") }},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			scene := takeover()
			if test.plant == nil {
				test.plant = func(map[string]line) {}
			}
			report := test.check(t, scene)
			if name == "after the strike" && (report.Ended != 1 || report.Taken != 1 || report.Undisturbed() != nil) {
				t.Errorf("%d ended, %d taken, want one each; undisturbed: %v", report.Ended, report.Taken, report.Undisturbed())
			}
			// A take without a strike overlaps with nothing if the old holder had sent no heartbeat
			// for long.
			if n := len(report.Overlaps); n != test.overlaps {
				t.Errorf("%d overlaps, want %d", n, test.overlaps)
			}
		})
	}
}

func deleteAll(s map[string]line, keys ...string) {
	for _, key := range keys {
		delete(s, key)
	}
}

// forge makes somebody write an unknown name on the shard's Lease at second 7. A member writes the
// Lease of that name at second restored, and strikes it at second struck.
func forge(restored, struck float64, striker string) func(map[string]line) {
	return func(s map[string]line) {
		s["x"] = lease(lower, forged, 1, 24, 7).sentBy(user)
		s["y"] = created(ofMember("flotilla-1", "forged", forged, restored, 25, restored))
		s["z"] = ends("flotilla-1", forged, restored, 48, struck)
		if striker == user { // Nobody strikes, and somebody else writes the Lease.
			s["z"] = ofMember(user, "forged", forged, restored, 80, struck)
		}
		s["taken"], s["write"] = lease(lower, b, 2, 70, 14), write(b, lower, 2, low, 75, 14.2)
		s["b 14"] = beats(b, 72, 14.1)
	}
}

// recreated makes somebody delete the shard's Lease at second 5, and who create it again.
func recreated(second float64, who string, term int) func(map[string]line) {
	return func(s map[string]line) {
		s["x"] = lease(lower, "", 1, 20, 5).sentBy(user).with("verb", "delete").with("responseObject", map[string]any{"kind": "Status"})
		s["taken"] = created(lease(lower, who, term, 42, second))
		s["write"] = write(who, lower, term, low, 43, 13)
		if who == a {
			deleteAll(s, "strike", "next", "next 2")
			s["a 6"], s["a 8"], s["a 12"] = beats(a, 21, 6), beats(a, 25, 8), beats(a, 41, 12)
		}
	}
}

// TestEnded lists member a as ended, with and without the right to do so.
func TestEnded(t *testing.T) {
	early := []audit.Kind{audit.EndedEarly}
	tests := map[string]judged{
		"after its time":  {},
		"before its time": {plant: func(s map[string]line) { s["strike"] = ends("flotilla-1", a, 4, 30, 9.99) }, want: early},
		"after a heartbeat": {plant: func(s map[string]line) {
			s["x"] = beats(a, 21, 5)
		}, want: early},
		"after a request": {plant: func(s map[string]line) {
			s["x"] = ofMember("flotilla-1", "flotilla-0", a, 4, 21, 7)
		}},
		"after a drain": {plant: func(s map[string]line) { s["x"] = ofMember(user, "flotilla-0", a, 4, 21, 7) }},
		"after a forged heartbeat": {plant: func(s map[string]line) {
			s["x"] = ofMember(user, "flotilla-0", a, 7, 21, 7)
		}},
		"after another member's heartbeat for it": {plant: func(s map[string]line) {
			s["x"] = ofMember("flotilla-1", "flotilla-0", a, 7, 21, 7)
		}, want: early},
		"by itself":             {plant: func(s map[string]line) { s["strike"] = ends("flotilla-0", a, 4, 21, 5) }},
		"by another like that":  {plant: func(s map[string]line) { s["strike"] = ends("flotilla-1", a, 4, 21, 5) }, want: early},
		"by somebody like that": {plant: func(s map[string]line) { s["strike"] = ends(user, a, 4, 21, 5) }, want: early},
		"by its successor":      {plant: func(s map[string]line) { s["strike"] = beats(nextA, 30, 10.1, a) }},
		"by its successor, early": {plant: func(s map[string]line) {
			s["strike"] = beats(nextA, 30, 9.9, a)
		}, want: early},
		"under another's name": {plant: func(s map[string]line) { // Somebody has written another holder on it.
			s["x"] = ofMember("flotilla-0", "flotilla-0", nextA, 7, 21, 7)
			s["strike"] = ofMember("flotilla-1", "flotilla-0", nextA, 7, 30, 10.1, a)
		}, want: early},
		"once its Lease is there again": {plant: func(s map[string]line) {
			s["x"] = created(ofMember("flotilla-1", "flotilla-0", a, 3, 21, 4.05))
		}},
		"too soon after that": {plant: func(s map[string]line) {
			s["x"] = created(ofMember("flotilla-1", "flotilla-0", a, 3, 21, 4.2))
		}, want: early},
		"and it is not known by whom": {plant: func(s map[string]line) {
			s["strike"] = ends("flotilla-1", a, 4, 30, 9.9).on(25)
		}, doubt: []audit.Kind{audit.EndUnknown, audit.EndUnknown}},
		"since before the log": {plant: func(s map[string]line) {
			deleteAll(s, "a 0", "a 2", "a 4")
			s["a 4"] = ofMember("flotilla-1", "flotilla-0", a, 4, 14, 4.5).on(11)
		}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			report := test.check(t, takeover())
			for _, v := range report.Violations {
				if told := strings.Contains(v.Detail, "outside the fleet"); told != (name == "by somebody like that") {
					t.Errorf("%v: says that it was somebody else: %t", v, told)
				}
			}
		})
	}
}

// TestBeatAfterEnd: member a renews its Lease, or seems to, after it was listed as ended.
func TestBeatAfterEnd(t *testing.T) {
	never := []audit.Kind{audit.BeatAfterEnd}
	tests := map[string]judged{
		"before": {plant: func(s map[string]line) {
			delete(s, "strike")
			s["x"], s["next"] = beats(a, 30, 9), beats(nextA, 50, 15.1, a)
		}, want: []audit.Kind{audit.HolderNotEnded}},
		"after":         {plant: func(s map[string]line) { s["x"] = beats(a, 33, 10.15, a) }, want: never},
		"off the list":  {plant: func(s map[string]line) { s["x"] = beats(a, 55, 14) }, want: never},
		"twice":         {plant: func(s map[string]line) { s["x"], s["y"] = beats(a, 55, 14), beats(a, 57, 14.5) }, want: never},
		"a forgery":     {plant: func(s map[string]line) { s["x"] = ofMember(user, "flotilla-0", a, 11, 33, 11) }},
		"a restoration": {plant: func(s map[string]line) { s["x"] = created(ofMember("flotilla-1", "flotilla-0", a, 11, 33, 11)) }},
		"a creation":    {plant: func(s map[string]line) { s["x"] = created(beats(a, 33, 11)) }, want: never},
		"a request":     {plant: func(s map[string]line) { s["x"] = ofMember("flotilla-1", "flotilla-0", "", 4, 33, 11, a) }},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) { test.check(t, takeover()) })
	}
}

// TestHeartbeatsThatTheLogLacks has holes in the history of a member's Lease.
func TestHeartbeatsThatTheLogLacks(t *testing.T) {
	tests := map[string]judged{
		"while it lives":          {plant: func(s map[string]line) { s["a 4"] = s["a 4"].on(13) }},
		"for as long as it lasts": {plant: func(s map[string]line) { deleteAll(s, "b 6", "b 8"); s["b 10"] = s["b 10"].on(24) }},
		"for longer than it lasts": {plant: func(s map[string]line) {
			deleteAll(s, "b 4", "b 6", "b 8")
			s["b 10"] = s["b 10"].on(24)
		}, doubt: []audit.Kind{audit.LogGap}},
		"and it died": {plant: func(s map[string]line) { s["next"] = s["next"].on(40); s["strike"] = s["strike"].on(20) }, doubt: []audit.Kind{audit.EndUnknown}},
		"after it ended, and was forged": {plant: func(s map[string]line) {
			s["x"], s["next"] = ofMember(user, "flotilla-0", a, 4, 33, 11, a), s["next"].on(49)
		}},
		"after it ended": {plant: func(s map[string]line) { s["next"] = s["next"].on(40) }},
		"and nobody knows what it was": {plant: func(s map[string]line) {
			s["x"] = beats(a, 0, 5).code(504)
		}, doubt: []audit.Kind{audit.EndUnknown}},
		"and it may not have run out": {plant: func(s map[string]line) {
			s["strike"], s["x"] = s["strike"].on(20), write(a, lower, 1, low, 29, 10.05)
		}, doubt: []audit.Kind{audit.EndUnknown}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if report := test.check(t, takeover()); report.Late > 0 {
				t.Errorf("%d late, want none", report.Late)
			}
		})
	}
}

// TestLeaderLocksOfARewrittenMember: another member writes the Lease of a again, without the leader
// locks that a waits for.
func TestLeaderLocksOfARewrittenMember(t *testing.T) {
	scene := takeover()
	scene["a 0"] = scene["a 0"].notes(map[string]string{"flotilla.dev/leader-locks": lockName})
	scene["a 2"] = created(ofMember("flotilla-1", "flotilla-0", a, 0, 12, 2))
	scene["a 4"] = scene["a 4"].notes(map[string]string{"flotilla.dev/leader-locks": ""})
	scene["leader-lock"] = lock(stock, 8, 1)
	scene["x"] = write(a, lower, 1, low, 28, 9.9)
	judged{want: []audit.Kind{audit.LeaderLockNotHeld}}.check(t, scene)
}

// TestOldProtocol has the same Leases without the protocol: each shard's Lease is renewed, or
// expires.
func TestOldProtocol(t *testing.T) {
	scene := takeover()
	for key, l := range scene {
		answer := jsonObject(l["responseObject"].(map[string]any))
		if metadata := answer["metadata"].(map[string]any); metadata["annotations"] != nil {
			metadata = maps.Clone(metadata)
			delete(metadata, "annotations")
			answer = maps.Clone(answer)
			answer["metadata"] = metadata
			scene[key] = l.with("responseObject", map[string]any(answer))
		}
	}
	report := judged{}.check(t, scene)
	if _, expired := report.Gaps(); report.Ended+report.Taken != 0 || !slices.Equal(expired, []time.Duration{9700 * time.Millisecond}) {
		t.Errorf("%d ended, %d taken, gaps %v, want none and one since the shard's last renewal", report.Ended, report.Taken, expired)
	}
	early := maps.Clone(scene)
	early["taken"] = lease(lower, b, 2, 27, 6.4)
	requireKinds(t, check(t, linesOf(early)...), audit.TakenEarly)
}

// TestProtocolOfAnUnknownMember: member a writes nine seconds after the last write of its shard's
// Lease.
func TestProtocolOfAnUnknownMember(t *testing.T) {
	for name, test := range map[string]struct {
		plant func(s map[string]line)
		late  int
	}{
		"no Lease names it: as the others": {func(s map[string]line) { deleteAll(s, "a 0", "a 2", "a 4") }, 0},
		"an old one, written again by a new one": {func(s map[string]line) {
			for _, key := range []string{"a 0", "a 2", "a 4"} {
				s[key] = s[key].notes(map[string]string{"flotilla.dev/protocol": ""})
			}
			s["x"] = created(ofMember("flotilla-1", "flotilla-0", a, 3, 21, 4.05))
		}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			scene := takeover()
			test.plant(scene)
			scene["late"] = write(a, lower, 1, low, 28, 9.9)
			if report := (judged{}).check(t, scene); report.Late != test.late {
				t.Errorf("%d late, want %d", report.Late, test.late)
			}
		})
	}
}

// TestUnownedByHeartbeat counts unowned time from the member's last heartbeat.
func TestUnownedByHeartbeat(t *testing.T) {
	id, _ := shard.ParseID(lower)
	second := func(at time.Time) float64 { return at.Sub(time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)).Seconds() }
	for name, test := range map[string]struct {
		plant             func(s map[string]line)
		released, expired []time.Duration
		vacant            float64
	}{
		"taken over":      {expired: []time.Duration{6200 * time.Millisecond}},
		"nobody took it":  {plant: func(s map[string]line) { deleteAll(s, "taken", "write") }, vacant: 10.1},
		"released":        {plant: func(s map[string]line) { s["x"], s["taken"] = release(lower, 1, 20, 5), lease(lower, b, 2, 24, 6.5) }, released: []time.Duration{1500 * time.Millisecond}},
		"member released": {plant: func(s map[string]line) { s["strike"] = ends("flotilla-0", a, 4, 18, 5) }, released: []time.Duration{5200 * time.Millisecond}},
		"emptied": {plant: func(s map[string]line) {
			s["x"], s["taken"] = lease(lower, "", 1, 20, 5).sentBy(user), lease(lower, b, 2, 42, 11.1)
		}, expired: []time.Duration{6100 * time.Millisecond}},
		"again by itself": {plant: func(s map[string]line) {
			s["taken"], s["write"] = lease(lower, a, 2, 20, 5), write(a, lower, 2, low, 21, 5)
		}, expired: []time.Duration{0}, vacant: 10.1},
		"acquired in vain": {plant: func(s map[string]line) { s["held"] = lease(lower, a, 1, 28, 8) }, expired: []time.Duration{2200 * time.Millisecond}},
		"emptied when it was dead": {plant: func(s map[string]line) {
			s["x"], s["taken"] = lease(lower, "", 1, 29, 10.05).sentBy(user), lease(lower, b, 2, 62, 16.2)
			s["write"] = write(b, lower, 2, low, 63, 16.3)
		}, expired: []time.Duration{12200 * time.Millisecond}},
		"acquired after its end": {plant: func(s map[string]line) {
			s["strike"] = ends("flotilla-0", a, 4, 18, 5)
			s["held"], s["taken"] = lease(lower, a, 1, 70, 17), lease(lower, b, 2, 80, 17.5)
			s["write"] = write(b, lower, 2, low, 85, 17.6)
		}, expired: []time.Duration{500 * time.Millisecond}},
		"no heartbeat in the log": {plant: func(s map[string]line) {
			deleteAll(s, "a 0", "a 2", "a 4")
		}, expired: []time.Duration{6100 * time.Millisecond}},
	} {
		t.Run(name, func(t *testing.T) {
			report := judged{plant: test.plant}.check(t, takeover())
			released, expired := report.Gaps()
			if !slices.Equal(released, test.released) || !slices.Equal(expired, test.expired) {
				t.Errorf("gaps %v and %v, want %v and %v", released, expired, test.released, test.expired)
			}
			u := report.Unowned()[id]
			if worst := slices.Max(append(test.expired, 0)); u.WorstUnplanned != worst {
				t.Errorf("unplanned: %v, want %v", u.WorstUnplanned, worst)
			}
			if got := u.Vacant; test.vacant == 0 != got.IsZero() || test.vacant != 0 && second(got) != test.vacant {
				t.Errorf("vacant since %v, want second %v", got, test.vacant)
			}
		})
	}
}

// TestUndisturbedByHeartbeats leaves a shard's Lease unchanged for long while its holder lives.
func TestUndisturbedByHeartbeats(t *testing.T) {
	scene := map[string]line{"a 0": created(beats(a, 5, 0)), "held": lease(lower, a, 1, 10, 0.5), "write": write(a, lower, 1, low, 500, 59)}
	for i := range 30 {
		scene[fmt.Sprintf("beat %d", i)] = beats(a, 20+i, 2*float64(i+1))
	}
	report := judged{}.check(t, scene)
	if err := report.Undisturbed(); err != nil || len(report.Interruptions()) > 0 {
		t.Errorf("undisturbed: %v; interruptions %v", err, report.Interruptions())
	}
	for i := range 20 {
		delete(scene, fmt.Sprintf("beat %d", 10+i))
	}
	report = judged{}.check(t, scene)
	if interruptions := report.Interruptions(); report.Late != 1 || len(interruptions) != 1 || interruptions[0].Ended.Second() != 20 || !interruptions[0].Began.IsZero() {
		t.Errorf("%d late, want one; interruptions %+v, want one from second 20 on", report.Late, interruptions)
	}
}

// TestOwnNoteIsNoHeartbeat: member a writes something else on its own Lease, and then writes in its
// shard.
func TestOwnNoteIsNoHeartbeat(t *testing.T) {
	scene := takeover()
	scene["x"] = ofMember("flotilla-0", "flotilla-0", a, 4, 21, 7)
	scene["y"] = write(a, lower, 1, low, 29, 10.05)
	if report := (judged{}).check(t, scene); report.Late != 1 {
		t.Errorf("%d late, want one", report.Late)
	}
}

// splitOfTheDead returns a split in which the predecessor dies after its heartbeat at second 10,
// and is struck at 16.1.
func splitOfTheDead(t *testing.T) map[string]line {
	t.Helper()
	_, split, _ := plans(t)
	mine, other := successor(t)
	ready := map[string]string{"flotilla.dev/ready": ""}
	s := splitScene(t)
	deleteAll(s, "12 release", "16 renewed", "17 renewed other", "18 write")
	s["b 0"], s["a 0"], s["a 10"] = created(beats(b, 3, 0)), created(beats(a, 4, 0)), beats(a, 91, 10)
	for i := range 12 {
		s[fmt.Sprintf("b %d", i)] = beats(b, 300+i, 17+float64(i))
		if i > 0 && i < 9 {
			s[fmt.Sprintf("a %d", i)], s[fmt.Sprintf("b -%d", i)] = beats(a, 70+i, float64(i)), beats(b, 60+i, float64(i))
		}
	}
	s["50 strike"] = ends("flotilla-1", a, 10, 200, 16.1)
	s["13 runs"], s["14 runs other"] = told(t, split, mine, b, 1, 210, 16.2).notes(ready), told(t, split, other, b, 1, 211, 16.3).notes(ready)
	s["15 first write"] = wrote(b, mine, 1, 220, 16.5)
	return s
}

// TestSuccessorOfTheDead makes the successors of a shard wait until its holder is listed as ended.
func TestSuccessorOfTheDead(t *testing.T) {
	halves, _, _ := plans(t)
	mine, _ := successor(t)
	for name, test := range map[string]judged{
		"after the strike":             {},
		"before it":                    {plant: func(s map[string]line) { s["x"] = wrote(b, mine, 1, 199, 16.05) }, want: []audit.Kind{audit.OverlappingShards}},
		"before it, no version":        {plant: func(s map[string]line) { s["x"] = wrote(b, mine, 1, 0, 16.05) }, want: []audit.Kind{audit.OverlappingShards}},
		"without one":                  {plant: func(s map[string]line) { s["50 strike"] = beats(nextA, 400, 20, a) }, want: []audit.Kind{audit.OverlappingShards}},
		"and nobody knows":             {plant: func(s map[string]line) { delete(s, "50 strike") }, doubt: []audit.Kind{audit.EndUnknown}},
		"and nobody knows, no version": {plant: func(s map[string]line) { delete(s, "50 strike"); s["15 first write"] = wrote(b, mine, 1, 0, 16.5) }, doubt: []audit.Kind{audit.EndUnknown}},
		"and the log has a hole": {plant: func(s map[string]line) {
			s["x"], s["50 strike"] = wrote(b, mine, 1, 199, 16.05), s["50 strike"].on(150)
		}, doubt: []audit.Kind{audit.EndUnknown, audit.EndUnknown}},
		"what the predecessor sent, arrives": {plant: func(s map[string]line) { s["x"] = wrote(a, lower, 1, 230, 16.6).arrived(15.9) }},
		"the predecessor goes on":            {plant: func(s map[string]line) { s["x"] = wrote(a, lower, 1, 230, 16.6) }, want: []audit.Kind{audit.WriterEnded}},
	} {
		t.Run(name, func(t *testing.T) {
			scene := splitOfTheDead(t)
			if test.plant != nil {
				test.plant(scene)
			}
			report := checkPlan(t, halves, linesOf(scene)...)
			requireKinds(t, report, test.want...)
			requireDoubts(t, report, test.doubt...)
			if name != "after the strike" {
				return
			}
			successions := report.Successions()
			for _, s := range successions {
				gap := map[bool]time.Duration{true: 6200 * time.Millisecond, false: 6300 * time.Millisecond}[s.Successor.String() == mine]
				if s.Planned || s.Gap() != gap {
					t.Errorf("succession %+v, gap %v, want %v", s, s.Gap(), gap)
				}
			}
			if len(successions) != 2 {
				t.Errorf("%d successions, want 2", len(successions))
			}
		})
	}
}

// TestSuccessionsOfMembersLeases observes the Leases of shards and members through a watch.
func TestSuccessionsOfMembersLeases(t *testing.T) {
	var seen []audit.Sighting
	for _, l := range linesOf(splitOfTheDead(t)) {
		if l["objectRef"].(map[string]any)["resource"] != "leases" {
			continue
		}
		var lease coordinationv1.Lease
		raw, err := json.Marshal(l["responseObject"])
		if err == nil {
			err = json.Unmarshal(raw, &lease)
		}
		at, wrong := time.Parse(time.RFC3339Nano, l["stageTimestamp"].(string))
		if err != nil || wrong != nil {
			t.Fatal(err, wrong)
		}
		seen = append(seen, audit.Sighting{Lease: &lease, At: at})
	}
	all := audit.Successions(fleetName, seen)
	if len(all) != 2 {
		t.Errorf("%d successions, want 2", len(all))
	}
	for _, s := range all {
		if s.Planned || s.Gap() < 6200*time.Millisecond || s.Gap() > 6300*time.Millisecond || s.Ended.Second() != 10 {
			t.Errorf("succession %+v, gap %v", s, s.Gap())
		}
	}
}
