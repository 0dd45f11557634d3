package fleet

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/election/leasetest"
	"github.com/flotilla-kube/flotilla/pkg/election/membership"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// fenceDelay is longer than anything else takes in a bubble, so that a test can tell it apart.
const fenceDelay = 700 * time.Millisecond

// guarded is a process whose API server enforces the fence, with a record of its work and events.
type guarded struct {
	*process
	mu     sync.Mutex
	begun  map[shard.ID]time.Time
	events []Event
}

// guard launches a member whose API server enforces the fence, or does not.
func (s *testFleet) guard(name string, enforced bool, change func(*Config)) *guarded {
	s.t.Helper()
	g := &guarded{begun: map[shard.ID]time.Time{}}
	g.process = s.launch(name, func(c *Config) {
		c.Enforced, c.FenceDelay = func() bool { return enforced }, fenceDelay
		c.Observe = func(e Event) { g.mu.Lock(); defer g.mu.Unlock(); g.events = append(g.events, e) }
		build := c.Build
		c.Build = func(ctx context.Context, w Work) (Instance, error) {
			instance, err := build(ctx, w)
			return timed{instance, func() { g.mu.Lock(); defer g.mu.Unlock(); g.begun[w.Shard.ID] = time.Now() }}, err
		}
		if change != nil {
			change(c)
		}
	})
	return g
}

// timed calls begin when the work begins.
type timed struct {
	Instance
	begin func()
}

func (i timed) Run(ctx context.Context) error {
	i.begin()
	return i.Instance.Run(ctx)
}

func (g *guarded) publish(id string) error {
	return g.PublishCredential(g.fleet.t.Context(), membership.Credential{ID: id, Lifetime: time.Hour})
}

func (g *guarded) count(kind election.EventType) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := 0
	for _, e := range g.events {
		if e.Type == kind {
			n++
		}
	}
	return n
}

// begunSince returns the shards whose work this member has begun since then, with the times.
func (g *guarded) begunSince(since time.Time) map[shard.ID]time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	begun := maps.Clone(g.begun)
	maps.DeleteFunc(begun, func(_ shard.ID, at time.Time) bool { return at.Before(since) })
	return begun
}

// marks returns the writes that fenced the incarnation, and fails if one of them changed anything
// else.
func (s *testFleet) marks(incarnation string) []leasetest.Write {
	s.t.Helper()
	var marks []leasetest.Write
	for _, w := range s.store.History() {
		if w.Before == nil || leaserecord.From(w.Before).Fenced(incarnation) || !leaserecord.From(w.After).Fenced(incarnation) {
			continue
		}
		before, after := w.Before.Spec.DeepCopy(), w.After.Spec.DeepCopy()
		if leaserecord.From(w.After).HasEnded(incarnation) {
			before.HolderIdentity, after.HolderIdentity = nil, nil // a strike clears the holder
		}
		if w.Client != leaserecord.MemberOf(incarnation) && !equality.Semantic.DeepEqual(before, after) {
			s.t.Errorf("%s fenced %s with a change of the spec, a sign of life", w.Client, incarnation)
		}
		marks = append(marks, w)
	}
	return marks
}

func (s *testFleet) fencedCredentials(member string) string {
	return s.store.Get(leaserecord.MemberLease("flotilla", member)).Annotations[leaserecord.FencedCredentialsAnnotation]
}

