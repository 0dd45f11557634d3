package fleet

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/election/membership"
	"github.com/flotilla-kube/flotilla/pkg/fleet/assignment"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
	"github.com/flotilla-kube/flotilla/pkg/shard/skew"
)

// buildOf returns the build of a version. Version 1 has the controllers ended and ended-group,
// later ones begun and begun-group instead. The controller moved goes from ranges to group nodes in
// version 2, and version 4 can run it only there.
func buildOf(version int) skew.Build {
	controller := func(name string, group string, scopes ...shard.Scope) skew.Controller {
		return skew.Controller{Name: name, Group: group, Scopes: scopes}
	}
	b := skew.Build{
		Version: fmt.Sprintf("v1.%d.0", version),
		Rings:   map[shard.Scope]string{shard.ScopeNamespaced: "namespaces", shard.ScopeCluster: "cluster"},
		Controllers: []skew.Controller{
			controller("job-controller", "", shard.ScopeNamespaced),
			controller("garbage-controller", "garbage", shard.ScopeCluster),
			controller("nodes-controller", "nodes", shard.ScopeCluster),
		},
	}
	moved := controller("moved", "nodes", shard.ScopeNamespaced)
	switch {
	case version == 2 || version == 3:
		moved.Scopes, moved.Earlier = []shard.Scope{shard.ScopeCluster, shard.ScopeNamespaced}, shard.ScopeNamespaced
	case version > 3:
		moved.Scopes = []shard.Scope{shard.ScopeCluster}
	}
	b.Controllers = append(b.Controllers, moved)
	if version == 1 {
		b.Controllers = append(b.Controllers, controller("ended", "", shard.ScopeNamespaced), controller("ended-group", "old", shard.ScopeCluster))
	} else {
		b.Controllers = append(b.Controllers, controller("begun", "", shard.ScopeNamespaced), controller("begun-group", "new", shard.ScopeCluster))
	}
	return b
}

