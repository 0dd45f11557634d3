package audit_test

import (
	"testing"

	"github.com/flotilla-kube/flotilla/pkg/audit"
)

// TestDeletions deletes pods of an owner that has exactly the pods it wants.
func TestDeletions(t *testing.T) {
	remove := func(p jsonObject, version int, second float64) line {
		return does("delete", by1, "", "pods", p, version, second)
	}
	wanted := remove(pod("p0"), 105, 105)
	guilty := []audit.Kind{audit.WantedPodDeleted}
	scaled := func(replicas, generation, seen, version int, second float64) line {
		return does("update", user, "apps", "replicasets", set.set("spec", "replicas", replicas).is(generation, seen), version, second)
	}
	node := object("Node", "", machine)
	tainted := node.set("spec", "taints", []any{map[string]any{"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}})
	now := pod("p0").set("metadata", "deletionGracePeriodSeconds", 0)
	stray := object("Pod", low, "stray")
	namespace := object("Namespace", low, low).set("metadata", "namespace", "")
	unknown := does("create", user, "", "pods", stray, 26, 10).code(500)
	asked := unknown.with("requestObject", pod("p9"))
	counted := func(pods, version int, second float64) line {
		return does("update", by1, "apps", "replicasets/status", set.set("status", "replicas", pods), version, second)
	}
	tests := map[string]sceneCase{
		"nothing":               {},
		"wanted":                {lines: []line{wanted}, want: guilty, judged: 1},
		"wanted, twice":         {lines: []line{wanted, remove(pod("p0"), 105, 106)}, want: guilty, judged: 1},
		"not by us":             {lines: []line{wanted.with("userAgent", user)}},
		"refused":               {lines: []line{wanted.code(409)}},
		"nobody knows":          {lines: []line{wanted.code(500)}},
		"metadata alone":        {lines: []line{remove(jsonObject{"kind": "PartialObjectMetadata", "metadata": pod("p0")["metadata"]}, 105, 105)}},
		"nobody's":              {lines: []line{does("create", user, "", "pods", stray, 100, 100), remove(stray, 105, 105)}},
		"of an owner not known": {lines: []line{does("create", user, "", "pods", stray.of("apps/v1", object("ReplicaSet", low, "x")), 100, 100), remove(stray, 105, 105)}},

		"it had finished": {lines: []line{remove(pod("p0").set("status", "phase", "Failed"), 105, 105)}, judged: 1},
		"it terminated":   {lines: []line{does("delete", user, "", "pods", pod("p0"), 104, 104), wanted}, judged: 1},
		// The node's agent removes what is being deleted, perhaps before the deletion is answered.
		"it is removed once asked for": {
			lines: []line{remove(pod("p0"), 105, 105.01).arrived(105), does("delete", user, "", "pods", now, 106, 105.02).arrived(105.005)}, want: guilty, judged: 1,
		},
		"it was being deleted": {
			lines: []line{remove(pod("p0"), 105, 105.01).arrived(105), does("delete", user, "", "pods", now, 106, 105.02).arrived(104.99)}, judged: 1,
		},
		"two delete it at once": {
			lines: []line{remove(now, 105, 105.01).arrived(105), remove(now, 106, 105.02).arrived(105.005)}, want: guilty, judged: 1,
		},
		"it was evicted":      {lines: []line{does("create", user, "", "pods/eviction", pod("p0"), 0, 104), wanted}, judged: 1},
		"another was evicted": {lines: []line{does("create", user, "", "pods/eviction", pod("p1"), 0, 104), wanted}, want: guilty, judged: 1},
		"it has devices":      {lines: []line{remove(pod("p0").set("spec", "resourceClaims", []any{map[string]any{"name": "gpu"}}), 105, 105)}, judged: 1},

		"owner deleted": {lines: []line{does("delete", user, "apps", "replicasets", set, 0, 104), wanted}, judged: 1},
		"owner's change is lost with a server's power": {
			lines: []line{wanted, does("update", user, "apps", "replicasets/status", set.set("spec", "replicas", 2).is(2, 2), 106, 106)}, judged: 1,
		},
		"owner's next change is in the log": {
			lines: []line{wanted, scaled(2, 2, 1, 106, 106)}, want: guilty, judged: 1,
		},
		"owner deleted after": {lines: []line{does("delete", user, "apps", "replicasets", set, 0, 106), wanted}, want: guilty, judged: 1},
		"owner is going":      {lines: []line{does("patch", user, "apps", "replicasets", set.set("metadata", "deletionTimestamp", "x"), 104, 104), wanted}, judged: 1},
		"owner recreated": {
			lines: []line{
				does("create", user, "apps", "replicasets", object("ReplicaSet", low, "old").set("spec", "replicas", 1), 100, 100),
				does("delete", user, "apps", "replicasets", object("ReplicaSet", low, "old"), 0, 104), wanted,
			},
			want: guilty, judged: 1,
		},
		"namespace deleted":        {lines: []line{does("delete", user, "", "namespaces", namespace, 104, 104), wanted}, judged: 1},
		"namespace deleted after":  {lines: []line{does("delete", user, "", "namespaces", namespace, 106, 106), wanted}, want: guilty, judged: 1},
		"namespace deleted before": {lines: []line{does("delete", user, "", "namespaces", namespace, 15, 0.5), wanted}, want: guilty, judged: 1},

		"scaled down": {lines: []line{scaled(2, 2, 1, 104, 104), wanted}, judged: 1},
		"scaled down by too few": {lines: []line{scaled(2, 2, 1, 104, 104), scaled(2, 2, 2, 120, 180), wanted, remove(pod("p1"), 121, 181)},
			want: guilty, judged: 2},
		"scaled down and up": {lines: []line{scaled(2, 2, 1, 102, 102), scaled(3, 3, 1, 104, 104), wanted}, judged: 1},
		"scaled down and up and seen long ago": {
			lines: []line{scaled(2, 2, 1, 100, 40), scaled(3, 3, 1, 101, 50), scaled(3, 3, 3, 102, 60), wanted}, want: guilty, judged: 1,
		},
		"one too many": {lines: []line{does("create", user, "", "pods", pod("extra"), 100, 100), wanted}, judged: 1},
		"one too many, which went": {
			lines: []line{does("create", user, "", "pods", pod("extra"), 100, 100), does("delete", user, "", "pods", pod("extra"), 101, 101), wanted}, judged: 1,
		},
		"one too many, who went long ago": {
			lines: []line{does("create", user, "", "pods", pod("extra"), 100, 40), does("delete", user, "", "pods", pod("extra"), 101, 50), wanted},
			want:  guilty, judged: 1,
		},
		"one replaced": {
			lines: []line{does("delete", user, "", "pods", pod("p1"), 101, 101), does("create", by1, "", "pods", pod("p3"), 102, 102), wanted}, want: guilty, judged: 1,
		},
		"perhaps one too many":       {lines: []line{does("create", user, "", "pods", stray, 100, 100).code(500), wanted}, judged: 1},
		"perhaps one more of it":     {lines: []line{does("create", user, "", "pods", stray, 100, 100).code(500).with("requestObject", pod("p9")), wanted}, judged: 1},
		"perhaps one more of nobody": {lines: []line{does("create", user, "", "pods", stray, 100, 100).code(500).with("requestObject", stray), wanted}, judged: 1},
		"perhaps one more of another": {
			lines: []line{does("create", user, "", "pods", stray, 100, 100).code(500).with("requestObject", stray.of("apps/v1", object("ReplicaSet", low, "x"))), wanted},
			want:  guilty, judged: 1,
		},
		"perhaps one too many long ago":            {lines: []line{unknown, counted(3, 100, 80), wanted}, want: guilty, judged: 1},
		"perhaps one more of it long ago":          {lines: []line{asked, counted(3, 100, 80), wanted}, want: guilty, judged: 1},
		"perhaps one too many, not counted since":  {lines: []line{unknown, wanted}, judged: 1},
		"perhaps one too many, counted":            {lines: []line{unknown, counted(4, 100, 80), wanted}, judged: 1},
		"perhaps one more of it, counted":          {lines: []line{asked, counted(4, 100, 80), wanted}, judged: 1},
		"perhaps one more of it, counted too soon": {lines: []line{asked, counted(3, 100, 65), wanted}, judged: 1},
		"perhaps one more of it, counted too soon, and scaled": {
			lines: []line{
				asked, counted(3, 100, 65), wanted,
				does("update", user, "apps", "replicasets/scale", object("Scale", low, "web").set("metadata", "uid", "ReplicaSet-web").set("spec", "replicas", 3), 101, 80),
			},
			judged: 1,
		},
		"perhaps one more of it, counted later": {lines: []line{asked, counted(2, 106, 106), wanted}, judged: 1},
		"perhaps one more of it, and another's write has the old count": {
			lines: []line{asked, does("patch", user, "apps", "replicasets", set.set("status", "replicas", 3), 100, 80), wanted}, judged: 1,
		},
		"perhaps one more of it, counted while one was replaced": {
			lines: []line{
				asked, does("delete", user, "", "pods", pod("p1"), 100, 60), does("create", by1, "", "pods", pod("p3"), 101, 61), counted(3, 102, 80), wanted,
			},
			judged: 1,
		},
		"perhaps one more of it, counted instead of one that went": {
			lines: []line{
				asked, does("delete", user, "", "pods", pod("p1"), 100, 79), counted(3, 101, 80), does("create", by1, "", "pods", pod("p3"), 102, 81), wanted,
			},
			judged: 1,
		},
		"perhaps one more of it, counted while one was adopted": {
			lines: []line{
				asked, does("delete", user, "", "pods", pod("p1"), 100, 40), does("create", user, "", "pods", object("Pod", low, "p3"), 101, 45),
				does("patch", by1, "", "pods", pod("p3"), 102, 79), counted(3, 103, 80), wanted,
			},
			judged: 1,
		},
		"perhaps one more of it, which was seen, counted, and went": {
			lines: []line{
				asked, does("patch", user, "", "pods/status", pod("p9"), 26, 20), counted(4, 100, 80), does("delete", user, "", "pods", pod("p9"), 101, 81),
				remove(pod("p0"), 121, 181),
			},
			want: guilty, judged: 1,
		},
		"perhaps one more of it, counted while another was seen": {
			lines: []line{
				asked, does("patch", user, "", "pods/status", pod("p9"), 100, 75), counted(4, 101, 80), does("delete", user, "", "pods", pod("p9"), 102, 81),
				remove(pod("p0"), 121, 181),
			},
			judged: 1,
		},
		"perhaps scaled down":          {lines: []line{scaled(2, 2, 1, 100, 100).code(504), wanted}, judged: 1},
		"perhaps scaled down long ago": {lines: []line{scaled(2, 2, 1, 26, 10).code(504), scaled(3, 3, 3, 60, 60), wanted}, want: guilty, judged: 1},
		"perhaps scaled down, and not seen since": {
			lines: []line{scaled(2, 2, 1, 26, 10).code(504), scaled(3, 3, 3, 27, 30), wanted}, judged: 1,
		},

		"metadata changed alone": {
			lines: []line{does("patch", user, "apps", "replicasets", object("PartialObjectMetadata", low, "web").set("metadata", "uid", "ReplicaSet-web"), 100, 50), wanted},
			want:  guilty, judged: 1,
		},
		"node is new": {
			lines: []line{
				does("create", user, "", "nodes", object("Node", "", "node-009"), 100, 95), does("delete", user, "", "pods", pod("p1"), 90, 60),
				does("create", user, "", "pods", pod("p9").set("spec", "nodeName", "node-009"), 101, 100),
				remove(pod("p9").set("spec", "nodeName", "node-009"), 105, 105),
			},
			want: guilty, judged: 1,
		},
		"node tainted":          {lines: []line{does("patch", user, "", "nodes", tainted, 104, 104), wanted}, judged: 1},
		"node was tainted":      {lines: []line{does("patch", user, "", "nodes", tainted, 102, 102), does("patch", user, "", "nodes", node, 104, 104), wanted}, judged: 1},
		"node tainted long ago": {lines: []line{does("patch", user, "", "nodes", tainted, 101, 30), does("patch", user, "", "nodes", node, 102, 40), wanted}, want: guilty, judged: 1},
		"node tainted after":    {lines: []line{does("patch", user, "", "nodes", tainted, 106, 106), wanted}, want: guilty, judged: 1},
		"node deleted":          {lines: []line{does("delete", user, "", "nodes", node, 0, 50), wanted}, judged: 1},
		"another node deleted":  {lines: []line{does("delete", user, "", "nodes", object("Node", "", "node-001"), 0, 50), wanted}, want: guilty, judged: 1},
		"node not known":        {lines: []line{remove(pod("p0").set("spec", "nodeName", "node-007"), 105, 105)}, judged: 1},
	}
	requireScenes(t, tests)
}

func requireScenes(t *testing.T, tests map[string]sceneCase) {
	t.Helper()
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			report := check(t, append(test.lines, scene()...)...)
			requireKinds(t, report, test.want...)
			if report.Objects.Deletes != test.judged {
				t.Errorf("%d deletes judged, want %d; skipped %v", report.Objects.Deletes, test.judged, report.Objects.Skipped)
			}
		})
	}
}

