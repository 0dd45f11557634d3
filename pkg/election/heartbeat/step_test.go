package heartbeat

import (
	"math"
	"reflect"
	"testing"
	"time"
)

// at returns a time, in seconds after epoch, rounded to a tenth.
func at(seconds float64) time.Time {
	return epoch.Add(time.Duration(math.Round(seconds*10)) * 100 * time.Millisecond)
}

var defaultTiming = Timing{LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second}

// lease returns a_1's Lease at version 7, renewed at 0.
func lease(change func(*MemberView)) MemberView {
	v := MemberView{
		MemberRecord: MemberRecord{Version: 7, UID: "u", Holder: "a_1", Beat: 1, Duration: 15 * time.Second, Protocol: Protocol},
		Exists:       true, Seen: at(0), HolderSeen: at(0),
	}
	if change != nil {
		change(&v)
	}
	return v
}

// live is the state of a_1 with a confirmed heartbeat at 0.
var live = State{Phase: Live, Acquired: at(-60), Confirmed: at(0), Sent: at(0)}

// TestStep covers the table in Step's comment, row by row.
func TestStep(t *testing.T) {
	ended := func(who ...string) func(*MemberView) { return func(v *MemberView) { v.Ended = who } }
	holder := func(who string) func(*MemberView) { return func(v *MemberView) { v.Holder = who } }
	other := lease(holder("a_0"))
	pending := live
	pending.Pending = Beat{Start: at(2), Answered: at(2.1), Version: 9}
	failed := live
	failed.NotBefore = at(4)
	first := State{Phase: Live, Acquired: at(0), Sent: at(0), Pending: Beat{Start: at(0), Answered: at(0.1), Version: 7}}
	tests := []struct {
		name string
		in   Input // Self, Timing and Want are filled in; zero Now is at(0), and zero Turned is Now
		left bool  // !Want
		want Action
		// further expectations, where they matter
		phase  Phase
		reason Reason
		ended  []string
		until  time.Time
		wake   time.Time
	}{
		{name: "waiting, leaves", in: Input{Member: other}, left: true, want: End, phase: Over, reason: ReasonLeft},
		{name: "waiting, struck", in: Input{Member: lease(ended("a_1"))}, want: End, phase: Over, reason: ReasonStruck},
		{name: "nothing known", in: Input{}, want: Wait, reason: ReasonUnknown},
		{name: "foreign", in: Input{Member: lease(holder("")), Foreign: true}, want: Wait, reason: ReasonProtocol, wake: at(2)},
		{name: "absent", in: Input{Member: MemberView{}.Gone(5, at(0))}, want: Create},
		{name: "holder empty", in: Input{Member: lease(holder(""))}, want: Acquire},
		{name: "holder self", in: Input{Member: lease(nil)}, want: Acquire},
		{name: "holder ended", in: Input{Member: lease(func(v *MemberView) { v.Holder, v.Ended = "a_0", []string{"a_0"} })}, want: Acquire, ended: []string{"a_0"}},
		{name: "predecessor alive", in: Input{Member: other, Now: at(14.9)}, want: Wait, reason: ReasonHeld, wake: at(15)},
		{name: "predecessor silent", in: Input{Member: other, Now: at(15)}, want: Acquire, ended: []string{"a_0"}},
		{name: "predecessor promised more", in: Input{Member: lease(func(v *MemberView) { v.Holder, v.Duration = "a_0", time.Minute }), Now: at(15)}, want: Wait, reason: ReasonHeld, wake: at(60)},
		{name: "busy", in: Input{Member: lease(holder("")), Busy: true}, want: Wait},
		{name: "failed just now", in: Input{Member: lease(holder("")), State: State{NotBefore: at(2)}}, want: Wait, wake: at(2)},

		{name: "first heartbeat not confirmed", in: Input{State: first, Member: lease(nil), Now: at(0.2), Through: 6}, want: Wait, phase: Live, wake: at(2.1)},
		{name: "first heartbeat confirmed", in: Input{State: first, Member: lease(nil), Now: at(0.2), Through: 7}, want: Wait, phase: Live, until: at(10), wake: at(2)},
		{name: "first heartbeat never confirmed", in: Input{State: first, Member: lease(nil), Now: at(10), Through: 7}, want: End, phase: Over, reason: ReasonRenewDeadline},
		{name: "deadline", in: Input{State: live, Member: lease(nil), Now: at(10)}, want: End, phase: Over, reason: ReasonRenewDeadline},
		{name: "confirmed too late", in: Input{State: pending, Member: lease(nil), Now: at(10), Through: 9}, want: End, phase: Over, reason: ReasonRenewDeadline},
		{name: "struck", in: Input{State: live, Member: lease(ended("a_1"))}, want: End, phase: Over, reason: ReasonStruck},
		{name: "emptied", in: Input{State: live, Member: lease(holder(""))}, want: End, phase: Over, reason: ReasonCleared},
		{name: "other holder", in: Input{State: live, Member: lease(holder("a_2"))}, want: End, phase: Over, reason: ReasonOtherHolder},
		{name: "leaves", in: Input{State: live, Member: lease(nil)}, left: true, want: End, phase: Over, reason: ReasonLeft},
		{name: "leaves with a claim", in: Input{State: live, Member: lease(nil), Holding: true, Now: at(2)}, left: true, want: Renew, phase: Live, until: at(10)},
		{name: "deleted", in: Input{State: live, Member: lease(ended("a_0")).Gone(8, at(1)), Now: at(1)}, want: Create, phase: Live, until: at(10), ended: []string{"a_0"}},
		{name: "pending", in: Input{State: pending, Member: lease(nil), Now: at(4), Through: 8}, want: Wait, phase: Live, until: at(10), wake: at(4.1)},
		{name: "pending for long", in: Input{State: pending, Member: lease(nil), Now: at(4.1), Through: 8}, want: Read, phase: Live, until: at(10)},
		{name: "pending near the deadline", in: Input{State: State{Phase: Live, Confirmed: at(0), Sent: at(5.5), Pending: Beat{Start: at(5.5), Answered: at(5.9), Version: 9}}, Member: lease(nil), Now: at(7.3), Through: 8, Turned: at(6)}, want: Read, phase: Live, until: at(10)},
		{name: "the watch lags", in: Input{State: State{Phase: Live, Confirmed: at(0), Sent: at(2), Pending: Beat{Start: at(2), Answered: at(2.1), Version: 9, Through: 7}}, Member: lease(nil), Now: at(5.9), Through: 8}, want: Wait, phase: Live, until: at(10), wake: at(6)},
		{name: "the watch lags for long", in: Input{State: State{Phase: Live, Confirmed: at(0), Sent: at(2), Pending: Beat{Start: at(2), Answered: at(2.1), Version: 9, Through: 7}}, Member: lease(nil), Now: at(6), Through: 8}, want: Read, phase: Live, until: at(10)},
		{name: "the watch hangs", in: Input{State: State{Phase: Live, Confirmed: at(0), Sent: at(2), Pending: Beat{Start: at(2), Answered: at(2.1), Version: 9, Through: 7}}, Member: lease(nil), Now: at(4.1), Through: 7}, want: Read, phase: Live, until: at(10)},
		{name: "answered late, no read due yet", in: Input{State: State{Phase: Live, Confirmed: at(0), Sent: at(6.9), Pending: Beat{Start: at(6.9), Answered: at(7), Version: 9}}, Member: lease(nil), Now: at(7.9), Through: 8, Turned: at(7), Spread: 0}, want: Wait, phase: Live, until: at(10), wake: at(8)},
		{name: "answered late, the first to read", in: Input{State: State{Phase: Live, Confirmed: at(0), Sent: at(6.9), Pending: Beat{Start: at(6.9), Answered: at(7), Version: 9}}, Member: lease(nil), Now: at(8), Through: 8, Turned: at(7), Spread: 0}, want: Read, phase: Live, until: at(10)},
		{name: "answered late, not the first to read", in: Input{State: State{Phase: Live, Confirmed: at(0), Sent: at(6.9), Pending: Beat{Start: at(6.9), Answered: at(7), Version: 9}}, Member: lease(nil), Now: at(8.4), Through: 8, Turned: at(7), Spread: 0.5}, want: Wait, phase: Live, until: at(10), wake: at(8.5)},
		{name: "answered late, one of the last to read", in: Input{State: State{Phase: Live, Confirmed: at(0), Sent: at(6.9), Pending: Beat{Start: at(6.9), Answered: at(7), Version: 9}}, Member: lease(nil), Now: at(8.95), Through: 8, Turned: at(7), Spread: 0.95}, want: Read, phase: Live, until: at(10)},
		{name: "confirmed", in: Input{State: pending, Member: lease(nil), Now: at(4.1), Through: 9}, want: Renew, phase: Live, until: at(12)},
		{name: "not due", in: Input{State: live, Member: lease(nil), Now: at(1.9)}, want: Wait, phase: Live, until: at(10), wake: at(2)},
		{name: "loops hang", in: Input{State: live, Member: lease(nil), Now: at(3), Turned: at(-1)}, want: Wait, phase: Live, until: at(10), reason: ReasonHung, wake: at(10)},
		{name: "due", in: Input{State: live, Member: lease(nil), Now: at(2)}, want: Renew, phase: Live, until: at(10)},
		{name: "due, after a failure", in: Input{State: failed, Member: lease(nil), Now: at(2)}, want: Wait, phase: Live, until: at(10), wake: at(4)},
		{name: "somebody has ended", in: Input{State: live, Member: lease(ended("a_0")), Now: at(2), Through: 6}, want: Renew, phase: Live, until: at(10), ended: []string{"a_0"}},
		{name: "and is named", in: Input{State: live, Member: lease(ended("a_0")), Now: at(2), Through: 7, Named: []string{"a_0"}}, want: Renew, phase: Live, until: at(10), ended: []string{"a_0"}},
		{name: "and is named by nobody", in: Input{State: live, Member: lease(ended("a_0")), Now: at(2), Through: 7}, want: Renew, phase: Live, until: at(10)},

		{name: "over", in: Input{State: State{Phase: Over}, Member: lease(nil)}, want: Release, phase: Over, ended: []string{"a_1"}},
		{name: "over, work runs", in: Input{State: State{Phase: Over}, Member: lease(nil), Holding: true}, want: Wait, phase: Over},
		{name: "over, replaced", in: Input{State: State{Phase: Over}, Member: lease(holder("a_2"))}, want: Wait, phase: Over},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			in := tc.in
			in.Self, in.Timing, in.Want = "a_1", defaultTiming, !tc.left
			if in.Now.IsZero() {
				in.Now = at(0)
			}
			if in.Turned.IsZero() {
				in.Turned = in.Now
			}
			out := Step(in)
			if out.Action != tc.want || out.State.Phase != tc.phase || out.Reason != tc.reason {
				t.Fatalf("%v, %v, %q, want %v, %v, %q", out.Action, out.State.Phase, out.Reason, tc.want, tc.phase, tc.reason)
			}
			if !out.Right.Until.Equal(tc.until) {
				t.Errorf("right until %v, want %v", out.Right.Until, tc.until)
			}
			if out.Action == Wait && tc.phase != Over && !out.Wake.Equal(tc.wake) {
				t.Errorf("wakes at %v, want %v", out.Wake, tc.wake)
			}
			checkWritten(t, in, out, tc.ended)
		})
	}
}

