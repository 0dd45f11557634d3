package audit

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

// Log is an audit log, or a part of one: a JSON object on each line.
type Log struct {
	// Name is for messages; empty for none.
	Name string
	io.Reader
}

// readLogs calls f for each event of the logs that says how a request ended, and last for those
// that arrived and never ended, if the logs tell of them. It returns the number of lines, and whether
// the last one of a log is incomplete, as when it is being written; such a line is left out.
func readLogs(logs []Log, f func(event) error) (lines int, cut bool, err error) {
	open := arrivals{}
	for i, log := range logs {
		n, c, err := log.read(i+1, open, f)
		if lines, cut = lines+n, cut || c; err != nil {
			name := log.Name
			if name == "" {
				name = fmt.Sprintf("log %d", i+1)
			}
			return lines, cut, fmt.Errorf("%s, %w", name, err)
		}
	}
	return lines, cut, open.lost(f)
}

// arrivals are mutating requests that arrived, by their audit IDs, until the log says how they ended.
// The parts of a log may come in any order, so the end of one may be read first.
type arrivals map[string]arrival

type arrival struct {
	event
	arrived, ended bool
}

// add takes in a stage of a request. A request that arrives is held back until it is known to have
// ended, so only those of the moment are kept, and those that were under way when a part of the log
// began.
func (a arrivals) add(e event, ended, spanned bool) {
	before := a[e.AuditID]
	switch {
	case ended && before.arrived, !ended && before.ended:
		delete(a, e.AuditID)
	case !ended:
		a[e.AuditID] = arrival{event: e, arrived: true}
	case spanned:
		a[e.AuditID] = arrival{ended: true}
	}
}

// lost calls f for the requests that arrived and never ended, in the order of the logs.
func (a arrivals) lost(f func(event) error) error {
	var all []event
	for _, one := range a {
		if one.arrived {
			all = append(all, one.event)
		}
	}
	slices.SortFunc(all, func(a, b event) int { return cmp.Or(cmp.Compare(a.log, b.log), cmp.Compare(a.line, b.line)) })
	for _, e := range all {
		if err := f(e); err != nil {
			return err
		}
	}
	return nil
}

// spanning is for how many lines of a part of a log requests may end that arrived in another part.
// Of what ends later, the arrival is in this part, or in none.
const spanning = 10_000

func (l Log) read(number int, open arrivals, f func(event) error) (lines int, cut bool, err error) {
	reader := bufio.NewReaderSize(l, 1<<20)
	for {
		line, err := reader.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return lines, len(bytes.TrimSpace(line)) > 0, nil
		}
		if lines++; err == nil {
			err = readLine(line, func(e event, ended bool) error {
				e.file, e.log, e.line = l.Name, number, lines
				if e.mutating() {
					open.add(e, ended, lines <= spanning)
				}
				if !ended {
					return nil
				}
				return f(e)
			})
		}
		if err != nil {
			return lines, false, fmt.Errorf("line %d: %w", lines, err)
		}
	}
}

// readLine calls f with the event of a line, and with whether the request has ended. Stages of
// watches are left out.
func readLine(line []byte, f func(e event, ended bool) error) error {
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
	arrived := a.Stage == auditv1.StageRequestReceived
	if a.Kind == "Event" && !arrived && a.Stage != auditv1.StageResponseComplete && a.Stage != auditv1.StagePanic {
		return nil
	}
	e, err := eventOf(&a)
	if err != nil {
		return err
	}
	e.lost = arrived
	return f(e, !arrived)
}
