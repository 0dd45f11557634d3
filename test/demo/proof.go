package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/flotilla-kube/flotilla/pkg/audit"
	"github.com/flotilla-kube/flotilla/pkg/controllers/catalogue"
	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// prove reads the audit log and returns what it proves, or an error if the proof fails.
func prove(log string, plan shard.Plan, moved []string, killed loss) ([]string, error) {
	file, err := os.Open(log)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	report, err := audit.Judge(audit.Options{Fleet: fleetName, Plan: &plan, Controllers: catalogue.Identities()}, audit.Log{Reader: file})
	if err != nil {
		return nil, err
	}
	if err := faults(report, plan, moved, killed); err != nil {
		return nil, err
	}
	return summary(report, moved, killed), nil
}

// faults returns nil if the report proves the demo's claims. The holder of its shard made every
// write, none late or in flight, and the judge saw it create pods. The fleet wrote in every tenant's
// namespace. The killed incarnation, another member, and the killed member's next incarnation served
// the moved namespaces.
func faults(report audit.Report, plan shard.Plan, moved []string, killed loss) error {
	errs := []error{report.Err(), report.Undisturbed()}
	if none := report.Unwritten(namespaces); len(none) > 0 {
		errs = append(errs, fmt.Errorf("nobody wrote in %s", strings.Join(none, ", ")))
	}
	if report.Objects.Creates == 0 {
		errs = append(errs, errors.New("no pod that the fleet created was judged"))
	}
	for _, namespace := range namespaces {
		id, _ := shardOf(plan, namespace)
		for _, term := range report.Namespaces[namespace] {
			if term.Shard != id {
				errs = append(errs, fmt.Errorf("%s is in %s, but was written by %s", namespace, id, term.Identity))
			}
		}
	}
	for _, namespace := range moved {
		if got := served(report.Namespaces[namespace], killed); got != "before others after" {
			errs = append(errs, fmt.Errorf("%s was not served by %s, then by another, then by its next incarnation, but by: %s",
				namespace, killed.incarnation, chain(report.Namespaces[namespace])))
		}
	}
	return errors.Join(errs...)
}

// served says who served a namespace, in order: "before" the loss, by "others", and "after" the
// return.
func served(terms []audit.TermWrites, killed loss) string {
	var words []string
	for _, t := range terms {
		word := "others"
		switch {
		case t.Member == killed.incarnation:
			word = "before"
		case leaserecord.MemberOf(t.Member) == leaserecord.MemberOf(killed.incarnation):
			word = "after"
		}
		words = append(words, word)
	}
	return strings.Join(slices.Compact(words), " ")
}

// pauses returns how long after the kill a successor first wrote in each of these namespaces,
// sorted.
func pauses(report audit.Report, moved []string, killed loss) []time.Duration {
	var all []time.Duration
	for _, namespace := range moved {
		for _, t := range report.Namespaces[namespace] {
			if t.Member != killed.incarnation && t.First.After(killed.at) {
				all = append(all, t.First.Sub(killed.at))
				break
			}
		}
	}
	slices.Sort(all)
	return all
}

// summary summarizes the report in a few lines.
func summary(report audit.Report, moved []string, killed loss) []string {
	const examples = 3
	writes, terms, incarnations := 0, 0, map[string]bool{}
	for _, byIncarnation := range report.Writes {
		for incarnation, n := range byIncarnation {
			writes += n
			incarnations[incarnation] = true
		}
	}
	for _, t := range report.Terms {
		terms += len(t)
	}
	lines := []string{
		fmt.Sprintf("%d writes to %d shards by %d incarnations in %d terms: each in its shard's range, each by the Lease's holder",
			writes, len(report.Writes), len(incarnations), terms),
		fmt.Sprintf("(joined with the Lease by version %d, by time %d; not judged: %d refused, %d Events; %d came after the Lease had run out)",
			report.ByVersion, report.ByTime, report.Refused, report.Events, report.Late),
	}
	for _, namespace := range moved[:min(examples, len(moved))] {
		lines = append(lines, fmt.Sprintf("%-18s %s", namespace, chain(report.Namespaces[namespace])))
	}
	released, expired := report.Gaps()
	lines = append(lines,
		"without a holder when a shard was handed over: "+spread(released),
		"without a holder when it was lost, since its last renewal: "+spread(expired),
		"from the kill to the successor's first write in a namespace: "+spread(pauses(report, moved, killed)))
	return lines
}

// chain says who wrote in a namespace, in order.
func chain(terms []audit.TermWrites) string {
	var parts []string
	for _, t := range terms {
		parts = append(parts, fmt.Sprintf("%s (term %d, %d writes)", leaserecord.MemberOf(t.Member), t.Term, t.Writes))
	}
	return strings.Join(parts, ", then ")
}

// spread describes the distribution of sorted durations.
func spread(sorted []time.Duration) string {
	if len(sorted) == 0 {
		return "never"
	}
	last := len(sorted) - 1
	return fmt.Sprintf("n=%d, median %v, longest %v",
		len(sorted), sorted[last/2].Round(time.Millisecond), sorted[last].Round(time.Millisecond))
}
