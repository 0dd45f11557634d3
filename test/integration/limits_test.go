package integration

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/kubernetes/cmd/kube-controller-manager/names"

	"github.com/flotilla-kube/flotilla/pkg/controllers"
)

// TestSharedLimits gives one of ten shards work that the flags' limits would let through at once,
// and a tenth of them does not. The other shards run nowhere, and this one has all namespaces. Only
// the shortest time is judged, because a machine can be slow.
func TestSharedLimits(t *testing.T) {
	const (
		shards = 10
		// A tenth of the flags' defaults.
		qps, burst = 2, 3
		objects    = 6
		least      = (objects - burst) * time.Second / qps
	)
	c, _ := newConfig(t)
	process, err := controllers.NewProcess(c, controllers.NewEndpoints())
	if err != nil {
		t.Fatal(err)
	}
	process.ShareLimits()
	r := start(t, process, controllers.Spec{Controllers: []string{names.ServiceAccountController, names.ServiceAccountTokenController}, Shards: shards})
	waitFor(t, "the caches", r.Informers().HasSynced)

	client, err := kubernetes.NewForConfig(plane.AdminConfig())
	if err != nil {
		t.Fatal(err)
	}
	var made []string
	began := time.Now()
	for i := range objects {
		ns, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("limits-%d", i)}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		made = append(made, ns.Name)
	}
	waitFor(t, "a service account in each namespace", func() bool {
		for _, ns := range made {
			if _, err := client.CoreV1().ServiceAccounts(ns).Get(t.Context(), "default", metav1.GetOptions{}); err != nil {
				return false
			}
		}
		return true
	})
	if took := time.Since(began); took < least {
		t.Errorf("%d service accounts took %v, want %v at least", objects, took, least)
	}

	// The token controller gets its client in its own way.
	began = time.Now()
	for _, ns := range made {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "token", Annotations: map[string]string{corev1.ServiceAccountNameKey: "default"}}, Type: corev1.SecretTypeServiceAccountToken}
		if _, err := client.CoreV1().Secrets(ns).Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	waitFor(t, "a token in each secret", func() bool {
		for _, ns := range made {
			secret, err := client.CoreV1().Secrets(ns).Get(t.Context(), "token", metav1.GetOptions{})
			if err != nil || len(secret.Data[corev1.ServiceAccountTokenKey]) == 0 {
				return false
			}
		}
		return true
	})
	if took := time.Since(began); took < least {
		t.Errorf("%d tokens took %v, want %v at least", objects, took, least)
	}
}
