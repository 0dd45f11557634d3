package election

import (
	"math"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
)

const (
	self  = "a_1"
	other = "b_1"
)

var (
	timing = DefaultTiming()
	epoch  = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
)

// at returns a time, in seconds after the epoch.
func at(seconds float64) time.Time {
	return epoch.Add(time.Duration(seconds * float64(time.Second)))
}

// seen returns an existing Lease of holder and term whose spec last changed at the given second.
// Without a holder it is released.
func seen(holder string, term int32, second float64) Observation {
	o := emptied(holder, term, second)
	if holder == "" {
		o.Annotations = map[string]string{leaserecord.ReleasedAnnotation: strconv.Itoa(int(term))}
	}
	return o
}

// emptied is like seen, but without a holder the Lease is not released.
func emptied(holder string, term int32, second float64) Observation {
	return Observation{
		Record:     leaserecord.Record{Name: "f-s", Holder: holder, Transitions: term, Duration: 15 * time.Second, ResourceVersion: "7"},
		Exists:     true,
		Seen:       at(second),
		HolderSeen: at(second),
		HighTerm:   term,
	}
}

func absent(second float64, highTerm int32) Observation {
	return Observation{Record: leaserecord.Record{Name: "f-s"}, Seen: at(second), HighTerm: highTerm}
}

// ended returns obs with its holder listed as ended.
func ended(obs Observation) Observation {
	member := leaserecord.Record{Annotations: map[string]string{leaserecord.EndedAnnotation: obs.Holder}}
	obs.Heartbeat = &Observation{Record: member, Exists: true, Seen: at(100)}
	return obs
}

func askedBy(who string, obs Observation) Observation {
	obs.Annotations = map[string]string{leaserecord.NextHolderAnnotation: who}
	return obs
}

