package check

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/flotilla-kube/flotilla/internal/flags"
	"github.com/flotilla-kube/flotilla/test/docs/markdown"
)

// TestExamplesAreAsTheirPagesSay compares each diff on the page of an example with its main.go: the
// lines that stay and the lines that are new must be there, in a row where no "..." stands.
func TestExamplesAreAsTheirPagesSay(t *testing.T) {
	found := 0
	names, err := filepath.Glob(filepath.Join(root, "examples/*/README.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		p, err := markdown.Parse(name, string(text))
		if err != nil {
			t.Fatal(err)
		}
		code, err := os.ReadFile(filepath.Join(filepath.Dir(name), "main.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range p.Blocks {
			if b.Language() != "diff" {
				continue
			}
			found++
			for _, complaint := range diffComplaints(b, strings.Split(string(code), "\n")) {
				t.Error(complaint)
			}
		}
	}
	if found < 2 {
		t.Errorf("only %d diffs are found: the test reads less than it should", found)
	}
}

// diffComplaints returns which runs of lines of the new side are not in the code, in their order.
func diffComplaints(b markdown.Block, code []string) []string {
	var complaints []string
	for _, run := range newSide(b) {
		at := indexOf(code, run)
		if at < 0 {
			complaints = append(complaints, fmt.Sprintf("%s: main.go has no such lines, or not after those before:\n%s", b.At(), strings.Join(run, "\n")))
			continue
		}
		code = code[at+len(run):]
	}
	return complaints
}

// newSide returns the lines that stay and those that are new, as runs between lines that are "...".
func newSide(b markdown.Block) [][]string {
	var runs [][]string
	var run []string
	for _, line := range b.Lines {
		text := strings.TrimPrefix(strings.TrimPrefix(line, "+"), " ")
		switch {
		case strings.HasPrefix(line, "-"):
		case strings.TrimSpace(text) == "...":
			runs, run = append(runs, run), nil
		default:
			run = append(run, text)
		}
	}
	return append(runs, run)
}

// indexOf returns where code has the lines in a row; -1 for nowhere.
func indexOf(code, lines []string) int {
	for at := range len(code) - len(lines) + 1 {
		if slices.Equal(code[at:at+len(lines)], lines) {
			return at
		}
	}
	return -1
}

// TestDiffsThatDiffer plants diffs.
func TestDiffsThatDiffer(t *testing.T) {
	code := []string{"a", "", "\tb", "c", "d", "e"}
	for name, tc := range map[string]struct {
		lines []string
		want  int
	}{
		"the code":        {[]string{"-x", " a", " ", "+\tb", "+c"}, 0},
		"runs":            {[]string{" a", "+\t...", "+d"}, 0},
		"another line":    {[]string{" a", "+c"}, 1},
		"another indent":  {[]string{"+b"}, 1},
		"another order":   {[]string{"+d", " ...", "+c"}, 1},
		"what was before": {[]string{"-x", "-y"}, 0},
	} {
		if got := diffComplaints(markdown.Block{Lines: tc.lines}, code); len(got) != tc.want {
			t.Errorf("%s: %q, want %d complaints", name, got, tc.want)
		}
	}
}

// pingVariable is the entry of a variable of the environment in an example's manifest.
var pingVariable = regexp.MustCompile(`- \{name: (HTTP2_\w+), value: "(\d+)"\}`)

// TestExamplesNoticeDeadServers checks that examples and the guide set what the project's own
// programs set by themselves (flags.SetPings). Otherwise a controller goes on sending to an API
// server that is gone.
func TestExamplesNoticeDeadServers(t *testing.T) {
	want := map[string]string{"HTTP2_READ_IDLE_TIMEOUT_SECONDS": "", "HTTP2_PING_TIMEOUT_SECONDS": ""}
	for name := range want {
		t.Setenv(name, "")
	}
	if err := flags.SetPings(); err != nil {
		t.Fatal(err)
	}
	for name := range want {
		want[name] = os.Getenv(name)
	}
	manifests, err := filepath.Glob(filepath.Join(root, "examples/*/deploy.yaml"))
	if err != nil || len(manifests) < 2 {
		t.Fatalf("only %q are found, error %v: the test reads less than it should", manifests, err)
	}
	for _, manifest := range manifests {
		text, err := os.ReadFile(manifest)
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		for _, m := range pingVariable.FindAllStringSubmatch(string(text), -1) {
			got[m[1]] = m[2]
		}
		for name, seconds := range want {
			if seconds == "" || got[name] != seconds {
				t.Errorf("%s sets %s to %q, the project's programs to %q", manifest, name, got[name], seconds)
			}
		}
	}
	guide, err := os.ReadFile(filepath.Join(root, "docs/library.md"))
	if err != nil {
		t.Fatal(err)
	}
	said := strings.Join(strings.Fields(string(guide)), " ")
	for name, seconds := range want {
		if text := fmt.Sprintf("`%s` to %s ", name, seconds); !strings.Contains(said, text) {
			t.Errorf("docs/library.md does not say %q", text)
		}
	}
}
