package integration

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	svmv1 "k8s.io/api/storagemigration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/kubernetes/cmd/kube-controller-manager/names"
	"k8s.io/utils/ptr"

	"github.com/flotilla-kube/flotilla/pkg/controllers"
	"github.com/flotilla-kube/flotilla/pkg/controllers/garbage"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// TestCollectorsOfParts runs garbage collectors of two ranges and of the cluster as instances of a
// process, with quota and everything else that shares their informers. It deletes a cluster-scoped
// owner in the foreground: dependents at two levels are deleted first, and a range's writes stay in
// it. So many objects are collected in time only if no limit is a single request per second.
func TestCollectorsOfParts(t *testing.T) {
	const chains = 20
	client, err := kubernetes.NewForConfig(unlimited())
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	process := newCollector(t)
	ranges, err := shard.EqualRanges(2)
	if err != nil {
		t.Fatal(err)
	}
	var outside, writes atomic.Int32
	for i, r := range ranges {
		start(t, process, controllers.Spec{
			ID: shard.ID{Ring: "namespaces", Name: fmt.Sprint(i)}, Range: r, Shards: 2, Collect: garbage.OfRange,
			Controllers: []string{names.GarbageCollectorController, names.ReplicaSetController, names.ResourceQuotaController},
			Fence: func(next http.RoundTripper) http.RoundTripper {
				return roundTripper(func(req *http.Request) (*http.Response, error) {
					_, path, in := strings.Cut(req.URL.Path, "/namespaces/")
					namespace, _, _ := strings.Cut(path, "/")
					if req.Method == http.MethodDelete || req.Method == http.MethodPatch {
						writes.Add(1)
						if !in || !r.ContainsNamespace(namespace) {
							outside.Add(1)
						}
					}
					return next.RoundTrip(req)
				})
			},
		})
	}
	start(t, process, controllers.Spec{
		ID: shard.ID{Ring: "cluster", Name: "garbage"}, Shards: 5, Collect: garbage.OfCluster, Controllers: []string{names.GarbageCollectorController},
	})
	owner, err := client.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{GenerateName: "parts-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ref := func(apiVersion, kind string, o metav1.Object) []metav1.OwnerReference {
		return []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: o.GetName(), UID: o.GetUID(), BlockOwnerDeletion: ptr.To(true)}}
	}
	var spaces []string
	for range chains {
		space, err := client.CoreV1().Namespaces().Create(ctx, &v1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "parts-"}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		spaces = append(spaces, space.Name)
		middle, err := client.CoreV1().ConfigMaps(space.Name).Create(ctx, &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Name: "middle", OwnerReferences: ref("rbac.authorization.k8s.io/v1", "ClusterRole", owner)}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.CoreV1().Secrets(space.Name).Create(ctx, &v1.Secret{ObjectMeta: metav1.ObjectMeta{
			Name: "last", OwnerReferences: ref("v1", "ConfigMap", middle), Finalizers: []string{"example.com/keep"}}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	// A collector learns of owners and of dependents by different watches. Once it has deleted a
	// later dependent of an absent owner, it knows all those that wait.
	gone := owner.DeepCopy()
	gone.Name, gone.UID = "never-was", "never-was"
	if _, err := client.CoreV1().ConfigMaps(spaces[0]).Create(ctx, &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Name: "later", OwnerReferences: ref("rbac.authorization.k8s.io/v1", "ClusterRole", gone)}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, space := range spaces {
		if _, err := client.CoreV1().Secrets(space).Create(ctx, &v1.Secret{ObjectMeta: metav1.ObjectMeta{
			Name: "later", OwnerReferences: ref("v1", "ConfigMap", gone)}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, space := range spaces {
		eventually(t, func() error {
			_, err := client.CoreV1().ConfigMaps(space).Get(ctx, "later", metav1.GetOptions{})
			_, secretErr := client.CoreV1().Secrets(space).Get(ctx, "later", metav1.GetOptions{})
			if !apierrors.IsNotFound(err) || !apierrors.IsNotFound(secretErr) {
				return fmt.Errorf("a dependent of an absent owner exists in %s (%v, %v)", space, err, secretErr)
			}
			return nil
		})
	}
	if err := client.RbacV1().ClusterRoles().Delete(ctx, owner.Name, metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationForeground)}); err != nil {
		t.Fatal(err)
	}
	for _, space := range spaces {
		eventually(t, func() error {
			last, err := client.CoreV1().Secrets(space).Get(ctx, "last", metav1.GetOptions{})
			if err != nil || last.DeletionTimestamp == nil {
				return fmt.Errorf("the last dependent in %s is not being deleted (%v)", space, err)
			}
			return nil
		})
		if _, err := client.CoreV1().ConfigMaps(space).Get(ctx, "middle", metav1.GetOptions{}); err != nil {
			t.Errorf("in %s the object that the last one blocks: %v", space, err)
		}
	}
	if _, err := client.RbacV1().ClusterRoles().Get(ctx, owner.Name, metav1.GetOptions{}); err != nil {
		t.Errorf("the blocked owner: %v", err)
	}
	for _, space := range spaces {
		if _, err := client.CoreV1().Secrets(space).Patch(ctx, "last", "application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, func() error {
		if _, err := client.RbacV1().ClusterRoles().Get(ctx, owner.Name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("the owner still exists (%v)", err)
		}
		return nil
	})
	if writes.Load() == 0 || outside.Load() > 0 {
		t.Errorf("%d of %d writes of ranges were outside of them", outside.Load(), writes.Load())
	}
}

// TestMigrationHasAllObjects checks that a migration writes every object, even if the shard's
// garbage collector has only a part of the graph, or there is none.
func TestMigrationHasAllObjects(t *testing.T) {
	process := newCollector(t)
	t.Run("beside a part", func(t *testing.T) {
		migrates(t, process, controllers.Spec{Collect: garbage.OfCluster, Controllers: []string{names.GarbageCollectorController, names.StorageVersionMigratorController}})
	})
	t.Run("alone", func(t *testing.T) {
		migrates(t, process, controllers.Spec{Controllers: []string{names.StorageVersionMigratorController}})
	})
}

func migrates(t *testing.T, process *controllers.Process, spec controllers.Spec) {
	t.Helper()
	const objects = 30
	client, err := kubernetes.NewForConfig(unlimited())
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	space, err := client.CoreV1().Namespaces().Create(ctx, &v1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "migration-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for range objects {
		if _, err := client.CoreV1().ConfigMaps(space.Name).Create(ctx, &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "of-nobody-"}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	var written sync.Map // paths: the migrator may write an object again after an error
	spec.ID, spec.Shards = shard.ID{Ring: "cluster", Name: "garbage"}, 5
	spec.Fence = func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			if req.Method == http.MethodPatch && strings.Contains(req.URL.Path, "/namespaces/"+space.Name+"/configmaps/") {
				written.Store(req.URL.Path, true)
			}
			return next.RoundTrip(req)
		})
	}
	r := start(t, process, spec)
	if !slices.Contains(r.Controllers(), names.StorageVersionMigratorController) {
		t.Fatalf("the controllers are %v", r.Controllers())
	}
	migration, err := client.StoragemigrationV1().StorageVersionMigrations().Create(ctx, &svmv1.StorageVersionMigration{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "parts-"}, Spec: svmv1.StorageVersionMigrationSpec{Resource: metav1.GroupResource{Resource: "configmaps"}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		now, err := client.StoragemigrationV1().StorageVersionMigrations().Get(ctx, migration.Name, metav1.GetOptions{})
		if err != nil || !meta.IsStatusConditionTrue(now.Status.Conditions, string(svmv1.MigrationSucceeded)) {
			return fmt.Errorf("the migration has not succeeded: %v (%v)", now.Status, err)
		}
		return nil
	})
	got := 0
	written.Range(func(any, any) bool { got++; return true })
	if got != objects {
		t.Errorf("the migration is reported as done, and %d of %d objects were written", got, objects)
	}
}

// unlimited returns the administrator's configuration without a rate limit.
func unlimited() *rest.Config {
	config := rest.CopyConfig(plane.AdminConfig())
	config.QPS = -1
	return config
}

// TestPartsLeaveNothing checks that garbage collectors of parts, and the migrator's monitors, end
// with their instance, whether it has run or not.
func TestPartsLeaveNothing(t *testing.T) {
	process := newCollector(t)
	specs := []controllers.Spec{
		{ID: shard.ID{Ring: "cluster", Name: "garbage"}, Collect: garbage.OfCluster,
			Controllers: []string{names.GarbageCollectorController, names.StorageVersionMigratorController}},
		{ID: shard.ID{Ring: "namespaces", Name: "0"}, Collect: garbage.OfRange, Controllers: []string{names.GarbageCollectorController}},
	}
	round := func() int {
		for _, spec := range specs {
			i, err := process.Build(t.Context(), spec)
			if err != nil {
				t.Fatal(err)
			}
			i.Close()
			i.Forget()
			r := start(t, process, spec)
			waitFor(t, "the caches", r.Informers().HasSynced)
			r.stop()
			r.Forget()
		}
		return settled(t)
	}
	before := round() // the first leaves what belongs to the process
	if after := round(); after > before+5 {
		t.Errorf("%d goroutines after one round, %d after two:\n%s", before, after, stacks())
	}
}