// TestStep covers every row of the table in Step's comment, with its edge cases. Now is second 100.
// A held claim has term 5, and the last heartbeat was confirmed at second 99, unless the row says
// otherwise. A drain may take 20 seconds.
func TestStep(t *testing.T) {
	holding := func(phase ClaimPhase, renewed float64) State {
		return State{Phase: phase, Term: 5, LastRenew: at(renewed)}
	}
	draining := func(renewed, since float64) State {
		return State{Phase: Draining, Term: 5, LastRenew: at(renewed), DrainingSince: at(since)}
	}
	lost := State{Phase: Lost, Term: 5, LastRenew: at(90), EndedAt: at(100)}
	mine := seen(self, 5, 99)
	high := func(obs Observation, term int32) Observation {
		obs.HighTerm = term
		return obs
	}
	for name, tc := range map[string]struct {
		in   Input
		dead bool   // the member has no right
		want Output // Term, LastRenew and, in Idle, NotBefore are the input's.
	}{
		"idle, nothing known": {
			in:   Input{Desired: Held},
			want: Output{Action: Wait, Reason: ReasonUnknown},
		},
		"idle, absent for too short": {
			in:   Input{Desired: Held, Observation: absent(86, 3)},
			want: Output{Action: Wait, Reason: ReasonAbsent, Wake: at(101)},
		},
		"idle, absent for long enough": {
			in:   Input{Desired: Held, Observation: absent(85, 3)},
			want: Output{Action: Create, Term: 4, State: State{TermAsked: 4}},
		},
		"idle, free": {
			in:   Input{Desired: Held, Observation: seen("", 8, 100)},
			want: Output{Action: Acquire, Term: 9, State: State{TermAsked: 9}},
		},
		"idle, unwanted, acquisition unanswered": {
			in:   Input{Observation: seen("", 8, 99), Unanswered: true, State: State{TermAsked: 9}},
			want: Output{Action: Release, Term: 9, State: State{TermAsked: 9}},
		},
		"idle, unwanted, acquisition unanswered, after a failure": {
			in:   Input{Observation: seen("", 8, 99), Unanswered: true, State: State{TermAsked: 9, NotBefore: at(101)}},
			want: Output{Action: Wait, State: State{TermAsked: 9, NotBefore: at(101)}, Wake: at(101)},
		},
		"idle, unwanted, acquisition unanswered, listed as ended by now": {
			in:   Input{Observation: seen("", 8, 99), Unanswered: true, State: State{TermAsked: 9}, Confirmed: at(85)},
			want: Output{Action: Wait, Settled: true, State: State{TermAsked: 9}},
		},
		"idle, wanted, acquisition unanswered": {
			in:   Input{Desired: Held, Observation: seen("", 8, 99), Unanswered: true, State: State{TermAsked: 9}},
			want: Output{Action: Acquire, Term: 9, State: State{TermAsked: 9}},
		},
		"idle, free, no right": {
			in:   Input{Desired: Held, Observation: seen("", 8, 100)},
			dead: true,
			want: Output{Action: Wait, Reason: ReasonNoRight, Wake: at(102)},
		},
		"idle, free, the right is over": {
			in:   Input{Desired: Held, Observation: seen("", 8, 100), Confirmed: at(90)},
			want: Output{Action: Wait, Reason: ReasonNoRight, Wake: at(102)},
		},
		"idle, free, terms were turned back": {
			in:   Input{Desired: Held, Observation: high(seen("", 1, 100), 8)},
			want: Output{Action: Acquire, Term: 9, State: State{TermAsked: 9}},
		},
		"idle, emptied": {
			in:   Input{Desired: Held, Observation: emptied("", 8, 86)},
			want: Output{Action: Wait, Reason: ReasonHeld, Wake: at(101)},
		},
		"idle, emptied long ago": {
			in:   Input{Desired: Held, Observation: emptied("", 8, 85)},
			want: Output{Action: Acquire, Term: 9, State: State{TermAsked: 9}},
		},
		"idle, names self from an earlier claim": {
			in:   Input{Desired: Held, Observation: mine, State: State{Term: 5, TermAsked: 5}},
			want: Output{Action: Acquire, Term: 6, State: State{TermAsked: 6}},
		},
		"idle, names self in a term that was never asked for": {
			in:   Input{Desired: Held, Observation: mine, State: State{Term: 4, TermAsked: 4}},
			want: Output{Action: Wait, Reason: ReasonHeld, Wake: at(114), State: State{TermAsked: 4}},
		},
		"idle, held by another, however long": {
			in:   Input{Desired: Held, Observation: seen(other, 8, 1)},
			want: Output{Action: Wait, Reason: ReasonHeld},
		},
		"idle, held by another that has ended": {
			in:   Input{Desired: Held, Observation: ended(seen(other, 8, 99))},
			want: Output{Action: Acquire, Term: 9, State: State{TermAsked: 9}},
		},
		"idle, held by a non-member": {
			in:   Input{Desired: Held, Observation: seen("somebody", 8, 85.5)},
			want: Output{Action: Wait, Reason: ReasonHeld, Wake: at(100.5)},
		},
		"idle, held by a non-member, expired": {
			in:   Input{Desired: Held, Observation: seen("somebody", 8, 85)},
			want: Output{Action: Acquire, Term: 9, State: State{TermAsked: 9}},
		},
		"idle, held by another, ready to ask": {
			in:   Input{Desired: Held, Ask: true, Observation: seen(other, 8, 99)},
			want: Output{Action: Ask, Term: 8, State: State{Asked: at(100)}},
		},
		"idle, held by another, asked long ago and overwritten": {
			in:   Input{Desired: Held, Ask: true, Observation: askedBy(other, seen(other, 8, 99)), State: State{Asked: at(98)}},
			want: Output{Action: Ask, Term: 8, State: State{Asked: at(100)}},
		},
		"idle, held by another, asked just now and overwritten": {
			in:   Input{Desired: Held, Ask: true, Observation: askedBy(other, seen(other, 8, 99)), State: State{Asked: at(99)}},
			want: Output{Action: Wait, Reason: ReasonHeld, Wake: at(101), State: State{Asked: at(99)}},
		},
		"idle, held by another, has asked": {
			in:   Input{Desired: Held, Ask: true, Observation: askedBy(self, seen(other, 8, 99))},
			want: Output{Action: Wait, Reason: ReasonHeld},
		},
		"idle, held by another, has asked and does not any more": {
			in:   Input{Desired: Held, Observation: askedBy(self, seen(other, 8, 99))},
			want: Output{Action: Unask, Term: 8},
		},
		"idle, held by another, has asked and does not want it any more": {
			in:   Input{Desired: Retained, Ask: true, Observation: askedBy(self, seen(other, 8, 99))},
			want: Output{Action: Unask, Term: 8},
		},
		"idle, held by another, does not ask any more, busy": {
			in:   Input{Observation: askedBy(self, seen(other, 8, 99)), Busy: true},
			want: Output{Action: Wait},
		},
		"idle, held by another, does not ask any more, after a failure": {
			in:   Input{Observation: askedBy(self, seen(other, 8, 99)), State: State{NotBefore: at(101)}},
			want: Output{Action: Wait, Wake: at(101), State: State{NotBefore: at(101)}},
		},
		"idle, held by another, does not ask any more, no right": {
			in:   Input{Observation: askedBy(self, seen(other, 8, 99))},
			dead: true,
			want: Output{Action: Wait, Settled: true},
		},
		"idle, released, has asked": {
			in:   Input{Observation: askedBy(self, seen("", 8, 99))},
			want: Output{Action: Wait, Settled: true},
		},
		"idle, held by another, ready to ask, busy": {
			in:   Input{Desired: Held, Ask: true, Observation: seen(other, 8, 99), Busy: true},
			want: Output{Action: Wait, Reason: ReasonHeld},
		},
		"idle, held by another, ready to ask, not wanted": {
			in:   Input{Desired: Retained, Ask: true, Observation: seen(other, 8, 99)},
			want: Output{Action: Wait, Settled: true},
		},
		"idle, free, kept only if held": {
			in:   Input{Desired: Retained, Observation: seen("", 8, 99)},
			want: Output{Action: Wait, Settled: true},
		},
		"running, kept until asked": {
			in:   Input{Desired: Retained, Observation: askedBy(other, mine), State: holding(Running, 99)},
			want: Output{Action: Wait, Wake: at(101), State: holding(Running, 99)},
		},
		"idle, no term left": {
			in:   Input{Desired: Held, Observation: seen("", math.MaxInt32, 0)},
			want: Output{Action: Wait, Reason: ReasonTermsExhausted},
		},
		"idle, busy": {
			in:   Input{Desired: Held, Observation: seen("", 8, 100), Busy: true},
			want: Output{Action: Wait},
		},
		"idle, after a failure": {
			in:   Input{Desired: Held, Observation: seen("", 8, 100), State: State{NotBefore: at(101)}},
			want: Output{Action: Wait, Wake: at(101)},
		},
		"idle, revoked": {
			in:   Input{Desired: Held, Revoked: true, Observation: seen("", 8, 100)},
			want: Output{Action: Wait, Settled: true},
		},
		"idle, leave, names self": {
			in:   Input{Observation: mine, State: State{TermAsked: 5}},
			want: Output{Action: Release, Term: 5, State: State{TermAsked: 5}},
		},
		"idle, leave, names self, no right": {
			in:   Input{Observation: mine, State: State{TermAsked: 5}},
			dead: true,
			want: Output{Action: Release, Term: 5, State: State{TermAsked: 5}},
		},
		"idle, leave, names self, may be listed as ended": {
			in:   Input{Observation: mine, State: State{TermAsked: 5}, Confirmed: at(85)},
			want: Output{Action: Wait, Settled: true, State: State{TermAsked: 5}},
		},
		"idle, leave, names another": {
			in:   Input{Observation: seen(other, 5, 99)},
			want: Output{Action: Wait, Settled: true},
		},
		"idle, leave, busy": {
			in:   Input{Observation: seen(other, 5, 99), Busy: true},
			want: Output{Action: Wait},
		},

		"acquired": {
			in:   Input{Desired: Held, Observation: mine, State: holding(Acquired, 99)},
			want: Output{Action: Start, State: State{Phase: Running}},
		},
		"acquired, unwanted": {
			in:   Input{Observation: mine, State: holding(Acquired, 99)},
			want: Output{Action: End, Reason: ReasonUnwanted, State: State{Phase: Idle, EndedAt: at(100)}},
		},
		"acquired, but the answer was late": {
			in:   Input{Desired: Held, Observation: mine, State: holding(Acquired, 90)},
			want: Output{Action: End, Reason: ReasonRenewDeadline, State: State{Phase: Idle, EndedAt: at(100)}},
		},
		"acquired, but another has it already": {
			in:   Input{Desired: Held, Observation: seen(other, 6, 100), State: holding(Acquired, 99)},
			want: Output{Action: End, Reason: ReasonOtherHolder, State: State{Phase: Idle, EndedAt: at(100)}},
		},

		"running": {
			in:   Input{Desired: Held, Observation: mine, State: holding(Running, 99)},
			want: Output{Action: Wait, Wake: at(101), State: State{Phase: Running}},
		},
		"running, touched": {
			in:   Input{Desired: Held, Touch: true, Observation: mine, State: holding(Running, 99)},
			want: Output{Action: Renew, Term: 5, State: State{Phase: Running}},
		},
		"running, touched, busy": {
			in:   Input{Desired: Held, Touch: true, Busy: true, Observation: mine, State: holding(Running, 95)},
			want: Output{Action: Wait, Wake: at(101), State: State{Phase: Running}},
		},
		"running, touched, after a failure": {
			in: Input{Desired: Held, Touch: true, Observation: mine, State: State{Phase: Running, Term: 5, LastRenew: at(95), NotBefore: at(100.5)}},
			want: Output{Action: Wait, Wake: at(100.5),
				State: State{Phase: Running, NotBefore: at(100.5)}},
		},
		"running, just before the deadline": {
			in:   Input{Desired: Held, Observation: mine, State: holding(Running, 90.5)},
			want: Output{Action: Wait, Wake: at(100.5), State: State{Phase: Running}},
		},
		"running, no right": {
			in:   Input{Desired: Held, Observation: mine, State: holding(Running, 99)},
			dead: true,
			want: Output{Action: End, Reason: ReasonNoRight, State: State{Phase: Lost, EndedAt: at(100)}},
		},
		"running, deadline": {
			in:   Input{Desired: Held, Observation: mine, State: holding(Running, 90)},
			want: Output{Action: End, Reason: ReasonRenewDeadline, State: State{Phase: Lost, EndedAt: at(100)}},
		},
		"running, deadline, busy": {
			in:   Input{Desired: Held, Busy: true, Observation: mine, State: holding(Running, 90)},
			want: Output{Action: End, Reason: ReasonRenewDeadline, State: State{Phase: Lost, EndedAt: at(100)}},
		},
		"running, another holder": {
			in:   Input{Desired: Held, Observation: seen(other, 6, 100), State: holding(Running, 99)},
			want: Output{Action: End, Reason: ReasonOtherHolder, State: State{Phase: Lost, EndedAt: at(100)}},
		},
		"running, another holder, busy": {
			in:   Input{Desired: Held, Busy: true, Observation: seen(other, 6, 100), State: holding(Running, 99)},
			want: Output{Action: End, Reason: ReasonOtherHolder, State: State{Phase: Lost, EndedAt: at(100)}},
		},
		"running, holder cleared": {
			in:   Input{Desired: Held, Observation: seen("", 5, 100), State: holding(Running, 99)},
			want: Output{Action: End, Reason: ReasonCleared, State: State{Phase: Lost, EndedAt: at(100)}},
		},
		"running, another term": {
			in:   Input{Desired: Held, Observation: seen(self, 4, 100), State: holding(Running, 99)},
			want: Output{Action: End, Reason: ReasonTermChanged, State: State{Phase: Lost, EndedAt: at(100)}},
		},
		"running, revoked": {
			in:   Input{Desired: Held, Revoked: true, Observation: mine, State: holding(Running, 99)},
			want: Output{Action: End, Reason: ReasonRevoked, State: State{Phase: Lost, EndedAt: at(100)}},
		},
		"running, deleted": {
			in:   Input{Desired: Held, Observation: absent(100, 5), State: holding(Running, 99)},
			want: Output{Action: Create, Term: 5, State: State{Phase: Running}},
		},
		"running, deleted, busy": {
			in:   Input{Desired: Held, Busy: true, Observation: absent(100, 5), State: holding(Running, 99)},
			want: Output{Action: Wait, Wake: at(101), State: State{Phase: Running}},
		},
		"running, work returned by itself": {
			in:   Input{Desired: Held, Returned: true, Observation: mine, State: holding(Running, 99)},
			want: Output{Action: End, Reason: ReasonWorkReturned, State: State{Phase: Idle, EndedAt: at(100), NotBefore: at(102)}},
		},
		"running, work returned and lost": {
			in:   Input{Desired: Held, Returned: true, Observation: seen(other, 6, 100), State: holding(Running, 99)},
			want: Output{Action: End, Reason: ReasonOtherHolder, State: State{Phase: Idle, EndedAt: at(100)}},
		},
		"running, leave": {
			in:   Input{Observation: mine, State: holding(Running, 98)},
			want: Output{Action: Drain, State: draining(98, 100)},
		},
		"draining, touched": {
			in:   Input{Touch: true, Observation: mine, State: draining(98, 90)},
			want: Output{Action: Renew, Term: 5, State: draining(98, 90)},
		},
		"draining, wanted again": {
			in:   Input{Desired: Held, Observation: mine, State: draining(99, 90)},
			want: Output{Action: Wait, Wake: at(101), State: draining(99, 90)},
		},
		"draining, deadline": {
			in:   Input{Observation: mine, State: draining(90, 85)},
			want: Output{Action: End, Reason: ReasonRenewDeadline, State: State{Phase: Lost, DrainingSince: at(85), EndedAt: at(100)}},
		},
		"draining, returned": {
			in:   Input{Returned: true, Observation: mine, State: State{Phase: Draining, Term: 5, LastRenew: at(99), NotBefore: at(101)}},
			want: Output{Action: End, Reason: ReasonDrained, State: State{Phase: Idle, EndedAt: at(100)}},
		},
		"draining, its time is up soon": {
			in:   Input{Observation: mine, State: draining(99, 80.5)},
			want: Output{Action: Wait, Wake: at(100.5), State: draining(99, 80.5)},
		},
		"draining, its time is up": {
			in: Input{Observation: mine, State: draining(98, 80)},
			want: Output{Action: Stuck, State: State{
				Phase: Draining, DrainingSince: at(80), Warned: true,
			}},
		},
		"draining, its time is up, and the work has returned": {
			in:   Input{Returned: true, Observation: mine, State: draining(99, 80)},
			want: Output{Action: End, Reason: ReasonDrained, State: State{Phase: Idle, DrainingSince: at(80), EndedAt: at(100)}},
		},
		"draining, warned": {
			in: Input{Observation: mine, State: State{Phase: Draining, Term: 5, LastRenew: at(99), DrainingSince: at(80), Warned: true}},
			want: Output{Action: Wait, Wake: at(101), State: State{
				Phase: Draining, DrainingSince: at(80), Warned: true,
			}},
		},

		"lost, work runs": {
			in:   Input{Desired: Held, Observation: seen("", 5, 100), State: lost},
			want: Output{Action: Wait, Wake: at(105), State: State{Phase: Lost, EndedAt: at(100)}},
		},
		"lost, work returned": {
			in:   Input{Desired: Held, Returned: true, Observation: mine, State: lost},
			want: Output{Action: Rest, State: State{Phase: Idle, EndedAt: at(100)}},
		},
		"lost, work has not returned in time": {
			in:   Input{Observation: mine, State: State{Phase: Lost, Term: 5, LastRenew: at(85), EndedAt: at(95)}},
			want: Output{Action: Stuck, State: State{Phase: Lost, EndedAt: at(95), Warned: true}},
		},
		"lost, after a long suspend": {
			in:   Input{Observation: mine, State: State{Phase: Lost, Term: 5, LastRenew: at(5), EndedAt: at(99)}},
			want: Output{Action: Wait, Wake: at(104), State: State{Phase: Lost, EndedAt: at(99)}},
		},
		"lost while draining": { // A look now and then: DrainTimeout may change.
			in: Input{Observation: mine, State: State{Phase: Lost, Term: 5, LastRenew: at(95), DrainingSince: at(85), EndedAt: at(98)}},
			want: Output{Action: Wait, Wake: at(101), State: State{
				Phase: Lost, DrainingSince: at(85), EndedAt: at(98),
			}},
		},
		"lost as the drain ends": {
			in: Input{Observation: mine, State: State{Phase: Lost, Term: 5, LastRenew: at(95), DrainingSince: at(80), EndedAt: at(100)}},
			want: Output{Action: Stuck, State: State{
				Phase: Lost, DrainingSince: at(80), EndedAt: at(100), Warned: true,
			}},
		},
		"lost, suspended until just before the drain's end": {
			in: Input{Observation: mine, State: State{Phase: Lost, Term: 5, LastRenew: at(80), DrainingSince: at(80.5), EndedAt: at(100)}},
			want: Output{Action: Wait, Wake: at(101), State: State{
				Phase: Lost, DrainingSince: at(80.5), EndedAt: at(100),
			}},
		},
		"lost while draining, work has not returned in time": {
			in: Input{Observation: mine, State: State{Phase: Lost, Term: 5, LastRenew: at(95), DrainingSince: at(80), EndedAt: at(98)}},
			want: Output{Action: Stuck, State: State{
				Phase: Lost, DrainingSince: at(80), EndedAt: at(98), Warned: true,
			}},
		},
		"lost, suspended while draining": {
			in: Input{Observation: mine, State: State{Phase: Lost, Term: 5, LastRenew: at(5), DrainingSince: at(6), EndedAt: at(99)}},
			want: Output{Action: Wait, Wake: at(101), State: State{
				Phase: Lost, DrainingSince: at(6), EndedAt: at(99),
			}},
		},
		"lost, warned": {
			in:   Input{Observation: mine, State: State{Phase: Lost, Term: 5, LastRenew: at(85), EndedAt: at(95), Warned: true}},
			want: Output{Action: Wait, State: State{Phase: Lost, EndedAt: at(95), Warned: true}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			tc.in.Self, tc.in.Timing, tc.in.Now, tc.in.DrainTimeout = self, timing, at(100), 20*time.Second
			tc.in.Right = !tc.dead
			if !tc.in.State.LastRenew.IsZero() {
				tc.in.Confirmed = tc.in.State.LastRenew
			} else if tc.in.Confirmed.IsZero() {
				tc.in.Confirmed = at(99)
			}
			got := Step(tc.in)
			tc.want.State.Term, tc.want.State.LastRenew = tc.in.State.Term, tc.in.State.LastRenew
			if tc.in.State.Phase == Idle {
				tc.want.State.NotBefore = tc.in.State.NotBefore
			}
			if diff := cmp.Diff(tc.want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("Step() is not as wanted (-want +got):\n%s", diff)
			}
		})
	}
}

