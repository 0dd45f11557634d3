package audit_test

import (
	"testing"

	"github.com/flotilla-kube/flotilla/pkg/audit"
)

// TestDuplicates adds one or two pods to a ReplicaSet that has all it wants.
func TestDuplicates(t *testing.T) {
	more := func(name string, version int) line {
		return does("create", by1, "", "pods", pod(name), version, float64(version))
	}
	scaled := func(replicas, generation, seen, version int) line {
		return does("update", user, "apps", "replicasets", set.set("spec", "replicas", replicas).is(generation, seen), version, float64(version))
	}
	status := func(replicas, generation, seen, version int) line {
		return does("update", user, "apps", "replicasets/status", set.set("spec", "replicas", replicas).is(generation, seen), version, float64(version))
	}
	guilty := []audit.Kind{audit.DuplicatePod}
	now := pod("p0").set("metadata", "deletionGracePeriodSeconds", 0)
	scale := object("Scale", low, "web").set("metadata", "uid", "ReplicaSet-web")
	statefulSet := object("StatefulSet", low, "db").set("spec", "replicas", 2).is(1, 1)
	member := func(name string, version int) line {
		return does("create", by1, "", "pods", object("Pod", low, name).of("apps/v1", statefulSet), version, float64(version))
	}
	stateful := func(lines ...line) []line {
		return append([]line{does("create", user, "apps", "statefulsets", statefulSet, 90, 90), member("db-0", 91), member("db-1", 92)}, lines...)
	}
	job := object("Job", low, "sum").set("spec", "parallelism", 2)
	worker := func(name string, version int) line {
		return does("create", by1, "", "pods", object("Pod", low, name).of("batch/v1", job), version, float64(version))
	}
	jobs := func(lines ...line) []line {
		return append([]line{does("create", user, "batch", "jobs", job, 90, 90), worker("s0", 91), worker("s1", 92)}, lines...)
	}
	tests := map[string]sceneCase{
		"nothing":     {judged: 3},
		"one more":    {lines: []line{more("p3", 101)}, want: guilty, judged: 4},
		"two more":    {lines: []line{more("p3", 101), more("p4", 102)}, want: []audit.Kind{audit.DuplicatePod, audit.DuplicatePod}, judged: 5},
		"not by us":   {lines: []line{more("p3", 101).with("userAgent", user)}, judged: 3},
		"dry run":     {lines: []line{more("p3", 101).with("requestURI", "/pods?dryRun=All")}, judged: 3},
		"refused":     {lines: []line{more("p3", 101).code(403)}, judged: 3},
		"of nobody":   {lines: []line{does("create", by1, "", "pods", object("Pod", low, "p3"), 101, 101)}, judged: 3},
		"for another": {lines: []line{does("create", by1, "", "pods", object("Pod", low, "p3").of("apps/v1", object("ReplicaSet", low, "api")), 101, 101)}, judged: 3},

		"one was deleted":     {lines: []line{does("delete", user, "", "pods", pod("p0"), 100, 100), more("p3", 101)}, judged: 4},
		"one is deleted next": {lines: []line{more("p3", 101), does("delete", user, "", "pods", pod("p0"), 102, 102)}, want: guilty, judged: 4},
		// The server first marks the pod as being deleted, and answers with the version at which it
		// has gone. The controller may replace it in between.
		"one is being deleted":             {lines: []line{more("p3", 101), does("delete", user, "", "pods", now, 102, 101.01).arrived(100.99)}, judged: 4},
		"one is being deleted, much later": {lines: []line{more("p3", 101), does("delete", user, "", "pods", now, 102, 101.01).arrived(101.001)}, want: guilty, judged: 4},
		// With time to stop, the answer has the version of the mark.
		"one is asked to stop next": {lines: []line{more("p3", 101), does("delete", user, "", "pods", pod("p0").set("metadata", "deletionGracePeriodSeconds", 30), 102, 101.01).arrived(100.99)}, want: guilty, judged: 4},
		"one was evicted":           {lines: []line{does("create", user, "", "pods/eviction", pod("p0"), 0, 100), more("p3", 101)}, judged: 4},
		"one may be deleted":        {lines: []line{does("delete", user, "", "pods", pod("p0"), 0, 100).code(500), more("p3", 101)}, judged: 4},
		"one may be deleted, by a server that was killed": {
			lines: []line{arrives(does("delete", user, "", "pods", pod("p0"), 0, 100).with("auditID", "lost")), more("p3", 101)}, judged: 4,
		},
		"one is deleted, by a server that went on": {
			lines: []line{
				arrives(does("delete", user, "", "pods", pod("other"), 0, 100)),
				does("delete", user, "", "pods", pod("other"), 100, 100), more("p3", 101),
			},
			want: guilty, judged: 4,
		},
		"one is deleted, and its arrival is read later": {
			lines: []line{
				does("delete", user, "", "pods", pod("other"), 100, 100),
				arrives(does("delete", user, "", "pods", pod("other"), 0, 100)), more("p3", 101),
			},
			want: guilty, judged: 4,
		},
		"a server was killed long ago": {
			lines: []line{
				arrives(does("delete", user, "", "pods", pod("p0"), 0, 30).with("auditID", "lost")),
				does("patch", user, "", "pods/status", pod("p0"), 150, 150), more("p3", 151),
			},
			want: guilty, judged: 4,
		},
		"a server was killed not so long ago": {
			lines: []line{
				arrives(does("delete", user, "", "pods", pod("p0"), 0, 100).with("auditID", "lost")),
				does("patch", user, "", "pods/status", pod("p0"), 150, 150), more("p3", 151),
			},
			judged: 4,
		},
		"a create arrived when a server was killed": {
			lines: []line{arrives(more("p3", 100).with("auditID", "lost")), more("p4", 101)}, want: guilty, judged: 4,
		},
		"a change of the owner arrived when a server was killed": {
			lines: []line{arrives(scaled(9, 2, 1, 100).with("auditID", "lost")), more("p3", 101)}, judged: 3,
		},
		"a change of the owner is lost with a server's power": {
			lines: []line{more("p3", 101), status(9, 2, 1, 102)}, judged: 3,
		},
		"two changes of the owner are, and a third is not": {
			lines: []line{more("p3", 101), scaled(3, 4, 1, 102)}, judged: 3,
		},
		"the next change is in the log": {
			lines: []line{more("p3", 101), scaled(9, 2, 1, 102)}, want: guilty, judged: 4,
		},
		"what was lost is long ago": {
			lines: []line{status(3, 2, 2, 100), more("p3", 101), more("p4", 103), status(3, 2, 2, 104)}, want: guilty, judged: 4,
		},
		"another's is deleted": {
			lines: []line{does("delete", user, "", "pods", object("Pod", low, "other"), 100, 100), more("p3", 101)}, want: guilty, judged: 4,
		},
		"one has finished": {
			lines: []line{does("patch", user, "", "pods/status", pod("p0").set("status", "phase", "Failed"), 100, 100), more("p3", 101)}, judged: 4,
		},
		"one terminates": {
			lines:  []line{does("delete", user, "", "pods", pod("p0").set("metadata", "deletionTimestamp", "2026-07-01T12:01:40Z"), 100, 100), more("p3", 101)},
			judged: 4,
		},
		"one was let go": {
			lines: []line{does("patch", by1, "", "pods", pod("p0").set("metadata", "ownerReferences", nil), 100, 100), more("p3", 101)}, judged: 4,
		},
		"one was taken on": {
			lines: []line{
				does("delete", user, "", "pods", pod("p0"), 100, 100), does("create", user, "", "pods", object("Pod", low, "stray"), 101, 101),
				does("patch", by1, "", "pods", object("Pod", low, "stray").of("apps/v1", set), 102, 102), more("p3", 103),
			},
			want: guilty, judged: 4,
		},
		"all were deleted at once": {
			lines: []line{request("deletecollection", user, "", "pods", low, "", 100).with("responseObject", jsonObject{"kind": "PodList", "items": []any{
				pod("p0"), pod("p1"),
			}}), more("p3", 101), more("p4", 102)}, judged: 5,
		},
		"nobody knows which was deleted": {
			lines: []line{request("deletecollection", user, "", "pods", low, "", 100), more("p3", 101)}, judged: 4,
		},

		"scaled up":             {lines: []line{scaled(4, 2, 1, 100), more("p3", 101)}, judged: 4},
		"scaled up by scale":    {lines: []line{does("update", user, "apps", "replicasets/scale", scale.set("spec", "replicas", 4), 100, 100), more("p3", 101)}, judged: 4},
		"scaled up by too few":  {lines: []line{scaled(4, 2, 1, 100), more("p3", 101), more("p4", 102)}, want: guilty, judged: 5},
		"scaled up too late":    {lines: []line{more("p3", 101), scaled(4, 2, 1, 102)}, want: guilty, judged: 4},
		"scaled down, not seen": {lines: []line{scaled(5, 2, 1, 100), scaled(3, 3, 1, 101), more("p3", 102), more("p4", 103)}, judged: 5},
		"scaled down and seen": {
			lines: []line{scaled(4, 2, 2, 100), scaled(3, 3, 2, 101), scaled(3, 3, 3, 102), more("p3", 103), more("p4", 104)},
			// The first is excused, because four pods were wanted at some time since the create
			// before it.
			want: guilty, judged: 5,
		},
		"metadata changed alone": {
			lines: []line{does("patch", user, "apps", "replicasets", object("PartialObjectMetadata", low, "web").set("metadata", "uid", "ReplicaSet-web"), 100, 100), more("p3", 101)},
			want:  guilty, judged: 4,
		},
		"owner's outcome unknown": {lines: []line{scaled(9, 2, 1, 100).code(500), more("p3", 101)}, judged: 3},
		"owner's outcome was unknown long ago": {
			lines: []line{
				scaled(9, 2, 1, 26).code(500), scaled(3, 3, 1, 60), scaled(3, 3, 3, 61),
				does("delete", user, "", "pods", pod("p0"), 62, 62), more("p3", 63), more("p4", 64),
			},
			// The first may be due to what was wanted at the create before it.
			want: guilty, judged: 4,
		},
		"one may have been deleted long ago": {
			lines: []line{
				does("delete", user, "", "pods", pod("p0"), 0, 26).code(500), does("patch", user, "", "pods/status", pod("p0"), 60, 60), more("p3", 101),
			},
			want: guilty, judged: 4,
		},
		"one may have been deleted just now": {
			lines: []line{
				does("delete", user, "", "pods", pod("p0"), 0, 50).code(500), does("patch", user, "", "pods/status", pod("p0"), 60, 60), more("p3", 101),
			},
			judged: 4,
		},

		"scaled down in between, not seen": {
			lines: []line{
				does("delete", user, "", "pods", pod("p0"), 100, 100), does("delete", user, "", "pods", pod("p1"), 101, 101),
				scaled(2, 2, 1, 102), more("p3", 103), more("p4", 104),
			},
			judged: 5,
		},
		"one is being evicted":  {lines: []line{does("create", user, "", "pods/eviction", pod("p0"), 0, 101.001), more("p3", 101)}, judged: 4},
		"some may be deleted":   {lines: []line{request("deletecollection", user, "", "pods", low, "", 100).code(409), more("p3", 101)}, judged: 4},
		"stateful":              {lines: stateful(), judged: 5},
		"stateful beyond":       {lines: stateful(member("db-2", 101)), want: guilty, judged: 6},
		"stateful in between":   {lines: stateful(does("delete", user, "", "pods", object("Pod", low, "db-0"), 100, 100), member("db-0", 101)), judged: 6},
		"job":                   {lines: jobs(), judged: 5},
		"job beyond":            {lines: jobs(worker("s2", 101)), want: guilty, judged: 6},
		"job after a success":   {lines: jobs(does("patch", user, "", "pods/status", object("Pod", low, "s0").of("batch/v1", job).set("status", "phase", "Succeeded"), 100, 100), worker("s2", 101)), judged: 6},
		"job of one completion": {lines: []line{does("create", user, "batch", "jobs", job.set("spec", "completions", 1), 90, 90), worker("s0", 91), worker("s1", 92)}, want: guilty, judged: 5},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			report := check(t, append(test.lines, scene()...)...)
			requireKinds(t, report, test.want...)
			if report.Objects.Creates != test.judged {
				t.Errorf("%d creates judged, want %d; skipped %v", report.Objects.Creates, test.judged, report.Objects.Skipped)
			}
		})
	}
}
