package manager_test

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/flotilla-kube/flotilla/pkg/flotilla"
	"github.com/flotilla-kube/flotilla/pkg/manager"
)

// Reconciler is as kubebuilder scaffolds it.
type Reconciler struct{ client.Client }

// SetupWithManager adds the controller.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).Owns(&corev1.Secret{}).Complete(r)
}

// Reconcile does the work of one object.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	var m corev1.ConfigMap
	return ctrl.Result{}, client.IgnoreNotFound(r.Get(ctx, request.NamespacedName, &m))
}

// The reconcilers of a main.go are set up once for each shard.
func Example() {
	f, err := flotilla.New(&rest.Config{}, flotilla.Options{
		Fleet: "website", Namespace: "website", Member: "website-0",
	})
	if err != nil {
		panic(err)
	}
	var setup manager.Setup = func(mgr ctrl.Manager) error {
		return (&Reconciler{Client: mgr.GetClient()}).SetupWithManager(mgr)
	}
	f.Namespaced("website", manager.Build(scheme.Scheme, setup))
	fmt.Println(f.Ready()) // run it with f.Run(ctx)
	// Output: the fleet has not been run yet
}

// Options of a Manager that are not the default's.
func ExampleNew() {
	build := func(ctx context.Context, s *flotilla.Shard) (flotilla.Runnable, error) {
		options := manager.Options(s, scheme.Scheme)
		options.Controller.MaxConcurrentReconciles = 10
		return manager.New(ctx, s, options, func(mgr ctrl.Manager) error {
			return (&Reconciler{Client: mgr.GetClient()}).SetupWithManager(mgr)
		})
	}
	var _ flotilla.Build = build // for Fleet.Namespaced
}

// All shards get the events of a Node. Each acts in its own namespaces.
func ExampleOwns() {
	var setup manager.Setup = func(mgr ctrl.Manager) error {
		ofNode := func(_ context.Context, node client.Object) []reconcile.Request {
			namespace := node.GetLabels()["tenant"]
			if !manager.Owns(mgr, namespace) {
				return nil
			}
			key := client.ObjectKey{Namespace: namespace, Name: node.GetName()}
			return []reconcile.Request{{NamespacedName: key}}
		}
		return ctrl.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).
			Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(ofNode)).
			Complete(&Reconciler{Client: mgr.GetClient()})
	}
	_ = manager.Build(scheme.Scheme, setup) // for Fleet.Namespaced
}
