package report_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/flotilla-kube/flotilla/test/bench/result"
)

// TestKinds has eleven kinds besides pods: the last two of them have no line of their own.
func TestKinds(t *testing.T) {
	kinds := func(pods, each int) map[string]int64 {
		sent := map[string]int64{"pods": int64(pods) * mebi}
		for i := range 11 {
			sent[fmt.Sprintf("kind-%02d", i)] = int64(each*(100-i)) * mebi / 100
		}
		return sent
	}
	stockRun := steady(work(stock, 1, 30, process(1, 100, 100, 1)))
	stockRun.Kinds = kinds(100, 2)
	stockRun.Processes[0].Kinds = map[string]int{"pods": 1, "pods (metadata)": 1}
	fleet := steady(work(fourGate, 1, 30, member(1, 100, 90, 1, 4, "certificates"), member(1, 100, 90, 1, 4, "garbage", "nodes"), member(1, 100, 90, 1, 4)))
	fleet.Kinds = kinds(150, 5)
	for i, open := range []map[string]int{{"pods": 5}, {"pods": 2, "pods (metadata)": 3}, {"pods": 4}} {
		fleet.Processes[i].Kinds = open
	}
	r := of(t, []result.Run{stockRun, fleet})
	made, err := r.Page("results/kinds.md", page(t, "results/kinds.md"), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| kind | stock | watches | 4 replicas, feature gate on | × stock | watches of the member with most groups | of that with fewest |",
		"| pods | 100 MiB | 1, and 1 of metadata | 150 MiB | 1.50 | 2, and 3 of metadata | 4 |",
		"| kind-00 | 2.00 MiB | 0 | 5.00 MiB | 2.50 | 0 | 0 |",
		// 0.91 + 0.9 of 2 and of 5 MiB.
		"| all others | 3.62 MiB | – | 9.05 MiB | 2.50 | – | – |",
	} {
		if !strings.Contains(made, want) {
			t.Errorf("the page has no %q", want)
		}
	}
	if strings.Contains(made, "kind-09") {
		t.Error("one of the smallest kinds has a line")
	}
	if t.Failed() {
		t.Log(made)
	}
}
