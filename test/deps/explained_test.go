package deps

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
)

const explanations = "docs/dependencies.md"

// TestDependenciesAreExplained compares the tables of docs/dependencies.md with the direct
// requirements of the go.mod files, tools included.
func TestDependenciesAreExplained(t *testing.T) {
	tools, err := filepath.Glob(filepath.Join(root, "hack/tools/*/go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	required := map[string]string{}
	for _, name := range append(tools, filepath.Join(root, "go.mod")) {
		for _, module := range direct(read(t, name)) {
			required[module] = name
		}
	}
	explained := rows(read(t, filepath.Join(root, explanations)))
	for module, name := range required {
		if !slices.Contains(explained, module) {
			t.Errorf("%s requires %s: say in %s what for, and why a library does it", name, module, explanations)
		}
	}
	for _, module := range explained {
		if required[module] == "" {
			t.Errorf("%s explains %s, which no go.mod requires directly", explanations, module)
		}
	}
	if len(required) < 20 || len(tools) < 3 {
		t.Errorf("Found only %d direct requirements and %d tools modules: the test reads less than it should", len(required), len(tools))
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

var (
	requirement = regexp.MustCompile(`(?m)^(?:require )?\s*([a-z0-9.-]+\.[a-z]+/\S+) v\S+( // indirect)?$`)
	toolPackage = regexp.MustCompile(`(?m)^(?:tool )?\s*([a-z0-9.-]+\.[a-z]+/\S+)$`)
	tableRow    = regexp.MustCompile("(?m)^\\| `(\\S+)` \\|")
)

// direct returns the modules that a go.mod requires directly, and those of its tools. The file
// marks the tools' modules as indirect unless code beside them imports them too.
func direct(goMod string) []string {
	var modules, indirect []string
	for _, match := range requirement.FindAllStringSubmatch(goMod, -1) {
		if match[2] == "" {
			modules = append(modules, match[1])
		} else {
			indirect = append(indirect, match[1])
		}
	}
	for _, match := range toolPackage.FindAllStringSubmatch(goMod, -1) {
		// A package's module is the longest one that is a prefix of its path.
		module := ""
		for _, candidate := range slices.Concat(modules, indirect) {
			if below(match[1], candidate) && len(candidate) > len(module) {
				module = candidate
			}
		}
		modules = append(modules, module)
	}
	return modules
}

func rows(markdown string) []string {
	var modules []string
	for _, match := range tableRow.FindAllStringSubmatch(markdown, -1) {
		modules = append(modules, match[1])
	}
	return modules
}

func TestDirect(t *testing.T) {
	got := direct(`module example.com/m

tool (
	a.io/b/cmd/one
	a.io/b/c/cmd/two
)

require d.io/single v1.0.0

require (
	a.io/b v1.0.0 // indirect
	a.io/b/c v1.0.0 // indirect
	e.io/f/v2 v2.0.0
)

replace g.io/h => g.io/h v1.0.0
`)
	want := []string{"d.io/single", "e.io/f/v2", "a.io/b", "a.io/b/c"}
	if !slices.Equal(got, want) {
		t.Errorf("direct() = %q, want %q", got, want)
	}
}
