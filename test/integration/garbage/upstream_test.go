package garbage

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/kubernetes/pkg/controller/namespace"

	"github.com/flotilla-kube/flotilla/test/harness"
)

// The tests of this file restate what upstream's integration tests of the garbage collector require
// (test/integration/garbagecollector), and add outside events that a collector must survive. Each
// runs with upstream's collector and with those of ranges and of the cluster.

const (
	background = metav1.DeletePropagationBackground
	foreground = metav1.DeletePropagationForeground
	orphan     = metav1.DeletePropagationOrphan

	// held is a finalizer that no collector knows.
	held = "example.com/held"
)

// collectors are the garbage collectors of a fixture.
type collectors struct {
	all []*collector
}

func (c *collectors) stop() {
	for _, each := range c.all {
		each.stop()
	}
}

func (c *collectors) kill() {
	for _, each := range c.all {
		each.kill()
	}
}

// ways are the ways to collect garbage, by name.
var ways = map[string]func(s *fixture) *collectors{
	"stock": func(s *fixture) *collectors { return &collectors{[]*collector{startStock(s.T, s.sandbox)}} },
	"parts": func(s *fixture) *collectors { return s.inParts(2) },
}

// inParts starts the collectors of this many ranges and of the cluster.
func (s *fixture) inParts(ranges int) *collectors {
	s.T.Helper()
	c := &collectors{[]*collector{s.ofCluster()}}
	for _, r := range equalRanges(s.T, ranges) {
		c.all = append(c.all, s.ofRange(r))
	}
	return c
}

// each runs a test once for each way. start may be called several times; what it starts ends with
// the test.
func each(t *testing.T, objects map[id][]edge, test func(s *fixture, start func() *collectors)) {
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			s := newFixture(t, objects)
			test(s, func() *collectors {
				c := way(s)
				t.Cleanup(c.stop)
				return c
			})
		})
	}
}

// finalize sets an object's finalizers.
func (s *fixture) finalize(o id, finalizers ...string) {
	s.T.Helper()
	resource, name := s.resource(o)
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"finalizers": finalizers}})
	if err != nil {
		s.T.Fatal(err)
	}
	if _, err := resource.Patch(s.T.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		s.T.Fatal(err)
	}
}

// are waits until the state is this, and requires that it stays so while the collectors handle
// something else.
func (s *fixture) are(want state) {
	s.T.Helper()
	harness.Eventually(s.T, *patience, fmt.Sprintf("the state is %+v", want), func(context.Context) error {
		if now := s.there(); !maps.Equal(now, want) {
			return fmt.Errorf("the state is %+v", now)
		}
		return nil
	})
	s.busy()
	if now := s.there(); !maps.Equal(now, want) {
		s.T.Errorf("the later state is %+v, want %+v", now, want)
	}
}

// busy makes the collectors delete something in each namespace, and outside of them, and waits for
// that.
func (s *fixture) busy() { s.T.Helper(); s.sandbox.busy(s.T) }

// named returns the id of an object of a kind. It ignores space for a cluster-scoped kind.
func named(kind kind, space int, name string) id {
	if !kind.namespaced {
		space = -1
	}
	return id{kind.name, space, name}
}

