package check

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/flotilla-kube/flotilla/test/docs/markdown"
)

const metricsPage = "docs/metrics.md"

var (
	metricName = regexp.MustCompile(`\bflotilla_[a-z0-9_]+`)
	suffix     = regexp.MustCompile(`_(bucket|sum|count)$`)
	// notMetrics has the fleet's identity in a leader lock.
	notMetrics = []string{"flotilla_fleet"}
)

// TestMetricsExist finds names of metrics that docs/metrics.md does not have. That page's own tests
// compare it with the code.
func TestMetricsExist(t *testing.T) {
	all := pages(t)
	i := slices.IndexFunc(all, func(p markdown.Page) bool { return p.Path == metricsPage })
	known := map[string]bool{}
	for _, name := range names(all[i]) {
		known[name.Text] = true
	}
	if len(known) < 15 {
		t.Fatalf("%s has only %d metrics: the test reads less than it should", metricsPage, len(known))
	}
	for _, p := range all {
		for _, complaint := range metricComplaints(p, known) {
			t.Error(complaint)
		}
	}
}

func metricComplaints(p markdown.Page, known map[string]bool) []string {
	var complaints []string
	for _, name := range names(p) {
		bare := suffix.ReplaceAllString(name.Text, "")
		// A name that ends with _ is the prefix of several.
		if !known[name.Text] && !known[bare] && !strings.HasSuffix(name.Text, "_") && !slices.Contains(notMetrics, name.Text) {
			complaints = append(complaints, fmt.Sprintf("%s:%d: metric %s is not in %s", p.Path, name.Number, name.Text, metricsPage))
		}
	}
	return complaints
}

// names returns the metrics that a page names, with their lines.
func names(p markdown.Page) []markdown.Line {
	var all []markdown.Line
	add := func(line markdown.Line) {
		for _, name := range metricName.FindAllString(line.Text, -1) {
			all = append(all, markdown.Line{Number: line.Number, Text: name})
		}
	}
	for _, line := range p.Prose {
		add(line)
	}
	for _, b := range p.Blocks {
		for i, text := range b.Lines {
			add(markdown.Line{Number: b.Line + 1 + i, Text: text})
		}
	}
	return all
}
