package check

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/flotilla-kube/flotilla/test/docs/markdown"
)

const (
	glossaryPage    = "docs/concepts.md"
	glossaryHeading = "## Glossary"
)

// stateWords are the types with constants that metrics, 'flotilla status' and the status page
// print.
var stateWords = []struct{ file, typ string }{
	{"pkg/election/fence/fence.go", "Refusal"},
	{"pkg/election/membership/roster.go", "State"},
	{"pkg/fleet/history/kind.go", "Kind"},
	{"pkg/fleet/shardstate.go", "ShardState"},
	{"pkg/fleet/term.go", "How"},
	{"pkg/fleet/term.go", "Reason"},
	{"pkg/fleet/term.go", "HandoffPhase"},
	{"internal/status/view.go", "State"},
}

// TestGlossary finds state words that the glossary lacks, and terms in it that nothing uses.
func TestGlossary(t *testing.T) {
	words := map[string]bool{}
	for _, w := range stateWords {
		found, err := stateWordsIn(filepath.Join(root, w.file), w.typ)
		if err != nil {
			t.Fatal(err)
		}
		if len(found) < 3 {
			t.Errorf("%s has only %d constants of type %s: the test reads less than it should",
				w.file, len(found), w.typ)
		}
		for _, word := range found {
			words[word] = true
		}
	}
	all := pages(t)
	labels := labelValues(pageAt(t, all, metricsPage))
	if len(labels) < 40 {
		t.Errorf("%s has only %d values of labels: the test reads less than it should",
			metricsPage, len(labels))
	}
	for _, word := range labels {
		words[word] = true
	}
	isGlossary := func(p markdown.Page) bool { return p.Path == glossaryPage }
	others := slices.DeleteFunc(slices.Clone(all), isGlossary)
	for _, complaint := range glossaryComplaints(pageAt(t, all, glossaryPage), words, others) {
		t.Error(complaint)
	}
}

func pageAt(t *testing.T, all []markdown.Page, path string) markdown.Page {
	t.Helper()
	i := slices.IndexFunc(all, func(p markdown.Page) bool { return p.Path == path })
	if i < 0 {
		t.Fatalf("there is no %s", path)
	}
	return all[i]
}

var (
	glossaryRow  = regexp.MustCompile(`^\| ([^|]+) \|.*\|$`)
	glossaryTerm = regexp.MustCompile("\\*\\*([^*]+)\\*\\*|`([^`]+)`")
)

// glossaryComplaints compares a glossary with the state words and with the text of other pages. The
// glossary has state words in code font, and its other terms in bold.
func glossaryComplaints(p markdown.Page, words map[string]bool, others []markdown.Page) []string {
	var complaints []string
	complain := func(line int, format, what string) {
		text := fmt.Sprintf(format, what)
		complaints = append(complaints, fmt.Sprintf("%s:%d: %s", p.Path, line, text))
	}
	found, inside := map[string]bool{}, false
	for _, line := range p.Prose {
		if strings.HasPrefix(line.Text, "## ") {
			inside = line.Text == glossaryHeading
		}
		row := glossaryRow.FindStringSubmatch(line.Text)
		if !inside || row == nil {
			continue
		}
		for _, match := range glossaryTerm.FindAllStringSubmatch(row[1], -1) {
			found[match[2]] = true
			switch term, word := match[1], match[2]; {
			case word != "" && !words[word]:
				complain(line.Number, "nothing prints `%s`", word)
			case term != "" && !isUsed(term, others):
				complain(line.Number, "no other page uses %q", term)
			}
		}
	}
	for _, word := range slices.Sorted(maps.Keys(words)) {
		if !found[word] {
			complaints = append(complaints, fmt.Sprintf("%s: the glossary lacks `%s`", p.Path, word))
		}
	}
	return complaints
}

func isUsed(term string, pages []markdown.Page) bool {
	stem := strings.TrimSuffix(regexp.QuoteMeta(term), "y")
	pattern := regexp.MustCompile(`(?i)\b` + stem + `(?:y|ies|s)?\b`)
	uses := func(line markdown.Line) bool { return pattern.MatchString(line.Text) }
	return slices.ContainsFunc(pages, func(p markdown.Page) bool {
		return slices.ContainsFunc(p.Prose, uses)
	})
}