// TestBackground checks that an object that has lost all owners is deleted, and that one with a
// remaining owner keeps only that reference, whatever the scopes.
func TestBackground(t *testing.T) {
	k2, n2 := named(clusterRole, 0, "k2"), named(configMap, 0, "n2")
	cm := func(name string) id { return named(configMap, 0, name) }
	th := func(name string) id { return named(thing, 0, name) }
	each(t, map[id][]edge{
		k: nil, k2: nil, n: nil, n2: nil, cm("free"): nil,
		cm("k"): blocking(k), th("k"): blocking(k), cm("k-k2"): blocking(k, k2), th("k-k2"): blocking(k, k2),
		cm("n2-only"): blocking(n2), th("n"): blocking(n), cm("n-n2"): blocking(n, n2), th("n-n2"): blocking(n, n2),
		cm("k-n"): blocking(k, n), th("k-n"): blocking(k, n), th("k-n2"): blocking(k, n2), cm("k2-n"): blocking(k2, n),
		named(globe, 0, "k"): blocking(k), named(globe, 0, "k-k2"): blocking(k, k2), th("under-globe"): blocking(named(globe, 0, "k")),
		cm("never"): {{owner: k, fault: never}}, th("never"): {{owner: n, fault: never}},
	}, func(s *fixture, start func() *collectors) {
		start()
		s.busy()
		s.drop(k, background)
		s.drop(n, background)
		s.are(state{
			k2: {}, n2: {}, cm("free"): {}, cm("n2-only"): {owners: "ConfigMap/n2"},
			cm("k-k2"): {owners: "ClusterRole/k2"}, th("k-k2"): {owners: "ClusterRole/k2"}, named(globe, 0, "k-k2"): {owners: "ClusterRole/k2"},
			cm("n-n2"): {owners: "ConfigMap/n2"}, th("n-n2"): {owners: "ConfigMap/n2"}, th("k-n2"): {owners: "ConfigMap/n2"},
			cm("k2-n"): {owners: "ClusterRole/k2"},
		})
	})
}

// TestPolicies checks which counts: the finalizer that an owner was created with, or the options of
// its deletion.
func TestPolicies(t *testing.T) {
	policies := map[string]struct {
		finalizer string
		policy    *metav1.DeletionPropagation
		orphans   bool
	}{
		"orphan-nil":        {metav1.FinalizerOrphanDependents, nil, true},
		"orphan-background": {metav1.FinalizerOrphanDependents, new(background), false},
		"orphan-foreground": {metav1.FinalizerOrphanDependents, new(foreground), false},
		"none-orphan":       {"", new(orphan), true},
		"none-nil":          {"", nil, false},
	}
	objects, want := map[id][]edge{}, state{}
	owners := map[id]string{}
	for _, of := range kinds[:4] {
		for name, p := range policies {
			owner := named(of, 0, "of-"+name)
			objects[owner], owners[owner] = nil, name
			for i := range 3 {
				space := 0
				if !of.namespaced {
					space = i
				}
				dependent := named(kinds[i%2], space, strings.ToLower(of.name)+"-"+name+fmt.Sprint(i))
				objects[dependent] = blocking(owner)
				if p.orphans {
					want[dependent] = object{}
				}
			}
		}
	}
	each(t, objects, func(s *fixture, start func() *collectors) {
		start()
		s.busy() // Upstream orphans the dependents that it has seen.
		for owner, name := range owners {
			p := policies[name]
			if p.finalizer != "" {
				s.finalize(owner, p.finalizer)
			}
			resource, name := s.resource(owner)
			if err := resource.Delete(s.T.Context(), name, metav1.DeleteOptions{PropagationPolicy: p.policy}); err != nil {
				s.T.Fatal(err)
			}
		}
		s.are(want)
	})
}

// TestForeground checks that an owner waits for the dependents that block it, and for nothing else.
func TestForeground(t *testing.T) {
	objects, before, after := map[id][]edge{}, state{}, state{}
	var dropped, holding []id
	for _, of := range kinds[:4] {
		at := func(name string) id { return named(of, 0, "owner-"+name) }
		dependent := func(name string) id { return named(thing, 0, strings.ToLower(of.name)+"-"+name) }
		stays := at("stays")
		objects[stays], objects[at("shared")], objects[at("free")], objects[at("waits")] = nil, nil, nil, nil
		objects[dependent("shared")] = append(blocking(at("shared")), edge{owner: stays})
		objects[dependent("free")] = []edge{{owner: at("free")}}
		objects[dependent("waits")] = blocking(at("waits"))
		dropped = append(dropped, at("shared"), at("free"), at("waits"))
		holding = append(holding, dependent("free"), dependent("waits"))
		before[stays], after[stays] = object{}, object{}
		before[dependent("shared")] = object{owners: of.name + "/owner-stays"}
		after[dependent("shared")] = before[dependent("shared")]
		before[dependent("free")] = object{dying: true, finalizers: held, owners: of.name + "/owner-free"}
		before[dependent("waits")] = object{dying: true, finalizers: held, owners: of.name + "/owner-waits"}
		before[at("waits")] = object{dying: true, finalizers: metav1.FinalizerDeleteDependents}
	}
	each(t, objects, func(s *fixture, start func() *collectors) {
		for _, o := range holding {
			s.finalize(o, held)
		}
		start()
		s.busy()
		for _, o := range dropped {
			s.drop(o, foreground)
		}
		s.are(before)
		for _, o := range holding {
			s.finalize(o)
		}
		s.are(after)
	})
}

