package main

import (
	"fmt"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"
)

// The kinds of work, in the order in which they are shown.
const (
	accountsWork    = "accounts"
	deploymentsWork = "deployments"
	storesWork      = "statefulsets"
	agentsWork      = "daemonsets"
	jobsWork        = "jobs"
	cronWork        = "cronjobs"
	endpointsWork   = "endpoints"
	budgetsWork     = "budgets"
	quotasWork      = "quotas"
)

// work is the controllers' progress with one kind of work.
type work struct {
	kind        string
	done, total int
	// missing says what the first unfinished one lacks.
	missing string
}

// String returns "<kind> <done>/<total>".
func (w work) String() string { return fmt.Sprintf("%s %d/%d", w.kind, w.done, w.total) }

// checks says for each kind whether a tenant has it, and what it lacks; empty if it is done.
var checks = []struct {
	kind  string
	has   func(tenant) bool
	lacks func(tenant, view) string
}{
	{accountsWork, always, lacksAccounts},
	{deploymentsWork, always, lacksDeployment},
	{storesWork, func(t tenant) bool { return t.store }, lacksStore},
	{agentsWork, func(t tenant) bool { return t.agent }, lacksAgent},
	{jobsWork, func(t tenant) bool { return t.job }, lacksJob},
	{cronWork, func(t tenant) bool { return t.batch }, lacksRun},
	{endpointsWork, always, lacksEndpoints},
	{budgetsWork, always, lacksBudget},
	{quotasWork, always, lacksQuota},
}

func always(tenant) bool { return true }

// progress returns the progress of these tenants' work, for each kind.
func progress(tenants []tenant, v view) []work {
	var all []work
	for _, check := range checks {
		w := work{kind: check.kind}
		for _, t := range tenants {
			if !check.has(t) {
				continue
			}
			w.total++
			lacks := check.lacks(t, v)
			if lacks == "" {
				w.done++
			} else if w.missing == "" {
				w.missing = t.namespace + ": " + lacks
			}
		}
		all = append(all, w)
	}
	return all
}

// progressOf returns the progress of one kind as a string.
func progressOf(kind string, all []work) string {
	for _, w := range all {
		if w.kind == kind {
			return w.String()
		}
	}
	return ""
}

// doneWith returns nil when all work of these kinds is done, else an error that says what is
// missing.
func doneWith(all []work, kinds ...string) error {
	var missing []string
	for _, w := range all {
		if slices.Contains(kinds, w.kind) && w.done < w.total {
			missing = append(missing, fmt.Sprintf("%s (%s)", w, w.missing))
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return fmt.Errorf("%s", strings.Join(missing, "; "))
}

// unfinished lists the unfinished work once any has begun.
func unfinished(all []work) string {
	var undone []string
	begun := false
	for _, w := range all {
		begun = begun || w.done > 0
		if w.done < w.total {
			undone = append(undone, w.String())
		}
	}
	switch {
	case len(undone) == 0:
		return "all done"
	case !begun:
		return "none yet"
	default:
		return strings.Join(undone, ", ")
	}
}

func lacksAccounts(t tenant, v view) string {
	if _, ok := find(v.accounts, t.namespace, "default"); !ok {
		return "no service account default"
	}
	if _, ok := find(v.configMaps, t.namespace, rootCA); !ok {
		return "no ConfigMap " + rootCA
	}
	return ""
}

func lacksDeployment(t tenant, v view) string {
	d, ok := find(v.deployments, t.namespace, appName)
	if !ok {
		return "no Deployment"
	}
	s := d.Status
	switch {
	case ptr.Deref(d.Spec.Replicas, 0) != t.replicas || d.Spec.Template.Annotations[versionAnnotation] != t.version:
		return "the Deployment has not been changed"
	case s.ObservedGeneration != d.Generation:
		return "the Deployment's change has not been seen"
	case s.UpdatedReplicas != t.replicas || s.AvailableReplicas != t.replicas || s.Replicas != t.replicas:
		return fmt.Sprintf("%d of %d pods available, %d updated, %d in all", s.AvailableReplicas, t.replicas, s.UpdatedReplicas, s.Replicas)
	default:
		return ""
	}
}

func lacksStore(t tenant, v view) string {
	s, ok := find(v.statefulSets, t.namespace, storeName)
	switch {
	case !ok:
		return "no StatefulSet"
	case s.Status.ObservedGeneration != s.Generation || s.Status.AvailableReplicas != fewReplicas || s.Status.UpdatedReplicas != fewReplicas:
		return fmt.Sprintf("%d of %d pods available", s.Status.AvailableReplicas, fewReplicas)
	default:
		return ""
	}
}

func lacksAgent(t tenant, v view) string {
	s, ok := find(v.daemonSets, t.namespace, agentName)
	switch {
	case !ok:
		return "no DaemonSet"
	case s.Status.ObservedGeneration != s.Generation || s.Status.DesiredNumberScheduled == 0:
		return "the DaemonSet has not been seen"
	case s.Status.NumberAvailable != s.Status.DesiredNumberScheduled:
		return fmt.Sprintf("%d of %d pods available", s.Status.NumberAvailable, s.Status.DesiredNumberScheduled)
	default:
		return ""
	}
}

func lacksJob(t tenant, v view) string {
	job, ok := find(v.jobs, t.namespace, jobName)
	if !ok {
		return "no Job"
	}
	for _, c := range job.Status.Conditions {
		if c.Type == batchv1.JobComplete && c.Status == corev1.ConditionTrue {
			return ""
		}
	}
	return fmt.Sprintf("%d of %d pods have succeeded", job.Status.Succeeded, ptr.Deref(job.Spec.Completions, 1))
}

func lacksRun(t tenant, v view) string {
	cron, ok := find(v.cronJobs, t.namespace, cronName)
	switch {
	case !ok:
		return "no CronJob"
	case cron.Status.LastSuccessfulTime == nil:
		return "the CronJob has not run"
	default:
		return ""
	}
}

func lacksEndpoints(t tenant, v view) string {
	ready := int32(0)
	for _, slice := range v.slices {
		if slice.Namespace != t.namespace || slice.Labels[discoveryv1.LabelServiceName] != appName {
			continue
		}
		for _, endpoint := range slice.Endpoints {
			if ptr.Deref(endpoint.Conditions.Ready, false) {
				ready++
			}
		}
	}
	if ready != t.replicas {
		return fmt.Sprintf("%d of %d endpoints ready", ready, t.replicas)
	}
	return ""
}

func lacksBudget(t tenant, v view) string {
	b, ok := find(v.budgets, t.namespace, appName)
	switch {
	case !ok:
		return "no PodDisruptionBudget"
	case b.Status.ObservedGeneration != b.Generation || b.Status.CurrentHealthy != t.replicas || b.Status.DisruptionsAllowed != t.replicas-1:
		return fmt.Sprintf("%d of %d pods healthy, %d disruptions allowed", b.Status.CurrentHealthy, t.replicas, b.Status.DisruptionsAllowed)
	default:
		return ""
	}
}

// lacksQuota compares the quota's count with the pods that it counts: those that have not ended.
func lacksQuota(t tenant, v view) string {
	quota, ok := find(v.quotas, t.namespace, quotaName)
	if !ok {
		return "no ResourceQuota"
	}
	pods := int64(0)
	for _, pod := range v.pods {
		if pod.Namespace == t.namespace && pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed {
			pods++
		}
	}
	used, counted := quota.Status.Used[corev1.ResourcePods]
	if !counted || used.Value() != pods {
		return fmt.Sprintf("the quota counts %d pods, there are %d", used.Value(), pods)
	}
	return ""
}
