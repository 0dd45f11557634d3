package audit

import (
	"cmp"
	"slices"
)

// judgeCreations compares every pod that the fleet created with what its owner wanted.
func (b *bench) judgeCreations() {
	for _, c := range b.creations {
		uid := c.pod.owner(c.at.version)
		if uid == "" {
			continue // nobody wanted a number of them
		}
		o := b.owners[uid]
		i, reason := b.incomplete(o, c.at)
		switch {
		case reason != "":
			b.skip("pod created: " + reason)
		case o.resource == "daemonsets":
			b.skip("pod created: a DaemonSet has no number of pods")
		case o.blurred(b.vague[o.place], excused(c, o, i), c.at):
			b.skip("pod created: " + unanswered)
		case o.hole(excused(c, o, i), c.at):
			b.skip("pod created: " + unlogged)
		case o.resource == "statefulsets":
			b.judgeOrdinal(c, o, i)
		default:
			b.judgeNumber(c, o, i)
		}
	}
}

// excused returns the first state that can still explain a create at state i: that of the last
// create, or the oldest that the controller may have had before it.
func excused(c creation, o *owner, i int) int {
	first := o.acted(i)
	j, _ := slices.BinarySearchFunc(o.creates, c.at.version, func(m moment, v uint64) int { return cmp.Compare(m.version, v) })
	if j > 0 {
		first = min(first, o.at(o.creates[j-1].version))
	}
	return max(first, 0)
}

func (b *bench) judgeNumber(c creation, o *owner, i int) {
	b.judged.Creates++
	first := excused(c, o, i)
	wanted, since := o.mostDesired(first, i), o.states[first].moment
	var live []string
	for _, p := range o.pods {
		if p.owner(c.at.version) == c.pod.owner(c.at.version) && p.live(c.at) {
			live, since = append(live, p.name), oldest(since, p.born)
		}
	}
	if len(live) >= int(wanted) {
		b.accuse(c.event, since, DuplicatePod, "%s: made %s for %s, which wanted at most %d and had %d: %s",
			c.by, c.pod.name, o.title(), wanted, len(live), some(slices.Sorted(slices.Values(live)), ", "))
	}
}

// judgeOrdinal does not count: pods of a StatefulSet have fixed names, and a number in the middle
// may be missing while one beyond the end still exists.
func (b *bench) judgeOrdinal(c creation, o *owner, i int) {
	n, ok := ordinal(o.name, c.pod.name)
	if !ok {
		b.skip("pod created: its name has no ordinal")
		return
	}
	b.judged.Creates++
	first := excused(c, o, i)
	if end := o.mostDesired(first, i); n >= end {
		b.accuse(c.event, o.states[first].moment, DuplicatePod, "%s: made %s for %s, whose ordinals ended before %d", c.by, c.pod.name, o.title(), end)
	}
}

// title names a thing for people.
func (t *thing) title() string {
	name := t.name
	if t.namespace != "" {
		name = t.namespace + "/" + name
	}
	return cmp.Or(t.kind, t.resource) + " " + name
}