func TestDeadMemberIsFencedOnceBeforeItsShardsRun(t *testing.T) {
	inBubble(t, 16, func(t *testing.T, s *testFleet) {
		a, b, c := s.guard("a", true, nil), s.guard("b", true, nil), s.guard("c", true, nil)
		pass(time.Minute)
		s.allHeld("a", "b", "c")
		for _, id := range []string{"JTI=2", "JTI=1"} {
			if err := c.publish(id); err != nil {
				t.Fatal(err)
			}
		}
		left := s.holders()["c"]
		died := time.Now()
		c.client.Block()
		pass(30 * time.Second)
		s.allHeld("a", "b")
		marks := s.marks(c.Incarnation())
		if len(marks) != 1 {
			t.Fatalf("%d writes fenced the dead member, want 1", len(marks))
		}
		if got := s.fencedCredentials("c"); got != "JTI=1,JTI=2" {
			t.Errorf("fenced credentials %q, want both", got)
		}
		begun := a.begunSince(died)
		maps.Copy(begun, b.begunSince(died))
		if len(begun) < left {
			t.Errorf("%d shards were begun, want the %d of the dead member", len(begun), left)
		}
		for id, at := range begun {
			// A dead member's shards may move once more.
			if waited := at.Sub(marks[0].Time); waited < fenceDelay {
				t.Errorf("%s began %v after the mark, want %v or more", id, waited, fenceDelay)
			}
		}
		if n := a.count(EventFenced) + b.count(EventFenced); n != 1 {
			t.Errorf("%d events report it, want 1", n)
		}
	})
}

// TestDrainWaitsForTheFence drains the member that has taken a dead member's shards before the dead
// member is fenced: the next holder finds Leases that were released.
func TestDrainWaitsForTheFence(t *testing.T) {
	inBubble(t, 16, func(t *testing.T, s *testFleet) {
		const delay = 4 * time.Second // less than HandoffTimeout
		slow := func(c *Config) { c.FenceDelay = delay }
		s.guard("a", true, slow)
		b, c := s.guard("b", true, slow), s.guard("c", true, slow)
		pass(time.Minute)
		s.allHeld("a", "b", "c")
		if err := c.publish("JTI=1"); err != nil {
			t.Fatal(err)
		}
		died, left := time.Now(), s.leases(c.process)
		c.client.Block()
		for range 600 {
			if len(s.leases(c.process)) < len(left) {
				break
			}
			pass(50 * time.Millisecond)
		}
		s.drain("a", "x")
		pass(time.Minute)
		s.allHeld("b")
		marks, begun := s.marks(c.Incarnation()), b.begunSince(died)
		if len(marks) == 0 || len(begun) == 0 {
			t.Fatalf("%d marks, %d shards were begun", len(marks), len(begun))
		}
		theirs := 0
		for id, at := range begun {
			if !slices.Contains(left, leaseapi.ShardLease("flotilla", id)) {
				continue
			}
			theirs++
			if waited := at.Sub(marks[0].Time); waited < delay {
				t.Errorf("%s began %v after the mark, want %v or more", id, waited, delay)
			}
		}
		if theirs != len(left) || theirs == 0 {
			t.Errorf("%d of the dead member's %d shards were begun", theirs, len(left))
		}
	})
}

// TestWhoMayNotRunFencesAllTheSame stops the member that has taken a dead member's shards while it
// still looks at the other Leases. The member that struck did not know yet that the API server
// enforces the fence. The delay must also be waited for if the mark is written late.
func TestWhoMayNotRunFencesAllTheSame(t *testing.T) {
	for name, slow := range map[string]time.Duration{"at once": 0, "late": 4500 * time.Millisecond} {
		t.Run(name, func(t *testing.T) { endWhileFencing(t, slow) })
	}
}