// TestFinalizersBeforeForeground checks that an object created with a finalizer of the garbage
// collector, and with dependents, is still deleted in the foreground with its owner, and orphans
// nothing.
func TestFinalizersBeforeForeground(t *testing.T) {
	objects := map[id][]edge{}
	finalizers := map[id]string{}
	var owners, order []id
	for _, of := range kinds[:4] {
		for i, f := range []string{metav1.FinalizerOrphanDependents, metav1.FinalizerDeleteDependents} {
			owner, middle, last := named(of, 0, fmt.Sprint("owner-", i)), named(thing, 0, strings.ToLower(of.name)+fmt.Sprint(i)), named(configMap, 0, strings.ToLower(of.name)+fmt.Sprint(i))
			objects[owner], objects[middle], objects[last] = nil, blocking(owner), blocking(middle)
			finalizers[middle] = f
			owners, order = append(owners, owner), append(order, last, middle, owner)
		}
	}
	each(t, objects, func(s *fixture, start func() *collectors) {
		for o, f := range finalizers {
			s.finalize(o, f)
		}
		start()
		s.busy()
		for _, o := range owners {
			s.drop(o, foreground)
		}
		s.become()
		for i := 0; i < len(order); i += 3 {
			s.inOrder(order[i : i+3]...)
		}
	})
}

// TestDeletedTwice checks that an object that somebody else holds is deleted in the foreground
// again, and loses that finalizer again.
func TestDeletedTwice(t *testing.T) {
	objects, want := map[id][]edge{k: nil}, state{k: {}}
	for _, of := range kinds[:4] {
		objects[named(of, 0, "twice")] = nil
		want[named(of, 0, "twice")] = object{dying: true, finalizers: held}
	}
	objects[named(thing, 1, "twice")] = blocking(k) // In both parts.
	want[named(thing, 1, "twice")] = object{dying: true, finalizers: held, owners: "ClusterRole/k"}
	each(t, objects, func(s *fixture, start func() *collectors) {
		start()
		for o := range want {
			if o != k {
				s.finalize(o, held)
			}
		}
		for range 2 {
			for o := range want {
				if o != k {
					s.drop(o, foreground)
				}
			}
			s.are(want)
		}
		for o := range want {
			if o != k {
				s.finalize(o)
			}
		}
		s.are(state{k: {}})
	})
}

// TestReferencesThatLeadNowhere has references to a kind that does not exist, and to an object in
// another namespace by its own name or another one. An object that names only absent owners is
// deleted. One that names an unknown kind stays, and so do all dependents of the object with that
// UID. This holds for existing and for later objects.
func TestReferencesThatLeadNowhere(t *testing.T) {
	objects, want := map[id][]edge{n: nil, k: nil}, state{n: {}, k: {}}
	for i := range 4 {
		objects[named(thing, 0, fmt.Sprint("sound-", i))] = []edge{{owner: n}}
		want[named(thing, 0, fmt.Sprint("sound-", i))] = object{owners: "ConfigMap/n"}
		objects[named(thing, i, fmt.Sprint("of-k-", i))] = []edge{{owner: k}}
		want[named(thing, i, fmt.Sprint("of-k-", i))] = object{owners: "ClusterRole/k"}
	}
	invalid := func(when string) map[id][]edge {
		all := map[id][]edge{}
		for space := range 4 {
			for _, of := range kinds[:2] {
				at := func(name string) id { return named(of, space, when+"-"+name) }
				all[at("name")] = []edge{{owner: n, fault: wrongName}}
				all[at("kind")] = []edge{{owner: n, fault: wrongKind}}
				all[at("uid")] = []edge{{owner: k, fault: wrongUID}}
				all[at("never")] = []edge{{owner: k, fault: never}}
				if space > 0 {
					all[at("space")] = []edge{{owner: n}}
				}
				riddles := []edge{{owner: k, fault: noKind}}
				all[at("riddle")] = riddles
				want[at("riddle")] = object{owners: "Riddle/k"}
			}
		}
		return all
	}
	maps.Copy(objects, invalid("before"))
	later := invalid("later")
	each(t, objects, func(s *fixture, start func() *collectors) {
		start()
		first := maps.Clone(want)
		maps.DeleteFunc(first, func(o id, _ object) bool { return strings.HasPrefix(o.name, "later") })
		s.are(first)
		if err := s.make(s.T.Context(), later); err != nil {
			s.T.Fatal(err)
		}
		s.are(want)
	})
}

