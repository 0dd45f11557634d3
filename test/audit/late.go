package audit

import (
	"time"
)

// Flight is a write that arrived before the Lease write that ended its term was answered, and took effect after it.
type Flight struct {
	Identity
	// Log and Line are which of the logs, and which of its lines, both from 1.
	Log, Line int
	// Verb and URI of the request.
	Verb, URI string
	// Version at which it took effect, and Ended that of the Lease write that ended the term.
	Version, Ended uint64
	// After is how long after the end of the term it was answered.
	After time.Duration
	// Released is set if the term ended by a release. A holder stops its work before that, and cancels its requests.
	Released bool
}

// onTheWire tells whether the request was under way when the term ended. One that was answered before that was not, so
// that a version which says otherwise is of a clock that is wrong, and no excuse.
func (t Term) onTheWire(e event) bool {
	return !t.Ended.IsZero() && !e.Received.After(t.Ended) && !e.Answered.Time.Before(t.end.received)
}

func (w write) flight(t Term) Flight {
	return Flight{
		Identity: w.by, Log: w.event.log, Line: w.event.line, Verb: w.event.Verb, URI: w.event.RequestURI,
		Version: w.version, Ended: t.end.version, After: max(w.event.Answered.Sub(t.Ended), 0), Released: t.Released,
	}
}

// judgeRefusal counts what was refused after the term had ended.
func (c *checker) judgeRefusal(w write) {
	if t, ok := c.term(w.by); ok && !t.Ended.IsZero() && w.event.Received.After(t.Ended) {
		code := int32(0) // nobody was answered
		if w.event.ResponseStatus != nil {
			code = w.event.ResponseStatus.Code
		}
		c.report.DeniedLate[code]++
	}
}