// endWhileFencing is the test. For a second after the member is told to stop, its updates take
// slow.
func endWhileFencing(t *testing.T, slow time.Duration) {
	inBubble(t, 16, func(t *testing.T, s *testFleet) {
		const delay = 3 * time.Second
		var dead string
		var struck atomic.Bool
		sinceTheStrike := func(c *Config) {
			c.FenceDelay, c.HandoffTimeout = delay, delay
			c.Enforced = func() bool {
				lease := s.store.Get("flotilla-member-c")
				if lease != nil && dead != "" && leaserecord.From(lease).HasEnded(dead) {
					struck.Store(true)
				}
				return struck.Load()
			}
		}
		a := s.guard("a", true, sinceTheStrike)
		c := s.guard("c", true, sinceTheStrike)
		pass(time.Minute)
		s.allHeld("a", "c")
		dead = c.Incarnation()
		if err := c.publish("JTI=1"); err != nil {
			t.Fatal(err)
		}
		pass(10 * time.Second) // until the credential is on the Lease
		died, left := time.Now(), s.leases(c.process)
		c.client.Block()
		a.client.LagWatch(500 * time.Millisecond) // makes the look take this long
		for range 600 {
			if slices.ContainsFunc(s.leases(a.process), func(name string) bool { return slices.Contains(left, name) }) {
				break
			}
			pass(50 * time.Millisecond)
		}
		told := time.Now()
		a.client.Script(func(verb string) leasetest.Fault {
			if verb != "update" || time.Since(told) > time.Second {
				return leasetest.Fault{}
			}
			return leasetest.Fault{Out: slow}
		})
		a.stop()
		<-a.ended
		if a.err != nil {
			t.Fatal(a.err)
		}
		if running := a.begunSince(died); len(running) > 0 {
			t.Fatalf("%d shards were begun before it ended", len(running))
		}
		marks := s.marks(dead)
		if len(marks) != 1 {
			t.Fatalf("%d marks, want 1", len(marks))
		}
		if waited := time.Since(marks[0].Time); waited < delay {
			t.Errorf("released %v after the mark, want %v or more", waited, delay)
		}
	})
}

// TestMarkOfAMemberThatDiedBeforeTheTaker has a member take a dead one's shards and die before it
// can mark that one. The member that struck did not know yet that the API server enforces the
// fence. Whoever takes the shards next fences both.
func TestMarkOfAMemberThatDiedBeforeTheTaker(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, s *testFleet) {
		var enforced atomic.Bool
		dynamic := func(c *Config) { c.Enforced = enforced.Load }
		a, c := s.guard("a", true, dynamic), s.guard("c", true, dynamic)
		pass(time.Minute)
		s.allHeld("a", "c")
		for who, id := range map[*guarded]string{a: "JTI=a", c: "JTI=c"} {
			if err := who.publish(id); err != nil {
				t.Fatal(err)
			}
		}
		pass(10 * time.Second) // until the credentials are on the Leases
		c.client.Block()
		for range 600 {
			if leaserecord.From(s.store.Get("flotilla-member-c")).HasEnded(c.Incarnation()) {
				break
			}
			pass(50 * time.Millisecond)
		}
		pass(10 * time.Second)
		s.allHeld("a")
		a.client.Block()
		enforced.Store(true)
		if n := len(s.marks(c.Incarnation())); n != 0 {
			t.Fatalf("%d marks of c before a died, want none", n)
		}
		died := time.Now()
		b := s.guard("b", true, dynamic)
		pass(time.Minute)
		s.allHeld("b")
		for _, dead := range []*guarded{a, c} {
			marks := s.marks(dead.Incarnation())
			if len(marks) != 1 || marks[0].Client != "b" {
				t.Errorf("%d marks of %s, want one, by b", len(marks), dead.Incarnation())
				continue
			}
			for id, at := range b.begunSince(died) {
				if waited := at.Sub(marks[0].Time); waited < fenceDelay {
					t.Errorf("%s began %v after the mark of %s, want %v or more", id, waited, dead.Incarnation(), fenceDelay)
				}
			}
		}
	})
}

// TestDelayWithinAHandoff checks the limit of FenceDelay: a member that stops waits for as long as
// a handoff may take.
func TestDelayWithinAHandoff(t *testing.T) {
	s := newTestFleet(t, testPlan(t, 2))
	c := Config{
		Fleet: "flotilla", Member: "a", Plan: s.plan, Leases: s.store.Client("a"), Timing: election.DefaultTiming(), HandoffTimeout: 2 * time.Second,
		Build: func(context.Context, Work) (Instance, error) { return nil, errors.New("never") }, Exit: func(string) {},
	}
	for delay, want := range map[time.Duration]string{
		2 * time.Second: "", 2*time.Second + 1: "FenceDelay is 2.000000001s, must be at most HandoffTimeout, 2s",
	} {
		c.FenceDelay = delay
		if _, err := New(c); err == nil != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", delay, err, want)
		}
	}
}

