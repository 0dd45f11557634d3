package controlplane_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/flotilla-kube/flotilla/test/controlplane"
	"github.com/flotilla-kube/flotilla/test/harness"
)

const (
	namespace = "workload"
	userAgent = "controlplane-test/1"

	managerName = "kube-controller-manager"
	shard       = "shardRange(object.metadata.namespace, '0x0000000000000000', '0x8000000000000000')"
)

// TestWorkload runs the stock controller manager with every option of the package, and then checks
// each guarantee.
func TestWorkload(t *testing.T) {
	cp := harness.StartPlane(t, controlplane.Options{Nodes: 3, Scheduler: true, ShardedListAndWatch: true})
	// No Cleanup, because cp.Stop must end it.
	manager, err := harness.Start(cp, harness.Spec{Name: managerName, Binary: managerName})
	if err != nil {
		t.Fatal(err)
	}
	config := cp.AdminConfig()
	config.UserAgent = userAgent
	client := client(t, config)
	create(t, client)

	t.Run("deployment", func(t *testing.T) {
		harness.Eventually(t, harness.Patience, "deployment available", func(ctx context.Context) error { return requireReady(ctx, client) })
		requireAddresses(t, client)
	})
	t.Run("jobs", func(t *testing.T) { requireJobs(t, client) })
	t.Run("deleted pods go", func(t *testing.T) { requireDeletion(t, client) })
	t.Run("nodes live by their leases", func(t *testing.T) { requireNodeLeases(t, client) })
	t.Run("certificates", func(t *testing.T) { requireCertificate(t, cp) })
	t.Run("audit log", func(t *testing.T) { requireAudit(t, cp) })
	t.Run("sharded list", func(t *testing.T) {
		pods, err := listShard(t, client)
		if err != nil {
			t.Fatal(err)
		}
		if pods.ShardInfo == nil || pods.ShardInfo.Selector != shard {
			t.Errorf("shardInfo is %v, want the selector back", pods.ShardInfo)
		}
	})
	t.Run("authorization", func(t *testing.T) { requireAuthorization(t, cp) })
	t.Run("stop", func(t *testing.T) {
		pids := requirePids(t, cp.Dir(), "etcd", "kube-apiserver", "kube-scheduler", "kwok", managerName)
		if err := cp.Stop(); err != nil {
			t.Fatal(err)
		}
		requireGone(t, pids)
		if _, err := os.Stat(cp.Dir()); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: %v, want it gone", cp.Dir(), err)
		}
		if err := manager.Signal(0); !errors.Is(err, os.ErrProcessDone) {
			t.Errorf("signal after stop: %v, want %v", err, os.ErrProcessDone)
		}
		if _, err := cp.StartProcess("late", "/bin/sh", nil); err == nil {
			t.Error("a process was started on a stopped control plane")
		}
	})
}

func create(t *testing.T, client kubernetes.Interface) {
	t.Helper()
	ctx := t.Context()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	if _, err := client.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	labels := map[string]string{"app": "web"}
	deployment := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To(int32(6)),
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: podTemplate(labels, nil, corev1.RestartPolicyAlways),
		},
	}
	if _, err := client.AppsV1().Deployments(namespace).Create(ctx, deployment, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for name, annotations := range map[string]map[string]string{
		"quick": nil,
		"exact": {controlplane.RunForAnnotation: "100ms"},
		"never": {controlplane.RunForAnnotation: "24h"},
	} {
		job := &batchv1.Job{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       batchv1.JobSpec{Template: podTemplate(nil, annotations, corev1.RestartPolicyNever)},
		}
		job.Spec.PodReplacementPolicy = ptr.To(batchv1.Failed)
		if _, err := client.BatchV1().Jobs(namespace).Create(ctx, job, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

func podTemplate(labels, annotations map[string]string, restart corev1.RestartPolicy) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: annotations},
		Spec: corev1.PodSpec{
			RestartPolicy:  restart,
			InitContainers: []corev1.Container{{Name: "first", Image: "none"}},
			Containers:     []corev1.Container{{Name: "main", Image: "none"}},
		},
	}
}

// requireAddresses checks that pods have different addresses and run on the simulated nodes.
func requireAddresses(t *testing.T, client kubernetes.Interface) {
	t.Helper()
	pods, err := client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "app=web"})
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]string{}
	for _, pod := range pods.Items {
		if other, ok := seen[pod.Status.PodIP]; ok || pod.Status.PodIP == "" {
			t.Errorf("pod %s has address %q, as has %q", pod.Name, pod.Status.PodIP, other)
		}
		seen[pod.Status.PodIP] = pod.Name
		if !strings.HasPrefix(pod.Spec.NodeName, "node-00") {
			t.Errorf("pod %s runs on node %q", pod.Name, pod.Spec.NodeName)
		}
	}
}