// checkWritten checks what a step would write.
func checkWritten(t *testing.T, in Input, out Output, ended []string) {
	t.Helper()
	want := MemberRecord{Version: 7, UID: "u", Holder: "a_1", Beat: in.Now.UnixMicro(), Ended: ended, Duration: 15 * time.Second, Protocol: Protocol}
	switch out.Action {
	case Create:
		want.Version, want.UID = 0, ""
	case Acquire, Renew:
	case Release:
		want.Holder, want.Beat = "", 1
	default:
		want = MemberRecord{}
	}
	if !reflect.DeepEqual(out.Member, want) {
		t.Errorf("writes %+v, want %+v", out.Member, want)
	}
}

// TestLateAnswersDoNotCount checks that a right never revives.
func TestLateAnswersDoNotCount(t *testing.T) {
	over := State{Phase: Over}
	if got := over.Beaten(at(1), at(2), 9); !reflect.DeepEqual(got, over) {
		t.Errorf("after the end: %+v", got)
	}
	s := live.Beaten(at(9), at(11), 9)
	out := Step(Input{Self: "a_1", Now: at(11), Want: true, Member: lease(nil), Through: 9, State: s, Timing: defaultTiming, Turned: at(11)})
	if out.Action != End {
		t.Errorf("after the deadline: %v", out.Action)
	}
}

