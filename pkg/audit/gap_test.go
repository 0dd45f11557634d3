package audit_test

import (
	"testing"

	"github.com/flotilla-kube/flotilla/pkg/audit"
)

// TestObjectsAcrossAGap: the log lacks everything from second 30 to 95. What rests on what was
// there before is not convicted, and is with the whole log.
func TestObjectsAcrossAGap(t *testing.T) {
	more := func(name string, version int) line {
		return does("create", by1, "", "pods", pod(name), version, float64(version))
	}
	remove := does("delete", by1, "", "pods", pod("p0"), 105, 105)
	deployment := object("Deployment", low, "shop")
	owned := object("ReplicaSet", low, "shop-1").of("apps/v1", deployment)
	double := object("ReplicaSet", low, "shop-2").of("apps/v1", deployment)
	collected := does("delete", agent(a, nodes, 1), "apps", "replicasets", owned, 0, 105).with("user", map[string]any{"username": collector})
	makes := func(o jsonObject, resource string, version int) line {
		return does("create", by1, "apps", resource, o, version, float64(version))
	}
	statefulSet := object("StatefulSet", low, "db").set("spec", "replicas", 1).is(1, 1)
	ordinal := does("create", by1, "", "pods", object("Pod", low, "db-1").of("apps/v1", statefulSet), 105, 105)
	cron := object("CronJob", low, "nightly").set("status", "lastScheduleTime", "2026-01-01T00:00:00Z")
	job := func(name string, version int) line {
		return does("create", by1, "batch", "jobs", object("Job", low, name).of("batch/v1", cron).
			set("metadata", "annotations", map[string]any{"batch.kubernetes.io/cronjob-scheduled-timestamp": "2026-01-01T00:00:00Z"}), version, float64(version))
	}
	says := func(version int) line {
		return does("update", user, "batch", "cronjobs/status", cron, version, float64(version))
	}

	later := object("ReplicaSet", low, "api").set("spec", "replicas", 1).is(1, 1)
	its := object("Pod", low, "api-1").of("apps/v1", later).set("spec", "nodeName", machine).set("status", "phase", "Running")

	tests := map[string]struct {
		lines []line
		kind  audit.Kind
		// after is set if it is all known from after the gap.
		after bool
	}{
		"a pod too many":                 {lines: []line{more("p3", 101)}, kind: audit.DuplicatePod},
		"a pod beyond the ordinals":      {lines: []line{makes(statefulSet, "statefulsets", 26), ordinal}, kind: audit.DuplicatePod},
		"the same, and the owner is new": {lines: []line{makes(statefulSet, "statefulsets", 100), ordinal}, kind: audit.DuplicatePod, after: true},
		"a wanted pod deleted":           {lines: []line{remove}, kind: audit.WantedPodDeleted},
		"the same, and only the node is older": {lines: []line{
			makes(later, "replicasets", 97), does("create", by1, "", "pods", its, 98, 98), does("delete", by1, "", "pods", its, 140, 140),
		}, kind: audit.WantedPodDeleted},
		"an owned object collected":           {lines: []line{makes(deployment, "deployments", 26), makes(owned, "replicasets", 27), collected}, kind: audit.OwnedDeleted},
		"the same, and the owner is newer":    {lines: []line{makes(deployment, "deployments", 100), makes(owned, "replicasets", 101), collected}, kind: audit.OwnedDeleted, after: true},
		"a second ReplicaSet":                 {lines: []line{makes(owned, "replicasets", 27), makes(double, "replicasets", 105)}, kind: audit.DuplicateReplicaSet},
		"the same, both made later":           {lines: []line{makes(owned, "replicasets", 100), makes(double, "replicasets", 105)}, kind: audit.DuplicateReplicaSet, after: true},
		"a second Job":                        {lines: []line{job("n-1", 26), says(27), job("n-2", 130)}, kind: audit.DuplicateJob},
		"the same, and the CronJob says more": {lines: []line{job("n-1", 26), says(97), job("n-2", 130)}, kind: audit.DuplicateJob, after: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			lines := append(scene(), test.lines...)
			whole := check(t, append(lines, created(beats(b, 29, 29)), beats(b, 96, 95))...)
			requireKinds(t, whole, test.kind)
			lacking := check(t, append(lines, created(beats(b, 29, 29)), beats(b, 96, 95).on(95))...)
			requireDoubts(t, lacking, audit.LogGap)
			if test.after {
				requireKinds(t, lacking, test.kind)
				return
			}
			requireKinds(t, lacking)
			if n := lacking.Objects.Skipped["a part of the log is missing: "+string(test.kind)]; n != 1 {
				t.Errorf("skipped %v, want one for the gap", lacking.Objects.Skipped)
			}
		})
	}
}