func TestMarkOfAnotherIsWaitedForOnlyAsLongAsItTakes(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, s *testFleet) {
		c := s.guard("c", true, nil)
		pass(time.Minute)
		if err := c.publish("JTI=1"); err != nil {
			t.Fatal(err)
		}
		a := s.guard("a", true, nil)
		pass(time.Minute)
		c.client.Block()
		pass(10 * time.Second)
		// Somebody else marks first, early enough that nothing is left to wait for.
		s.store.Tamper("flotilla-member-c", func(lease *coordinationv1.Lease) {
			marked, _ := leaserecord.FenceIncarnation(lease, c.Incarnation())
			*lease = *marked
		})
		pass(20 * time.Second)
		s.allHeld("a")
		if marks := s.marks(c.Incarnation()); len(marks) != 1 || marks[0].Client != "" {
			t.Errorf("fenced by %v, want once, by somebody else", marks)
		}
		s.requireTakenOverAtOnce(a, c.Incarnation())
	})
}

// requireTakenOverAtOnce fails unless the member has taken shards from a dead incarnation, and
// their work began as soon as their caches were full.
func (s *testFleet) requireTakenOverAtOnce(by *guarded, from string) {
	s.t.Helper()
	taken := 0
	for _, w := range s.store.History() {
		i := slices.IndexFunc(s.plan.Shards(), func(proc shard.Shard) bool {
			return w.After != nil && leaseapi.ShardLease("flotilla", proc.ID) == w.After.Name
		})
		if i < 0 || w.Before == nil || *w.Before.Spec.HolderIdentity != from || *w.After.Spec.HolderIdentity != by.Incarnation() {
			continue
		}
		taken++
		at, begun := by.begunSince(w.Time)[s.plan.Shards()[i].ID]
		if waited := at.Sub(w.Time); !begun || waited > warming {
			s.t.Errorf("%s began: %t, %v after it was taken, want %v: once its caches are full", w.After.Name, begun, waited, warming)
		}
	}
	if taken == 0 {
		s.t.Errorf("%s has taken nothing from %s", by.Incarnation(), from)
	}
}

func TestMarkOutlivesANewIncarnation(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, s *testFleet) {
		a, first := s.guard("a", true, nil), s.guard("c", true, nil)
		pass(time.Minute)
		if err := first.publish("JTI=1"); err != nil {
			t.Fatal(err)
		}
		first.client.Block()
		second := s.guard("c", true, nil)
		pass(time.Minute)
		if err := second.publish("JTI=2"); err != nil {
			t.Fatal(err)
		}
		pass(time.Minute)
		s.allHeld("a", "c")
		second.client.Block()
		pass(time.Minute)
		s.allHeld("a")
		if got := s.fencedCredentials("c"); got != "JTI=1,JTI=2" {
			t.Errorf("fenced credentials %q, want those of both dead incarnations", got)
		}
		if n := a.count(EventFenceRefused); n != 0 {
			t.Errorf("%d marks were refused", n)
		}
	})
}

// TestNewIncarnationFencesItsPredecessor has no other member that could fence.
func TestNewIncarnationFencesItsPredecessor(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, s *testFleet) {
		first := s.guard("c", true, nil)
		pass(time.Minute)
		if err := first.publish("JTI=1"); err != nil {
			t.Fatal(err)
		}
		first.client.Block()
		second := s.guard("c", true, nil)
		pass(time.Minute)
		s.allHeld("c")
		if got := s.fencedCredentials("c"); got != "JTI=1" {
			t.Errorf("fenced credentials %q, want those of the dead incarnation", got)
		}
		marks := s.marks(first.Incarnation())
		if len(marks) != 1 {
			t.Fatalf("%d marks, want the one that came with the new incarnation", len(marks))
		}
		for id, at := range second.begunSince(time.Time{}) {
			if waited := at.Sub(marks[0].Time); waited < fenceDelay {
				t.Errorf("%s began %v after the mark, want %v or more", id, waited, fenceDelay)
			}
		}
	})
}

