package metrics

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/component-base/metrics/testutil"

	"github.com/flotilla-kube/flotilla/internal/app/shadow"
	"github.com/flotilla-kube/flotilla/pkg/controllers/queues"
	"github.com/flotilla-kube/flotilla/pkg/controllers/requests"
	"github.com/flotilla-kube/flotilla/pkg/metrics"
)

// page is the documentation of the metrics.
const page = "../../../docs/metrics.md"

var row = regexp.MustCompile("^\\| `(flotilla_[a-z_]+)` \\| ([a-z]+) \\| ([a-z_, ]*) *\\| (.+) \\|")

// documented returns the families of the page, as "kind label,label".
func documented(text string) (map[string]string, []string) {
	found, faults := map[string]string{}, []string{}
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "| `flotilla_") {
			continue
		}
		cells := row.FindStringSubmatch(line)
		if cells == nil {
			faults = append(faults, fmt.Sprintf("this row is not | `name` | type | labels | meaning | what to do |: %s", line))
			continue
		}
		if _, twice := found[cells[1]]; twice {
			faults = append(faults, cells[1]+" is there twice")
		}
		found[cells[1]] = signature(cells[2], strings.Split(strings.TrimSpace(cells[3]), ", "))
	}
	return found, faults
}

func signature(kind string, labels []string) string {
	labels = slices.DeleteFunc(slices.Sorted(slices.Values(labels)), func(l string) bool { return l == "" })
	return kind + " " + strings.Join(labels, ",")
}

// families returns the families of a member.
func families(t *testing.T) []metrics.Family {
	t.Helper()
	m, err := metrics.New(metrics.Options{Fleet: "flotilla"})
	if err != nil {
		t.Fatal(err)
	}
	return m.Families()
}

// defined returns all families: a member's, and those of the queues, which are in the process's
// registry.
func defined(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, f := range families(t) {
		if _, twice := all[f.Name]; twice {
			t.Errorf("%s is defined twice", f.Name)
		}
		all[f.Name] = signature(f.Kind, f.Labels)
	}
	queues.NewGroup("ring", "shard")
	defer queues.Forget("ring", "shard")
	maps.Copy(all, seen(t, processText(t)))
	return all
}

// processText returns the fleet's metrics in the process's registry, once controllers have a
// client.
func processText(t *testing.T) string {
	t.Helper()
	requests.Wrap(http.DefaultTransport)
	answer := httptest.NewRecorder()
	legacyregistry.Handler().ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", http.NoBody))
	var ours strings.Builder
	for line := range strings.Lines(answer.Body.String()) {
		if strings.Contains(line, "flotilla_") {
			ours.WriteString(line)
		}
	}
	return ours.String()
}

var suffix = regexp.MustCompile(`_(bucket|sum|count)$`)

// seen returns the families in a scrape of /metrics, with the labels of their samples.
func seen(t *testing.T, text string) map[string]string {
	t.Helper()
	kinds := map[string]string{}
	for line := range strings.Lines(text) {
		if family, ok := strings.CutPrefix(line, "# TYPE flotilla_"); ok {
			name, kind, _ := strings.Cut(strings.TrimSpace(family), " ")
			kinds["flotilla_"+name] = kind
		}
	}
	found := map[string]string{}
	for name, samples := range parse(t, text) {
		family := name
		if kinds[family] == "" {
			family = suffix.ReplaceAllString(name, "")
		}
		for _, sample := range samples {
			var labels []string
			for label := range sample.Metric {
				if label != "__name__" && label != "le" {
					labels = append(labels, string(label))
				}
			}
			if kind := kinds[family]; kind != "" {
				found[family] = signature(kind, labels)
			}
		}
	}
	return found
}

func differences(want, got map[string]string) []string {
	var faults []string
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if got[name] != want[name] {
			faults = append(faults, fmt.Sprintf("%s: %q, want %q", name, got[name], want[name]))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(got)) {
		if want[name] == "" {
			faults = append(faults, fmt.Sprintf("%s: %q, and there is no such metric", name, got[name]))
		}
	}
	return faults
}

// TestDocumented compares docs/metrics.md with the registered metrics, in both directions.
func TestDocumented(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	found, faults := documented(string(text))
	all := defined(t)
	for _, f := range shadow.Families() { // A shadow is not a member.
		all[f.Name] = signature(f.Kind, f.Labels)
	}
	for _, fault := range append(faults, differences(all, found)...) {
		t.Errorf("docs/metrics.md: %s", fault)
	}
	if len(found) < 30 {
		t.Errorf("only %d metrics found: is this the page?", len(found))
	}
}

