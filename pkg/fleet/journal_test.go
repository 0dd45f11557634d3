package fleet

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/fleet/history"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

var journalStart = time.Date(2027, 1, 2, 3, 4, 5, 0, time.UTC)

func seenMember(holder, state string, annotations map[string]string) election.Observation {
	all := map[string]string{leaserecord.StateAnnotation: state}
	maps.Copy(all, annotations)
	return seen("flotilla-member-a", holder, 1, 0, all, nil)
}

func seen(name, holder string, term int32, ago time.Duration, annotations, labels map[string]string) election.Observation {
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations, Labels: labels},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseTransitions: &term, LeaseDurationSeconds: ptr.To[int32](15)},
	}
	return election.Observation{Record: leaserecord.From(lease), Exists: true, Seen: journalStart.Add(-ago), Lease: lease}
}

func TestJournalJoinsReleaseAndAcquisition(t *testing.T) {
	one, two := shard.ID{Ring: "namespaces", Name: "00"}, shard.ID{Ring: "namespaces", Name: "01"}
	fake := clocktesting.NewFakeClock(journalStart)
	j := newJournal("flotilla", fake)
	add := func(kind history.Kind, id shard.ID, from, to string, term int32, gap time.Duration) {
		j.add(history.Transition{
			Kind: kind, Lease: leaseapi.ShardLease("flotilla", id), Shard: id, From: from, To: to, Term: term, Gap: gap,
		})
	}
	add(history.Released, one, "a", "", 3, 2*time.Second)
	add(history.Released, two, "a", "", 7, 0)
	fake.Step(20 * time.Millisecond)
	add(history.Acquired, one, "", "b", 4, 0)
	add(history.Acquired, two, "", "b", 9, 0) // not the next term
	var got []string
	for _, e := range j.list() {
		got = append(got, fmt.Sprintf("%s %s %s>%s %d %v", e.Kind, e.Shard, e.From, e.To, e.Term, e.Gap))
	}
	want := []string{"released namespaces/01 a> 7 0s", "handed-over namespaces/00 a>b 4 2.02s", "acquired namespaces/01 >b 9 0s"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("want (-), got (+):\n%s", diff)
	}
	add(history.Released, one, "b", "", 4, 0)
	add(history.Acquired, one, "", "b", 5, 0)
	if last := j.list()[3]; last.Kind != history.Acquired || last.From != "b" {
		t.Errorf("a shard acquired again by its last holder is recorded as %s from %q", last.Kind, last.From)
	}
}

// TestJournalLeavesOut checks that the journal omits intermediate steps, and Leases that are not
// the fleet's or have another Lease's labels.
func TestJournalLeavesOut(t *testing.T) {
	id := shard.ID{Ring: "namespaces", Name: "00"}
	own, labels := leaseapi.ShardLease("flotilla", id), leaseapi.ShardLabels("flotilla", id)
	says := func(annotation, value string) map[string]string { return map[string]string{annotation: value} }
	for name, tc := range map[string]struct {
		before, after election.Observation
		want          int
	}{
		"asked":             {seen(own, "a_1", 1, 0, nil, labels), seen(own, "a_1", 1, 0, says(leaserecord.NextHolderAnnotation, "b_1"), labels), 0},
		"ready":             {seen(own, "a_1", 1, 0, nil, labels), seen(own, "a_1", 1, 0, says(leaseapi.ReadyAnnotation, "1"), labels), 0},
		"running":           {seen(own, "a_1", 1, 0, nil, labels), seen(own, "a_1", 1, 0, says(leaseapi.RunningAnnotation, "1"), labels), 0},
		"released":          {seen(own, "a_1", 1, 0, nil, labels), seen(own, "", 1, 0, nil, labels), 1},
		"another fleet's":   {seen("flotilla-x", "a_1", 1, 0, nil, nil), seen("flotilla-x", "b_1", 2, 0, nil, nil), 0},
		"labels of another": {seen("flotilla-x", "a_1", 1, 0, nil, labels), seen("flotilla-x", "b_1", 2, 0, nil, labels), 0},
		"another planner":   {seen("flotilla-plan", "a_1", 1, 0, nil, nil), seen("flotilla-plan", "b_1", 2, 0, nil, nil), 1},
		"member that left":  {seenMember("a_1", "leaving", nil), seenMember("", "leaving", nil), 1},
	} {
		j := newJournal("flotilla", clock.RealClock{})
		happened := history.Between("flotilla", tc.before, tc.after)
		if j.add(happened...); len(happened) != 1 || len(j.list()) != tc.want {
			t.Errorf("%s: of %v the journal has %v", name, happened, j.list())
		}
	}
}

