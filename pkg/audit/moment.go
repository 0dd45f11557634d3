package audit

import "time"

// moment is when a request took effect: at a version where the answer tells it, else between arrival and answer.
type moment struct {
	version            uint64 // 0 if the answer has none
	received, answered time.Time
}

// before reports whether m surely took effect before o. Versions decide; clocks do where one of
// them has no version.
func (m moment) before(o moment) bool {
	if m.version > 0 && o.version > 0 {
		return m.version < o.version
	}
	return m.answered.Before(o.received)
}

// maybeBefore reports whether m may have taken effect before o.
func (m moment) maybeBefore(o moment) bool {
	if m.version > 0 && o.version > 0 {
		return m.version < o.version
	}
	return !m.received.After(o.answered)
}
