package live

import (
	"context"
	"flag"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/flotilla-kube/flotilla/test/harness"
	"github.com/flotilla-kube/flotilla/test/monitoring"
)

var faults = flag.Bool("faults", false, "run TestAlerts, which takes 20 minutes")

// fault is something that really goes wrong, and the alerts that must fire for it.
type fault struct {
	name   string
	alerts []string
	// never are alerts that must not fire, because they would blame something else.
	never []string
	// happen causes the fault and returns what ends it.
	happen func(t *testing.T, w *fixture) (end func(t *testing.T))
}

// fleets is how many fleets share the faults. Each waits for Prometheus most of the time.
const fleets = 2

// TestAlerts causes one fault after the other in each of the fleets. It waits until the fault's
// alerts fire, ends it, and waits until nothing fires.
func TestAlerts(t *testing.T) {
	if !*faults {
		t.Skip("left out: takes 20 minutes, make long RUN=alerts")
	}
	seen := map[string]bool{}
	for _, f := range allFaults() {
		for _, alert := range f.alerts {
			seen[alert] = true
		}
	}
	t.Run("fleet", func(t *testing.T) {
		for n := range fleets {
			t.Run(strconv.Itoa(n), func(t *testing.T) {
				t.Parallel()
				sufferAll(t, func(i int) bool { return i%fleets == n })
			})
		}
	})
	for name := range shipped(t) {
		if !seen[name] {
			t.Errorf("no fault makes %s fire", name)
		}
	}
}

// sufferAll runs the faults with this fleet's numbers.
func sufferAll(t *testing.T, own func(i int) bool) {
	w := newFixture(t)
	w.startAll(t)
	w.work(t, 6)
	w.startPrometheus(t)
	harness.Eventually(t, harness.Patience, "all rules are evaluated", w.prom.rulesWork)
	for i, f := range allFaults() {
		if own(i) && !t.Run(f.name, func(t *testing.T) { w.suffer(t, f) }) {
			// The next fault would begin in whatever state this one has left.
			t.Fatal("the faults after this one are left out")
		}
	}
	w.stopAll(t)
}

// shipped returns the alerts of deploy/monitoring by their names.
func shipped(t *testing.T) map[string]monitoring.Rule {
	t.Helper()
	root, err := monitoring.Root()
	if err != nil {
		t.Fatal(err)
	}
	rules, err := monitoring.LoadRules(root + "/deploy/monitoring/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]monitoring.Rule{}
	for _, rule := range rules.All() {
		all[rule.Alert] = rule
	}
	return all
}

// within bounds how long alerts may take to fire or to clear: the longest range and `for`, plus
// harness.Patience.
func within() time.Duration { return time.Hour/time.Duration(*factor) + 2*harness.Patience }

func (w *fixture) suffer(t *testing.T, f fault) {
	harness.Eventually(t, within(), "nothing fires before", w.prom.quiet)
	began := time.Now()
	end := f.happen(t, w)
	ended := false
	defer func() {
		if !ended {
			end(t)
		}
	}()
	for _, name := range f.alerts {
		var found alert
		harness.Eventually(t, within(), name+" fires", func(ctx context.Context) error {
			alerts, err := w.prom.firing(ctx)
			if err != nil {
				return err
			}
			i := slices.IndexFunc(alerts, func(a alert) bool { return a.Labels["alertname"] == name })
			if i < 0 {
				return fmt.Errorf("firing: %v", alerts)
			}
			found = alerts[i]
			return nil
		})
		t.Logf("%s fires %v after the fault: %s", name, time.Since(began).Round(time.Second), found.Annotations["description"])
		for _, complaint := range found.complaints() {
			t.Errorf("%s: %s", name, complaint)
		}
	}
	ended = true
	end(t)
	cleared := harness.Eventually(t, within(), "nothing fires after", w.prom.quiet)
	w.settle(t)
	t.Logf("nothing fires %v after the fault has ended", cleared)
	during := fmt.Sprintf(`count by (alertname) (count_over_time(ALERTS{alertstate="firing"}[%ds]))`, int(time.Since(began).Seconds())+1)
	samples, err := w.prom.query(t.Context(), during)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range samples {
		switch name := s.Metric["alertname"]; {
		case slices.Contains(f.never, name):
			t.Errorf("%s fired too, and should not for this fault", name)
		case !slices.Contains(f.alerts, name):
			t.Logf("%s fired too", name)
		}
	}
}

// unfilled matches what a template leaves if a label or value that it names is missing.
var unfilled = regexp.MustCompile(`<no value>|<error|%!|\{\{|/[ ,.]| {2,}`)

// complaints returns what is wrong with the text of a firing alert.
func (a alert) complaints() []string {
	var all []string
	for name, text := range a.Annotations {
		if name != "runbook_url" && unfilled.MatchString(text) || text == "" {
			all = append(all, fmt.Sprintf("%s is not filled in: %q", name, text))
		}
	}
	for _, label := range []string{"ring", "shard", "instance", "lease"} {
		if value := a.Labels[label]; value != "" && !strings.Contains(a.Annotations["description"], value) {
			all = append(all, fmt.Sprintf("the description does not name %s %s: %q", label, value, a.Annotations["description"]))
		}
	}
	return all
}
