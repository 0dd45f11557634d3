package audit

import (
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/fleet"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
)

// gateLog is all writes of a Lease that is none of the fleet's own.
type gateLog struct {
	history
	holds []gateHold // by the fleet, in order; see finish
}

// gateHold is a time in which the Lease named the fleet.
type gateHold struct {
	first state
	ended bool
	end   moment // of the write that ended it; without a version for a deletion
}

// covers reports whether a write may have taken effect in that time.
func (h gateHold) covers(d moment) bool {
	if d.version > 0 && d.version < h.first.version && d.received.After(h.first.answered) {
		d.version = 0 // It changed nothing: that is the version of an earlier write.
	}
	switch {
	case d.version > 0 && d.version < h.first.version, d.version == 0 && d.answered.Before(h.first.received):
		return false
	case !h.ended:
		return true
	case d.version > 0 && h.end.version > 0:
		return d.version < h.end.version
	default:
		return !d.received.After(h.end.answered)
	}
}

// onTheWire reports whether a write that the time does not cover was under way when it ended.
func (h gateHold) onTheWire(d moment) bool {
	return h.ended && !d.received.After(h.end.answered) && !d.answered.Before(h.end.received)
}

// readGate keeps a write of a foreign Lease, and what members say of the gates that they wait for.
func (c *checker) readGate(e event) {
	name := e.ObjectRef.Name
	switch {
	case strings.HasPrefix(name, election.MemberLease(c.fleet, "")) && e.ObjectRef.Namespace == c.namespace:
		if e.refused() || e.failed() || e.Verb == "delete" {
			return
		}
		lease, err := e.lease()
		if err != nil || lease.Spec.HolderIdentity == nil {
			return
		}
		gates := gatesOf(e, lease)
		c.named.Insert(gates...)
		// Who writes the Lease again after its deletion does not know them.
		if holder := *lease.Spec.HolderIdentity; len(gates) > 0 || c.gated[holder] == nil {
			c.gated[holder] = gates
		}
		c.published.Insert(strings.Split(lease.Annotations[election.CredentialsAnnotation], ",")...)
	case strings.HasPrefix(name, c.fleet+"-") && e.ObjectRef.Namespace == c.namespace, e.ObjectRef.Namespace == corev1.NamespaceNodeLease, e.refused():
	default:
		key := gateKey(e, name)
		g := c.gates[key]
		if g == nil {
			g = &gateLog{}
			c.gates[key] = g
		}
		g.read(e)
	}
}

// gatesOf returns the gates that a member's Lease names.
func gatesOf(e event, lease *coordinationv1.Lease) (gates []string) {
	for gate := range strings.SplitSeq(lease.Annotations[leaseapi.GatesAnnotation], ",") {
		if gate != "" {
			gates = append(gates, gateKey(e, gate))
		}
	}
	return gates
}

// gateKey names a gate: members and their gates are in one namespace.
func gateKey(e event, name string) string { return e.ObjectRef.Namespace + "/" + name }

func (g *gateLog) read(e event) {
	switch {
	case e.failed():
		g.addUnknown(e)
	case e.Verb == "delete":
		g.deletions = append(g.deletions, e.moment(0))
	default:
		// What cannot be read is no gate: its holder is told nowhere else.
		_ = g.add(e)
	}
}

// finish puts the writes in order and finds out when the Lease named the fleet.
func (g *gateLog) finish(identity string) {
	g.sort()
	var open *gateHold
	end := func(at moment) {
		if open != nil {
			open.ended, open.end = true, at
			g.holds = append(g.holds, *open)
			open = nil
		}
	}
	for i, s := range g.states {
		at := moment{version: s.version, received: s.received, answered: s.answered}
		if i > 0 && s.event.Verb == "create" {
			end(g.deletedBetween(g.states[i-1].received, at))
		}
		switch {
		case s.holder != identity:
			end(at)
		case open == nil && i == 0 && g.partial:
			open = &gateHold{} // from before the log
		case open == nil:
			open = &gateHold{first: s}
		}
	}
	if open == nil {
		return
	}
	for _, d := range g.deletions {
		if d.received.After(g.states[len(g.states)-1].answered) {
			end(d)
			return
		}
	}
	g.holds = append(g.holds, *open)
}

// deletedBetween returns the first deletion between a time and a create; the create if the log has
// none.
func (g *gateLog) deletedBetween(since time.Time, create moment) moment {
	for _, d := range g.deletions {
		if d.answered.After(since) && d.received.Before(create.answered) {
			return d
		}
	}
	return create
}

// judgeGateLeases convicts the fleet of each time that it took a gate from somebody whose hold had
// not run out.
func (c *checker) judgeGateLeases() {
	identity := fleet.GateIdentity(c.fleet)
	for name, g := range c.gates {
		g.finish(identity)
		for i, s := range g.states {
			if i == 0 || s.holder != identity || s.event.Verb == "create" {
				continue
			}
			before := g.states[i-1]
			lasts := min(before.duration, election.MaxDuration)
			if before.holder != "" && before.holder != identity && s.answered.Before(before.aliveReceived.Add(lasts)) {
				c.convict(s.event, TakenEarly, "%s took the gate %s %v after %s had renewed it for %v",
					s.holder, name, s.answered.Sub(before.aliveReceived), before.holder, before.duration)
			}
		}
	}
}

// judgeGates convicts a write by a member that waits for gates if one of them did not name the
// fleet when it took effect.
func (c *checker) judgeGates(w write) {
	for _, name := range c.gated[w.by.Member] {
		g, d := c.gates[name], w.event.moment(w.version)
		if g == nil {
			c.convict(w.event, NotGated, "%s: the log has no gate %s", w.by, name)
			continue
		}
		// The answer to a write that changes nothing has the version of an earlier one.
		if first, told := c.world.told[w.version]; told && first.Before(d.answered) {
			d.version = 0
		}
		c.report.Gated++
		covered := false
		var last gateHold // that began before it
		for _, h := range g.holds {
			covered = covered || h.covers(d)
			if !h.first.received.After(d.answered) {
				last = h
			}
		}
		switch {
		case covered:
		case last.onTheWire(d):
			c.fly(w.event, Flight{
				Identity: w.by, File: w.event.file, Log: w.event.log, Line: w.event.line, Verb: w.event.Verb, URI: w.event.RequestURI,
				Version: w.version, Ended: last.end.version, After: max(d.answered.Sub(last.end.answered), 0),
			}, false)
		case g.hides(d):
			c.doubt(w.event, LeaseHole, "%s: the log does not tell who held the gate %s", w.by, name)
		case last.ended:
			c.convict(w.event, NotGated, "%s: the gate %s named %s until %s", w.by, name, fleet.GateIdentity(c.fleet), stamp(last.end.answered))
		default:
			c.convict(w.event, NotGated, "%s: the gate %s did not name %s yet", w.by, name, fleet.GateIdentity(c.fleet))
		}
	}
}
