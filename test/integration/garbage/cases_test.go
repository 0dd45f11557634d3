package garbage

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/flotilla-kube/flotilla/pkg/shard"
	"github.com/flotilla-kube/flotilla/test/harness"
)

var (
	k = id{clusterRole.name, -1, "k"}
	n = id{configMap.name, 0, "n"}
	x = id{thing.name, 0, "x"}
	y = id{configMap.name, 0, "y"}
)

func blocking(owners ...id) (edges []edge) {
	for _, o := range owners {
		edges = append(edges, edge{owner: o, blocking: true})
	}
	return edges
}

// fixture is a sandbox with few objects.
type fixture struct {
	*testing.T
	*sandbox
	*process
	deletions *deletionLog
}

func newFixture(t *testing.T, objects map[id][]edge) *fixture {
	t.Helper()
	a := newAPI(t)
	a.define(t, thing)
	a.define(t, globe)
	name := strings.ToLower(strings.Trim(strings.Map(func(r rune) rune {
		if r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' {
			return r
		}
		return '-'
	}, t.Name()), "-"))
	s := &fixture{T: t, sandbox: newSandbox(t, a, name, 4)}
	b := &pair{T: t, stock: s.sandbox, fleet: s.sandbox}
	t.Cleanup(b.clear)
	if err := s.make(t.Context(), objects); err != nil {
		t.Fatal(err)
	}
	s.deletions = b.watch()
	s.process = newProcess(t, s.sandbox)
	return s
}

func (s *fixture) drop(o id, policy metav1.DeletionPropagation) {
	s.T.Helper()
	if err := s.delete(s.T.Context(), o, policy); err != nil {
		s.T.Fatal(err)
	}
}

// there returns the current state.
func (s *fixture) there() state {
	s.T.Helper()
	now, err := s.state(s.T.Context(), kinds)
	if err != nil {
		s.T.Fatal(err)
	}
	return now
}

// become waits until only these objects are left.
func (s *fixture) become(left ...id) {
	s.T.Helper()
	harness.Eventually(s.T, *patience, fmt.Sprintf("%v are left", left), func(context.Context) error {
		now := s.there()
		for o := range now {
			if !slices.Contains(left, o) {
				return fmt.Errorf("%v exists: %+v", o, now)
			}
		}
		if len(now) != len(left) {
			return fmt.Errorf("state of %v: %+v", left, now)
		}
		return nil
	})
}

// inOrder requires that the objects were deleted in this order.
func (s *fixture) inOrder(objects ...id) {
	s.T.Helper()
	harness.Eventually(s.T, *patience, "every deletion is seen", func(context.Context) error {
		s.deletions.mu.Lock()
		defer s.deletions.mu.Unlock()
		for _, o := range objects {
			if s.deletions.versions[o] == "" {
				return fmt.Errorf("that of %v is not; those seen: %v", o, s.deletions.versions)
			}
		}
		return nil
	})
	s.deletions.mu.Lock()
	defer s.deletions.mu.Unlock()
	for i := range objects[1:] {
		first, second := s.deletions.versions[objects[i]], s.deletions.versions[objects[i+1]]
		if len(first) > len(second) || len(first) == len(second) && first >= second {
			s.T.Errorf("%v was deleted at version %s, not before %v at %s", objects[i], first, objects[i+1], second)
		}
	}
}

func everything() shard.Range { return shard.Everything() }

// TestForegroundGoesThroughRanges checks that a dependent of a cluster-scoped owner deleted in the
// foreground is deleted after its own dependents.
func TestForegroundGoesThroughRanges(t *testing.T) {
	s := newFixture(t, map[id][]edge{k: nil, x: blocking(k), y: blocking(x)})
	defer s.ofCluster().stop()
	defer s.ofRange(everything()).stop()
	s.drop(k, metav1.DeletePropagationForeground)
	s.become()
	s.inOrder(y, x, k)
}

