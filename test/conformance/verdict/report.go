package verdict

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
)

// Outcome is how a spec ended.
type Outcome struct {
	// State is ginkgo's: "passed", "failed", "skipped", "timedout", "panicked", "interrupted",
	// "aborted", "pending".
	State string `json:"state"`
	// Took is the time from the spec's beginning to its end, including cleanup.
	Took time.Duration `json:"took"`
	// Message says what failed, or why the spec skipped itself. It is empty for a spec that passed.
	Message string `json:"message,omitempty"`
}

// passed is the state of a spec that passed.
const passed = "passed"

// Passed reports whether the spec passed.
func (o Outcome) Passed() bool { return o.State == passed }

// Results are the outcomes of one run of the suite, keyed by the specs' texts. They leave out specs
// that did not run.
type Results map[string]Outcome

// These types are the needed part of ginkgo's JSON report. Ginkgo's own types would be a dependency
// of the module.
type (
	suiteReport struct {
		SpecReports                []specReport
		SpecialSuiteFailureReasons []string
	}
	specReport struct {
		ContainerHierarchyTexts []string
		LeafNodeType            string
		LeafNodeText            string
		State                   string
		NumAttempts             int
		RunTime                 time.Duration
		Failure                 *struct{ Message string }
	}
)

// ParseReport reads ginkgo's JSON report. It returns an error, along with the results so far, in
// two cases: two specs that ran have the same text, or a part of the suite around the specs has
// failed, such as the setup. Specs are then missing or mean nothing.
func ParseReport(r io.Reader) (Results, error) {
	var suites []suiteReport
	if err := json.NewDecoder(r).Decode(&suites); err != nil {
		return nil, fmt.Errorf("report of ginkgo: %w", err)
	}
	results := Results{}
	var faults []string
	for _, suite := range suites {
		faults = append(faults, suite.SpecialSuiteFailureReasons...)
		for _, s := range suite.SpecReports {
			if s.LeafNodeType != "It" {
				if s.failed() {
					faults = append(faults, fmt.Sprintf("%s: %s: %s", s.LeafNodeType, s.State, s.message()))
				}
				continue
			}
			// A spec that was not selected has neither an attempt nor a reason.
			if s.NumAttempts == 0 && s.Failure == nil {
				continue
			}
			text := s.text()
			if _, twice := results[text]; twice {
				faults = append(faults, fmt.Sprintf("two specs have the text %q", text))
			}
			results[text] = Outcome{State: s.State, Took: s.RunTime, Message: s.message()}
		}
	}
	// "Detected Programmatic Focus" and similar remarks are also made of a suite that has not
	// failed. Failed specs are not listed here.
	if len(faults) > 0 {
		return results, fmt.Errorf("report of ginkgo: %s", strings.Join(faults, "; "))
	}
	return results, nil
}

func (s specReport) text() string {
	var texts []string
	for _, text := range append(s.ContainerHierarchyTexts, s.LeafNodeText) {
		if text != "" {
			texts = append(texts, text)
		}
	}
	return strings.TrimSpace(strings.Join(texts, " "))
}

func (s specReport) failed() bool {
	switch s.State {
	case "failed", "panicked", "timedout", "interrupted", "aborted":
		return true
	}
	return false
}

func (s specReport) message() string {
	if s.Failure == nil {
		return ""
	}
	return strings.TrimSpace(s.Failure.Message)
}
