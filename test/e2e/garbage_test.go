package e2e

import (
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/flotilla-kube/flotilla/pkg/controllers/catalogue"
	"github.com/flotilla-kube/flotilla/test/controlplane"
	"github.com/flotilla-kube/flotilla/test/harness"
)

// TestGarbageInParts changes a fleet's plan from a garbage collector in parts to a single one, as
// in fleets of earlier builds, and back. Garbage is collected before, in between and after, also
// after a member was killed. A member that starts follows the current plan. Each write must come
// from the holder of a shard that has the garbage collector, and lie in its range.
func TestGarbageInParts(t *testing.T) {
	t.Parallel()
	plane := harness.StartPlane(t, controlplane.Options{AuditObjects: true})
	client := harness.Client(t, plane)
	o := newOperator(t, plane, harness.Fleet)
	start := func(member, process string) *harness.Manager {
		m := harness.Member(member, append([]string{"--shards=4"}, quick...)...)
		m.Name = process
		return harness.Run(t, plane, m)
	}
	start("fleet-0", "fleet-0")
	last := start("fleet-1", "fleet-1")
	harness.Eventually(t, leaseDuration+harness.Patience, "two members run the first plan", o.settled(1))
	collectGarbage(t, client, "parts")
	if err := last.Kill(); err != nil {
		t.Fatal(err)
	}
	collectGarbage(t, client, "killed")
	last = start("fleet-1", "fleet-1-again")
	harness.Eventually(t, leaseDuration+harness.Patience, "two members run it again", o.settled(1))

	o.run(t, "plan", "apply", "-f", o.whole(t), "--wait")
	harness.Eventually(t, harness.Patience, "a single collector runs", o.settled(2))
	collectGarbage(t, client, "whole")
	if err := last.Kill(); err != nil {
		t.Fatal(err)
	}
	start("fleet-1", "fleet-1-once-more")
	harness.Eventually(t, leaseDuration+harness.Patience, "the restarted member runs a single collector", o.settled(2))
	collectGarbage(t, client, "restarted")

	o.run(t, "plan", "apply", "-f", o.inParts(t), "--wait")
	harness.Eventually(t, harness.Patience, "collectors in parts run again", o.settled(3))
	collectGarbage(t, client, "again")

	judgeCollected(t, plane)
}

// judgeCollected also requires that the judge saw the garbage collector at work.
func judgeCollected(t *testing.T, plane *controlplane.ControlPlane) {
	t.Helper()
	if report := judgeUndisturbed(t, plane); report.Objects.Collected == 0 {
		t.Error("the judge saw no collected object")
	}
}

var garbageDependents = flag.Int("garbage-dependents", 0, "dependents of one owner in each of 32 namespaces that TestGarbageBurst deletes; 0 skips the test")

// TestGarbageBurst measures how long a fleet of four members with default flags takes to collect
// the dependents of one owner in each of 32 namespaces. It compares the default plan with a single
// garbage collector.
func TestGarbageBurst(t *testing.T) {
	if *garbageDependents == 0 {
		t.Skip("left out: takes minutes, make long RUN=garbage-burst")
	}
	plane := harness.StartPlane(t, controlplane.Options{AuditObjects: true})
	client := harness.Client(t, plane)
	o := newOperator(t, plane, harness.Fleet)
	for i := range 4 {
		harness.Run(t, plane, harness.Member(fmt.Sprintf("fleet-%d", i), quick...))
	}
	harness.Eventually(t, leaseDuration+harness.Patience, "four members run", o.settledWith(1, 4))
	parts := burst(t, client, "parts")
	o.run(t, "plan", "apply", "-f", o.whole(t), "--wait")
	harness.Eventually(t, harness.Patience, "a single collector runs", o.settledWith(2, 4))
	whole := burst(t, client, "whole")
	t.Logf("%d dependents in each of 32 namespaces: %v by one collector, %v in parts, %.1f times as fast", *garbageDependents, whole, parts, whole.Seconds()/parts.Seconds())
	judgeCollected(t, plane)
}