// TestFinalizersAreTheRanges: the cluster's collector does not see the dependents of an object with
// a cluster-scoped owner. It must not remove the finalizers that make the range handle them.
func TestFinalizersAreTheRanges(t *testing.T) {
	t.Run("foreground", func(t *testing.T) {
		s := newFixture(t, map[id][]edge{k: nil, x: blocking(k), y: blocking(x)})
		c, _ := counted(s, s.ofCluster, func(*http.Request) bool { return false })
		defer c.stop()
		s.drop(x, metav1.DeletePropagationForeground)
		s.outlast(k) // The cluster's collector has handled a later event.
		if obj, ok := s.there()[x]; !ok || !obj.dying {
			t.Fatalf("without a collector of its range %v is %+v, want it to wait", x, obj)
		}
		defer s.ofRange(everything()).stop()
		s.become(k)
		s.inOrder(y, x)
	})
	t.Run("orphan", func(t *testing.T) {
		s := newFixture(t, map[id][]edge{k: nil, x: blocking(k), y: blocking(x)})
		defer s.ofCluster().stop()
		s.drop(x, metav1.DeletePropagationOrphan)
		s.outlast(k)
		defer s.ofRange(everything()).stop()
		s.become(k, y)
		if got := s.there()[y].owners; got != "" {
			t.Errorf("the object to be orphaned is owned by %s", got)
		}
	})
}

// outlast makes the cluster's collector delete a Thing, after all earlier events of Things.
func (s *fixture) outlast(owner id) {
	s.T.Helper()
	last := id{thing.name, 1, "last"}
	if _, err := s.create(s.T.Context(), last, []edge{{owner: owner, fault: never}}); err != nil {
		s.T.Fatal(err)
	}
	harness.Eventually(s.T, *patience, fmt.Sprintf("%v is deleted", last), func(context.Context) error {
		if _, there := s.there()[last]; there {
			return fmt.Errorf("%v exists", last)
		}
		return nil
	})
}

// TestCirclesAreLeftToTheRange has a circle of namespaced objects that wait for each other. One of
// them has a cluster-scoped owner that is deleted too. The cluster's collector comes first, does
// not see the circle, and must leave it alone: if it also deleted the second object in the
// foreground, with unchanged references, both would wait for ever.
func TestCirclesAreLeftToTheRange(t *testing.T) {
	for name, finalizers := range map[string][]string{"plain": nil, "finalizer": {metav1.FinalizerDeleteDependents}} {
		t.Run(name, func(t *testing.T) {
			s := newFixture(t, map[id][]edge{k: nil, x: blocking(k, y), y: blocking(x)})
			s.finalize(x, finalizers...)
			s.drop(y, metav1.DeletePropagationForeground)
			s.drop(k, metav1.DeletePropagationForeground)
			c, looked := counted(s, s.ofCluster, func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/things/x") })
			defer c.stop()
			looked(6)
			defer s.ofRange(everything()).stop()
			s.become()
		})
	}
}

// counted starts a collector, and returns a function that waits until it has sent this many
// matching requests.
func counted[C any](s *fixture, start func() C, counts func(*http.Request) bool) (c C, sent func(times int)) {
	var mu sync.Mutex
	count := 0
	inner := s.config
	config := *s.config
	config.RateLimiter = flowcontrol.NewFakeAlwaysRateLimiter()
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if counts(r) {
				mu.Lock()
				count++
				mu.Unlock()
			}
			return next.RoundTrip(r)
		})
	})
	s.config = &config
	defer func() { s.config = inner }()
	return start(), func(times int) {
		s.T.Helper()
		harness.Eventually(s.T, *patience, fmt.Sprintf("%d requests", times), func(context.Context) error {
			mu.Lock()
			defer mu.Unlock()
			if count < times {
				return fmt.Errorf("%d requests of %d", count, times)
			}
			return nil
		})
	}
}

