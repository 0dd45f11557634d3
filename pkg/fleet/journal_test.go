package fleet

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

var journalStart = time.Date(2027, 1, 2, 3, 4, 5, 0, time.UTC)

// seenShard is the Lease of shard namespaces/00, as last seen to change so long before journalStart.
func seenShard(holder string, term int32, ago time.Duration, annotations map[string]string) election.Observation {
	id := shard.ID{Ring: "namespaces", Name: "00"}
	return seen(leaseapi.ShardLease("flotilla", id), holder, term, ago, annotations, leaseapi.ShardLabels("flotilla", id))
}

func seenMember(holder, state string, annotations map[string]string) election.Observation {
	all := map[string]string{election.StateAnnotation: state}
	maps.Copy(all, annotations)
	return seen("flotilla-member-a", holder, 1, 0, all, nil)
}

func seenPlan(generation, document string) election.Observation {
	return seen("flotilla-plan", "", 0, 0, map[string]string{leaseapi.GenerationAnnotation: generation, leaseapi.DocumentAnnotation: document}, nil)
}

func seen(name, holder string, term int32, ago time.Duration, annotations, labels map[string]string) election.Observation {
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations, Labels: labels},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseTransitions: &term, LeaseDurationSeconds: ptr.To[int32](15)},
	}
	return election.Observation{Record: election.RecordFrom(lease), Exists: true, Seen: journalStart.Add(-ago), Lease: lease}
}

func absent(name string) election.Observation {
	return election.Observation{Record: election.Record{Name: name}, Seen: journalStart}
}

