package metrics

import (
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/election/fence"
	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/fleet"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// Kinds of Leases.
const (
	kindMember     = "member"
	kindShard      = "shard"
	kindPlan       = "plan"
	kindLeaderLock = "leader-lock"
)

// Results of requests, and of acquisitions.
const (
	resultOK       = "ok"
	resultConflict = "conflict"
	resultFailed   = "failed"
)

// Requests other than those of a claim.
const (
	actionWrite = "write"
	actionMark  = "mark"
	// actionStrike lists a dead member as ended, see election.EventStruck.
	actionStrike = "strike"
	// actionRetire empties a Lease that nobody needs any more, see fleet.EventRetired.
	actionRetire = "retire"
)

// Reasons of transitions that are neither an event's type nor the reason of a claim's end.
const (
	transitionAcquired = "acquired"
	transitionWarm     = "warm"
	transitionCold     = "cold"
)

const (
	phasePrepare fleet.HandoffPhase = "prepare"
	phaseRelease fleet.HandoffPhase = "release"
)

// Count counts what happens to the member; use it as fleet.Config.Observe. It does not block, and
// may be called before Register.
func (m *Metrics) Count(e fleet.Event) {
	if e.Type == fleet.EventWriteRefused {
		m.refusedWrites.WithLabelValues(e.ID.Ring, string(e.Reason)).Inc()
		return
	}
	m.countRequest(e)
	switch e.Type {
	case fleet.EventPlanAdopted:
		m.plans.WithLabelValues(string(e.Type)).Inc()
		m.zeroRings()
	case fleet.EventPlanRestored, fleet.EventPlanRefused, fleet.EventPlanAdapted:
		m.plans.WithLabelValues(string(e.Type)).Inc()
	case fleet.EventFenced, fleet.EventFenceRefused:
		m.marks.WithLabelValues(string(e.Type)).Inc()
	default:
		if e.ID != (shard.ID{}) {
			m.countShard(e)
		}
	}
}

// countShard counts what happens to the claim of a shard.
func (m *Metrics) countShard(e fleet.Event) {
	ring := e.ID.Ring
	switch e.Type {
	case election.EventAcquired:
		m.transitions.WithLabelValues(ring, transitionAcquired).Inc()
	case election.EventEnded:
		m.transitions.WithLabelValues(ring, string(e.Reason)).Inc()
	case election.EventReleased:
		m.observe(ring, phaseRelease, e.Duration)
		if e.Handover != nil && e.Handover.Drain > 0 {
			m.observe(ring, fleet.PhaseDrain, e.Handover.Drain)
		}
	case fleet.EventPrepared:
		m.transitions.WithLabelValues(ring, string(e.Type)).Inc()
		m.observe(ring, phasePrepare, e.Duration)
	case fleet.EventReady, fleet.EventOverdue:
		m.transitions.WithLabelValues(ring, string(e.Type)).Inc()
	case fleet.EventBegun:
		how := transitionWarm
		if e.Err != nil {
			how = transitionCold
		}
		m.transitions.WithLabelValues(ring, how).Inc()
	case fleet.EventRefused:
		m.transitions.WithLabelValues(ring, string(e.Type)).Inc()
		m.countAcquisition(e)
	case fleet.EventRunning, fleet.EventAbandoned:
		m.countAcquisition(e)
	}
}

// countAcquisition counts an acquisition that is complete.
func (m *Metrics) countAcquisition(e fleet.Event) {
	a := e.Acquisition
	m.acquisitions.WithLabelValues(e.ID.Ring, string(a.How), string(a.Reason), string(e.Type)).Inc()
	if e.Type != fleet.EventRunning {
		return
	}
	m.unowned.WithLabelValues(e.ID.Ring, string(a.How)).Observe(a.Unowned.Seconds())
	for _, controller := range a.Forgot {
		m.forgot.WithLabelValues(e.ID.Ring, controller).Inc()
	}
	if a.How == fleet.HowHandoff {
		for phase, took := range a.Phases {
			m.observe(e.ID.Ring, phase, took)
		}
	}
}

func (m *Metrics) observe(ring string, phase fleet.HandoffPhase, took time.Duration) {
	m.phases.WithLabelValues(ring, string(phase)).Observe(took.Seconds())
}

// countRequest counts the event if it is about a request for a Lease.
func (m *Metrics) countRequest(e fleet.Event) {
	kind := m.kindOf(e)
	action, result := strings.ToLower(e.Action.String()), resultOK
	switch election.EventType(strings.TrimPrefix(string(e.Type), string(fleet.EventLeaderLock))) {
	case election.EventAcquired, election.EventRenewed, election.EventReleased, election.EventAsked:
	case election.EventConflict:
		result = resultConflict
	case election.EventFailed:
		result = resultFailed
	case fleet.EventPlanWritten:
		action, result = actionWrite, resultOf(e.Err)
	case fleet.EventFenced, fleet.EventFenceRefused:
		action, result = actionMark, resultOf(e.Err)
	case election.EventStruck:
		action, result = actionStrike, resultOf(e.Err)
	case fleet.EventRetired:
		action, result = actionRetire, resultOf(e.Err)
	default:
		return
	}
	m.requests.WithLabelValues(kind, action, result).Inc()
	m.requestTime.WithLabelValues(kind, action).Observe(e.Duration.Seconds())
}

func resultOf(err error) string {
	switch {
	case err == nil:
		return resultOK
	case apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err):
		return resultConflict
	default:
		return resultFailed
	}
}

