package integration

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/kubernetes/cmd/kube-controller-manager/names"

	"github.com/flotilla-kube/flotilla/pkg/controllers"
	"github.com/flotilla-kube/flotilla/pkg/controllers/catalogue"
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

// TestPartsHearOfOwnersFirst starts the shards of the default plan that collect garbage, and group
// nodes, whose pods the cluster's collector picks from. Objects have owners of both scopes, none of
// their own kind. No collector may look up any of them.
func TestPartsHearOfOwnersFirst(t *testing.T) {
	for name, warm := range map[string]bool{"cold": false, "warm": true} {
		t.Run(name, func(t *testing.T) {
			c, _ := newConfig(t, allOn)
			g := &bothScopes{T: t}
			process, err := controllers.NewProcess(c, controllers.NewEndpoints())
			if err != nil {
				t.Fatal(err)
			}
			var chosen []controllers.Spec
			for _, spec := range specs(t, 2) {
				if spec.Collect != 0 || spec.ID.Name == catalogue.GroupNodes {
					chosen = append(chosen, spec)
				}
			}
			g.create(chosen)
			g.addGarbage("first")
			for _, spec := range chosen {
				spec.Fence = g.count
				startAs(t, process, spec, warm)
			}
			g.collected("first") // so all that there is is in the queues
			g.addGarbage("second")
			g.collected("second") // so it has been taken from them
			g.mu.Lock()
			defer g.mu.Unlock()
			if len(g.asked) > 0 {
				t.Errorf("the collectors looked up existing objects without garbage %d times: %q", len(g.asked), g.asked)
			}
			if g.ofGarbage == 0 {
				t.Error("not even garbage was looked up: no request was recognized as a collector's")
			}
		})
	}
}

// bothScopes are objects with owners of both scopes, in a namespace of each range and outside of
// namespaces.
type bothScopes struct {
	*testing.T
	client kubernetes.Interface
	name   string // Part of each object's path.
	spaces []string

	mu        sync.Mutex
	asked     []string // The paths that collectors asked for, without those of garbage.
	ofGarbage int
}

func (g *bothScopes) count(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		if r.Method == http.MethodGet && strings.Contains(r.UserAgent(), "generic-garbage-collector") && strings.Contains(r.URL.Path, g.name) {
			g.mu.Lock()
			defer g.mu.Unlock()
			if strings.Contains(r.URL.Path, "garbage-") {
				g.ofGarbage++
			} else {
				g.asked = append(g.asked, r.URL.Path)
			}
		}
		return next.RoundTrip(r)
	})
}

// create creates the objects, in namespaces of the shards' ranges.
func (g *bothScopes) create(specs []controllers.Spec) {
	g.Helper()
	const chains = 20
	ctx := g.Context()
	var err error
	if g.client, err = kubernetes.NewForConfig(unlimited()); err != nil {
		g.Fatal(err)
	}
	root, err := g.client.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{GenerateName: "scopes-"}}, metav1.CreateOptions{})
	if err != nil {
		g.Fatal(err)
	}
	g.name = root.Name
	for i := range chains {
		g.made(g.client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
			ObjectMeta: ownedBy(fmt.Sprintf("%s-%d", g.name, i), refTo("rbac.authorization.k8s.io/v1", "ClusterRole", root)),
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: root.Name},
		}, metav1.CreateOptions{}))
	}
	for _, spec := range specs {
		if spec.ID.Ring != catalogue.NamespacesRing {
			continue
		}
		space := g.name + "-0"
		for i := 1; !spec.Range.ContainsNamespace(space); i++ {
			space = fmt.Sprintf("%s-%d", g.name, i)
		}
		g.spaces = append(g.spaces, space)
		g.made(g.client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: space}}, metav1.CreateOptions{}))
		g.made(g.client.CoreV1().ServiceAccounts(space).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{}))
		for i := range chains {
			g.chain(space, fmt.Sprint("chain-", i), refTo("rbac.authorization.k8s.io/v1", "ClusterRole", root))
		}
	}
}

