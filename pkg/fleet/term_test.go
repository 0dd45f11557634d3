package fleet

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"k8s.io/klog/v2"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/election/leasetest"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// Latencies of requests and watches.
const (
	oneWay = 10 * time.Millisecond
	lag    = 5 * time.Millisecond
	// untilSeen is the time from the holder's writing of the release until another member sees it.
	// The release accounts for the time before.
	untilSeen = oneWay + lag
)

// eventLog records when work really ran, on any member, and what the members report.
type eventLog struct {
	mu      sync.Mutex
	runs    []span
	stopped []span
	said    []timedEvent
}

type span struct {
	id     shard.ID
	extent shard.Extent
	at     time.Time
}

type timedEvent struct {
	Event
	at time.Time
}

// keep records the work and the events of a member.
func (b *eventLog) keep(c *Config) {
	build, observe := c.Build, c.Observe
	c.Build = func(ctx context.Context, w Work) (Instance, error) {
		extent, running := shard.Extent{Range: w.Shard.Range, Controllers: w.Controllers}, w.Running
		w.Running = func() {
			b.mu.Lock()
			b.runs = append(b.runs, span{w.Shard.ID, extent, time.Now()})
			b.mu.Unlock()
			running()
		}
		instance, err := build(ctx, w)
		if err != nil {
			return nil, err
		}
		return loggedWork{instance.(*fakeWork), b, extent}, nil
	}
	c.Observe = func(e Event) {
		b.mu.Lock()
		b.said = append(b.said, timedEvent{e, time.Now()})
		b.mu.Unlock()
		observe(e)
	}
}

type loggedWork struct {
	*fakeWork
	log    *eventLog
	extent shard.Extent
}

func (c loggedWork) Run(ctx context.Context) error {
	err := c.fakeWork.Run(ctx)
	c.log.mu.Lock()
	defer c.log.mu.Unlock()
	c.log.stopped = append(c.log.stopped, span{c.work.Shard.ID, c.extent, time.Now()})
	return err
}

// since returns the EventRunning events since then.
func (b *eventLog) since(then time.Time) []timedEvent {
	b.mu.Lock()
	defer b.mu.Unlock()
	var found []timedEvent
	for _, s := range b.said {
		if s.Type == EventRunning && !s.at.Before(then) {
			found = append(found, s)
		}
	}
	return found
}

// gap returns how long some part of the shard had not been worked on when the shard began at a
// time, as the work saw it: since the first of the last workers of its parts stopped.
func (b *eventLog) gap(id shard.ID, at time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	var extent shard.Extent
	for _, r := range b.runs {
		if r.id == id && r.at.Equal(at) {
			extent = r.extent
		}
	}
	last := map[shard.ID]time.Time{}
	for _, s := range b.stopped {
		if s.extent.Overlaps(extent) && !s.at.After(at) {
			last[s.id] = s.at
		}
	}
	latest := time.Time{}
	for _, t := range last {
		if t.After(latest) {
			latest = t
		}
	}
	first := latest
	for _, t := range last { // predecessors of one change stop together, earlier ones long before
		if latest.Sub(t) < time.Second && t.Before(first) {
			first = t
		}
	}
	return at.Sub(first)
}

// expect requires that since then exactly n acquisitions ran, all by how and why.
func (b *eventLog) expect(t *testing.T, then time.Time, n int, how How, why Reason) []timedEvent {
	t.Helper()
	said := b.since(then)
	for _, s := range said {
		if s.Acquisition.How != how || s.Acquisition.Reason != why {
			t.Errorf("%s came by %s/%s, want %s/%s", s.ID, s.Acquisition.How, s.Acquisition.Reason, how, why)
		}
	}
	if len(said) != n || n == 0 {
		t.Errorf("%d acquisitions by %s/%s, want %d", len(said), how, why, n)
	}
	return said
}