// TestReferencesOfTheOtherPartStay: custom resources do not support strategic merge patches, so a
// collector replaces the whole list of references. The new list must keep those that it does not
// see.
func TestReferencesOfTheOtherPartStay(t *testing.T) {
	for name, tc := range map[string]struct {
		gone id
		left string
	}{
		"namespaced owner": {n, "ClusterRole/k"},
		"cluster's owner":  {k, "ConfigMap/n"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newFixture(t, map[id][]edge{k: nil, n: nil, x: blocking(k, n)})
			defer s.ofCluster().stop()
			defer s.ofRange(everything()).stop()
			s.drop(tc.gone, metav1.DeletePropagationOrphan)
			harness.Eventually(t, *patience, "only the owner is deleted", func(context.Context) error {
				now := s.there()
				if _, there := now[tc.gone]; there || now[x].owners != tc.left {
					return fmt.Errorf("the state is %+v", now)
				}
				return nil
			})
		})
	}
}

// TestUnblockedReferencesStay: before a range deletes an object in a circle in the foreground, it
// unblocks all of the object's owners. For a custom resource upstream replaces all references by
// those in its graph, which has none to a cluster-scoped owner.
func TestUnblockedReferencesStay(t *testing.T) {
	s := newFixture(t, map[id][]edge{k: nil, x: blocking(k, y), y: blocking(x)})
	s.finalize(x, held)
	s.drop(k, metav1.DeletePropagationForeground)
	s.drop(y, metav1.DeletePropagationForeground)
	defer s.ofRange(everything()).stop()
	harness.Eventually(t, *patience, "the range deletes what is in the circle", func(context.Context) error {
		if now := s.there(); !now[x].dying {
			return fmt.Errorf("the state is %+v", now)
		}
		return nil
	})
	if got := s.there()[x].owners; got != "ClusterRole/k ConfigMap/y" {
		t.Errorf("owned by %q once it blocks nothing, want both references to stay", got)
	}
	defer s.ofCluster().stop()
	harness.Eventually(t, *patience, "nothing but the test holds it", func(context.Context) error {
		if now := s.there(); now[x].finalizers != held {
			return fmt.Errorf("the state is %+v", now)
		}
		return nil
	})
	s.finalize(x)
	s.become()
	s.inOrder(x, k)
}

// TestOwnersElsewhere checks that an owner in another namespace does not count, whether its
// namespace is in the range or not.
func TestOwnersElsewhere(t *testing.T) {
	elsewhere := map[id][]edge{n: nil}
	for space := 1; space < 4; space++ {
		elsewhere[id{configMap.name, space, "x"}] = blocking(n)
	}
	s := newFixture(t, elsewhere)
	for _, r := range equalRanges(t, 2) {
		defer s.ofRange(r).stop()
	}
	s.become(n)
}

// TestOwnersElsewhereAreReported checks for which dependents of an owner in another namespace there
// is upstream's event: for all with stock, and here for those in the owner's range.
func TestOwnersElsewhereAreReported(t *testing.T) {
	elsewhere := map[id][]edge{n: nil}
	for space := 1; space < 4; space++ {
		elsewhere[id{configMap.name, space, "x"}] = blocking(n)
	}
	for name, count := range map[string]int{"stock": 0, "one range": 1, "two ranges": 2} {
		t.Run(name, func(t *testing.T) {
			s := newFixture(t, elsewhere)
			reported := func(int) bool { return true }
			if count == 0 {
				defer startStock(t, s.sandbox).stop()
			} else {
				ranges := equalRanges(t, count)
				of := func(space int) int {
					return slices.IndexFunc(ranges, func(r shard.Range) bool { return r.ContainsNamespace(s.spaces[space]) })
				}
				reported = func(space int) bool { return of(space) == of(0) }
				defer s.ofCluster().stop()
				for _, r := range ranges {
					defer s.ofRange(r).stop()
				}
			}
			s.become(n)
			s.busy()
			harness.Eventually(t, *patience, "events are written", func(ctx context.Context) error {
				for space := 1; space < 4; space++ {
					if events := s.invalid(ctx, space); len(events) == 0 && reported(space) {
						return fmt.Errorf("in %s there is none", s.spaces[space])
					}
				}
				return nil
			})
			for space := 1; space < 4; space++ {
				if events := s.invalid(t.Context(), space); len(events) > 0 && !reported(space) {
					t.Errorf("events in %s, whose range does not contain the owner: %q", s.spaces[space], events)
				}
			}
		})
	}
}

