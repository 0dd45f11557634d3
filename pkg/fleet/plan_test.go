package fleet

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/election/leasetest"
	"github.com/flotilla-kube/flotilla/pkg/fleet/assignment"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// apply writes a plan as an operator does, and makes it the test's plan.
func (s *testFleet) apply(plan shard.Plan) {
	s.t.Helper()
	lease, err := leaseapi.WithPlan("flotilla", s.store.Get(leaseapi.PlanLease("flotilla")), plan)
	if err != nil {
		s.t.Fatal(err)
	}
	s.store.Put(lease)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.plan = plan
}

// next returns the present plan with the next generation and with ring namespaces changed.
func (s *testFleet) next(change func(*shard.Ring)) shard.Plan {
	s.t.Helper()
	current, err := leaseapi.PlanOn(s.store.Get(leaseapi.PlanLease("flotilla")))
	if err != nil {
		s.t.Fatal(err)
	}
	edited := assignment.KeepHomes(current, "namespaces", func(id shard.ID) string {
		return leaserecord.MemberOf(leaserecord.From(s.store.Get(leaseapi.ShardLease("flotilla", id))).Holder)
	})
	for i := range edited.Rings {
		edited.Rings[i].Shards = slices.Clone(edited.Rings[i].Shards)
		if edited.Rings[i].Name == "namespaces" {
			change(&edited.Rings[i])
		}
	}
	next, err := current.Successor(edited)
	if err != nil {
		s.t.Fatal(err)
	}
	return next
}

// split cuts the i-th shard in two.
func split(r *shard.Ring, i int) {
	old := r.Shards[i]
	middle := old.Range.Start + (old.Range.End-old.Range.Start)/2
	first, second := old, old
	first.Range.End, second.Range.Start = middle, middle
	second.Name += "b"
	r.Shards = slices.Replace(r.Shards, i, i+1, first, second)
}

// merge joins the i-th shard and the next.
func merge(r *shard.Ring, i int) {
	r.Shards[i].Range.End = r.Shards[i+1].Range.End
	r.Shards = slices.Delete(r.Shards, i+1, i+2)
}

// terms returns the term of each shard's Lease.
func (s *testFleet) terms() map[shard.ID]int32 {
	terms := map[shard.ID]int32{}
	for _, proc := range s.plan.Shards() {
		terms[proc.ID] = leaserecord.From(s.store.Get(leaseapi.ShardLease("flotilla", proc.ID))).Transitions
	}
	return terms
}

// requireWorked fails unless exactly the shards of the plan are worked on.
func (s *testFleet) requireWorked() {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, proc := range s.plan.Shards() {
		if _, worked := s.workers[proc.ID]; !worked {
			s.t.Errorf("%s is not worked on", proc.ID)
		}
	}
	if len(s.workers) != len(s.plan.Shards()) {
		s.t.Errorf("%d shards are worked on, the plan has %d", len(s.workers), len(s.plan.Shards()))
	}
}

// reported returns how many events of a kind there were.
func (s *testFleet) reported(kind election.EventType) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, e := range s.events {
		if e.Type == kind {
			n++
		}
	}
	return n
}

// TestChangeOfPlan splits a shard and merges two, and checks that the others never stop and that
// new shards begin warm.
func TestChangeOfPlan(t *testing.T) {
	inBubble(t, 8, func(t *testing.T, s *testFleet) {
		for _, name := range []string{"a", "b", "c"} {
			s.launch(name, nil)
		}
		pass(time.Minute)
		s.allHeld("a", "b", "c")
		for step, change := range []func(*shard.Ring){
			func(r *shard.Ring) { split(r, 3) },
			func(r *shard.Ring) { merge(r, 5) },
			func(r *shard.Ring) { // boundaries move
				r.Shards[1].Range.End += 1 << 50
				r.Shards[2].Range.Start += 1 << 50
			},
			func(r *shard.Ring) {
				split(r, 0)
				merge(r, 4)
			},
		} {
			before, warm, began := s.terms(), s.counts().warm, time.Now()
			s.apply(s.next(change))
			pass(2 * time.Second)
			s.requireWorked()
			fresh := 0
			for id, term := range s.terms() {
				if old, kept := before[id]; kept && old != term {
					t.Errorf("step %d: %s was in both plans and has been stopped", step, id)
				} else if !kept {
					fresh++
				}
			}
			if s.counts().warm-warm != fresh || fresh == 0 {
				t.Errorf("step %d: %d of %d new shards began warm", step, s.counts().warm-warm, fresh)
			}
			for id, w := range s.working() {
				if _, kept := before[id]; !kept {
					t.Logf("step %d: %s began after %v", step, id, w.began.Sub(began))
				}
			}
		}
	})
}

