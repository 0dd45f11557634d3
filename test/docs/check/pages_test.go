package check

import (
	"fmt"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/flotilla-kube/flotilla/test/docs/markdown"
)

// root is the module's directory, relative to this package's.
const root = "../../.."

func pages(t *testing.T) []markdown.Page {
	t.Helper()
	all, err := markdown.Read(root)
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 10 {
		t.Fatalf("only %d pages are found below %s: the test reads less than it should", len(all), root)
	}
	return all
}

// marker begins the note above a block that no test runs. The note is a comment, which readers do
// not see.
const marker = "<!-- Not run by our tests"

// isMarked reports whether the note is above the block. A comment without an end would hide the
// block too.
func isMarked(b markdown.Block) bool {
	_, note, found := strings.Cut(b.Before, marker)
	return found && strings.HasSuffix(note, "-->")
}

// commandNames matches commands that pages tell their readers to run. A line that begins with one,
// in a block that is neither sh nor console, is a command that escapes the rule.
var commandNames = regexp.MustCompile(`^\s*(?:\$ )?(?:sudo )?(?:kubectl|flotilla|helm|make|go|kustomize|openssl|kubeadm|docker|podman|crictl|systemctl|curl|git)(?: [^—:|]*)?$`)

// TestCommandsAreRunOrSaySo finds commands that no test runs and that do not say so.
func TestCommandsAreRunOrSaySo(t *testing.T) {
	marked := 0
	for _, p := range pages(t) {
		for _, complaint := range markComplaints(p) {
			t.Error(complaint)
		}
		for _, b := range p.Blocks {
			if isMarked(b) {
				marked++
			}
		}
	}
	if marked < 40 {
		t.Errorf("only %d blocks are found that no test runs: the test reads less than it should", marked)
	}
}

func markComplaints(p markdown.Page) []string {
	var complaints []string
	complain := func(at string, format string, args ...any) {
		complaints = append(complaints, at+": "+fmt.Sprintf(format, args...))
	}
	for _, b := range p.Blocks {
		marked := isMarked(b)
		switch b.Language() {
		case "sh":
			switch words := strings.Fields(b.Info); {
			case b.Runs() && marked:
				complain(b.At(), "the line above says that no test runs this; then its info string must be 'sh not-run'")
			case b.Runs() && !markdown.IsRun(b):
				complain(b.At(), "no test runs the blocks of this section: mark this one 'sh not-run', or add the section to markdown.Run()")
			case b.Runs():
				for i, line := range b.Lines {
					if strings.HasPrefix(strings.TrimSpace(line), "! ") {
						complain(fmt.Sprintf("%s:%d", p.Path, b.Line+1+i), "%q: bash -e goes on when a command after ! fails, so this checks nothing", line)
					}
				}
			case b.Kubeadm() != "" && marked:
				complain(b.At(), "the line above says that no test runs this, and the info string that test/kubeadm does")
			case b.Kubeadm() != "":
			case words[1] != "not-run" || len(words) > 2:
				complain(b.At(), "info string %q: must be 'sh', 'sh not-run', or 'sh kubeadm' and a name for test/kubeadm", b.Info)
			case !marked:
				complain(b.At(), "a comment that begins with %q must stand above it, and say why", marker)
			}
		case "bash", "shell", "zsh", "shell-session":
			complain(b.At(), "language %q: must be 'sh' for commands, 'console' for an example with its output", b.Language())
		case "", "console":
			for i, line := range b.Lines {
				if commandNames.MatchString(line) && !strings.HasPrefix(line, "$ ") {
					complain(fmt.Sprintf("%s:%d", p.Path, b.Line+1+i), "%q looks like a command: it belongs in a block of language sh, or after '$ ' in an example", line)
				}
			}
		}
	}
	return append(complaints, indentedComplaints(p)...)
}

// indentedComplaints finds commands in indented blocks, which have no info string to say what they
// are.
func indentedComplaints(p markdown.Page) []string {
	var complaints []string
	for i, line := range p.Prose {
		blankAbove := i > 0 && p.Prose[i-1].Text == "" && p.Prose[i-1].Number == line.Number-1
		if blankAbove && strings.HasPrefix(line.Text, "    ") && commandNames.MatchString(line.Text) {
			complaints = append(complaints, fmt.Sprintf("%s:%d: %q is a command in an indented block: put it between fences", p.Path, line.Number, strings.TrimSpace(line.Text)))
		}
	}
	return complaints
}

// TestPartsThatAreRun compares markdown.Run with the pages.
func TestPartsThatAreRun(t *testing.T) {
	all := pages(t)
	for _, part := range markdown.Run() {
		found := slices.ContainsFunc(all, func(p markdown.Page) bool {
			return slices.ContainsFunc(p.Blocks, func(b markdown.Block) bool { return part.Has(b) && b.Runs() })
		})
		if !found {
			t.Errorf("markdown.Run() names section %q of %s, in which there is nothing to run", part.Section, part.Page)
		}
	}
}

// TestLinks follows all links to files of the project and to headings.
func TestLinks(t *testing.T) {
	all := pages(t)
	for _, p := range all {
		for _, complaint := range linkComplaints(p, all, root) {
			t.Error(complaint)
		}
	}
}

func linkComplaints(p markdown.Page, all []markdown.Page, root string) []string {
	var complaints []string
	for _, link := range p.Links {
		target, err := url.Parse(link.Target)
		switch {
		case err != nil:
			complaints = append(complaints, fmt.Sprintf("%s:%d: link %q: %v", p.Path, link.Line, link.Target, err))
			continue
		case target.IsAbs() || target.Host != "":
			continue
		}
		to := p.Path
		if target.Path != "" {
			to = path.Join(path.Dir(p.Path), target.Path)
		}
		if _, err := os.Stat(filepath.Join(root, filepath.FromSlash(to))); err != nil || strings.HasPrefix(to, "..") {
			complaints = append(complaints, fmt.Sprintf("%s:%d: link %q leads to %s, which does not exist", p.Path, link.Line, link.Target, to))
			continue
		}
		if target.Fragment == "" {
			continue
		}
		i := slices.IndexFunc(all, func(p markdown.Page) bool { return p.Path == to })
		if i < 0 || !all[i].Anchors[target.Fragment] {
			complaints = append(complaints, fmt.Sprintf("%s:%d: link %q: %s has no heading #%s", p.Path, link.Line, link.Target, to, target.Fragment))
		}
	}
	return complaints
}

// TestEveryPageIsInTheIndex finds pages that no link in the handbook's index leads to.
func TestEveryPageIsInTheIndex(t *testing.T) {
	all := pages(t)
	linked := map[string]bool{}
	for _, p := range all {
		for _, link := range p.Links {
			target, _, _ := strings.Cut(link.Target, "#")
			to := path.Join(path.Dir(p.Path), target)
			isIndex := slices.Contains([]string{"docs/README.md", "docs/troubleshoot.md", "docs/benchmarks/README.md"}, p.Path)
			linked[to] = linked[to] || isIndex || strings.HasPrefix(p.Path, "docs/runbooks/")
		}
	}
	for _, p := range all {
		if strings.HasPrefix(p.Path, "docs/") && p.Path != "docs/README.md" && !linked[p.Path] {
			t.Errorf("%s: no link in docs/README.md leads to it", p.Path)
		}
	}
}
