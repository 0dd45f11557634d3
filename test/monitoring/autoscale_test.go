package monitoring

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// recorded is the series that deploy/autoscale/rule.yaml records.
const recorded = "fleet_another_member_would_help"

func autoscaleFile(t *testing.T, name string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root(t), "deploy/autoscale", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

func autoscaleGroups(t *testing.T) (spec map[string]any, expr string) {
	t.Helper()
	var rule struct {
		Spec struct {
			Groups []struct {
				Rules []struct{ Record, Expr string }
			}
		}
	}
	var object map[string]any
	text := []byte(autoscaleFile(t, "rule.yaml"))
	if err := yaml.UnmarshalStrict(text, &object); err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, &rule); err != nil {
		t.Fatal(err)
	}
	if g := rule.Spec.Groups; len(g) != 1 || len(g[0].Rules) != 1 || g[0].Rules[0].Record != recorded {
		t.Fatalf("rule.yaml: %+v, want one rule that records %s", g, recorded)
	}
	return object["spec"].(map[string]any), rule.Spec.Groups[0].Rules[0].Expr
}

// TestAutoscale compares the files of deploy/autoscale with the chart's autoscaler and with the
// documented metrics.
func TestAutoscale(t *testing.T) {
	metrics, err := os.ReadFile(filepath.Join(root(t), "docs/metrics.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, expr := autoscaleGroups(t)
	readings, err := Read(tool(t, "promexpr"), []string{expr})
	if err != nil {
		t.Fatal(err)
	}
	read := map[string]bool{}
	for _, s := range readings[0].Selectors {
		name := strings.TrimSuffix(s.Metric, "_bucket")
		if read[name] = true; !strings.Contains(string(metrics), "`"+name+"`") {
			t.Errorf("rule.yaml reads %s, which docs/metrics.md does not have", s.Metric)
		}
	}
	if len(read) != 4 {
		t.Errorf("rule.yaml reads %v, want four metrics", read)
	}

	chart, err := os.ReadFile(filepath.Join(root(t), "deploy/chart/templates/autoscaler.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"keda.yaml": autoscaleFile(t, "keda.yaml"), "prometheus-adapter.yaml": autoscaleFile(t, "prometheus-adapter.yaml"), "the chart": string(chart),
	} {
		if !strings.Contains(text, recorded) {
			t.Errorf("%s does not ask for %s", name, recorded)
		}
	}
	var keda struct {
		Spec struct {
			MinReplicaCount  int
			IdleReplicaCount *int
			Fallback         struct{ Replicas int }
		}
	}
	if err := yaml.Unmarshal([]byte(autoscaleFile(t, "keda.yaml")), &keda); err != nil {
		t.Fatal(err)
	}
	if s := keda.Spec; s.MinReplicaCount < 2 || s.Fallback.Replicas < 2 || s.IdleReplicaCount != nil {
		t.Errorf("keda.yaml: %+v, want at least two members", s)
	}
}

// TestAnotherMemberWouldHelp evaluates the rule with promtool for small fleets.
func TestAnotherMemberWouldHelp(t *testing.T) {
	needPromtool(t)
	spec, _ := autoscaleGroups(t)
	dir := t.TempDir()
	write := func(name string, content any) string {
		text, err := yaml.Marshal(content)
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, text, 0o644); err != nil {
			t.Fatal(err)
		}
		return file
	}
	write("rules.yaml", spec)
	type member struct {
		// buckets has what is added to each bucket in a minute; nil if there are no queues.
		buckets        []int
		owned, desired string
	}
	// Ten items a minute that wait less than 0.1 s, or between 1 and 10 s, or none.
	quick, late, none := []int{10, 10, 10, 10}, []int{0, 0, 10, 10}, []int{0, 0, 0, 0}
	holds := func(buckets []int) member { return member{buckets, "1x60", "1x60"} }
	drained, coming := member{nil, "0x60", "0x60"}, member{nil, "0x60", "1x60"}
	leaving := member{none, "1x60", "0x60"}
	idle := member{none, "1x10 0x50", "1x10 0x50"} // drained after ten minutes; its series go on
	fleet := func(members ...member) []map[string]string {
		var series []map[string]string
		add := func(metric, labels, values string) {
			series = append(series, map[string]string{"series": metric + "{" + labels + "}", "values": values})
		}
		for i, m := range members {
			labels := `namespace="kube-system",job="flotilla",instance="` + string(rune('a'+i)) + `"`
			ofShard := fmt.Sprintf(`%s,ring="r",shard="%d"`, labels, i)
			add("flotilla_plan_generation", labels, "1x60")
			add("flotilla_shard_owned", ofShard, m.owned)
			add("flotilla_shard_desired", ofShard, m.desired)
			for j, n := range m.buckets {
				le := []string{"0.1", "1", "10", "+Inf"}[j]
				add("flotilla_shard_queue_duration_seconds_bucket", fmt.Sprintf(`%s,le="%s"`, ofShard, le), fmt.Sprintf("0+%dx60", n))
			}
		}
		return series
	}
	var tests []map[string]any
	for _, tc := range []struct {
		members []member
		want    float64
	}{
		{[]member{holds(late), holds(late)}, 9.1},
		{[]member{holds(late), holds(quick)}, 0.09},
		{[]member{holds(late), holds(none)}, 0},
		{[]member{holds(none), holds(none)}, 0},
		{[]member{holds(late), holds(late), drained}, 9.1},
		{[]member{holds(late), holds(late), idle}, 9.1},
		{[]member{holds(late), holds(late), coming}, 0},
		{[]member{holds(late), holds(late), leaving}, 0},
		{[]member{drained, drained}, 0},
	} {
		tests = append(tests, map[string]any{
			"interval": "1m", "input_series": fleet(tc.members...),
			"promql_expr_test": []map[string]any{{
				"expr": "round(" + recorded + ", 0.01)", "eval_time": "30m",
				"exp_samples": []map[string]any{{"labels": `{namespace="kube-system",job="flotilla"}`, "value": tc.want}},
			}},
		})
	}
	file := write("tests.yaml", map[string]any{"rule_files": []string{"rules.yaml"}, "evaluation_interval": "30s", "tests": tests})
	for _, promtool := range promtools(t) {
		run(t, promtool, "test", "rules", file)
	}
}
