package check

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// figure matches a number with its unit, or a ratio to stock with two decimals.
var figure = regexp.MustCompile(`\b[0-9][0-9,.]* (?:MiB|s)\b|\b[0-9]\.[0-9][0-9]\b`)

// TestReadmeFigures finds figures in README's tables that no page of docs/benchmarks has.
func TestReadmeFigures(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, p := range pages(t) {
		if strings.HasPrefix(p.Path, "docs/benchmarks/") {
			for _, line := range p.Prose {
				all.WriteString(line.Text + "\n")
			}
		}
	}
	benchmarks, found := all.String(), 0
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "|") {
			continue
		}
		for _, f := range figure.FindAllString(line, -1) {
			found++
			plain := strings.ReplaceAll(f, ",", "")
			if !strings.Contains(benchmarks, plain+" (") {
				t.Errorf("README.md: %s is on no page of docs/benchmarks: %s", f, line)
			}
		}
	}
	if found < 10 {
		t.Errorf("only %d figures are found: the test reads less than it should", found)
	}
}
