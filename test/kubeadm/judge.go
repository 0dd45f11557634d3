package main

import (
	"bytes"
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
	fleetName        = "flotilla"
	leaderLockHolder = fleetName + "_fleet"
	auditLog         = "var/log/kubernetes/audit.log"
)

// mark records where the audit logs end. The judge reads only what comes after.
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

// logFrom is an API server's audit log from an offset on.
type logFrom struct {
	name, path string
	offset     int64
}

// faults says whether a stage restarts or cuts off API servers. Without that no write may come late,
// or be under way when its term ends, and nothing may be left undecided.
type faults bool

const (
	serversStay faults = false
	serversFail faults = true
)

// judge checks what all API servers have logged since mark against the Leases.
func (c *cluster) judge(had faults) error {
	var from []logFrom
	for _, n := range c.central() {
		from = append(from, logFrom{n.name, n.path(auditLog), c.marks[n.name]})
	}
	return c.judgeLogs(had, from...)
}

// judgeLogs checks the logs of a cluster's API servers against its Leases. Each server has its own
// log, and every request is in exactly one.
func (c *cluster) judgeLogs(had faults, from ...logFrom) error {
	var logs []audit.Log
	broken := 0
	for _, l := range from {
		text, torn, err := logSince(l.path, l.offset)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(c.place, "log", "audit-"+l.name+".log"), text, 0o644); err != nil {
			return err
		}
		broken += torn
		logs = append(logs, audit.Log{Name: l.name, Reader: bytes.NewReader(text)})
	}
	report, err := audit.Judge(audit.Options{Fleet: fleetName, Controllers: catalogue.Identities()}, logs...)
	if err != nil {
		return err
	}
	c.out.printf("judged: %d lines (%d broken), %d writes by version, %d by time, %d against the leader lock; pods and others: %d creates, %d deletes; late %d, in flight %d, undecided %d",
		report.Lines, broken, report.ByVersion, report.ByTime, report.AgainstLeaderLock, report.Objects.Creates, report.Objects.Deletes, report.Late, len(report.InFlight), len(report.Undecided))
	for _, doubt := range report.Undecided {
		c.out.printf("undecided: %v", doubt)
	}
	errs := []error{report.Err()}
	if had == serversStay {
		errs = append(errs, report.Undisturbed())
	}
	if writes := report.ByVersion + report.ByTime; report.AgainstLeaderLock < writes || writes == 0 {
		errs = append(errs, fmt.Errorf("%d of %d writes were checked against the leader lock", report.AgainstLeaderLock, writes))
	}
	if report.Objects.Creates == 0 {
		errs = append(errs, errors.New("no pod that the fleet created was judged"))
	}
	return errors.Join(errs...)
}

// logSince returns the lines of a log from an offset on. It leaves out lines that a server did not
// finish because its node lost power.
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