// TestOwnersThatAreSeenLate checks that collectors look up an owner that they do not know yet, and
// delete nothing because of late events.
func TestOwnersThatAreSeenLate(t *testing.T) {
	x, y := named(thing, 0, "of-k"), named(configMap, 1, "of-k")
	gone := named(configMap, 2, "of-nobody")
	each(t, map[id][]edge{k: nil, x: blocking(k), y: blocking(k), gone: {{owner: k, fault: never}}}, func(s *fixture, start func() *collectors) {
		release := s.withhold(clusterRole.gvr)
		start()
		want := state{k: {}, x: {owners: "ClusterRole/k"}, y: {owners: "ClusterRole/k"}}
		harness.Eventually(s.T, *patience, "objects without owners are deleted", func(context.Context) error {
			if now := s.there(); !maps.Equal(now, want) {
				return fmt.Errorf("the state is %+v", now)
			}
			return nil
		})
		release()
		s.are(want)
		s.drop(k, foreground)
		s.become()
	})
}

// TestAbsentOwnersComeBack: a collector remembers which owners are absent (absentOwnerCache). An
// owner of a remembered name but with another UID exists: its dependents stay. References to the
// remembered UID stay dangling: an object that has only such is deleted, and the others lose them.
func TestAbsentOwnersComeBack(t *testing.T) {
	objects := map[id][]edge{}
	owners := []id{n, named(thing, 0, "n2"), k, named(globe, 0, "k2")}
	for _, o := range owners {
		objects[o] = nil
		objects[named(configMap, 0, o.name+"-first")] = blocking(o)
		objects[named(thing, 0, o.name+"-wrong")] = []edge{{owner: o, fault: wrongUID}}
	}
	each(t, objects, func(s *fixture, start func() *collectors) {
		start()
		s.busy()
		gone := map[id]types.UID{}
		for _, o := range owners {
			gone[o] = s.uids[o]
			s.drop(o, background)
		}
		s.become()
		for _, o := range owners {
			s.dependsOn(o, gone[o], "asked") // Collectors ask the API server for the owner, by its name.
		}
		s.become()
		want := state{}
		for _, o := range owners {
			if _, err := s.create(s.T.Context(), o, nil); err != nil {
				s.T.Fatal(err)
			}
			want[o] = object{}
		}
		for _, o := range owners {
			lives := named(thing, 0, o.name+"-lives")
			if _, err := s.create(s.T.Context(), lives, blocking(o)); err != nil {
				s.T.Fatal(err)
			}
			want[lives] = object{owners: o.kind + "/" + o.name}
			s.dependsOn(o, gone[o], "stale")
			both := s.dependsOn(o, gone[o], "both", s.uids[o])
			want[both] = want[lives]
		}
		s.are(want)
	})
}

// dependsOn creates an object with references to an owner of these UIDs.
func (s *fixture) dependsOn(owner id, uid types.UID, name string, more ...types.UID) id {
	s.T.Helper()
	dependent := named(configMap, 0, owner.name+"-"+name)
	ref, _ := s.reference(edge{owner: owner})
	cm := &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: dependent.name, Labels: map[string]string{label: s.name}}}
	for _, ref.UID = range append([]types.UID{uid}, more...) {
		cm.OwnerReferences = append(cm.OwnerReferences, ref)
	}
	if _, err := s.client.CoreV1().ConfigMaps(s.spaces[0]).Create(s.T.Context(), cm, metav1.CreateOptions{}); err != nil {
		s.T.Fatal(err)
	}
	return dependent
}