func TestJournalIsBounded(t *testing.T) {
	j := newJournal("flotilla", clock.RealClock{})
	for term := range int32(3 * maxTransitions) {
		j.add(history.Transition{Kind: history.Released, Shard: shard.ID{Ring: "r", Name: "s"}, Term: term})
	}
	got := j.list()
	if len(got) != maxTransitions || got[0].Term != 2*maxTransitions || got[maxTransitions-1].Term != 3*maxTransitions-1 {
		t.Errorf("%d are left, terms %d to %d", len(got), got[0].Term, got[len(got)-1].Term)
	}
	got[0].Term = -1
	if j.list()[0].Term == -1 {
		t.Error("the list is the journal's own")
	}
}

// TestJournalOfARandomHistory makes members join, leave, fall silent and return, and reads what one
// of them has observed.
func TestJournalOfARandomHistory(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, s *testFleet) {
		a := s.launch("a", nil)
		pass(10 * time.Second)
		b, c := s.launch("b", nil), s.launch("c", nil)
		pass(time.Minute)
		s.allHeld("a", "b", "c")
		theirs := map[string]int{}
		for _, member := range []string{"b", "c"} {
			theirs[member] = s.holders()[member]
		}
		b.stop()
		<-b.ended
		pass(time.Minute)
		theirs["c"] = s.holders()["c"]
		c.client.Block()
		pass(time.Minute)
		c.client.Unblock()
		pass(time.Minute)

		journal := a.Journal()
		// While the members joined, shards may have moved from one of them to another.
		leaving := slices.IndexFunc(journal, func(e JournalEntry) bool { return e.Kind == history.Leaving && e.Member == "b" })
		handedOver := 0
		for _, e := range journal[max(leaving, 0):] {
			if e.Kind == history.HandedOver && e.From == "b" {
				handedOver++
			}
		}
		count := func(kind history.Kind, member, from string) int {
			return len(slices.DeleteFunc(slices.Clone(journal), func(e JournalEntry) bool {
				return e.Kind != kind || e.Member != member || from != "" && e.From != from
			}))
		}
		for what, is := range map[string]bool{
			"both join":               count(history.Joined, "b", "") == 1 && count(history.Joined, "c", "") == 1,
			"both become active":      count(history.Active, "b", "") == 1 && count(history.Active, "c", "") == 1,
			"one leaves":              count(history.Leaving, "b", "") == 1 && count(history.Left, "b", "") == 1,
			"one falls silent":        count(history.Silent, "c", "") == 1 && count(history.Silent, "b", "") == 0,
			"b's are handed over":     handedOver == theirs["b"] && theirs["b"] > 0,
			"c's are taken over":      count(history.TakenOver, "", "c") == theirs["c"] && theirs["c"] > 0,
			"nothing is in between":   count(history.Released, "", "") == 0,
			"the first plan is there": count(history.PlanChanged, "", "") == 1,
		} {
			if !is {
				t.Errorf("false: %s", what)
			}
		}
		for _, e := range journal {
			if e.Kind == history.HandedOver && e.Gap > time.Second {
				t.Errorf("%s was without a holder for %v", e.Shard, e.Gap)
			}
		}
		if t.Failed() {
			for _, e := range journal {
				t.Logf("%v %s %s%s %s>%s %d %v", e.Seen, e.Kind, e.Member, e.Shard, e.From, e.To, e.Term, e.Gap)
			}
		}
	})
}

// TestJournalOfAMemberThatReturns tests a silent member whose Lease nobody takes, and that renews
// again.
func TestJournalOfAMemberThatReturns(t *testing.T) {
	j := newJournal("flotilla", clocktesting.NewFakeClock(journalStart))
	look := func(member election.Observation, now time.Time) {
		j.look(leaseapi.NewSnapshot("flotilla", []election.Observation{member}, 0, now))
	}
	active := seenMember("a_1", "active", nil)
	look(active, journalStart)
	look(active, journalStart.Add(time.Minute))
	look(active, journalStart.Add(time.Minute))
	look(active, journalStart)
	look(seenMember("", "leaving", nil), journalStart)
	var kinds []history.Kind
	for _, e := range j.list() {
		kinds = append(kinds, e.Kind)
	}
	if want := []history.Kind{history.Silent, history.Returned}; !slices.Equal(kinds, want) {
		t.Errorf("got %v, want %v", kinds, want)
	}
}
