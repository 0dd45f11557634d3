package integration

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/kubernetes/cmd/kube-controller-manager/names"
	"k8s.io/utils/ptr"

	"github.com/flotilla-kube/flotilla/pkg/controllers"
	"github.com/flotilla-kube/flotilla/pkg/election/fence"
	"github.com/flotilla-kube/flotilla/pkg/shard"
	"github.com/flotilla-kube/flotilla/test/harness"
)

var (
	graphObjects = flag.Int("graph-objects", 5000, "ConfigMaps besides those that are deleted, in tests of the garbage collector's graph")
	graphRuns    = flag.Int("graph-runs", 1, "how often each deletion policy is tried, in tests of the garbage collector's graph")
	graphStock   = flag.Bool("graph-stock", false, "also print the result of a stock controller manager, in tests of the garbage collector's graph")
)

// graphLimits keep client-side rate limits from dominating the time.
var graphLimits = []string{"--kube-api-qps=2000", "--kube-api-burst=4000"}

const (
	graphOwners     = 40
	graphDependents = 50 // of each owner
	clearings       = 30 // requests, of at most a minute each
)

// TestNothingIsDecidedByAnIncompleteGraph deletes owners while no garbage collector runs, or one
// that is about to end, and then starts a collector: one with empty caches, and one whose caches
// were filled while the last one ran. Objects to be orphaned must stay, and owners that wait for
// their dependents must be deleted after them. With -graph-stock it prints the result of a stock
// controller manager, which makes no such promise.
func TestNothingIsDecidedByAnIncompleteGraph(t *testing.T) {
	g := newGraph(t, *graphObjects)
	for _, policy := range []metav1.DeletionPropagation{metav1.DeletePropagationOrphan, metav1.DeletePropagationForeground} {
		for name, collect := range map[string]collecting{"kill": startCold, "planned": handOver} {
			t.Run(fmt.Sprintf("%s/%s", policy, name), func(t *testing.T) {
				for range *graphRuns {
					for _, fault := range g.run(t, policy, collect) {
						t.Error(fault)
					}
				}
			})
		}
		if *graphStock {
			t.Run(fmt.Sprintf("%s/stock", policy), func(t *testing.T) {
				for range *graphRuns {
					t.Logf("with a stock controller manager: %q", g.run(t, policy, startStock))
				}
			})
		}
	}
}

// collecting calls between while no garbage collector runs, or one that is about to end; then one
// runs until stop.
type collecting func(t *testing.T, between func()) (stop func())

// startCold models the death of a member without a standby.
func startCold(t *testing.T, between func()) (stop func()) {
	between()
	return start(t, newCollector(t, graphLimits...), collector(nil)).stop
}

// handOver models a planned handoff: the next owner fills its caches while the last one works.
func handOver(t *testing.T, between func()) (stop func()) {
	closes := &closing{done: make(chan struct{})}
	last := start(t, newCollector(t), collector(closes))
	waitFor(t, "the last owner's caches", last.Informers().HasSynced)
	next, err := newCollector(t, graphLimits...).Build(t.Context(), collector(nil))
	if err != nil {
		t.Fatal(err)
	}
	if err := next.Warm(t.Context()); err != nil {
		t.Fatal(err)
	}
	between()
	closes.close()
	last.stop()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := next.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	return func() { cancel(); running.Wait() }
}

// startStock models the death of a stock leader.
func startStock(t *testing.T, between func()) (stop func()) {
	between()
	flags := append([]string{"--leader-elect=false", "--controllers=" + names.GarbageCollectorController}, graphLimits...)
	p, err := harness.Start(plane, harness.Spec{Name: "kube-controller-manager-graph", Binary: harness.Stock, Flags: flags})
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := p.Kill(); err != nil {
			t.Error(err)
		}
	}
}

