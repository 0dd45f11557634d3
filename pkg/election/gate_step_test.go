package election

import (
	"context"
	"math"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

const gateName, gateSelf = "stock", "f_fleet"

var (
	gateEpoch    = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	gateAcquired = gateEpoch.Add(-time.Hour)
)

// gateSeen is what a process knows that saw the Lease change at second at.
func gateSeen(holder string, term int32, at int) Observation {
	l := lease(holder, term)
	l.Name = gateName
	l.Spec.AcquireTime = ptr.To(metav1.NewMicroTime(gateAcquired))
	seen := gateEpoch.Add(time.Duration(at) * s)
	return Observation{Record: RecordFrom(l), Exists: true, Seen: seen, HolderSeen: seen, HighTerm: term, Lease: l}
}

func gateAbsent(at int, high int32) Observation {
	return Observation{Record: Record{Name: gateName}, Seen: gateEpoch.Add(time.Duration(at) * s), HighTerm: high}
}

// TestGateStep goes through the table in the comment of gateStep. Now is second 20; a held gate is in term 5, was last renewed
// after second 15 and is to be read again at second 22.
func TestGateStep(t *testing.T) {
	now := gateEpoch.Add(20 * s)
	sec := func(n int) time.Time { return gateEpoch.Add(time.Duration(n) * s) }
	idle := gateState{}
	held := gateState{phase: gateHeld, term: gateTerm{5, gateAcquired}, lastRenew: sec(15), shownAt: sec(20), due: sec(22)}
	with := func(s gateState, change func(*gateState)) gateState { change(&s); return s }
	stale := func(s *gateState) { s.stale = true }
	paused := func(s *gateState) { s.notBefore = sec(21) }
	unrenewed := func(s *gateState) { s.unrenewed = true }
	other := func(o Observation, change func(*coordinationv1.Lease)) Observation {
		l := o.Lease.DeepCopy()
		change(l)
		o.Record, o.Lease = RecordFrom(l), l
		return o
	}
	for name, tc := range map[string]struct {
		obs    Observation
		state  gateState
		busy   bool
		action gateAction
		reason Reason
		term   int32
		valid  int // second until which the right is valid; 0: none
		wake   int // second; 0: none
	}{
		"idle, unknown":             {obs: Observation{}, reason: ReasonUnknown},
		"idle, stale":               {obs: gateSeen("", 4, 0), state: with(idle, stale), action: gateRead},
		"idle, self":                {obs: gateSeen(gateSelf, 4, 20), action: gateRenew, term: 4},
		"idle, self, expired":       {obs: gateSeen(gateSelf, 4, -100), action: gateRenew, term: 4},
		"idle, self, highest term":  {obs: gateSeen(gateSelf, math.MaxInt32, 0), action: gateRenew, term: math.MaxInt32},
		"idle, empty":               {obs: gateSeen("", 4, 20), action: gateAcquire, term: 5},
		"idle, empty, busy":         {obs: gateSeen("", 4, 20), busy: true},
		"idle, empty, paused":       {obs: gateSeen("", 4, 20), state: with(idle, paused), wake: 21},
		"idle, empty, no terms":     {obs: gateSeen("", math.MaxInt32, 0), reason: ReasonTermsExhausted},
		"idle, other":               {obs: gateSeen("stock-a", 4, 6), reason: ReasonHeld, wake: 21},
		"idle, other, expired":      {obs: gateSeen("stock-a", 4, 5), action: gateAcquire, term: 5},
		"idle, other, after higher": {obs: func() Observation { o := gateSeen("stock-a", 0, 5); o.HighTerm = 7; return o }(), action: gateAcquire, term: 8},
		"idle, other declares more": {obs: other(gateSeen("stock-a", 4, 5), func(l *coordinationv1.Lease) { *l.Spec.LeaseDurationSeconds = 40 }), reason: ReasonHeld, wake: 45},
		"idle, other declares less": {obs: other(gateSeen("stock-a", 4, 6), func(l *coordinationv1.Lease) { *l.Spec.LeaseDurationSeconds = -3 }), reason: ReasonHeld, wake: 21},
		"idle, absent":              {obs: gateAbsent(6, 4), reason: ReasonAbsent, wake: 21},
		"idle, absent for long":     {obs: gateAbsent(5, 4), action: gateCreate, term: 5},

		"held":                         {obs: gateSeen(gateSelf, 5, 0), state: held, valid: 25, wake: 22},
		"held, deadline":               {obs: gateSeen(gateSelf, 5, 20), state: with(held, func(s *gateState) { s.lastRenew = sec(10) }), action: gateEnd, reason: ReasonRenewDeadline},
		"held, other":                  {obs: gateSeen("stock-a", 6, 20), state: held, action: gateEnd, reason: ReasonOtherHolder},
		"held, other, busy":            {obs: gateSeen("stock-a", 5, 20), state: held, busy: true, action: gateEnd, reason: ReasonOtherHolder},
		"held, next term":              {obs: gateSeen(gateSelf, 6, 20), state: held, action: gateEnd, reason: ReasonTermChanged},
		"held, same number again":      {obs: other(gateSeen(gateSelf, 5, 20), func(l *coordinationv1.Lease) { l.Spec.AcquireTime = l.Spec.RenewTime }), state: held, action: gateEnd, reason: ReasonTermChanged},
		"held, stale":                  {obs: gateSeen(gateSelf, 5, 0), state: with(held, stale), action: gateRead, term: 5, valid: 25, wake: 25},
		"held, absent":                 {obs: gateAbsent(20, 5), state: held, action: gateCreate, term: 5, reason: ReasonAbsent, wake: 25},
		"held, absent, stale":          {obs: gateAbsent(20, 5), state: with(held, stale), action: gateRead, term: 5, reason: ReasonAbsent, wake: 25},
		"held, cleared":                {obs: gateSeen("", 5, 20), state: held, action: gateRenew, term: 5, reason: ReasonCleared, wake: 25},
		"held, cleared, busy":          {obs: gateSeen("", 5, 20), state: held, busy: true, reason: ReasonCleared, wake: 25},
		"held, cleared in next term":   {obs: gateSeen("", 6, 20), state: held, action: gateEnd, reason: ReasonTermChanged},
		"held, unrenewed":              {obs: gateSeen(gateSelf, 5, 0), state: with(held, unrenewed), action: gateRenew, term: 5, valid: 25, wake: 25},
		"held, unrenewed, busy":        {obs: gateSeen(gateSelf, 5, 0), state: with(held, unrenewed), busy: true, valid: 25, wake: 25},
		"held, due":                    {obs: gateSeen(gateSelf, 5, 0), state: with(held, func(s *gateState) { s.due = now }), action: gateRead, term: 5, valid: 25, wake: 25},
		"held, due, paused":            {obs: gateSeen(gateSelf, 5, 0), state: with(held, func(s *gateState) { s.due, s.notBefore = now, sec(21) }), valid: 25, wake: 21},
		"held, due after the deadline": {obs: gateSeen(gateSelf, 5, 0), state: with(held, func(s *gateState) { s.due = sec(30) }), valid: 25, wake: 25},
	} {
		t.Run(name, func(t *testing.T) {
			in := gateInput{self: gateSelf, now: now, observation: tc.obs, state: tc.state, timing: DefaultTiming(), busy: tc.busy}
			out := gateStep(in)
			second := func(at time.Time) int {
				if at.IsZero() {
					return 0
				}
				return int(at.Sub(gateEpoch).Seconds())
			}
			if out.action != tc.action || out.reason != tc.reason || second(out.validUntil) != tc.valid || second(out.wake) != tc.wake {
				t.Errorf("gateStep() = %s (%s), valid until %d, wake %d, want %s (%s), %d, %d",
					out.action, out.reason, second(out.validUntil), second(out.wake), tc.action, tc.reason, tc.valid, tc.wake)
			}
			if out.term.transitions != tc.term {
				t.Errorf("gateStep() writes term %d, want %d", out.term.transitions, tc.term)
			}
			if wantLost := tc.action == gateEnd; wantLost != (out.state.phase == gateLost) {
				t.Errorf("Lost: %t, want %t", !wantLost, wantLost)
			}
		})
	}
}

// TestGateAnswers holds the clock rule. Requests start at second 20 and are answered at second 21. The gate has looked at second
// 18, and seen a renewal stamped 17.
func TestGateAnswers(t *testing.T) {
	sec := func(n int) time.Time { return gateEpoch.Add(time.Duration(n) * s) }
	record := func(holder string, term int32, stamp time.Time) Record {
		return Record{Name: gateName, Holder: holder, Transitions: term, AcquireTime: gateAcquired, RenewTime: stamp}
	}
	held := gateState{phase: gateHeld, term: gateTerm{5, gateAcquired}, lastRenew: sec(15), shownAt: sec(18), shown: record(gateSelf, 5, sec(17)), stale: true}
	idle := held
	idle.phase, idle.lastRenew, idle.term = gateIdle, time.Time{}, gateTerm{}
	never := idle
	never.shownAt, never.shown = time.Time{}, Record{}
	self := gateSeen(gateSelf, 5, 20)
	for name, tc := range map[string]struct {
		state     gateState
		action    gateAction
		shown     Record
		obs       Observation
		late      int // seconds that the answer took more
		held      bool
		renew     int // second that the right counts from; 0: none
		unrenewed bool
	}{
		"own write":                     {held, gateRenew, record(gateSelf, 5, sec(20)), self, 0, true, 20, false},
		"own write begins":              {never, gateRenew, record(gateSelf, 5, sec(20)), self, 0, true, 20, false},
		"own create begins":             {never, gateCreate, record(gateSelf, 5, sec(20)), self, 0, true, 20, false},
		"own write, overtaken":          {never, gateAcquire, record(gateSelf, 5, sec(20)), gateSeen("stock-a", 6, 20), 0, false, 0, false},
		"own write, cleared meanwhile":  {never, gateAcquire, record(gateSelf, 5, sec(20)), gateSeen("", 5, 20), 0, false, 0, false},
		"own write, too late to begin":  {never, gateRenew, record(gateSelf, 5, sec(20)), self, 9, false, 0, false},
		"own write, too late to extend": {held, gateRenew, record(gateSelf, 5, sec(20)), self, 4, true, 15, false},
		"read, renewed":                 {held, gateRead, record(gateSelf, 5, sec(19)), self, 0, true, 18, false},
		"read, renewed, slow":           {held, gateRead, record(gateSelf, 5, sec(19)), self, 3, true, 18, true},
		"read, renewed, begins":         {idle, gateRead, record(gateSelf, 5, sec(19)), self, 0, true, 18, false},
		"read, the first":               {never, gateRead, record(gateSelf, 5, sec(19)), self, 0, false, 0, true},
		"read, not renewed":             {held, gateRead, record(gateSelf, 5, sec(17)), self, 0, true, 15, true},
		"read, within the second":       {held, gateRead, record(gateSelf, 5, sec(17).Add(s/2)), self, 0, true, 15, true},
		"read, next term":               {held, gateRead, record(gateSelf, 6, sec(19)), self, 0, true, 15, false},
		"read, other":                   {held, gateRead, record("stock-a", 5, sec(19)), self, 0, true, 15, true},
		"read, absent":                  {held, gateRead, Record{}, gateAbsent(20, 5), 0, true, 15, true},
	} {
		t.Run(name, func(t *testing.T) {
			now := sec(21 + tc.late)
			a := gateAnswer{action: tc.action, start: sec(20), end: now, shown: tc.shown}
			got := tc.state.answered(gateSelf, a, tc.obs, now, DefaultTiming(), 2*s)
			var renew int
			if !got.lastRenew.IsZero() {
				renew = int(got.lastRenew.Sub(gateEpoch).Seconds())
			}
			if (got.phase == gateHeld) != tc.held || renew != tc.renew || got.unrenewed != tc.unrenewed {
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
		got := before.answered(gateSelf, gateAnswer{action: gateRenew, start: sec(20), err: context.DeadlineExceeded, conflict: true}, self, sec(21), DefaultTiming(), 2*s)
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
