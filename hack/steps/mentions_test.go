package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	target     = regexp.MustCompile(`(?m)^([a-z][a-z-]*):`)
	targetUsed = regexp.MustCompile("(?m)(?:`|'|^)make ((?:[a-z][a-z-]*(?: |\\b))+)")
	stepUsed   = regexp.MustCompile(`\bRUN=([a-z][a-z0-9-]*)`)
)

// TestMentions finds targets and steps that pages, comments and messages name, and that do not
// exist.
func TestMentions(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, name := range texts(t) {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		n, complaints := mentions(string(text), string(makefile))
		found += n
		for _, complaint := range complaints {
			t.Errorf("%s: %s", name, complaint)
		}
	}
	if found < 50 {
		t.Errorf("only %d mentions are found: the test reads less than it should", found)
	}
}

// mentions returns the number of mentions, and the complaints.
func mentions(text, makefile string) (int, []string) {
	var targets, complaints []string
	for _, match := range target.FindAllStringSubmatch(makefile, -1) {
		targets = append(targets, match[1])
	}
	found := 0
	for _, match := range targetUsed.FindAllStringSubmatch(text, -1) {
		for _, name := range strings.Fields(match[1]) {
			found++
			if !slices.Contains(targets, name) {
				complaints = append(complaints, fmt.Sprintf("%q: there is no target %s", match[0], name))
			}
		}
	}
	for _, match := range stepUsed.FindAllStringSubmatch(text, -1) {
		found++
		if !slices.Contains(allNames(), match[1]) {
			complaints = append(complaints, fmt.Sprintf("%q: there is no step %s", match[0], match[1]))
		}
	}
	return found, complaints
}

// texts returns the project's files, except data and this file.
func texts(t *testing.T) []string {
	t.Helper()
	names := []string{"README.md", "CONTRIBUTING.md", "Makefile", ".ci/run", ".github/workflows/release.yaml"}
	for _, top := range []string{"cmd", "deploy", "docs", "examples", "hack", "internal", "pkg", "test"} {
		err := filepath.WalkDir(filepath.Join(root, top), func(name string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() && entry.Name() == "testdata" {
				return skipFolder(err)
			}
			rel, err := filepath.Rel(root, name)
			if slices.Contains([]string{".go", ".md", ".sh", ".txt", ".yaml"}, filepath.Ext(name)) && rel != filepath.Join("hack", "steps", "mentions_test.go") {
				names = append(names, rel)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return names
}

func skipFolder(err error) error {
	if err == nil {
		return fs.SkipDir
	}
	return err
}

func TestMentionsComplain(t *testing.T) {
	const makefile = "demo: tools build ## Run it.\n\tgo run\n\ntools: ## Build.\n"
	for text, want := range map[string]string{
		"Run `make demo`.":                       "",
		"make demo      # a cluster":             "",
		"make tools demo\n":                      "",
		"to make sure of it, which makes demons": "",
		"Run `make demos`.":                      "there is no target demos",
		"say 'make lint' to it":                  "there is no target lint",
		"make tools lint\n":                      "there is no target lint",
		"`make demo RUN=e2e`":                    "",
		"`make demo RUN=e3e`":                    "there is no step e",
	} {
		_, complaints := mentions(text, makefile)
		if (want == "") != (len(complaints) == 0) || want != "" && !strings.Contains(complaints[0], want) {
			t.Errorf("%q: %q, want %q", text, complaints, want)
		}
	}
}

// TestHelpFitsAScreen lays out `make help` as the Makefile does, and judges the page.
func TestHelpFitsAScreen(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	for _, complaint := range helpComplaints(string(text)) {
		t.Error(complaint)
	}
}

// A screen also shows the prompt.
const screenLines, screenColumns = 25 - 1, 80

var (
	helpGroup  = regexp.MustCompile(`(?m)^##@ .*`)
	helpTarget = regexp.MustCompile(`(?m)^([a-z][a-z0-9-]*):.*## (.*)`)
	helpLine   = regexp.MustCompile(`sprintf\("( *%-[0-9]+s %s)\\n"`)
	helpGap    = regexp.MustCompile(`printf "((?:\\n)*)%s\\n%s", order`)
)

// helpComplaints says what of the list of targets is beyond a screen. The list has a line for the
// usage, one for each group and one for each target.
func helpComplaints(makefile string) []string {
	line, gap := helpLine.FindStringSubmatch(makefile), helpGap.FindStringSubmatch(makefile)
	targets := helpTarget.FindAllStringSubmatch(makefile, -1)
	if line == nil || gap == nil || len(targets) == 0 {
		return []string{"the targets, or the formats by which make help lists them, are not found"}
	}
	var complaints []string
	groups := len(helpGroup.FindAllString(makefile, -1))
	if lines := 1 + groups*(1+len(gap[1])/len(`\n`)) + len(targets); lines > screenLines {
		complaints = append(complaints, fmt.Sprintf("make help prints %d lines, want at most %d", lines, screenLines))
	}
	for _, target := range targets {
		if columns := len([]rune(fmt.Sprintf(line[1], target[1], target[2]))); columns > screenColumns {
			complaints = append(complaints, fmt.Sprintf("make help prints %d columns for %s, want at most %d", columns, target[1], screenColumns))
		}
	}
	return complaints
}

func TestHelpComplains(t *testing.T) {
	const format = `sprintf("  %-4s %s\n", x) printf "\n%s\n%s", order[i]` + "\n"
	target := "run: build ## " + strings.Repeat("x", 80-7) + "\n"
	for text, want := range map[string]string{
		format + "##@ One\n" + target:                                "",
		format + "##@ One\n" + strings.Replace(target, "x", "xx", 1): "81 columns for run",
		format + strings.Repeat("##@ One\n", 11) + target:            "",
		format + strings.Repeat("##@ One\n", 11) + target + target:   "prints 25 lines",
		format: "are not found",
		target: "are not found",
	} {
		complaints := helpComplaints(text)
		if (want == "") != (len(complaints) == 0) || want != "" && !strings.Contains(complaints[0], want) {
			t.Errorf("%q: %q, want %q", text, complaints, want)
		}
	}
}