// expectGaps requires that the reported unowned time is what the work itself saw, minus the part
// that nobody can see.
func (b *eventLog) expectGaps(t *testing.T, said []timedEvent) {
	t.Helper()
	for _, s := range said {
		if gap := b.gap(s.ID, s.at); s.Acquisition.Unowned != gap-untilSeen {
			t.Errorf("%s: unowned for %v, but nobody worked on it for %v, of which %v cannot be seen", s.ID, s.Acquisition.Unowned, gap, untilSeen)
		}
	}
}

func (s *testFleet) slow(processes ...*process) {
	for _, proc := range processes {
		proc.client.Script(func(string) leasetest.Fault { return leasetest.Fault{Out: oneWay, Back: oneWay} })
		proc.client.LagWatch(lag)
	}
}

// handovers returns the releases since then, and requires that there are n.
func (b *eventLog) handovers(t *testing.T, then time.Time, n int) []timedEvent {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	var found []timedEvent
	for _, s := range b.said {
		if s.Handover != nil && !s.at.Before(then) {
			found = append(found, s)
		}
	}
	if len(found) != n || n == 0 {
		t.Errorf("%d shards were released, want %d", len(found), n)
	}
	return found
}

// TestHowShardsCome takes a fleet through every way in which a shard comes to its holder, and
// compares what members report with what the work saw.
func TestHowShardsCome(t *testing.T) {
	inBubble(t, 8, func(t *testing.T, s *testFleet) {
		log := &eventLog{}
		then := time.Now()
		a := s.launch("a", log.keep)
		s.slow(a)
		pass(time.Minute)
		for _, said := range log.expect(t, then, len(s.plan.Shards()), HowVacant, ReasonNew) {
			adopted := log.when(EventPlanAdopted)
			if said.Acquisition.Unowned != said.at.Sub(adopted) || said.Acquisition.Cold == nil {
				t.Errorf("%s: unowned for %v, although the plan is %v old; cold: %v", said.ID, said.Acquisition.Unowned, said.at.Sub(adopted), said.Acquisition.Cold)
			}
		}

		then = time.Now()
		b := s.launch("b", log.keep)
		s.slow(b)
		pass(time.Minute)
		moved := s.holders()["b"]
		said := log.expect(t, then, moved, HowHandoff, ReasonRebalance)
		log.expectGaps(t, said)
		for _, one := range said {
			// The watch delivers a claim no later than the answer to its request.
			phases := one.Acquisition.Phases
			if one.Acquisition.From != a.Incarnation() || one.Acquisition.Cold != nil || phases[PhaseAcquire] != 2*oneWay ||
				phases[PhaseAsk] < 100*time.Millisecond || phases[PhaseAsk] > 300*time.Millisecond || phases[PhaseStart] != 0 {
				t.Errorf("%s: %+v", one.ID, one.Acquisition)
			}
		}
		for _, gone := range log.handovers(t, then, moved) {
			// The work takes a tenth of a second to return.
			if h := gone.Handover; h.Reason != ReasonRebalance || h.To != b.Incarnation() || h.Drain != 100*time.Millisecond || gone.Duration != 4*oneWay {
				t.Errorf("%s: handed over as %+v in %v", gone.ID, h, gone.Duration)
			}
		}

		then = time.Now()
		b.stop()
		<-b.ended
		pass(10 * time.Second)
		log.expectGaps(t, log.expect(t, then, moved, HowHandoff, ReasonLeaving))
		for _, gone := range log.handovers(t, then, moved) {
			if h := gone.Handover; h.Reason != ReasonLeaving || h.To != a.Incarnation() {
				t.Errorf("%s: handed over as %+v", gone.ID, h)
			}
		}

		then = time.Now()
		s.apply(s.next(func(r *shard.Ring) { split(r, 3); merge(r, 0) }))
		pass(10 * time.Second)
		log.expectGaps(t, log.expect(t, then, 3, HowHandoff, ReasonPlan))
		for _, gone := range log.handovers(t, then, 3) {
			if h := gone.Handover; h.Reason != ReasonPlan || h.To != "" || h.Drain != 100*time.Millisecond {
				t.Errorf("%s: handed over as %+v", gone.ID, h)
			}
		}
		pass(time.Minute)

		a.stop()
		<-a.ended
		pass(time.Minute)
		then = time.Now()
		a = s.launch("a", log.keep)
		s.slow(a)
		pass(time.Minute)
		for _, said := range log.expect(t, then, len(s.plan.Shards()), HowVacant, ReasonReleased) {
			if up := said.at.Sub(then) + s.stopped(said.ID); said.Acquisition.Unowned > up {
				t.Errorf("%s: unowned for %v, of which its member can know only %v", said.ID, said.Acquisition.Unowned, up)
			}
		}
	})
}

