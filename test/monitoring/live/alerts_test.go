package live

import (
	"context"
	"flag"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/flotilla-kube/flotilla/test/harness"
	"github.com/flotilla-kube/flotilla/test/monitoring"
)

var faults = flag.Bool("faults", false, "have TestAlerts run, which takes half an hour")

// fault is something that goes wrong for real, and the alerts that must fire for it.
type fault struct {
	name   string
	alerts []string
	// never are alerts that must not: those that would blame something else.
	never []string
	// happen makes the fault and returns what ends it.
	happen func(t *testing.T, w *world) (end func(t *testing.T))
}

// TestAlerts makes one fault after the other. It waits until its alerts fire, ends it, and waits
// until nothing fires.
func TestAlerts(t *testing.T) {
	if !*faults {
		t.Skip("left out: takes half an hour, make long RUN=alerts")
	}
	w := newWorld(t)
	w.startAll(t)
	w.work(t, 6)
	w.startPrometheus(t)
	harness.Eventually(t, harness.Patience, "all rules are evaluated", w.prom.rulesWork)
	seen := map[string]bool{}
	for _, f := range allFaults() {
		if !t.Run(f.name, func(t *testing.T) { w.suffer(t, f) }) {
			// What comes next would begin in whatever state this one has left.
			t.Fatal("the faults after this one are left out")
		}
		for _, alert := range f.alerts {
			seen[alert] = true
		}
	}
	for name := range w.shipped(t) {
		if !seen[name] {
			t.Errorf("no fault has made %s fire", name)
		}
	}
	w.stopAll(t)
}

func (w *world) shipped(t *testing.T) map[string]monitoring.Rule {
	t.Helper()
	rules, err := monitoring.LoadRules(w.root + "/deploy/monitoring/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]monitoring.Rule{}
	for _, rule := range rules.All() {
		all[rule.Alert] = rule
	}
	return all
}

// within bounds how long alerts may take to fire or to clear: the longest range and `for`, and
// harness.Patience.
func within() time.Duration { return time.Hour/time.Duration(*factor) + 2*harness.Patience }

func (w *world) suffer(t *testing.T, f fault) {
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
	t.Logf("nothing fires any more %v after the fault has ended", cleared)
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

// What a template leaves when a label or value that it names is not there.
var unfilled = regexp.MustCompile(`<no value>|<error|%!|\{\{|/[ ,.]| {2,}`)

// complaints are what is wrong with the text of an alert that fires.
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