func TestFencedMemberEnds(t *testing.T) {
	inBubble(t, 8, func(t *testing.T, s *testFleet) {
		s.guard("a", true, nil)
		c := s.guard("c", true, nil)
		pass(time.Minute)
		s.allHeld("a", "c")
		if err := c.publish("JTI=1"); err != nil {
			t.Fatal(err)
		}
		s.store.Tamper("flotilla-member-c", func(lease *coordinationv1.Lease) {
			marked, _ := leaserecord.FenceIncarnation(lease, c.Incarnation())
			*lease = *marked
		})
		pass(time.Second)
		select {
		case <-c.ended:
		default:
			t.Fatal("it has not ended within a second")
		}
		if !errors.Is(c.err, ErrFenced) || !errors.Is(c.err, membership.ErrLost) {
			t.Errorf("Run() = %v, want %v", c.err, ErrFenced)
		}
		// A new credential would bypass the fence.
		if err := c.publish("JTI=2"); !errors.Is(err, membership.ErrMarked) {
			t.Errorf("publishing while fenced: %v, want %v", err, membership.ErrMarked)
		}
		pass(time.Second)
		s.allHeld("a")
	})
}

func TestMarkByAStrangerOnAnotherLeaseIsNone(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, s *testFleet) {
		a, c := s.guard("a", true, nil), s.guard("c", true, nil)
		pass(time.Minute)
		s.store.Tamper("flotilla-member-a", func(lease *coordinationv1.Lease) {
			lease.Annotations[leaserecord.FencedAnnotation] = c.Incarnation()
		})
		pass(time.Minute)
		s.allHeld("a", "c")
		if n := a.count(EventFenced); n != 0 {
			t.Errorf("%d marks were written", n)
		}
	})
}

// unmarkable answers writes of c's Lease with these errors, one after another; nil lets a write
// pass.
type unmarkable struct {
	*leasetest.Client
	errs []error
}

func (u *unmarkable) Update(ctx context.Context, lease *coordinationv1.Lease, opts metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	if lease.Name == "flotilla-member-c" && len(u.errs) > 0 {
		err := u.errs[0]
		u.errs = u.errs[1:]
		if err != nil {
			return nil, err
		}
	}
	return u.Client.Update(ctx, lease, opts)
}

var leases = schema.GroupResource{Resource: "leases"}

// refusals are how an API server refuses a mark for good. An admission webhook that denies without
// a code makes it a bad request.
var refusals = map[string]error{
	"forbidden":   apierrors.NewForbidden(leases, "", errors.New("not yours")),
	"invalid":     apierrors.NewInvalid(schema.GroupKind{Kind: "Lease"}, "", nil),
	"bad request": apierrors.NewBadRequest("admission webhook denied the request"),
}

func TestMarkThatIsRefusedHoldsNothingUp(t *testing.T) {
	for name, no := range refusals {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 8, func(t *testing.T, s *testFleet) {
				// The strike, the strike without a mark, and the mark before a shard runs.
				refused := []error{no, nil, no}
				a := s.guard("a", true, func(c *Config) { c.Leases = &unmarkable{c.Leases.(*leasetest.Client), refused} })
				c := s.guard("c", true, nil)
				pass(time.Minute)
				s.allHeld("a", "c")
				if err := c.publish("JTI=1"); err != nil {
					t.Fatal(err)
				}
				c.client.Block()
				pass(20 * time.Second)
				s.allHeld("a")
				if n := a.count(EventFenceRefused); n != 1 {
					t.Errorf("%d events report it, want 1", n)
				}
			})
		})
	}
}