// stopped returns how long the last holder of a shard had been unable to write when it released the
// shard: a member releases its shards a few at a time.
func (s *testFleet) stopped(id shard.ID) time.Duration {
	var stopped time.Duration
	for _, w := range s.store.History() {
		if w.After.Name != leaseapi.ShardLease("flotilla", id) {
			continue
		}
		if r := leaserecord.From(w.After); r.IsReleased() {
			stopped = r.Stopped()
		}
	}
	return stopped
}

// when returns when an event of this kind was first reported.
func (b *eventLog) when(kind election.EventType) time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	i := slices.IndexFunc(b.said, func(s timedEvent) bool { return s.Type == kind })
	return b.said[i].at
}

// TestTakeoverCountsFromTheLastHeartbeat cuts a member off.
func TestTakeoverCountsFromTheLastHeartbeat(t *testing.T) {
	inBubble(t, 8, func(t *testing.T, s *testFleet) {
		log := &eventLog{}
		a := s.launch("a", log.keep)
		b := s.launch("b", log.keep)
		s.slow(a, b)
		pass(time.Minute)
		held := s.holders()["b"]
		then := time.Now()
		b.client.Block()
		pass(time.Second)
		last := leaserecord.From(s.store.Get(leaserecord.MemberLease("flotilla", "b"))).RenewTime
		last = last.Add(oneWay + lag) // when a saw it
		pass(time.Minute)
		for _, said := range log.expect(t, then, held, HowTakeover, ReasonExpired) {
			want := said.at.Sub(last)
			a := said.Acquisition
			if a.From != b.Incarnation() || a.Unowned < election.DefaultTiming().LeaseDuration ||
				a.Unowned.Round(time.Microsecond) != want.Round(time.Microsecond) {
				t.Errorf("%s: %+v, want unowned for %v", said.ID, a, want)
			}
		}
	})
}

