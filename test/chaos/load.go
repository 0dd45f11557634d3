package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
)

const (
	workName = "work"

	// Deployments are scaled within the first two; burstReplicas is for a burst.
	fewReplicas, manyReplicas, burstReplicas = 1, 4, 8

	// jobPart is the share of changes that create a Job; the others scale a Deployment.
	jobPart = 0.2
	// jobLife is how many seconds a finished Job is kept.
	jobLife = int32(5)

	requestLimit = 5 * time.Second
)

// load changes a workload continuously. Every change causes several writes by the controllers.
type load struct {
	client     kubernetes.Interface
	namespaces []string
	// rate is the number of changes per second.
	rate float64

	mu     sync.Mutex
	random *rand.Rand
	jobs   int
	failed atomic.Int64
	made   atomic.Int64
}

// prepare creates a Deployment with a Service in every namespace. The namespaces must exist.
func (l *load) prepare(ctx context.Context) error {
	labels := map[string]string{"app": workName}
	for _, namespace := range l.namespaces {
		service := &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: workName},
			Spec:       corev1.ServiceSpec{Selector: labels, Ports: []corev1.ServicePort{{Port: 80}}},
		}
		if _, err := l.client.CoreV1().Services(namespace).Create(ctx, service, metav1.CreateOptions{}); err != nil {
			return err
		}
		deployment := &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Name: workName},
			Spec: appsv1.DeploymentSpec{
				Replicas: ptr.To[int32](fewReplicas), Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: podTemplate(labels),
			},
		}
		if _, err := l.client.AppsV1().Deployments(namespace).Create(ctx, deployment, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	return nil
}

func podTemplate(labels map[string]string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: labels},
		Spec: corev1.PodSpec{
			// Simulated pods need no time to end.
			TerminationGracePeriodSeconds: ptr.To[int64](0),
			Containers:                    []corev1.Container{{Name: "main", Image: "none"}},
		},
	}
}

// Run makes changes until ctx ends. It counts failed changes and goes on, because the API server
// may be down.
func (l *load) Run(ctx context.Context) {
	ticker := time.NewTicker(time.Duration(float64(time.Second) / l.rate))
	defer ticker.Stop()
	// Changes overlap, up to a limit.
	slots := make(chan struct{}, 32)
	var group sync.WaitGroup
	defer group.Wait()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		select {
		case slots <- struct{}{}:
		default:
			l.failed.Add(1)
			continue
		}
		change := l.draw()
		group.Go(func() {
			defer func() { <-slots }()
			limited, cancel := context.WithTimeout(ctx, requestLimit)
			defer cancel()
			if err := change(limited); err != nil {
				l.failed.Add(1)
				return
			}
			l.made.Add(1)
		})
	}
}

// draw returns a random change.
func (l *load) draw() func(context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	namespace := l.namespaces[l.random.IntN(len(l.namespaces))]
	if l.random.Float64() < jobPart {
		l.jobs++
		name := fmt.Sprintf("job-%d", l.jobs)
		return func(ctx context.Context) error { return l.createJob(ctx, namespace, name) }
	}
	replicas := fewReplicas + l.random.IntN(manyReplicas-fewReplicas+1)
	return func(ctx context.Context) error { return l.scale(ctx, namespace, replicas) }
}

func (l *load) createJob(ctx context.Context, namespace, name string) error {
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       batchv1.JobSpec{Template: podTemplate(nil), TTLSecondsAfterFinished: ptr.To(jobLife)},
	}
	job.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyNever
	_, err := l.client.BatchV1().Jobs(namespace).Create(ctx, job, metav1.CreateOptions{})
	return err
}

func (l *load) scale(ctx context.Context, namespace string, replicas int) error {
	patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas)
	_, err := l.client.AppsV1().Deployments(namespace).Patch(ctx, workName, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

// burst scales up the Deployments of some namespaces at once.
func (l *load) burst(ctx context.Context, namespaces []string) error {
	for _, namespace := range namespaces {
		if err := l.scale(ctx, namespace, burstReplicas); err != nil {
			return err
		}
	}
	return nil
}

// settled returns nil if all Deployments have exactly this number of pods, and no Job is left.
func (l *load) settled(ctx context.Context, replicas int) error {
	for _, namespace := range l.namespaces {
		if err := l.settledIn(ctx, namespace, replicas); err != nil {
			return fmt.Errorf("namespace %s: %w", namespace, err)
		}
	}
	return nil
}

func (l *load) settledIn(ctx context.Context, namespace string, replicas int) error {
	deployment, err := l.client.AppsV1().Deployments(namespace).Get(ctx, workName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	s, want := deployment.Status, int32(replicas)
	if s.ObservedGeneration != deployment.Generation || s.Replicas != want || s.AvailableReplicas != want || s.UpdatedReplicas != want {
		return fmt.Errorf("the Deployment has %d pods, %d available, %d updated, want %d; generation %d, seen %d",
			s.Replicas, s.AvailableReplicas, s.UpdatedReplicas, want, deployment.Generation, s.ObservedGeneration)
	}
	jobs, err := l.client.BatchV1().Jobs(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	if len(jobs.Items) > 0 {
		return fmt.Errorf("%d Jobs are left, the first is %s: %+v", len(jobs.Items), jobs.Items[0].Name, jobs.Items[0].Status)
	}
	pods, err := l.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	if len(pods.Items) != replicas {
		return fmt.Errorf("%d pods, want %d", len(pods.Items), replicas)
	}
	return nil
}