// invalid returns the messages of upstream's events about owners in other namespaces.
func (s *fixture) invalid(ctx context.Context, space int) (messages []string) {
	s.T.Helper()
	events, err := s.client.CoreV1().Events(s.spaces[space]).List(ctx, metav1.ListOptions{FieldSelector: "reason=OwnerRefInvalidNamespace"})
	if err != nil {
		s.T.Fatal(err)
	}
	for i := range events.Items {
		messages = append(messages, events.Items[i].Message)
	}
	return messages
}

// TestKindsThatGo checks that objects of a removed kind count as absent for their dependents.
func TestKindsThatGo(t *testing.T) {
	g := id{lateGlobe.name, -1, "g"}
	late := id{lateThing.name, 0, "late"}
	c := id{configMap.name, 0, "c"}
	s := newFixture(t, nil)
	s.define(t, lateGlobe)
	s.define(t, lateThing)
	// What is garbage from the beginning is deleted once a collector knows everything. As upstream
	// does, it takes what it has never seen for a kind that it cannot look up.
	nobodys := func(of kind) id { return named(of, 0, "nobodys") }
	garbage := map[id][]edge{
		k: {{owner: g, fault: never}}, c: {{owner: n, fault: never}}, nobodys(lateGlobe): {{owner: k, fault: never}},
		nobodys(lateThing): {{owner: k, fault: never}}, named(lateThing, 0, "no-namespaced"): {{owner: n, fault: never}},
	}
	objects := map[id][]edge{g: nil, late: nil, n: nil, x: blocking(g), y: blocking(late, n)}
	maps.Copy(objects, garbage)
	if err := s.make(t.Context(), objects); err != nil {
		t.Fatal(err)
	}
	defer s.ofCluster().stop()
	defer s.ofRange(everything()).stop()
	harness.Eventually(t, *patience, "both collectors know all objects", func(context.Context) error {
		for o := range garbage {
			if now, is := s.there()[o]; is {
				return fmt.Errorf("%v exists: %+v", o, now)
			}
		}
		return nil
	})
	s.undefine(t, lateGlobe)
	s.undefine(t, lateThing)
	s.become(n, y)
}

// TestClusterScopedDependentsOfNamespacedOwners covers a difference between the parts and the
// whole: such a reference is invalid, and upstream makes its owner wait for ever.
func TestClusterScopedDependentsOfNamespacedOwners(t *testing.T) {
	s := newFixture(t, map[id][]edge{n: nil, k: blocking(n)})
	defer s.ofCluster().stop()
	defer s.ofRange(everything()).stop()
	s.drop(n, metav1.DeletePropagationForeground)
	s.become(k)
}

// TestUndecidedUntilRestart: upstream does not decide about a cluster-scoped object that names a
// namespaced owner. The object loses that reference when the object with that UID is orphaned.
// Nobody looks at it after that, although its other owner is absent. A restarted collector deletes
// it, stock's or the cluster's. So the result depends on when a collector started, not on backoff.
func TestUndecidedUntilRestart(t *testing.T) {
	gone, undecided := id{clusterRole.name, -1, "gone"}, id{clusterRole.name, -1, "undecided"}
	for name, start := range map[string]func(s *fixture) *collector{
		"stock": func(s *fixture) *collector { return startStock(s.T, s.sandbox) },
		"parts": func(s *fixture) *collector { return s.ofCluster() },
	} {
		t.Run(name, func(t *testing.T) {
			s := newFixture(t, map[id][]edge{k: nil, gone: {{owner: k, fault: wrongUID}}, undecided: {{owner: gone}, {owner: k, fault: wrongKind}}})
			c, looked := counted(s, func() *collector { return start(s) }, func(r *http.Request) bool {
				return r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "-undecided")
			})
			s.become(k, undecided)
			looked(1)
			caughtUp := func(name string, left ...id) {
				if _, err := s.create(t.Context(), id{clusterRole.name, -1, name}, []edge{{owner: k, fault: never}}); err != nil {
					t.Fatal(err)
				}
				s.become(left...)
			}
			// If it learned that the other owner is gone while it orphans the object, it might look
			// in between.
			caughtUp("first", k, undecided)
			s.drop(k, metav1.DeletePropagationOrphan)
			s.become(undecided)
			caughtUp("last", undecided)
			c.stop()
			resource, name := s.resource(undecided)
			obj, err := resource.Get(t.Context(), name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if refs := obj.GetOwnerReferences(); len(refs) != 1 || refs[0].Kind != clusterRole.name {
				t.Errorf("owned by %+v, want the orphaned reference to be removed", refs)
			}
			defer start(s).stop()
			s.become()
		})
	}
}