// TestControllersMoveFromRingToRing opens a ring for two controllers, served by members of its own,
// and closes it again.
func TestControllersMoveFromRingToRing(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, s *testFleet) {
		s.plan.Rings[0].Controllers = []string{"cronjob-controller", "deployment-controller", "job-controller"}
		s.launch("a", func(c *Config) { c.Rings = []string{"namespaces", "cluster"} })
		s.launch("b", func(c *Config) { c.Rings = []string{"namespaces", "cluster"} })
		pass(time.Minute)
		s.allHeld("a", "b")
		together := s.next(func(*shard.Ring) {})
		apart := s.next(func(r *shard.Ring) { r.Controllers = []string{"deployment-controller"} })
		batch := shard.Ring{Name: "batch", Scope: shard.ScopeNamespaced, Controllers: []string{"cronjob-controller", "job-controller"}}
		for i, r := range must(shard.EqualRanges(2)) {
			batch.Shards = append(batch.Shards, shard.Shard{ID: shard.ID{Ring: "batch", Name: fmt.Sprintf("%02d", i)}, Range: r})
		}
		apart.Rings = append(apart.Rings, batch)

		old := s.plan
		s.apply(apart)
		pass(5 * time.Second)
		s.plan = old
		s.requireWorked() // nobody serves the new ring
		if s.reported(EventPlanRefused) != 2 {
			t.Errorf("a ring that nobody serves was refused %d times, want by both", s.reported(EventPlanRefused))
		}
		s.launch("x", func(c *Config) { c.Rings = []string{"batch"} })
		pass(20 * time.Second)
		s.plan = apart
		s.requireWorked()
		for id, w := range s.working() {
			if (id.Ring == "batch") != (leaserecord.MemberOf(w.incarnation) == "x") {
				t.Errorf("%s is worked on by %s", id, w.incarnation)
			}
		}
		together.Generation = apart.Generation
		back, err := apart.Successor(together)
		if err != nil {
			t.Fatal(err)
		}
		s.apply(back)
		pass(5 * time.Second)
		s.requireWorked()
	})
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// TestPlanGoesBack changes the plan, and changes it back before that is done: shards that have not
// stopped must go on.
func TestPlanGoesBack(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, s *testFleet) {
		s.launch("a", nil)
		s.launch("b", nil)
		pass(time.Minute)
		before, first := s.terms(), s.plan
		next := s.next(func(r *shard.Ring) { split(r, 1); split(r, 3) })
		s.apply(next)
		pass(warming / 2)
		back, err := next.Successor(first)
		if err != nil {
			t.Fatal(err)
		}
		s.apply(back)
		pass(5 * time.Second)
		s.requireWorked()
		for id, term := range s.terms() {
			if id.Ring == "cluster" && before[id] != term {
				t.Errorf("%s has been stopped", id)
			}
		}
	})
}

// TestStoppedAsItSucceeds checks that a claim leaves nothing behind if it ends after its
// predecessors are gone and before its work begins.
func TestStoppedAsItSucceeds(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, s *testFleet) {
		var a *process
		var armed, succeeded atomic.Bool
		a = s.launch("a", func(c *Config) {
			observe := c.Observe
			c.Observe = func(e Event) {
				observe(e)
				if e.Type == EventBegun && armed.CompareAndSwap(true, false) {
					succeeded.Store(true)
					a.stop()
					synctest.Wait() // the claim has been asked to stop
				}
			}
		})
		pass(time.Minute)
		armed.Store(true)
		s.apply(s.next(func(r *shard.Ring) { split(r, 1) }))
		<-a.ended
		if left := s.counts().fakeWorks; !succeeded.Load() || left > 0 {
			t.Errorf("stopped as it succeeded: %t; %d instances are left", succeeded.Load(), left)
		}
	})
}

