package election

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/election/leasetest"
)

// TestClaimIsValid covers each way in which a claim becomes invalid.
func TestClaimIsValid(t *testing.T) {
	type fixture struct {
		*Claim
		clock *leasetest.JumpClock
		beats *fakeHeartbeat
		holds bool
	}
	for name, test := range map[string]struct {
		change func(*fixture)
		want   bool
		// cause is the context's; empty if the context has not ended.
		cause string
	}{
		"as it began":       {func(*fixture) {}, true, ""},
		"before its time":   {func(s *fixture) { s.clock.Jump(10*time.Second - time.Nanosecond) }, true, ""},
		"out of time":       {func(s *fixture) { s.clock.Jump(10 * time.Second) }, false, ""},
		"without a right":   {func(s *fixture) { s.beats.finish() }, false, ""},
		"another's Lease":   {func(s *fixture) { s.holds = false }, false, ""},
		"ended":             {func(s *fixture) { s.end(ReasonOtherHolder, "b_1") }, false, `claim on f-ns-01, term 8, ended: other-holder "b_1"`},
		"draining":          {func(s *fixture) { s.drain(); s.drain() }, true, ""},
		"draining too long": {func(s *fixture) { s.drain(); s.clock.Jump(10 * time.Second) }, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &fixture{clock: &leasetest.JumpClock{}, holds: true}
				s.beats = &fakeHeartbeat{clock: s.clock, begin: s.clock.Now()}
				s.beats.stop()
				s.Claim = newClaim(t.Context(), leaseName, "a_1", 8, s.beats, func() bool { return s.holds }, DefaultTiming())
				test.change(s)
				if got := s.Valid(s.clock.Now()); got != test.want {
					t.Errorf("Valid() = %t, want %t", got, test.want)
				}
				cause := ""
				if err := context.Cause(s.Context()); err != nil {
					cause = err.Error()
				}
				if cause != test.cause {
					t.Errorf("the context ended with %q, want %q", cause, test.cause)
				}
			})
		})
	}
}

func TestEndlessClaim(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	claim := EndlessClaim(ctx, "ns-01", "a_1")
	now := time.Now().Add(1000 * time.Hour)
	if !claim.Valid(now) || !claim.Deadline().IsZero() || !claim.Expiry().IsZero() || claim.Term() != 0 {
		t.Errorf("valid %t, deadline %v, expiry %v, term %d; want true and zeros", claim.Valid(now), claim.Deadline(), claim.Expiry(), claim.Term())
	}
	cancel()
	if claim.Valid(now) || !errors.Is(context.Cause(claim.Context()), context.Canceled) {
		t.Error("the claim outlives its context")
	}
}

// TestWritesOfALease checks when the writes that the last holder left prove anything.
func TestWritesOfALease(t *testing.T) {
	lease := seen("", 7, 0)
	lease.Annotations = map[string]string{leaserecord.WritesAnnotation: `{"term":7}`}
	if _, proven := lease.Writes(); !proven {
		t.Fatalf("the annotation proves nothing: %v", lease.Annotations)
	}
	for name, change := range map[string]func(*Observation){
		"another term": func(o *Observation) { o.Transitions = 8 },
		"held":         func(o *Observation) { o.Holder = other },
		"nothing left": func(o *Observation) { o.Annotations = nil },
		"absent":       func(o *Observation) { o.Exists = false },
		"nonsense":     func(o *Observation) { o.Annotations = map[string]string{leaserecord.WritesAnnotation: "{"} },
	} {
		o := lease
		change(&o)
		if _, proven := o.Writes(); proven {
			t.Errorf("%s: the annotation proves something", name)
		}
	}
}

// TestLeftOnRelease follows a holder's annotations through release and acquisition.
func TestLeftOnRelease(t *testing.T) {
	lease := (leaserecord.Stamp{}).Held(nil, "f-s", self, 4, timing.LeaseDuration, at(0))
	left := leaserecord.WithoutHolder(lease, map[string]string{leaserecord.WritesAnnotation: "w"}, at(0))
	if left.Annotations[leaserecord.WritesAnnotation] != "w" {
		t.Errorf("annotations of the released Lease: %v", left.Annotations)
	}
	next := (leaserecord.Stamp{}).Held(leaserecord.Asked(left, other), "f-s", other, 5, timing.LeaseDuration, at(0))
	if len(next.Annotations) != 0 {
		t.Errorf("the next holder's Lease still has %v", next.Annotations)
	}
}
