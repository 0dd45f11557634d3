package fleet

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// badPlans are changes of a plan that no member may adopt, keyed by a part of the reason. Some of
// them pass Check.
var badPlans = map[string]func(*shard.Plan){
	"rings[0].shards[1].range": func(p *shard.Plan) {
		p.Rings[0].Shards[1].Range.End++
		p.Rings[0].Shards[2].Range.Start++
	},
	"rings[0].controllers[1]": func(p *shard.Plan) {
		p.Rings[0].Controllers = append(p.Rings[0].Controllers, "strange-controller")
	},
	"rings[2].name": func(p *shard.Plan) {
		p.Rings = append(p.Rings, shard.Ring{Name: "unserved", Scope: shard.ScopeCluster, Shards: []shard.Shard{
			{ID: shard.ID{Ring: "unserved", Name: "g"}, Group: "g", Controllers: []string{"g-controller"}},
		}})
	},
}

// picky makes a member refuse strange controllers, and serve two rings only.
func picky(c *Config) {
	c.Rings = []string{"namespaces", "cluster"}
	c.Check = func(p shard.Plan) error {
		if i := slices.Index(p.Rings[0].Controllers, "strange-controller"); i >= 0 {
			return fmt.Errorf("rings[0].controllers[%d]: %q is unknown", i, p.Rings[0].Controllers[i])
		}
		return nil
	}
}

// applyBad writes a plan that no member may adopt, as somebody with kubectl could, and returns it.
func (s *testFleet) applyBad(change func(*shard.Plan), tamper ...func(*coordinationv1.Lease)) shard.Plan {
	s.t.Helper()
	plan := s.next(func(*shard.Ring) {})
	plan.Generation += 5 // beyond every refused generation
	change(&plan)
	document := must(plan.Document())
	s.store.Tamper(leaseapi.PlanLease("flotilla"), func(l *coordinationv1.Lease) {
		l.Annotations[leaseapi.DocumentAnnotation] = document
		for _, f := range tamper {
			f(l)
		}
	})
	return plan
}

// die cuts a member off until others may have taken over everything that it held.
func (proc *process) die() {
	proc.client.Block()
	pass(40 * time.Second)
}

// requireRefused fails unless the member refuses the plan on the Lease for this reason, and works
// by the good plan.
func (s *testFleet) requireRefused(proc *process, reason string, good shard.Plan) {
	s.t.Helper()
	if err := proc.Refused(); err == nil || !strings.Contains(err.Error(), reason) {
		s.t.Errorf("%s refuses because of %v, want %s", proc.Incarnation(), err, reason)
	}
	if plan, _ := proc.Plan(); plan.Generation != good.Generation || plan.Digest() != good.Digest() {
		s.t.Errorf("%s: %s works by generation %d, want %d", reason, proc.Incarnation(), plan.Generation, good.Generation)
	}
}

// requireTerms fails if a shard has been acquired more than more times since before.
func (s *testFleet) requireTerms(before map[shard.ID]int32, more int32, when string) {
	s.t.Helper()
	for id, term := range s.terms() {
		if term > before[id]+more {
			s.t.Errorf("%s: %s was in term %d and is in %d, want at most %d more", when, id, before[id], term, more)
		}
	}
}

// TestPlanThatMayNotFollow checks that all members refuse a bad plan and that it changes nothing:
// for running members, for the shards of a member that dies, for members that start, and even when
// no member is left that knew the good plan. An operator has to correct it.
func TestPlanThatMayNotFollow(t *testing.T) {
	for want, change := range badPlans {
		t.Run(want, func(t *testing.T) {
			inBubble(t, 4, func(t *testing.T, s *testFleet) {
				a, b := s.launch("a", picky), s.launch("b", picky)
				pass(time.Minute)
				s.allHeld("a", "b")
				good, before := s.plan, s.terms()
				bad := s.applyBad(change)
				pass(5 * time.Second)
				s.requireRefused(a, want, good)
				s.requireRefused(b, want, good)
				s.requireWorked()
				s.requireTerms(before, 0, "refused")

				b.die()
				s.requireWorked()
				s.requireTerms(before, 1, "a member died")

				before = s.terms()
				c := s.launch("c", picky)
				pass(time.Minute)
				s.requireRefused(c, want, good)
				s.requireWorked()
				s.requireTerms(before, 1, "a member started")

				before = s.terms()
				a.die()
				s.requireWorked()
				s.requireTerms(before, 1, "the last died that had seen the good plan")

				c.die()
				before = s.terms()
				d := s.launch("d", picky)
				pass(time.Minute)
				s.requireRefused(d, want, good)
				s.requireWorked()
				s.requireTerms(before, 1, "all had died")

				corrected := good
				corrected.Generation = bad.Generation + 1
				s.apply(corrected)
				pass(5 * time.Second)
				if err := d.Refused(); err != nil {
					t.Errorf("still refused: %v", err)
				}
				s.requireWorked()
			})
		})
	}
}

