package deploy

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

const deployment = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: work, namespace: %[1]s}
spec:
  replicas: %[2]d
  selector: {matchLabels: {app: work}}
  template:
    metadata: {labels: {app: work}}
    spec: {containers: [{name: work, image: work}]}
`

// work scales Deployments in some namespaces to this many replicas, and waits until they are ready.
func (c *cluster) work(t *testing.T, replicas int) {
	t.Helper()
	for _, namespace := range []string{"orders", "payments", "web"} {
		if _, warnings, err := c.tryKubectl(t, "", "create", "namespace", namespace); err != nil && !strings.Contains(warnings, "AlreadyExists") {
			t.Fatal(err, warnings)
		}
		c.kubectl(t, fmt.Sprintf(deployment, namespace, replicas), "apply", "-f", "-")
	}
	for _, namespace := range []string{"orders", "payments", "web"} {
		eventually(t, fmt.Sprintf("%d replicas of a Deployment in %s are ready", replicas, namespace), func(ctx context.Context) error {
			d, err := c.client.AppsV1().Deployments(namespace).Get(ctx, "work", metav1.GetOptions{})
			if err != nil {
				return err
			}
			if s := d.Status; s.ObservedGeneration != d.Generation || int(s.ReadyReplicas) != replicas || int(s.Replicas) != replicas {
				return fmt.Errorf("%+v", s)
			}
			return nil
		})
	}
}

func (c *cluster) createCronJob(t *testing.T) {
	t.Helper()
	job := &batchv1.CronJob{
		ObjectMeta: metav1.ObjectMeta{Name: "zone", Namespace: "orders"},
		Spec: batchv1.CronJobSpec{
			Schedule: "* * * * *", TimeZone: ptr.To(berlin),
			JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
				RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "zone", Image: "zone"}},
			}}}},
		},
	}
	if _, err := c.client.BatchV1().CronJobs("orders").Create(t.Context(), job, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (c *cluster) cronJobRan(ctx context.Context) error {
	job, err := c.client.BatchV1().CronJobs("orders").Get(ctx, "zone", metav1.GetOptions{})
	if err == nil && job.Status.LastScheduleTime == nil {
		err = errors.New("has never run")
	}
	return err
}
