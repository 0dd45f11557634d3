package audit

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
)

// lag is the maximum age of the caches by which an innocent controller deletes. A reason at any
// time within it is still a reason. Caches have no version in the log, so this is the one place
// where only clocks can decide.
const lag = 30 * time.Second

// judgeDeletions looks for a reason for every object that the fleet deleted.
func (b *bench) judgeDeletions() {
	// The first request makes a pod terminate; later ones do no harm.
	slices.SortStableFunc(b.deletions, func(x, y deletion) int { return x.at.answered.Compare(y.at.answered) })
	seen := sets.New[string]()
	for _, d := range b.deletions {
		if seen.Has(d.uid) {
			continue
		}
		seen.Insert(d.uid)
		if d.collector {
			b.judgeCollected(d)
			continue
		}
		if d.event.resource() != "pods" {
			continue
		}
		p := b.pods[d.uid]
		if p == nil || !p.created || d.at.version == 0 || !d.whole {
			b.skip("pod deleted: its creation or its deletion is not in the log with the object")
			continue
		}
		uid := p.owner(d.at.version)
		if uid == "" {
			continue // nobody wanted it
		}
		o := b.owners[uid]
		if o != nil && o.resource == "jobs" {
			b.skip("pod deleted: of a Job, which may have ended")
			continue
		}
		i, reason := b.incomplete(o, d.at)
		if reason == "" {
			b.judged.Deletes++
			reason = b.reason(d, p, o, uid, i)
		}
		if reason != "" {
			b.skip("pod deleted: " + reason)
			continue
		}
		since := o.born
		if n := b.nodes[d.state.node]; n != nil {
			since = oldest(since, n.between(d.cached(), d.at)[0].moment)
		}
		b.accuse(d.event, since, WantedPodDeleted, "%s: deleted %s of %s, which had not more than it wanted, on node %q",
			d.by, p.name, o.title(), d.state.node)
	}
}

// cached returns the moment that the cache of an innocent controller shows at least.
func (d deletion) cached() moment {
	at := d.at.received.Add(-lag)
	return moment{received: at, answered: at}
}

// reason returns a possible reason for a deletion; empty if there was none.
func (b *bench) reason(d deletion, p *pod, o *owner, uid string, i int) string {
	from := d.cached()
	switch {
	case slices.ContainsFunc(p.ended, func(e ending) bool { return e.maybeKnown(d.at) }), d.state.finished():
		return "it had ended"
	case d.state.claims:
		return "its devices may have been tainted"
	case endedMaybeBefore(o.ended, d.at), o.states[i].deleting:
		return "its owner was being deleted"
	case b.namespaceEnded(o, d.at):
		return "its namespace was being deleted"
	}
	if reason := b.nodeReason(d, p, from); reason != "" {
		return reason
	}
	first := min(o.since(i, from.answered), o.acted(i))
	if o.states[i].observed == 0 {
		return "its owner does not tell what its controller has seen"
	}
	if o.resource == "daemonsets" {
		first = min(first, o.since(i, p.born.received.Add(-lag)))
	}
	if o.blurred(b.vague[o.place], first, d.at) {
		return unanswered
	}
	if o.hole(first, d.at) {
		return unlogged
	}
	switch o.resource {
	case "statefulsets":
		return statefulReason(d, p, o, first, i)
	case "daemonsets":
		return b.daemonReason(d, p, o, i)
	default:
		return b.numberReason(d, o, uid, first, i, from)
	}
}

// namespaceEnded reports whether somebody may have asked to delete the namespace since the owner
// was made: an earlier deletion was of another namespace with the same name.
func (b *bench) namespaceEnded(o *owner, m moment) bool {
	return slices.ContainsFunc(b.namespaces[o.namespace], func(e ending) bool {
		return e.maybeBefore(m) && !e.before(o.born)
	})
}

