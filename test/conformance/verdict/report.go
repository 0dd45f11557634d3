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
	// Took is from the spec's begin to its end, its cleaning up included.
	Took time.Duration `json:"took"`
	// Message says what failed, or why the spec skipped itself; empty for one that passed.
	Message string `json:"message,omitempty"`
}

// passed is the state of a spec that passed.
const passed = "passed"

// Passed reports whether the spec passed.
func (o Outcome) Passed() bool { return o.State == passed }

// Results are the outcomes of one run of the suite, by the specs' texts. A spec that was not run is
// not in it.
type Results map[string]Outcome

// What is needed of ginkgo's JSON report. The type is ours: ginkgo's would be a dependency of the
// module.
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

// ParseReport reads ginkgo's JSON report. It is an error if a part of the suite around the specs
// has failed, such as the setup, for then specs are missing or mean nothing; and if two specs that
// ran have the same text. The results so far are returned even then.
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
			// Not selected: neither an attempt nor a reason.
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
	// "Detected Programmatic Focus" and the like are said of a suite that has not failed too; a
	// failed spec is not said here.
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