// chain creates objects with an owner in their namespace, with a cluster-scoped one, and with both.
func (g *bothScopes) chain(space, name string, ofCluster metav1.OwnerReference) {
	g.Helper()
	ctx := g.Context()
	labels := map[string]string{"chain": name}
	pod := corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "none"}}}
	set, err := g.client.AppsV1().ReplicaSets(space).Create(ctx, &appsv1.ReplicaSet{
		ObjectMeta: ownedBy(name, ofCluster),
		Spec: appsv1.ReplicaSetSpec{Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pod}},
	}, metav1.CreateOptions{})
	if err != nil {
		g.Fatal(err)
	}
	inRange := *metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))
	owned := &corev1.Pod{ObjectMeta: ownedBy(name, inRange, ofCluster), Spec: pod}
	owned.Labels = labels
	g.made(g.client.CoreV1().Pods(space).Create(ctx, owned, metav1.CreateOptions{}))
	g.made(g.client.CoreV1().Pods(space).Create(ctx, &corev1.Pod{ObjectMeta: ownedBy(name+"-cluster", ofCluster), Spec: pod}, metav1.CreateOptions{}))
	between, err := g.client.CoreV1().ConfigMaps(space).Create(ctx, &corev1.ConfigMap{ObjectMeta: ownedBy(name, inRange)}, metav1.CreateOptions{})
	if err != nil {
		g.Fatal(err)
	}
	g.made(g.client.CoreV1().Secrets(space).Create(ctx, &corev1.Secret{ObjectMeta: ownedBy(name, refTo("v1", "ConfigMap", between), ofCluster)}, metav1.CreateOptions{}))
}

func (g *bothScopes) made(_ any, err error) {
	g.Helper()
	if err != nil {
		g.Fatal(err)
	}
}

// garbage calls f for objects without an owner, for each collector at least one.
func (g *bothScopes) garbage(round string, f func(space, name string, owner metav1.OwnerReference)) {
	name := fmt.Sprintf("garbage-%s-%s", round, g.name)
	never := func(apiVersion, kind string) metav1.OwnerReference {
		return metav1.OwnerReference{APIVersion: apiVersion, Kind: kind, Name: name + "-owner", UID: types.UID(name + kind)}
	}
	f("", name, never("rbac.authorization.k8s.io/v1", "ClusterRole"))
	for _, space := range g.spaces {
		f(space, name, never("v1", "ConfigMap"))
	}
}

func (g *bothScopes) addGarbage(round string) {
	g.Helper()
	g.garbage(round, func(space, name string, owner metav1.OwnerReference) {
		if space == "" {
			g.made(g.client.RbacV1().ClusterRoles().Create(g.Context(), &rbacv1.ClusterRole{ObjectMeta: ownedBy(name, owner)}, metav1.CreateOptions{}))
			return
		}
		g.made(g.client.CoreV1().ConfigMaps(space).Create(g.Context(), &corev1.ConfigMap{ObjectMeta: ownedBy(name, owner)}, metav1.CreateOptions{}))
	})
}

// collected waits until all garbage of a round has been deleted.
func (g *bothScopes) collected(round string) {
	g.Helper()
	g.garbage(round, func(space, name string, _ metav1.OwnerReference) {
		eventually(g.T, func() error {
			var err error
			if space == "" {
				_, err = g.client.RbacV1().ClusterRoles().Get(g.Context(), name, metav1.GetOptions{})
			} else {
				_, err = g.client.CoreV1().ConfigMaps(space).Get(g.Context(), name, metav1.GetOptions{})
			}
			if !apierrors.IsNotFound(err) {
				return fmt.Errorf("garbage %s in namespace %q exists (%v)", name, space, err)
			}
			return nil
		})
	})
}

func refTo(apiVersion, kind string, o metav1.Object) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: apiVersion, Kind: kind, Name: o.GetName(), UID: o.GetUID()}
}

func ownedBy(name string, owners ...metav1.OwnerReference) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, OwnerReferences: owners}
}
