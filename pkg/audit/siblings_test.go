package audit_test

import (
	"maps"
	"testing"

	"github.com/flotilla-kube/flotilla/pkg/audit"
)

// siblingCase adds lines to the scene. judged counts, for all three rules, the objects that were
// compared with others.
type siblingCase struct {
	lines  []line
	want   []audit.Kind
	judged int
}

func requireSiblings(t *testing.T, tests map[string]siblingCase) {
	t.Helper()
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			report := check(t, append(test.lines, scene()...)...)
			requireKinds(t, report, test.want...)
			if got := report.Objects.ReplicaSets + report.Objects.Jobs + report.Objects.EndpointSlices; got != test.judged {
				t.Errorf("%d judged, want %d; skipped %v", got, test.judged, report.Objects.Skipped)
			}
		})
	}
}

// TestDuplicateReplicaSets creates another ReplicaSet for a Deployment that has one.
func TestDuplicateReplicaSets(t *testing.T) {
	shop := object("Deployment", low, "shop")
	replicaSet := func(name, image string, owner jsonObject) jsonObject {
		return object("ReplicaSet", low, name).of("apps/v1", owner).set("spec", "template", map[string]any{
			"metadata": map[string]any{"labels": map[string]any{"app": "shop", "pod-template-hash": name}}, "spec": map[string]any{"image": image},
		})
	}
	made := func(o jsonObject, version int) line {
		return does("create", by1, "apps", "replicasets", o, version, float64(version))
	}
	first := made(replicaSet("shop-1", "v1", shop), 40)
	second := made(replicaSet("shop-2", "v1", shop), 50)
	remove := does("delete", user, "apps", "replicasets", replicaSet("shop-1", "v1", shop), 0, 45)
	guilty := []audit.Kind{audit.DuplicateReplicaSet}
	requireSiblings(t, map[string]siblingCase{
		"one":                     {lines: []line{first}, judged: 1},
		"two":                     {lines: []line{first, second}, want: guilty, judged: 2},
		"the first by a user":     {lines: []line{first.with("userAgent", user), second}, want: guilty, judged: 1},
		"the second by a user":    {lines: []line{first, second.with("userAgent", user)}, judged: 1},
		"of another template":     {lines: []line{first, made(replicaSet("shop-2", "v2", shop), 50)}, judged: 2},
		"of another Deployment":   {lines: []line{first, made(replicaSet("shop-2", "v1", object("Deployment", low, "api")), 50)}, judged: 2},
		"refused":                 {lines: []line{first, second.code(409)}, judged: 1},
		"the first was deleted":   {lines: []line{first, remove, second}, judged: 2},
		"it may have been":        {lines: []line{first, remove.code(504), second}, judged: 2},
		"it was deleted later":    {lines: []line{first, does("delete", user, "apps", "replicasets", replicaSet("shop-1", "v1", shop), 0, 55), second}, want: guilty, judged: 2},
		"the first was let go":    {lines: []line{first, does("patch", by1, "apps", "replicasets", object("ReplicaSet", low, "shop-1"), 45, 45), second}, judged: 2},
		"the first begins before": {lines: []line{does("update", by1, "apps", "replicasets", replicaSet("shop-1", "v1", shop), 40, 40), second}, judged: 1},
	})
}

// TestDuplicateJobs creates a CronJob's Job of noon again, after the first one has gone.
func TestDuplicateJobs(t *testing.T) {
	const noon = "2026-07-01T12:00:00Z"
	cron := object("CronJob", low, "report")
	job := func(name, due string) jsonObject {
		return object("Job", low, name).of("batch/v1", cron).set("metadata", "annotations", map[string]any{"batch.kubernetes.io/cronjob-scheduled-timestamp": due})
	}
	made := func(o jsonObject, version int) line {
		return does("create", by1, "batch", "jobs", o, version, float64(version))
	}
	told := func(due string, version int) line {
		return does("update", by1, "batch", "cronjobs/status", cron.set("status", "lastScheduleTime", due), version, float64(version))
	}
	first, second := made(job("report-1", noon), 40), made(job("report-1b", noon), 90)
	remove := does("delete", user, "batch", "jobs", job("report-1", noon), 0, 45)
	guilty := []audit.Kind{audit.DuplicateJob}
	handedOver := []line{lease(lower, "", 1, 85, 85), lease(lower, b, 2, 86, 86)}
	byNext := made(job("report-1b", noon), 90).with("userAgent", agent(b, lower, 2))
	requireSiblings(t, map[string]siblingCase{
		"one":                        {lines: []line{first, told(noon, 41)}, judged: 1},
		"again":                      {lines: []line{first, told(noon, 41), remove, second}, want: guilty, judged: 2},
		"of another time":            {lines: []line{first, told(noon, 41), remove, made(job("report-2", "2026-07-01T12:01:00Z"), 90)}, judged: 2},
		"nobody had said so":         {lines: []line{first, told("2026-07-01T11:59:00Z", 39), remove, second}, judged: 2},
		"it was said just now":       {lines: []line{first, told(noon, 80), remove, second}, judged: 2},
		"it was said by another":     {lines: append(handedOver, first, told(noon, 80), remove, byNext), want: guilty, judged: 2},
		"it was said too late":       {lines: []line{first, remove, second, told(noon, 91)}, judged: 2},
		"by a user":                  {lines: []line{first, told(noon, 41), remove, second.with("userAgent", user)}, judged: 1},
		"the CronJob says otherwise": {lines: []line{first, told(noon, 41), remove, told("2026-07-01T11:00:00Z", 50).with("userAgent", user), second}, judged: 2},
	})
}

