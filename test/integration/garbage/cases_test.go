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

// scene is a world with few objects.
type scene struct {
	*testing.T
	*world
	*process
	deletions *ends
}

func newScene(t *testing.T, objects map[id][]edge) *scene {
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
	s := &scene{T: t, world: newWorld(t, a, name, 4)}
	b := &pair{T: t, stock: s.world, fleet: s.world}
	t.Cleanup(b.clear)
	if err := s.make(t.Context(), objects); err != nil {
		t.Fatal(err)
	}
	s.deletions = b.watch()
	s.process = newProcess(t, s.world)
	return s
}

func (s *scene) drop(o id, policy metav1.DeletionPropagation) {
	s.T.Helper()
	if err := s.delete(s.T.Context(), o, policy); err != nil {
		s.T.Fatal(err)
	}
}

// there returns what there is.
func (s *scene) there() state {
	s.T.Helper()
	now, err := s.state(s.T.Context(), kinds)
	if err != nil {
		s.T.Fatal(err)
	}
	return now
}

// become waits until there is no more than that.
func (s *scene) become(left ...id) {
	s.T.Helper()
	harness.Eventually(s.T, *patience, fmt.Sprintf("%v are left", left), func(context.Context) error {
		now := s.there()
		for o := range now {
			if !slices.Contains(left, o) {
				return fmt.Errorf("%v is there: %+v", o, now)
			}
		}
		if len(now) != len(left) {
			return fmt.Errorf("of %v there is %+v", left, now)
		}
		return nil
	})
}

// inOrder wants the objects to have been deleted one after the other.
func (s *scene) inOrder(objects ...id) {
	s.T.Helper()
	harness.Eventually(s.T, *patience, "every deletion is seen", func(context.Context) error {
		s.deletions.mu.Lock()
		defer s.deletions.mu.Unlock()
		if len(s.deletions.versions) < len(objects) {
			return fmt.Errorf("deletions seen: %v", s.deletions.versions)
		}
		return nil
	})
	s.deletions.mu.Lock()
	defer s.deletions.mu.Unlock()
	for i := range objects[1:] {
		first, second := s.deletions.versions[objects[i]], s.deletions.versions[objects[i+1]]
		if len(first) > len(second) || len(first) == len(second) && first >= second {
			s.T.Errorf("%v went at version %s, not before %v at %s", objects[i], first, objects[i+1], second)
		}
	}
}

func everything() shard.Range { return shard.Everything() }

// TestForegroundGoesThroughRanges: what depends on a cluster-scoped owner that goes in the
// foreground, and has dependents of its own, goes after these.
func TestForegroundGoesThroughRanges(t *testing.T) {
	s := newScene(t, map[id][]edge{k: nil, x: blocking(k), y: blocking(x)})
	defer s.ofCluster().stop()
	defer s.ofRange(everything()).stop()
	s.drop(k, metav1.DeletePropagationForeground)
	s.become()
	s.inOrder(y, x, k)
}

// TestFinalizersAreTheRanges: the collector of the cluster sees no dependents of an object with a
// cluster-scoped owner. It must not take the finalizers off that have its range deal with them.
func TestFinalizersAreTheRanges(t *testing.T) {
	t.Run("foreground", func(t *testing.T) {
		s := newScene(t, map[id][]edge{k: nil, x: blocking(k), y: blocking(x)})
		c, _ := counted(s, s.ofCluster, func(*http.Request) bool { return false })
		defer c.stop()
		s.drop(x, metav1.DeletePropagationForeground)
		s.outlast(k) // The cluster's collector has dealt with an event that came after that.
		if obj, ok := s.there()[x]; !ok || !obj.dying {
			t.Fatalf("without a collector of its range %v is %+v, want it to wait", x, obj)
		}
		defer s.ofRange(everything()).stop()
		s.become(k)
		s.inOrder(y, x)
	})
	t.Run("orphan", func(t *testing.T) {
		s := newScene(t, map[id][]edge{k: nil, x: blocking(k), y: blocking(x)})
		defer s.ofCluster().stop()
		s.drop(x, metav1.DeletePropagationOrphan)
		s.outlast(k)
		defer s.ofRange(everything()).stop()
		s.become(k, y)
		if got := s.there()[y].owners; got != "" {
			t.Errorf("what was to be orphaned is owned by %s", got)
		}
	})
}

