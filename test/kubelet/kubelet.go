package kubelet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/flotilla-kube/flotilla/test/controlplane"
)

// Image is what a container is started from.
type Image struct {
	// Root is a folder with the image's files. They are linked, not copied, if possible: do not
	// change them.
	Root string
	// Entrypoint and Env ("NAME=value") are the image's own.
	Entrypoint, Env []string
	// User is the image's user id. It is 0, root, for images that name none.
	User int64
}

// Options configure a Kubelet. All fields without a default are required.
type Options struct {
	// Node is the name of the node, a DNS label.
	Node string
	// Labels and Taints are added to the Node object. Default: only the usual labels.
	Labels map[string]string
	Taints []corev1.Taint
	// Config connects the kubelet to the API server. Pods get its host and port. Give it the rights
	// of system:node:<name>.
	Config *rest.Config
	// Dir is an absolute path to the folder for the pods' root directories. It must exist, and the
	// caller removes it.
	Dir string
	// Host is a folder that stands for the node's file system: hostPath volumes are copied from
	// there. Default: pods with such volumes are refused.
	Host string
	// Image finds an image by its reference.
	Image func(reference string) (Image, error)
	// Plane starts the processes, keeps their logs, and ends them if this process dies.
	Plane *controlplane.ControlPlane
	// Log receives a line for each start and end of a container. Default: none are written.
	Log io.Writer
}

// Kubelet acts as one node.
type Kubelet struct {
	opts       Options
	client     kubernetes.Interface
	host, port string

	// mu guards workers.
	mu      sync.Mutex
	workers map[types.UID]*worker
	running sync.WaitGroup
}

// New checks the options. Nothing happens before Run.
func New(opts Options) (*Kubelet, error) {
	if opts.Node == "" || opts.Dir == "" || opts.Config == nil || opts.Image == nil || opts.Plane == nil {
		return nil, errors.New("kubelet: Node, Dir, Config, Image and Plane are required")
	}
	if err := Supported(); err != nil {
		return nil, err
	}
	if opts.Log == nil {
		opts.Log = io.Discard
	}
	server, err := url.Parse(opts.Config.Host)
	if err != nil {
		return nil, fmt.Errorf("kubelet: Config.Host: %w", err)
	}
	host, port, err := net.SplitHostPort(server.Host)
	if err != nil {
		return nil, fmt.Errorf("kubelet: Config.Host %q must be a URL with a port: %w", opts.Config.Host, err)
	}
	client, err := kubernetes.NewForConfig(opts.Config)
	if err != nil {
		return nil, fmt.Errorf("kubelet: %w", err)
	}
	return &Kubelet{opts: opts, client: client, host: host, port: port, workers: map[types.UID]*worker{}}, nil
}

// Run registers the node and runs its pods until ctx ends. It returns when all their processes have
// ended.
func (k *Kubelet) Run(ctx context.Context) error {
	if err := k.register(ctx); err != nil {
		return fmt.Errorf("kubelet: register %s: %w", k.opts.Node, err)
	}
	defer k.running.Wait()
	k.running.Go(func() { k.heartbeat(ctx) })
	factory := informers.NewSharedInformerFactoryWithOptions(k.client, 0, informers.WithTweakListOptions(func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector("spec.nodeName", k.opts.Node).String()
	}))
	handler := cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { k.see(ctx, o.(*corev1.Pod)) },
		UpdateFunc: func(_, o any) { k.see(ctx, o.(*corev1.Pod)) },
		DeleteFunc: func(o any) {
			if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = gone.Obj
			}
			k.lose(o.(*corev1.Pod))
		},
	}
	if _, err := factory.Core().V1().Pods().Informer().AddEventHandler(handler); err != nil {
		return fmt.Errorf("kubelet: %w", err)
	}
	factory.Start(ctx.Done())
	<-ctx.Done()
	factory.Shutdown()
	return nil
}

// see passes a version of the pod to the pod's worker. The first version starts the worker.
func (k *Kubelet) see(ctx context.Context, pod *corev1.Pod) {
	k.mu.Lock()
	defer k.mu.Unlock()
	w, known := k.workers[pod.UID]
	if !known {
		if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
			return
		}
		w = newWorker(k, pod)
		k.workers[pod.UID] = w
		k.running.Go(func() { w.run(ctx) })
	}
	if pod.DeletionTimestamp != nil {
		w.stop(*pod.DeletionGracePeriodSeconds)
	}
}

// lose tells the pod's worker that the object is gone. The worker then stops at once.
func (k *Kubelet) lose(pod *corev1.Pod) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if w, known := k.workers[pod.UID]; known {
		w.stop(0)
		delete(k.workers, pod.UID)
	}
}

func (k *Kubelet) logf(format string, args ...any) {
	fmt.Fprintf(k.opts.Log, k.opts.Node+": "+format+"\n", args...)
}