// withhold blocks watches of a resource, for collectors that start after it, until release is
// called.
func (s *fixture) withhold(gvr schema.GroupVersionResource) (release func()) {
	s.T.Helper()
	released := make(chan struct{})
	config := rest.CopyConfig(s.config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if r.URL.Query().Get("watch") == "true" && strings.HasSuffix(r.URL.Path, "/"+gvr.Resource) {
				select {
				case <-released:
				case <-r.Context().Done():
					return nil, r.Context().Err()
				}
			}
			return next.RoundTrip(r)
		})
	})
	s.config = config
	var err error
	if s.client, err = kubernetes.NewForConfig(config); err != nil {
		s.T.Fatal(err)
	}
	if s.metadata, err = metadata.NewForConfig(config); err != nil {
		s.T.Fatal(err)
	}
	s.process = newProcess(s.T, s.sandbox)
	s.withheld = true
	return sync.OnceFunc(func() { close(released) })
}

// TestKindsComeAndGo defines and removes two kinds twice while the same collectors run. Objects of
// a removed kind count as absent for their dependents, the second time as well.
func TestKindsComeAndGo(t *testing.T) {
	each(t, map[id][]edge{k: nil}, func(s *fixture, start func() *collectors) {
		start()
		for round := range 2 {
			s.define(s.T, lateThing)
			s.define(s.T, lateGlobe)
			g, late := named(lateGlobe, 0, fmt.Sprint("g-", round)), named(lateThing, 0, fmt.Sprint("late-", round))
			x, y := named(configMap, 1, fmt.Sprint("x-", round)), named(thing, 0, fmt.Sprint("y-", round))
			if err := s.make(s.T.Context(), map[id][]edge{
				named(lateThing, 0, "nobodys"): {{owner: k, fault: never}}, named(lateGlobe, 0, "nobodys"): {{owner: k, fault: never}},
				named(lateThing, 0, "no-namespaced"): {{owner: n, fault: never}}, g: nil, late: blocking(k),
				x: blocking(g), y: blocking(late),
			}); err != nil {
				s.T.Fatal(err)
			}
			// The collectors know both kinds once these are deleted: the cluster's deletes the
			// first two, and the range's the last.
			s.are(state{k: {}, g: {}, late: {owners: "ClusterRole/k"}, x: {owners: "LateGlobe/" + g.name}, y: {owners: "LateThing/" + late.name}})
			s.undefine(s.T, lateGlobe)
			s.undefine(s.T, lateThing)
			s.are(state{k: {}})
		}
	})
}

// TestKindThatCannotBeRead checks that a kind whose objects the API server cannot convert delays
// only itself.
func TestKindThatCannotBeRead(t *testing.T) {
	each(t, map[id][]edge{k: nil, n: nil, x: blocking(k), y: blocking(n)}, func(s *fixture, start func() *collectors) {
		s.undefine(s.T, lateThing)
		harness.UnreadableKind(s.T, plane, lateThing.gvr, lateThing.name)
		start()
		s.drop(k, background)
		s.drop(n, foreground)
		harness.Eventually(s.T, *patience, "all other garbage is deleted", func(ctx context.Context) error {
			now, err := s.state(ctx, kinds[:4])
			if err != nil || len(now) > 0 {
				return fmt.Errorf("the state is %+v (%v)", now, err)
			}
			return nil
		})
	})
}

// TestDiscoveryThatFails checks that a collector keeps handling the kinds of a group whose API
// server does not answer.
func TestDiscoveryThatFails(t *testing.T) {
	g := named(globe, 0, "g")
	each(t, map[id][]edge{k: nil, g: blocking(k), x: blocking(g), y: blocking(x), n: nil, named(thing, 0, "of-n"): blocking(n)}, func(s *fixture, start func() *collectors) {
		c := start()
		s.busy()
		s.away.set.Store(true)
		defer s.away.set.Store(false)
		harness.Eventually(s.T, *patience, "each collector has asked twice", func(context.Context) error {
			if asked := s.away.asked.Load(); asked < int64(2*len(c.all)+2) {
				return fmt.Errorf("asked %d times", asked)
			}
			return nil
		})
		s.drop(k, foreground)
		s.drop(n, background)
		s.become()
	})
}