// TestSpoiltPlan writes nonsense in the plan's place: the last good plan must stay in force and be
// restored.
func TestSpoiltPlan(t *testing.T) {
	for name, spoil := range map[string]func(lease *coordinationv1.Lease){
		"junk":    func(l *coordinationv1.Lease) { l.Annotations[leaseapi.DocumentAnnotation] = "{junk" },
		"nothing": func(l *coordinationv1.Lease) { l.Annotations = nil },
		"a gap": func(l *coordinationv1.Lease) {
			l.Annotations[leaseapi.DocumentAnnotation] = strings.Replace(l.Annotations[leaseapi.DocumentAnnotation], "0x4000000000000000-", "0x5000000000000000-", 1)
		},
		"a generation without a successor": func(l *coordinationv1.Lease) {
			l.Annotations[leaseapi.DocumentAnnotation] = strings.Replace(l.Annotations[leaseapi.DocumentAnnotation], `"generation": 2`, `"generation": 9223372036854775807`, 1)
		},
		"an older generation": func(l *coordinationv1.Lease) {
			l.Annotations[leaseapi.DocumentAnnotation] = strings.Replace(l.Annotations[leaseapi.DocumentAnnotation], `"generation": 2`, `"generation": 1`, 1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 4, func(t *testing.T, s *testFleet) {
				a := s.launch("a", nil)
				pass(time.Minute)
				s.launch("b", nil)
				pass(time.Minute)
				s.apply(s.next(func(r *shard.Ring) { split(r, 0) }))
				pass(5 * time.Second)
				s.requireWorked()
				before := s.terms()
				lease := s.store.Get(leaseapi.PlanLease("flotilla")).DeepCopy()
				text := lease.Annotations[leaseapi.DocumentAnnotation]
				spoil(lease)
				if lease.Annotations[leaseapi.DocumentAnnotation] == text {
					t.Fatal("nothing was spoilt")
				}
				s.store.Put(lease)
				pass(5 * time.Second)
				// The planner may be quicker than members that would refuse the plan.
				if s.reported(EventPlanRestored) != 1 {
					t.Errorf("restored %d times, want once", s.reported(EventPlanRestored))
				}
				if err := a.Refused(); err != nil {
					t.Errorf("still refused: %v", err)
				}
				for id, term := range s.terms() {
					if before[id] != term {
						t.Errorf("%s was stopped", id)
					}
				}
				plan, err := leaseapi.PlanOn(s.store.Get(leaseapi.PlanLease("flotilla")))
				if err != nil || plan.Digest() != s.plan.Digest() || plan.Generation <= s.plan.Generation {
					t.Errorf("restored generation %d, %v; the last good one was %d", plan.Generation, err, s.plan.Generation)
				}
				if kept := s.store.Get(leaseapi.PlanLease("flotilla")).Annotations[leaseapi.RejectedAnnotation]; kept != lease.Annotations[leaseapi.DocumentAnnotation] {
					t.Errorf("the rejected text was kept as %q", kept)
				}
			})
		})
	}
}

