package fleet

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/fleet/assignment"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
	"github.com/flotilla-kube/flotilla/pkg/shard/skew"
)

// buildOf returns what a build of a version knows. Of two neighbours the newer has begun, and has
// not ended; moved goes from ranges to group nodes in version 2, and version 4 could not run it in
// ranges any more.
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

// planOf is what the planner of a version makes of a plan.
func planOf(t *testing.T, version int, plan shard.Plan) shard.Plan {
	t.Helper()
	next, _, err := buildOf(version).Adapt(plan, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	next.Generation = 1
	return next
}

// of has a member be of a version.
func (s *world) of(version int) func(*Config) {
	plan := planOf(s.t, version, s.plan)
	return func(c *Config) { c.Catalogue, c.Plan = buildOf(version), plan }
}

// plain writes down where a plan has what differs between versions.
func plain(plan shard.Plan) string {
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
	plainOne = "ended in namespaces, ended-group in old, moved in namespaces"
	plainTwo = "begun in namespaces, begun-group in new, moved in nodes"
)

// watchman looks, all the time, at whether controllers run on every namespace.
type watchman struct {
	world       *world
	controllers []string
	stop        chan struct{}
	ended       chan struct{}
	// longest is for how long at most one of them did not run somewhere.
	longest map[string]time.Duration
	// scene is who had what when the first of them had not run somewhere for a while.
	scene string
}

// watch begins to look once everything runs.
func (s *world) watch(controllers ...string) *watchman {
	w := &watchman{world: s, controllers: controllers, stop: make(chan struct{}), ended: make(chan struct{}), longest: map[string]time.Duration{}}
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
						w.scene = fmt.Sprintf("since %v:\n%s", since[c].Sub(begin), s.scene())
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

func (w *watchman) end() {
	select {
	case <-w.stop:
	default:
		close(w.stop)
	}
	<-w.ended
}

// require fails if one of them did not run somewhere for longer.
func (w *watchman) require(most time.Duration) {
	w.world.t.Helper()
	w.end()
	for _, c := range w.controllers {
		if w.longest[c] > most {
			w.world.t.Errorf("%s did not run somewhere for %v, want at most %v; %s", c, w.longest[c], most, w.scene)
		}
	}
}

// scene says who holds what, and who works on what.
func (s *world) scene() string {
	var lines []string
	working := s.working()
	for id, w := range working {
		lines = append(lines, fmt.Sprintf("%s works on %s, %v", w.incarnation[:6], id, w.extent.Controllers))
	}
	last := map[string]election.Record{}
	for _, write := range s.store.History() {
		if write.After != nil {
			last[write.After.Name] = election.RecordFrom(write.After)
		}
	}
	for _, r := range last {
		lines = append(lines, fmt.Sprintf("Lease %s: holder %.6s term %d, %v", r.Name, r.Holder, r.Transitions, leaseapi.Shorten(fmt.Sprint(r.Annotations), 700)))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// covered reports whether the controller runs on every namespace.
func (s *world) covered(controller string) bool {
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
func (s *world) runners(controller string) []string {
	var names []string
	for _, w := range s.working() {
		if slices.Contains(w.extent.Controllers, controller) {
			names = append(names, election.MemberOf(w.incarnation))
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func (s *world) requirePlain(when, want string) shard.Plan {
	s.t.Helper()
	plan := must(leaseapi.PlanOn(s.store.Get(leaseapi.PlanLease("flotilla"))))
	if got := plain(plan); got != want {
		s.t.Errorf("%s the plan has %s, want %s", when, got, want)
	}
	return plan
}

// rolled restarts the members one after the other with another version.
func (s *world) rolled(processes map[string]*process, version int, after func(name string)) {
	s.t.Helper()
	for _, name := range []string{"c", "b", "a"} {
		processes[name].stop()
		<-processes[name].ended
		if err := processes[name].err; err != nil {
			s.t.Errorf("%s ended with %v", name, err)
		}
		processes[name] = s.launch(name, s.of(version))
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

// TestMinorVersions rolls a fleet to the next minor version and back. What both have runs all the
// time, and what one of them has begins once all have it, and runs until nobody has it.
func TestMinorVersions(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, s *world) {
		processes := map[string]*process{}
		for _, name := range []string{"a", "b", "c"} {
			processes[name] = s.launch(name, s.of(1))
		}
		pass(time.Minute)
		s.requirePlain("at first", plainOne)
		w := s.watch("job-controller", "garbage-controller", "nodes-controller", "moved")

		s.rolled(processes, 2, func(name string) {
			if name == "a" {
				return
			}
			s.requirePlain("while some are of the older version,", plainOne)
			if lacks := processes["c"].Lacks(); !slices.Equal(lacks, []string{"ended", "ended-group"}) {
				t.Errorf("c lacks %v", lacks)
			}
			newer := func(runner string) bool { return runner >= name }
			if slices.ContainsFunc(s.runners("ended"), newer) || slices.ContainsFunc(s.runners("ended-group"), newer) || len(s.runners("ended-group")) == 0 {
				t.Errorf("ended is run by %v, ended-group by %v, want some of the older version", s.runners("ended"), s.runners("ended-group"))
			}
		})
		pass(time.Minute)
		s.requirePlain("when all are of the newer version,", plainTwo)
		for _, c := range []string{"begun", "begun-group", "moved", "job-controller"} {
			if !s.covered(c) {
				t.Errorf("%s does not run everywhere: %v", c, s.runners(c))
			}
		}
		if runners := slices.Concat(s.runners("ended"), s.runners("ended-group")); len(runners) > 0 {
			t.Errorf("what nobody has is run by %v", runners)
		}
		w.require(2 * time.Second)

		w = s.watch("job-controller", "garbage-controller", "nodes-controller", "moved")
		s.rolled(processes, 1, func(name string) {
			if name == "a" {
				return
			}
			s.requirePlain("while some are of the newer version,", "begun in namespaces, begun-group in new, moved in namespaces")
			older := func(runner string) bool { return runner >= name }
			if slices.ContainsFunc(s.runners("begun"), older) || slices.ContainsFunc(s.runners("begun-group"), older) || len(s.runners("begun-group")) == 0 {
				t.Errorf("begun is run by %v, begun-group by %v, want some of the newer version", s.runners("begun"), s.runners("begun-group"))
			}
		})
		pass(time.Minute)
		plan := s.requirePlain("when all are of the older version again,", plainOne)
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

// TestOlderBuildsAfterACrash has all members of the newer version die at once, and older ones
// start: they go on by a plan with controllers that they do not have, and change it. Nobody is
// there to ask.
func TestOlderBuildsAfterACrash(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, s *world) {
		a, b := s.launch("a", s.of(2)), s.launch("b", s.of(2))
		pass(time.Minute)
		s.requirePlain("at first", plainTwo)
		a.client.Block()
		b.client.Block()
		c := s.launch("c", s.of(1))
		pass(2 * time.Minute)
		for _, controller := range []string{"moved", "job-controller", "nodes-controller"} {
			if got := s.runners(controller); !slices.Equal(got, []string{"c"}) || !s.covered(controller) {
				t.Errorf("%s is run by %v", controller, got)
			}
		}
		s.requirePlain("while the others may come back,", "begun in namespaces, begun-group in new, moved in namespaces")
		if err := c.Ready(); err != nil {
			t.Error(err)
		}
		pass(leaseapi.MaxAway)
		s.requirePlain("when they have been away for long,", plainOne)
	})
}

// TestUnknownToAll holds that a controller that nobody knows is refused, also while members differ,
// and that the last good plan stays in force.
func TestUnknownToAll(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, s *world) {
		processes := []*process{s.launch("a", s.of(1)), s.launch("b", s.of(1)), s.launch("c", s.of(2))}
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

// TestNoCommonScope has a member start that can run a controller in another scope alone than those
// that are there: it gets no shards, and says why.
func TestNoCommonScope(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, s *world) {
		s.launch("a", s.of(1))
		pass(time.Minute)
		d := s.launch("d", s.of(4))
		pass(time.Minute)
		if err := d.Ready(); err == nil || !strings.Contains(err.Error(), `first upgrade to a version that can run it in both`) {
			t.Errorf("d is ready: %v", err)
		}
		if got := s.holders(); got["d"] > 0 || !s.covered("moved") {
			t.Errorf("d has shards: %v", got)
		}
		s.requirePlain("with one that has no scope in common,", plainOne)
	})
}

// TestNewestPlans holds that a member of the newest version has the plan's Lease.
func TestNewestPlans(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, s *world) {
		s.launch("a", s.of(1))
		pass(time.Minute)
		planner := func() string {
			return election.MemberOf(*s.store.Get(leaseapi.PlanLease("flotilla")).Spec.HolderIdentity)
		}
		if planner() != "a" {
			t.Errorf("the planner is %s", planner())
		}
		b := s.launch("b", s.of(2))
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

// TestAnEarlierBuildIsThere holds that nothing changes while a live member does not say what it
// knows.
func TestAnEarlierBuildIsThere(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, s *world) {
		one := s.of(1)
		a := s.launch("a", func(c *Config) { one(c); c.Catalogue = skew.Build{} })
		pass(time.Minute)
		s.launch("b", s.of(2))
		pass(2 * time.Minute)
		s.requirePlain("while one does not say what it knows,", plainOne)
		a.stop()
		<-a.ended
		pass(2 * time.Minute)
		s.requirePlain("when it has left,", plainTwo)
	})
}

// TestWhoGetsWhat holds that a member gets no shards of a ring with a controller that it can run
// elsewhere alone, while another can run it there; and that a group goes to a member whose build
// has all of it.
func TestWhoGetsWhat(t *testing.T) {
	one, two := planOf(t, 1, testPlan(t, 4)), planOf(t, 2, testPlan(t, 4))
	for name, test := range map[string]struct {
		plan     shard.Plan
		versions map[string]int
		ring     string
		want     []string
		of       string // a group, and who may get it
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
					Record: election.Record{
						Name: election.MemberLease("flotilla", member), Holder: member + "_1", Duration: time.Minute, RenewTime: time.Now(), AcquireTime: time.Now(),
						Annotations: map[string]string{election.StateAnnotation: string(election.MemberActive), leaseapi.CatalogueAnnotation: buildOf(version).Known().String()},
					},
					Exists: true, Seen: time.Now(), HolderSeen: time.Now(),
				})
			}
			roster := election.RosterFrom("flotilla", observations, time.Minute, time.Now())
			for holder := range test.versions {
				// Whoever holds the group now.
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
					t.Errorf("b succeeds itself")
				}
			}
		})
	}
}