// refusesMarks is the client of an API server that refuses every Lease with a mark.
type refusesMarks struct {
	*leasetest.Client
	with error
}

func (r refusesMarks) Update(ctx context.Context, lease *coordinationv1.Lease, opts metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	if lease.Annotations[leaserecord.FencedAnnotation] != "" {
		return nil, r.with
	}
	return r.Client.Update(ctx, lease, opts)
}

// TestMemberReturnsWithoutAMark has a member whose next incarnation may not mark the one before it.
func TestMemberReturnsWithoutAMark(t *testing.T) {
	for name, no := range refusals {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 4, func(t *testing.T, s *testFleet) {
				c := s.guard("c", true, nil)
				pass(time.Minute)
				if err := c.publish("JTI=1"); err != nil {
					t.Fatal(err)
				}
				c.client.Block()
				pass(20 * time.Second)
				next := s.guard("c", true, func(c *Config) { c.Leases = refusesMarks{c.Leases.(*leasetest.Client), no} })
				pass(time.Minute)
				s.allHeld("c")
				if n := next.count(EventFenceRefused); n != 1 {
					t.Errorf("%d events report it, want 1", n)
				}
			})
		})
	}
}

// TestMarkIsTriedAgain answers the mark with every temporary error.
func TestMarkIsTriedAgain(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, s *testFleet) {
		c := s.guard("c", true, nil)
		pass(time.Minute)
		if err := c.publish("JTI=1"); err != nil {
			t.Fatal(err)
		}
		conflict := apierrors.NewConflict(leases, "", errors.New("changed"))
		u := &unmarkable{errs: []error{conflict, conflict, apierrors.NewServerTimeout(leases, "update", 1), conflict}}
		a := s.guard("a", true, func(c *Config) { u.Client = c.Leases.(*leasetest.Client); c.Leases = u })
		c.client.Block()
		pass(time.Minute)
		s.allHeld("a")
		if marks := s.marks(c.Incarnation()); len(marks) != 1 || len(u.errs) > 0 {
			t.Errorf("%d marks, want 1; %d errors left", len(marks), len(u.errs))
		}
		if n := a.count(EventFenceRefused); n != 0 {
			t.Errorf("%d events report a refusal", n)
		}
	})
}

// TestNothingIsFencedWhereNobodyEnforcesIt checks that takeovers take no longer than without a
// fence.
func TestNothingIsFencedWhereNobodyEnforcesIt(t *testing.T) {
	inBubble(t, 8, func(t *testing.T, s *testFleet) {
		a := s.guard("a", false, nil)
		c := s.guard("c", false, nil)
		pass(time.Minute)
		if err := c.publish("JTI=1"); err != nil {
			t.Error(err)
		}
		pass(time.Second)
		c.client.Block("update")
		// Publishing does not wait, because nothing depends on it.
		if err := c.publish("JTI=2"); err != nil {
			t.Error(err)
		}
		c.client.Block()
		pass(30 * time.Second)
		s.allHeld("a")
		if marks := s.marks(c.Incarnation()); len(marks) != 0 {
			t.Errorf("%d marks, want none", len(marks))
		}
		s.requireTakenOverAtOnce(a, c.Incarnation())
	})
}

func TestCredentialThatCannotBePublished(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, s *testFleet) {
		a := s.guard("a", true, nil)
		pass(time.Minute)
		a.client.Block("update")
		began := time.Now()
		if err := a.publish("JTI=1"); err == nil || time.Since(began) > election.DefaultTiming().RenewDeadline {
			t.Errorf("a credential that is not on the Lease: %v after %v, want an error by the renew deadline", err, time.Since(began))
		}
		a.client.Unblock()
		<-a.ended
		if err := a.publish("JTI=2"); !errors.Is(err, membership.ErrLost) {
			t.Errorf("a credential of a lost member: %v, want %v", err, membership.ErrLost)
		}
	})
}
