package monitoring

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	runbooks = "docs/runbooks"
	site     = "https://github.com/flotilla-kube/flotilla/blob/main/" + runbooks + "/"
)

// sections are what somebody who was woken looks for, in this order.
var sections = []string{"## Meaning", "## How bad", "## Look", "## Do", "## Silence"}

func TestRunbooks(t *testing.T) {
	dir := filepath.Join(root(t), runbooks)
	names := shipped(t).Names()
	for _, name := range names {
		content, err := os.ReadFile(filepath.Join(dir, name+".md"))
		if err != nil {
			t.Errorf("alert %s has no runbook: %v", name, err)
			continue
		}
		text, at := string(content), 0
		if !strings.HasPrefix(text, "# "+name+"\n") {
			t.Errorf("%s.md does not begin with its name", name)
		}
		for _, section := range sections {
			next := strings.Index(text[at:], section+"\n")
			if next < 0 {
				t.Errorf("%s.md has no section %q, or not after the one before", name, section)
				continue
			}
			at += next
		}
		if lines := strings.Count(text, "\n"); lines > 80 {
			t.Errorf("%s.md has %d lines: too many at three in the morning", name, lines)
		}
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if name := strings.TrimSuffix(file.Name(), ".md"); name != "README" && !slices.Contains(names, name) {
			t.Errorf("%s is the runbook of no alert", file.Name())
		}
	}
}

// said matches code in a runbook that looks like a log message: several words that begin with a
// capital letter.
var said = regexp.MustCompile("(?:`|grep ')([A-Z][a-z]+ [a-z][A-Za-z ]+)(?:`|')")

// verbose matches a line of code that logs only with -v: a klog call, or an entry of pkg/events.
// Comments match too, since they log nothing.
var verbose = regexp.MustCompile(`\.V\(|\.at\(|^\s*//`)

// TestRunbooksQuoteTheLog checks that log messages in runbooks are logged at the verbosity that the
// manifests have, which set no -v.
func TestRunbooksQuoteTheLog(t *testing.T) {
	var source strings.Builder // of lines that log without -v
	collect := func(path string, _ os.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		content, err := os.ReadFile(path)
		for line := range strings.Lines(string(content)) {
			if !verbose.MatchString(line) {
				source.WriteString(line)
			}
		}
		return err
	}
	for _, top := range []string{"internal", "pkg"} {
		if err := filepath.WalkDir(filepath.Join(root(t), top), collect); err != nil {
			t.Fatal(err)
		}
	}
	found := 0
	for _, name := range append(shipped(t).Names(), "../troubleshoot") {
		content, err := os.ReadFile(filepath.Join(root(t), runbooks, name+".md"))
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range said.FindAllStringSubmatch(string(content), -1) {
			found++
			if !strings.Contains(source.String(), match[1]) {
				t.Errorf("%s.md quotes %q, which nothing logs, or only with -v", name, match[1])
			}
		}
	}
	if found < 15 {
		t.Errorf("found %d messages: the test reads less than it should", found)
	}
}

// TestSeverities compares the table in deploy/monitoring/README.md with the rules.
func TestSeverities(t *testing.T) {
	content, err := os.ReadFile(filepath.Join(root(t), "deploy/monitoring/README.md"))
	if err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile(`(?m)^\| (Flotilla[^|]*) \| (Flotilla[^|]*) \|$`).FindStringSubmatch(string(content))
	if row == nil {
		t.Fatal("the README has no table of alerts")
	}
	for i, severity := range []string{"critical", "warning"} {
		var want []string
		for _, rule := range shipped(t).All() {
			if rule.Labels["severity"] == severity {
				want = append(want, rule.Alert)
			}
		}
		if got := strings.Split(row[i+1], ", "); !slices.Equal(got, want) {
			t.Errorf("the README says that %v are %s, the rules that %v are", got, severity, want)
		}
	}
}

var template = regexp.MustCompile(`\{\{.*?\}\}`)

func TestAlertsAreExplained(t *testing.T) {
	for _, rule := range shipped(t).All() {
		if got, want := rule.Annotations["runbook_url"], site+rule.Alert+".md"; got != want {
			t.Errorf("%s: runbook_url is %s, want %s", rule.Alert, got, want)
		}
		if s := rule.Labels["severity"]; s != "critical" && s != "warning" {
			t.Errorf("%s: severity is %q, want critical or warning", rule.Alert, s)
		}
		if s := rule.Annotations["summary"]; s == "" || template.MatchString(s) || !strings.HasSuffix(s, ".") {
			t.Errorf("%s: summary %q must be a sentence, the same for all", rule.Alert, s)
		}
		d := rule.Annotations["description"]
		for _, label := range []string{"$labels.namespace", "$labels.job"} {
			if !strings.Contains(d, label) {
				t.Errorf("%s: description does not name the fleet by %s", rule.Alert, label)
			}
		}
		if !strings.HasPrefix(rule.Alert, "Flotilla") {
			t.Errorf("%s: does not begin with Flotilla", rule.Alert)
		}
	}
}

// TestFleetsAreApart checks that no rule adds up several fleets: all aggregations keep namespace
// and job.
func TestFleetsAreApart(t *testing.T) {
	aggregation := regexp.MustCompile(`\b(sum|min|max|avg|count|group|count_values|topk|quantile)\s*(by\s*\(([^)]*)\))?\s*\(`)
	for _, rule := range shipped(t).All() {
		for _, match := range aggregation.FindAllStringSubmatch(rule.Expr, -1) {
			// The API servers' metrics have other labels.
			if strings.HasPrefix(rule.Expr[strings.Index(rule.Expr, match[0]):], "min(kubernetes_feature_enabled") {
				continue
			}
			if !strings.Contains(match[3], "namespace, job") {
				t.Errorf("%s: %q does not keep namespace and job", rule.Alert, match[0])
			}
		}
	}
}