// TestStatefulDeletions deletes a pod of a StatefulSet of two.
func TestStatefulDeletions(t *testing.T) {
	db := object("StatefulSet", low, "db").set("spec", "replicas", 2).set("status", "updateRevision", "r1").is(1, 1)
	member := func(name, revision string) jsonObject {
		return object("Pod", low, name).of("apps/v1", db).set("spec", "nodeName", machine).set("status", "phase", "Running").
			set("metadata", "labels", map[string]any{"controller-revision-hash": revision})
	}
	guilty := []audit.Kind{audit.WantedPodDeleted}
	with := func(lines ...line) []line {
		return append([]line{
			does("create", user, "apps", "statefulsets", db, 40, 40),
			does("create", by1, "", "pods", member("db-0", "r1"), 41, 41), does("create", by1, "", "pods", member("db-1", "r1"), 42, 42),
		}, lines...)
	}
	set := func(o jsonObject, version int, second float64) line {
		return does("update", user, "apps", "statefulsets", o, version, second)
	}
	gone := func(p jsonObject) line { return does("delete", by1, "", "pods", p, 105, 105) }
	requireScenes(t, map[string]sceneCase{
		"wanted":               {lines: with(gone(member("db-1", "r1"))), want: guilty, judged: 1},
		"scaled down":          {lines: with(set(db.set("spec", "replicas", 1).is(2, 2), 100, 100), gone(member("db-1", "r1"))), judged: 1},
		"scaled down below":    {lines: with(set(db.set("spec", "replicas", 1).is(2, 2), 50, 50), gone(member("db-0", "r1"))), want: guilty, judged: 1},
		"scaled down long ago": {lines: with(set(db.set("spec", "replicas", 1).is(2, 2), 50, 50), gone(member("db-1", "r1"))), judged: 1},
		"scaled by scale, not seen": {lines: with(
			does("update", user, "apps", "statefulsets/scale", object("Scale", low, "db").set("metadata", "uid", "StatefulSet-db").set("spec", "replicas", 3), 50, 50),
			gone(member("db-1", "r1"))), judged: 1},
		"rolled out":      {lines: with(set(db.is(2, 2).set("status", "updateRevision", "r2"), 50, 50), gone(member("db-1", "r1"))), judged: 1},
		"rolled out, new": {lines: with(set(db.is(2, 2).set("status", "updateRevision", "r2"), 50, 50), gone(member("db-1", "r2"))), want: guilty, judged: 1},
		"not seen yet":    {lines: with(set(db.is(2, 1), 50, 50), gone(member("db-1", "r1"))), judged: 1},
		"pending":         {lines: with(gone(member("db-1", "r1").set("status", "phase", "Pending"))), judged: 1},
	})
}