// burst returns how long the dependents take to disappear after their owners are deleted.
func burst(t *testing.T, client kubernetes.Interface, name string) time.Duration {
	t.Helper()
	const spaces = 32
	ctx := t.Context()
	label := map[string]string{"burst": name}
	var creating sync.WaitGroup
	// Names that differ only in their last character would lie in one range.
	space := func(i int) string { return fmt.Sprintf("%x-burst", sha256.Sum256(fmt.Append(nil, name, i)))[:24] }
	for i := range spaces {
		createNamespace(t, client, space(i))
		creating.Go(func() {
			owner, err := client.CoreV1().ConfigMaps(space(i)).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owner"}}, metav1.CreateOptions{})
			if err != nil {
				t.Error(err)
				return
			}
			for j := range *garbageDependents {
				m := metav1.ObjectMeta{Name: fmt.Sprintf("dependent-%d", j), Labels: label, OwnerReferences: []metav1.OwnerReference{
					{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID}}}
				if _, err := client.CoreV1().ConfigMaps(space(i)).Create(ctx, &corev1.ConfigMap{ObjectMeta: m}, metav1.CreateOptions{}); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	creating.Wait()
	began := time.Now()
	for i := range spaces {
		if err := client.CoreV1().ConfigMaps(space(i)).Delete(ctx, "owner", metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)}); err != nil {
			t.Fatal(err)
		}
	}
	harness.Eventually(t, 30*time.Minute, "dependents of "+name+" are collected", func(ctx context.Context) error {
		left, err := client.CoreV1().ConfigMaps(metav1.NamespaceAll).List(ctx, metav1.ListOptions{LabelSelector: "burst=" + name, Limit: 1})
		if err != nil || len(left.Items) > 0 {
			return errors.Join(err, errors.New("dependents are left"))
		}
		return nil
	})
	return time.Since(began).Round(100 * time.Millisecond)
}

// whole writes a file with the plan in force, but with a single garbage collector instead of parts.
func (o *operator) whole(t *testing.T) string {
	t.Helper()
	return o.edited(t,
		`"garbage-collector-controller",`, ``,
		`"`+catalogue.ClusterCollector+`"`, `"garbage-collector-controller"`)
}

// inParts writes a file with the plan in force, but with garbage collectors in parts instead of a
// single one, as in docs/upgrade.md.
func (o *operator) inParts(t *testing.T) string {
	t.Helper()
	return o.edited(t,
		`"garbage-collector-controller"`, `"`+catalogue.ClusterCollector+`"`,
		`"horizontal-pod`, `"garbage-collector-controller","horizontal-pod`)
}

// edited writes a file with the plan in force, in which each text of replace has become the next
// one.
func (o *operator) edited(t *testing.T, replace ...string) string {
	t.Helper()
	document := o.run(t, "plan", "show", "-o", "document")
	for i := 0; i < len(replace); i += 2 {
		edited := strings.Replace(document, replace[i], replace[i+1], 1)
		if edited == document {
			t.Fatalf("%s is not in\n%s", replace[i], document)
		}
		document = edited
	}
	file := filepath.Join(t.TempDir(), "plan.json")
	if err := os.WriteFile(file, []byte(document), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// collectGarbage deletes owners of both scopes, with dependents in several namespaces, and waits
// until all are gone.
func collectGarbage(t *testing.T, client kubernetes.Interface, name string) {
	t.Helper()
	const spaces = 6
	ctx := t.Context()
	role, err := client.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "garbage-" + name}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	owned := func(name, kind string, owner metav1.Object) metav1.ObjectMeta {
		apiVersion := map[string]string{"ClusterRole": "rbac.authorization.k8s.io/v1", "ConfigMap": "v1"}[kind]
		return metav1.ObjectMeta{Name: name, Labels: map[string]string{"garbage": "garbage"}, OwnerReferences: []metav1.OwnerReference{
			{APIVersion: apiVersion, Kind: kind, Name: owner.GetName(), UID: owner.GetUID(), BlockOwnerDeletion: ptr.To(true)}}}
	}
	create := func(space string, m metav1.ObjectMeta) *corev1.ConfigMap {
		made, err := client.CoreV1().ConfigMaps(space).Create(ctx, &corev1.ConfigMap{ObjectMeta: m}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return made
	}
	for i := range spaces {
		space := fmt.Sprintf("garbage-%s-%d", name, i)
		createNamespace(t, client, space)
		middle := create(space, owned("middle", "ClusterRole", role))
		create(space, owned("last", "ConfigMap", middle))
		alone := create(space, metav1.ObjectMeta{Name: "alone", Labels: map[string]string{"garbage": "garbage"}})
		create(space, owned("of-alone", "ConfigMap", alone))
		if err := client.CoreV1().ConfigMaps(space).Delete(ctx, "alone", metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := client.RbacV1().ClusterRoles().Delete(ctx, role.Name, metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationForeground)}); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, leaseDuration+2*harness.Patience, "garbage of "+name+" is collected", func(ctx context.Context) error {
		left, err := client.CoreV1().ConfigMaps(metav1.NamespaceAll).List(ctx, metav1.ListOptions{LabelSelector: "garbage"})
		if err != nil || len(left.Items) > 0 {
			return errors.Join(err, fmt.Errorf("%d dependents are left", len(left.Items)))
		}
		if _, err := client.RbacV1().ClusterRoles().Get(ctx, role.Name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return errors.Join(err, errors.New("the owner is left"))
		}
		return nil
	})
}