// TestSlowChecksOfCaches cuts a member off where it takes long to compare prepared caches with the
// present. They are thrown away only if filling them was faster, or if the check does not end. In
// some cases one of the member's shards has just been merged with one of another member, which
// prepares for both.
func TestSlowChecksOfCaches(t *testing.T) {
	least, most := refreshTimeouts*DefaultHandoffTimeout, fillTimeouts*DefaultHandoffTimeout
	for name, test := range map[string]struct {
		filling, checking time.Duration
		merge, cold       bool
	}{
		"filling took longer":                       {filling: 2 * least, checking: least + time.Second},
		"filling was faster":                        {checking: least + time.Second, cold: true},
		"the check takes even longer":               {filling: 2 * least, checking: 2*least + time.Second, cold: true},
		"the check takes too long":                  {filling: 2 * most, checking: most + time.Second, cold: true},
		"of a merged shard, filling took longer":    {filling: 2 * least, checking: least + time.Second, merge: true},
		"of a merged shard, the check takes longer": {filling: 2 * least, checking: 2*least + time.Second, merge: true, cold: true},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 4, func(t *testing.T, s *testFleet) {
				s.filling, s.checking = test.filling, test.checking
				log := &eventLog{}
				standby := func(c *Config) { log.keep(c); c.Standby = !test.merge }
				s.launch("a", standby)
				pass(time.Minute)
				b := s.launch("b", standby)
				pass(20 * time.Minute)
				held, then := s.holders()["b"], time.Now()
				if held == 0 {
					t.Fatal("b holds nothing")
				}
				if test.merge {
					holder := func(sh shard.Shard) string {
						return leaserecord.MemberOf(s.holderOf(leaseapi.ShardLease("flotilla", sh.ID)))
					}
					s.apply(s.next(func(r *shard.Ring) {
						i := slices.IndexFunc(r.Shards, func(sh shard.Shard) bool { return holder(sh) == "a" })
						if holder(r.Shards[i-1]) != "b" {
							t.Fatal("no neighbours have different holders")
						}
						r.Shards[i].Range.Start = r.Shards[i-1].Range.Start
						r.Shards = slices.Delete(r.Shards, i-1, i)
					}))
					pass(election.DefaultTiming().LeaseDuration) // a prepares
				}
				b.client.Block()
				pass(10 * time.Minute)
				checked := 0
				for _, said := range log.since(then) {
					if test.merge && !strings.HasPrefix(said.ID.Name, "g2-") {
						continue
					}
					checked++
					if cold := said.Acquisition.Cold != nil; cold != test.cold {
						t.Errorf("%s: begins with empty caches: %v, want %t", said.ID, said.Acquisition.Cold, test.cold)
					}
				}
				if !test.merge && checked != held || checked == 0 {
					t.Errorf("%d shards began, want the %d of the member that was cut off, or a merged one", checked, held)
				}
			})
		})
	}
}

// TestReleasedAfterALoss makes the API server unreachable for longer than a claim lasts, but not
// until others may take over. A member that has lost its claims must then still release the Leases.
func TestReleasedAfterALoss(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, s *testFleet) {
		log := &eventLog{}
		a := s.launch("a", log.keep)
		pass(time.Minute)
		before := s.lost()
		then := time.Now()
		a.client.Block("update")
		pass(election.DefaultTiming().RenewDeadline + time.Second)
		a.client.Unblock()
		<-a.ended // its own Lease went first: a process that was cut off restarts
		pass(time.Second)
		s.launch("a", log.keep)
		pass(time.Minute)
		if s.lost() == before {
			t.Fatal("nothing was lost")
		}
		log.expect(t, then, len(s.plan.Shards()), HowVacant, ReasonReleased)
	})
}

// TestClaimThatEndsBeforeItsWork checks that a claim counts as abandoned if the answer to the
// acquisition comes after the member was told to stop.
func TestClaimThatEndsBeforeItsWork(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, s *testFleet) {
		a := s.launch("a", nil)
		begun := time.Now()
		a.client.Script(func(verb string) leasetest.Fault {
			if verb == "create" && time.Since(begun) > time.Second { // member and plan Leases exist
				return leasetest.Fault{Back: 3 * time.Second}
			}
			return leasetest.Fault{}
		})
		for i := 0; i < 1000 && s.store.Get(leaseapi.ShardLease("flotilla", s.plan.Shards()[0].ID)) == nil; i++ {
			pass(100 * time.Millisecond)
		}
		a.stop()
		<-a.ended
		if running, abandoned := s.reported(EventRunning), s.reported(EventAbandoned); running != 0 || abandoned != s.reported(election.EventAcquired)-2 || abandoned == 0 {
			t.Errorf("%d ran and %d of %d were abandoned, want all", running, abandoned, s.reported(election.EventAcquired)-2)
		}
	})
}

