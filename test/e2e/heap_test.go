package e2e

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flotilla-kube/flotilla/internal/status"
	"github.com/flotilla-kube/flotilla/pkg/controllers/catalogue"
	"github.com/flotilla-kube/flotilla/test/bench/measure"
	"github.com/flotilla-kube/flotilla/test/controlplane"
	"github.com/flotilla-kube/flotilla/test/harness"
)

var heapPods = flag.Int("heap-pods", 0, "number of pods in TestHeapIsGivenBack; 0 skips the test")

const (
	// podText is the size of an annotation on each pod.
	podText = 8 << 10
	// leftOver is how much more live heap a member may have that has given all shards away than one
	// that never had any.
	leftOver = 10 << 20
	// estimateOff is by which part of the live heap the estimate may differ from it.
	estimateOff = 0.15
)

// TestHeapIsGivenBack drains a member that had all groups, among them those that cache all pods, and
// ranges, and compares its live heap with that of a member that never had a shard. Before, it
// compares the live heap with the estimate that the planner works with.
func TestHeapIsGivenBack(t *testing.T) {
	if *heapPods == 0 {
		t.Skip("left out: takes minutes, make long RUN=bounds")
	}
	plan, err := catalogue.DefaultPlan(defaultShards)
	if err != nil {
		t.Fatal(err)
	}
	plane := harness.StartPlane(t, controlplane.Options{AuditObjects: true})
	f := newFleetRun(t, plane, plan, "--rebalance-delay=1s", "--handoff-timeout=30s")
	f.createPods(t, *heapPods)
	f.join(t, "heap-1")
	f.join(t, "heap-2")
	never := harness.Run(t, plane, harness.Member("heap-0", "--rebalance-delay=1h"))

	had := f.members["heap-1"]
	before := heapOf(t, had)
	if least := uint64(*heapPods) * podText; before < least {
		t.Fatalf("the live heap of heap-1 is %d MB with its part of %d pods and slim copies of the others, want at least %d MB", before>>20, *heapPods, least>>20)
	}
	operator := newOperator(t, plane, f.name)
	f.estimated(t, operator, "heap-1")
	operator.run(t, "drain", "heap-1")
	harness.Eventually(t, harness.Patience, "the heap of the drained member is given back", func(ctx context.Context) error {
		left, base := heapOf(t, had), heapOf(t, never)
		if left > base+leftOver {
			return fmt.Errorf("%.1f MB are live, and %.1f MB in a member that never had a shard", float64(left)/(1<<20), float64(base)/(1<<20))
		}
		t.Logf("%.1f MB of heap were live before, %.1f MB are left, %.1f MB in a member that never had a shard",
			float64(before)/(1<<20), float64(left)/(1<<20), float64(base)/(1<<20))
		return nil
	})
	if err := never.Leave(t.Context()); err != nil {
		t.Error(err)
	}
	f.end(t)
	f.judgeAlone(t)
}

// estimated waits until what flotilla status estimates that the member's shards and its process take
// is what its heap has live.
func (f *fleetRun) estimated(t *testing.T, o *operator, member string) {
	t.Helper()
	s := &statusRun{operator: o}
	harness.Eventually(t, harness.Patience, "the estimate is the live heap", func(ctx context.Context) error {
		v, _, err := s.look(ctx)
		if err != nil {
			return err
		}
		at := slices.IndexFunc(v.Members, func(m status.MemberView) bool { return m.Name == member })
		if at < 0 || v.Members[at].Estimated == nil {
			return fmt.Errorf("there is no estimate of %s: %+v", member, v.Members)
		}
		estimate, live := float64(*v.Members[at].Estimated), float64(heapOf(t, f.members[member]))
		if ratio := estimate / live; ratio < 1-estimateOff || ratio > 1+estimateOff {
			return fmt.Errorf("%.1f MB are estimated, and %.1f MB are live: %.2f of that", estimate/(1<<20), live/(1<<20), ratio)
		}
		t.Logf("%.1f MB of heap were estimated, and %.1f MB live", estimate/(1<<20), live/(1<<20))
		return nil
	})
}

// createPods creates pods in one namespace for every hundred.
func (f *fleetRun) createPods(t *testing.T, n int) {
	t.Helper()
	text := strings.Repeat("x", podText)
	name := func(i int) string { return fmt.Sprintf("heap-%d", i/100) }
	err := harness.InParallel((n+99)/100, func(i int) error {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name(100 * i)}}
		if _, err := f.client.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{}); err != nil {
			return err
		}
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}} // no pod without it
		_, err := f.client.CoreV1().ServiceAccounts(namespace.Name).Create(t.Context(), account, metav1.CreateOptions{})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	err = harness.InParallel(n, func(i int) error {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("p-%d", i), Annotations: map[string]string{"text": text}},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "none"}}},
		}
		_, err := f.client.CoreV1().Pods(name(i)).Create(t.Context(), pod, metav1.CreateOptions{})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// heapOf returns the live heap of a member, after a collection that it starts.
func heapOf(t *testing.T, m *harness.Manager) uint64 {
	t.Helper()
	status, text, err := m.Get(t.Context(), "/debug/pprof/heap?gc=1&debug=1")
	if err != nil {
		t.Fatal(err)
	}
	heap, err := measure.ParseHeap(text)
	if err != nil {
		t.Fatalf("status %d: %v", status, err)
	}
	return heap
}