// TestNamespaceGoesMeanwhile makes upstream's namespace controller delete a namespace while owners
// of both scopes wait for its content. All of it is deleted, and no owner waits for ever. Objects
// elsewhere are deleted, stay, or are orphaned as usual.
func TestNamespaceGoesMeanwhile(t *testing.T) {
	last := named(thing, 0, "last")
	g, elsewhere := named(globe, 0, "g"), named(configMap, 1, "elsewhere")
	k2, kept := named(clusterRole, 0, "k2"), named(thing, 1, "kept")
	each(t, map[id][]edge{
		k: nil, g: nil, k2: nil, n: nil, x: blocking(k), y: blocking(x), last: blocking(y, n), named(thing, 0, "of-g"): blocking(g), elsewhere: blocking(g),
		named(configMap, 0, "shared"): blocking(k2, n), kept: blocking(k2), named(configMap, 2, "of-k"): blocking(k),
	}, func(s *fixture, start func() *collectors) {
		s.finalize(last, held)
		start()
		s.busy()
		defer s.namespaceController()()
		s.drop(k, foreground)
		s.drop(n, foreground)
		harness.Eventually(s.T, *patience, "only held objects are left", func(context.Context) error {
			if now := s.there(); !now[last].dying {
				return fmt.Errorf("the state is %+v", now)
			}
			return nil
		})
		ctx := s.T.Context()
		if err := s.client.CoreV1().Namespaces().Delete(ctx, s.spaces[0], metav1.DeleteOptions{}); err != nil {
			s.T.Fatal(err)
		}
		s.drop(g, orphan)
		s.drop(k2, background)
		harness.Eventually(s.T, *patience, "the namespace has only held objects, and elsewhere the right ones are left", func(context.Context) error {
			now := s.there()
			if _, there := now[kept]; there || now[elsewhere] != (object{}) || !now[last].dying {
				return fmt.Errorf("the state is %+v", now)
			}
			for o := range now {
				if o.space == 0 && o != last && !now[o].dying {
					return fmt.Errorf("%v exists and is not being deleted: %+v", o, now)
				}
			}
			return nil
		})
		s.finalize(last)
		harness.Eventually(s.T, *patience, "the namespace is deleted", func(ctx context.Context) error {
			if _, err := s.client.CoreV1().Namespaces().Get(ctx, s.spaces[0], metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				return fmt.Errorf("it still exists (%v): %+v", err, s.there())
			}
			return nil
		})
		s.become(elsewhere)
	})
}

// namespaceController starts upstream's namespace controller.
func (s *fixture) namespaceController() (stop func()) {
	s.T.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.T.Context()))
	all := informers.NewSharedInformerFactory(s.client, 0)
	c := namespace.NewNamespaceController(ctx, s.client, s.metadata, s.client.Discovery().ServerPreferredNamespacedResources, all.Core().V1().Namespaces(), 0, v1.FinalizerKubernetes)
	all.Start(ctx.Done())
	var running sync.WaitGroup
	running.Go(func() { c.Run(ctx, 2) })
	return func() { cancel(); running.Wait(); all.Shutdown() }
}

// handoffs runs handoffs from each way of collecting to the same and to the other, planned and
// unplanned.
func handoffs(t *testing.T, objects map[id][]edge, test func(s *fixture, from func() *collectors, end func(*collectors), to func() *collectors)) {
	ends := map[string]func(*collectors){"stop": (*collectors).stop, "kill": (*collectors).kill}
	next := map[string]func(s *fixture) *collectors{"stock": ways["stock"], "parts": func(s *fixture) *collectors { return s.inParts(4) }}
	for from := range ways {
		for to := range next {
			for end := range ends {
				if from == "stock" && to == "stock" {
					continue // upstream's own affair
				}
				t.Run(fmt.Sprintf("%s-%s-%s", from, end, to), func(t *testing.T) {
					s := newFixture(t, objects)
					begin := func(way func(*fixture) *collectors) func() *collectors {
						return func() *collectors { c := way(s); t.Cleanup(c.stop); return c }
					}
					test(s, begin(ways[from]), ends[end], begin(next[to]))
				})
			}
		}
	}
}