// planOf returns the plan as the planner of a version would adapt it.
func planOf(t *testing.T, version int, plan shard.Plan) shard.Plan {
	t.Helper()
	next, _, err := buildOf(version).Adapt(plan, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	next.Generation = 1
	return next
}

// withBuild gives a member the build of a version.
func (s *testFleet) withBuild(version int) func(*Config) {
	plan := planOf(s.t, version, s.plan)
	return func(c *Config) { c.Catalogue, c.Plan = buildOf(version), plan }
}

// layoutOf describes where a plan has the controllers that differ between versions.
func layoutOf(plan shard.Plan) string {
	var all []string
	for id, extent := range plan.Extents() {
		s, _ := plan.Shard(id)
		for _, c := range extent.Controllers {
			if !strings.HasSuffix(c, "-controller") {
				where := s.Group
				if s.Namespaced() {
					where = id.Ring
				}
				all = append(all, c+" in "+where)
			}
		}
	}
	slices.Sort(all)
	return strings.Join(slices.Compact(all), ", ")
}

const (
	layoutOne = "ended in namespaces, ended-group in old, moved in namespaces"
	layoutTwo = "begun in namespaces, begun-group in new, moved in nodes"
)

// coverageWatch checks continuously whether controllers run on every namespace.
type coverageWatch struct {
	fleet       *testFleet
	controllers []string
	stop        chan struct{}
	ended       chan struct{}
	// longest is the longest time for which each controller did not run somewhere.
	longest map[string]time.Duration
	// scene is a dump of holders and workers when a controller had first not run somewhere for a
	// while.
	scene string
}

// watch starts a coverageWatch. Everything must already run.
func (s *testFleet) watch(controllers ...string) *coverageWatch {
	w := &coverageWatch{fleet: s, controllers: controllers, stop: make(chan struct{}), ended: make(chan struct{}), longest: map[string]time.Duration{}}
	go func() {
		defer close(w.ended)
		since, begin := map[string]time.Time{}, time.Now()
		for {
			now := time.Now()
			for _, c := range controllers {
				if s.covered(c) {
					delete(since, c)
				} else if _, open := since[c]; !open {
					since[c] = now
				} else {
					w.longest[c] = max(w.longest[c], now.Sub(since[c]))
					if now.Sub(since[c]) > 2*time.Second && w.scene == "" {
						w.scene = fmt.Sprintf("since %v:\n%s", since[c].Sub(begin), s.dump())
					}
				}
			}
			select {
			case <-w.stop:
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	}()
	s.t.Cleanup(w.end)
	return w
}

func (w *coverageWatch) end() {
	select {
	case <-w.stop:
	default:
		close(w.stop)
	}
	<-w.ended
}

// require fails if a controller did not run somewhere for longer than most.
func (w *coverageWatch) require(most time.Duration) {
	w.fleet.t.Helper()
	w.end()
	for _, c := range w.controllers {
		if w.longest[c] > most {
			w.fleet.t.Errorf("%s did not run somewhere for %v, want at most %v; %s", c, w.longest[c], most, w.scene)
		}
	}
}

// dump describes who holds what, and who works on what.
func (s *testFleet) dump() string {
	var lines []string
	working := s.working()
	for id, w := range working {
		lines = append(lines, fmt.Sprintf("%s works on %s, %v", w.incarnation[:6], id, w.extent.Controllers))
	}
	last := map[string]leaserecord.Record{}
	for _, write := range s.store.History() {
		if write.After != nil {
			last[write.After.Name] = leaserecord.From(write.After)
		}
	}
	for _, r := range last {
		lines = append(lines, fmt.Sprintf("Lease %s: holder %.6s term %d, %v", r.Name, r.Holder, r.Transitions, leaseapi.Shorten(fmt.Sprint(r.Annotations), 700)))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// covered reports whether the controller runs on every namespace.
func (s *testFleet) covered(controller string) bool {
	var ranges []shard.Range
	for _, w := range s.working() {
		if slices.Contains(w.extent.Controllers, controller) {
			ranges = append(ranges, w.extent.Range)
		}
	}
	slices.SortFunc(ranges, func(a, b shard.Range) int { return cmp.Compare(a.Start, b.Start) })
	next := uint64(0)
	for i, r := range ranges {
		if r.Start != next {
			return false
		}
		if next = r.End; next == 0 {
			return i == len(ranges)-1
		}
	}
	return false
}

// runners returns the members that run the controller, sorted.
func (s *testFleet) runners(controller string) []string {
	var names []string
	for _, w := range s.working() {
		if slices.Contains(w.extent.Controllers, controller) {
			names = append(names, leaserecord.MemberOf(w.incarnation))
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func (s *testFleet) requireLayout(when, want string) shard.Plan {
	s.t.Helper()
	plan := must(leaseapi.PlanOn(s.store.Get(leaseapi.PlanLease("flotilla"))))
	if got := layoutOf(plan); got != want {
		s.t.Errorf("%s the plan has %s, want %s", when, got, want)
	}
	return plan
}

// rollTo restarts the members one after another with another version.
func (s *testFleet) rollTo(processes map[string]*process, version int, after func(name string)) {
	s.t.Helper()
	for _, name := range []string{"c", "b", "a"} {
		processes[name].stop()
		<-processes[name].ended
		if err := processes[name].err; err != nil {
			s.t.Errorf("%s ended with %v", name, err)
		}
		processes[name] = s.launch(name, s.withBuild(version))
		for range 90 {
			if pass(time.Second); processes[name].Ready() == nil {
				break
			}
		}
		if err := processes[name].Ready(); err != nil {
			s.t.Errorf("%s of version %d does not get ready: %v", name, version, err)
		}
		after(name)
	}
}

// TestMinorVersions rolls a fleet to the next minor version and back. Controllers that both
// versions have must run all the time. Controllers that one of them has must begin once all members
// have them, and run until none has.
func TestMinorVersions(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, s *testFleet) {
		processes := map[string]*process{}
		for _, name := range []string{"a", "b", "c"} {
			processes[name] = s.launch(name, s.withBuild(1))
		}
		pass(time.Minute)
		s.requireLayout("at first", layoutOne)
		w := s.watch("job-controller", "garbage-controller", "nodes-controller", "moved")

		s.rollTo(processes, 2, func(name string) {
			if name == "a" {
				return
			}
			s.requireLayout("while some are of the older version,", layoutOne)
			if lacks := processes["c"].Lacks(); !slices.Equal(lacks, []string{"ended", "ended-group"}) {
				t.Errorf("c lacks %v", lacks)
			}
			newer := func(runner string) bool { return runner >= name }
			if slices.ContainsFunc(s.runners("ended"), newer) || slices.ContainsFunc(s.runners("ended-group"), newer) || len(s.runners("ended-group")) == 0 {
				t.Errorf("ended is run by %v, ended-group by %v, want some of the older version", s.runners("ended"), s.runners("ended-group"))
			}
		})
		pass(time.Minute)
		s.requireLayout("when all are of the newer version,", layoutTwo)
		for _, c := range []string{"begun", "begun-group", "moved", "job-controller"} {
			if !s.covered(c) {
				t.Errorf("%s does not run everywhere: %v", c, s.runners(c))
			}
		}
		if runners := slices.Concat(s.runners("ended"), s.runners("ended-group")); len(runners) > 0 {
			t.Errorf("controllers that nobody has are run by %v", runners)
		}
		w.require(2 * time.Second)

		w = s.watch("job-controller", "garbage-controller", "nodes-controller", "moved")
		s.rollTo(processes, 1, func(name string) {
			if name == "a" {
				return
			}
			s.requireLayout("while some are of the newer version,", "begun in namespaces, begun-group in new, moved in namespaces")
			older := func(runner string) bool { return runner >= name }
			if slices.ContainsFunc(s.runners("begun"), older) || slices.ContainsFunc(s.runners("begun-group"), older) || len(s.runners("begun-group")) == 0 {
				t.Errorf("begun is run by %v, begun-group by %v, want some of the newer version", s.runners("begun"), s.runners("begun-group"))
			}
		})
		pass(time.Minute)
		plan := s.requireLayout("when all are of the older version again,", layoutOne)
		if plan.Generation > 8 {
			t.Errorf("the plan has changed %d times", plan.Generation)
		}
		for _, c := range []string{"ended", "ended-group", "moved", "job-controller"} {
			if !s.covered(c) {
				t.Errorf("%s does not run everywhere: %v", c, s.runners(c))
			}
		}
		w.require(2 * time.Second)
	})
}

// TestOlderBuildsAfterACrash kills all members of the newer version at once, and starts older ones.
// They must go on by a plan with controllers that they do not have, and change it. No live member
// can tell them more.
func TestOlderBuildsAfterACrash(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, s *testFleet) {
		a, b := s.launch("a", s.withBuild(2)), s.launch("b", s.withBuild(2))
		pass(time.Minute)
		s.requireLayout("at first", layoutTwo)
		a.client.Block()
		b.client.Block()
		c := s.launch("c", s.withBuild(1))
		pass(2 * time.Minute)
		for _, controller := range []string{"moved", "job-controller", "nodes-controller"} {
			if got := s.runners(controller); !slices.Equal(got, []string{"c"}) || !s.covered(controller) {
				t.Errorf("%s is run by %v", controller, got)
			}
		}
		s.requireLayout("while the others may come back,", "begun in namespaces, begun-group in new, moved in namespaces")
		if err := c.Ready(); err != nil {
			t.Error(err)
		}
		pass(leaseapi.MaxAway)
		s.requireLayout("when they have been away for long,", layoutOne)
	})
}

// TestUnknownToAll checks that a controller that nobody knows is refused, even while members
// differ, and that the last good plan stays in force.
func TestUnknownToAll(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, s *testFleet) {
		processes := []*process{s.launch("a", s.withBuild(1)), s.launch("b", s.withBuild(1)), s.launch("c", s.withBuild(2))}
		pass(time.Minute)
		good := must(leaseapi.PlanOn(s.store.Get(leaseapi.PlanLease("flotilla"))))
		s.plan = good
		before := s.terms()
		s.applyBad(func(p *shard.Plan) {
			i := slices.IndexFunc(p.Rings, func(r shard.Ring) bool { return r.Name == "namespaces" })
			p.Rings[i].Controllers = append(p.Rings[i].Controllers, "zeppelin")
			for j := range p.Rings[i].Shards {
				p.Rings[i].Shards[j].Name += "-new"
			}
		})
		pass(5 * time.Second)
		for _, proc := range processes {
			s.requireRefused(proc, `rings[0].controllers[3]: Invalid value: "zeppelin": must be a controller that 'flotilla controllers' lists, or that a live member knows`, good)
		}
		s.requireTerms(before, 0, "refused")
	})
}

// TestNoCommonScope starts a member that can run a controller only in a scope in which the other
// members cannot. It must get no shards, and say why.
func TestNoCommonScope(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, s *testFleet) {
		s.launch("a", s.withBuild(1))
		pass(time.Minute)
		d := s.launch("d", s.withBuild(4))
		pass(time.Minute)
		if err := d.Ready(); err == nil || !strings.Contains(err.Error(), `first upgrade to a version that can run it in both`) {
			t.Errorf("d is ready: %v", err)
		}
		if got := s.holders(); got["d"] > 0 || !s.covered("moved") {
			t.Errorf("d has shards: %v", got)
		}
		s.requireLayout("with one that has no scope in common,", layoutOne)
	})
}

