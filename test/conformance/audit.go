package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/flotilla-kube/flotilla/pkg/audit"
	"github.com/flotilla-kube/flotilla/pkg/controllers/catalogue"
)

// judge checks in a run's audit log that the fleet kept its promises. Members are killed, but
// servers are not, so no write may be late, in flight or undecided.
func (s *system) judge() error {
	file, err := os.Open(s.plane.AuditLog())
	if err != nil {
		return err
	}
	defer file.Close()
	return judge(os.Stdout, file)
}

func judge(out io.Writer, log io.Reader) error {
	report, err := audit.Judge(audit.Options{Fleet: fleetName, Controllers: catalogue.Identities()}, audit.Log{Reader: log})
	if err != nil {
		return err
	}
	terms := 0
	for _, t := range report.Terms {
		terms += len(t)
	}
	writes := report.ByVersion + report.ByTime
	fmt.Fprintf(out, "%s: %d writes in %d terms were checked against their Lease; judged of objects: %+v\n", fleetName, writes, terms, report.Objects)
	errs := []error{report.Err(), report.Undisturbed()}
	if writes == 0 || min(report.Objects.Creates, report.Objects.ReplicaSets) == 0 {
		errs = append(errs, errors.New("the audit log has no writes of the fleet, or no pods or ReplicaSets that it created: too little was judged"))
	}
	return errors.Join(errs...)
}