// TestTermAfterARelease acquires a Lease that the holder of term 7 released, or somebody emptied,
// without being asked.
func TestTermAfterARelease(t *testing.T) {
	born := time.Unix(1000, 0)
	for name, test := range map[string]struct {
		before  func(*termRecord)
		emptied bool
		why     Reason
	}{
		"the member wanted it from one that left": {
			before: func(r *termRecord) { r.want("a_1", 7) }, why: ReasonLeaving,
		},
		"another one held it in between": {
			before: func(r *termRecord) { r.want("b_1", 6); r.want("a_1", 7) }, why: ReasonLeaving,
		},
		"nobody wanted it": {before: func(*termRecord) {}, why: ReasonReleased},
		"its holder has not left": {
			before: func(r *termRecord) { r.want("b_1", 7) }, why: ReasonReleased,
		},
		"another one took it over from the one that left, and released it": {
			before: func(r *termRecord) { r.want("a_1", 6) }, why: ReasonReleased,
		},
		"the member wanted it until the fleet was stopped": {
			before: func(r *termRecord) { r.want("a_1", 7); r.want("", 0) }, why: ReasonReleased,
		},
		"somebody emptied it": {
			before: func(r *termRecord) { r.want("a_1", 7) }, emptied: true, why: ReasonReleased,
		},
	} {
		t.Run(name, func(t *testing.T) {
			lease := election.Observation{Record: leaserecord.Record{Name: "x", Transitions: 7}, Exists: true, Seen: born}
			if !test.emptied {
				lease.Annotations = map[string]string{leaserecord.ReleasedAnnotation: "7"}
			}
			var r termRecord
			test.before(&r)
			r.acquire("self_1", lease, 8, time.Second, born, born.Add(time.Second), func(holder string) bool { return holder == "a_1" })
			how, from := HowVacant, ""
			if test.why == ReasonLeaving {
				how, from = HowHandoff, "a_1"
			}
			if a := r.run(8, born.Add(9*time.Second)); a.How != how || a.Reason != test.why || a.From != from || a.Unowned != 9*time.Second {
				t.Errorf("got %+v, want %s/%s from %q after 9 s", a, how, test.why, from)
			}
			lease.Transitions, lease.Annotations = 9, map[string]string{leaserecord.ReleasedAnnotation: "9"}
			r.acquire("self_1", lease, 10, time.Second, born, born, func(string) bool { return true })
			if a := r.run(10, born); a.Reason != ReasonReleased {
				t.Errorf("the next time: got %s/%s, want %s: it has not wanted the shard since", a.How, a.Reason, ReasonReleased)
			}
		})
	}
}