// TestNewestPlans checks that a member of the newest version has the plan's Lease.
func TestNewestPlans(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, s *testFleet) {
		s.launch("a", s.withBuild(1))
		pass(time.Minute)
		planner := func() string {
			return leaserecord.MemberOf(*s.store.Get(leaseapi.PlanLease("flotilla")).Spec.HolderIdentity)
		}
		if planner() != "a" {
			t.Errorf("the planner is %s", planner())
		}
		b := s.launch("b", s.withBuild(2))
		pass(time.Minute)
		if planner() != "b" {
			t.Errorf("the planner is %s, want the newer one", planner())
		}
		b.stop()
		<-b.ended
		pass(10 * time.Second)
		if planner() != "a" {
			t.Errorf("the planner is %s after the newer one has left", planner())
		}
	})
}

// TestAnEarlierBuildIsThere checks that nothing changes while a live member does not publish what
// it knows.
func TestAnEarlierBuildIsThere(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, s *testFleet) {
		one := s.withBuild(1)
		a := s.launch("a", func(c *Config) { one(c); c.Catalogue = skew.Build{} })
		pass(time.Minute)
		s.launch("b", s.withBuild(2))
		pass(2 * time.Minute)
		s.requireLayout("while one does not say what it knows,", layoutOne)
		a.stop()
		<-a.ended
		pass(2 * time.Minute)
		s.requireLayout("when it has left,", layoutTwo)
	})
}