// stateWordsIn returns the constants of a type in a file, and the strings that are assigned to
// fields with the type's name.
func stateWordsIn(path, typ string) ([]string, error) {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var found []string
	add := func(expr ast.Expr) {
		if literal, ok := expr.(*ast.BasicLit); ok && literal.Kind == token.STRING {
			if word, err := strconv.Unquote(literal.Value); err == nil && word != "" {
				found = append(found, word)
			}
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ValueSpec:
			if of, ok := n.Type.(*ast.Ident); ok && of.Name == typ {
				for _, value := range n.Values {
					add(value)
				}
			}
		case *ast.AssignStmt:
			for i, to := range n.Lhs {
				if field, ok := to.(*ast.SelectorExpr); ok && field.Sel.Name == typ && len(n.Rhs) == len(n.Lhs) {
					add(n.Rhs[i])
				}
			}
		}
		return true
	})
	return found, nil
}

var (
	// enumerated are the labels with a fixed set of values, independent of the cluster.
	enumerated = []string{"state", "how", "reason", "result", "phase", "kind", "action", "filtered_by"}
	labelValue = regexp.MustCompile("`(?:[a-z_]+=\")?([a-z][a-z_-]*)\"?`")
)

// labelValues returns the label values in the page of metrics, from the cells that explain a
// family.
func labelValues(p markdown.Page) []string {
	var values []string
	for _, line := range p.Prose {
		cells := strings.Split(line.Text, " | ")
		if !strings.HasPrefix(line.Text, "| `flotilla_") || len(cells) < 4 {
			continue
		}
		labels := strings.Split(cells[2], ", ")
		if slices.ContainsFunc(labels, func(l string) bool { return slices.Contains(enumerated, l) }) {
			for _, match := range labelValue.FindAllStringSubmatch(cells[3], -1) {
				values = append(values, match[1])
			}
		}
	}
	return values
}

// TestGlossaryComplains plants text that the rule must find, and text that it must accept.
func TestGlossaryComplains(t *testing.T) {
	words := map[string]bool{"running": true, "ask": true}
	good := "# A\n## Glossary\n| word | meaning |\n|---|---|\n| `running`, `ask` | x |\n| **slim copy** | x |\n"
	for name, tc := range map[string]struct{ text, want string }{
		"good":        {good, ""},
		"lacks one":   {strings.Replace(good, ", `ask`", "", 1), "the glossary lacks `ask`"},
		"elsewhere":   {"| `ask` | x |\n" + strings.Replace(good, ", `ask`", "", 1), "the glossary lacks `ask`"},
		"not printed": {good + "| `walking` | x |\n", "nothing prints `walking`"},
		"not used":    {good + "| **harbour** | x |\n", `no other page uses "harbour"`},
		"afterwards":  {good + "## Other\n| `walking` | x |\n", ""},
	} {
		parse := func(path, text string) markdown.Page {
			p, err := markdown.Parse(path, text)
			if err != nil {
				t.Fatal(err)
			}
			return p
		}
		others := []markdown.Page{parse("docs/a.md", "It has slim copies.\n")}
		complaints := glossaryComplaints(parse(glossaryPage, tc.text), words, others)
		switch {
		case tc.want == "" && len(complaints) > 0:
			t.Errorf("%s: complains: %q", name, complaints)
		case tc.want != "" && (len(complaints) != 1 || !strings.Contains(complaints[0], tc.want)):
			t.Errorf("%s: complains %q, want one with %q", name, complaints, tc.want)
		}
	}
	row := "| `flotilla_a` | gauge | ring, how | By `how=\"handoff\"` or `ask`, see `--flag` and `A`. | `running` |\n"
	p, err := markdown.Parse(metricsPage, row+strings.Replace(row, "ring, how", "ring", 1))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := labelValues(p), []string{"handoff", "ask"}; !slices.Equal(got, want) {
		t.Errorf("values of labels %q, want %q", got, want)
	}
}
