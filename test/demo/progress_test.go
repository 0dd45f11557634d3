package main

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

var everyKind = []string{
	accountsWork, deploymentsWork, storesWork, agentsWork, jobsWork, cronWork, endpointsWork, budgetsWork, quotasWork,
}

// full returns a tenant with every kind of work, and a view in which all of it is done.
func full() (tenant, view) {
	t := tenant{namespace: "shop", replicas: 2, version: "1", store: true, agent: true, job: true, batch: true}
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: t.namespace, Name: name, Generation: 4}
	}
	pod := func(name string, phase corev1.PodPhase) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: meta(name), Status: corev1.PodStatus{Phase: phase}}
	}
	slice := &discoveryv1.EndpointSlice{ObjectMeta: meta("web-1")}
	slice.Labels = map[string]string{discoveryv1.LabelServiceName: appName}
	for _, ready := range []*bool{ptr.To(true), ptr.To(true), ptr.To(false), nil} {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Conditions: discoveryv1.EndpointConditions{Ready: ready}})
	}
	return t, view{
		accounts:   []*corev1.ServiceAccount{{ObjectMeta: meta("default")}},
		configMaps: []*corev1.ConfigMap{{ObjectMeta: meta(rootCA)}},
		quotas: []*corev1.ResourceQuota{{ObjectMeta: meta(quotaName), Status: corev1.ResourceQuotaStatus{
			Used: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("2")},
		}}},
		pods: []*corev1.Pod{
			pod("a", corev1.PodRunning), pod("b", corev1.PodPending), pod("c", corev1.PodSucceeded), pod("d", corev1.PodFailed),
		},
		deployments: []*appsv1.Deployment{{
			ObjectMeta: meta(appName), Spec: appsv1.DeploymentSpec{Replicas: &t.replicas, Template: t.pods(appName)},
			Status: appsv1.DeploymentStatus{ObservedGeneration: 4, Replicas: 2, UpdatedReplicas: 2, AvailableReplicas: 2},
		}},
		statefulSets: []*appsv1.StatefulSet{{ObjectMeta: meta(storeName), Status: appsv1.StatefulSetStatus{
			ObservedGeneration: 4, AvailableReplicas: fewReplicas, UpdatedReplicas: fewReplicas,
		}}},
		daemonSets: []*appsv1.DaemonSet{{ObjectMeta: meta(agentName), Status: appsv1.DaemonSetStatus{
			ObservedGeneration: 4, DesiredNumberScheduled: 10, NumberAvailable: 10,
		}}},
		jobs: []*batchv1.Job{{ObjectMeta: meta(jobName), Status: batchv1.JobStatus{
			Conditions: []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue}},
		}}},
		cronJobs: []*batchv1.CronJob{{ObjectMeta: meta(cronName), Status: batchv1.CronJobStatus{LastSuccessfulTime: &metav1.Time{}}}},
		budgets: []*policyv1.PodDisruptionBudget{{ObjectMeta: meta(appName), Status: policyv1.PodDisruptionBudgetStatus{
			ObservedGeneration: 4, CurrentHealthy: 2, DisruptionsAllowed: 1,
		}}},
		slices: []*discoveryv1.EndpointSlice{slice},
	}
}

func TestAllDone(t *testing.T) {
	one, v := full()
	if err := doneWith(progress(tenants()[:0], v), everyKind...); err != nil {
		t.Errorf("without tenants: %v", err)
	}
	all := progress([]tenant{one}, v)
	if err := doneWith(all, everyKind...); err != nil {
		t.Error(err)
	}
	if got := progressOf(jobsWork, all); got != "jobs 1/1" {
		t.Errorf("progress of jobs: %q", got)
	}
}

