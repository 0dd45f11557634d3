package audit

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

// Log is an audit log, or a part of one, with a JSON object on each line.
type Log struct {
	// Name is for messages; empty for none.
	Name string
	io.Reader
}

// extent says how much of a log was read.
type extent struct {
	lines int
	// torn are lines that begin with a part of another one, which is lost: their server was killed
	// while it wrote, and has started again.
	torn int
	// cut is set if the last line is incomplete, as while it is being written; it is skipped.
	cut bool
}

// readLogs calls f for each event of the logs that records the end of a request, and last for
// requests that arrived and never ended, if the logs have those.
func readLogs(logs []Log, f func(event) error) (extent, error) {
	var all extent
	a := arrivals{open: map[string]event{}, ended: sets.New[string]()}
	for i, log := range logs {
		x, err := log.read(i+1, &a, f)
		all = extent{all.lines + x.lines, all.torn + x.torn, all.cut || x.cut}
		if err != nil {
			name := log.Name
			if name == "" {
				name = fmt.Sprintf("log %d", i+1)
			}
			return all, fmt.Errorf("%s, %w", name, err)
		}
	}
	for _, e := range a.lost() {
		if err := f(e); err != nil {
			return all, err
		}
	}
	return all, nil
}

// arrivals has, by audit ID, the requests that may have changed objects and whose end the logs have
// not shown so far.
type arrivals struct {
	open map[string]event
	// ended are requests whose end was read, and that arrived before their part of the log began:
	// parts may come in any order, so the arrival may be read later.
	ended sets.Set[string]
}

// add records an event of a part of the log that began at the time began.
func (a *arrivals) add(e event, began time.Time) {
	switch {
	case e.arrival && a.ended.Has(e.AuditID):
		a.ended.Delete(e.AuditID)
	case e.arrival:
		a.open[e.AuditID] = e
	case e.Received.Time.Before(began):
		if _, open := a.open[e.AuditID]; !open {
			a.ended.Insert(e.AuditID)
		}
		fallthrough
	default:
		delete(a.open, e.AuditID)
	}
}

// lost returns the requests that arrived and never ended, in the logs' order.
func (a *arrivals) lost() []event {
	return slices.SortedFunc(maps.Values(a.open), func(a, b event) int {
		return cmp.Or(cmp.Compare(a.log, b.log), cmp.Compare(a.line, b.line))
	})
}

func (l Log) read(number int, a *arrivals, f func(event) error) (x extent, err error) {
	reader := bufio.NewReaderSize(l, 1<<20)
	var began time.Time
	for last := false; !last; {
		line, err := reader.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			// A line without its end may be a whole one: something else may have copied the log.
			if !json.Valid(line) {
				x.cut = len(bytes.TrimSpace(line)) > 0
				return x, nil
			}
			last, err = true, nil
		}
		if x.lines++; err == nil {
			if whole := untorn(line); len(whole) < len(line) {
				line = whole
				x.torn++
			}
			err = readLine(line, func(e event) error {
				e.file, e.log, e.line = l.Name, number, x.lines
				if began.IsZero() {
					began = e.Answered.Time
				}
				if e.mutating() && e.mayChangeObjects() {
					a.add(e, began)
				}
				if e.arrival {
					return nil // until it is known to have been lost
				}
				return f(e)
			})
		}
		if err != nil {
			return x, fmt.Errorf("line %d: %w", x.lines, err)
		}
	}
	return x, nil
}

// eventStart is how the API server's audit log begins an event.
var eventStart = []byte(`{"kind":"Event",`)

// untorn returns the whole event at the end of a line that begins with a part of another one; all
// of any other line.
func untorn(line []byte) []byte {
	i := bytes.LastIndex(line, eventStart)
	if i <= 0 || json.Valid(line) || !json.Valid(line[i:]) {
		return line
	}
	return line[i:]
}

// readLine calls f with the event of a line. It skips stages of watches.
func readLine(line []byte, f func(event) error) error {
	if len(bytes.TrimSpace(line)) == 0 {
		return nil
	}
	var a auditv1.Event
	if err := json.Unmarshal(line, &a); err != nil {
		var mismatch *json.UnmarshalTypeError
		if errors.As(err, &mismatch) {
			return fmt.Errorf("%s: must not be a JSON %s", mismatch.Field, mismatch.Value)
		}
		return fmt.Errorf("no audit event as JSON: %w", err)
	}
	arrival := a.Stage == auditv1.StageRequestReceived
	if a.Kind == "Event" && !arrival && a.Stage != auditv1.StageResponseComplete && a.Stage != auditv1.StagePanic {
		return nil
	}
	e, err := eventOf(&a)
	if err != nil {
		return err
	}
	e.arrival = arrival
	return f(e)
}
