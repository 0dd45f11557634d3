package metrics

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/election/fence"
	"github.com/flotilla-kube/flotilla/pkg/fleet"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// value is what a series, without the prefix, is to have.
type value struct {
	name   string
	labels []string
	value  float64
}

func of(want float64, name string, labels ...string) value { return value{name, labels, want} }

// request is one request for a Lease.
func request(kind, action, result string) value {
	return of(1, "lease_requests_total", "kind", kind, "action", action, "result", result)
}

// phase is the time that a phase of a handoff has taken.
func phase(seconds float64, name string) value {
	return of(seconds, "handoff_phase_seconds_sum", "ring", "namespaces", "phase", name)
}

func transition(reason string) value {
	return of(1, "shard_transitions_total", "ring", "namespaces", "reason", reason)
}

func acquisition(how, reason, result string) value {
	return of(1, "shard_acquisitions_total",
		"ring", "namespaces", "how", how, "reason", reason, "result", result)
}

// TestCount has one event a row, and what it adds to the metrics.
func TestCount(t *testing.T) {
	id := shard.ID{Ring: "namespaces", Name: "01"}
	lease := leaseapi.ShardLease("flotilla", id)
	conflict := apierrors.NewConflict(schema.GroupResource{}, "x", nil)
	handoff := &fleet.Acquisition{
		How: fleet.HowHandoff, Reason: fleet.ReasonLeaving, Unowned: 2 * time.Second,
		Phases: map[fleet.HandoffPhase]time.Duration{
			fleet.PhaseAsk: time.Second, fleet.PhaseStart: 3 * time.Second,
		},
	}
	takeover := &fleet.Acquisition{
		How: fleet.HowTakeover, Reason: fleet.ReasonExpired, Unowned: 15 * time.Second,
		Forgot: []string{"x", "y"},
		Phases: map[fleet.HandoffPhase]time.Duration{fleet.PhaseStart: time.Second},
	}
	// ofShard returns an event of the shard.
	ofShard := func(e election.Event) fleet.Event {
		e.Name = lease
		return fleet.Event{ID: id, Event: e}
	}
	ofAcquisition := func(a *fleet.Acquisition, what election.EventType) fleet.Event {
		e := ofShard(election.Event{Type: what})
		e.Acquisition = a
		return e
	}
	ofOther := func(what election.EventType, lease string, action election.Action, err error) fleet.Event {
		return fleet.Event{Event: election.Event{Type: what, Name: lease, Action: action, Err: err}}
	}
	released := ofShard(election.Event{
		Type: election.EventReleased, Action: election.Release, Duration: time.Second,
	})
	released.Handover = &fleet.Handover{Drain: 2 * time.Second}
	none := election.Action(0)
	for _, tc := range []struct {
		event fleet.Event
		want  []value
	}{
		{
			ofShard(election.Event{
				Type: election.EventAcquired, Action: election.Create, Duration: time.Second,
			}),
			[]value{
				request("shard", "create", "ok"),
				of(1, "lease_request_duration_seconds_sum", "kind", "shard", "action", "create"),
				transition("acquired"),
			},
		},
		{
			ofShard(election.Event{Type: election.EventRenewed, Action: election.Renew}),
			[]value{request("shard", "renew", "ok")},
		},
		{
			ofShard(election.Event{Type: election.EventConflict, Action: election.Ask, Err: conflict}),
			[]value{request("shard", "ask", "conflict")},
		},
		{
			ofShard(election.Event{Type: election.EventEnded, Reason: election.ReasonRenewDeadline}),
			[]value{transition("renew-deadline")},
		},
		{
			ofOther(election.EventFailed, "flotilla-member-a", election.Renew, errors.New("away")),
			[]value{request("member", "renew", "failed")},
		},
		{
			ofOther(election.EventRenewed, "flotilla-plan", election.Renew, nil),
			[]value{request("plan", "renew", "ok")},
		},
		{
			ofOther(fleet.EventLeaderLock+election.EventRenewed, "stock", election.Renew, nil),
			[]value{request("leader-lock", "renew", "ok")},
		},
		{
			ofOther(fleet.EventLeaderLock+election.EventFailed, "stock", election.Acquire, nil),
			[]value{request("leader-lock", "acquire", "failed")},
		},
		{
			ofOther(fleet.EventPlanWritten, "flotilla-plan", none, conflict),
			[]value{request("plan", "write", "conflict")},
		},
		{
			ofOther(fleet.EventRetired, "flotilla-namespaces-09", none, nil),
			[]value{request("shard", "retire", "ok")},
		},
		{
			ofOther(fleet.EventRetired, "flotilla-member-b", none, nil),
			[]value{request("member", "retire", "ok")},
		},
		{
			ofOther(election.EventStruck, "flotilla-member-b", none, nil),
			[]value{request("member", "strike", "ok")},
		},
		{
			ofOther(fleet.EventFenced, "flotilla-member-b", none, nil),
			[]value{request("member", "mark", "ok"), of(1, "fence_marks_total", "result", "fenced")},
		},
		{
			ofOther(fleet.EventFenceRefused, "flotilla-member-b", none, errors.New("no")),
			[]value{
				request("member", "mark", "failed"), of(1, "fence_marks_total", "result", "fence-refused"),
			},
		},
		{
			ofShard(election.Event{
				Type: fleet.EventWriteRefused, Reason: election.Reason(fence.RefusalNotPermitted),
			}),
			[]value{of(1, "fence_refused_writes_total", "ring", "namespaces", "reason", "leader-lock")},
		},
		{
			ofShard(election.Event{Type: fleet.EventPrepared, Duration: 4 * time.Second}),
			[]value{phase(4, "prepare"), transition("prepared")},
		},
		{ofShard(election.Event{Type: fleet.EventOverdue}), []value{transition("overdue")}},
		{
			ofShard(election.Event{Type: fleet.EventBegun, Err: errors.New("nothing")}),
			[]value{transition("cold")},
		},
		{
			ofAcquisition(handoff, fleet.EventRunning),
			[]value{
				acquisition("handoff", "leaving", "running"),
				of(2, "shard_unowned_seconds_sum", "ring", "namespaces", "how", "handoff"),
				phase(1, "ask"),
				phase(3, "start"),
			},
		},
		{
			ofAcquisition(takeover, fleet.EventRunning),
			[]value{
				acquisition("takeover", "expired", "running"),
				of(15, "shard_unowned_seconds_sum", "ring", "namespaces", "how", "takeover"),
				of(1, "controller_memory_lost_total", "ring", "namespaces", "controller", "x"),
				of(2, "controller_memory_lost_total"),
				of(0, "handoff_phase_seconds_count"),
			},
		},
		{
			ofAcquisition(takeover, fleet.EventRefused),
			[]value{acquisition("takeover", "expired", "refused"), of(0, "shard_unowned_seconds_count")},
		},
		{
			ofAcquisition(handoff, fleet.EventAbandoned),
			[]value{
				acquisition("handoff", "leaving", "abandoned"), of(0, "handoff_phase_seconds_count"),
			},
		},
		{released, []value{phase(2, "drain"), phase(1, "release"), request("shard", "release", "ok")}},
		{
			ofOther(fleet.EventPlanRefused, "flotilla-plan", none, errors.New("bad")),
			[]value{of(1, "plan_changes_total", "result", "plan-refused")},
		},
	} {
		t.Run(fmt.Sprint(tc.event.Type, tc.event.Name), func(t *testing.T) {
			m, registry := mustNew(t, Options{Fleet: "flotilla"}), prometheus.NewPedanticRegistry()
			if err := m.Register(registry, Source{Member: idle(t, "flotilla", m)}); err != nil {
				t.Fatal(err)
			}
			m.Count(tc.event)
			got := gathered(t, registry)
			for _, want := range tc.want {
				if value := sum(got["flotilla_"+want.name], want.labels...); value != want.value {
					t.Errorf("%s%v is %v, want %v", want.name, want.labels, value, want.value)
				}
			}
		})
	}
}

// TestCountBeforeRegister: a member is made with Count before there can be a source.
func TestCountBeforeRegister(t *testing.T) {
	m, registry := mustNew(t, Options{Fleet: "flotilla"}), prometheus.NewPedanticRegistry()
	m.Count(fleet.Event{Event: election.Event{Type: fleet.EventPlanAdopted, Name: "flotilla-plan"}})
	if err := m.Register(registry, Source{Member: idle(t, "flotilla", m)}); err != nil {
		t.Fatal(err)
	}
	all := gathered(t, registry)["flotilla_plan_changes_total"]
	if got := sum(all, "result", "plan-adopted"); got != 1 {
		t.Errorf("%v plans were adopted, want 1", got)
	}
}
