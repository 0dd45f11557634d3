package integration

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/kubernetes/cmd/kube-controller-manager/names"

	"github.com/flotilla-kube/flotilla/pkg/controllers"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// TestGarbageCollectorHearsOfOwnersFirst takes over the garbage collector where pods are cached
// already, and the ReplicaSets that own them are not. It must not look up each of them, because all
// garbage would wait behind that.
func TestGarbageCollectorHearsOfOwnersFirst(t *testing.T) {
	const owners = 30
	c, _ := newConfig(t, allOn)
	process, err := controllers.NewProcess(c, controllers.NewEndpoints())
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(plane.AdminConfig())
	if err != nil {
		t.Fatal(err)
	}
	space := ownedPods(t, client, owners)
	var asked atomic.Int32
	count := func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/namespaces/"+space+"/replicasets/") {
				asked.Add(1)
			}
			return next.RoundTrip(r)
		})
	}
	startAs(t, process, controllers.Spec{
		Range: shard.Everything(), Controllers: []string{names.PodGarbageCollectorController, names.GarbageCollectorController}, Fence: count,
	}, true)
	// What is collected comes after what it would have looked up.
	collects(t, client, space)
	if n := asked.Load(); n > 0 {
		t.Errorf("the garbage collector looked up %d times %d existing ReplicaSets without garbage", n, owners)
	}
}

// ownedPods creates ReplicaSets with a pod each, which nobody reconciles, and the objects that
// collects deletes. It returns their namespace.
func ownedPods(t *testing.T, client kubernetes.Interface, owners int) string {
	t.Helper()
	ctx := t.Context()
	ns, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "owners-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().ServiceAccounts(ns.Name).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	labels := map[string]string{"app": "owned"}
	pod := corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "none"}}}
	for i := range owners {
		set, err := client.AppsV1().ReplicaSets(ns.Name).Create(ctx, &appsv1.ReplicaSet{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("owner-%d", i)},
			Spec: appsv1.ReplicaSetSpec{
				Selector: &metav1.LabelSelector{MatchLabels: labels},
				Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pod},
			},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		ref := *metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))
		if _, err := client.CoreV1().Pods(ns.Name).Create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: set.Name, Labels: labels, OwnerReferences: []metav1.OwnerReference{ref}}, Spec: pod,
		}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	fillWithCounted(t, client, ns.Name)
	return ns.Name
}
