package main

import (
	"context"
	"fmt"
	"html"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	webv1 "example.com/websites/api/v1"
)

// WebsiteReconciler reconciles a Website object
type WebsiteReconciler struct {
	client.Client
	Scheme *runtime.Scheme
}

// +kubebuilder:rbac:groups=web.example.com,resources=websites,verbs=get;list;watch
// +kubebuilder:rbac:groups=web.example.com,resources=websites/status,verbs=update
// +kubebuilder:rbac:groups="",resources=configmaps,verbs=get;list;watch;create;update

// Reconcile keeps a ConfigMap with a Website's HTML.
func (r *WebsiteReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var website webv1.Website
	if err := r.Get(ctx, req.NamespacedName, &website); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err) // The garbage collector deletes its ConfigMap.
	}
	page := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: website.Name, Namespace: website.Namespace}}
	result, err := ctrl.CreateOrUpdate(ctx, r.Client, page, func() error {
		page.Data = map[string]string{"index.html": fmt.Sprintf("<h1>%s</h1>", html.EscapeString(website.Spec.Text))}
		return ctrl.SetControllerReference(&website, page, r.Scheme)
	})
	if err != nil {
		return ctrl.Result{}, err
	}
	logf.FromContext(ctx).Info("Served", "result", result)
	if website.Status.ObservedGeneration == website.Generation {
		return ctrl.Result{}, nil
	}
	website.Status.ObservedGeneration = website.Generation
	return ctrl.Result{}, r.Status().Update(ctx, &website)
}

// SetupWithManager sets up the controller with the Manager.
func (r *WebsiteReconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		For(&webv1.Website{}).
		Owns(&corev1.ConfigMap{}).
		Named("website").
		Complete(r)
}
