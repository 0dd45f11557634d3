package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/flotilla-kube/flotilla/test/harness"
)

// families returns the names of all metric families of all controller managers of the run.
func (r *run) families(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	for _, m := range r.managers {
		for line := range strings.Lines(metricsText(t, m)) {
			if family, ok := strings.CutPrefix(line, "# TYPE "); ok {
				name, _, _ := strings.Cut(family, " ")
				names[name] = true
			}
		}
	}
	return names
}

const (
	noQueues      = "alpha, of the queue within client-go's shared informers; the fleet's informers have none"
	firstInstance = "counts the claims that the first shard of a process sees, which may be none"
)

// withoutFamily has the metric families of the stock controller manager that a fleet may lack, and
// why.
var withoutFamily = map[string]string{
	"informer_processing_latency_seconds": noQueues,
	"informer_queued_items":               noQueues,
	"informer_store_resource_version":     noQueues,
}

// withoutWhenSharded has those that it may lack if it has several shards of namespaces.
var withoutWhenSharded = map[string]string{
	"dynamic_resource_allocation_resource_claims": firstInstance,
}

// withoutUnlessItHappens matches counters that have no sample, and so no family, before what they
// count has happened once: passing failures that are retried. For example, a node's address range
// is given back, and counted as released, if others changed the node during the assignment.
var withoutUnlessItHappens = regexp.MustCompile(`_(skips|retries|errors|releases|failures|failed|conflicts|timeouts|dropped|rejected)_total$|` +
	`volume_operation_total_errors$|forced_detaches$`)

// requireFamilies waits until the fleet has every metric family of the stock controller manager.
// Some appear only with periodic work.
func (r *run) requireFamilies(t *testing.T, stock map[string]bool, sharded bool) {
	t.Helper()
	harness.Eventually(t, harness.Patience, "metric families of the stock controller manager", func(context.Context) error {
		return missingFamilies(stock, r.families(t), sharded)
	})
	may := reasons(sharded)
	for _, name := range slices.Sorted(maps.Keys(may)) {
		t.Logf("may be without metric %s: %s", name, may[name])
	}
}

// reasons returns the families that a fleet may lack, and why.
func reasons(sharded bool) map[string]string {
	all := maps.Clone(withoutFamily)
	if sharded {
		maps.Copy(all, withoutWhenSharded)
	}
	return all
}

func missingFamilies(stock, fleet map[string]bool, sharded bool) error {
	may := reasons(sharded)
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(stock)) {
		if !fleet[name] && may[name] == "" && !withoutUnlessItHappens.MatchString(name) {
			errs = append(errs, fmt.Errorf("the stock controller manager has metric %s, the fleet has not", name))
		}
	}
	return errors.Join(errs...)
}

func metricsText(t *testing.T, m *harness.Manager) string {
	t.Helper()
	text, err := m.MetricsText(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return text
}
