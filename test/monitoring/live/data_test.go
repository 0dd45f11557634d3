package live

import (
	"context"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/flotilla-kube/flotilla/pkg/fleet"
	"github.com/flotilla-kube/flotilla/test/harness"
	"github.com/flotilla-kube/flotilla/test/monitoring"
)

// prometheusOwn is Prometheus' own metric about alerts. It has no series in a healthy fleet, in
// which nothing fires.
const prometheusOwn = "ALERTS"

// emptyPanels are panels that may have no data in a healthy fleet, with the reason.
var emptyPanels = map[string]string{
	"Alerts":                    "nothing fires",
	"Writes refused per second": "the fence has refused nothing",
	"Dead members fenced":       "deploy/fence is not installed",
	"Not ok per second":         "all requests may have succeeded",
}

// targetLabels are labels that Prometheus, through the ServiceMonitor, puts on every series.
var targetLabels = []string{"namespace", "job", "instance", "le", "alertname", "alertstate", "severity", "generation"}

// expressions returns the expressions of all rules and panels, by where they are.
func (w *fixture) expressions(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	rules, err := monitoring.LoadRules(filepath.Join(w.root, "deploy/monitoring/alerts.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, rule := range rules.All() {
		all["rule "+rule.Alert] = rule.Expr
	}
	for _, q := range w.queries(t) {
		all[q.Name()] = q.Expr
	}
	return all
}

func (w *fixture) queries(t *testing.T) []monitoring.Query {
	t.Helper()
	dashboard, err := monitoring.LoadDashboard(filepath.Join(w.root, "deploy/monitoring/dashboard.json"))
	if err != nil {
		t.Fatal(err)
	}
	// Long enough to cover what happened in the run.
	return dashboard.Queries(monitoring.Variables{Namespace: "kube-system", Job: job, RateInterval: 15 * time.Minute})
}

// requireMetrics requires that every selector of an expression matches scraped series.
func (w *fixture) requireMetrics(t *testing.T) {
	expressions := w.expressions(t)
	keys := slices.Sorted(maps.Keys(expressions))
	var texts []string
	for _, key := range keys {
		texts = append(texts, expressions[key])
	}
	readings, err := monitoring.Read(filepath.Join(w.root, "bin", "promexpr"), texts)
	if err != nil {
		t.Fatal(err)
	}
	selectors := 0
	for i, r := range readings {
		known := slices.Clone(targetLabels)
		for _, s := range r.Selectors {
			selectors++
			labels, complaint := w.labelsOf(t, s)
			if complaint != "" {
				t.Errorf("%s: %s", keys[i], complaint)
			}
			known = append(known, labels...)
		}
		for _, label := range r.Labels {
			if !slices.Contains(known, label) {
				t.Errorf("%s: groups or matches by label %s, but its series have only %v", keys[i], label, known)
			}
		}
	}
	if selectors < 100 {
		t.Errorf("found %d selectors only: the test reads less than it should", selectors)
	}
	t.Logf("%d selectors in %d expressions", selectors, len(texts))
}

// labelsOf returns the labels of the metric that a selector reads, and what is wrong with the
// selector.
func (w *fixture) labelsOf(t *testing.T, s monitoring.Selector) (labels []string, complaint string) {
	t.Helper()
	if s.Metric == prometheusOwn {
		return nil, ""
	}
	series, err := w.prom.series(t.Context(), s.Metric)
	if err != nil {
		t.Fatal(err)
	}
	if len(series) == 0 {
		return nil, fmt.Sprintf("no member exposes %s", s.Metric)
	}
	for _, one := range series {
		labels = append(labels, slices.Collect(maps.Keys(one))...)
	}
	for _, m := range s.Matchers {
		if !slices.Contains(labels, m.Label) {
			return labels, fmt.Sprintf("%s has no label %s, only %v", s.Metric, m.Label, slices.Compact(slices.Sorted(slices.Values(labels))))
		}
		// Most states last for moments only, between two scrapes.
		if m.Label == "state" && slices.Contains(fleet.ShardStates(), fleet.ShardState(m.Value)) || m.Op != "=" && m.Op != "=~" {
			continue
		}
		some, err := w.prom.series(t.Context(), fmt.Sprintf("%s{%s%s%q}", s.Metric, m.Label, m.Op, m.Value))
		if err != nil {
			t.Fatal(err)
		}
		if len(some) == 0 {
			return labels, fmt.Sprintf("%s is never seen with %s%s%q", s.Metric, m.Label, m.Op, m.Value)
		}
	}
	return labels, ""
}

// requirePanels requires that every query of the dashboard returns numbers.
func (w *fixture) requirePanels(t *testing.T) {
	queries := w.queries(t)
	for _, q := range queries {
		if reason := emptyPanels[q.Panel.Title]; reason != "" {
			n, err := w.numbers(t.Context(), q.Expr)
			if err != nil {
				t.Error(err)
			}
			t.Logf("%s has %d series and may be empty: %s", q.Name(), n, reason)
			continue
		}
		// Some series appear late: a process counts the weight of its shards some seconds after it
		// has started.
		harness.Eventually(t, harness.Patience, q.Name()+" has data", func(ctx context.Context) error {
			n, err := w.numbers(ctx, q.Expr)
			if err == nil && n == 0 {
				err = fmt.Errorf("no numbers for %s", q.Expr)
			}
			return err
		})
	}
	t.Logf("%d queries", len(queries))
}

// numbers returns how many series of an answer have a number.
func (w *fixture) numbers(ctx context.Context, expr string) (int, error) {
	samples, err := w.prom.query(ctx, expr)
	if err != nil {
		return 0, err
	}
	n := 0
	for _, s := range samples {
		if f, err := strconv.ParseFloat(s.value(), 64); err == nil && !math.IsNaN(f) {
			n++
		}
	}
	return n, nil
}
