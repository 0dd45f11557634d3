package main

import (
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
)

// Names of objects; there is one of each kind in a namespace.
const (
	appName   = "web"
	storeName = "store"
	agentName = "agent"
	jobName   = "import"
	cronName  = "report"
	quotaName = "limits"

	// versionAnnotation on pod templates causes a rolling update when it changes.
	versionAnnotation = "demo.flotilla.dev/version"

	fewReplicas, manyReplicas = 3, 5
)

// namespaces are the tenants. Their names put one or two of them into each of 16 equal ranges.
var namespaces = []string{
	"data-reports", "identity-login", "identity-sessions", "iot-ingest", "logistics-routes", "logistics-tracking",
	"maps-tiles", "media-subtitles", "media-thumbnails", "media-transcode", "ml-serving", "payments-fraud",
	"payments-gateway", "payments-ledger", "payments-payouts", "search-index", "shop-cart", "shop-catalog",
	"shop-checkout", "shop-reviews", "shop-search", "shop-wishlist", "support-tickets", "web-frontend",
}

// tenant is the wanted content of one namespace: a Deployment with a Service, a PodDisruptionBudget
// and a ResourceQuota, and some of the rest.
type tenant struct {
	namespace string
	// replicas and version are the Deployment's, and change.
	replicas                 int32
	version                  string
	store, agent, job, batch bool
}

// tenants returns the initial tenants.
func tenants() []tenant {
	var all []tenant
	for i, namespace := range namespaces {
		all = append(all, tenant{
			namespace: namespace, replicas: fewReplicas, version: "1",
			store: i%3 == 0, agent: i%6 == 1, job: i%3 == 2, batch: i%4 == 3,
		})
	}
	return all
}

// tenantsIn returns a copy of those in these namespaces; nil means all.
func tenantsIn(all []tenant, in []string) []tenant {
	return slices.DeleteFunc(slices.Clone(all), func(t tenant) bool { return in != nil && !slices.Contains(in, t.namespace) })
}

// without returns a copy of names without some.
func without(names []string, some ...string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return slices.Contains(some, name) })
}

// rolled reports whether the tenant takes part in the rolling update.
func (t tenant) rolled() bool {
	return slices.Index(namespaces, t.namespace)%2 == 0
}

// createNamespace creates the namespace and its quota, which must exist before the pods that it
// counts.
func (t tenant) createNamespace(ctx context.Context, client kubernetes.Interface) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: t.namespace}}
	if _, err := client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
		return err
	}
	quota := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: quotaName},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("1000")}},
	}
	_, err := client.CoreV1().ResourceQuotas(t.namespace).Create(ctx, quota, metav1.CreateOptions{})
	return err
}

// createWork creates everything else.
func (t tenant) createWork(ctx context.Context, client kubernetes.Interface) error {
	type create = func(context.Context, kubernetes.Interface) error
	creates := []create{t.createApp}
	for _, optional := range []struct {
		wanted bool
		create create
	}{{t.store, t.createStore}, {t.agent, t.createAgent}, {t.job, t.createJob}, {t.batch, t.createBatch}} {
		if optional.wanted {
			creates = append(creates, optional.create)
		}
	}
	for _, create := range creates {
		if err := create(ctx, client); err != nil {
			return fmt.Errorf("namespace %s: %w", t.namespace, err)
		}
	}
	return nil
}

func (t tenant) createApp(ctx context.Context, client kubernetes.Interface) error {
	budget := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: appName},
		Spec:       policyv1.PodDisruptionBudgetSpec{MinAvailable: ptr.To(intstr.FromInt32(1)), Selector: selector(appName)},
	}
	if _, err := client.PolicyV1().PodDisruptionBudgets(t.namespace).Create(ctx, budget, metav1.CreateOptions{}); err != nil {
		return err
	}
	if err := t.createService(ctx, client, appName, ""); err != nil {
		return err
	}
	deployment := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: appName},
		Spec:       appsv1.DeploymentSpec{Replicas: &t.replicas, Selector: selector(appName), Template: t.pods(appName)},
	}
	_, err := client.AppsV1().Deployments(t.namespace).Create(ctx, deployment, metav1.CreateOptions{})
	return err
}

func (t tenant) createStore(ctx context.Context, client kubernetes.Interface) error {
	if err := t.createService(ctx, client, storeName, corev1.ClusterIPNone); err != nil {
		return err
	}
	set := &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: storeName},
		Spec: appsv1.StatefulSetSpec{
			Replicas: ptr.To[int32](fewReplicas), ServiceName: storeName, Selector: selector(storeName), Template: t.pods(storeName),
		},
	}
	_, err := client.AppsV1().StatefulSets(t.namespace).Create(ctx, set, metav1.CreateOptions{})
	return err
}

func (t tenant) createAgent(ctx context.Context, client kubernetes.Interface) error {
	set := &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: agentName},
		Spec:       appsv1.DaemonSetSpec{Selector: selector(agentName), Template: t.pods(agentName)},
	}
	_, err := client.AppsV1().DaemonSets(t.namespace).Create(ctx, set, metav1.CreateOptions{})
	return err
}

func (t tenant) createJob(ctx context.Context, client kubernetes.Interface) error {
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: jobName}, Spec: t.jobSpec()}
	_, err := client.BatchV1().Jobs(t.namespace).Create(ctx, job, metav1.CreateOptions{})
	return err
}

func (t tenant) createBatch(ctx context.Context, client kubernetes.Interface) error {
	cron := &batchv1.CronJob{
		ObjectMeta: metav1.ObjectMeta{Name: cronName},
		Spec:       batchv1.CronJobSpec{Schedule: "* * * * *", JobTemplate: batchv1.JobTemplateSpec{Spec: t.jobSpec()}},
	}
	_, err := client.BatchV1().CronJobs(t.namespace).Create(ctx, cron, metav1.CreateOptions{})
	return err
}

func (t tenant) createService(ctx context.Context, client kubernetes.Interface, name, clusterIP string) error {
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.ServiceSpec{Selector: labels(name), ClusterIP: clusterIP, Ports: []corev1.ServicePort{{Port: 80}}},
	}
	_, err := client.CoreV1().Services(t.namespace).Create(ctx, service, metav1.CreateOptions{})
	return err
}

// apply updates the Deployment to the tenant's replicas and version.
func (t tenant) apply(ctx context.Context, client kubernetes.Interface) error {
	patch := fmt.Appendf(nil, `{"spec":{"replicas":%d,"template":{"metadata":{"annotations":{%q:%q}}}}}`,
		t.replicas, versionAnnotation, t.version)
	_, err := client.AppsV1().Deployments(t.namespace).
		Patch(ctx, appName, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("namespace %s: %w", t.namespace, err)
	}
	return nil
}

func (t tenant) jobSpec() batchv1.JobSpec {
	template := t.pods(jobName)
	template.Spec.RestartPolicy = corev1.RestartPolicyNever
	return batchv1.JobSpec{Completions: ptr.To[int32](2), Parallelism: ptr.To[int32](2), Template: template}
}

func (t tenant) pods(app string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: labels(app), Annotations: map[string]string{versionAnnotation: t.version}},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: app, Image: "registry.example/" + t.namespace + "/" + app}},
			// The deletion of a namespace waits for half of it.
			TerminationGracePeriodSeconds: ptr.To[int64](1),
		},
	}
}

func labels(app string) map[string]string { return map[string]string{"app": app} }

func selector(app string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: labels(app)}
}
