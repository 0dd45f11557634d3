package audit_test

import (
	"testing"

	"github.com/flotilla-kube/flotilla/pkg/audit"
)

// TestCollected makes the garbage collector delete a ReplicaSet of a Deployment.
func TestCollected(t *testing.T) {
	deployment := object("Deployment", low, "shop")
	owned := object("ReplicaSet", low, "shop-1").of("apps/v1", deployment)
	collect := func(o jsonObject, group, resource string, version int) line {
		return does("delete", agent(a, nodes, 1), group, resource, o, version, 105).with("user", map[string]any{"username": collector})
	}
	made := func(lines ...line) []line {
		return append([]line{
			does("create", user, "apps", "deployments", deployment, 40, 40), does("create", by1, "apps", "replicasets", owned, 41, 41),
		}, lines...)
	}
	// The answer to a delete usually has no version.
	gone := collect(owned, "apps", "replicasets", 0)
	crd := object("CustomResourceDefinition", "", "boxes.example.com")
	box := object("Box", low, "b")
	content := object("ConfigMap", low, "content").of("example.com/v1", box)
	boxes := func(lines ...line) []line {
		return append([]line{
			does("create", user, "example.com", "boxes", box, 40, 40), does("create", user, "", "configmaps", content, 41, 41),
			collect(content, "", "configmaps", 0),
		}, lines...)
	}
	guilty := []audit.Kind{audit.OwnedDeleted}
	tests := map[string]sceneCase{
		"owned":                         {lines: made(gone), want: guilty, judged: 1},
		"owned, one identity":           {lines: made(gone.with("user", nil).with("userAgent", client+"/generic-garbage-collector flotilla (member="+a+"; shard="+nodes+"; term=1)")), want: guilty, judged: 1},
		"by another controller":         {lines: made(gone.with("user", map[string]any{"username": "system:serviceaccount:kube-system:deployment-controller"}))},
		"not by us":                     {lines: made(gone.with("userAgent", user))},
		"refused":                       {lines: made(gone.code(409))},
		"owner deleted":                 {lines: made(does("delete", user, "apps", "deployments", deployment, 0, 100), gone), judged: 1},
		"owner deleted after":           {lines: made(does("delete", user, "apps", "deployments", deployment, 0, 106), gone), want: guilty, judged: 1},
		"owner going":                   {lines: made(does("delete", user, "apps", "deployments", deployment.set("metadata", "deletionTimestamp", "x"), 100, 100), gone), judged: 1},
		"deletion not answered":         {lines: made(does("delete", user, "apps", "deployments", deployment, 0, 100).code(504), gone), judged: 1},
		"deletion refused":              {lines: made(does("delete", user, "apps", "deployments", deployment, 0, 100).code(409), gone), want: guilty, judged: 1},
		"deletion of another before it": {lines: made(does("delete", user, "apps", "deployments", deployment, 0, 30).code(504), gone), want: guilty, judged: 1},
		"owner made after": {lines: []line{
			does("create", by1, "apps", "replicasets", owned, 41, 41), does("create", user, "apps", "deployments", deployment, 120, 120), gone,
		}, judged: 1},
		"all may be deleted": {lines: made(request("deletecollection", user, "apps", "deployments", low, "", 100).code(500), gone), judged: 1},
		"all of another's":   {lines: made(request("deletecollection", user, "apps", "deployments", high, "", 100).code(500), gone), want: guilty, judged: 1},
		"owner is another": {lines: []line{
			does("create", user, "apps", "deployments", deployment, 40, 40),
			does("create", by1, "apps", "replicasets", object("ReplicaSet", low, "shop-1").of("apps/v1", object("Deployment", low, "old")), 41, 41), gone,
		}, judged: 1},
		"owner in another namespace": {lines: []line{
			does("create", user, "apps", "deployments", object("Deployment", high, "shop"), 40, 40), does("create", by1, "apps", "replicasets", owned, 41, 41), gone,
		}, judged: 1},
		"owner of another group": {lines: []line{
			does("create", user, "example.com", "deployments", deployment, 40, 40), does("create", by1, "apps", "replicasets", owned, 41, 41), gone,
		}, judged: 1},
		"adopted by one that exists": {lines: made(
			does("delete", user, "apps", "deployments", deployment, 0, 100),
			does("create", user, "apps", "deployments", object("Deployment", low, "new"), 101, 101),
			does("patch", by1, "apps", "replicasets", owned.of("apps/v1", object("Deployment", low, "new")), 102, 102), gone), want: guilty, judged: 1},
		"let go and adopted, logged first": {lines: append([]line{
			does("patch", by1, "apps", "replicasets", object("ReplicaSet", low, "shop-1").of("apps/v1", object("Deployment", low, "gone")), 102, 102)},
			made(gone)...), judged: 1},
		"pod":                   {lines: []line{collect(pod("p0"), "", "pods", 105)}, want: guilty, judged: 1},
		"resource":              {lines: boxes(), want: guilty, judged: 1},
		"resource that is gone": {lines: boxes(does("delete", user, "apiextensions.k8s.io", "customresourcedefinitions", crd, 0, 50)), judged: 1},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			report := check(t, append(test.lines, scene()...)...)
			requireKinds(t, report, test.want...)
			if report.Objects.Collected != test.judged {
				t.Errorf("%d collected judged, want %d; skipped %v", report.Objects.Collected, test.judged, report.Objects.Skipped)
			}
		})
	}
}
