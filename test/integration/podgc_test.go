package integration

import (
	"fmt"
	"slices"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/kubernetes/cmd/kube-controller-manager/names"
	"k8s.io/utils/ptr"

	"github.com/flotilla-kube/flotilla/pkg/controllers"
)

// TestTerminatedPodsKept runs the pod garbage collector wherever the default plan with 16 ranges
// has it, with one terminated Pod more than the threshold, most of them of one Job. Like the stock
// controller manager, it must delete only the oldest.
func TestTerminatedPodsKept(t *testing.T) {
	const threshold, completions = 100, 90
	c, _ := newConfig(t, fmt.Sprintf("--terminated-pod-gc-threshold=%d", threshold), "--kube-api-qps=1000", "--kube-api-burst=1000")
	process, err := controllers.NewProcess(c, controllers.NewEndpoints())
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(plane.AdminConfig())
	if err != nil {
		t.Fatal(err)
	}
	older := testNamespace(t, client, "a-terminated-")
	for i := range threshold - completions + 1 {
		pod, err := client.CoreV1().Pods(older).Create(t.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("a-terminated-%d", i)},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "none"}}},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		succeed(t, client, pod)
	}
	start(t, process, controllers.Spec{Controllers: []string{names.JobController}})
	space := completedJob(t, client, completions)

	ran := 0
	for _, spec := range specs(t, 16) {
		if !slices.Contains(spec.Controllers, names.PodGarbageCollectorController) {
			continue
		}
		spec.Controllers = []string{names.PodGarbageCollectorController}
		start(t, process, spec)
		ran++
	}
	waitFor(t, "terminated Pods to be deleted", func() bool { return terminated(t, client, metav1.NamespaceAll) <= threshold })
	if all, kept := terminated(t, client, metav1.NamespaceAll), terminated(t, client, space); all != threshold || kept != completions {
		t.Errorf("%d shards collect: %d terminated Pods are left, %d of the Job's, want %d and %d", ran, all, kept, threshold, completions)
	}
}

func testNamespace(t *testing.T, client kubernetes.Interface, prefix string) string {
	t.Helper()
	ns, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: prefix}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	if _, err := client.CoreV1().ServiceAccounts(ns.Name).Create(t.Context(), account, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return ns.Name
}

// succeed does what a kubelet does when a Pod's containers have succeeded.
func succeed(t *testing.T, client kubernetes.Interface, pod *corev1.Pod) {
	t.Helper()
	_, err := client.CoreV1().Pods(pod.Namespace).Patch(t.Context(), pod.Name, "application/merge-patch+json",
		[]byte(`{"status":{"phase":"Succeeded"}}`), metav1.PatchOptions{}, "status")
	if err != nil {
		t.Fatal(err)
	}
}

// completedJob returns the namespace of a complete Job.
func completedJob(t *testing.T, client kubernetes.Interface, completions int32) string {
	t.Helper()
	space := testNamespace(t, client, "job-")
	job, err := client.BatchV1().Jobs(space).Create(t.Context(), &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: "job"},
		Spec: batchv1.JobSpec{
			Completions: ptr.To(completions), Parallelism: ptr.To(completions),
			Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
				RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "c", Image: "none"}},
			}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the Job to complete", func() bool {
		pods, err := client.CoreV1().Pods(space).List(t.Context(), metav1.ListOptions{FieldSelector: "status.phase!=Succeeded"})
		if err != nil {
			t.Fatal(err)
		}
		for i := range pods.Items {
			succeed(t, client, &pods.Items[i])
		}
		job, err = client.BatchV1().Jobs(space).Get(t.Context(), job.Name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return job.Status.Succeeded == completions
	})
	return space
}

// terminated returns how many terminated Pods a namespace has.
func terminated(t *testing.T, client kubernetes.Interface, namespace string) int {
	t.Helper()
	pods, err := client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{FieldSelector: "status.phase=Succeeded"})
	if err != nil {
		t.Fatal(err)
	}
	return len(pods.Items)
}