func TestTransitions(t *testing.T) {
	id := shard.ID{Ring: "namespaces", Name: "00"}
	asked := map[string]string{election.NextHolderAnnotation: "b_2"}
	const shardLease, memberLease = "flotilla-namespaces-00", "flotilla-member-a"
	tests := map[string]struct {
		before, after election.Observation
		want          []Transition
	}{
		"seen for the first time": {election.Observation{}, seenShard("a_1", 3, 0, nil), nil},
		"renewed":                 {seenShard("a_1", 3, time.Second, nil), seenShard("a_1", 3, 0, map[string]string{leaseapi.RunningAnnotation: "3"}), nil},
		"created":                 {absent(shardLease), seenShard("a_1", 0, 0, nil), []Transition{{Kind: TransitionAcquired, Shard: id, To: "a"}}},
		"released":                {seenShard("a_1", 3, 0, asked), seenShard("", 3, 0, asked), []Transition{{Kind: TransitionReleased, Shard: id, From: "a", Term: 3}}},
		"released late": {
			seenShard("a_1", 3, 0, asked), seenShard("", 3, 0, map[string]string{election.StoppedAnnotation: "3 36s"}),
			[]Transition{{Kind: TransitionReleased, Shard: id, From: "a", Term: 3, Gap: 36 * time.Second}},
		},
		"taken over from one that could not write": {
			seenShard("a_1", 3, 15*time.Second, map[string]string{election.StoppedAnnotation: "3 10s"}), seenShard("b_2", 4, 0, nil),
			[]Transition{{Kind: TransitionTakenOver, Shard: id, From: "a", To: "b", Term: 4, Gap: 25 * time.Second}},
		},
		"acquired":       {seenShard("", 3, 0, asked), seenShard("b_2", 4, 0, nil), []Transition{{Kind: TransitionAcquired, Shard: id, To: "b", Term: 4}}},
		"acquired again": {seenShard("a_1", 3, 0, nil), seenShard("a_1", 4, 0, nil), []Transition{{Kind: TransitionAcquired, Shard: id, From: "a", To: "a", Term: 4}}},
		"release unseen": {
			seenShard("a_1", 3, 2*time.Second, asked), seenShard("b_2", 4, 0, nil),
			[]Transition{{Kind: TransitionHandedOver, Shard: id, From: "a", To: "b", Term: 4}},
		},
		"taken over": {
			seenShard("a_1", 3, 15*time.Second, nil), seenShard("b_2", 4, 0, nil),
			[]Transition{{Kind: TransitionTakenOver, Shard: id, From: "a", To: "b", Term: 4, Gap: 15 * time.Second}},
		},
		"taken over by who had asked": {
			seenShard("a_1", 3, 15*time.Second, asked), seenShard("b_2", 4, 0, nil),
			[]Transition{{Kind: TransitionTakenOver, Shard: id, From: "a", To: "b", Term: 4, Gap: 15 * time.Second}},
		},
		"taken by who had not asked": {
			seenShard("a_1", 3, time.Second, asked), seenShard("c_3", 4, 0, nil),
			[]Transition{{Kind: TransitionTakenOver, Shard: id, From: "a", To: "c", Term: 4, Gap: time.Second}},
		},
		"holder that is no incarnation": {seenShard("", 3, 0, nil), seenShard("you", 4, 0, nil), []Transition{{Kind: TransitionAcquired, Shard: id, To: "you", Term: 4}}},
		"deleted":                       {seenShard("a_1", 3, 0, nil), absent(shardLease), []Transition{{Kind: TransitionLeaseDeleted, Shard: id, From: "a", Term: 3}}},
		"another fleet's":               {seen("flotilla-x", "a_1", 1, 0, nil, nil), seen("flotilla-x", "b_1", 2, 0, nil, nil), nil},
		"labels that lie": {
			seen("flotilla-x", "a_1", 1, 0, nil, leaseapi.ShardLabels("flotilla", id)), seen("flotilla-x", "b_1", 2, 0, nil, leaseapi.ShardLabels("flotilla", id)), nil,
		},
		"labels stripped": {
			seenShard("a_1", 3, 0, nil), seen(shardLease, "", 3, 0, nil, nil),
			[]Transition{{Kind: TransitionReleased, Shard: id, From: "a", Term: 3}},
		},

		"joined":         {absent(memberLease), seenMember("a_1", "joining", nil), []Transition{{Kind: TransitionJoined, Member: "a"}}},
		"joined at once": {absent(memberLease), seenMember("a_1", "active", nil), []Transition{{Kind: TransitionJoined, Member: "a"}, {Kind: TransitionActive, Member: "a"}}},
		"renews":         {seenMember("a_1", "active", nil), seenMember("a_1", "active", nil), nil},
		"active":         {seenMember("a_1", "joining", nil), seenMember("a_1", "active", nil), []Transition{{Kind: TransitionActive, Member: "a"}}},
		"leaving":        {seenMember("a_1", "active", nil), seenMember("a_1", "leaving", nil), []Transition{{Kind: TransitionLeaving, Member: "a"}}},
		"left":           {seenMember("a_1", "leaving", nil), seenMember("", "leaving", nil), []Transition{{Kind: TransitionLeft, Member: "a"}}},
		"another start":  {seenMember("a_1", "active", nil), seenMember("a_2", "joining", nil), []Transition{{Kind: TransitionJoined, Member: "a"}}},
		"drained":        {seenMember("a_1", "active", nil), seenMember("a_1", "active", map[string]string{leaseapi.DrainAnnotation: "x"}), []Transition{{Kind: TransitionDrained, Member: "a"}}},
		"undrained":      {seenMember("a_1", "active", map[string]string{leaseapi.DrainAnnotation: "x"}), seenMember("a_1", "active", nil), []Transition{{Kind: TransitionUndrained, Member: "a"}}},
		"member deleted": {seenMember("a_1", "active", nil), absent(memberLease), []Transition{{Kind: TransitionLeaseDeleted, Member: "a"}}},

		"first plan":   {absent("flotilla-plan"), seenPlan("1", "x"), []Transition{{Kind: TransitionPlanChanged, To: "1"}}},
		"plan changed": {seenPlan("1", "x"), seenPlan("2", "y"), []Transition{{Kind: TransitionPlanChanged, From: "1", To: "2"}}},
		"plan touched": {seenPlan("1", "x"), seenPlan("1", "x"), nil},
		"plan deleted": {seenPlan("1", "x"), absent("flotilla-plan"), []Transition{{Kind: TransitionLeaseDeleted, From: "1"}}},
		"plan of a liar": {seenPlan("1", "x"), seenPlan(strings.Repeat("9", 1000), "y"), []Transition{
			{Kind: TransitionPlanChanged, From: "1", To: strings.Repeat("9", maxTold) + "..."},
		}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, transitions("flotilla", tc.before, tc.after, journalStart)); diff != "" {
				t.Errorf("want (-), got (+):\n%s", diff)
			}
		})
	}
}

