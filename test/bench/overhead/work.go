package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"

	"github.com/flotilla-kube/flotilla/test/bench/measure"
	"github.com/flotilla-kube/flotilla/test/controlplane"
	"github.com/flotilla-kube/flotilla/test/harness"
)

const (
	// patience limits one step of the work, on a busy machine.
	patience = 5 * time.Minute
	// writers is how many requests are in flight at a time.
	writers = 8
)

// variant is a binary, and how often it is scraped; 0 means never.
type variant struct {
	name, binary string
	scrape       time.Duration
}

// work is the same for every variant.
type work struct {
	plane  *controlplane.ControlPlane
	client kubernetes.Interface
	http   *http.Client
	o      options
}

func newWork(plane *controlplane.ControlPlane, o options) (*work, error) {
	config := plane.AdminConfig()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	config = rest.CopyConfig(config)
	config.TLSClientConfig.Insecure = true // the member's serving certificate is self-signed
	config.TLSClientConfig.CAData, config.TLSClientConfig.CAFile = nil, ""
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	return &work{plane: plane, client: client, http: httpClient, o: o}, nil
}

// measure runs the variant as a fleet of one, and returns the CPU that it needs for the work.
func (w *work) measure(ctx context.Context, v variant, name string) (used time.Duration, err error) {
	port, err := controlplane.FreePort()
	if err != nil {
		return 0, err
	}
	args := append(w.plane.ControllerManagerArgs(), fmt.Sprintf("--secure-port=%d", port), "--member-name=member", "--replan-interval=0s",
		// With the client's default limits this would measure waiting.
		"--kube-api-qps=500", "--kube-api-burst=1000")
	process, err := w.plane.StartProcess(name, v.binary, args)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, process.Stop(context.WithoutCancel(ctx))) }()
	url := fmt.Sprintf("https://127.0.0.1:%d", port)
	if err := w.until(ctx, "the member is ready", func(ctx context.Context) error { return w.get(ctx, url+"/readyz") }); err != nil {
		return 0, err
	}
	if err := w.prepare(ctx); err != nil {
		return 0, err
	}
	scraping, stop := context.WithCancel(ctx)
	var scraper sync.WaitGroup
	defer scraper.Wait()
	defer stop()
	if v.scrape > 0 {
		scraper.Go(func() { w.look(scraping, url, v.scrape) })
		if w.o.profile != "" {
			scraper.Go(func() { w.profile(scraping, url) })
		}
	}
	before, err := measure.CPU(process.Pid())
	if err != nil {
		return 0, err
	}
	if err := w.do(ctx); err != nil {
		return 0, err
	}
	after, err := measure.CPU(process.Pid())
	return after - before, err
}

// look fetches what a monitoring system and a person would.
func (w *work) look(ctx context.Context, url string, every time.Duration) {
	_ = wait.PollUntilContextCancel(ctx, every, true, func(ctx context.Context) (bool, error) {
		for _, path := range []string{"/metrics", "/fleet"} {
			if err := w.get(ctx, url+path); err != nil && ctx.Err() == nil {
				return false, err
			}
		}
		return false, nil
	})
}

// profile writes a CPU profile of twenty seconds. It is not part of the measurement, so an error is
// only printed.
func (w *work) profile(ctx context.Context, url string) {
	err := w.fetch(ctx, url+"/debug/pprof/profile?seconds=20", func(body io.Reader) error {
		file, err := os.Create(w.o.profile)
		if err != nil {
			return err
		}
		_, err = io.Copy(file, body)
		return errors.Join(err, file.Close())
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, "overhead: no profile:", err)
	}
}

func (w *work) get(ctx context.Context, url string) error {
	return w.fetch(ctx, url, func(body io.Reader) error {
		_, err := io.Copy(io.Discard, body)
		return err
	})
}

func (w *work) fetch(ctx context.Context, url string, read func(io.Reader) error) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := w.http.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, response.Status)
	}
	return read(response.Body)
}