// TestBusyCollectorReturns makes a garbage collector orphan more than its limits let through in a
// minute, and closes its fence. The collector must return without working that off, request by
// request.
func TestBusyCollectorReturns(t *testing.T) {
	const bound = 20 * time.Second // the requests left would wait more than 45 s
	g := newGraph(t, 0)
	closes := &closing{done: make(chan struct{})}
	var busy running
	g.run(t, metav1.DeletePropagationOrphan, func(t *testing.T, between func()) (stop func()) {
		busy = start(t, newCollector(t), collector(closes))
		waitFor(t, "the caches", busy.Informers().HasSynced)
		between()
		waitFor(t, "the garbage collector to begin", func() bool { return g.orphans(t) > 0 })
		closes.close()
		began := time.Now()
		busy.stop()
		if took := time.Since(began); took > bound {
			t.Errorf("the garbage collector returned %v after its fence had closed, want less than %v", took, bound)
		}
		return start(t, newCollector(t, graphLimits...), collector(nil)).stop
	})
}

func newCollector(t *testing.T, flags ...string) *controllers.Process {
	t.Helper()
	c, _ := newConfig(t, flags...)
	p, err := controllers.NewProcess(c, controllers.NewEndpoints())
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// collector returns the spec of a garbage collector's shard; closes may be nil.
func collector(closes *closing) controllers.Spec {
	spec := controllers.Spec{Range: shard.Everything(), Controllers: []string{names.GarbageCollectorController}}
	if closes != nil {
		spec.Fence, spec.Closed = closes.wrap, closes.done
	}
	return spec
}

// closing is a fence that blocks everything once it is closed.
type closing struct{ done chan struct{} }

func (c *closing) close() { close(c.done) }

func (c *closing) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		select {
		case <-c.done:
			return nil, &fence.RefusedError{Shard: "garbage"}
		default:
			return next.RoundTrip(r)
		}
	})
}

// graph is a garbage collector's work.
type graph struct {
	*testing.T
	client kubernetes.Interface
	space  string
	round  int
}

// newGraph creates this many ConfigMaps without owners, in a new namespace.
func newGraph(t *testing.T, objects int) *graph {
	config := plane.AdminConfig()
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	space, err := client.CoreV1().Namespaces().Create(t.Context(), &v1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "graph-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	g := &graph{T: t, client: client, space: space.Name}
	t.Cleanup(g.clear)
	g.inParallel(objects, func(i int) error {
		_, err := client.CoreV1().ConfigMaps(g.space).Create(t.Context(), &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("beside-%06d", i)}}, metav1.CreateOptions{})
		return err
	})
	return g
}

// orphans returns how many dependents of the last round have no owner left.
func (g *graph) orphans(t *testing.T) int {
	left, err := g.client.CoreV1().ConfigMaps(g.space).List(t.Context(), metav1.ListOptions{LabelSelector: fmt.Sprintf("round=round-%d", g.round)})
	if err != nil {
		t.Fatal(err)
	}
	orphans := 0
	for i := range left.Items {
		if len(left.Items[i].OwnerReferences) == 0 {
			orphans++
		}
	}
	return orphans
}