// TestClaimStep covers the table in ClaimStep's comment, row by row.
func TestClaimStep(t *testing.T) {
	shard := func(holder string, term int32, released bool) ShardView {
		return ShardView{ShardRecord: ShardRecord{Version: 3, UID: "s", Holder: holder, Term: term, Released: released}, Exists: true, Seen: at(-100), HighTerm: term}
	}
	fresh := func(v ShardView) ShardView {
		v.Seen = at(0)
		return v
	}
	held := ClaimState{Phase: Held, Term: 4, Asked: 4}
	right := Right{Until: at(20)}
	gone := ShardView{}.Gone(3, at(0))
	gone.HighTerm = 4
	tests := []struct {
		name   string
		in     ClaimInput
		leave  bool // Leave; with neither leave nor keep, Want
		keep   bool
		want   ClaimAction
		phase  ClaimPhase
		reason Reason
		term   int32
		wake   time.Time
	}{
		{name: "held, right over", in: ClaimInput{State: held, Right: Right{Until: at(0)}, Shard: shard("a_1", 4, false)}, want: ClaimEnd, reason: ReasonRenewDeadline},
		{name: "held, emptied", in: ClaimInput{State: held, Shard: shard("", 4, false)}, want: ClaimEnd, reason: ReasonCleared},
		{name: "held, other holder", in: ClaimInput{State: held, Shard: shard("b_1", 5, false)}, want: ClaimEnd, reason: ReasonOtherHolder},
		{name: "held, another term", in: ClaimInput{State: held, Shard: shard("a_1", 5, false)}, want: ClaimEnd, reason: ReasonTermChanged},
		{name: "held, leave", in: ClaimInput{State: held, Shard: shard("a_1", 4, false)}, leave: true, want: ClaimEnd, reason: ReasonDrained},
		{name: "held, leave, works", in: ClaimInput{State: held, Shard: shard("a_1", 4, false), Working: true}, leave: true, want: ClaimWait, phase: Held, wake: at(20)},
		{name: "held, keep", in: ClaimInput{State: held, Shard: shard("a_1", 4, false)}, keep: true, want: ClaimWait, phase: Held, wake: at(20)},
		{name: "held, deleted", in: ClaimInput{State: held, Shard: gone}, want: ClaimCreate, phase: Held, term: 4},
		{name: "held", in: ClaimInput{State: held, Shard: shard("a_1", 4, false)}, want: ClaimWait, phase: Held, wake: at(20)},

		{name: "unwanted, self", in: ClaimInput{Shard: fresh(shard("a_1", 4, false)), State: ClaimState{Asked: 4}}, leave: true, want: ClaimRelease, term: 4},
		{name: "unwanted, forged as self", in: ClaimInput{Shard: fresh(shard("a_1", 4, false)), Now: at(14)}, leave: true, want: ClaimWait, wake: at(15)},
		{name: "unwanted, forged as self without a term", in: ClaimInput{Shard: fresh(shard("a_1", 0, false)), Now: at(14)}, leave: true, want: ClaimWait, wake: at(15)},
		{name: "unwanted, forged as self long ago", in: ClaimInput{Shard: fresh(shard("a_1", 4, false)), Now: at(15)}, leave: true, want: ClaimRelease, term: 4},
		{name: "unwanted, self, works", in: ClaimInput{Shard: shard("a_1", 4, false), Working: true}, leave: true, want: ClaimWait},
		{name: "unwanted, self, without a right", in: ClaimInput{Shard: shard("a_1", 4, false), Right: Right{Until: at(0)}}, leave: true, want: ClaimRelease, term: 4},
		{name: "unwanted", in: ClaimInput{Shard: shard("", 4, true)}, keep: true, want: ClaimWait},
		{name: "earlier work runs", in: ClaimInput{Shard: shard("", 4, true), Working: true}, want: ClaimWait},
		{name: "no right", in: ClaimInput{Shard: shard("", 4, true), Right: Right{Until: at(0)}}, want: ClaimWait, reason: ReasonNoRight},
		{name: "nothing known", in: ClaimInput{}, want: ClaimWait, reason: ReasonUnknown},
		{name: "no terms left", in: ClaimInput{Shard: shard("", 1<<31-1, true)}, want: ClaimWait, reason: ReasonTermsExhausted},
		{name: "absent", in: ClaimInput{Shard: gone, Now: at(14)}, want: ClaimWait, reason: ReasonAbsent, wake: at(15)},
		{name: "absent for long", in: ClaimInput{Shard: gone, Now: at(15)}, want: ClaimCreate, term: 5},
		{name: "released", in: ClaimInput{Shard: fresh(shard("", 4, true))}, want: ClaimAcquire, term: 5},
		{name: "answer lost", in: ClaimInput{Shard: fresh(shard("a_1", 4, false)), State: ClaimState{Asked: 4}}, want: ClaimAcquire, term: 5},
		{name: "emptied", in: ClaimInput{Shard: fresh(shard("", 4, false)), Now: at(14)}, want: ClaimWait, reason: ReasonHeld, wake: at(15)},
		{name: "emptied long ago", in: ClaimInput{Shard: fresh(shard("", 4, false)), Now: at(15)}, want: ClaimAcquire, term: 5},
		{name: "forged as self", in: ClaimInput{Shard: fresh(shard("a_1", 4, false)), Now: at(14)}, want: ClaimWait, reason: ReasonHeld, wake: at(15)},
		{name: "forged as self without a term", in: ClaimInput{Shard: fresh(shard("a_1", 0, false)), Now: at(14)}, want: ClaimWait, reason: ReasonHeld, wake: at(15)},
		{name: "nonsense", in: ClaimInput{Shard: fresh(shard("nobody", 4, false)), Now: at(14)}, want: ClaimWait, reason: ReasonHeld, wake: at(15)},
		{name: "nonsense long ago", in: ClaimInput{Shard: fresh(shard("nobody", 4, false)), Now: at(15)}, want: ClaimAcquire, term: 5},
		{name: "holder has ended", in: ClaimInput{Shard: shard("b_1", 4, false), Ended: true}, want: ClaimAcquire, term: 5},
		{name: "holder has not ended", in: ClaimInput{Shard: shard("b_1", 4, false), Now: at(19)}, want: ClaimWait, reason: ReasonHeld},
		{name: "busy", in: ClaimInput{Shard: shard("", 4, true), Busy: true}, want: ClaimWait},
		{name: "failed just now", in: ClaimInput{Shard: shard("", 4, true), State: ClaimState{NotBefore: at(2)}}, want: ClaimWait, wake: at(2)},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			in := tc.in
			in.Self, in.Timing = "a_1", defaultTiming
			if in.Now.IsZero() {
				in.Now = at(0)
			}
			if in.Right.Until.IsZero() {
				in.Right = right
			}
			in.Want, in.Leave = !tc.leave && !tc.keep, tc.leave
			out := ClaimStep(in)
			if out.Action != tc.want || out.State.Phase != tc.phase || out.Reason != tc.reason {
				t.Fatalf("%v, %v, %q, want %v, %v, %q", out.Action, out.State.Phase, out.Reason, tc.want, tc.phase, tc.reason)
			}
			if out.Shard.Term != tc.term || out.Action == ClaimAcquire && (out.Shard.Version != 3 || out.State.Asked != tc.term) {
				t.Errorf("writes %+v with Asked %d, want term %d", out.Shard, out.State.Asked, tc.term)
			}
			if out.Action == ClaimWait && !out.Wake.Equal(tc.wake) {
				t.Errorf("wakes at %v, want %v", out.Wake, tc.wake)
			}
		})
	}
}