// TestDocumentedComplains plants pages.
func TestDocumentedComplains(t *testing.T) {
	want := map[string]string{"flotilla_a": "gauge ring,shard", "flotilla_b": "counter "}
	good := "| `flotilla_a` | gauge | shard, ring | x | y |\n| `flotilla_b` | counter | | x | |\n"
	for name, tc := range map[string]struct {
		page   string
		faults int
	}{
		"good":      {good, 0},
		"missing":   {strings.Split(good, "\n")[0], 1},
		"no such":   {good + "| `flotilla_c` | gauge | | x | y |\n", 1},
		"kind":      {strings.Replace(good, "gauge", "counter", 1), 1},
		"label":     {strings.Replace(good, "shard, ring", "ring", 1), 1},
		"twice":     {good + good[:strings.IndexByte(good, '\n')+1], 1},
		"not a row": {good + "| `flotilla_d` |\n", 1},
	} {
		found, faults := documented(tc.page)
		if faults = append(faults, differences(want, found)...); len(faults) != tc.faults {
			t.Errorf("%s: %q, want %d faults", name, faults, tc.faults)
		}
	}
}

// values matches what labels may have. It is nil where the operator chooses a few names: rings,
// shards and leader locks.
var values = map[string]*regexp.Regexp{
	"ring": nil, "shard": nil, "lease": nil,
	"hash":        regexp.MustCompile(`^[0-9a-f]{16}$`), // Only hashes in force.
	"state":       regexp.MustCompile(`^(preparing|prepared|waiting|starting|running|draining|joining|active|leaving|drained)$`),
	"how":         regexp.MustCompile(`^(handoff|takeover|vacant)$`),
	"reason":      regexp.MustCompile(`^[a-z-]{3,15}$`),
	"result":      regexp.MustCompile(`^(running|refused|abandoned|ok|conflict|failed|fenced|fence-refused|plan-(adopted|refused|restored|adapted)|throttled)$`),
	"phase":       regexp.MustCompile(`^(prepare|ask|acquire|catch_up|start|drain|release)$`),
	"kind":        regexp.MustCompile(`^(member|shard|plan|leader-lock)$`),
	"controller":  regexp.MustCompile(`^[a-z0-9-]{1,60}$`),
	"action":      regexp.MustCompile(`^(create|acquire|renew|ask|release|mark|strike|retire|write)$`),
	"filtered_by": regexp.MustCompile(`^(server|client|process)$`),
	"le":          regexp.MustCompile(`^[0-9.]+$|^\+Inf$`),
}

// mostSeries bounds the series by ring and by shard of each family, in a fleet of a few shards.
const mostSeries = 40

// complaints returns what is wrong with the labels in a scrape of /metrics.
func complaints(samples testutil.Metrics) []string {
	var faults []string
	for name, all := range samples {
		if !strings.HasPrefix(name, "flotilla_") {
			continue
		}
		if n := len(all); !strings.HasSuffix(name, "_bucket") && n > mostSeries {
			faults = append(faults, fmt.Sprintf("%s has %d series", name, n))
		}
		for _, sample := range all {
			for label, value := range sample.Metric {
				allowed, known := values[string(label)]
				if label != "__name__" && (!known || allowed != nil && !allowed.MatchString(string(value))) {
					faults = append(faults, fmt.Sprintf("%s: %s=%q is not a bounded label", name, label, value))
				}
			}
		}
	}
	return faults
}

// lint compares a scrape of /metrics with the definitions, and its labels with the allowed values.
func lint(t *testing.T, text string) {
	t.Helper()
	for _, fault := range complaints(parse(t, text)) {
		t.Error(fault)
	}
	for _, fault := range differences(defined(t), seen(t, text)) {
		t.Errorf("on /metrics: %s", fault)
	}
}

// TestLabelsAreBounded checks the definitions, even of families without samples, and then plants
// samples.
func TestLabelsAreBounded(t *testing.T) {
	for _, f := range families(t) {
		for _, label := range f.Labels {
			if _, known := values[label]; !known {
				t.Errorf("%s has label %q, which is not one of %v", f.Name, label, slices.Sorted(maps.Keys(values)))
			}
		}
	}
	for planted, want := range map[string]int{
		`flotilla_x{ring="cluster",state="running"}`:     0,
		`flotilla_x{ring="cluster",namespace="default"}`: 1,
		`flotilla_x{how="by chance"}`:                    1,
		`flotilla_x{member="a"}`:                         1,
		`other_x{namespace="default"}`:                   0,
	} {
		if faults := complaints(parse(t, planted+" 1\n")); len(faults) != want {
			t.Errorf("%s: %q, want %d complaints", planted, faults, want)
		}
	}
	var many strings.Builder
	for i := range mostSeries + 1 {
		fmt.Fprintf(&many, "flotilla_x{shard=\"%d\"} 1\n", i)
	}
	if faults := complaints(parse(t, many.String())); len(faults) != 1 {
		t.Errorf("many shards: %q, want one complaint", faults)
	}
}
