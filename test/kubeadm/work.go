package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/flotilla-kube/flotilla/test/harness"
)

const (
	workName = "work"
	taint    = "node-role.kubernetes.io/control-plane"
)

// deployment returns a Deployment of pods that do nothing. They run on any node and are replaced
// soon after their node is lost.
func deployment(image string, replicas int32) *appsv1.Deployment {
	labels := map[string]string{"app": workName}
	tolerations := []corev1.Toleration{{Key: taint, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}}
	for _, key := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
		tolerations = append(tolerations, corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: ptr.To[int64](2)})
	}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: workName},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To(replicas),
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					TerminationGracePeriodSeconds: ptr.To[int64](1),
					AutomountServiceAccountToken:  ptr.To(false),
					Tolerations:                   tolerations,
					Containers:                    []corev1.Container{{Name: "pause", Image: image}},
				},
			},
		},
	}
}

// create makes a namespace with a Deployment in it.
func (c *cluster) create(ctx context.Context, namespace string, replicas int32) error {
	_, err := c.client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	_, err = c.client.AppsV1().Deployments(namespace).Create(ctx, deployment(c.images.pause, replicas), metav1.CreateOptions{})
	return err
}

func (c *cluster) scale(ctx context.Context, namespace string, replicas int32) error {
	patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas)
	_, err := c.client.AppsV1().Deployments(namespace).Patch(ctx, workName, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

// settled waits until the Deployment has exactly this many pods, all available. Its status must be
// of its latest generation.
func (c *cluster) settled(ctx context.Context, namespace string, replicas int32) error {
	_, err := harness.Await(ctx, harness.Patience, fmt.Sprintf("the Deployment in %s has %d pods", namespace, replicas), func(ctx context.Context) error {
		d, err := c.client.AppsV1().Deployments(namespace).Get(ctx, workName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		s := d.Status
		if s.ObservedGeneration != d.Generation || s.Replicas != replicas || s.AvailableReplicas != replicas {
			return fmt.Errorf("generation %d, observed %d, %d pods, %d available", d.Generation, s.ObservedGeneration, s.Replicas, s.AvailableReplicas)
		}
		return nil
	})
	return err
}

// remove deletes a namespace and waits until it is gone.
func (c *cluster) remove(ctx context.Context, namespace string) error {
	if err := c.client.CoreV1().Namespaces().Delete(ctx, namespace, metav1.DeleteOptions{}); err != nil {
		return err
	}
	_, err := harness.Await(ctx, harness.Patience, "namespace "+namespace+" is gone", func(ctx context.Context) error {
		_, err := c.client.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err == nil:
			return errors.New("it still exists")
		}
		return err
	})
	return err
}

// works makes the current leader create a Deployment, scale it, and delete its namespace.
func (c *cluster) works(ctx context.Context, namespace, who string) error {
	return c.out.step("Deployment made and scaled, namespace deleted, by "+who, func() error {
		return inOrder(
			func() error { return c.create(ctx, namespace, 2) },
			func() error { return c.settled(ctx, namespace, 2) },
			func() error { return c.scale(ctx, namespace, 3) },
			func() error { return c.settled(ctx, namespace, 3) },
			func() error { return c.remove(ctx, namespace) },
		)
	})
}

// leaderLock returns the holder of the Lease by which stock replicas elect their leader.
func (c *cluster) leaderLock(ctx context.Context) (string, error) {
	lease, err := c.client.CoordinationV1().Leases(metav1.NamespaceSystem).Get(ctx, harness.Stock, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	return ptr.Deref(lease.Spec.HolderIdentity, ""), nil
}

// holds waits until the fleet holds the leader lock, or, without fleet, until a stock leader holds
// it and has renewed it since the first look.
func (c *cluster) holds(ctx context.Context, fleet bool) error {
	var first string
	_, err := harness.Await(ctx, harness.Patience, "the leader lock changes hands", func(ctx context.Context) error {
		lease, err := c.client.CoordinationV1().Leases(metav1.NamespaceSystem).Get(ctx, harness.Stock, metav1.GetOptions{})
		if err != nil {
			return err
		}
		holder := ptr.Deref(lease.Spec.HolderIdentity, "")
		if holder == "" || (holder == leaderLockHolder) != fleet {
			return fmt.Errorf("%q holds it", holder)
		}
		renewed := lease.Spec.RenewTime.Format(time.RFC3339Nano)
		if first == "" {
			first = renewed
		}
		if first == renewed {
			return fmt.Errorf("%q has not renewed it", holder)
		}
		return nil
	})
	return err
}