// TestStepInvariants tries every combination of a coarse input space, and checks only for outputs
// that must never happen.
func TestStepInvariants(t *testing.T) {
	seconds := []float64{80, 85, 86, 90, 91, 98, 99, 100}
	drains, ends := []float64{85, 99}, []float64{100, 94}
	observations := []Observation{{}, ended(seen(other, 5, 85)), ended(seen(other, 5, 99)), emptied("", 5, 85), emptied("", 5, 99)}
	for _, s := range seconds {
		observations = append(observations, absent(s, 5))
		for _, holder := range []string{"", self, other} {
			observations = append(observations, seen(holder, 4, s), seen(holder, 5, s), seen(holder, 6, s), askedBy(self, seen(holder, 5, s)))
		}
	}
	bools := []bool{false, true}
	count := 0
	for _, obs := range observations {
		for _, phase := range []ClaimPhase{Idle, Acquired, Running, Draining, Lost} {
			for _, renewed := range seconds {
				for flags := range 256 {
					in := Input{
						Self: self, Now: at(100), Timing: timing, Observation: obs, DrainTimeout: timing.LeaseDuration, Confirmed: at(renewed),
						Ask:     flags&1 != 0,
						Revoked: flags&2 != 0, Busy: flags&4 != 0, Returned: flags&8 != 0 && phase != Idle && phase != Acquired, Touch: flags&16 != 0,
						State: State{Phase: phase, Term: 5, LastRenew: at(renewed), EndedAt: at(ends[flags>>6&1]), DrainingSince: at(drains[flags>>5&1])},
					}
					if phase == Lost && flags&128 != 0 {
						in.State.DrainingSince = time.Time{} // it was not asked to stop
					}
					for _, in.Unanswered = range bools {
						for _, in.Right = range bools {
							for _, in.Desired = range []Desired{Released, Retained, Held} {
								checkInvariants(t, in, Step(in))
								count++
							}
						}
					}
				}
			}
		}
	}
	t.Logf("Checked %d inputs", count)
}

