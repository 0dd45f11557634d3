// Package ceiling tests the benchmarks' load generator against real API servers: it replays on one
// what the stock controller manager wrote on another. It needs the binaries of `make tools`.
package ceiling

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/flotilla-kube/flotilla/test/bench/ceiling"
	"github.com/flotilla-kube/flotilla/test/controlplane"
	"github.com/flotilla-kube/flotilla/test/harness"
)

const (
	namespace   = "work"
	deployments = 5
	nodes       = 2
)

// TestReplay records a Job and Deployments that are created, scaled down and in part deleted, and
// replays the recording.
func TestReplay(t *testing.T) {
	recording, since, want := record(t)
	t.Logf("%d requests, %d of them of the work; left out: %v", recording.Len(), recording.Since(since), recording.Left)

	plane, client := start(t, controlplane.Options{Nodes: nodes})
	outcome, err := recording.Replay(t.Context(), plane.AdminConfig(), ceiling.Options{
		Since: since, Events: true, Prepare: func(ctx context.Context) error { return prepare(ctx, client) },
	})
	t.Logf("%+v", outcome)
	if err != nil {
		t.Fatal(err)
	}
	if outcome.Failed > 0 || outcome.Requests < deployments*6 || outcome.Seconds <= 0 {
		t.Errorf("outcome %+v, want no failures and at least %d requests", outcome, deployments*6)
	}
	for _, controller := range []string{"deployment-controller", "replicaset-controller", "job-controller", "generic-garbage-collector"} {
		if outcome.Controllers[controller] == 0 {
			t.Errorf("no request of the %s", controller)
		}
	}
	if got := state(t, client); !slices.Equal(got, want) {
		t.Errorf("after the replay there are\n%q, want\n%q", got, want)
	}
}

func start(t *testing.T, opts controlplane.Options) (*controlplane.ControlPlane, kubernetes.Interface) {
	t.Helper()
	plane := harness.StartPlane(t, opts)
	return plane, harness.Client(t, plane)
}

// record returns what the stock controller manager wrote, when the work began, and the final state.
func record(t *testing.T) (ceiling.Recording, time.Time, []string) {
	t.Helper()
	plane, client := start(t, controlplane.Options{Nodes: nodes, Scheduler: true, AuditObjects: true})
	manager := harness.Run(t, plane, harness.Spec{Name: "stock", Binary: harness.Stock})
	if err := prepareNamespace(t.Context(), client); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, harness.Patience, "the service account is there", func(ctx context.Context) error {
		_, err := client.CoreV1().ServiceAccounts(namespace).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	since := time.Now()
	if err := errors.Join(prepareDeployments(t.Context(), client), prepareJob(t.Context(), client)); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, harness.Patience, "the Job is complete", func(ctx context.Context) error {
		job, err := client.BatchV1().Jobs(namespace).Get(ctx, "job", metav1.GetOptions{})
		if err == nil && job.Status.CompletionTime == nil {
			err = fmt.Errorf("status %+v", job.Status)
		}
		return err
	})
	harness.Eventually(t, harness.Patience, "pods are there", func(ctx context.Context) error { return settled(ctx, client, deployments, 3) })
	for i := range deployments {
		patch := []byte(`{"spec":{"replicas":2}}`)
		if _, err := client.AppsV1().Deployments(namespace).Patch(t.Context(), name(i), types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	harness.Eventually(t, harness.Patience, "pods are fewer", func(ctx context.Context) error { return settled(ctx, client, deployments, 2) })
	background := metav1.DeletePropagationBackground
	if err := client.AppsV1().Deployments(namespace).Delete(t.Context(), name(0), metav1.DeleteOptions{PropagationPolicy: &background}); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, harness.Patience, "a Deployment is gone", func(ctx context.Context) error { return settled(ctx, client, deployments-1, 2) })
	if err := manager.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	log, err := os.Open(plane.AuditLog())
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	recording, err := ceiling.Record(log)
	if err != nil {
		t.Fatal(err)
	}
	return recording, since, state(t, client)
}

func name(i int) string { return fmt.Sprintf("d-%d", i) }

func prepare(ctx context.Context, client kubernetes.Interface) error {
	return errors.Join(prepareNamespace(ctx, client), prepareDeployments(ctx, client), prepareJob(ctx, client))
}

func prepareNamespace(ctx context.Context, client kubernetes.Interface) error {
	_, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	return err
}

func prepareDeployments(ctx context.Context, client kubernetes.Interface) error {
	for i := range deployments {
		labels := map[string]string{"app": name(i)}
		_, err := client.AppsV1().Deployments(namespace).Create(ctx, &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Name: name(i)},
			Spec: appsv1.DeploymentSpec{
				Replicas: ptr.To[int32](3), Selector: &metav1.LabelSelector{MatchLabels: labels},
				Template: corev1.PodTemplateSpec{
					ObjectMeta: metav1.ObjectMeta{Labels: labels},
					Spec: corev1.PodSpec{
						TerminationGracePeriodSeconds: ptr.To[int64](0), Containers: []corev1.Container{{Name: "main", Image: "none"}},
					},
				},
			},
		}, metav1.CreateOptions{})
		if err != nil {
			return err
		}
	}
	return nil
}

// prepareJob creates a Job, whose pods carry its UID in labels, and a finalizer.
func prepareJob(ctx context.Context, client kubernetes.Interface) error {
	_, err := client.BatchV1().Jobs(namespace).Create(ctx, &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: "job"},
		Spec: batchv1.JobSpec{Completions: ptr.To[int32](2), Parallelism: ptr.To[int32](2), Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "main", Image: "none"}},
		}}},
	}, metav1.CreateOptions{})
	return err
}

func settled(ctx context.Context, client kubernetes.Interface, n, replicas int) error {
	list, err := client.AppsV1().Deployments(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	if len(list.Items) != n {
		return fmt.Errorf("%d Deployments, want %d", len(list.Items), n)
	}
	for _, d := range list.Items {
		if s := d.Status; s.ObservedGeneration != d.Generation || int(s.AvailableReplicas) != replicas || int(s.Replicas) != replicas {
			return fmt.Errorf("%s has %d pods, %d available, want %d", d.Name, s.Replicas, s.AvailableReplicas, replicas)
		}
	}
	pods, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: "app"})
	if err == nil && len(pods.Items) != n*replicas {
		err = fmt.Errorf("%d pods, want %d", len(pods.Items), n*replicas)
	}
	return err
}

// state returns the ReplicaSets and pods with the objects that own them, found by UID.
func state(t *testing.T, client kubernetes.Interface) []string {
	t.Helper()
	owners := map[types.UID]string{}
	job, err := client.BatchV1().Jobs(namespace).Get(t.Context(), "job", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	owners[job.UID] = "job"
	list, err := client.AppsV1().Deployments(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range list.Items {
		owners[d.UID] = d.Name
	}
	sets, err := client.AppsV1().ReplicaSets(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	found := []string{fmt.Sprintf("job, %d succeeded", job.Status.Succeeded)}
	for _, s := range sets.Items {
		owners[s.UID] = s.Name
		found = append(found, fmt.Sprintf("%s of %s, %d", s.Name, owners[metav1.GetControllerOf(&s).UID], s.Status.Replicas))
	}
	pods, err := client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pods.Items {
		found = append(found, fmt.Sprintf("%s of %s, labelled %s", p.Name, owners[metav1.GetControllerOf(&p).UID], owners[types.UID(p.Labels[batchv1.ControllerUidLabel])]))
	}
	slices.Sort(found)
	return found
}
