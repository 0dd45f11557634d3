package audit

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

// Log is an audit log, or a part of one: a JSON object on each line.
type Log struct {
	// Name is for messages; empty for none.
	Name string
	io.Reader
}

// readLogs calls f for each event of the logs that says how a request ended. It returns the number of lines, and whether the
// last one of a log is incomplete, as when it is being written; such a line is left out.
func readLogs(logs []Log, f func(event) error) (lines int, cut bool, err error) {
	for i, log := range logs {
		n, c, err := log.read(i+1, f)
		if lines, cut = lines+n, cut || c; err != nil {
			name := log.Name
			if name == "" {
				name = fmt.Sprintf("log %d", i+1)
			}
			return lines, cut, fmt.Errorf("%s, %w", name, err)
		}
	}
	return lines, cut, nil
}

func (l Log) read(number int, f func(event) error) (lines int, cut bool, err error) {
	reader := bufio.NewReaderSize(l, 1<<20)
	for {
		line, err := reader.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return lines, len(bytes.TrimSpace(line)) > 0, nil
		}
		if lines++; err == nil {
			err = readLine(line, func(e event) error {
				e.file, e.log, e.line = l.Name, number, lines
				return f(e)
			})
		}
		if err != nil {
			return lines, false, fmt.Errorf("line %d: %w", lines, err)
		}
	}
}

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
	// The other stages tell of requests that have not ended, or of watches.
	if a.Kind == "Event" && a.Stage != auditv1.StageResponseComplete && a.Stage != auditv1.StagePanic {
		return nil
	}
	e, err := eventOf(&a)
	if err != nil {
		return err
	}
	return f(e)
}