// run deletes owners with dependents between one garbage collector and the next. It returns the
// wrong results.
func (g *graph) run(t *testing.T, policy metav1.DeletionPropagation, collect collecting) (faults []string) {
	t.Helper()
	ctx := t.Context()
	g.round++
	label := fmt.Sprintf("round-%d", g.round)
	owners := make([]*schedulingv1.PriorityClass, graphOwners)
	g.inParallel(graphOwners, func(i int) (err error) {
		owners[i], err = g.client.SchedulingV1().PriorityClasses().Create(ctx, &schedulingv1.PriorityClass{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%s-%02d", g.space, label, i), Labels: map[string]string{"round": label}}, Value: 1}, metav1.CreateOptions{})
		return err
	})
	g.inParallel(graphOwners*graphDependents, func(i int) error {
		owner := owners[i%graphOwners]
		_, err := g.client.CoreV1().ConfigMaps(g.space).Create(ctx, &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("%s-%04d", label, i), Labels: map[string]string{"round": label},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "scheduling.k8s.io/v1", Kind: "PriorityClass", Name: owner.Name, UID: owner.UID,
				BlockOwnerDeletion: ptr.To(true)}},
		}}, metav1.CreateOptions{})
		return err
	})
	var began string
	stop := collect(t, func() {
		list, err := g.client.CoreV1().ConfigMaps(g.space).List(ctx, metav1.ListOptions{Limit: 1})
		if err != nil {
			t.Fatal(err)
		}
		began = list.ResourceVersion
		g.inParallel(graphOwners, func(i int) error {
			return g.client.SchedulingV1().PriorityClasses().Delete(ctx, owners[i].Name, metav1.DeleteOptions{PropagationPolicy: &policy})
		})
	})
	defer stop()
	eventually(t, func() error {
		left, err := g.client.SchedulingV1().PriorityClasses().List(ctx, metav1.ListOptions{LabelSelector: "round=" + label})
		if err != nil || len(left.Items) > 0 {
			return fmt.Errorf("%d of %d owners are left (%v)", len(left.Items), graphOwners, err)
		}
		return nil
	})
	if policy == metav1.DeletePropagationOrphan {
		return g.checkOrphans(t)
	}
	return g.checkOrder(t, label, began)
}

// checkOrphans requires that all dependents exist and have no owner reference, because with one
// they would be collected later.
func (g *graph) checkOrphans(t *testing.T) (faults []string) {
	if got, want := g.orphans(t), graphOwners*graphDependents; got != want {
		faults = append(faults, fmt.Sprintf("of %d dependents to be orphaned, %d are left without an owner", want, got))
	}
	return faults
}

// checkOrder requires that all dependents are gone, and each before its owner.
func (g *graph) checkOrder(t *testing.T, label, began string) (faults []string) {
	options := metav1.ListOptions{LabelSelector: "round=" + label, ResourceVersion: began, TimeoutSeconds: ptr.To(int64(patience.Seconds()))}
	dependents, err := g.client.CoreV1().ConfigMaps(g.space).Watch(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	last := map[types.UID]string{} // the last dependent's deletion, by owner
	each(t, dependents, graphOwners*graphDependents, func(m *v1.ConfigMap) { last[m.OwnerReferences[0].UID] = m.ResourceVersion })
	owners, err := g.client.SchedulingV1().PriorityClasses().Watch(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	each(t, owners, graphOwners, func(owner *schedulingv1.PriorityClass) {
		if order, err := resourceversion.CompareResourceVersion(owner.ResourceVersion, last[owner.UID]); err != nil || order < 0 {
			faults = append(faults, fmt.Sprintf("%s went at version %s, before its last dependent at %s", owner.Name, owner.ResourceVersion, last[owner.UID]))
		}
	})
	return faults
}

// each calls f for n objects whose deletion a watch reports.
func each[T runtime.Object](t *testing.T, w watch.Interface, n int, f func(T)) {
	t.Helper()
	defer w.Stop()
	for event := range w.ResultChan() {
		obj, ok := event.Object.(T)
		if !ok {
			t.Fatalf("watching deletions: %v", event.Object)
		}
		if event.Type != watch.Deleted {
			continue
		}
		if f(obj); n == 1 {
			return
		}
		n--
	}
	t.Errorf("%d more deletions were expected", n)
}

// clear deletes the test's objects. A busy API server cannot delete them all within one request,
// and says so in more than one way.
func (g *graph) clear() {
	ctx := context.WithoutCancel(g.Context())
	var err error
	for range clearings {
		err = g.client.CoreV1().ConfigMaps(g.space).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
		if err == nil {
			break
		}
	}
	if err = errors.Join(err, g.client.SchedulingV1().PriorityClasses().DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "round"})); err != nil {
		g.Error(err)
	}
}

func (g *graph) inParallel(n int, f func(i int) error) {
	g.Helper()
	if err := harness.InParallel(n, f); err != nil {
		g.Fatal(err)
	}
}