// TestHandoffInForeground ends the collectors in the middle of a deletion in the foreground, and
// starts others. They know what waits for what, and finish it in order.
func TestHandoffInForeground(t *testing.T) {
	other := named(configMap, 3, "other")
	handoffs(t, map[id][]edge{k: nil, x: blocking(k), y: blocking(x), other: blocking(k)}, func(s *fixture, from func() *collectors, end func(*collectors), to func() *collectors) {
		s.finalize(y, held)
		first := from()
		s.busy()
		s.drop(k, foreground)
		waiting := state{
			k: {dying: true, finalizers: metav1.FinalizerDeleteDependents},
			x: {dying: true, finalizers: metav1.FinalizerDeleteDependents, owners: "ClusterRole/k"},
			y: {dying: true, finalizers: held, owners: "Thing/x"},
		}
		harness.Eventually(s.T, *patience, "it waits", func(context.Context) error {
			if now := s.there(); !maps.Equal(now, waiting) {
				return fmt.Errorf("the state is %+v", now)
			}
			return nil
		})
		end(first)
		to()
		s.are(waiting)
		s.finalize(y)
		s.become()
		s.inOrder(y, x, k)
	})
}

// TestHandoffBeforeForeground deletes owners of both scopes in the foreground while no collector
// runs.
func TestHandoffBeforeForeground(t *testing.T) {
	z := named(thing, 0, "z")
	handoffs(t, map[id][]edge{k: nil, x: blocking(k), y: blocking(x), n: nil, z: blocking(n)}, func(s *fixture, from func() *collectors, end func(*collectors), to func() *collectors) {
		first := from()
		s.busy()
		end(first)
		s.drop(k, foreground)
		s.drop(n, foreground)
		to()
		s.become()
		s.inOrder(y, x, k)
		s.inOrder(z, n)
	})
}

// TestHandoffInOrphaning ends the collectors when some dependents of an owner have been orphaned,
// and starts others. They orphan the rest before the owner is deleted.
func TestHandoffInOrphaning(t *testing.T) {
	objects, want := map[id][]edge{k: nil, n: nil}, state{}
	for i := range 8 {
		of := []kind{configMap, thing}[i%2]
		objects[named(of, i%4, fmt.Sprint("of-k-", i))], want[named(of, i%4, fmt.Sprint("of-k-", i))] = blocking(k), object{}
		objects[named(of, 0, fmt.Sprint("of-n-", i))], want[named(of, 0, fmt.Sprint("of-n-", i))] = blocking(n), object{}
	}
	handoffs(t, objects, func(s *fixture, from func() *collectors, end func(*collectors), to func() *collectors) {
		var patches atomic.Int32
		before := s.config
		config := rest.CopyConfig(before)
		config.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return roundTripper(func(r *http.Request) (*http.Response, error) {
				if r.Method == http.MethodPatch && patches.Add(1) > 6 {
					return nil, io.ErrUnexpectedEOF
				}
				return next.RoundTrip(r)
			})
		})
		s.config = config
		first := from()
		s.config = before
		s.busy()
		s.drop(k, orphan)
		s.drop(n, orphan)
		harness.Eventually(s.T, *patience, "some are orphaned", func(context.Context) error {
			if sent := patches.Load(); sent < 7 {
				return fmt.Errorf("%d patches", sent)
			}
			return nil
		})
		now := s.there()
		for _, o := range []id{k, n} {
			if !slices.Contains(strings.Fields(now[o].finalizers), metav1.FinalizerOrphanDependents) {
				s.T.Fatalf("%v is %+v before all are orphaned", o, now[o])
			}
		}
		end(first)
		to()
		s.are(want)
	})
}
