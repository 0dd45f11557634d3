package audit

// thing is what is kept of every object that has a UID.
type thing struct {
	place
	kind string
	// born is the write that created it, where created is set: the log may begin later.
	born    moment
	created bool
	// refs are its owners by the last write that told, which was at version told.
	refs []reference
	told uint64
	// ended are the moments from which it was, or may have been, deleted or asked to be; for pods also finished.
	ended []ending
}

// place is where objects are found: a name may be used by one after the other. An empty name means all.
type place struct {
	group, resource, namespace, name string
}

// collection returns the place of all objects beside this one.
func (p place) collection() place {
	p.name = ""
	return p
}

// ending is a moment; sure unless nobody knows whether it took effect.
type ending struct {
	moment
	sure bool
}

func endedMaybeBefore(endings []ending, m moment) bool {
	for _, e := range endings {
		if e.maybeBefore(m) {
			return true
		}
	}
	return false
}