// TestWhoGetsWhat checks that a member gets no shards of a ring with a controller that it can run
// only elsewhere, while another member can run it there; and that a group goes to a member whose
// build has all of it.
func TestWhoGetsWhat(t *testing.T) {
	one, two := planOf(t, 1, testPlan(t, 4)), planOf(t, 2, testPlan(t, 4))
	for name, test := range map[string]struct {
		plan     shard.Plan
		versions map[string]int
		ring     string
		want     []string
		of       string // a group; by are the members that may get it
		by       []string
	}{
		"ranges, newer":     {one, map[string]int{"a": 1, "b": 2}, "namespaces", []string{"a", "b"}, "", nil},
		"groups, newer":     {one, map[string]int{"a": 1, "b": 2}, "cluster", []string{"a", "b"}, "old", []string{"a"}},
		"groups, older":     {two, map[string]int{"a": 1, "b": 2, "c": 1}, "cluster", []string{"b"}, "nodes", []string{"b"}},
		"ranges, older":     {two, map[string]int{"a": 1, "b": 2}, "namespaces", []string{"a", "b"}, "", nil},
		"nobody is left":    {two, map[string]int{"a": 1, "c": 1}, "cluster", []string{"a", "c"}, "nodes", []string{"a", "c"}},
		"nobody has it all": {one, map[string]int{"a": 2, "b": 2}, "cluster", []string{"a", "b"}, "old", []string{"a", "b"}},
		"all have it":       {two, map[string]int{"a": 2, "b": 3}, "cluster", []string{"a", "b"}, "new", []string{"a", "b"}},
	} {
		t.Run(name, func(t *testing.T) {
			var observations []election.Observation
			for member, version := range test.versions {
				observations = append(observations, election.Observation{
					Record: leaserecord.Record{
						Name: leaserecord.MemberLease("flotilla", member), Holder: member + "_1", Duration: time.Minute, RenewTime: time.Now(), AcquireTime: time.Now(),
						Annotations: map[string]string{leaserecord.StateAnnotation: string(membership.Active), leaseapi.CatalogueAnnotation: buildOf(version).Known().String()},
					},
					Exists: true, Seen: time.Now(), HolderSeen: time.Now(),
				})
			}
			roster := membership.RosterFrom("flotilla", observations, time.Minute, time.Now())
			for holder := range test.versions {
				// Whoever holds the group.
				holders := map[shard.ID]string{}
				for _, s := range test.plan.Shards() {
					holders[s.ID] = holder
				}
				w, err := assignment.Of(test.plan, test.plan.Digest(), roster, leaseapi.KnownMembers("flotilla", observations), holders, assignment.Assignment{})
				if err != nil {
					t.Fatal(err)
				}
				if got := w.MembersOf(test.ring); !slices.Equal(got, test.want) {
					t.Errorf("ring %s has the members %v, want %v", test.ring, got, test.want)
				}
				if test.of == "" {
					continue
				}
				ring, _ := test.plan.Ring("cluster")
				i := slices.IndexFunc(ring.Shards, func(s shard.Shard) bool { return s.Group == test.of })
				if owner := w.Owner(ring.Shards[i].ID); !slices.Contains(test.by, owner) {
					t.Errorf("group %s goes to %q, want one of %v", test.of, owner, test.by)
				}
				if next := w.Standbys(test.plan, holders)[ring.Shards[i].ID]; len(test.versions) == 3 && holder == "b" && next == "b" {
					t.Errorf("b is its own standby")
				}
			}
		})
	}
}