// TestLastGoodPlanIsLost writes a bad plan and removes the last good plan by which it would be
// judged.
func TestLastGoodPlanIsLost(t *testing.T) {
	forget := func(l *coordinationv1.Lease) { delete(l.Annotations, leaseapi.LastGoodAnnotation) }
	spoil := func(l *coordinationv1.Lease) { l.Annotations[leaseapi.LastGoodAnnotation] = "junk" }
	const want = "rings[0].shards[1].range"
	for name, tamper := range map[string]func(*coordinationv1.Lease){"removed": forget, "spoilt": spoil} {
		t.Run(name+" while members live", func(t *testing.T) {
			inBubble(t, 4, func(t *testing.T, s *testFleet) {
				s.launch("a", picky)
				pass(time.Minute)
				good := s.plan
				s.applyBad(badPlans[want], tamper)
				b := s.launch("b", picky)
				pass(time.Minute)
				s.requireRefused(b, want, good)
				s.requireWorked()
				if kept, err := leaseapi.LastGoodOn(s.store.Get(leaseapi.PlanLease("flotilla"))); err != nil || kept.Digest() != good.Digest() {
					t.Errorf("the Lease keeps generation %d as the last good plan, %v; want %d", kept.Generation, err, good.Generation)
				}
			})
		})
		t.Run(name+" while none lives", func(t *testing.T) {
			inBubble(t, 4, func(t *testing.T, s *testFleet) {
				a := s.launch("a", picky)
				pass(time.Minute)
				good := s.plan
				a.die()
				bad := s.applyBad(badPlans[want], tamper)
				b := s.launch("b", picky)
				pass(time.Minute)
				if _, known := b.Plan(); known || b.Refused() == nil || !strings.Contains(b.Refused().Error(), leaseapi.LastGoodAnnotation) {
					t.Errorf("b refuses because of %v, want that the last good plan is not known", b.Refused())
				}
				if n := len(s.working()); n != 0 {
					t.Errorf("%d shards are worked on by a plan that nobody has judged", n)
				}
				if s.reported(EventPlanRefused) == 0 {
					t.Error("no event reports it")
				}
				s.apply(must(bad.Successor(good))) // an operator's word
				pass(30 * time.Second)
				s.requireWorked()
				if b.Refused() != nil {
					t.Errorf("still refused: %v", b.Refused())
				}
			})
		})
		t.Run(name+" and the plan is good", func(t *testing.T) {
			inBubble(t, 4, func(t *testing.T, s *testFleet) {
				a := s.launch("a", picky)
				pass(time.Minute)
				a.die()
				s.store.Tamper(leaseapi.PlanLease("flotilla"), tamper) // as an older version would
				s.launch("b", picky)
				pass(time.Minute)
				s.requireWorked()
			})
		})
	}
}

// workersAt returns how many of the shards that are worked on cover a controller at a hash.
func (s *testFleet) workersAt(controller string, hash uint64) int {
	n := 0
	for _, w := range s.working() {
		if slices.Contains(w.extent.Controllers, controller) && w.extent.Range.Contains(hash) {
			n++
		}
	}
	return n
}

// TestSomeRefuse tests members that cannot work by a plan by which another works. They must keep
// what they run, and claim nothing else by the old plan, or each would wait for the other's shards.
func TestSomeRefuse(t *testing.T) {
	t.Run("it is the plan on the Lease", func(t *testing.T) { someRefuse(t, func(*testFleet) {}) })
	t.Run("all refuse the one after it", func(t *testing.T) {
		someRefuse(t, func(s *testFleet) { s.applyBad(badPlans["rings[0].shards[1].range"]) })
	})
}