// TestDaemonDeletions deletes the pod of a DaemonSet.
func TestDaemonDeletions(t *testing.T) {
	ds := object("DaemonSet", low, "agent").is(1, 1).set("metadata", "annotations", map[string]any{"deprecated.daemonset.template.generation": "1"})
	daemon := func(name, template string) jsonObject {
		return object("Pod", low, name).of("apps/v1", ds).set("spec", "nodeName", machine).set("status", "phase", "Running").
			set("metadata", "labels", map[string]any{"pod-template-generation": template})
	}
	node := object("Node", "", machine)
	taint := func(key, effect string) jsonObject {
		return node.set("spec", "taints", []any{map[string]any{"key": key, "effect": effect}})
	}
	guilty := []audit.Kind{audit.WantedPodDeleted}
	gone := does("delete", by1, "", "pods", daemon("d0", "1"), 105, 105)
	with := func(lines ...line) []line {
		return append([]line{does("create", user, "apps", "daemonsets", ds, 40, 40), does("create", by1, "", "pods", daemon("d0", "1"), 41, 41)}, lines...)
	}
	requireScenes(t, map[string]sceneCase{
		"wanted":          {lines: with(gone), want: guilty, judged: 1},
		"rolled out":      {lines: with(does("update", user, "apps", "daemonsets", ds.is(2, 2), 50, 50), gone), judged: 1},
		"of an old one":   {lines: with(does("delete", by1, "", "pods", daemon("d0", "0"), 105, 105)), judged: 1},
		"node relabelled": {lines: with(does("patch", user, "", "nodes", node.set("metadata", "labels", map[string]any{"x": "y"}), 50, 50), gone), judged: 1},
		"node tainted":    {lines: with(does("patch", user, "", "nodes", taint("dedicated", "NoSchedule"), 50, 50), gone), judged: 1},
		"node under load": {lines: with(does("patch", user, "", "nodes", taint("node.kubernetes.io/memory-pressure", "NoSchedule"), 50, 50), gone), want: guilty, judged: 1},
		"two on the node": {lines: with(does("create", by1, "", "pods", daemon("d1", "1"), 60, 60), gone), judged: 1},
		"one after another": {
			lines: with(does("create", by1, "", "pods", daemon("old", "1"), 40, 40.5), does("delete", user, "", "pods", daemon("old", "1"), 40, 40.7), gone),
			want:  guilty, judged: 1,
		},
	})
}
