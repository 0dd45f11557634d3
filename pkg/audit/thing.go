package audit

import "time"

// thing is what is kept of every object that has a UID.
type thing struct {
	place
	kind string
	// born is the write that created it, if created is set: the log may begin later.
	born    moment
	created bool
	// refs are its owners by the last write that showed them, at version told.
	refs []reference
	told uint64
	// alive is when a write arrived whose answer had the object, not deleted or finished at that
	// time.
	alive time.Time
	// ended are the moments at which it was, or may have been, deleted or asked to be deleted; for
	// pods also finished.
	ended []ending
}

// vagueWrite is a write that may or may not have taken effect.
type vagueWrite struct {
	moment
	// asked is set if the log has the request; owner is the controller that it gave the object.
	asked bool
	owner string
}

// settledBy reports whether a whole answer to a request that arrived at a time shows the effect of
// the write, if any: a server carries out late, at most by the lag of caches, what it could not
// answer.
func (u vagueWrite) settledBy(arrived time.Time) bool { return arrived.After(u.answered.Add(lag)) }

// aliveAfter reports whether the object was seen alive so long after a write without an answer that
// the write cannot have ended it.
func (t *thing) aliveAfter(m moment) bool { return vagueWrite{moment: m}.settledBy(t.alive) }

// place is where objects are found: several may use a name, one after the other. An empty name
// means all.
type place struct {
	group, resource, namespace, name string
}

// collection returns the place of all objects next to this one.
func (p place) collection() place {
	p.name = ""
	return p
}

// ending is a moment; sure unless it is unknown whether it took effect.
type ending struct {
	moment
	sure bool
	// twice says that the object may have begun to end at an earlier version. The API server
	// deletes a pod that gets no time to stop in two writes, of which the first sets the deletion
	// timestamp, and answers with the version of the second.
	twice bool
}

// maybeBefore reports whether the object may have begun to end before m. An ending does not count
// as before itself.
func (e ending) maybeBefore(m moment) bool {
	return e.moment.maybeBefore(m) || e.twice && e.moment != m && !e.received.After(m.answered)
}

// maybeKnown reports whether the ending may have been the reason for a request: a deletion that
// arrived later was none.
func (e ending) maybeKnown(request moment) bool {
	return e.moment.maybeBefore(request) || e.twice && e.received.Before(request.received)
}

func endedMaybeBefore(endings []ending, m moment) bool {
	for _, e := range endings {
		if e.maybeBefore(m) {
			return true
		}
	}
	return false
}
