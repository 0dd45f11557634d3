package leaderlock

import (
	"context"
	"math"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/election/request"
)

const lockName, lockSelf = "stock", "f_fleet"

var (
	lockEpoch    = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	lockAcquired = lockEpoch.Add(-time.Hour)
)

// lockSeen returns the observation of a process that saw the Lease change at second at.
func lockSeen(holder string, term int32, at int) election.Observation {
	l := lease(holder, term)
	l.Spec.AcquireTime = ptr.To(metav1.NewMicroTime(lockAcquired))
	seen := lockEpoch.Add(time.Duration(at) * s)
	return election.Observation{Record: leaserecord.From(l), Exists: true, Seen: seen, HolderSeen: seen, HighTerm: term, Lease: l}
}

func lockAbsent(at int, high int32) election.Observation {
	return election.Observation{Record: leaserecord.Record{Name: lockName}, Seen: lockEpoch.Add(time.Duration(at) * s), HighTerm: high}
}

// TestLeaderLockStep covers the table in step's comment. Now is second 20. A held leader lock is in
// term 5, was last renewed after second 15, and is due to be read again at second 22.
func TestLeaderLockStep(t *testing.T) {
	now := lockEpoch.Add(20 * s)
	sec := func(n int) time.Time { return lockEpoch.Add(time.Duration(n) * s) }
	idle := state{}
	held := state{phase: phaseHeld, term: term{5, lockAcquired}, lastRenew: sec(15), right: 10 * s, shownAt: sec(20), due: sec(22)}
	with := func(s state, change func(*state)) state { change(&s); return s }
	stale := func(s *state) { s.stale = true }
	paused := func(s *state) { s.notBefore = sec(21) }
	unrenewed := func(s *state) { s.unrenewed = true }
	other := func(o election.Observation, change func(*coordinationv1.Lease)) election.Observation {
		l := o.Lease.DeepCopy()
		change(l)
		o.Record, o.Lease = leaserecord.From(l), l
		return o
	}
	for name, tc := range map[string]struct {
		obs    election.Observation
		state  state
		busy   bool
		action action
		reason election.Reason
		term   int32
		valid  int // second at which the right ends; 0: none
		wake   int // second; 0: none
	}{
		"idle, unknown":             {obs: election.Observation{}, reason: election.ReasonUnknown},
		"idle, stale":               {obs: lockSeen("", 4, 0), state: with(idle, stale), action: actRead},
		"idle, self":                {obs: lockSeen(lockSelf, 4, 20), action: actRenew, term: 4},
		"idle, self, expired":       {obs: lockSeen(lockSelf, 4, -100), action: actRenew, term: 4},
		"idle, self, highest term":  {obs: lockSeen(lockSelf, math.MaxInt32, 0), action: actRenew, term: math.MaxInt32},
		"idle, empty":               {obs: lockSeen("", 4, 20), action: actAcquire, term: 5},
		"idle, empty, busy":         {obs: lockSeen("", 4, 20), busy: true},
		"idle, empty, paused":       {obs: lockSeen("", 4, 20), state: with(idle, paused), wake: 21},
		"idle, empty, no terms":     {obs: lockSeen("", math.MaxInt32, 0), reason: election.ReasonTermsExhausted},
		"idle, other":               {obs: lockSeen("stock-a", 4, 6), reason: election.ReasonHeld, wake: 21},
		"idle, other, expired":      {obs: lockSeen("stock-a", 4, 5), action: actAcquire, term: 5},
		"idle, other, after higher": {obs: func() election.Observation { o := lockSeen("stock-a", 0, 5); o.HighTerm = 7; return o }(), action: actAcquire, term: 8},
		"idle, other declares more": {obs: other(lockSeen("stock-a", 4, 5), func(l *coordinationv1.Lease) { *l.Spec.LeaseDurationSeconds = 40 }), reason: election.ReasonHeld, wake: 45},
		"idle, other declares less": {obs: other(lockSeen("stock-a", 4, 6), func(l *coordinationv1.Lease) { *l.Spec.LeaseDurationSeconds = -3 }), reason: election.ReasonHeld, wake: 21},
		"idle, absent":              {obs: lockAbsent(6, 4), reason: election.ReasonAbsent, wake: 21},
		"idle, absent for long":     {obs: lockAbsent(5, 4), action: actCreate, term: 5},

		"held":                         {obs: lockSeen(lockSelf, 5, 0), state: held, valid: 25, wake: 22},
		"held, deadline":               {obs: lockSeen(lockSelf, 5, 20), state: with(held, func(s *state) { s.lastRenew = sec(10) }), action: actEnd, reason: election.ReasonRenewDeadline},
		"held, other":                  {obs: lockSeen("stock-a", 6, 20), state: held, action: actEnd, reason: election.ReasonOtherHolder},
		"held, other, busy":            {obs: lockSeen("stock-a", 5, 20), state: held, busy: true, action: actEnd, reason: election.ReasonOtherHolder},
		"held, next term":              {obs: lockSeen(lockSelf, 6, 20), state: held, action: actEnd, reason: election.ReasonTermChanged},
		"held, same number again":      {obs: other(lockSeen(lockSelf, 5, 20), func(l *coordinationv1.Lease) { l.Spec.AcquireTime = l.Spec.RenewTime }), state: held, action: actEnd, reason: election.ReasonTermChanged},
		"held, stale":                  {obs: lockSeen(lockSelf, 5, 0), state: with(held, stale), action: actRead, term: 5, valid: 25, wake: 25},
		"held, absent":                 {obs: lockAbsent(20, 5), state: held, action: actCreate, term: 5, reason: election.ReasonAbsent, wake: 25},
		"held, absent, stale":          {obs: lockAbsent(20, 5), state: with(held, stale), action: actRead, term: 5, reason: election.ReasonAbsent, wake: 25},
		"held, cleared":                {obs: lockSeen("", 5, 20), state: held, action: actRenew, term: 5, reason: election.ReasonCleared, wake: 25},
		"held, cleared, busy":          {obs: lockSeen("", 5, 20), state: held, busy: true, reason: election.ReasonCleared, wake: 25},
		"held, cleared in next term":   {obs: lockSeen("", 6, 20), state: held, action: actEnd, reason: election.ReasonTermChanged},
		"held, unrenewed":              {obs: lockSeen(lockSelf, 5, 0), state: with(held, unrenewed), action: actRenew, term: 5, valid: 25, wake: 25},
		"held, unrenewed, busy":        {obs: lockSeen(lockSelf, 5, 0), state: with(held, unrenewed), busy: true, valid: 25, wake: 25},
		"held, due":                    {obs: lockSeen(lockSelf, 5, 0), state: with(held, func(s *state) { s.due = now }), action: actRead, term: 5, valid: 25, wake: 25},
		"held, due, paused":            {obs: lockSeen(lockSelf, 5, 0), state: with(held, func(s *state) { s.due, s.notBefore = now, sec(21) }), valid: 25, wake: 21},
		"held, due after the deadline": {obs: lockSeen(lockSelf, 5, 0), state: with(held, func(s *state) { s.due = sec(30) }), valid: 25, wake: 25},
	} {
		t.Run(name, func(t *testing.T) {
			in := input{self: lockSelf, now: now, observation: tc.obs, state: tc.state, timing: election.DefaultTiming(), busy: tc.busy}
			out := step(in)
			second := func(at time.Time) int {
				if at.IsZero() {
					return 0
				}
				return int(at.Sub(lockEpoch).Seconds())
			}
			if out.action != tc.action || out.reason != tc.reason || second(out.validUntil) != tc.valid || second(out.wake) != tc.wake {
				t.Errorf("step() = %s (%s), valid until %d, wake %d, want %s (%s), %d, %d",
					out.action, out.reason, second(out.validUntil), second(out.wake), tc.action, tc.reason, tc.valid, tc.wake)
			}
			if out.term.transitions != tc.term {
				t.Errorf("step() writes term %d, want %d", out.term.transitions, tc.term)
			}
			if wantLost := tc.action == actEnd; wantLost != (out.state.phase == phaseLost) {
				t.Errorf("Lost: %t, want %t", !wantLost, wantLost)
			}
		})
	}
}

