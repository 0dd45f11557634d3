package verdict

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/flotilla-kube/flotilla/test/conformance/spec"
)

// Status is the outcome of a spec in one run, including a second try.
type Status string

// The statuses.
const (
	// Passed at the first try.
	Passed Status = "passed"
	// PassedAgain means that the spec failed among others and passed when it was tried again,
	// alone, in the same system.
	PassedAgain Status = "passed when tried again"
	// Failed at every try.
	Failed Status = "failed"
	// Missing means that the spec did not run.
	Missing Status = "did not run"
)

// Good reports whether the spec passed, at the first try or the second.
func (s Status) Good() bool { return s == Passed || s == PassedAgain }

// Run is one run of a list of specs on one system.
type Run struct {
	// System is what ran the controllers: "stock" or "fleet".
	System string
	// First has all specs. Again has those that were tried a second time, and may be nil.
	First, Again Results
	Took         time.Duration
}

// Of returns the status of a spec, and the message of its first failure.
func (r Run) Of(text string) (Status, string) {
	first, ran := r.First[text]
	again, ranAgain := r.Again[text]
	switch {
	case ran && first.Passed():
		return Passed, ""
	case ranAgain && again.Passed():
		return PassedAgain, first.Message
	case !ran && !ranAgain:
		return Missing, ""
	case !ran:
		return Failed, again.describe()
	default:
		return Failed, first.describe()
	}
}

func (o Outcome) describe() string {
	return fmt.Sprintf("%s: %s", o.State, o.Message)
}

// Unpassed returns the specs of the list that did not pass at the first try, in the list's order.
func (r Run) Unpassed(list []string) []string {
	var texts []string
	for _, text := range list {
		if !r.First[text].Passed() {
			texts = append(texts, text)
		}
	}
	return texts
}

// Spec is the result of one spec.
type Spec struct {
	Text string `json:"text"`
	SIG  string `json:"sig"`
	// Stock is empty if there was no run with the stock controller manager.
	Stock        Status        `json:"stock,omitempty"`
	StockMessage string        `json:"stockMessage,omitempty"`
	Fleet        Status        `json:"fleet"`
	FleetMessage string        `json:"fleetMessage,omitempty"`
	FleetTook    time.Duration `json:"fleetTook"`
}

// Verdict compares two runs of one list, or judges a run of the fleet alone.
type Verdict struct {
	Specs []Spec `json:"specs"`
	// StockTook is 0 if there was no run with the stock controller manager.
	StockTook time.Duration `json:"stockTook,omitempty"`
	FleetTook time.Duration `json:"fleetTook"`
}

// Judge compares the runs. If stock is nil, every spec of the list is taken to pass with the stock
// controller manager.
func Judge(list []string, stock *Run, fleet Run) Verdict {
	v := Verdict{FleetTook: fleet.Took}
	if stock != nil {
		v.StockTook = stock.Took
	}
	for _, text := range list {
		s := Spec{Text: text, SIG: spec.SIG(text), FleetTook: fleet.First[text].Took}
		if stock != nil {
			s.Stock, s.StockMessage = stock.Of(text)
		}
		s.Fleet, s.FleetMessage = fleet.Of(text)
		v.Specs = append(v.Specs, s)
	}
	return v
}

// Broken returns the specs that fail with the fleet and that, if tried there, pass with the stock
// controller manager.
func (v Verdict) Broken() []Spec {
	return v.where(func(s Spec) bool { return s.Fleet == Failed && (s.Stock == "" || s.Stock.Good()) })
}

// Missing returns the specs that did not run with one of the two.
func (v Verdict) Missing() []Spec {
	return v.where(func(s Spec) bool { return s.Stock == Missing || s.Fleet == Missing })
}

// Inconclusive returns the specs that ran with the stock controller manager and failed there.
func (v Verdict) Inconclusive() []Spec {
	return v.where(func(s Spec) bool { return s.Stock == Failed })
}

// Again returns the specs that passed only when tried again, with either of the two.
func (v Verdict) Again() []Spec {
	return v.where(func(s Spec) bool { return s.Stock == PassedAgain || s.Fleet == PassedAgain })
}

func (v Verdict) where(holds func(Spec) bool) []Spec {
	var specs []Spec
	for _, s := range v.Specs {
		if holds(s) {
			specs = append(specs, s)
		}
	}
	return specs
}

// mostAgain is the part of the list that may pass with the fleet only when tried again, in addition
// to what does so with the stock controller manager: one spec in so many. More is not chance.
const mostAgain = 20

// Err returns nil if the fleet passes whatever the stock controller manager passes, little of it
// only when tried again, and everything ran.
func (v Verdict) Err() error {
	var errs []error
	if len(v.Specs) == 0 {
		errs = append(errs, errors.New("the list has no specs"))
	}
	if n := len(v.Broken()); n > 0 {
		errs = append(errs, fmt.Errorf("%d specs of %d fail with the fleet", n, len(v.Specs)))
	}
	again := len(v.where(func(s Spec) bool { return s.Fleet == PassedAgain })) - len(v.where(func(s Spec) bool { return s.Stock == PassedAgain }))
	if most := max(2, len(v.Specs)/mostAgain); again > most {
		errs = append(errs, fmt.Errorf("%d specs of %d more than with the stock controller manager passed only when tried again, at most %d may", again, len(v.Specs), most))
	}
	if n := len(v.Missing()); n > 0 {
		errs = append(errs, fmt.Errorf("%d specs of %d did not run", n, len(v.Specs)))
	}
	return errors.Join(errs...)
}

// SIGs returns the groups of the verdict's specs, sorted.
func (v Verdict) SIGs() []string {
	groups := map[string]bool{}
	for _, s := range v.Specs {
		groups[s.SIG] = true
	}
	return slices.Sorted(maps.Keys(groups))
}
