package manager

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"
	ctrlmanager "sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/flotilla-kube/flotilla/pkg/flotilla"
	"github.com/flotilla-kube/flotilla/pkg/manager"
	"github.com/flotilla-kube/flotilla/test/harness"
)

const field = "spec.key"

// TestTwoManagersOfAShardDoNotClash runs two controllers of the fleet with the same controller
// names and with different indexes of the same field, on ranges and on everything.
func TestTwoManagersOfAShardDoNotClash(t *testing.T) {
	t.Parallel()
	managers := map[string]*shards{"first": {}, "second": {}, "third": {}, "fourth": {}}
	reconciled := map[string]*seen{"first": {}, "second": {}, "third": {}, "fourth": {}}
	build := func(name string) flotilla.Build {
		return managers[name].build(func(s *flotilla.Shard, mgr ctrlmanager.Manager) error {
			index := func(o ctrlclient.Object) []string { return []string{name + " " + o.GetName()} }
			return errors.Join(
				mgr.GetFieldIndexer().IndexField(t.Context(), &corev1.ConfigMap{}, field, index),
				reconciled[name].reconciles(s, mgr))
		})
	}
	f, _ := begin(t, plane.AdminConfig(), func(f *flotilla.Fleet) {
		f.Namespaced("first", build("first"))
		f.Namespaced("second", build("second"))
		f.Singleton("third", build("third"))
		f.Singleton("fourth", build("fourth"))
	})
	awaitReady(t, f)
	for name, of := range managers {
		for shard, s := range of.get() {
			requireEventuallySame(t, reconciled[name], shard, owned(s.Shard))
			var list corev1.ConfigMapList
			err := s.mgr.GetClient().List(t.Context(), &list, ctrlclient.MatchingFields{field: name + " a"})
			if err != nil || len(list.Items) != len(owned(s.Shard)) {
				t.Errorf("the index of %s on %s finds %d ConfigMaps, %v; want %d", name, shard, len(list.Items), err, len(owned(s.Shard)))
			}
		}
	}
}

// TestManagersShareARESTMapper checks that a controller's shards do not discover one by one, and
// that what they share outlives them. Two fleets, each with its own limit, share nothing.
func TestManagersShareARESTMapper(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	made := map[meta.RESTMapper]int{}
	build := manager.Build(clientscheme.Scheme, func(mgr ctrlmanager.Manager) error {
		mu.Lock()
		defer mu.Unlock()
		made[mgr.GetRESTMapper()]++
		return (&seen{}).reconciles(&flotilla.Shard{}, mgr)
	})
	const fleets = 2
	for range fleets {
		f, end := begin(t, plane.AdminConfig(), func(f *flotilla.Fleet) { f.Namespaced("a", build) })
		awaitReady(t, f)
		if err := end(); err != nil {
			t.Fatal(err)
		}
	}
	if len(made) != fleets {
		t.Errorf("the shards of %d fleets have %d mappers, want one a fleet", fleets, len(made))
	}
	for mapper, n := range made {
		if n < ranges {
			t.Errorf("a mapper belongs to %d Managers, want all %d of its fleet", n, ranges)
		}
		job := schema.GroupKind{Group: "batch", Kind: "Job"} // that nobody has requested
		if _, err := mapper.RESTMapping(job); err != nil {
			t.Errorf("after the shards have ended: %v", err)
		}
	}
}

// TestAShardWhoseCachesCannotBeFilledCanEnd has a fleet without the right to list what it watches.
func TestAShardWhoseCachesCannotBeFilledCanEnd(t *testing.T) {
	t.Parallel()
	user := fleetName(t)
	config, err := plane.ConfigFor(user)
	if err != nil {
		t.Fatal(err)
	}
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: user},
		Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"*"},
		}},
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: user},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: user},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}},
	}
	_, a := client.RbacV1().ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{})
	_, b := client.RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{})
	if err := errors.Join(a, b); err != nil {
		t.Fatal(err)
	}
	var managers shards
	filling := make(chan struct{}, 100)
	_, end := begin(t, config, func(f *flotilla.Fleet) {
		f.Namespaced("a", managers.build(func(_ *flotilla.Shard, mgr ctrlmanager.Manager) error {
			// Requested at once, so that the Manager itself waits for it.
			index := func(o ctrlclient.Object) []string { return []string{o.GetName()} }
			return errors.Join(
				mgr.GetFieldIndexer().IndexField(t.Context(), &corev1.Secret{}, field, index),
				builder.ControllerManagedBy(mgr).Named("secret").For(&corev1.Secret{}).Complete(reconcile.Func(
					func(context.Context, reconcile.Request) (reconcile.Result, error) { return reconcile.Result{}, nil })),
				mgr.Add(cluster{mgr, filling}))
		}))
	}, func(o *flotilla.Options) { o.Ranges = 1 })
	select {
	case <-filling:
	case <-time.After(harness.Patience):
		t.Fatal("no Manager was started")
	}
	if err := end(); err != nil {
		t.Error(err)
	}
}

// cluster is a runnable that the Manager starts with its caches, because it looks like another
// cluster.
type cluster struct {
	ctrlmanager.Manager
	started chan<- struct{}
}

func (c cluster) Start(ctx context.Context) error { c.started <- struct{}{}; <-ctx.Done(); return nil }
