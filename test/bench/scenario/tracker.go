package scenario

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"

	"github.com/flotilla-kube/flotilla/test/bench/measure"
	"github.com/flotilla-kube/flotilla/test/bench/result"
)

// workLabel is on every Deployment and pod of the work.
const workLabel = "flotilla.dev/bench"

// tracker watches Deployments and pods, and knows which written Deployments are in their wanted
// state.
type tracker struct {
	factory  informers.SharedInformerFactory
	metadata metadatainformer.SharedInformerFactory

	mu          sync.Mutex
	deployments map[string]appsv1.Deployment // without spec.template
	pods        int
	pending     map[string]write
	latencies   []float64
	// progress is when a controller was last seen to act, gap the longest time without that.
	progress time.Time
	gap      time.Duration
}

// write is a write that a Deployment has not caught up with. The generation is 0 while the request
// is in flight.
type write struct {
	began      time.Time
	generation int64
}

// watch returns a tracker that has seen the existing objects, and a function that ends it.
func watch(ctx context.Context, env *Env) (*tracker, func(), error) {
	ctx, cancel := context.WithCancel(ctx)
	t, err := track(ctx, env)
	end := func() {
		cancel()
		t.factory.Shutdown()
		t.metadata.Shutdown()
	}
	if err != nil {
		end()
	}
	return t, end, err
}

// track watches until ctx ends.
func track(ctx context.Context, env *Env) (*tracker, error) {
	t := &tracker{deployments: map[string]appsv1.Deployment{}, pending: map[string]write{}, progress: time.Now()}
	work := func(o *metav1.ListOptions) { o.LabelSelector = workLabel }
	t.factory = informers.NewSharedInformerFactoryWithOptions(env.Client, 0, informers.WithTweakListOptions(work))
	t.metadata = metadatainformer.NewFilteredSharedInformerFactory(env.Metadata, 0, metav1.NamespaceAll, work)
	if _, err := t.factory.Apps().V1().Deployments().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { t.sawDeployment(o.(*appsv1.Deployment)) },
		UpdateFunc: func(_, o any) { t.sawDeployment(o.(*appsv1.Deployment)) },
		DeleteFunc: t.lostDeployment,
	}); err != nil {
		return t, err
	}
	if _, err := t.metadata.ForResource(corev1.SchemeGroupVersion.WithResource("pods")).Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { t.sawPod(1) },
		DeleteFunc: func(any) { t.sawPod(-1) },
	}); err != nil {
		return t, err
	}
	t.factory.Start(ctx.Done())
	t.metadata.Start(ctx.Done())
	for _, synced := range t.factory.WaitForCacheSync(ctx.Done()) {
		if !synced {
			return t, fmt.Errorf("watching Deployments: %w", context.Cause(ctx))
		}
	}
	for _, synced := range t.metadata.WaitForCacheSync(ctx.Done()) {
		if !synced {
			return t, fmt.Errorf("watching pods: %w", context.Cause(ctx))
		}
	}
	return t, nil
}

func (t *tracker) sawDeployment(d *appsv1.Deployment) {
	t.mu.Lock()
	defer t.mu.Unlock()
	key := d.Namespace + "/" + d.Name
	before, known := t.deployments[key]
	if known && before.Status.ObservedGeneration != d.Status.ObservedGeneration || !sameCounts(before.Status, d.Status) {
		t.progressed()
	}
	small := appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Generation: d.Generation}, Spec: appsv1.DeploymentSpec{Replicas: d.Spec.Replicas}, Status: d.Status}
	t.deployments[key] = small
	t.check(key)
}

func sameCounts(a, b appsv1.DeploymentStatus) bool {
	return a.Replicas == b.Replicas && a.UpdatedReplicas == b.UpdatedReplicas && a.AvailableReplicas == b.AvailableReplicas
}

func (t *tracker) lostDeployment(o any) {
	if tombstone, ok := o.(cache.DeletedFinalStateUnknown); ok {
		o = tombstone.Obj
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if d, ok := o.(*appsv1.Deployment); ok {
		delete(t.deployments, d.Namespace+"/"+d.Name)
	}
}

func (t *tracker) sawPod(more int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pods += more
	t.progressed()
}

func (t *tracker) progressed() {
	now := time.Now()
	t.gap = max(t.gap, now.Sub(t.progress))
	t.progress = now
}

// begin resets everything but the objects.
func (t *tracker) begin() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.progress, t.gap, t.latencies = time.Now(), 0, nil
}

// writing must be called before a Deployment is written, and wrote after, with the API server's
// answer.
func (t *tracker) writing(key string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pending[key] = write{began: time.Now()}
}

func (t *tracker) wrote(key string, d *appsv1.Deployment) {
	t.mu.Lock()
	defer t.mu.Unlock()
	w := t.pending[key]
	w.generation = d.Generation
	t.pending[key] = w
	t.check(key)
}

// check records whether the Deployment has caught up with its last write.
func (t *tracker) check(key string) {
	w, waiting := t.pending[key]
	if d, known := t.deployments[key]; waiting && known && w.generation > 0 && caughtUp(&d, w.generation) {
		t.latencies = append(t.latencies, time.Since(w.began).Seconds())
		delete(t.pending, key)
	}
}

// caughtUp reports whether a Deployment has reached the wanted state of a generation: all pods of
// the new template, and no others.
func caughtUp(d *appsv1.Deployment, generation int64) bool {
	s := d.Status
	want := int32(1)
	if d.Spec.Replicas != nil {
		want = *d.Spec.Replicas
	}
	return s.ObservedGeneration >= generation && s.ObservedGeneration >= d.Generation &&
		s.Replicas == want && s.UpdatedReplicas == want && s.AvailableReplicas == want
}

// done returns nil once Deployments have caught up with every write, and there are this many
// Deployments and pods.
func (t *tracker) done(deployments, pods int) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.pending) > 0 || len(t.deployments) != deployments || t.pods != pods {
		return fmt.Errorf("%d Deployments have not caught up, there are %d and %d pods, want %d and %d",
			len(t.pending), len(t.deployments), t.pods, deployments, pods)
	}
	return nil
}

// waiting returns how many writes have not been caught up with.
func (t *tracker) waiting() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.pending)
}

// seen returns how long writes have waited, and the longest time without progress.
func (t *tracker) seen() (*result.Quantile, time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.latencies) == 0 {
		return nil, t.gap
	}
	sorted := slices.Sorted(slices.Values(t.latencies))
	return &result.Quantile{P50: measure.QuantileOf(sorted, 0.5), P99: measure.QuantileOf(sorted, 0.99), Count: int64(len(sorted))}, t.gap
}
