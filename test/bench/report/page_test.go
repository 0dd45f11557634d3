package report_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/ptr"

	"github.com/flotilla-kube/flotilla/test/bench/report"
	"github.com/flotilla-kube/flotilla/test/bench/result"
)

const pagesPath = "../../../docs/benchmarks"

func page(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(pagesPath, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// sample has invented runs with everything that a page can show.
func sample() []result.File {
	var runs []result.Run
	for round := 1; round <= 3; round++ {
		more := round - 2 // -1, 0, 1
		for _, pods := range []int{5000, 20000} {
			run := steady(work(stock, round, 30, process(1, 100+pods/100, 100, pods/200)))
			run.Params = size{"pods": pods}
			runs = append(runs, run)
			fleet := steady(work(fourGate, round, 30, member(0.5, 120+pods/200+more, 110, pods/400, 4, "nodes"), member(0.5, 120+pods/400, 105, pods/800, 4),
				member(0.4, 118+pods/400, 105, pods/800, 4), member(0.6, 115+pods/400, 105, pods/800, 4, "garbage")))
			fleet.Params = size{"pods": pods}
			fleet.LeaseWrites = ptr.To(int64(30 * 12))
			runs = append(runs, fleet)
		}
		runs = append(runs, work(stock, round, 40+float64(more), process(20, 100, 0, 1)), work(four, round, 10, member(25, 100, 0, 1, 16, "nodes")))
		two := four
		two.Replicas = 2
		runs = append(runs, work(two, round, 20, member(25, 100, 0, 1, 16, "nodes")), work(ceiling, round, 8, process(3, 10, 0, 0)))
	}
	failed := work(one, 1, 0)
	failed.Failed = "no | pods\nand more"
	return []result.File{{
		Began: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Machine: result.Machine{CPU: "Example", Cores: 2, Memory: 8 << 30, Kernel: "6.1"},
		Versions: map[string]string{"go": "1.26", "etcd": "3.6"}, Command: "bench -rounds 3", Runs: append(runs, failed),
	}}
}

func TestPage(t *testing.T) {
	r, err := report.New(sample())
	if err != nil {
		t.Fatal(err)
	}
	plots := r.Plots()
	generated := regexp.MustCompile(`(?s)<!-- generated: .*?<!-- end of generated`)
	var all strings.Builder
	for _, path := range report.Pages() {
		made, err := r.Page(path, page(t, path), plots)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		again, err := r.Page(path, made, plots)
		if err != nil || again != made {
			t.Errorf("written again, %s differs: %v", path, err)
		}
		if generated.ReplaceAllString(made, "") != generated.ReplaceAllString(page(t, path), "") {
			t.Errorf("what is written by hand in %s has changed", path)
		}
		all.WriteString(made)
	}
	made := all.String()
	for _, want := range []string{
		"| 2026-01-02T03:04:05Z | Example, 2 cores, 8192 MiB, Linux 6.1 |", "etcd 3.6, go 1.26", "`bench -rounds 3`",
		"### basic deployments=10", "| 4.00 (3.90..4.10) |", `no \| pods |`, "![Throughput: basic deployments=10](throughput-basic-deployments-10.svg)",
		// 100 MiB and 1 MiB for 100 pods: 10,486 bytes a pod.
		"| steady | stock | memory, largest | 5000: 150 MiB, 20000: 300 MiB | 10.2 KiB | 100 MiB | 1.000 | 6 |",
		// 16 ranges and 2 groups, 4 replicas, 12 writes a second.
		"| steady pods=20000 | 4 replicas, feature gate on | 18 (18..18) | 12.0/s (12.0/s..12.0/s) |",
	} {
		if !strings.Contains(made, want) {
			t.Errorf("no page has %q", want)
		}
	}
	if t.Failed() {
		t.Log(made)
	}
}

func TestPageRefuses(t *testing.T) {
	r := of(t)
	const path = "results/growth.md"
	whole := page(t, path)
	for what, text := range map[string]string{
		"no parts":            "# Benchmarks\n",
		"a part is gone":      strings.Replace(whole, "<!-- generated: growth -->\n", "", 1),
		"an end is gone":      strings.Replace(whole, "<!-- end of generated: growth -->\n", "", 1),
		"twice":               whole + "<!-- generated: growth -->\n<!-- end of generated: growth -->\n",
		"another":             whole + "<!-- generated: weather -->\n<!-- end of generated: weather -->\n",
		"end before part":     strings.Replace(strings.Replace(whole, "<!-- end of generated: leases -->\n", "", 1), "<!-- generated: leases -->\n", "<!-- end of generated: leases -->\n<!-- generated: leases -->\n", 1),
		"another page's part": whole + "<!-- generated: idle -->\n<!-- end of generated: idle -->\n",
	} {
		if _, err := r.Page(path, text, nil); err == nil {
			t.Errorf("%s: no error", what)
		}
	}
	if _, err := r.Page("results/other.md", whole, nil); err == nil {
		t.Error("an unknown page: no error")
	}
}

func TestPageWithoutResults(t *testing.T) {
	made, err := of(t).Page("README.md", page(t, "README.md"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(made, "| not measured |"); n != len(report.Targets()) {
		t.Errorf("%d targets are not measured, want all %d", n, len(report.Targets()))
	}
	if strings.Contains(made, "| met |") {
		t.Error("a target is met without results")
	}
}

// TestPlots compares the plots with what hack/tools/plot reads: our types read its sample, and the
// fields are the same in the other direction.
func TestPlots(t *testing.T) {
	in, err := os.Open("../../../hack/tools/plot/testdata/sample.json")
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	decoder := json.NewDecoder(in)
	decoder.DisallowUnknownFields()
	var plots []report.Plot
	if err := decoder.Decode(&plots); err != nil || len(plots) < 3 {
		t.Errorf("%d plots, %v", len(plots), err)
	}
	r, err := report.New(sample())
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]report.Plot{}
	for _, p := range r.Plots() {
		names[p.File] = p
	}
	if len(names) != 4 {
		t.Fatalf("plots %v, want four", names)
	}
	speed := names["throughput-basic-deployments-10"]
	if len(speed.Series) != 1 || len(speed.Series[0].Points) != 2 {
		t.Fatalf("throughput is %+v", speed.Series)
	}
	last := speed.Series[0].Points[1]
	for i, pair := range [][2]float64{{last.X, 4}, {last.Y, 4}, {last.Low, 3.9}, {last.High, 4.1}} {
		near(t, fmt.Sprintf("throughput, number %d", i), pair[0], pair[1])
	}
	memory := names["memory-steady"]
	if len(memory.Series) != 2 || len(memory.Series[0].Line) != 2 {
		t.Fatalf("memory is %+v", memory.Series)
	}
	near(t, "MiB a pod", memory.Series[0].Line[1], 0.01)
	bars := names["members-memory"]
	if len(bars.Categories) != 5 || len(bars.Bars) != 3 || len(bars.Bars[2].Points) != 2 {
		t.Errorf("members are %+v", bars)
	}
}

// TestBytesOfGroupsApart has a member whose received bytes are known separately for its groups.
func TestBytesOfGroupsApart(t *testing.T) {
	split := member(1, 100, 0, 30, 8, "nodes")
	split.GroupReceived = ptr.To[int64](20 * mebi)
	r := of(t, []result.Run{steady(sized(work(fourGate, 1, 30, split)))})
	var found []string
	for _, p := range r.Plots() {
		for _, b := range p.Bars {
			if p.File == "members-received" {
				found = append(found, b.Name)
				near(t, b.Name, b.Points[0].Y, map[string]float64{"ranges of namespaces": 10, "cluster groups": 20}[b.Name])
			}
		}
	}
	if len(found) != 2 {
		t.Errorf("parts %q, want two", found)
	}
}

func TestIdleAndLeases(t *testing.T) {
	run := func(round, replicas int, writes int64, members ...result.Process) result.Run {
		s := fourGate
		s.Replicas = replicas
		r := work(s, round, 10, members...)
		r.Scenario, r.LeaseWrites = "idle-cost", &writes
		return r
	}
	// Memory is 70 + 2*ranges + 5*groups MiB; writes a second are shards/2 + replicas/4.
	r := of(t, []result.Run{
		run(1, 2, 10*10+5, member(1, 70+16+0, 1, 0, 8), member(1, 70+16+20, 1, 0, 8, "a", "b", "c", "d")),
		run(2, 4, 10*15+10, member(1, 70+20+5, 1, 0, 10, "a"), member(1, 70+38, 1, 0, 19)),
		steady(sized(work(fourGate, 1, 10, member(1, 999, 999, 0, 7)))), // not a cluster without objects
	})
	idle := r.Idle()[0]
	if idle.Replica != "70.0 MiB" || idle.Range != "2.00 MiB" || idle.Group != "5.00 MiB" || idle.Points != 4 {
		t.Errorf("idle is %+v", idle)
	}
	fit, ok := r.LeaseFit()
	if !ok {
		t.Fatal("no fit of Lease writes")
	}
	near(t, "a shard", fit.Coefficients[0], 0.5)
	near(t, "a replica", fit.Coefficients[1], 0.25)
}