// do creates the Deployments, scales them up and down, and deletes them, each step once the one
// before is done.
func (w *work) do(ctx context.Context) error {
	for _, step := range []struct {
		what     string
		replicas int
		change   func(context.Context, string, string, int) error
	}{
		{"created", 2, w.create}, {"scaled up", 4, w.scale}, {"scaled down", 1, w.scale}, {"deleted", 0, w.delete},
	} {
		if err := w.each(ctx, func(ctx context.Context, namespace, name string) error {
			return step.change(ctx, namespace, name, step.replicas)
		}); err != nil {
			return fmt.Errorf("%s: %w", step.what, err)
		}
		if err := w.until(ctx, step.what, func(ctx context.Context) error { return w.settled(ctx, step.replicas) }); err != nil {
			return err
		}
	}
	return nil
}

func (w *work) namespace(i int) string { return fmt.Sprintf("work-%d", i%w.o.namespaces) }

// prepare creates the namespaces, and waits for what pods need in them.
func (w *work) prepare(ctx context.Context) error {
	for i := range w.o.namespaces {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.namespace(i)}}
		if _, err := w.client.CoreV1().Namespaces().Get(ctx, namespace.Name, metav1.GetOptions{}); err == nil {
			continue
		}
		if _, err := w.client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	return w.until(ctx, "the namespaces have service accounts", func(ctx context.Context) error {
		for i := range w.o.namespaces {
			if _, err := w.client.CoreV1().ServiceAccounts(w.namespace(i)).Get(ctx, "default", metav1.GetOptions{}); err != nil {
				return err
			}
		}
		return nil
	})
}

// each changes every Deployment, a few at a time, and returns the first error.
func (w *work) each(ctx context.Context, change func(ctx context.Context, namespace, name string) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	workqueue.ParallelizeUntil(ctx, writers, w.o.deployments, func(i int) {
		if err := change(ctx, w.namespace(i), fmt.Sprintf("d-%d", i)); err != nil {
			cancel(err)
		}
	})
	return context.Cause(ctx)
}

func (w *work) create(ctx context.Context, namespace, name string, replicas int) error {
	labels := map[string]string{"app": name}
	_, err := w.client.AppsV1().Deployments(namespace).Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To(int32(replicas)), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					TerminationGracePeriodSeconds: ptr.To[int64](0),
					Containers:                    []corev1.Container{{Name: "main", Image: "none"}},
				},
			},
		},
	}, metav1.CreateOptions{})
	return err
}

func (w *work) scale(ctx context.Context, namespace, name string, replicas int) error {
	patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas)
	_, err := w.client.AppsV1().Deployments(namespace).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

func (w *work) delete(ctx context.Context, namespace, name string, _ int) error {
	background := metav1.DeletePropagationBackground
	return w.client.AppsV1().Deployments(namespace).Delete(ctx, name, metav1.DeleteOptions{PropagationPolicy: &background})
}

// settled returns nil once every Deployment has its pods, and there are no others.
func (w *work) settled(ctx context.Context, replicas int) error {
	deployments, err := w.client.AppsV1().Deployments("").List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return err
	}
	want := w.o.deployments
	if replicas == 0 {
		want = 0
	}
	if n := len(deployments.Items); n != want {
		return fmt.Errorf("%d Deployments, want %d", n, want)
	}
	for _, d := range deployments.Items {
		if s := d.Status; s.ObservedGeneration != d.Generation || int(s.Replicas) != replicas || int(s.AvailableReplicas) != replicas {
			return fmt.Errorf("%s/%s has %d pods, %d available, want %d", d.Namespace, d.Name, s.Replicas, s.AvailableReplicas, replicas)
		}
	}
	pods, err := w.client.CoreV1().Pods("").List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return err
	}
	if n := len(pods.Items); n != want*replicas {
		return fmt.Errorf("%d pods, want %d", n, want*replicas)
	}
	return nil
}

func (w *work) until(ctx context.Context, what string, condition harness.Condition) error {
	_, err := harness.Await(ctx, patience, what, condition)
	return err
}
