package shadow

import (
	"strings"
	"testing"

	k8smetrics "k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/testutil"
)

// TestMetrics checks that every family has its samples, by verb and resource, whoever the client
// is.
func TestMetrics(t *testing.T) {
	r, now := reporting()
	r.shadow.writes.add(of(Kind{Client: "another", Verb: "create", Group: "apps", Resource: "replicasets"}, "b", "two"), *now)
	r.shadow.rights.beyond = 3
	registry := k8smetrics.NewKubeRegistry()
	r.shadow.RegisterWith(registry, func() bool { return true })
	want := `
# HELP flotilla_shadow_caches_full [ALPHA] 1 if all shards run with full caches, else 0.
# TYPE flotilla_shadow_caches_full gauge
flotilla_shadow_caches_full 1
# HELP flotilla_shadow_missing_rights [ALPHA] Kinds of requests that a member would make and may not.
# TYPE flotilla_shadow_missing_rights gauge
flotilla_shadow_missing_rights 2
# HELP flotilla_shadow_received_bytes_total [ALPHA] Bytes of answers to reads.
# TYPE flotilla_shadow_received_bytes_total counter
flotilla_shadow_received_bytes_total 5.02e+06
# HELP flotilla_shadow_refused_reads_total [ALPHA] Reads that the API server has refused.
# TYPE flotilla_shadow_refused_reads_total counter
flotilla_shadow_refused_reads_total 2
# HELP flotilla_shadow_uncounted_attempts_total [ALPHA] Attempts to write objects that there was no room to follow.
# TYPE flotilla_shadow_uncounted_attempts_total counter
flotilla_shadow_uncounted_attempts_total 0
# HELP flotilla_shadow_unknown_rights [ALPHA] Kinds of requests that a member would make, of which it is not known whether it may.
# TYPE flotilla_shadow_unknown_rights gauge
flotilla_shadow_unknown_rights 3
# HELP flotilla_shadow_watch_events_total [ALPHA] Events that watches have brought, bookmarks and what a watch begins with included.
# TYPE flotilla_shadow_watch_events_total counter
flotilla_shadow_watch_events_total 60
# HELP flotilla_shadow_watches [ALPHA] Watches that are open.
# TYPE flotilla_shadow_watches gauge
flotilla_shadow_watches 1
# HELP flotilla_shadow_write_attempts_total [ALPHA] Writes that the shadow has refused.
# TYPE flotilla_shadow_write_attempts_total counter
flotilla_shadow_write_attempts_total{resource="replicasets.apps",verb="create"} 3
# HELP flotilla_shadow_write_objects [ALPHA] Objects that controllers would have written.
# TYPE flotilla_shadow_write_objects gauge
flotilla_shadow_write_objects{resource="replicasets.apps",verb="create"} 2
# HELP flotilla_shadow_write_objects_lasting [ALPHA] Those of them that the controllers tried again to write after half a minute.
# TYPE flotilla_shadow_write_objects_lasting gauge
flotilla_shadow_write_objects_lasting{resource="replicasets.apps",verb="create"} 1
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
	if n := strings.Count(want, "# TYPE"); n != len(Families()) {
		t.Errorf("%d families, want %d", len(Families()), n)
	}
}
