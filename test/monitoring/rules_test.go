package monitoring

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"
)

// moment is a time and the alerts that must fire then.
type moment struct {
	at     time.Duration
	alerts []string
}

func quiet(at time.Duration) moment                   { return moment{at: at} }
func fires(at time.Duration, alerts ...string) moment { return moment{at, alerts} }

// scenario is a fleet to which something happens. It lists which alerts fire when, and no others
// may.
type scenario struct {
	name    string
	happens func(f fleet)
	want    []moment
}

const second, minute, hour = time.Second, time.Minute, time.Hour

// always returns moments spread over a scenario in which nothing fires.
func always() []moment {
	var all []moment
	for at := time.Duration(0); at <= length; at += 30 * second {
		all = append(all, quiet(at))
	}
	return all
}

func tool(t *testing.T, name string) string {
	t.Helper()
	path := filepath.Join(root(t), "bin", name)
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("bin/%s is missing: run 'hack/build-tools.sh %s'", name, name)
	}
	return path
}

func root(t *testing.T) string {
	t.Helper()
	dir, err := Root()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func shipped(t *testing.T) Rules {
	t.Helper()
	rules, err := LoadRules(filepath.Join(root(t), "deploy/monitoring/alerts.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return rules
}

// promtools returns the promtool of hack/tools and, if there is one, the machine's: rules must be
// valid for old ones too.
func promtools(t *testing.T) []string {
	t.Helper()
	all := []string{tool(t, "promtool")}
	if path, err := exec.LookPath("promtool"); err == nil {
		all = append(all, path)
	}
	return all
}

// needPromtool skips a test with -short: promtool takes minutes to build.
func needPromtool(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("left out: needs promtool, make long RUN=monitoring")
	}
}

func run(t *testing.T, name string, args ...string) {
	t.Helper()
	output, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
	if err != nil {
		t.Errorf("%s %s: %v\n%s", name, strings.Join(args, " "), err, tail(string(output)))
	}
}

func tail(text string) string {
	const most = 12000
	if len(text) <= most {
		return text
	}
	return text[:most] + "\n..."
}

func TestRulesAreValid(t *testing.T) {
	needPromtool(t)
	dir := t.TempDir()
	rules := shipped(t)
	if err := rules.WriteFile(filepath.Join(dir, "rules.yaml")); err != nil {
		t.Fatal(err)
	}
	faster, err := rules.Faster(10)
	if err != nil {
		t.Fatal(err)
	}
	if err := faster.WriteFile(filepath.Join(dir, "faster.yaml")); err != nil {
		t.Fatal(err)
	}
	for _, promtool := range promtools(t) {
		run(t, promtool, "check", "rules", "--lint=all", "--lint-fatal", filepath.Join(dir, "rules.yaml"), filepath.Join(dir, "faster.yaml"))
	}
}

// TestExpressionsParse is the part of TestRulesAreValid that needs no promtool.
func TestExpressionsParse(t *testing.T) {
	var all []string
	for _, rule := range shipped(t).All() {
		all = append(all, rule.Expr)
	}
	if len(all) < 10 {
		t.Errorf("only %d rules", len(all))
	}
	if _, err := Read(tool(t, "promexpr"), all); err != nil {
		t.Error(err)
	}
}

func TestFaster(t *testing.T) {
	rules := Rules{Groups: []Group{{Interval: "15s", Rules: []Rule{{Expr: `increase(a[30m] offset 1h) > 5 and b[2m:15s]`, For: "10m"}}}}}
	faster, err := rules.Faster(10)
	if err != nil {
		t.Fatal(err)
	}
	group := faster.Groups[0]
	if got, want := group.Rules[0].Expr, `increase(a[180000ms] offset 360000ms) > 5 and b[12000ms:15s]`; got != want {
		t.Errorf("expression became %s, want %s", got, want)
	}
	if group.Interval != "1500ms" || group.Rules[0].For != "60000ms" || rules.Groups[0].Rules[0].For != "10m" {
		t.Errorf("became %+v, of %+v", group, rules)
	}
}

// TestScenarios runs the shipped rules in promtool over simulated scrapes of a fleet. Each scenario
// starts with a healthy fleet of three, and says what happens to it and which alerts must fire
// when.
func TestScenarios(t *testing.T) {
	needPromtool(t)
	dir := t.TempDir()
	if err := shipped(t).WriteFile(filepath.Join(dir, "rules.yaml")); err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	var tests []map[string]any
	tests = append(tests, forgotten())
	for _, s := range scenarios() {
		tests = append(tests, s.test())
		for _, m := range s.want {
			for _, alert := range m.alerts {
				seen[alert]++
			}
		}
	}
	for _, alert := range shipped(t).Names() {
		if seen[alert] == 0 {
			t.Errorf("no scenario has %s fire", alert)
		}
	}
	content, err := yaml.Marshal(map[string]any{"rule_files": []string{"rules.yaml"}, "evaluation_interval": interval.String(), "tests": tests})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "scenarios.yaml"), content, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, promtool := range promtools(t) {
		run(t, promtool, "test", "rules", filepath.Join(dir, "scenarios.yaml"))
	}
}

// test returns the scenario as promtool reads it.
func (s scenario) test() map[string]any {
	f := healthy()
	s.happens(f)
	var series, checks []map[string]any
	for name, row := range f {
		series = append(series, map[string]any{"series": name, "values": values(row)})
	}
	slices.SortFunc(series, func(a, b map[string]any) int { return strings.Compare(a["series"].(string), b["series"].(string)) })
	for _, m := range s.want {
		samples := []map[string]any{}
		for _, alert := range m.alerts {
			samples = append(samples, map[string]any{"labels": fmt.Sprintf(`{alertname=%q}`, alert), "value": 1})
		}
		checks = append(checks, map[string]any{
			"expr": `group by (alertname) (ALERTS{alertstate="firing"})`, "eval_time": m.at.String(), "exp_samples": samples,
		})
	}
	return map[string]any{"name": s.name, "interval": interval.String(), "input_series": series, "promql_expr_test": checks}
}
