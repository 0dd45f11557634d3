package check

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/flotilla-kube/flotilla/test/docs/markdown"
)

var (
	testFunction = regexp.MustCompile(`(?m)^func ((?:Test|Benchmark|Fuzz)[A-Z]\w*)\(`)
	testMention  = regexp.MustCompile(`\b((?:Test|Benchmark|Fuzz)[A-Z]\w*)(…?)`)
)

// TestTestsExist finds tests that pages and comments name and that do not exist, because they were
// renamed or deleted.
func TestTestsExist(t *testing.T) {
	var functions []string
	texts := pages(t)
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == "_output" || entry.Name() == ".git"):
			return fs.SkipDir
		case !strings.HasSuffix(name, ".go"):
			return nil
		}
		source, err := os.ReadFile(name)
		texts = append(texts, markdown.Page{Path: name, Prose: comments(string(source))})
		if !strings.HasSuffix(name, "_test.go") {
			return err
		}
		for _, f := range testFunction.FindAllStringSubmatch(string(source), -1) {
			functions = append(functions, f[1])
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, p := range texts {
		n, complaints := testComplaints(p, functions)
		found += n
		for _, complaint := range complaints {
			t.Error(complaint)
		}
	}
	if found < 800 {
		t.Errorf("only %d tests are named in pages and comments: the test reads less than it should", found)
	}
}

// comments returns the lines of Go source that are nothing but a comment.
func comments(source string) []markdown.Line {
	var lines []markdown.Line
	number := 0
	for text := range strings.Lines(source) {
		number++
		if text = strings.TrimSpace(text); strings.HasPrefix(text, "//") {
			lines = append(lines, markdown.Line{Number: number, Text: text})
		}
	}
	return lines
}

// testComplaints also returns how many tests the page names. A name with an ellipsis, or on a line
// with -run, is the beginning of one or more.
func testComplaints(p markdown.Page, functions []string) (found int, complaints []string) {
	exact, all := "\n"+strings.Join(functions, "\n")+"\n", "\n"+strings.Join(functions, "\n")
	for _, line := range p.Prose {
		for _, mention := range testMention.FindAllStringSubmatch(line.Text, -1) {
			found++
			begins := mention[2] != "" || strings.Contains(line.Text, "-run")
			if !strings.Contains(exact, "\n"+mention[1]+"\n") && !(begins && strings.Contains(all, "\n"+mention[1])) {
				complaints = append(complaints, fmt.Sprintf("%s:%d: there is no %s", p.Path, line.Number, mention[0]))
			}
		}
	}
	return found, complaints
}

func TestTestsComplain(t *testing.T) {
	functions := []string{"TestFenceIsTight", "BenchmarkAssign"}
	for text, want := range map[string]int{
		"`TestFenceIsTight` and `BenchmarkAssign`":  0,
		"`TestFence` and `TestFenceIsTightly`":      2,
		"`TestFence…`":                              0,
		"`TestGate…`":                               1,
		"`go test ./pkg/fence -run 'TestFence' -v`": 0,
		"Tests of BenchmarkAssigned":                1,
	} {
		page := markdown.Page{Path: "docs/x.md", Prose: []markdown.Line{{Number: 7, Text: text}}}
		if _, complaints := testComplaints(page, functions); len(complaints) != want {
			t.Errorf("%q: %q, want %d complaints", text, complaints, want)
		}
	}
}

func TestComments(t *testing.T) {
	const source = "// Package x: TestOne\npackage x\n\nfunc f() { // TestTwo\n\t// See TestThree.\n}\n"
	want := []markdown.Line{{Number: 1, Text: "// Package x: TestOne"}, {Number: 5, Text: "// See TestThree."}}
	if got := comments(source); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
