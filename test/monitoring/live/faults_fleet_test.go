package live

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"

	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/test/harness"
)

// strippedSelectors makes the proxy between a member and the API server drop the parameter that
// filters by range.
func strippedSelectors(t *testing.T, w *fixture) func(*testing.T) {
	w.proxy.set(func(r *http.Request, _ <-chan struct{}) {
		if query := r.URL.Query(); query.Has("shardSelector") {
			query.Del("shardSelector")
			r.URL.RawQuery = query.Encode()
		}
	})
	w.restart(t, names[2])
	return func(t *testing.T) {
		w.proxy.set(nil)
		w.restart(t, names[2])
	}
}

func (w *fixture) restart(t *testing.T, name string) {
	t.Helper()
	w.stop(t, name)
	w.start(t, name)
	w.settle(t)
}

// heavyNamespaces at least doubles the number of objects, in three namespaces whose shards one
// member holds. Fewer would not do: each shard has a minimum weight, which keeps members with few
// objects even. No planner runs here; the runbook's steps end the fault.
func heavyNamespaces(t *testing.T, w *fixture) func(*testing.T) {
	var heavy []string
	shards := map[string]bool{}
	var holder string
	for c := 'a'; c <= 'z' && len(heavy) < 3; c++ {
		name := strings.Repeat(string(c), 8)
		who, shard := w.owner(t, name)
		if holder == "" {
			holder = who
		}
		if who == holder && !shards[shard] {
			heavy, shards[shard] = append(heavy, name), true
		}
	}
	if len(heavy) < 3 {
		t.Fatalf("found only %v in shards of %s", heavy, holder)
	}
	const objects = `sum(max by (ring, shard) (flotilla_shard_objects{ring="namespaces"}))`
	samples, err := w.prom.query(t.Context(), objects)
	if err != nil || len(samples) != 1 {
		t.Fatalf("%s is %v, error %v; want one sample", objects, samples, err)
	}
	there, err := strconv.ParseFloat(samples[0].value(), 64)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range heavy {
		if _, err := w.client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		for i := range max(2500, int(2*there)/len(heavy)) {
			object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("heavy-%d", i)}}
			if _, err := w.client.CoreV1().ConfigMaps(name).Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	return func(t *testing.T) {
		harness.Eventually(t, within(), "the plan is changed", func(context.Context) error {
			// It waits for longer than a condition may take. The weights of shards that have just come
			// are not known at once.
			_, err := w.try(t.Context(), nil, "flotilla", "plan", "rebalance", "--wait=3m")
			return err
		})
		harness.Eventually(t, within(), "the plan is even", func(ctx context.Context) error {
			samples, err := w.prom.query(ctx, `max(flotilla_ring_load_ratio) > 1.5`)
			if err == nil && len(samples) > 0 {
				err = fmt.Errorf("most loaded over mean: %s", samples[0].value())
			}
			return err
		})
	}
}

// owner returns the member that runs a namespace's shard, and the shard.
func (w *fixture) owner(t *testing.T, namespace string) (member, shard string) {
	t.Helper()
	var answer struct {
		Rings []struct{ Holder, Shard string }
	}
	if err := json.Unmarshal(w.command(t, nil, "flotilla", "explain", namespace, "-o", "json"), &answer); err != nil {
		t.Fatal(err)
	}
	if len(answer.Rings) != 1 {
		t.Fatalf("flotilla explain %s: %d rings, want 1", namespace, len(answer.Rings))
	}
	return answer.Rings[0].Holder, answer.Rings[0].Shard
}

