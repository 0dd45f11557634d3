package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/flotilla-kube/flotilla/pkg/audit"
	"github.com/flotilla-kube/flotilla/pkg/controllers/catalogue"
)

const (
	fleetName  = "flotilla"
	gateHolder = fleetName + "_fleet"
	auditLog   = "var/log/kubernetes/audit.log"
)

// mark notes where the audit logs end: the judge hears of what comes after it.
func (c *cluster) mark() error {
	c.marks = map[string]int64{}
	for _, n := range c.central() {
		info, err := os.Stat(n.path(auditLog))
		if err != nil {
			return err
		}
		c.marks[n.name] = info.Size()
	}
	return nil
}

// judge holds what all API servers have logged since mark against the Leases. Each has its own log,
// and every request is in one.
func (c *cluster) judge(context.Context) error {
	var logs []audit.Log
	broken := 0
	for _, n := range c.central() {
		text, torn, err := logSince(n.path(auditLog), c.marks[n.name])
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(c.place, "log", "audit-"+n.name+".log"), text, 0o644); err != nil {
			return err
		}
		broken += torn
		logs = append(logs, audit.Log{Name: n.name, Reader: bytes.NewReader(text)})
	}
	report, err := audit.Judge(audit.Options{Fleet: fleetName, Controllers: catalogue.Identities()}, logs...)
	if err != nil {
		return err
	}
	c.out.printf("judged: %d lines (%d broken), %d writes by version, %d by time, %d against the gate; pods and others: %d creates, %d deletes; in flight %d, undecided %d",
		report.Lines, broken, report.ByVersion, report.ByTime, report.Gated, report.Objects.Creates, report.Objects.Deletes, len(report.InFlight), len(report.Undecided))
	for _, doubt := range report.Undecided {
		c.out.printf("undecided: %v", doubt)
	}
	errs := []error{report.Err()}
	if writes := report.ByVersion + report.ByTime; report.Gated < writes || writes == 0 {
		errs = append(errs, fmt.Errorf("%d of %d writes were held against the gate", report.Gated, writes))
	}
	if report.Objects.Creates == 0 {
		errs = append(errs, errors.New("no pod that the fleet created was judged"))
	}
	return errors.Join(errs...)
}

// logSince returns the lines of a log from an offset on, without those that a server left
// unfinished when its node lost its power.
func logSince(name string, offset int64) (text []byte, broken int, err error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, 0, err
	}
	defer file.Close()
	if _, err := file.Seek(offset, io.SeekStart); err != nil {
		return nil, 0, err
	}
	all, err := io.ReadAll(file)
	if err != nil {
		return nil, 0, err
	}
	var whole bytes.Buffer
	for line := range bytes.Lines(all) {
		if !bytes.HasSuffix(line, []byte("\n")) || !json.Valid(line) {
			broken++
			continue
		}
		whole.Write(line)
	}
	return whole.Bytes(), broken, nil
}
