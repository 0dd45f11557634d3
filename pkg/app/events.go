package app

import (
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/fleet"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// recorder makes of what happens to claims one log line, one Kubernetes event on the
// Lease, and one count.
type recorder struct {
	events    record.EventRecorder
	namespace string
	metrics   *metrics
	logger    klog.Logger
}

func (r *recorder) observe(e fleet.Event) {
	logger := klog.LoggerWithValues(r.logger, "lease", e.Name, "term", e.Term)
	if e.ID != (shard.ID{}) {
		r.metrics.count(e)
	}
	switch e.Type {
	case election.EventAcquired:
		logger.Info("Acquired", "duration", e.Duration)
		r.event(e, v1.EventTypeNormal, "Acquired", "acquired for term %d", e.Term)
	case election.EventReleased:
		logger.Info("Released", "duration", e.Duration)
		r.event(e, v1.EventTypeNormal, "Released", "released after term %d", e.Term)
	case election.EventEnded:
		if e.Reason.Planned() {
			logger.V(2).Info("Claim ended", "reason", e.Reason, "held", e.Duration)
			return
		}
		logger.Error(nil, "Claim lost", "reason", e.Reason, "holder", e.Holder, "held", e.Duration)
		r.event(e, v1.EventTypeWarning, "Lost", "lost term %d: %s (holder %q)", e.Term, e.Reason, e.Holder)
	case election.EventAsked:
		logger.Info("Asked for the shard", "holder", e.Holder)
	case fleet.EventPrepared:
		logger.Info("Prepared for the shard", "duration", e.Duration)
	case fleet.EventBegun:
		if e.Err != nil {
			logger.Info("Began with empty caches", "reason", e.Err.Error())
			return
		}
		logger.Info("Began with warm caches")
	case fleet.EventRefused:
		logger.Error(e.Err, "Gave the claim back before anything ran")
		r.event(e, v1.EventTypeWarning, "Refused", "term %d was given back before anything ran: %v", e.Term, e.Err)
	case fleet.EventReady:
		logger.Info("Ready to inherit the shard")
	case fleet.EventPlanAdopted:
		r.metrics.plans.WithLabelValues(string(e.Type)).Inc()
	case fleet.EventPlanRestored:
		r.metrics.plans.WithLabelValues(string(e.Type)).Inc()
		logger.Info("Put the last good plan back", "reason", e.Err.Error())
		r.event(e, v1.EventTypeWarning, "PlanRestored", "put the last good plan back: %v", e.Err)
	case fleet.EventPlanRefused:
		r.metrics.plans.WithLabelValues(string(e.Type)).Inc()
		r.event(e, v1.EventTypeWarning, "PlanRefused", "%.900s; the last good plan stays in force", e.Err.Error())
	case fleet.EventGate + election.EventAcquired:
		logger.Info("Gate is held by the fleet")
		r.event(e, v1.EventTypeNormal, "GateHeld", "%s holds it from now on", e.Holder)
	case fleet.EventGate + election.EventSuspended:
		logger.Error(nil, "Gate was cleared or deleted, taking it back", "reason", e.Reason)
	case fleet.EventGate + election.EventEnded:
		logger.Error(nil, "Gate lost: all claims end", "reason", e.Reason, "holder", e.Holder)
		r.event(e, v1.EventTypeWarning, "GateLost", "lost: %s (holder %q)", e.Reason, e.Holder)
	case fleet.EventGate + election.EventWaiting:
		logger.Info("Waiting for the gate", "reason", e.Reason, "holder", e.Holder)
	case fleet.EventGate + election.EventFailed:
		logger.Error(e.Err, "Request for the gate failed", "action", e.Action.String())
	case fleet.EventFenced:
		r.metrics.fenced.WithLabelValues(string(e.Type)).Inc()
		logger.Info("Fenced a dead member", "incarnation", e.Holder, "duration", e.Duration)
		r.event(e, v1.EventTypeNormal, "Fenced", "%s did not release its shards and is fenced", e.Holder)
	case fleet.EventFenceRefused:
		r.metrics.fenced.WithLabelValues(string(e.Type)).Inc()
		logger.Error(e.Err, "Could not fence a dead member, its Leases have expired all the same", "incarnation", e.Holder)
		r.event(e, v1.EventTypeWarning, "NotFenced", "%s could not be fenced: %v", e.Holder, e.Err)
	case election.EventReturned:
		logger.Info("Work of the lost claim returned", "duration", e.Duration)
	case election.EventWaiting:
		if e.ID == (shard.ID{}) {
			// Another process of this name: nothing goes on here until it has gone.
			logger.Info("Waiting for the member's Lease", "reason", e.Reason, "holder", e.Holder)
			return
		}
		logger.V(1).Info("Waiting for the Lease", "reason", e.Reason, "holder", e.Holder)
	case election.EventFailed:
		logger.Error(e.Err, "Request for the Lease failed", "action", e.Action.String())
	case election.EventConflict:
		logger.V(1).Info("Lost a race for the Lease", "action", e.Action.String(), "err", e.Err)
	}
}

func (r *recorder) event(e fleet.Event, kind, reason, format string, args ...any) {
	r.events.Eventf(&v1.ObjectReference{
		APIVersion: coordinationv1.SchemeGroupVersion.String(), Kind: "Lease", Namespace: r.namespace, Name: e.Name,
	}, kind, reason, format, args...)
}