// TestLeaderLockAnswers checks the clock rule. Requests start at second 20 and are answered at
// second 21. The last live request started at second 18, and showed a renewal stamped 17.
func TestLeaderLockAnswers(t *testing.T) {
	sec := func(n int) time.Time { return lockEpoch.Add(time.Duration(n) * s) }
	written := func(holder string, term int32, stamp time.Time) *coordinationv1.Lease {
		l := lease(holder, term)
		l.Spec.AcquireTime, l.Spec.RenewTime = ptr.To(metav1.NewMicroTime(lockAcquired)), ptr.To(metav1.NewMicroTime(stamp))
		return l
	}
	held := state{phase: phaseHeld, term: term{5, lockAcquired}, lastRenew: sec(15), right: 10 * s, shownAt: sec(18), shown: leaserecord.From(written(lockSelf, 5, sec(17))), stale: true}
	idle := held
	idle.phase, idle.lastRenew, idle.term = phaseIdle, time.Time{}, term{}
	never := idle
	never.shownAt, never.shown = time.Time{}, leaserecord.Record{}
	self := lockSeen(lockSelf, 5, 20)
	for name, tc := range map[string]struct {
		state     state
		action    action
		shown     *coordinationv1.Lease // nil: the Lease is absent
		obs       election.Observation
		late      int // further seconds that the answer took
		held      bool
		renew     int // second that the right counts from; 0: none
		unrenewed bool
	}{
		"own write":                     {held, actRenew, written(lockSelf, 5, sec(20)), self, 0, true, 20, false},
		"own write begins":              {never, actRenew, written(lockSelf, 5, sec(20)), self, 0, true, 20, false},
		"own create begins":             {never, actCreate, written(lockSelf, 5, sec(20)), self, 0, true, 20, false},
		"own write, overtaken":          {never, actAcquire, written(lockSelf, 5, sec(20)), lockSeen("stock-a", 6, 20), 0, false, 0, false},
		"own write, cleared meanwhile":  {never, actAcquire, written(lockSelf, 5, sec(20)), lockSeen("", 5, 20), 0, false, 0, false},
		"own write, too late to begin":  {never, actRenew, written(lockSelf, 5, sec(20)), self, 9, false, 0, false},
		"own write, too late to extend": {held, actRenew, written(lockSelf, 5, sec(20)), self, 4, true, 15, false},
		"read, renewed":                 {held, actRead, written(lockSelf, 5, sec(19)), self, 0, true, 18, false},
		"read, renewed, slow":           {held, actRead, written(lockSelf, 5, sec(19)), self, 3, true, 18, true},
		"read, renewed, begins":         {idle, actRead, written(lockSelf, 5, sec(19)), self, 0, true, 18, false},
		"read, the first":               {never, actRead, written(lockSelf, 5, sec(19)), self, 0, false, 0, true},
		"read, not renewed":             {held, actRead, written(lockSelf, 5, sec(17)), self, 0, true, 15, true},
		"read, within the second":       {held, actRead, written(lockSelf, 5, sec(17).Add(s/2)), self, 0, true, 15, true},
		"read, next term":               {held, actRead, written(lockSelf, 6, sec(19)), self, 0, true, 15, false},
		"read, other":                   {held, actRead, written("stock-a", 5, sec(19)), self, 0, true, 15, true},
		"read, absent":                  {held, actRead, nil, lockAbsent(20, 5), 0, true, 15, true},
	} {
		t.Run(name, func(t *testing.T) {
			now := sec(21 + tc.late)
			a := request.Answer{Start: sec(20), End: now, Lease: tc.shown}
			got := tc.state.answered(lockSelf, tc.action, a, tc.obs, now, election.DefaultTiming(), 2*s)
			var renew int
			if !got.lastRenew.IsZero() {
				renew = int(got.lastRenew.Sub(lockEpoch).Seconds())
			}
			if (got.phase == phaseHeld) != tc.held || renew != tc.renew || got.unrenewed != tc.unrenewed {
				t.Errorf("answered() = phase %d from second %d, unrenewed %t, want held %t, %d, %t", got.phase, renew, got.unrenewed, tc.held, tc.renew, tc.unrenewed)
			}
			if got.stale || !got.shownAt.Equal(sec(20)) || !got.due.Equal(sec(22)) {
				t.Errorf("answered() = stale %t, shown at %v, due %v", got.stale, got.shownAt, got.due)
			}
		})
	}
	t.Run("refused", func(t *testing.T) {
		before := held
		before.stale, before.unrenewed = false, true
		refused := request.Answer{Start: sec(20), Err: context.DeadlineExceeded, Conflict: true}
		got := before.answered(lockSelf, actRenew, refused, self, sec(21), election.DefaultTiming(), 2*s)
		if !got.stale || got.unrenewed || !got.lastRenew.Equal(before.lastRenew) || !got.shownAt.Equal(before.shownAt) {
			t.Errorf("answered() after a refusal = %+v", got)
		}
	})
}

func TestStampAfter(t *testing.T) {
	at := func(text string) time.Time {
		parsed, err := time.Parse(time.RFC3339Nano, text)
		if err != nil {
			t.Fatal(err)
		}
		return parsed
	}
	for _, tc := range []struct{ last, now, want string }{
		{"2030-01-01T00:00:01.9Z", "2030-01-01T00:00:03.5Z", "2030-01-01T00:00:03.5Z"},
		{"2030-01-01T00:00:01.9Z", "2030-01-01T00:00:01.95Z", "2030-01-01T00:00:02Z"},
		{"2030-01-01T00:00:09.9Z", "2030-01-01T00:00:01Z", "2030-01-01T00:00:10Z"},
		{"9999-12-31T23:59:59.5Z", "2030-01-01T00:00:01Z", "2030-01-01T00:00:01Z"},
		{"0001-01-01T00:00:00Z", "2030-01-01T00:00:01.5Z", "2030-01-01T00:00:01.5Z"},
	} {
		if got := stampAfter(at(tc.last), at(tc.now)); !got.Equal(at(tc.want)) {
			t.Errorf("stampAfter(%s, %s) = %s, want %s", tc.last, tc.now, got, tc.want)
		}
	}
}