func checkInvariants(t *testing.T, in Input, out Output) {
	t.Helper()
	never := func(broken bool, what string) {
		if broken {
			t.Fatalf("%s:\nin  %+v\nout %+v", what, in, out)
		}
	}
	obs, request := in.Observation, out.Action == Create || out.Action == Acquire || out.Action == Renew || out.Action == Ask || out.Action == Unask || out.Action == Release
	claims := out.Action == Acquire || out.Action == Create && in.State.Phase == Idle
	heldByOther := obs.Exists && obs.Holder != "" && obs.Holder != in.Self
	never(request && in.Busy, "sent a request while one was under way")
	never(claims && in.State.Phase != Idle, "acquired while something was held or ran")
	never(claims && !in.want(), "acquired what is not wanted")
	never(claims && out.Term <= obs.HighTerm, "repeated a term")
	never(claims && heldByOther && !obs.HolderEnded(), "took from one that has not ended")
	never(claims && !obs.IsReleased() && !obs.HolderEnded() && in.Now.Sub(obs.Seen) < timing.LeaseDuration && obs.Holder != in.Self,
		"took a Lease that nobody has released and that was unchanged for too short")
	right := in.Right && in.Now.Before(in.Confirmed.Add(timing.RenewDeadline))
	never((claims || out.State.held() || out.Action == Start) && !right, "claimed without a right")
	never(claims && !obs.Known(), "acquired without knowing anything")
	never(out.Action == Create && obs.Exists, "created what exists")
	never((out.Action == Acquire || out.Action == Renew) && !obs.Exists, "updated what does not exist")
	never(out.Action == Renew && (obs.Holder != in.Self || obs.Transitions != in.State.Term), "renewed what it does not hold")
	never(out.Action == Release && in.State.Phase != Idle, "released before the work had stopped")
	never(out.Action == Release && obs.Holder != in.Self && !in.Unanswered, "released another's Lease")
	never(out.Action == Release && in.want(), "released what is wanted")
	never(out.Action == Unask && (!heldByOther || obs.NextHolder() != in.Self || in.Ask && in.want()), "withdrew a request that is not its own, or that stands")
	never(out.Action == Start && in.State.Phase != Acquired, "started work without a new claim")
	never(out.State.held() && !out.State.LastRenew.Equal(in.Confirmed), "did not keep the last heartbeat")
	never(out.State.held() && (heldByOther || obs.Exists && obs.Holder == ""), "kept the claim although the Lease names another")
	never(out.State.held() && in.Revoked, "kept the claim although revoked")
	never(out.State.held() && !in.State.held(), "held without a request")
	never(out.Action == Wait && in.State.held() && (out.Wake.IsZero() || out.Wake.After(in.Confirmed.Add(timing.RenewDeadline))), "would sleep through the deadline")
	never(out.Action == Wait && in.State.held() && out.Wake.Sub(in.Now) > timing.RetryPeriod, "would keep the heartbeat from being sent")
	drained := !in.Now.Before(in.State.DrainingSince.Add(in.DrainTimeout))
	never(out.Action == Wait && in.State.Phase == Draining && out.State.Phase == Draining && !out.State.Warned && drained, "drains without a bound")
	never(out.Action == Stuck && out.State.Phase == Draining && !drained, "is stuck before its time is up")
	expiry := in.State.LastRenew.Add(timing.LeaseDuration)
	most := later(expiry, in.State.EndedAt.Add(timing.LeaseDuration-timing.RenewDeadline))
	never(out.Action == Wait && out.State.Phase == Lost && !out.State.Warned && (out.Wake.IsZero() || out.Wake.After(most)), "lets lost work go on without a bound")
	never(out.Action == Stuck && out.State.Phase == Lost && in.Now.Before(expiry) && (!drained || in.State.DrainingSince.IsZero()), "is stuck before its time is up")
	never(out.Settled && (in.Busy || out.State.Phase != Idle), "settled too early")
}

func TestTimingValidate(t *testing.T) {
	if err := DefaultTiming().Validate(); err != nil {
		t.Errorf("Validate() of the default = %v, want nil", err)
	}
	s := time.Second
	for name, tc := range map[string]struct {
		timing Timing
		want   string
	}{
		"short":         {Timing{s / 2, s / 3, s / 10}, "Timing.LeaseDuration is 500ms, must be within [1s, 10m0s]"},
		"long":          {Timing{time.Hour, 10 * s, 2 * s}, "Timing.LeaseDuration is 1h0m0s, must be within [1s, 10m0s]"},
		"no difference": {Timing{15 * s, 15 * s, 2 * s}, "Timing.RenewDeadline is 15s, must be less than LeaseDuration, 15s"},
		"no retry":      {Timing{15 * s, 10 * s, 0}, "Timing.RetryPeriod is 0s, must be positive"},
		"slow retry":    {Timing{15 * s, 10 * s, 9 * s}, "Timing.RenewDeadline is 10s, must be more than 10.8s, 1.2 times RetryPeriod"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := tc.timing.Validate(); err == nil || err.Error() != tc.want {
				t.Errorf("Validate() = %v, want %s", err, tc.want)
			}
		})
	}
}