func TestJournalJoinsReleaseAndAcquisition(t *testing.T) {
	one, two := shard.ID{Ring: "namespaces", Name: "00"}, shard.ID{Ring: "namespaces", Name: "01"}
	fake := clocktesting.NewFakeClock(journalStart)
	j := newJournal("flotilla", fake)
	j.add(Transition{Kind: TransitionReleased, Shard: one, From: "a", Term: 3, Gap: 2 * time.Second}, Transition{Kind: TransitionReleased, Shard: two, From: "a", Term: 7})
	fake.Step(20 * time.Millisecond)
	j.add(Transition{Kind: TransitionAcquired, Shard: one, To: "b", Term: 4})
	j.add(Transition{Kind: TransitionAcquired, Shard: two, To: "b", Term: 9}) // not the term that follows
	var got []string
	for _, e := range j.list() {
		got = append(got, fmt.Sprintf("%s %s %s>%s %d %v", e.Kind, e.Shard, e.From, e.To, e.Term, e.Gap))
	}
	want := []string{"released namespaces/01 a> 7 0s", "handed-over namespaces/00 a>b 4 2.02s", "acquired namespaces/01 >b 9 0s"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("want (-), got (+):\n%s", diff)
	}
	j.add(Transition{Kind: TransitionReleased, Shard: one, From: "b", Term: 4}, Transition{Kind: TransitionAcquired, Shard: one, To: "b", Term: 5})
	if last := j.list()[3]; last.Kind != TransitionAcquired || last.From != "b" {
		t.Errorf("a shard that its last holder has acquired again is told as %s from %q", last.Kind, last.From)
	}
}

func TestJournalIsBounded(t *testing.T) {
	j := newJournal("flotilla", clock.RealClock{})
	for term := range int32(3 * maxTransitions) {
		j.add(Transition{Kind: TransitionReleased, Shard: shard.ID{Ring: "r", Name: "s"}, Term: term})
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

// TestJournalOfARandomHistory has members join, leave, fall silent and come back, and reads what
// one of them has observed.
func TestJournalOfARandomHistory(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, s *world) {
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
		leaving := slices.IndexFunc(journal, func(e Transition) bool { return e.Kind == TransitionLeaving && e.Member == "b" })
		handedOver := 0
		for _, e := range journal[max(leaving, 0):] {
			if e.Kind == TransitionHandedOver && e.From == "b" {
				handedOver++
			}
		}
		count := func(kind TransitionKind, member, from string) int {
			return len(slices.DeleteFunc(slices.Clone(journal), func(e Transition) bool {
				return e.Kind != kind || e.Member != member || from != "" && e.From != from
			}))
		}
		for what, is := range map[string]bool{
			"both join":               count(TransitionJoined, "b", "") == 1 && count(TransitionJoined, "c", "") == 1,
			"both become active":      count(TransitionActive, "b", "") == 1 && count(TransitionActive, "c", "") == 1,
			"one leaves":              count(TransitionLeaving, "b", "") == 1 && count(TransitionLeft, "b", "") == 1,
			"one falls silent":        count(TransitionSilent, "c", "") == 1 && count(TransitionSilent, "b", "") == 0,
			"b's are handed over":     handedOver == theirs["b"] && theirs["b"] > 0,
			"c's are taken over":      count(TransitionTakenOver, "", "c") == theirs["c"] && theirs["c"] > 0,
			"nothing is in between":   count(TransitionReleased, "", "") == 0,
			"the first plan is there": count(TransitionPlanChanged, "", "") == 1,
		} {
			if !is {
				t.Errorf("not so: %s", what)
			}
		}
		for _, e := range journal {
			if e.Kind == TransitionHandedOver && e.Gap > time.Second {
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

// TestJournalOfAMemberThatReturns: a silent member whose Lease nobody takes is heard of again.
func TestJournalOfAMemberThatReturns(t *testing.T) {
	leases := map[string]election.Observation{"flotilla-member-a": seenMember("a_1", "active", nil)}
	get := func(name string) election.Observation { return leases[name] }
	roster := func(now time.Time) election.Roster {
		return election.RosterFrom("flotilla", slices.Collect(maps.Values(leases)), 0, now)
	}
	j := newJournal("flotilla", clocktesting.NewFakeClock(journalStart))
	j.look(roster(journalStart), get)
	j.look(roster(journalStart.Add(time.Minute)), get)
	j.look(roster(journalStart.Add(time.Minute)), get)
	j.look(roster(journalStart), get)
	leases["flotilla-member-a"] = seenMember("", "leaving", nil)
	j.look(roster(journalStart), get)
	var kinds []TransitionKind
	for _, e := range j.list() {
		kinds = append(kinds, e.Kind)
	}
	if want := []TransitionKind{TransitionSilent, TransitionReturned}; !slices.Equal(kinds, want) {
		t.Errorf("got %v, want %v", kinds, want)
	}
}

// BenchmarkTransitionsOfRenewal is what each renewal of a shard costs.
func BenchmarkTransitionsOfRenewal(b *testing.B) {
	before, after := seenShard("a_1", 3, time.Second, nil), seenShard("a_1", 3, 0, nil)
	b.ReportAllocs()
	for b.Loop() {
		if transitions("flotilla", before, after, journalStart) != nil {
			b.Fatal("a renewal is no transition")
		}
	}
}
