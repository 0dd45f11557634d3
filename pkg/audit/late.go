package audit

import (
	"fmt"
	"time"
)

// Flight is a write that arrived before the Lease write that ended its term was answered, and took
// effect after it.
type Flight struct {
	Identity
	// Log and Line are the numbers of the log and of the line in it, both from 1. File is the log's
	// name, if it has one.
	Log, Line int
	File      string
	// Verb and URI of the request.
	Verb, URI string
	// Version is the version at which it took effect, 0 if its answer has none: then it may have
	// been in time. Ended is the version of the Lease write that ended the term.
	Version, Ended uint64
	// After is how long after the end of the term it was answered.
	After time.Duration
	// Released is set if the term ended by a release. Before a release, a holder stops its work and
	// waits for the answers to its requests, for a second.
	Released bool
}

// String returns all of it on one line.
func (f Flight) String() string {
	return fmt.Sprintf("%s: %s: %s %s took effect at version %d, the term ended at %d; answered %v after that",
		where(f.File, f.Log, f.Line), f.Identity, f.Verb, f.URI, f.Version, f.Ended, f.After)
}

// onTheWire reports whether the request was in progress when the term ended. A request that was
// answered before that was not: a version that says otherwise means that a clock is wrong, and does
// not excuse it.
func (t Term) onTheWire(e event) bool {
	return !t.Ended.IsZero() && !e.Received.After(t.Ended) && !e.Answered.Time.Before(t.end.received)
}

func (w write) flight(t Term) Flight {
	return Flight{
		Identity: w.by, File: w.event.file, Log: w.event.log, Line: w.event.line, Verb: w.event.Verb, URI: w.event.RequestURI,
		Version: w.version, Ended: t.end.version, After: max(w.event.Answered.Sub(t.Ended), 0), Released: t.Released,
	}
}

// requestOverrun is how long beyond its --request-timeout an API server may take to answer that the
// request timed out.
const requestOverrun = 5 * time.Second

// fly lists a write that was in progress when its term ended. The API server ends every request at
// its --request-timeout, and a holder has stopped before its Lease has run out. A write beyond
// either is undecided, since servers, networks and suspended clocks may have caused it.
func (c *checker) fly(e event, f Flight, late bool) {
	c.report.InFlight = append(c.report.InFlight, f)
	c.report.Flying++
	if f.Released {
		c.report.FlyingReleased++
	}
	if took := e.Answered.Sub(e.Received.Time); took > c.requestTimeout+requestOverrun {
		c.doubt(e, LongFlight, "%s: it took %v, and the API server ends requests after %v", f.Identity, took, c.requestTimeout)
	} else if late {
		c.doubt(e, LateFlight, "%s: it took effect at version %d, after another claim had begun at %d", f.Identity, f.Version, f.Ended)
	}
}

// judgeRefusal counts requests that were refused after the term had ended.
func (c *checker) judgeRefusal(w write) {
	if t, ok := c.term(w.by); ok && !t.Ended.IsZero() && w.event.Received.After(t.Ended) {
		c.report.DeniedLate[w.event.code]++
	}
}