// TestNotDone removes one thing at a time from a view in which everything is done.
func TestNotDone(t *testing.T) {
	tests := map[string]struct {
		kind string
		undo func(*tenant, *view)
	}{
		"no account":              {accountsWork, func(_ *tenant, v *view) { v.accounts = nil }},
		"no root CA":              {accountsWork, func(_ *tenant, v *view) { v.configMaps = nil }},
		"another's root CA":       {accountsWork, func(_ *tenant, v *view) { v.configMaps[0].Namespace = "other" }},
		"no Deployment":           {deploymentsWork, func(_ *tenant, v *view) { v.deployments = nil }},
		"scale not seen":          {deploymentsWork, func(t *tenant, _ *view) { t.version = "2" }},
		"status is old":           {deploymentsWork, func(_ *tenant, v *view) { v.deployments[0].Generation = 5 }},
		"one pod too many":        {deploymentsWork, func(_ *tenant, v *view) { v.deployments[0].Status.Replicas = 3 }},
		"no StatefulSet":          {storesWork, func(_ *tenant, v *view) { v.statefulSets = nil }},
		"pods of StatefulSet":     {storesWork, func(_ *tenant, v *view) { v.statefulSets[0].Status.AvailableReplicas-- }},
		"no DaemonSet":            {agentsWork, func(_ *tenant, v *view) { v.daemonSets = nil }},
		"DaemonSet not seen":      {agentsWork, func(_ *tenant, v *view) { v.daemonSets[0].Status.DesiredNumberScheduled = 0 }},
		"pods of DaemonSet":       {agentsWork, func(_ *tenant, v *view) { v.daemonSets[0].Status.NumberAvailable-- }},
		"no Job":                  {jobsWork, func(_ *tenant, v *view) { v.jobs = nil }},
		"Job not complete":        {jobsWork, func(_ *tenant, v *view) { v.jobs[0].Status.Conditions[0].Status = corev1.ConditionFalse }},
		"no CronJob":              {cronWork, func(_ *tenant, v *view) { v.cronJobs = nil }},
		"CronJob has not run":     {cronWork, func(_ *tenant, v *view) { v.cronJobs[0].Status.LastSuccessfulTime = nil }},
		"endpoint missing":        {endpointsWork, func(_ *tenant, v *view) { v.slices[0].Endpoints = v.slices[0].Endpoints[1:] }},
		"another's endpoints":     {endpointsWork, func(_ *tenant, v *view) { v.slices[0].Labels = nil }},
		"no budget":               {budgetsWork, func(_ *tenant, v *view) { v.budgets = nil }},
		"budget counts too few":   {budgetsWork, func(_ *tenant, v *view) { v.budgets[0].Status.CurrentHealthy-- }},
		"no quota":                {quotasWork, func(_ *tenant, v *view) { v.quotas = nil }},
		"quota not counted":       {quotasWork, func(_ *tenant, v *view) { v.quotas[0].Status.Used = nil }},
		"quota counts ended pods": {quotasWork, func(_ *tenant, v *view) { v.pods = v.pods[1:] }},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			one, v := full()
			test.undo(&one, &v)
			all := progress([]tenant{one}, v)
			if err := doneWith(all, test.kind); err == nil {
				t.Errorf("%s are done", test.kind)
			}
			for _, kind := range everyKind {
				if err := doneWith(all, kind); kind != test.kind && err != nil {
					t.Errorf("%s: %v", kind, err)
				}
			}
		})
	}
}

func TestUnfinished(t *testing.T) {
	for _, test := range []struct {
		all  []work
		want string
	}{
		{[]work{{kind: "deployments", done: 2, total: 4}, {kind: "jobs", done: 1, total: 1}, {kind: "quotas", total: 3}}, "deployments 2/4, quotas 0/3"},
		{[]work{{kind: "jobs", done: 0, total: 2}}, "none yet"},
		{[]work{{kind: "jobs", done: 2, total: 2}}, "all done"},
	} {
		if got := unfinished(test.all); got != test.want {
			t.Errorf("unfinished: %q, want %q", got, test.want)
		}
	}
}
