// Promexpr lists the metrics that PromQL expressions read. It takes a JSON list of expressions on
// standard input and writes a JSON list of the same length. Each entry has the expression's error,
// or its selectors with the metric's name, the explicit label matchers, and the labels by which it
// is grouped, matched or ordered around them.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

// metricName is the label under which Prometheus keeps a metric's name.
const metricName = "__name__"

// selector is one place in an expression where series are read.
type selector struct {
	Metric   string    `json:"metric"`
	Matchers []matcher `json:"matchers,omitempty"`
}

type matcher struct {
	Label string `json:"label"`
	Op    string `json:"op"`
	Value string `json:"value"`
}

// reading is what an expression reads. Labels are those of by, without, on, ignoring and group_left
// or group_right.
type reading struct {
	Error     string     `json:"error,omitempty"`
	Selectors []selector `json:"selectors,omitempty"`
	Labels    []string   `json:"labels,omitempty"`
}

func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "promexpr:", err)
		os.Exit(1)
	}
}

func run(in io.Reader, out io.Writer) error {
	var expressions []string
	if err := json.NewDecoder(in).Decode(&expressions); err != nil {
		return fmt.Errorf("standard input must be a JSON list of expressions: %w", err)
	}
	readings := make([]reading, len(expressions))
	for i, expression := range expressions {
		readings[i] = read(expression)
	}
	return json.NewEncoder(out).Encode(readings)
}

func read(expression string) reading {
	expr, err := parser.NewParser(parser.Options{}).ParseExpr(expression)
	if err != nil {
		return reading{Error: err.Error()}
	}
	var r reading
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		switch n := node.(type) {
		case *parser.VectorSelector:
			r.Selectors = append(r.Selectors, selectorOf(n))
		case *parser.AggregateExpr:
			r.Labels = append(r.Labels, n.Grouping...)
		case *parser.BinaryExpr:
			if n.VectorMatching != nil {
				r.Labels = append(r.Labels, n.VectorMatching.MatchingLabels...)
				r.Labels = append(r.Labels, n.VectorMatching.Include...)
			}
		}
		return nil
	})
	slices.Sort(r.Labels)
	r.Labels = slices.Compact(r.Labels)
	return r
}

func selectorOf(n *parser.VectorSelector) selector {
	s := selector{Metric: n.Name}
	for _, m := range n.LabelMatchers {
		if m.Name == metricName {
			if m.Type == labels.MatchEqual {
				s.Metric = m.Value
			}
			continue
		}
		s.Matchers = append(s.Matchers, matcher{Label: m.Name, Op: m.Type.String(), Value: m.Value})
	}
	return s
}