// outlast has the cluster's collector delete something, after all that it was told before.
func (s *scene) outlast(owner id) {
	s.T.Helper()
	last := id{configMap.name, 1, "last"}
	if _, err := s.create(s.T.Context(), last, []edge{{owner: owner, fault: never}}); err != nil {
		s.T.Fatal(err)
	}
	harness.Eventually(s.T, *patience, fmt.Sprintf("%v goes", last), func(context.Context) error {
		if _, there := s.there()[last]; there {
			return fmt.Errorf("%v is there", last)
		}
		return nil
	})
	s.deletions.mu.Lock()
	defer s.deletions.mu.Unlock()
	delete(s.deletions.versions, last)
}

// TestCirclesAreLeftToTheRange has a circle of namespaced objects that wait for each other, one of
// which has a cluster-scoped owner that goes too. The cluster's collector comes first, sees no
// circle, and must leave it alone: if the second object were deleted in the foreground as well,
// with unchanged references, both would wait for ever.
func TestCirclesAreLeftToTheRange(t *testing.T) {
	for name, finalizers := range map[string][]string{"plain": nil, "finalizer": {metav1.FinalizerDeleteDependents}} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, map[id][]edge{k: nil, x: blocking(k, y), y: blocking(x)})
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

// counted starts a collector, and returns what waits until it has sent so many of some requests.
func counted[C any](s *scene, start func() C, counts func(*http.Request) bool) (c C, sent func(times int)) {
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

// TestReferencesOfTheOtherPartStay: custom resources know no strategic merge patches, and what a
// collector replaces their references by must have those that it does not see.
func TestReferencesOfTheOtherPartStay(t *testing.T) {
	for name, tc := range map[string]struct {
		gone id
		left string
	}{
		"namespaced owner": {n, "ClusterRole/k"},
		"cluster's owner":  {k, "ConfigMap/n"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, map[id][]edge{k: nil, n: nil, x: blocking(k, n)})
			defer s.ofCluster().stop()
			defer s.ofRange(everything()).stop()
			s.drop(tc.gone, metav1.DeletePropagationOrphan)
			harness.Eventually(t, *patience, "the end of the owner, and of it alone", func(context.Context) error {
				now := s.there()
				if _, there := now[tc.gone]; there || now[x].owners != tc.left {
					return fmt.Errorf("there is %+v", now)
				}
				return nil
			})
		})
	}
}

// TestUnblockedReferencesStay: before a range deletes an object in a circle in the foreground it
// has it block none of its owners. For a custom resource upstream replaces all references by those
// in its graph, which has none to a cluster-scoped owner.
func TestUnblockedReferencesStay(t *testing.T) {
	s := newScene(t, map[id][]edge{k: nil, x: blocking(k, y), y: blocking(x)})
	s.finalize(x, held)
	s.drop(k, metav1.DeletePropagationForeground)
	s.drop(y, metav1.DeletePropagationForeground)
	defer s.ofRange(everything()).stop()
	harness.Eventually(t, *patience, "the range deletes what is in the circle", func(context.Context) error {
		if now := s.there(); !now[x].dying {
			return fmt.Errorf("there is %+v", now)
		}
		return nil
	})
	if got := s.there()[x].owners; got != "ClusterRole/k ConfigMap/y" {
		t.Errorf("owned by %q after it blocks nothing, want both references to stay", got)
	}
	defer s.ofCluster().stop()
	harness.Eventually(t, *patience, "nothing but the test holds it", func(context.Context) error {
		if now := s.there(); now[x].finalizers != held {
			return fmt.Errorf("there is %+v", now)
		}
		return nil
	})
	s.finalize(x)
	s.become()
	s.inOrder(x, k)
}

// TestOwnersElsewhere: an owner in another namespace is none, whether its namespace is in the range
// or not.
func TestOwnersElsewhere(t *testing.T) {
	elsewhere := map[id][]edge{n: nil}
	for space := 1; space < 4; space++ {
		elsewhere[id{configMap.name, space, "x"}] = blocking(n)
	}
	s := newScene(t, elsewhere)
	ranges, err := shard.EqualRanges(4)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range ranges {
		defer s.ofRange(r).stop()
	}
	s.become(n)
}

// TestKindsThatGo: the objects of a kind that is removed have gone for what depends on them.
func TestKindsThatGo(t *testing.T) {
	g := id{lateGlobe.name, -1, "g"}
	late := id{lateThing.name, 0, "late"}
	c := id{configMap.name, 0, "c"}
	s := newScene(t, nil)
	s.define(t, lateGlobe)
	s.define(t, lateThing)
	// What is garbage from the beginning goes once a collector knows everything. What it has never
	// seen, it takes for a kind that it cannot look up, as upstream does.
	garbage := map[id][]edge{k: {{owner: g, fault: never}}, c: {{owner: n, fault: never}}}
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
				return fmt.Errorf("%v is there: %+v", o, now)
			}
		}
		return nil
	})
	s.undefine(t, lateGlobe)
	s.undefine(t, lateThing)
	s.become(n, y)
}