// TestSpoiltPlanWithoutPlanner has nobody who could restore the plan: everything must go on by the
// last good one.
func TestSpoiltPlanWithoutPlanner(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, s *testFleet) {
		s.launch("a", nil)
		s.launch("b", nil)
		pass(time.Minute)
		before := s.terms()
		lease := s.store.Get(leaseapi.PlanLease("flotilla")).DeepCopy()
		nobody := leaserecord.NewIncarnation("nobody")
		lease.Spec.HolderIdentity = &nobody
		lease.Annotations[leaseapi.DocumentAnnotation] = strings.Replace(lease.Annotations[leaseapi.DocumentAnnotation], "0x4000000000000000-", "0x5000000000000000-", 1)
		s.store.Put(lease)
		pass(10 * time.Second)
		if s.reported(EventPlanRefused) != 2 {
			t.Errorf("refused %d times, want by both", s.reported(EventPlanRefused))
		}
		s.requireWorked()
		for id, term := range s.terms() {
			if before[id] != term {
				t.Errorf("%s was stopped", id)
			}
		}
		if said := s.store.Get("flotilla-member-a").Annotations[leaseapi.RefusedAnnotation]; !strings.Contains(said, "rings[0]") {
			t.Errorf("the member's Lease says %q, want the field", said)
		}
	})
}

// TestTwoPlansOfOneGeneration uses members that were cut off while the plan was started from
// scratch: in the end all must work by one plan.
func TestTwoPlansOfOneGeneration(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, s *testFleet) {
		a := s.launch("a", nil)
		pass(time.Minute)
		other := s.next(func(r *shard.Ring) { split(r, 1) })
		other.Generation = s.plan.Generation
		b := s.launch("b", nil)
		pass(time.Minute)
		// a and b do not work by the plan on the Lease, and a new member knows no other.
		lease := must(leaseapi.WithPlan("flotilla", s.store.Get(leaseapi.PlanLease("flotilla")), other))
		nobody := leaserecord.NewIncarnation("nobody") // counts as the planner until the Lease expires
		lease.Spec.HolderIdentity = &nobody
		s.store.Put(lease)
		c := s.launch("c", nil)
		pass(2 * time.Minute)
		plan := must(leaseapi.PlanOn(s.store.Get(leaseapi.PlanLease("flotilla"))))
		for _, proc := range []*process{a, b, c} {
			if got, _ := proc.Plan(); got.Digest() != plan.Digest() || proc.Refused() != nil {
				t.Errorf("%s works by generation %d, %s; on the Lease is %d, %s: %v", proc.Incarnation(), got.Generation, got.Digest(), plan.Generation, plan.Digest(), proc.Refused())
			}
		}
		s.plan = plan
		s.requireWorked()
	})
}

// TestMembersThatMissedGenerations cuts a member off while the plan changes twice. Its watch ends
// meanwhile, and the server does not continue it: the member never sees the plan in between.
func TestMembersThatMissedGenerations(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, s *testFleet) {
		a := s.launch("a", nil)
		s.launch("b", nil)
		pass(time.Minute)
		s.allHeld("a", "b")
		a.client.Block()
		s.apply(s.next(func(r *shard.Ring) { split(r, 1) }))
		pass(3 * time.Second)
		s.apply(s.next(func(r *shard.Ring) { merge(r, 3); split(r, 0) }))
		s.store.BreakWatches()
		s.store.Forget()
		pass(4 * time.Second)
		a.client.Unblock()
		pass(30 * time.Second)
		s.requireWorked()
		if isClosed(a.ended) {
			t.Fatalf("a has ended: %v", a.err)
		}
		if plan, _ := a.Plan(); plan.Generation != s.plan.Generation {
			t.Errorf("a works by generation %d, want %d", plan.Generation, s.plan.Generation)
		}
	})
}

// TestRandomPlans starts, stops and cuts off members at random while plans follow each other.
func TestRandomPlans(t *testing.T) {
	for range histories() {
		seed := rand.Uint64()
		if *seedFlag != 0 {
			seed = *seedFlag
		}
		t.Run(fmt.Sprintf("seed=%#x", seed), func(t *testing.T) {
			inBubble(t, 5, func(t *testing.T, s *testFleet) { randomPlans(t, s, rand.New(rand.NewPCG(seed, 0))) })
		})
	}
}