// someRefuse makes a member work by a plan that the others refuse, calls next, and lets the others
// die.
func someRefuse(t *testing.T, next func(s *testFleet)) {
	t.Helper()
	inBubble(t, 6, func(t *testing.T, s *testFleet) {
		s.launch("a", nil)
		b, c := s.launch("b", picky), s.launch("c", picky)
		pass(time.Minute)
		s.allHeld("a", "b", "c")
		good := s.plan
		// Its ranges have more controllers than before, and so have new names.
		plan := s.next(func(r *shard.Ring) { r.Controllers = append(r.Controllers, "strange-controller") })
		s.apply(plan)
		pass(30 * time.Second)
		requireKept := func(when string, refusing ...*process) {
			t.Helper()
			for _, lease := range must(s.store.Client("test").List(t.Context(), metav1.ListOptions{})).Items {
				for _, proc := range refusing {
					if id := (shard.ID{Ring: lease.Labels[leaseapi.RingLabel], Name: lease.Labels[leaseapi.ShardLabel]}); id.Ring != "" && leaserecord.From(&lease).Holder == proc.Incarnation() {
						if _, planned := plan.Shard(id); planned && id.Ring == "namespaces" {
							t.Errorf("%s: %s holds %s, which it cannot run", when, proc.Incarnation(), lease.Name)
						}
						if s.working()[id].incarnation != proc.Incarnation() {
							t.Errorf("%s: %s holds %s and does not run it", when, proc.Incarnation(), lease.Name)
						}
					}
				}
			}
			for i := range uint64(64) {
				if n := s.workersAt("job-controller", i<<58); n != 1 {
					t.Errorf("%s: %d shards are worked on that cover %d/64 of the keyspace", when, n, i)
				}
			}
		}
		next(s)
		pass(5 * time.Second)
		requireKept("refused", b, c)
		c.die()
		requireKept("one of them died", b)
		c = s.launch("c", func(config *Config) { picky(config); config.Plan = good })
		pass(time.Minute)
		requireKept("it started again", b, c)
		b.die()
		requireKept("the other died", c)
		s.requireWorked()
	})
}

// TestShardThatIsNotInThePlan checks that such a shard is given up, and not claimed again before
// the plan changes.
func TestShardThatIsNotInThePlan(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, s *testFleet) {
		a := s.launch("a", picky)
		pass(time.Minute)
		r := a.runners.list()[0]
		before := s.terms()
		r.refuse(r.claimant.Claim().Term(), fmt.Errorf("%w of generation 9", errNotInPlan))
		pass(30 * time.Second)
		if _, worked := s.working()[r.shard.ID]; worked || r.claimant.Claim() != nil {
			t.Errorf("%s is claimed by the plan that does not have it", r.shard.ID)
		}
		s.requireTerms(before, 0, "given up")
		s.apply(s.next(func(r *shard.Ring) { r.Shards[0].Pin = "a" }))
		pass(10 * time.Second)
		s.requireWorked()
	})
}

// TestMemberWithoutPlanIsLeftOut tests a member that can work neither by a plan that all refuse nor
// by the last good one. It must own nothing, so that another one takes over what a dead member
// held.
func TestMemberWithoutPlanIsLeftOut(t *testing.T) {
	inBubble(t, 8, func(t *testing.T, s *testFleet) {
		a, b := s.launch("a", picky), s.launch("b", picky)
		pass(time.Minute)
		s.allHeld("a", "b")
		first := true // its own
		c := s.launch("c", func(c *Config) {
			c.Check = func(shard.Plan) error {
				if first {
					first = false
					return nil
				}
				return errors.New("rings[0].controllers[0]: unknown")
			}
		})
		pass(time.Minute)
		s.applyBad(badPlans["rings[0].controllers[1]"])
		pass(30 * time.Second)
		if got := a.Assignment().Foreign(); !slices.Equal(got, []string{"c"}) {
			t.Errorf("foreign members %v, want [c], which works by no plan", got)
		}
		if plan, found := c.Plan(); found {
			t.Errorf("c works by generation %d", plan.Generation)
		}
		b.die()
		s.allHeld("a")
	})
}

// TestFollowersCountOnEachOther makes two members work by a plan that a third refuses, and all
// refuse the next one. The shards that one of the two leaves must go to the other: the third would
// not claim them.
func TestFollowersCountOnEachOther(t *testing.T) {
	inBubble(t, 8, func(t *testing.T, s *testFleet) {
		a, b, c := s.launch("a", nil), s.launch("b", nil), s.launch("c", picky)
		pass(time.Minute)
		s.allHeld("a", "b", "c")
		s.apply(s.next(func(r *shard.Ring) { r.Controllers = append(r.Controllers, "strange-controller") }))
		pass(30 * time.Second)
		s.applyBad(badPlans["rings[0].shards[1].range"])
		pass(5 * time.Second)
		if err := c.Refused(); err == nil {
			t.Error("c refuses nothing")
		}
		if got := b.Assignment().Foreign(); !slices.Equal(got, []string{"c"}) {
			t.Errorf("foreign members %v, want [c], which works by an older plan", got)
		}
		a.die()
		for i := range uint64(64) {
			if n := s.workersAt("job-controller", i<<58); n != 1 {
				t.Errorf("%d shards are worked on that cover %d/64 of the keyspace", n, i)
			}
		}
	})
}
