package main

import (
	"io"
	"strings"
	"testing"
)

// TestJudge judges the log of a fleet that did nothing, which proves nothing, and one with a write
// from a process that holds nothing.
func TestJudge(t *testing.T) {
	const began = `{"kind":"Event","apiVersion":"audit.k8s.io/v1","stage":"ResponseComplete","verb":"create","userAgent":"flotilla/v1","responseStatus":{"code":201},` +
		`"objectRef":{"apiGroup":"coordination.k8s.io","resource":"leases","namespace":"kube-system","name":"flotilla-cluster-nodes"},` +
		`"responseObject":{"metadata":{"name":"flotilla-cluster-nodes","resourceVersion":"10",` +
		`"labels":{"flotilla.dev/fleet":"flotilla","flotilla.dev/ring":"cluster","flotilla.dev/shard":"nodes"}},` +
		`"spec":{"holderIdentity":"flotilla-0_a","leaseTransitions":1,"leaseDurationSeconds":15}},` +
		`"requestReceivedTimestamp":"2026-07-01T12:00:00.000000Z","stageTimestamp":"2026-07-01T12:00:00.001000Z"}` + "\n"
	const wrote = `{"kind":"Event","apiVersion":"audit.k8s.io/v1","stage":"ResponseComplete","verb":"patch","userAgent":"x flotilla (member=flotilla-9_z; shard=cluster/nodes; term=1)",` +
		`"responseStatus":{"code":200},"objectRef":{"resource":"nodes","name":"n"},` +
		`"requestReceivedTimestamp":"2026-07-01T12:00:01.000000Z","stageTimestamp":"2026-07-01T12:00:01.001000Z"}` + "\n"
	for log, want := range map[string]string{"": "no write of a Lease", began: "too little was judged", began + wrote: "not the holder"} {
		if err := judge(io.Discard, strings.NewReader(log)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("log %q: %v, want %q", log, err, want)
		}
	}
}