func randomPlans(t *testing.T, s *testFleet, random *rand.Rand) {
	launched := map[string]*process{}
	launch := func(name string) {
		launched[name] = s.launch(name, func(c *Config) { c.Standby = random.IntN(4) == 0 })
	}
	launch("a")
	launch("b")
	pass(30 * time.Second)
	for range 20 {
		name := string(rune('a' + random.IntN(4)))
		proc, exists := launched[name]
		switch {
		case random.IntN(2) == 0:
			s.apply(s.next(func(r *shard.Ring) { shuffle(r, random) }))
		case !exists:
			launch(name)
		case random.IntN(2) == 0:
			proc.stop()
			delete(launched, name)
		default:
			proc.client.Block()
			t.Cleanup(func() { proc.client.Unblock() })
			delete(launched, name)
		}
		pass(time.Duration(random.IntN(8_000)) * time.Millisecond)
	}
	if len(launched) == 0 {
		launch("a")
	}
	pass(3 * time.Minute)
	s.requireWorked()
	if len(s.exits) > 0 {
		t.Errorf("processes were ended: %v", s.exits)
	}
}

// shuffle changes a ring a little.
func shuffle(r *shard.Ring, random *rand.Rand) {
	i := random.IntN(len(r.Shards) - 1)
	switch random.IntN(4) {
	case 0:
		if len(r.Shards) > 2 {
			merge(r, i)
		}
	case 1:
		step := (r.Shards[i].Range.End - r.Shards[i].Range.Start) / 4
		r.Shards[i].Range.End -= step
		r.Shards[i+1].Range.Start -= step
	case 2:
		if len(r.Shards) < 10 {
			split(r, i)
		}
	default:
		r.Shards[i].Pin = string(rune('a' + random.IntN(4)))
	}
}

// TestFirstPlanThatIsRefused: something in the API server refuses the first plan. However often
// other Leases change, the member waits before it tries again.
func TestFirstPlanThatIsRefused(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, s *testFleet) {
		tries := 0
		a := s.launch("a", func(c *Config) {
			joined := false
			c.Leases.(*leasetest.Client).Script(func(verb string) leasetest.Fault {
				if verb != "create" || !joined {
					joined = joined || verb == "create"
					return leasetest.Fault{}
				}
				tries++
				return leasetest.Fault{Error: true}
			})
		})
		pass(2 * time.Second)
		before := tries
		for i := range 200 {
			s.store.Put(foreign("flotilla-else", fmt.Sprintf("nobody-%d", i)))
			pass(50 * time.Millisecond)
		}
		if got := tries - before; got < 4 || got > 8 {
			t.Errorf("tried %d times in ten seconds, want one every two", got)
		}
		a.client.Script(nil)
		pass(10 * time.Second)
		if _, known := a.Plan(); !known {
			t.Error("there is no plan once it is accepted")
		}
	})
}

// TestShardThatLeftWithoutALease deletes the Lease of a shard that has left the plan and waits for
// its successor. The successor may not have seen it, and run already, even if somebody has written
// the Lease again.
func TestShardThatLeftWithoutALease(t *testing.T) {
	t.Run("deleted", func(t *testing.T) { testWithoutALease(t, func(*testFleet, *coordinationv1.Lease) {}) })
	t.Run("replaced", func(t *testing.T) {
		testWithoutALease(t, func(s *testFleet, lease *coordinationv1.Lease) { s.store.Put(lease) })
	})
}

func testWithoutALease(t *testing.T, then func(s *testFleet, lease *coordinationv1.Lease)) {
	inBubble(t, 4, func(t *testing.T, s *testFleet) {
		s.launch("a", nil)
		s.launch("b", nil)
		pass(time.Minute)
		s.filling = 20 * time.Second
		s.apply(s.next(func(r *shard.Ring) { merge(r, 0) }))
		pass(5 * time.Second)
		gone := shard.ID{Ring: "namespaces", Name: "01"}
		if _, works := s.working()[gone]; !works {
			t.Fatalf("%s has not waited for its successor", gone)
		}
		lease := s.store.Get(mergedAway)
		s.store.Remove(mergedAway)
		then(s, lease)
		pass(5 * time.Second)
		if w, works := s.working()[gone]; works {
			t.Errorf("%s still works on %s, whose Lease is gone", w.incarnation, gone)
		}
		pass(time.Minute)
		s.allHeld("a", "b")
	})
}
