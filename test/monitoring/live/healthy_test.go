package live

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flotilla-kube/flotilla/pkg/audit"
	"github.com/flotilla-kube/flotilla/pkg/controllers/catalogue"
	"github.com/flotilla-kube/flotilla/test/harness"
)

var healthy = flag.Duration("healthy", 90*time.Second, "how long TestHealthy must see no alert, at least")

// TestHealthy restarts all members one after the other and changes the plan, and checks that no
// alert fires. Then it compares rules and dashboard with what Prometheus has scraped, and judges
// the audit log.
func TestHealthy(t *testing.T) {
	w := newFixture(t)
	w.startAll(t)
	w.work(t, 6)
	w.startPrometheus(t)
	for i := len(names) - 1; i >= 0; i-- {
		w.stop(t, names[i])
		w.start(t, names[i])
		w.settle(t)
	}
	w.isolate(t, "work-1")
	w.settle(t)
	harness.Eventually(t, *healthy+harness.Patience, "the healthy run is over", func(context.Context) error {
		if left := *healthy - time.Since(w.prom.began); left > 0 {
			return fmt.Errorf("%v are left", left)
		}
		return nil
	})
	harness.Eventually(t, harness.Patience, "all rules are evaluated", w.prom.rulesWork)
	since := time.Since(w.prom.began).Round(time.Second)
	samples, err := w.prom.query(t.Context(), fmt.Sprintf(`count_over_time(ALERTS{alertstate="firing"}[%ds])`, int(since.Seconds())))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range samples {
		t.Errorf("in a healthy fleet %s fired %s times", s.Metric, s.value())
	}
	t.Logf("%d alerts in %v, with all durations divided by %d", len(samples), since, *factor)

	// Some panels need a takeover.
	m := w.members[names[0]]
	delete(w.members, names[0])
	m.MustKill(t)
	harness.Eventually(t, harness.Patience, "the others have all shards", func(ctx context.Context) error {
		return w.prom.want(ctx, `count(sum by (ring, shard) (flotilla_shard_owned) == 0) or vector(0)`, 0)
	})
	w.start(t, names[0])
	w.settle(t)
	t.Run("metrics and labels exist", w.requireMetrics)
	t.Run("panels have data", w.requirePanels)
	w.stopAll(t)
	harness.Judge(t, w.plane, audit.Options{Controllers: catalogue.Identities()})
}

func (w *fixture) plan(t *testing.T) map[string]any {
	t.Helper()
	var plan map[string]any
	if err := json.Unmarshal(w.command(t, nil, "flotilla", "plan", "show", "-o", "document"), &plan); err != nil {
		t.Fatal(err)
	}
	return plan
}

// isolate gives a namespace a shard of its own.
func (w *fixture) isolate(t *testing.T, namespace string) {
	t.Helper()
	w.applyIsolated(t, namespace, "--wait=3m")
}

func (w *fixture) applyIsolated(t *testing.T, namespace string, flags ...string) {
	t.Helper()
	if _, err := w.client.CoreV1().Namespaces().Get(t.Context(), namespace, metav1.GetOptions{}); err != nil {
		t.Fatal(err)
	}
	plan := w.plan(t)
	ring := plan["rings"].([]any)[0].(map[string]any)
	ring["isolate"] = []string{namespace}
	content, err := json.Marshal(plan)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "plan.json")
	if err := os.WriteFile(file, content, 0o644); err != nil {
		t.Fatal(err)
	}
	w.command(t, nil, "flotilla", append([]string{"plan", "apply", "-f", file}, flags...)...)
}