func requireJobs(t *testing.T, client kubernetes.Interface) {
	t.Helper()
	for _, name := range []string{"quick", "exact"} {
		var job *batchv1.Job
		harness.Eventually(t, harness.Patience, "job "+name, func(ctx context.Context) (err error) {
			if job, err = client.BatchV1().Jobs(namespace).Get(ctx, name, metav1.GetOptions{}); err != nil {
				return err
			}
			if job.Status.Succeeded != 1 || job.Status.CompletionTime == nil {
				return fmt.Errorf("status %+v", job.Status)
			}
			return nil
		})
		t.Logf("Job %s took %s", name, job.Status.CompletionTime.Sub(job.Status.StartTime.Time))
	}
	// The pod is Running or will be; the point is that it does not complete.
	job, err := client.BatchV1().Jobs(namespace).Get(t.Context(), "never", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if job.Status.Succeeded != 0 {
		t.Errorf("job never: status %+v, want it running", job.Status)
	}
}

// requireDeletion deletes the running pods. The deployment's pods must be replaced. The Job's pod
// must have failed before it is gone, because its podReplacementPolicy makes the controller wait
// for that.
func requireDeletion(t *testing.T, client kubernetes.Interface) {
	t.Helper()
	pods := client.CoreV1().Pods(namespace)
	var old []corev1.Pod
	harness.Eventually(t, harness.Patience, "running pods", func(ctx context.Context) error {
		list, err := pods.List(ctx, metav1.ListOptions{FieldSelector: "status.phase=Running"})
		if err != nil {
			return err
		}
		if old = list.Items; len(old) != 7 {
			return fmt.Errorf("%d pods are running, want 6 of the deployment and one of the job", len(old))
		}
		return nil
	})
	if err := pods.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, harness.Patience, "replaced pods", func(ctx context.Context) error {
		for _, pod := range old {
			if _, err := pods.Get(ctx, pod.Name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				return fmt.Errorf("pod %s: %v, want it gone", pod.Name, err)
			}
		}
		job, err := client.BatchV1().Jobs(namespace).Get(ctx, "never", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if job.Status.Failed != 1 {
			return fmt.Errorf("job never: status %+v, want one failed pod", job.Status)
		}
		return requireReady(ctx, client)
	})
}

func requireReady(ctx context.Context, client kubernetes.Interface) error {
	deployment, err := client.AppsV1().Deployments(namespace).Get(ctx, "web", metav1.GetOptions{})
	if err != nil {
		return err
	}
	if got := deployment.Status.ReadyReplicas; got != 6 {
		return fmt.Errorf("%d of 6 pods are ready", got)
	}
	return nil
}

func requireNodeLeases(t *testing.T, client kubernetes.Interface) {
	t.Helper()
	harness.Eventually(t, harness.Patience, "node leases", func(ctx context.Context) error {
		leases, err := client.CoordinationV1().Leases("kube-node-lease").List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		if len(leases.Items) != 3 {
			return fmt.Errorf("%d leases, want one for each of 3 nodes", len(leases.Items))
		}
		for _, lease := range leases.Items {
			if time.Since(lease.Spec.RenewTime.Time) > 40*time.Second {
				return fmt.Errorf("lease %s was renewed at %s", lease.Name, lease.Spec.RenewTime)
			}
		}
		return nil
	})
}

func listShard(t *testing.T, client kubernetes.Interface) (*corev1.PodList, error) {
	return client.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{ShardSelector: shard})
}

func requireAuthorization(t *testing.T, cp *controlplane.ControlPlane) {
	t.Helper()
	config, err := cp.ConfigFor("system:" + managerName)
	if err != nil {
		t.Fatal(err)
	}
	manager := client(t, config)
	if _, err := manager.CoordinationV1().Leases("kube-system").Get(t.Context(), managerName, metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	// This is why the fleet's plan is on a Lease.
	configMap := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "plan"}}
	_, err = manager.CoreV1().ConfigMaps("kube-system").Create(t.Context(), configMap, metav1.CreateOptions{})
	if !apierrors.IsForbidden(err) {
		t.Errorf("create a ConfigMap: %v, want it forbidden", err)
	}

	first, err := cp.Kubeconfig("jane", "crew")
	if err != nil {
		t.Fatal(err)
	}
	again, err := cp.Kubeconfig("jane", "crew")
	if err != nil || again != first {
		t.Errorf("second kubeconfig of the same user: %q, %v, want %q", again, err, first)
	}
	other, err := cp.Kubeconfig("jane")
	if err != nil || other == first {
		t.Errorf("kubeconfig of the same user without group: %q, %v, want another than %q", other, err, first)
	}

	config = rest.AnonymousClientConfig(cp.AdminConfig())
	if _, err := client(t, config).CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("anonymous list of nodes: %v, want it forbidden", err)
	}
}
