package main

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flotilla-kube/flotilla/internal/status"
)

// view is the informers' state of the cluster at one moment. Do not change the objects.
type view struct {
	leases       []coordinationv1.Lease
	namespaces   []*corev1.Namespace
	accounts     []*corev1.ServiceAccount
	configMaps   []*corev1.ConfigMap
	quotas       []*corev1.ResourceQuota
	pods         []*corev1.Pod
	deployments  []*appsv1.Deployment
	statefulSets []*appsv1.StatefulSet
	daemonSets   []*appsv1.DaemonSet
	jobs         []*batchv1.Job
	cronJobs     []*batchv1.CronJob
	budgets      []*policyv1.PodDisruptionBudget
	slices       []*discoveryv1.EndpointSlice
}

// fleet returns what the Leases say of the fleet.
func (v view) fleet() *status.Reading { return status.Read(fleetName, v.leases, time.Now()) }

// find returns the object of this namespace and name, and whether it exists.
func find[T metav1.Object](objects []T, namespace, name string) (object T, found bool) {
	for _, o := range objects {
		if o.GetName() == name && o.GetNamespace() == namespace {
			return o, true
		}
	}
	return object, false
}