// TestJudgeStep covers the table in JudgeStep's comment, row by row.
func TestJudgeStep(t *testing.T) {
	b := func(change func(*MemberView)) MemberView {
		v := lease(func(v *MemberView) { v.Holder = "b_1" })
		if change != nil {
			change(&v)
		}
		return v
	}
	long := map[string]time.Time{"b_1": at(-100)}
	older := map[string]time.Time{"b_0": at(-100)}
	tests := []struct {
		name string
		in   JudgeInput
		want JudgeAction
		dead string
		wake time.Time
	}{
		{name: "no right", in: JudgeInput{Member: b(nil), Holders: long, Now: at(15), Right: Right{Until: at(15)}}},
		{name: "nothing known", in: JudgeInput{Holders: long, Now: at(15)}},
		{name: "nobody to judge", in: JudgeInput{Member: b(nil), Now: at(15)}},
		{name: "has ended", in: JudgeInput{Member: b(func(v *MemberView) { v.Ended = []string{"b_1"} }), Holders: long, Now: at(15)}},
		{name: "lives", in: JudgeInput{Member: b(nil), Holders: long, Now: at(14)}, wake: at(15)},
		{name: "silent", in: JudgeInput{Member: b(nil), Holders: long, Now: at(15)}, want: JudgeStrike, dead: "b_1"},
		{name: "silent, of a longer Lease", in: JudgeInput{Member: b(func(v *MemberView) { v.Duration = 20 * time.Second }), Holders: long, Now: at(15)}, wake: at(20)},
		{name: "silent, others come first", in: JudgeInput{Member: b(nil), Holders: long, Now: at(15), Delay: time.Second}, wake: at(16)},
		{name: "silent, busy", in: JudgeInput{Member: b(nil), Holders: long, Now: at(15), Busy: true}},
		{name: "silent, failed just now", in: JudgeInput{Member: b(nil), Holders: long, Now: at(15), NotBefore: at(17)}, wake: at(17)},
		{name: "replaced just now", in: JudgeInput{Member: b(func(v *MemberView) { v.Seen = at(14) }), Holders: older, Now: at(14)}, wake: at(15)},
		{name: "replaced long ago", in: JudgeInput{Member: b(func(v *MemberView) { v.Seen = at(14) }), Holders: older, Now: at(15)}, want: JudgeStrike, dead: "b_0"},
		{name: "name just written", in: JudgeInput{Member: b(func(v *MemberView) { v.HolderSeen = at(-100) }), Holders: map[string]time.Time{"b_0": at(0)}, Now: at(14)}, wake: at(15)},
		{name: "released, and another name just written", in: JudgeInput{Member: b(func(v *MemberView) { v.Holder, v.Seen = "", at(-100) }), Holders: map[string]time.Time{"b_0": at(0)}, Now: at(14)}, wake: at(15)},
		{name: "the second of two", in: JudgeInput{Member: b(func(v *MemberView) { v.Ended = []string{"b_0"} }), Holders: map[string]time.Time{"b_0": at(-9), "b_1": at(-9)}, Now: at(15)}, want: JudgeStrike, dead: "b_1"},
		{name: "gone", in: JudgeInput{Member: MemberView{}.Gone(3, at(0)), Holders: long, Now: at(1)}, wake: at(2)},
		{name: "gone for long", in: JudgeInput{Member: MemberView{}.Gone(3, at(0)), Holders: long, Now: at(2)}, want: JudgeRestore, dead: "b_1"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			in := tc.in
			in.Timing = defaultTiming
			if in.Right.Until.IsZero() {
				in.Right = Right{Until: at(100)}
			}
			out := JudgeStep(in)
			if out.Action != tc.want || out.Dead != tc.dead || !out.Wake.Equal(tc.wake) {
				t.Fatalf("%v of %q, wakes at %v, want %v of %q, %v", out.Action, out.Dead, out.Wake, tc.want, tc.dead, tc.wake)
			}
			checkJudged(t, in, out)
		})
	}
}