func (m *Metrics) kindOf(e fleet.Event) string {
	switch {
	case e.ID != (shard.ID{}), e.Type == fleet.EventRetired && !leaserecord.IsMemberLease(m.options.Fleet, e.Name):
		return kindShard
	case strings.HasPrefix(string(e.Type), string(fleet.EventLeaderLock)):
		return kindLeaderLock
	case e.Name == leaseapi.PlanLease(m.options.Fleet):
		return kindPlan
	default:
		return kindMember
	}
}

// causes are the reasons for each way in which a shard is acquired.
var causes = map[fleet.How][]fleet.Reason{
	fleet.HowHandoff:  {fleet.ReasonRebalance, fleet.ReasonLeaving, fleet.ReasonPlan},
	fleet.HowTakeover: {fleet.ReasonExpired, fleet.ReasonOverdue},
	fleet.HowVacant:   {fleet.ReasonNew, fleet.ReasonReleased},
}

// transitions are the reasons of shard_transitions_total.
var transitions = []string{
	transitionAcquired, transitionWarm, transitionCold,
	string(fleet.EventPrepared), string(fleet.EventReady), string(fleet.EventRefused), string(fleet.EventOverdue),
	string(election.ReasonDrained), string(election.ReasonUnwanted), string(election.ReasonWorkReturned),
	string(election.ReasonRevoked), string(election.ReasonRenewDeadline), string(election.ReasonNoRight),
	string(election.ReasonOtherHolder), string(election.ReasonCleared), string(election.ReasonTermChanged),
}

// zero creates the counters and histograms that an alert may wait for: to Prometheus, a series that
// begins with 1 has not increased.
func (m *Metrics) zero(member *fleet.Member) {
	for _, result := range []string{string(fleet.EventFenced), string(fleet.EventFenceRefused)} {
		m.marks.WithLabelValues(result)
	}
	for _, result := range []election.EventType{
		fleet.EventPlanAdopted, fleet.EventPlanRefused, fleet.EventPlanRestored, fleet.EventPlanAdapted,
	} {
		m.plans.WithLabelValues(string(result))
	}
	kinds := []string{kindMember, kindShard, kindPlan}
	if len(member.LeaderLocks()) > 0 {
		kinds = append(kinds, kindLeaderLock)
	}
	for _, kind := range kinds {
		for _, action := range []election.Action{election.Acquire, election.Renew} {
			for _, result := range []string{resultOK, resultConflict, resultFailed} {
				m.requests.WithLabelValues(kind, strings.ToLower(action.String()), result)
			}
		}
	}
}

// zeroRings does the same for the rings of the plan in force.
func (m *Metrics) zeroRings() {
	source := m.source.Load()
	if source == nil {
		return
	}
	plan, _ := source.Member.Plan()
	for _, ring := range plan.Rings {
		for _, reason := range []fence.Refusal{
			fence.RefusalClosed, fence.RefusalExpired, fence.RefusalNotPermitted,
		} {
			m.refusedWrites.WithLabelValues(ring.Name, string(reason))
		}
		for _, reason := range transitions {
			m.transitions.WithLabelValues(ring.Name, reason)
		}
		for _, phase := range []fleet.HandoffPhase{
			phasePrepare, fleet.PhaseAsk, fleet.PhaseAcquire, fleet.PhaseCatchUp, fleet.PhaseStart,
			fleet.PhaseDrain, phaseRelease,
		} {
			m.phases.WithLabelValues(ring.Name, string(phase))
		}
		for how, reasons := range causes {
			m.unowned.WithLabelValues(ring.Name, string(how))
			for _, why := range reasons {
				for _, result := range []election.EventType{
					fleet.EventRunning, fleet.EventRefused, fleet.EventAbandoned,
				} {
					m.acquisitions.WithLabelValues(ring.Name, string(how), string(why), string(result))
				}
			}
		}
	}
}
