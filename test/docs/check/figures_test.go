package check

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// figure is a number with its unit, or a ratio to stock with two places.
var figure = regexp.MustCompile(`\b[0-9][0-9,.]* (?:MiB|s)\b|\b[0-9]\.[0-9][0-9]\b`)

// TestReadmeFigures finds figures in README's tables that docs/benchmarks does not have.
func TestReadmeFigures(t *testing.T) {
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	benchmarks, found := read("docs/benchmarks/README.md"), 0
	for line := range strings.Lines(read("README.md")) {
		if !strings.HasPrefix(line, "|") {
			continue
		}
		for _, f := range figure.FindAllString(line, -1) {
			found++
			plain := strings.ReplaceAll(f, ",", "")
			if !strings.Contains(benchmarks, plain+" (") {
				t.Errorf("README.md: %s is not in docs/benchmarks/README.md: %s", f, line)
			}
		}
	}
	if found < 10 {
		t.Errorf("only %d figures are found: the test reads less than it should", found)
	}
}