// checkJudged checks what a judge would write.
func checkJudged(t *testing.T, in JudgeInput, out JudgeOutput) {
	t.Helper()
	switch out.Action {
	case JudgeStrike:
		if !out.Member.HasEnded(out.Dead) || out.Member.Version != in.Member.Version || out.Member.Beat != in.Member.Beat || out.Member.Holder == out.Dead {
			t.Errorf("strikes with %+v", out.Member)
		}
	case JudgeRestore:
		if out.Member.Holder != out.Dead || out.Member.Version != 0 || out.Member.HasEnded(out.Dead) {
			t.Errorf("restores %+v", out.Member)
		}
	default:
		if !reflect.DeepEqual(out.Member, MemberRecord{}) {
			t.Errorf("writes %+v", out.Member)
		}
	}
}

// TestKnowledgeNeverGoesBack checks that older versions change nothing, and which changes count as
// a heartbeat.
func TestKnowledgeNeverGoesBack(t *testing.T) {
	v := lease(nil)
	if got := v.Saw(MemberRecord{Version: 7, Holder: "x"}, at(1)); !reflect.DeepEqual(got, v) {
		t.Errorf("recorded the same version: %+v", got)
	}
	if got := v.Gone(7, at(1)); !reflect.DeepEqual(got, v) {
		t.Errorf("recorded an old deletion: %+v", got)
	}
	drained := v.MemberRecord
	drained.Version = 8
	if got := v.Saw(drained, at(1)); !got.Seen.Equal(v.Seen) {
		t.Error("a change that is not a heartbeat counts as one")
	}
	again := drained
	again.UID = "another"
	if got := v.Saw(again, at(1)); !got.Seen.Equal(at(1)) || !got.HolderSeen.Equal(at(1)) {
		t.Error("a recreated Lease counts as the deleted one")
	}
	shard := ShardView{}.Saw(ShardRecord{Version: 3, Term: 4}, at(0)).Gone(5, at(1))
	if shard.HighTerm != 4 || shard.Exists || !shard.Seen.Equal(at(1)) {
		t.Errorf("after a deletion: %+v", shard)
	}
	if got := shard.Saw(ShardRecord{Version: 4, Term: 9}, at(2)); !reflect.DeepEqual(got, shard) {
		t.Errorf("recorded a version from before the deletion: %+v", got)
	}
}

// TestForeign checks which members' fleet a member refuses to join.
func TestForeign(t *testing.T) {
	old := lease(func(v *MemberView) { v.Protocol = 1 })
	for name, tc := range map[string]struct {
		view MemberView
		now  time.Time
		want bool
	}{
		"another protocol":           {old, at(14.9), true},
		"another protocol, expired":  {old, at(15), false},
		"another protocol, released": {lease(func(v *MemberView) { v.Protocol, v.Holder = 1, "" }), at(0), false},
		"the same protocol":          {lease(nil), at(0), false},
		"absent":                     {old.Gone(9, at(0)), at(0), false},
	} {
		if got := tc.view.Foreign(tc.now, 15*time.Second); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