// TestDuplicateSlices creates a second EndpointSlice for a Service.
func TestDuplicateSlices(t *testing.T) {
	service := object("Service", low, "shop")
	endpoint := func(ip string) any {
		return map[string]any{"addresses": []any{ip}, "targetRef": map[string]any{"uid": "pod-" + ip}, "conditions": map[string]any{"ready": true}}
	}
	slice := func(name string, port int, ips ...string) jsonObject {
		o := object("EndpointSlice", low, name).of("v1", service).set("metadata", "labels", map[string]any{
			"kubernetes.io/service-name": "shop", "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
		})
		var all []any
		for _, ip := range ips {
			all = append(all, endpoint(ip))
		}
		o = maps.Clone(o)
		o["addressType"], o["endpoints"], o["ports"] = "IPv4", all, []any{map[string]any{"port": port}}
		return o
	}
	v6 := func(o jsonObject) jsonObject {
		o = maps.Clone(o)
		o["addressType"] = "IPv6"
		return o
	}
	const group, resource = "discovery.k8s.io", "endpointslices"
	made := func(o jsonObject, version int) line {
		return does("create", by1, group, resource, o, version, float64(version))
	}
	wrote := func(o jsonObject, version int) line {
		return does("update", by1, group, resource, o, version, float64(version))
	}
	first, second := made(slice("s1", 80, "10.0.0.1", "10.0.0.2"), 40), made(slice("s2", 80, "10.0.0.3", "10.0.0.2"), 90)
	guilty := []audit.Kind{audit.DuplicateSlice}
	requireSiblings(t, map[string]siblingCase{
		"one":                          {lines: []line{first}, judged: 1},
		"with the same endpoint":       {lines: []line{first, second}, want: guilty, judged: 2},
		"with others":                  {lines: []line{first, made(slice("s2", 80, "10.0.0.3"), 90)}, judged: 2},
		"both empty":                   {lines: []line{made(slice("s1", 80), 40), made(slice("s2", 80), 90)}, want: guilty, judged: 2},
		"of another port":              {lines: []line{first, made(slice("s2", 81, "10.0.0.2"), 90)}, judged: 2},
		"of another address type":      {lines: []line{first, made(v6(slice("s2", 80, "10.0.0.2")), 90)}, judged: 2},
		"it had been taken out":        {lines: []line{first, wrote(slice("s1", 80, "10.0.0.1"), 50), second}, judged: 2},
		"it was taken out after":       {lines: []line{first, second, wrote(slice("s1", 80, "10.0.0.1"), 91)}, want: guilty, judged: 2},
		"it had been put in":           {lines: []line{made(slice("s1", 80, "10.0.0.1"), 40), wrote(slice("s1", 80, "10.0.0.2"), 50), second}, want: guilty, judged: 2},
		"it may have been taken out":   {lines: []line{first, wrote(slice("s1", 80, "10.0.0.1"), 50).code(504), second}, judged: 2},
		"it may have been, and wasn't": {lines: []line{first, wrote(slice("s1", 80), 45).code(504), wrote(slice("s1", 80, "10.0.0.2"), 80), second}, want: guilty, judged: 2},
		"the first was deleted":        {lines: []line{first, does("delete", user, group, resource, slice("s1", 80), 0, 50), second}, judged: 2},
		"by a user":                    {lines: []line{first, second.with("userAgent", user)}, judged: 1},
		"of nobody":                    {lines: []line{first, made(slice("s2", 80, "10.0.0.2").set("metadata", "ownerReferences", nil), 90)}, judged: 1},
	})
}
