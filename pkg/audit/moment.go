package audit

import (
	"slices"
	"time"
)

// moment is when a request took effect: at a version if the answer has one, else between arrival
// and answer.
type moment struct {
	version            uint64 // 0 if the answer has none
	received, answered time.Time
}

// before reports whether m surely took effect before o. Versions decide; clocks do if one of the
// moments has no version.
func (m moment) before(o moment) bool {
	if m.version > 0 && o.version > 0 {
		return m.version < o.version
	}
	return m.answered.Before(o.received)
}

// oldest returns the moment whose request arrived first.
func oldest(moments ...moment) moment {
	return slices.MinFunc(moments, func(a, b moment) int { return a.received.Compare(b.received) })
}

// maybeBefore reports whether m may have taken effect before o.
func (m moment) maybeBefore(o moment) bool {
	if m.version > 0 && o.version > 0 {
		return m.version < o.version
	}
	return !m.received.After(o.answered)
}