// TestClusterScopedDependentsOfNamespacedOwners is where the parts differ from the whole: such a
// reference is invalid, and with upstream it has its owner wait for ever.
func TestClusterScopedDependentsOfNamespacedOwners(t *testing.T) {
	s := newScene(t, map[id][]edge{n: nil, k: blocking(n)})
	defer s.ofCluster().stop()
	defer s.ofRange(everything()).stop()
	s.drop(n, metav1.DeletePropagationForeground)
	s.become(k)
}

// TestUndecidedUntilTheCollectorBeginsAnew: upstream does not decide about a cluster-scoped object
// that names a namespaced owner. The object loses that reference when the object with that UID is
// orphaned; nobody looks at it after that, though its other owner is absent. A collector that
// starts again deletes it, stock's or the cluster's. So the result depends on when a collector
// started, not on backoff.
func TestUndecidedUntilTheCollectorBeginsAnew(t *testing.T) {
	gone, undecided := id{clusterRole.name, -1, "gone"}, id{clusterRole.name, -1, "undecided"}
	for name, start := range map[string]func(s *scene) *collector{
		"stock": func(s *scene) *collector { return startStock(s.T, s.world) },
		"parts": func(s *scene) *collector { return s.ofCluster() },
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, map[id][]edge{k: nil, gone: {{owner: k, fault: wrongUID}}, undecided: {{owner: gone}, {owner: k, fault: wrongKind}}})
			c, looked := counted(s, func() *collector { return start(s) }, func(r *http.Request) bool {
				return r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "-undecided")
			})
			s.become(k, undecided)
			looked(1)
			s.drop(k, metav1.DeletePropagationOrphan)
			s.become(undecided)
			last := id{clusterRole.name, -1, "last"}
			if _, err := s.create(t.Context(), last, []edge{{owner: k, fault: never}}); err != nil {
				t.Fatal(err)
			}
			s.become(undecided) // It has dealt with what came after the orphaning.
			c.stop()
			if got := s.there()[undecided].owners; got != "ClusterRole/gone" {
				t.Errorf("owned by %q, want the reference that was orphaned to have gone", got)
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
	none := func(*scene) {}
	for name, tc := range map[string]struct {
		objects map[id][]edge
		// late is the object that is seen late.
		late id
		drop func(*scene)
		// then is done once the collectors have dealt with that.
		then func(*scene)
		// left is what there is in the end, and otherwise with stock that saw the object late.
		left, otherwise []id
	}{
		// Stock takes a cluster-scoped object that names a namespaced owner to be in its
		// dependent's namespace, looks there for the owner, and deletes the object.
		"cluster-scoped": {
			objects: map[id][]edge{n: nil, g: {{owner: n}}, x: blocking(g)}, late: g,
			drop: func(s *scene) { s.drop(n, background) }, then: none, left: []id{g, x}, otherwise: []id{},
		},
		// Here stock removes that reference, and deletes the object with its other owner. (It fails
		// to patch a custom resource in a namespace.)
		"with another owner": {
			objects: map[id][]edge{n: nil, k: nil, role: {{owner: n}, {owner: k}}, x: blocking(role)}, late: role,
			drop: func(s *scene) { s.drop(n, background) }, then: func(s *scene) { s.drop(k, background) }, left: []id{role, x}, otherwise: []id{},
		},
		// Stock does not know that the object waits for itself, and removes that reference.
		"waits for itself": {
			objects: map[id][]edge{n: nil, x: append(blocking(x), edge{owner: n}), y: {{owner: x}}}, late: x,
			drop: func(s *scene) { s.drop(x, foreground) }, then: none, left: []id{n, x}, otherwise: []id{n},
		},
	} {
		for way, start := range ways {
			t.Run(name+", "+way+", in time", func(t *testing.T) {
				s := newScene(t, tc.objects)
				defer start(s).stop()
				s.busy()
				tc.drop(s)
				s.busy()
				tc.then(s)
				s.busy()
				s.become(tc.left...)
			})
			t.Run(name+", "+way+", late", func(t *testing.T) {
				s := newScene(t, tc.objects)
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

// TestOwnerThatWaitsAlready: nobody looks at an object that gets an owner which already waits in
// the foreground, until that owner goes, or collectors start again. Stock and the parts behave
// alike in this.
func TestOwnerThatWaitsAlready(t *testing.T) {
	g := named(globe, 0, "g")
	for _, owner := range []id{g, n} {
		t.Run(owner.kind, func(t *testing.T) {
			each(t, map[id][]edge{owner: blocking(owner), x: nil, y: nil}, func(s *scene, start func() *collectors) {
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