// badCanary tries a version on two namespaces with constant work. What its member writes about Pods
// and ReplicaSets there loses its content type on the way, so the API server refuses it.
func badCanary(t *testing.T, w *fixture) func(*testing.T) {
	const version = "v1.37.99"
	w.command(t, nil, "flotilla", "canary", "start", "--namespaces=work-0,work-1", "--version="+version, "--wait=3m")
	w.binaries[names[2]] = w.build(t, "-ldflags=-X k8s.io/component-base/version.gitVersion="+version+
		" -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=37")
	w.restart(t, names[2])
	w.proxy.set(func(r *http.Request, _ <-chan struct{}) {
		if r.Method != http.MethodGet && strings.HasPrefix(r.URL.Path, "/apis/apps/v1/namespaces/work-") {
			r.Header.Set("Content-Type", "application/nonsense")
		}
	})
	n := 0
	stop := every(t, time.Second, func(ctx context.Context) {
		n++
		patch := fmt.Sprintf(`{"spec":{"template":{"metadata":{"annotations":{"n":"%d"}}}}}`, n)
		for _, namespace := range []string{"work-0", "work-1"} {
			_, _ = w.client.AppsV1().Deployments(namespace).Patch(ctx, "web", types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		}
	})
	return func(t *testing.T) {
		stop()
		w.proxy.set(nil)
		w.command(t, nil, "flotilla", "canary", "abort", "--wait=3m")
		delete(w.binaries, names[2])
		w.restart(t, names[2])
		w.command(t, nil, "flotilla", "canary", "forget", "--wait=3m")
	}
}

// otherMinor restarts a member as one of a later minor version, which lacks two controllers.
func otherMinor(t *testing.T, w *fixture) func(*testing.T) {
	later := filepath.Join(t.TempDir(), harness.Fleet)
	script := fmt.Sprintf("#!/bin/sh\nFLOTILLA_CATALOGUE=later exec %s \"$@\"\n", w.build(t, "-tags=planted"))
	if err := os.WriteFile(later, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	w.binaries[names[1]] = later
	w.restart(t, names[1])
	return func(t *testing.T) {
		delete(w.binaries, names[1])
		w.restart(t, names[1])
	}
}

// build builds a member with the given flag for the compiler or the linker.
func (w *fixture) build(t *testing.T, flag string) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), harness.Fleet)
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-buildvcs=false", flag, "-o", binary, "./cmd/flotilla")
	build.Dir = w.root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", build, err, out)
	}
	return binary
}

func away(t *testing.T, w *fixture) func(*testing.T) {
	w.stopAll(t)
	return func(t *testing.T) { w.startAll(t) }
}

// junkPlan corrupts the plan and the last good one while no member runs that could put it back.
func junkPlan(t *testing.T, w *fixture) func(*testing.T) {
	w.stopAll(t)
	good := w.writePlan(t, "{junk")
	for _, name := range names {
		w.start(t, name)
	}
	return func(t *testing.T) {
		w.writePlan(t, good)
		w.settle(t)
	}
}

// writePlan replaces the plan, on a Lease without a last good one, and returns the old one.
func (w *fixture) writePlan(t *testing.T, document string) (before string) {
	t.Helper()
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		leases := w.client.CoordinationV1().Leases(metav1.NamespaceSystem)
		l, err := leases.Get(t.Context(), leaseapi.PlanLease("flotilla"), metav1.GetOptions{})
		if err != nil {
			return err
		}
		before = l.Annotations[leaseapi.DocumentAnnotation]
		l.Annotations[leaseapi.DocumentAnnotation] = document
		delete(l.Annotations, leaseapi.LastGoodAnnotation)
		_, err = leases.Update(t.Context(), l, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return before
}

// heldLeaderLock starts the fleet while another process holds the leader lock, as the stock leader
// does.
func heldLeaderLock(t *testing.T, w *fixture) func(*testing.T) {
	w.stopAll(t)
	stop := every(t, time.Second, func(ctx context.Context) { _ = w.hold(ctx, leaderLock, "stock") })
	for _, name := range names {
		w.start(t, name)
	}
	return func(t *testing.T) {
		stop()
		if err := w.hold(t.Context(), leaderLock, ""); err != nil {
			t.Error(err)
		}
		w.settle(t)
	}
}

// deadLeaderLock starts the fleet while the leader lock names a dead holder and is valid for ten
// minutes.
func deadLeaderLock(t *testing.T, w *fixture) func(*testing.T) {
	w.stopAll(t)
	if err := w.hold(t.Context(), leaderLock, "stock"); err != nil {
		t.Fatal(err)
	}
	patch := []byte(`{"spec":{"leaseDurationSeconds":600}}`)
	if _, err := w.client.CoordinationV1().Leases(metav1.NamespaceSystem).Patch(t.Context(), leaderLock, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		w.start(t, name)
	}
	return func(t *testing.T) {
		if err := w.hold(t.Context(), leaderLock, ""); err != nil {
			t.Error(err)
		}
		w.settle(t)
	}
}
