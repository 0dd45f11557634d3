package manager

import (
	"context"
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"
	ctrlmanager "sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/flotilla-kube/flotilla/pkg/flotilla"
	"github.com/flotilla-kube/flotilla/pkg/manager"
	"github.com/flotilla-kube/flotilla/test/harness"
)

const pickedLabel = "flotilla.test/picked"

// TestManagerWithASelector has Managers that want only labelled ConfigMaps, beside one that wants
// all, and hands their shards over after writes to ConfigMaps that are not labelled.
func TestManagerWithASelector(t *testing.T) {
	t.Parallel()
	picked := map[string]string{pickedLabel: "yes"}
	err := harness.InParallel(teams, func(i int) error {
		m := configMap(team(i), "picked")
		m.Labels = picked
		_, err := client.CoreV1().ConfigMaps(team(i)).Create(t.Context(), m, metav1.CreateOptions{})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	run := func() (*shards, *seen, func() error) {
		var managers, others shards
		var reconciled, all seen
		f, end := begin(t, plane.AdminConfig(), func(f *flotilla.Fleet) {
			f.Namespaced("picks", buildPicking(&managers, &reconciled, picked))
			f.Namespaced("takes", others.build(all.reconciles))
		}, func(o *flotilla.Options) { o.Ranges = 2 })
		awaitReady(t, f)
		for name, s := range managers.get() {
			<-s.mgr.Elected()
			requireEventuallySame(t, &reconciled, name, owned(s.Shard))
			requireEventuallySame(t, &all, name, owned(s.Shard)) // who wants all has all
			requirePicked(t, s)
		}
		return &managers, &reconciled, end
	}
	_, _, end := run()
	if err := end(); err != nil {
		t.Fatal(err)
	}
	// The last writes were to what is not picked. The caches have seen them all the same.
	managers, _, _ := run()

	// One that is not labelled any more has gone.
	for _, s := range managers.get() {
		at := owned(s.Shard)[0]
		m, err := client.CoreV1().ConfigMaps(at).Get(t.Context(), "picked", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		m.Labels = nil
		if _, err := client.CoreV1().ConfigMaps(at).Update(t.Context(), m, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		harness.Eventually(t, harness.Patience, "what is not picked any more was reconciled", func(ctx context.Context) error {
			_, err := client.CoreV1().ConfigMaps(at).Get(ctx, "gone", metav1.GetOptions{})
			return err
		})
	}
}

// buildPicking builds Managers that see the picked ConfigMaps. Their reconciler writes ConfigMaps
// that are not picked: one for each that is, and one for each that has gone.
func buildPicking(managers *shards, reconciled *seen, picked map[string]string) flotilla.Build {
	return func(ctx context.Context, s *flotilla.Shard) (flotilla.Runnable, error) {
		o := manager.Options(s, clientscheme.Scheme)
		o.Cache.ByObject = map[ctrlclient.Object]cache.ByObject{&corev1.ConfigMap{}: {Label: labels.SelectorFromSet(picked)}}
		return manager.New(ctx, s, o, func(mgr ctrlmanager.Manager) error {
			managers.add(s, mgr)
			return builder.ControllerManagedBy(mgr).Named("picking").For(&corev1.ConfigMap{}).Complete(
				reconcile.Func(func(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
					if r.Name != "picked" {
						reconciled.note(s.String(), r.String()+" which is not picked")
						return reconcile.Result{}, nil
					}
					name := "beside"
					err := mgr.GetClient().Get(ctx, r.NamespacedName, &corev1.ConfigMap{})
					if apierrors.IsNotFound(err) {
						name = "gone"
					} else if err != nil {
						return reconcile.Result{}, err
					}
					reconciled.note(s.String(), r.Namespace)
					err = mgr.GetClient().Create(ctx, configMap(r.Namespace, name))
					if apierrors.IsAlreadyExists(err) {
						err = nil
					}
					return reconcile.Result{}, err
				}))
		})
	}
}

// requirePicked holds that the cached client finds what is picked, in the range and outside, and
// nothing else.
func requirePicked(t *testing.T, s shardOf) {
	t.Helper()
	c := s.mgr.GetClient()
	var list corev1.ConfigMapList
	if err := c.List(t.Context(), &list); err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, m := range list.Items {
		found = append(found, m.Namespace)
	}
	requireSame(t, "picked ConfigMaps", found, owned(s.Shard))
	for _, namespace := range []string{owned(s.Shard)[0], foreign(s.Shard)} {
		var m corev1.ConfigMap
		err := c.Get(t.Context(), ctrlclient.ObjectKey{Namespace: namespace, Name: "picked"}, &m)
		if other := c.Get(t.Context(), ctrlclient.ObjectKey{Namespace: namespace, Name: "a"}, &m); err != nil || !apierrors.IsNotFound(other) {
			t.Errorf("in %s: what is picked is %v, what is not is %v", namespace, err, other)
		}
		err = c.List(t.Context(), &list, ctrlclient.InNamespace(namespace))
		if err == nil && (len(list.Items) != 1 || list.Items[0].Name != "picked") {
			err = errors.New(fmt.Sprint("there are ", len(list.Items)))
		}
		if err != nil {
			t.Errorf("a list of %s: %v", namespace, err)
		}
	}
}
