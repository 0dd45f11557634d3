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
	"k8s.io/utils/ptr"

	"github.com/flotilla-kube/flotilla/pkg/controllers"
)

// conflicts counts updates of Deployments' status, and those that the API server refused as
// conflicts.
type conflicts struct{ updates, refused atomic.Int32 }

func (c *conflicts) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		resp, err := next.RoundTrip(r)
		if err == nil && r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, "/status") && strings.Contains(r.URL.Path, "/deployments/") {
			c.updates.Add(1)
			if resp.StatusCode == http.StatusConflict {
				c.refused.Add(1)
			}
		}
		return resp, err
	})
}

// TestSyncsSeeTheirOwnUpdates gives a shard so few Deployments that each is synced again at once. A
// cache that has not seen the last sync's update then makes the next one a conflict. Upstream's
// controller causes one conflict for each ReplicaSet: it updates the status when it creates one,
// and again at the end of the same sync, from the same version.
func TestSyncsSeeTheirOwnUpdates(t *testing.T) {
	const (
		scalings = 16
		// On a slow machine a watch event may take longer than an update waits for it. Until it
		// comes the sync is tried again, several times a second.
		late, tried = 3, 8
	)
	deployments := []string{"a", "b"}
	// So slow that ReplicaSets change while a sync waits to send its update.
	c, _ := newConfig(t, "--kube-api-qps=20", "--kube-api-burst=1")
	process, err := controllers.NewProcess(c, controllers.NewEndpoints())
	if err != nil {
		t.Fatal(err)
	}
	var seen conflicts
	r := start(t, process, controllers.Spec{Controllers: []string{names.DeploymentController, names.ReplicaSetController}, Shards: 16, Fence: seen.wrap})
	waitFor(t, "the caches", r.Informers().HasSynced)

	client, err := kubernetes.NewForConfig(plane.AdminConfig())
	if err != nil {
		t.Fatal(err)
	}
	ns, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "conflicts-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	namespace := ns.Name
	if _, err := client.CoreV1().ServiceAccounts(namespace).Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, name := range deployments {
		labels := map[string]string{"app": name}
		_, err := client.AppsV1().Deployments(namespace).Create(t.Context(), &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: appsv1.DeploymentSpec{
				Replicas: ptr.To[int32](1), Selector: &metav1.LabelSelector{MatchLabels: labels},
				Template: corev1.PodTemplateSpec{
					ObjectMeta: metav1.ObjectMeta{Labels: labels},
					Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "none"}}},
				},
			},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	for replicas := range int32(scalings) {
		waitFor(t, "all replicas", func() bool {
			list, err := client.AppsV1().Deployments(namespace).List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			done := 0
			for _, d := range list.Items {
				if d.Status.Replicas == replicas+1 && d.Status.ObservedGeneration == d.Generation {
					done++
				}
			}
			return done == len(deployments)
		})
		for _, name := range deployments {
			patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas+2)
			if _, err := client.AppsV1().Deployments(namespace).Patch(t.Context(), name, "application/merge-patch+json", patch, metav1.PatchOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	unseen, updates := process.Pool().Unseen(), seen.updates.Load()
	if unseen > int64(updates)/2 {
		t.Errorf("%d of %d updates were not seen in time", unseen, updates)
	}
	t.Logf("%d of %d updates were conflicts, %d were not seen in time", seen.refused.Load(), updates, unseen)
	if refused := seen.refused.Load(); int(refused) > len(deployments)+late+tried*min(late, int(unseen)) {
		t.Errorf("%d of %d updates of %d Deployments were conflicts, want little more than one for each ReplicaSet", refused, updates, len(deployments))
	}
}