// TestSeenLate: collectors learn of an object from a dependent first, and act before they receive
// the object itself. Stock then does what it would not do otherwise. The parts do not.
func TestSeenLate(t *testing.T) {
	g, role := named(globe, 0, "g"), named(clusterRole, 0, "role")
	none := func(*fixture) {}
	for name, tc := range map[string]struct {
		objects map[id][]edge
		// late is the object that is seen late.
		late id
		drop func(*fixture)
		// then runs once the collectors have handled the object.
		then func(*fixture)
		// left is the final state, and otherwise that of stock if it saw the object late.
		left, otherwise []id
	}{
		// Stock assumes that a cluster-scoped object with a namespaced owner is in its dependent's
		// namespace, looks there for the owner, and deletes the object.
		"cluster-scoped": {
			objects: map[id][]edge{n: nil, g: {{owner: n}}, x: blocking(g)}, late: g,
			drop: func(s *fixture) { s.drop(n, background) }, then: none, left: []id{g, x}, otherwise: []id{},
		},
		// Here stock removes that reference, and deletes the object with its other owner. (It fails
		// to patch a custom resource in a namespace.)
		"with another owner": {
			objects: map[id][]edge{n: nil, k: nil, role: {{owner: n}, {owner: k}}, x: blocking(role)}, late: role,
			drop: func(s *fixture) { s.drop(n, background) }, then: func(s *fixture) { s.drop(k, background) }, left: []id{role, x}, otherwise: []id{},
		},
		// Stock does not know that the object waits for itself, and removes that reference.
		"waits for itself": {
			objects: map[id][]edge{n: nil, x: append(blocking(x), edge{owner: n}), y: {{owner: x}}}, late: x,
			drop: func(s *fixture) { s.drop(x, foreground) }, then: none, left: []id{n, x}, otherwise: []id{n},
		},
	} {
		for way, start := range ways {
			t.Run(name+", "+way+", in time", func(t *testing.T) {
				s := newFixture(t, tc.objects)
				defer start(s).stop()
				s.busy()
				tc.drop(s)
				s.busy()
				tc.then(s)
				s.busy()
				s.become(tc.left...)
			})
			t.Run(name+", "+way+", late", func(t *testing.T) {
				s := newFixture(t, tc.objects)
				tc.drop(s)
				release := s.withhold(kindOf(tc.late.kind).gvr)
				_, url := s.resource(tc.late)
				c, looked := counted(s, func() *collectors { return start(s) }, func(r *http.Request) bool {
					return r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/"+url)
				})
				defer c.stop()
				looked(2) // So it has acted on the first look.
				release()
				s.busy()
				tc.then(s)
				s.busy()
				left := tc.left
				if way == "stock" {
					left = tc.otherwise
				}
				s.become(left...)
			})
		}
	}
}

// TestOwnerThatWaitsAlready: an object gets an owner that already waits in the foreground. Nobody
// looks at the object until that owner is gone or collectors restart. Stock and the parts behave
// alike.
func TestOwnerThatWaitsAlready(t *testing.T) {
	g := named(globe, 0, "g")
	for _, owner := range []id{g, n} {
		t.Run(owner.kind, func(t *testing.T) {
			each(t, map[id][]edge{owner: blocking(owner), x: nil, y: nil}, func(s *fixture, start func() *collectors) {
				s.drop(owner, foreground)
				c := start()
				s.busy()
				if err := s.own(s.T.Context(), x, blocking(owner)); err != nil {
					s.T.Fatal(err)
				}
				s.busy()
				s.become(owner, x, y)
				c.stop()
				start()
				s.become(owner, y)
			})
		})
	}
}