func (b *bench) nodeReason(d deletion, p *pod, from moment) string {
	if d.state.node == "" {
		return ""
	}
	n := b.nodes[d.state.node]
	if n == nil {
		return "its node is not in the log"
	}
	for _, end := range n.ended {
		if end.maybeBefore(d.at) && !end.answered.Before(p.born.received) {
			return "its node was deleted"
		}
	}
	for _, m := range b.vague[place{resource: "nodes", name: d.state.node}] {
		if m.maybeBefore(d.at) && !m.answered.Before(from.received) {
			return "a write of its node ended without an answer"
		}
	}
	states := n.between(from, d.at)
	if len(states) == 0 {
		return "its node is not in the log"
	}
	if slices.ContainsFunc(states, func(s nodeState) bool { return s.evicts }) {
		return "its node had a NoExecute taint"
	}
	return ""
}

// numberReason counts what may have been live at the same time, at any moment of the lag.
func (b *bench) numberReason(d deletion, o *owner, uid string, first, i int, from moment) string {
	vague := b.vague[place{resource: "pods", namespace: o.namespace}]
	var counted time.Time
	if len(vague) > 0 {
		counted = o.counted(i)
	}
	perhaps := 0 // further pods
	for _, u := range vague {
		switch {
		case !u.maybeBefore(d.at), u.settledBy(counted):
		case !u.asked:
			return "a pod of the namespace was created without an answer"
		case u.owner == uid, u.owner == "":
			perhaps++
		}
	}
	wanted := int(o.leastDesired(first, i))
	if mostLive(o.pods, from, d.at)+perhaps > wanted {
		return "its owner had more than it wanted"
	}
	return ""
}

// mostLive returns how many pods may have been live at once at any time between two moments.
func mostLive(pods []*pod, from, to moment) int {
	type step struct {
		at     time.Time
		change int
	}
	var steps []step
	for _, p := range pods {
		steps = append(steps, step{p.born.received, 1})
		if died, ok := p.died(); ok {
			steps = append(steps, step{died, -1})
		}
	}
	// Births first: a pod that died at the same time may have died later.
	slices.SortFunc(steps, func(a, b step) int { return cmp.Or(a.at.Compare(b.at), b.change-a.change) })
	live, most, inside := 0, 0, false
	for _, s := range steps {
		if s.at.After(to.answered) {
			break
		}
		if !inside && !s.at.Before(from.received) {
			inside, most = true, live
		}
		live += s.change
		most = max(most, live)
		if !inside {
			most = live
		}
	}
	return most
}

func statefulReason(d deletion, p *pod, o *owner, first, i int) string {
	s := o.states[i]
	n, ok := ordinal(o.name, p.name)
	switch {
	case !ok:
		return "its name has no ordinal"
	case n >= o.leastDesired(first, i), n < s.start:
		return "its ordinal was not wanted"
	case s.observed != s.generation, o.states[first].generation != s.generation, d.revision != s.revision:
		return "its owner was rolling out a change"
	case d.state.phase == "Pending":
		return "it had not started, and its claims may have been stale"
	}
	return ""
}

// daemonReason requires that everything is unchanged since the pod was made: then a pod that had
// its place then still has it.
func (b *bench) daemonReason(d deletion, p *pod, o *owner, i int) string {
	s := o.states[i]
	made := moment{received: p.born.received.Add(-lag), answered: p.born.received.Add(-lag)}
	switch {
	case d.state.node == "":
		return "it was on no node"
	case s.observed != s.generation, d.template != s.template, o.states[o.since(i, made.answered)].generation != s.generation:
		return "its owner was rolling out a change"
	}
	states := b.nodes[d.state.node].between(made, d.at)
	if len(states) == 0 || slices.ContainsFunc(states, func(s nodeState) bool { return s.placement != states[0].placement }) {
		return "its node was changed"
	}
	// Of two on one node the older stays.
	for _, other := range o.pods {
		died, ended := other.died()
		if other != p && other.node == d.state.node && !other.born.received.After(d.at.answered) && (!ended || died.After(p.born.received)) {
			return "another pod was on its node"
		}
	}
	return ""
}
