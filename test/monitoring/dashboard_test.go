package monitoring

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"
)

func dashboard(t *testing.T) Dashboard {
	t.Helper()
	d, err := LoadDashboard(filepath.Join(root(t), "deploy/monitoring/dashboard.json"))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestDashboard(t *testing.T) {
	d := dashboard(t)
	for _, complaint := range complaints(d) {
		t.Error(complaint)
	}
	if panels := len(d.Panels); panels < 40 {
		t.Errorf("has %d panels: the test reads less than it should", panels)
	}
	if _, err := Read(tool(t, "promexpr"), expressions(d)); err != nil {
		t.Error(err)
	}
}

// TestPanelsCountWhatIsNew evaluates the panels about times of handoffs for a process whose first
// scrape finds some. They are new if the process is, and may be days old otherwise.
func TestPanelsCountWhatIsNew(t *testing.T) {
	needPromtool(t)
	const scraped, window = 30 * time.Minute, time.Minute
	var tests []map[string]any
	for name, began := range map[string]time.Duration{"old": -24 * time.Hour, "new": scraped - window/2} {
		f, want := fleet{}, is(name == "new")
		f.set(members[0], "process_start_time_seconds", "", scraped, length, began.Seconds())
		for _, le := range []string{"1", "+Inf"} {
			for metric, labels := range map[string]string{
				"flotilla_shard_unowned_seconds_bucket": `how="handoff"`, "flotilla_handoff_phase_seconds_bucket": `phase="start"`,
			} {
				f.set(members[0], metric, fmt.Sprintf(`ring="namespaces",%s,le=%q`, labels, le), scraped, length, 7)
			}
			f.set(members[0], "flotilla_shard_unowned_seconds_bucket", fmt.Sprintf(`ring="namespaces",how="takeover",le=%q`, le), scraped, length, 7)
		}
		var series, checks []map[string]any
		for name, row := range f {
			series = append(series, map[string]any{"series": name, "values": values(row)})
		}
		for _, q := range dashboard(t).Queries(Variables{Namespace: "kube-system", Job: "flotilla", RateInterval: window}) {
			if !strings.Contains(q.Expr, "flotilla_shard_unowned_seconds_bucket") && !strings.Contains(q.Expr, "flotilla_handoff_phase_seconds_bucket") {
				continue
			}
			checks = append(checks, map[string]any{
				"expr": "count(" + q.Expr + " >= 0) or vector(0)", "eval_time": scraped.String(),
				"exp_samples": []map[string]any{{"labels": "{}", "value": want}},
			})
		}
		if len(checks) != 7 {
			t.Errorf("%d queries are about times of handoffs, want seven", len(checks))
		}
		tests = append(tests, map[string]any{"name": name, "interval": interval.String(), "input_series": series, "promql_expr_test": checks})
	}
	content, err := yaml.Marshal(map[string]any{"evaluation_interval": interval.String(), "tests": tests})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "panels.yaml")
	if err := os.WriteFile(file, content, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, promtool := range promtools(t) {
		run(t, promtool, "test", "rules", file)
	}
}

// TestDashboardComplaints breaks a good dashboard in each way that is checked.
func TestDashboardComplaints(t *testing.T) {
	for _, test := range []struct {
		name, want string
		spoil      func(d *Dashboard)
	}{
		{"id", "has id 1, like", func(d *Dashboard) { d.Panels[1].ID = 1 }},
		{"overlap", "overlaps", func(d *Dashboard) { d.Panels[2].GridPos = d.Panels[1].GridPos }},
		{"open row", "opens with the first row, and no other", func(d *Dashboard) { d.Panels[row(d, 1)].Collapsed = false }},
		{"collapsed row", "opens with the first row, and no other", func(d *Dashboard) { d.Panels[0].Collapsed = true }},
		{"panel of no row", "and not in it", func(d *Dashboard) { d.Panels[row(d, 2)+1].In = 0 }},
		{"width", "is wider than the grid", func(d *Dashboard) { d.Panels[1].GridPos.X = 23 }},
		{"unit", "has no unit", func(d *Dashboard) { d.Panels[1].FieldConfig.Defaults.Unit = "" }},
		{"description", "has no description", func(d *Dashboard) { d.Panels[1].Description = "" }},
		{"data source", "not the variable", func(d *Dashboard) { d.Panels[1].Datasource.UID = "abc" }},
		{"variable", "uses $cluster", func(d *Dashboard) { d.Panels[1].Targets[0].Expr = `up{cluster="$cluster"}` }},
		{"fleet", "does not select the fleet", func(d *Dashboard) { d.Panels[1].Targets[0].Expr = `sum(flotilla_shard_owned{job="$job"})` }},
		{"legend", "label colour", func(d *Dashboard) {
			d.Panels[1].Targets[0].Expr = `max by (ring) (flotilla_ring_load_ratio{namespace="$namespace",job="$job"})`
			d.Panels[1].Targets[0].LegendFormat = "{{colour}}"
		}},
		{"reference", "two queries", func(d *Dashboard) {
			d.Panels[1].Targets = append(d.Panels[1].Targets, d.Panels[1].Targets[0])
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			d := dashboard(t)
			test.spoil(&d)
			found := strings.Join(complaints(d), "\n")
			if !strings.Contains(found, test.want) {
				t.Errorf("want a complaint with %q, got:\n%s", test.want, found)
			}
		})
	}
}

// row returns the index of the n-th row, counted from 0.
func row(d *Dashboard, n int) int {
	for i, p := range d.Panels {
		if p.Type == "row" {
			if n == 0 {
				return i
			}
			n--
		}
	}
	return -1
}

func expressions(d Dashboard) []string {
	var all []string
	for _, q := range d.Queries(Variables{Namespace: "kube-system", Job: "flotilla", RateInterval: time.Minute}) {
		all = append(all, q.Expr)
	}
	return all
}

var (
	variable = regexp.MustCompile(`\$\{?([a-zA-Z_]+)`)
	legend   = regexp.MustCompile(`\{\{(\w+)\}\}`)
	selector = regexp.MustCompile(`[a-zA-Z_:]+\{[^}]*\}`)
)

const gridWidth = 24

// complaints returns what is wrong with a dashboard, as far as that shows without Grafana.
func complaints(d Dashboard) []string {
	var all []string
	complain := func(p Panel, format string, args ...any) {
		all = append(all, fmt.Sprintf("panel %d, %q: ", p.ID, p.Title)+fmt.Sprintf(format, args...))
	}
	if d.SchemaVersion < 39 || d.UID == "" || d.Title == "" {
		all = append(all, fmt.Sprintf("schema version %d, uid %q, title %q: want one of Grafana 11 or later, and both names", d.SchemaVersion, d.UID, d.Title))
	}
	known := map[string]bool{"__rate_interval": true, "__rate_interval_ms": true}
	for _, v := range d.Templating.List {
		known[v.Name] = true
	}
	var row Panel
	for i, p := range d.Panels {
		for _, other := range d.Panels[:i] {
			if other.ID == p.ID {
				complain(p, "has id %d, like %q", p.ID, other.Title)
			}
			if p.In == other.In && overlap(p, other) {
				complain(p, "overlaps %q", other.Title)
			}
		}
		if g := p.GridPos; g.W <= 0 || g.H <= 0 || g.X < 0 || g.X+g.W > gridWidth {
			complain(p, "is wider than the grid, or empty: %+v", g)
		}
		if p.Title == "" {
			complain(p, "has no title")
		}
		if p.Type == "row" {
			if first := i == 0; p.Collapsed == first {
				complain(p, "is a row with collapsed=%t: the page opens with the first row, and no other", p.Collapsed)
			}
			row = p
			continue
		}
		if row.Collapsed && p.In != row.ID {
			complain(p, "stands below the collapsed row %q, and not in it", row.Title)
		}
		if p.FieldConfig.Defaults.Unit == "" {
			complain(p, "has no unit")
		}
		if !strings.HasSuffix(p.Description, ".") {
			complain(p, "has no description, or one that is no sentence")
		}
		if len(p.Targets) == 0 {
			complain(p, "has no query")
		}
		sources := []*Datasource{p.Datasource}
		refs := map[string]bool{}
		for _, target := range p.Targets {
			sources = append(sources, target.Datasource)
			if refs[target.RefID] {
				complain(p, "has two queries %q", target.RefID)
			}
			refs[target.RefID] = true
			for _, c := range targetComplaints(target, known) {
				complain(p, "%s", c)
			}
		}
		for _, s := range sources {
			if s == nil || s.Type != "prometheus" || s.UID != "${datasource}" {
				complain(p, "has data source %+v, not the variable", s)
			}
		}
	}
	return all
}

func targetComplaints(target Target, known map[string]bool) []string {
	var all []string
	for _, match := range variable.FindAllStringSubmatch(target.Expr, -1) {
		if !known[match[1]] {
			all = append(all, fmt.Sprintf("uses $%s, which is no variable of the dashboard", match[1]))
		}
	}
	for _, s := range selector.FindAllString(target.Expr, -1) {
		if !strings.Contains(s, `namespace="$namespace"`) || !strings.Contains(s, `job="$job"`) {
			all = append(all, fmt.Sprintf("%s does not select the fleet by namespace and job", s))
		}
	}
	// Every panel aggregates, so the labels in a legend must be among those that are kept.
	for _, match := range legend.FindAllStringSubmatch(target.LegendFormat, -1) {
		if !regexp.MustCompile(`by \([^)]*\b` + match[1] + `\b`).MatchString(target.Expr) {
			all = append(all, fmt.Sprintf("its legend shows label %s, which %s does not keep", match[1], target.Expr))
		}
	}
	return all
}

func overlap(a, b Panel) bool {
	return a.GridPos.X < b.GridPos.X+b.GridPos.W && b.GridPos.X < a.GridPos.X+a.GridPos.W &&
		a.GridPos.Y < b.GridPos.Y+b.GridPos.H && b.GridPos.Y < a.GridPos.Y+a.GridPos.H
}

func TestVariables(t *testing.T) {
	var names []string
	for _, v := range dashboard(t).Templating.List {
		names = append(names, v.Name)
		if v.Type == "query" && !strings.HasPrefix(v.Definition, "label_values(flotilla_") {
			t.Errorf("variable %s is read from %s, not from a metric of the fleet", v.Name, v.Definition)
		}
	}
	if want := []string{"datasource", "namespace", "job", "ring", "instance"}; !slices.Equal(names, want) {
		t.Errorf("variables are %v, want %v: each but the first depends on those before it", names, want)
	}
}
