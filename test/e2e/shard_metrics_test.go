package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/component-base/metrics/testutil"

	"github.com/flotilla-kube/flotilla/test/harness"
)

// requireBegun checks what three members report about their start: the first has created all
// Leases, and the others have been given shards.
func (f *fleetRun) requireBegun(t *testing.T) {
	t.Helper()
	all := float64(len(f.plan.Shards()))
	f.eventuallySum(t, all, "flotilla_shard_acquisitions_total", "how", "vacant", "reason", "new", "result", "running")
	f.eventuallySum(t, all, "flotilla_shard_state", "state", "running")
	moved := f.sum(t, "flotilla_shard_acquisitions_total", "how", "handoff", "reason", "rebalance", "result", "running")
	if moved == 0 {
		t.Error("two members have joined, and no acquisition counts as a handoff to rebalance")
	}
	f.eventuallySum(t, moved, "flotilla_shard_unowned_seconds_count", "how", "handoff")
	for _, phase := range []string{"ask", "acquire", "catch_up", "start", "drain", "release"} {
		f.eventuallySum(t, moved, "flotilla_handoff_phase_seconds_count", "phase", phase)
	}
	f.requireQuietStates(t, all)
	f.keepMetrics(t, "fleet-1")
}

// requireTakenOver checks what is reported about the shards of a killed member.
func (f *fleetRun) requireTakenOver(t *testing.T, lost int) {
	t.Helper()
	held := float64(lost)
	f.eventuallySum(t, held, "flotilla_shard_acquisitions_total", "how", "takeover", "reason", "expired", "result", "running")
	if mean := f.sum(t, "flotilla_shard_unowned_seconds_sum", "how", "takeover") / held; mean < 1 || mean > leaseDuration.Seconds()+slack.Seconds() {
		t.Errorf("shards of a dead member were unowned for %v s on average; no takeover is faster than a lease duration", mean)
	}
	f.requireQuietStates(t, float64(len(f.plan.Shards())))
	f.keepMetrics(t, "fleet-0")
}

// requireQuietStates checks gauges.
func (f *fleetRun) requireQuietStates(t *testing.T, shards float64) {
	t.Helper()
	members := float64(len(f.members))
	f.eventuallySum(t, shards, "flotilla_shard_state", "state", "running")
	f.eventuallySum(t, members*members, "flotilla_fleet_members", "state", "active")
	f.eventuallySum(t, members, "flotilla_leader_lock_held", "lease", harness.Stock)
	f.eventuallySum(t, members, "flotilla_leader_lock_holder_live", "lease", harness.Stock)
	harness.Eventually(t, harness.Patience, "the holders' counts", func(ctx context.Context) error {
		for _, name := range []string{"flotilla_shard_objects", "flotilla_shard_namespaces", "flotilla_ring_load_ratio"} {
			if got, err := f.read(ctx, name); err != nil || got < 1 {
				return fmt.Errorf("the total of %s is %v: %w", name, got, err)
			}
		}
		return nil
	})
	for _, kind := range []string{"member", "shard", "leader-lock"} {
		if n := f.sum(t, "flotilla_lease_requests_total", "kind", kind, "action", "renew", "result", "ok"); n == 0 {
			t.Errorf("no renewal of a %s's Lease is counted", kind)
		}
	}
	// This finds every controller's queue: the series by shard and those by queue count the same
	// things.
	harness.Eventually(t, harness.Patience, "every processed item counts for a shard", func(ctx context.Context) error {
		for shards, stock := range map[string]string{
			"flotilla_shard_queue_duration_seconds_count":     "workqueue_queue_duration_seconds_count",
			"flotilla_shard_reconcile_duration_seconds_count": "workqueue_work_duration_seconds_count",
		} {
			if err := f.sameQueues(ctx, shards, stock); err != nil {
				return err
			}
		}
		return nil
	})
}

// processQueues are queues of file watchers, some for what serves /metrics, and some for
// controllers.
var processQueues = []string{"DynamicCABundle-", "DynamicServingCertificateController", "DynamicConfigMapCABundle-", "RequestHeader", "dynamic-"}

// sameQueues compares what the members have counted by shard and by queue.
func (f *fleetRun) sameQueues(ctx context.Context, byShard, byName string) error {
	for name, m := range f.members {
		metrics, err := m.Metrics(ctx)
		if err != nil {
			return err
		}
		var inShards, inQueues, inAll float64
		for _, s := range metrics[byShard] {
			inShards += float64(s.Value)
		}
		for _, s := range metrics[byName] {
			queue := string(s.Metric["name"])
			inAll += float64(s.Value)
			if !slices.ContainsFunc(processQueues, func(prefix string) bool { return strings.HasPrefix(queue, prefix) }) {
				inQueues += float64(s.Value)
			}
		}
		if inShards == 0 || inShards < inQueues || inShards > inAll {
			return fmt.Errorf("%s has counted %v in %s; in %s it is %v, of which %v are of controllers", name, inShards, byShard, byName, inAll, inQueues)
		}
	}
	return nil
}

// read returns the sum of a metric's samples with these labels, over all members.
func (f *fleetRun) read(ctx context.Context, name string, labels ...string) (float64, error) {
	sum, errs := 0.0, []error{}
	for _, m := range f.members {
		metrics, err := m.Metrics(ctx)
		errs = append(errs, err)
		for _, s := range harness.Labelled(metrics[name], labels...) {
			sum += float64(s.Value)
		}
	}
	return sum, errors.Join(errs...)
}

func (f *fleetRun) sum(t *testing.T, name string, labels ...string) float64 {
	t.Helper()
	sum, err := f.read(t.Context(), name, labels...)
	if err != nil {
		t.Fatal(err)
	}
	return sum
}

// eventuallySum waits until the sum over all members is this. A shard looks held a moment before
// its controllers run.
func (f *fleetRun) eventuallySum(t *testing.T, want float64, name string, labels ...string) {
	t.Helper()
	harness.Eventually(t, harness.Patience, fmt.Sprint(name, labels, " is ", want), func(ctx context.Context) error {
		if got, err := f.read(ctx, name, labels...); err != nil || got != want {
			return fmt.Errorf("%s%v is %v in all, want %v: %w", name, labels, got, want, err)
		}
		return nil
	})
}

// keepMetrics writes a member's /metrics to $FLOTILLA_TEST_LOGS, and requires that it has no
// namespace label.
func (f *fleetRun) keepMetrics(t *testing.T, name string) {
	t.Helper()
	text := metricsText(t, f.members[name])
	metrics := testutil.NewMetrics()
	if err := testutil.ParseMetrics(text, &metrics); err != nil {
		t.Fatal(err)
	}
	for _, family := range slices.Sorted(maps.Keys(metrics)) {
		for _, sample := range metrics[family] {
			if _, found := sample.Metric["namespace"]; found && strings.HasPrefix(family, "flotilla_") {
				t.Errorf("%s has a label namespace: %v", family, sample)
			}
		}
	}
	if dir := os.Getenv("FLOTILLA_TEST_LOGS"); dir != "" {
		if err := os.WriteFile(filepath.Join(dir, t.Name()+"-"+name+".metrics"), []byte(text), 0o644); err != nil {
			t.Error(err)
		}
	}
}
