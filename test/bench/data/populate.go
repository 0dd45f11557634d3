package data

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/flotilla-kube/flotilla/test/bench/measure"
	"github.com/flotilla-kube/flotilla/test/bench/result"
	"github.com/flotilla-kube/flotilla/test/bench/scenario"
	"github.com/flotilla-kube/flotilla/test/bench/system"
	"github.com/flotilla-kube/flotilla/test/controlplane"
)

// Config says what to create.
type Config struct {
	// Dir is where the data is kept, a directory for each number of pods.
	Dir string
	// Pods is the number of pods, a multiple of PodsPerNamespace; Nodes is the number of nodes.
	Pods, Nodes int
	// Stock is the controller manager that completes the objects.
	Stock string
	// Log receives a line per step.
	Log io.Writer
}

// Make returns the directory with the data of a cluster with this many pods, for
// controlplane.Options.From. If it does not exist, Make creates it, which takes minutes.
func Make(ctx context.Context, c Config) (folder string, err error) {
	folder = filepath.Join(c.Dir, fmt.Sprintf("data-%d", c.Pods))
	if _, err := os.Stat(folder); err == nil {
		return folder, nil
	}
	began, first, second := time.Now(), folder+".1", folder+".2"
	fmt.Fprintf(c.Log, "making a cluster with %d pods in %s, once\n", c.Pods, folder)
	if err := errors.Join(os.MkdirAll(c.Dir, 0o755), os.RemoveAll(first), os.RemoveAll(second)); err != nil {
		return "", err
	}
	// kwok would also write the status of pods, so there are no nodes at first.
	if err := stage(ctx, controlplane.Options{Dir: first}, c, fill); err != nil {
		return "", fmt.Errorf("filling a cluster: %w", err)
	}
	if err := stage(ctx, controlplane.Options{Dir: second, From: first, Nodes: c.Nodes}, c, settle); err != nil {
		return "", fmt.Errorf("letting a cluster come to rest: %w", err)
	}
	if err := errors.Join(keep(second), os.RemoveAll(first)); err != nil {
		return "", err
	}
	fmt.Fprintf(c.Log, "made it in %.0f s\n", time.Since(began).Seconds())
	return folder, os.Rename(second, folder)
}

// stage runs do on a new control plane, and stops the control plane.
func stage(ctx context.Context, options controlplane.Options, c Config, do func(context.Context, *controlplane.ControlPlane, Config) error) error {
	policy := options.Dir + "-audit.yaml"
	if err := os.WriteFile(policy, []byte(measure.AuditPolicy), 0o644); err != nil {
		return err
	}
	defer os.Remove(policy)
	options.APIServerArgs = []string{"--audit-policy-file=" + policy}
	plane, err := controlplane.Start(ctx, options)
	if err != nil {
		return err
	}
	return errors.Join(do(ctx, plane, c), plane.Stop())
}

// keep removes everything that a control plane does not need to begin with.
func keep(folder string) error {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if name := entry.Name(); name != "etcd" && name != "pki" {
			if err := os.RemoveAll(filepath.Join(folder, name)); err != nil {
				return err
			}
		}
	}
	return nil
}

// fill creates the objects.
func fill(ctx context.Context, plane *controlplane.ControlPlane, c Config) error {
	client, err := kubernetes.NewForConfig(plane.AdminConfig())
	if err != nil {
		return err
	}
	names := scenario.BalancedNames(Prefix, c.Pods/PodsPerNamespace)
	if err := scenario.Each(ctx, len(names), func(ctx context.Context, i int) error { return fillNamespace(ctx, client, names[i]) }); err != nil {
		return err
	}
	return scenario.Each(ctx, len(names)*replicaSets, func(ctx context.Context, i int) error {
		return fillReplicaSet(ctx, client, names[i/replicaSets], i, c.Nodes)
	})
}

// settle makes the stock controllers do the rest: slices of endpoints, certificates, conditions.
func settle(ctx context.Context, plane *controlplane.ControlPlane, c Config) error {
	client, err := kubernetes.NewForConfig(plane.AdminConfig())
	if err != nil {
		return err
	}
	running, err := system.Start(ctx, system.Config{Plane: plane, Stock: c.Stock, System: result.System{Kind: result.Stock, Replicas: 1, Rate: result.RateHigh}})
	if err != nil {
		return err
	}
	err = running.Whole(ctx)
	if err == nil {
		err = running.Quiet(ctx)
	}
	err = errors.Join(err, running.Stop())
	if err != nil {
		return err
	}
	// A controller manager that starts with this data must not wait for a Lease whose holder is
	// gone.
	err = client.CoordinationV1().Leases(metav1.NamespaceSystem).Delete(ctx, "kube-controller-manager", metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		err = nil
	}
	return errors.Join(err, check(ctx, client, c.Pods))
}

// check fails if the controllers have changed the objects: then the cluster is not at rest.
func check(ctx context.Context, client kubernetes.Interface, pods int) error {
	list, err := client.CoreV1().Pods("").List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return err
	}
	running := 0
	for _, p := range list.Items {
		if p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil {
			running++
		}
	}
	if running != pods || len(list.Items) != pods {
		return fmt.Errorf("%d pods, %d of them run, want %d: the controllers have changed them", len(list.Items), running, pods)
	}
	sets, err := client.AppsV1().ReplicaSets("").List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return err
	}
	return checkStatus(sets.Items)
}

// checkStatus fails if the controllers have written another status. They would do so again wherever
// they begin with this data, behind their limits, while other work is measured.
func checkStatus(sets []appsv1.ReplicaSet) error {
	for i := range sets {
		want := sets[i].DeepCopy()
		setStatus(want)
		if !apiequality.Semantic.DeepEqual(sets[i].Status, want.Status) {
			return fmt.Errorf("ReplicaSet %s/%s has the status %+v, but was created with %+v: create it as the controllers write it",
				want.Namespace, want.Name, sets[i].Status, want.Status)
		}
	}
	return nil
}

func fillNamespace(ctx context.Context, client kubernetes.Interface, name string) error {
	core := client.CoreV1()
	_, err := core.Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	// Pods are not admitted without it.
	if _, err = core.ServiceAccounts(name).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{}); err != nil {
		return err
	}
	for i := range configMaps {
		if _, err := core.ConfigMaps(name).Create(ctx, configMap(i), metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	for i := range secrets {
		if _, err := core.Secrets(name).Create(ctx, secret(i), metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	_, err = core.Services(name).Create(ctx, service(), metav1.CreateOptions{})
	return err
}

// fillReplicaSet creates the n-th ReplicaSet of the cluster and its pods.
func fillReplicaSet(ctx context.Context, client kubernetes.Interface, namespace string, n, nodes int) error {
	set, err := client.AppsV1().ReplicaSets(namespace).Create(ctx, replicaSet(n%replicaSets), metav1.CreateOptions{})
	if err != nil {
		return err
	}
	for i := range podsEach {
		at := n*podsEach + i
		p, err := client.CoreV1().Pods(namespace).Create(ctx, pod(set, i, fmt.Sprintf("node-%03d", at%nodes)), metav1.CreateOptions{})
		if err != nil {
			return err
		}
		podStatus(p, at, time.Now())
		if _, err := client.CoreV1().Pods(namespace).UpdateStatus(ctx, p, metav1.UpdateOptions{}); err != nil {
			return err
		}
	}
	setStatus(set)
	_, err = client.AppsV1().ReplicaSets(namespace).UpdateStatus(ctx, set, metav1.UpdateOptions{})
	return err
}
