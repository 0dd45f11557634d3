package metrics

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	k8smetrics "k8s.io/component-base/metrics"
	"k8s.io/utils/clock"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/election/leasetest"
	"github.com/flotilla-kube/flotilla/pkg/fleet"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// idle returns the metrics of a member that does not run.
func idle(t *testing.T) (*Metrics, k8smetrics.KubeRegistry) {
	t.Helper()
	member, err := fleet.New(fleet.Config{
		Fleet: "flotilla", Member: "a", Plan: testPlan(t, 2), Leases: leasetest.NewStore().Client("a"), Clock: clock.RealClock{}, Timing: election.DefaultTiming(),
		Build: func(context.Context, fleet.Work) (fleet.Instance, error) { return nil, errors.New("never") }, Exit: func(string) {},
	})
	if err != nil {
		t.Fatal(err)
	}
	m, registry := New("flotilla"), k8smetrics.NewKubeRegistry()
	m.register(registry, Source{Member: member, Informers: informers{}, Enforced: func() bool { return false }})
	return m, registry
}

// TestCount has one event a row, and what it adds to the metrics.
func TestCount(t *testing.T) {
	id := shard.ID{Ring: "namespaces", Name: "01"}
	lease := fleet.ShardLease("flotilla", id)
	conflict := apierrors.NewConflict(schema.GroupResource{}, "x", nil)
	handoff := &fleet.Acquisition{How: fleet.HowHandoff, Why: fleet.WhyLeaving, Unowned: 2 * time.Second, Phases: map[fleet.Phase]time.Duration{fleet.PhaseAsk: time.Second, fleet.PhaseStart: 3 * time.Second}}
	takeover := &fleet.Acquisition{How: fleet.HowTakeover, Why: fleet.WhyExpired, Unowned: 15 * time.Second, Forgot: []string{"x", "y"}, Phases: map[fleet.Phase]time.Duration{fleet.PhaseStart: time.Second}}
	type series struct {
		name   string
		labels []string
		value  float64
	}
	of := func(value float64, name string, labels ...string) series {
		return series{"flotilla_" + name, labels, value}
	}
	for _, tc := range []struct {
		event fleet.Event
		want  []series
	}{
		{fleet.Event{ID: id, Event: election.Event{Type: election.EventAcquired, Name: lease, Action: election.Create, Duration: time.Second}}, []series{
			of(1, "lease_requests_total", "kind", "shard", "action", "create", "result", "ok"),
			of(1, "lease_request_duration_seconds_sum", "kind", "shard", "action", "create"),
			of(1, "shard_transitions_total", "ring", "namespaces", "reason", "acquired"),
			{"leader_election_master_status", []string{"name", lease}, 1},
		}},
		{fleet.Event{ID: id, Event: election.Event{Type: election.EventRenewed, Name: lease, Action: election.Renew}}, []series{of(1, "lease_requests_total", "kind", "shard", "action", "renew", "result", "ok")}},
		{fleet.Event{ID: id, Event: election.Event{Type: election.EventConflict, Name: lease, Action: election.Ask, Err: conflict}}, []series{of(1, "lease_requests_total", "kind", "shard", "action", "ask", "result", "conflict")}},
		{fleet.Event{ID: id, Event: election.Event{Type: election.EventEnded, Name: lease, Reason: election.ReasonRenewDeadline}}, []series{of(1, "shard_transitions_total", "ring", "namespaces", "reason", "renew-deadline")}},
		{fleet.Event{Event: election.Event{Type: election.EventFailed, Name: "flotilla-member-a", Action: election.Renew, Err: errors.New("away")}}, []series{of(1, "lease_requests_total", "kind", "member", "action", "renew", "result", "failed")}},
		{fleet.Event{Event: election.Event{Type: election.EventRenewed, Name: "flotilla-plan", Action: election.Renew}}, []series{of(1, "lease_requests_total", "kind", "plan", "action", "renew", "result", "ok")}},
		{fleet.Event{Event: election.Event{Type: fleet.EventGate + election.EventRenewed, Name: "stock", Action: election.Renew}}, []series{of(1, "lease_requests_total", "kind", "gate", "action", "renew", "result", "ok")}},
		{fleet.Event{Event: election.Event{Type: fleet.EventGate + election.EventFailed, Name: "stock", Action: election.Acquire}}, []series{of(1, "lease_requests_total", "kind", "gate", "action", "acquire", "result", "failed")}},
		{fleet.Event{Event: election.Event{Type: fleet.EventPlanWritten, Name: "flotilla-plan", Err: conflict}}, []series{of(1, "lease_requests_total", "kind", "plan", "action", "write", "result", "conflict")}},
		{fleet.Event{Event: election.Event{Type: fleet.EventRetired, Name: "flotilla-namespaces-09"}}, []series{of(1, "lease_requests_total", "kind", "shard", "action", "retire", "result", "ok")}},
		{fleet.Event{Event: election.Event{Type: election.EventStruck, Name: "flotilla-member-b"}}, []series{of(1, "lease_requests_total", "kind", "member", "action", "strike", "result", "ok")}},
		{fleet.Event{Event: election.Event{Type: fleet.EventFenced, Name: "flotilla-member-b"}}, []series{
			of(1, "lease_requests_total", "kind", "member", "action", "mark", "result", "ok"), of(1, "fence_marks_total", "result", "fenced"),
		}},
		{fleet.Event{Event: election.Event{Type: fleet.EventFenceRefused, Name: "flotilla-member-b", Err: errors.New("no")}}, []series{
			of(1, "lease_requests_total", "kind", "member", "action", "mark", "result", "failed"), of(1, "fence_marks_total", "result", "fence-refused"),
		}},
		{fleet.Event{ID: id, Event: election.Event{Type: fleet.EventWriteRefused, Reason: election.Reason(election.RefusedGate)}}, []series{of(1, "fence_refused_writes_total", "ring", "namespaces", "reason", "gate")}},
		{fleet.Event{ID: id, Event: election.Event{Type: fleet.EventPrepared, Name: lease, Duration: 4 * time.Second}}, []series{
			of(4, "handoff_phase_seconds_sum", "ring", "namespaces", "phase", "prepare"), of(1, "shard_transitions_total", "ring", "namespaces", "reason", "prepared"),
		}},
		{fleet.Event{ID: id, Event: election.Event{Type: fleet.EventOverdue, Name: lease}}, []series{of(1, "shard_transitions_total", "ring", "namespaces", "reason", "overdue")}},
		{fleet.Event{ID: id, Event: election.Event{Type: fleet.EventBegun, Name: lease, Err: errors.New("nothing")}}, []series{of(1, "shard_transitions_total", "ring", "namespaces", "reason", "cold")}},
		{fleet.Event{ID: id, Acquisition: handoff, Event: election.Event{Type: fleet.EventRunning, Name: lease}}, []series{
			of(1, "shard_acquisitions_total", "ring", "namespaces", "how", "handoff", "reason", "leaving", "result", "running"),
			of(2, "shard_unowned_seconds_sum", "ring", "namespaces", "how", "handoff"),
			of(1, "handoff_phase_seconds_sum", "ring", "namespaces", "phase", "ask"),
			of(3, "handoff_phase_seconds_sum", "ring", "namespaces", "phase", "start"),
		}},
		{fleet.Event{ID: id, Acquisition: takeover, Event: election.Event{Type: fleet.EventRunning, Name: lease}}, []series{
			of(1, "shard_acquisitions_total", "ring", "namespaces", "how", "takeover", "reason", "expired", "result", "running"),
			of(15, "shard_unowned_seconds_sum", "ring", "namespaces", "how", "takeover"),
			of(1, "controller_memory_lost_total", "ring", "namespaces", "controller", "x"),
			of(2, "controller_memory_lost_total"),
			of(0, "handoff_phase_seconds_count"),
		}},
		{fleet.Event{ID: id, Acquisition: takeover, Event: election.Event{Type: fleet.EventRefused, Name: lease}}, []series{
			of(1, "shard_acquisitions_total", "how", "takeover", "reason", "expired", "result", "refused"), of(0, "shard_unowned_seconds_count"),
		}},
		{fleet.Event{ID: id, Acquisition: handoff, Event: election.Event{Type: fleet.EventAbandoned, Name: lease}}, []series{
			of(1, "shard_acquisitions_total", "how", "handoff", "reason", "leaving", "result", "abandoned"), of(0, "handoff_phase_seconds_count"),
		}},
		{fleet.Event{ID: id, Handover: &fleet.Handover{Drain: 2 * time.Second}, Event: election.Event{Type: election.EventReleased, Name: lease, Action: election.Release, Duration: time.Second}}, []series{
			of(2, "handoff_phase_seconds_sum", "ring", "namespaces", "phase", "drain"),
			of(1, "handoff_phase_seconds_sum", "ring", "namespaces", "phase", "release"),
			of(1, "lease_requests_total", "kind", "shard", "action", "release", "result", "ok"),
		}},
		{fleet.Event{Event: election.Event{Type: fleet.EventPlanRefused, Name: "flotilla-plan", Err: errors.New("bad")}}, []series{of(1, "plan_changes_total", "result", "plan-refused")}},
	} {
		t.Run(fmt.Sprint(tc.event.Type, tc.event.Name), func(t *testing.T) {
			m, registry := idle(t)
			m.Count(tc.event)
			got := parse(t, text(t, registry))
			for _, want := range tc.want {
				if value := sum(got[want.name], want.labels...); value != want.value {
					t.Errorf("%s%v is %v, want %v", want.name, want.labels, value, want.value)
				}
			}
		})
	}
}