// TestTermOfSuccessors tests predecessors that were released one after another, and some whose
// holders died.
func TestTermOfSuccessors(t *testing.T) {
	born := time.Unix(1000, 0)
	at := func(seconds int) time.Time { return born.Add(time.Duration(seconds) * time.Second) }
	predecessor := func(holder string, seen int) election.Observation {
		return election.Observation{Record: leaserecord.Record{Name: holder, Holder: holder}, Exists: true, Seen: at(seen)}
	}
	acquired := func() *termRecord {
		var successor termRecord
		successor.acquire("self_1", election.Observation{}, 0, time.Second, born, at(1), func(string) bool { return false })
		return &successor
	}
	successor := acquired()
	successor.succeed([]election.Observation{predecessor("", 5), predecessor("", 3), predecessor("", 4)}, at(2), at(6))
	if a := successor.run(0, at(8)); a.How != HowHandoff || a.Reason != ReasonPlan || a.Unowned != 5*time.Second || a.Phases[PhaseAsk] != 4*time.Second || a.Phases[PhaseStart] != 2*time.Second {
		t.Errorf("after predecessors were released at 3, 4 and 5: %+v", a)
	}
	// The Lease of a dead holder was last seen to change when it was acquired, an hour ago.
	dead := predecessor("b_1", -3600)
	dead.Heartbeat = &election.Observation{Record: leaserecord.Record{Name: "b", Holder: "b_1"}, Exists: true, Seen: at(-600), Renewed: at(2)}
	earlier := predecessor("c_1", -3600)
	earlier.Heartbeat = &election.Observation{Record: leaserecord.Record{Name: "c", Holder: "c_1"}, Exists: true, Seen: at(-600), Renewed: at(1)}
	successor = acquired()
	successor.succeed([]election.Observation{predecessor("", 5), earlier, dead}, at(2), at(20))
	if _, planned := successor.unrun(0, at(20)); planned {
		t.Error("a takeover counts as planned")
	}
	if a := successor.run(0, at(21)); a.How != HowTakeover || a.Reason != ReasonExpired || a.From != "b_1" || a.Unowned != 20*time.Second || a.Phases[PhaseAsk] != 0 || a.Phases[PhaseStart] != time.Second {
		t.Errorf("after one predecessor was released at 5 and the holders of others died at 1 and 2: %+v", a)
	}
	successor = acquired()
	successor.succeedDead([]election.Observation{predecessor("long_ago", -1000), predecessor("b_1", -2), predecessor("c_1", -700)})
	if a := successor.run(0, at(8)); a.How != HowTakeover || a.Reason != ReasonExpired || a.From != "b_1" || a.Unowned != 10*time.Second {
		t.Errorf("after one holder died, with very old Leases: %+v", a)
	}
	if successor.run(0, at(9)) != nil || successor.abandon(0, true) != nil {
		t.Error("an acquisition ends twice")
	}
	successor = acquired()
	if a := successor.run(1, at(8)); a != nil {
		t.Errorf("the end of another term ends it: %+v", a)
	}
}

// TestWorkThatNeverRuns checks that a claim whose work never starts counts as abandoned, however
// often it is tried.
func TestWorkThatNeverRuns(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, s *testFleet) {
		a := s.launch("a", func(c *Config) {
			c.Build = func(context.Context, Work) (Instance, error) { return nil, errors.New("never") }
		})
		pass(time.Minute)
		for _, state := range a.Shards() {
			if state.State != StateStarting {
				t.Errorf("%s is %s, want starting", state.ID, state.State)
			}
		}
		a.stop()
		<-a.ended
		if running, abandoned := s.reported(EventRunning), s.reported(EventAbandoned); running != 0 || abandoned != len(s.plan.Shards()) {
			t.Errorf("%d ran and %d were abandoned, want none and %d", running, abandoned, len(s.plan.Shards()))
		}
	})
}

// TestShardStates follows shards through a handoff and a change of plan.
func TestShardStates(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, s *testFleet) {
		a := s.launch("a", nil)
		s.slow(a)
		pass(time.Minute)
		b := s.launch("b", nil)
		s.slow(b)
		b.client.LagWatch(2*oneWay + 50*time.Millisecond) // delays b's claims
		seen := map[string]map[ShardState]bool{"a": {}, "b": {}}
		look := func(d time.Duration) {
			for range int(d / (5 * time.Millisecond)) {
				pass(5 * time.Millisecond)
				for name, proc := range map[string]*process{"a": a, "b": b} {
					for _, state := range proc.Shards() {
						seen[name][state.State] = true
						if state.State == StateRunning && !state.Owned {
							t.Errorf("%s runs %s, which it does not own", name, state.ID)
						}
					}
				}
			}
		}
		look(30 * time.Second)
		require := func(name string, want ...ShardState) {
			t.Helper()
			got := slices.Sorted(maps.Keys(seen[name]))
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Errorf("%s has gone through %v, want %v", name, got, want)
			}
		}
		require("a", StateNone, StateRunning, StateDraining)
		require("b", StateNone, StatePreparing, StatePrepared, StateStarting, StateRunning)
		seen["a"], seen["b"] = map[ShardState]bool{}, map[ShardState]bool{}
		s.apply(s.next(func(r *shard.Ring) { split(r, 0); split(r, 2); split(r, 4) }))
		look(10 * time.Second)
		for _, name := range []string{"a", "b"} {
			if !seen[name][StateWaiting] || !seen[name][StateDraining] {
				t.Errorf("%s has gone through %v when the plan changed", name, slices.Sorted(maps.Keys(seen[name])))
			}
		}
	})
}

