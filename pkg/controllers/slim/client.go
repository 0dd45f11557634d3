package slim

import (
	"context"
	"errors"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
)

// Client returns client for a controller that updates the status of Pods from cached ones, which
// may be slim copies (util/node/controller_utils.go:145): a PUT of a slim copy would erase labels,
// podIPs, the statuses of containers and more.
//
// Such an update may change only the condition Ready. So Client reads the Pod, replaces that
// condition in what it has read, and writes the result. If the Pod has another UID or
// resourceVersion than the slim copy, it returns the conflict that the API server would have
// returned; if the Pod is gone, it returns that error. It writes whole Pods unchanged, and passes
// everything else to client.
func Client(client kubernetes.Interface) kubernetes.Interface { return slimClient{client} }

type slimClient struct{ kubernetes.Interface }

// CoreV1 implements kubernetes.Interface.
func (c slimClient) CoreV1() corev1.CoreV1Interface { return slimCore{c.Interface.CoreV1()} }

type slimCore struct{ corev1.CoreV1Interface }

// Pods implements corev1.PodsGetter.
func (c slimCore) Pods(namespace string) corev1.PodInterface {
	return slimPods{c.CoreV1Interface.Pods(namespace)}
}

type slimPods struct{ corev1.PodInterface }

var errModified = errors.New("the object has been modified; please apply your changes to the latest version and try again")

// UpdateStatus implements corev1.PodInterface.
func (p slimPods) UpdateStatus(ctx context.Context, pod *v1.Pod, options metav1.UpdateOptions) (*v1.Pod, error) {
	if isWhole(pod) {
		return p.PodInterface.UpdateStatus(ctx, pod, options)
	}
	live, err := p.Get(ctx, pod.Name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	if live.UID != pod.UID || live.ResourceVersion != pod.ResourceVersion {
		return nil, apierrors.NewConflict(v1.Resource("pods"), pod.Name, errModified)
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == v1.PodReady {
			putCondition(&live.Status, c)
		}
	}
	return p.PodInterface.UpdateStatus(ctx, live, options)
}

// isWhole reports whether a Pod is not a slim copy: every Pod has a container.
func isWhole(pod *v1.Pod) bool { return len(pod.Spec.Containers) > 0 }

func putCondition(status *v1.PodStatus, c v1.PodCondition) {
	for i := range status.Conditions {
		if status.Conditions[i].Type == c.Type {
			status.Conditions[i] = c
			return
		}
	}
	status.Conditions = append(status.Conditions, c)
}