// requireConcluded checks that every claim on a shard was reported once as running, refused or
// abandoned, and that every slot was given back.
func (s *testFleet) requireConcluded() {
	s.mu.Lock()
	defer s.mu.Unlock()
	concluded := map[string]int{}
	key := func(e Event) string { return fmt.Sprint(e.Name, " ", e.Holder, " ", e.Term) }
	for _, e := range s.events {
		if e.Acquisition != nil {
			concluded[key(e)]++
		}
	}
	for _, e := range s.events {
		if e.Type == election.EventAcquired && e.ID != (shard.ID{}) && concluded[key(e)] != 1 {
			s.t.Errorf("the acquisition of %s has %d ends, want one", key(e), concluded[key(e)])
		}
	}
	for _, proc := range s.all {
		if free, queued := proc.slots.free, len(proc.slots.queue); free != proc.config.Handoffs || queued != 0 {
			s.t.Errorf("%s has ended with %d free slots and %d in the queue, want %d and none", proc.incarnation, free, queued, proc.config.Handoffs)
		}
	}
}

// TestForgetting checks that every shard that leaves the plan is reported as forgotten, after its
// last event.
func TestForgetting(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, s *testFleet) {
		s.launch("a", nil)
		s.launch("b", nil)
		pass(time.Minute)
		gone := s.plan.Rings[0].Shards[1].ID
		s.apply(s.next(func(r *shard.Ring) { split(r, 1) }))
		pass(10 * time.Second)
		s.mu.Lock()
		defer s.mu.Unlock()
		forgotten := 0
		for _, e := range s.events {
			switch {
			case e.Type == EventForgotten && e.ID != gone:
				t.Errorf("%s is forgotten, but still in the plan", e.ID)
			case e.Type == EventForgotten:
				forgotten++
			case e.ID == gone && forgotten == 2:
				t.Errorf("after %s was forgotten it reported %s", e.ID, e.Type)
			}
		}
		if forgotten != 2 {
			t.Errorf("%d of 2 members have forgotten %s", forgotten, gone)
		}
	})
}

// TestIdleFleetIsQuiet checks that a fleet at rest logs nothing for an hour at the default
// verbosity.
func TestIdleFleetIsQuiet(t *testing.T) {
	inBubble(t, 8, func(t *testing.T, s *testFleet) {
		var mu sync.Mutex
		var lines []string
		s.ctx = klog.NewContext(t.Context(), funcr.New(func(_, args string) {
			mu.Lock()
			defer mu.Unlock()
			lines = append(lines, args)
		}, funcr.Options{}))
		for _, name := range []string{"a", "b", "c"} {
			s.launch(name, func(c *Config) { c.Standby = name == "c"; c.Replanning.Interval = 10 * time.Minute })
		}
		pass(25 * time.Minute) // the planner looks for the first time
		s.allHeld("a", "b", "c")
		mu.Lock()
		if len(lines) == 0 {
			t.Error("nothing was logged while the fleet started: the test does not see the log")
		}
		lines = nil
		mu.Unlock()
		s.mu.Lock()
		s.events = nil
		s.mu.Unlock()
		pass(time.Hour)
		mu.Lock()
		defer mu.Unlock()
		if len(lines) > 0 {
			t.Errorf("logged while nothing happened: %d lines, the first are\n%s", len(lines), strings.Join(lines[:min(len(lines), 10)], "\n"))
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, e := range s.events {
			if e.Type != election.EventRenewed {
				t.Errorf("reported while nothing happened: %+v", e)
			}
		}
		s.events = nil
	})
}
