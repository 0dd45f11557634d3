package audit_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/flotilla-kube/flotilla/pkg/audit"
	"github.com/flotilla-kube/flotilla/pkg/controllers/catalogue"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

const (
	fleetName = "flotilla"
	leaseTime = 6

	a = "flotilla-0_aaa"
	b = "flotilla-1_bbb"

	// low and high are namespaces of the lower and the upper half of the keyspace.
	low  = "shop"
	high = "payments"

	lower  = "namespaces/00"
	upper  = "namespaces/01"
	nodes  = "cluster/nodes"
	client = "flotilla/v1.37.1 (linux/amd64) kubernetes/fedcba9"
)

// plan returns a plan of two halves and one group.
func plan(t *testing.T) shard.Plan {
	t.Helper()
	halves, err := shard.EqualRanges(2)
	if err != nil {
		t.Fatal(err)
	}
	id := func(s string) shard.ID {
		id, err := shard.ParseID(s)
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	return shard.Plan{Generation: 1, Rings: []shard.Ring{{
		Name: "namespaces", Scope: shard.ScopeNamespaced, Controllers: []string{"deployment-controller"},
		Shards: []shard.Shard{{ID: id(lower), Range: halves[0]}, {ID: id(upper), Range: halves[1]}},
	}, {
		Name: "cluster", Scope: shard.ScopeCluster,
		Shards: []shard.Shard{{ID: id(nodes), Group: "nodes", Controllers: []string{"node-lifecycle-controller"}}},
	}}}
}

// line is one line of a log, as nested maps.
type line map[string]any

// request returns what all lines have. Each request takes 2 ms and is answered at the given second.
func request(verb, agent, group, resource, namespace, name string, second float64) line {
	answered := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC).Add(time.Duration(second * float64(time.Second)))
	resource, subresource, _ := strings.Cut(resource, "/")
	return line{
		"kind": "Event", "apiVersion": "audit.k8s.io/v1", "stage": "ResponseComplete",
		"auditID": "id-" + name, "requestURI": "/" + resource + "/" + name, "verb": verb, "userAgent": agent,
		"objectRef":      map[string]any{"apiGroup": group, "resource": resource, "subresource": subresource, "namespace": namespace, "name": name},
		"responseStatus": map[string]any{"code": 200},

		"requestReceivedTimestamp": answered.Add(-2 * time.Millisecond).Format("2006-01-02T15:04:05.000000Z"),
		"stageTimestamp":           answered.Format("2006-01-02T15:04:05.000000Z"),
	}
}

// TestTornLine: an API server that was killed while it wrote a line goes on in the same line after
// it has started again.
func TestTornLine(t *testing.T) {
	lines := handoff(lower)
	whole := check(t, lines...)
	// The server writes the kind first.
	text := strings.ReplaceAll(logOf(t, lines...), `"kind":"Event",`, "")
	text = strings.ReplaceAll("\n"+strings.TrimSpace(text), "\n{", "\n"+`{"kind":"Event",`) + "\n"
	first, rest, _ := strings.Cut(text[1:], "\n")
	report, err := audit.Judge(options(plan(t)), reading(first+"\n"+first[:len(first)/2]+rest))
	if err != nil || report.Torn != 1 || report.Lines != whole.Lines || len(report.Violations) > 0 {
		t.Errorf("%v; torn %d, lines %d, violations %v; want 1, %d and none", err, report.Torn, report.Lines, report.Violations, whole.Lines)
	}
	if _, err := audit.Judge(options(plan(t)), reading(first+"\nno event\n")); err == nil {
		t.Error("a line that has no event at all is accepted")
	}
}

func (l line) with(key string, value any) line {
	l = maps.Clone(l)
	l[key] = value
	return l
}

func (l line) code(code int) line {
	return l.with("responseStatus", map[string]any{"code": code}).with("responseObject", map[string]any{"kind": "Status"})
}

// lease returns a write of a shard's Lease.
func lease(id, holder string, term int, version int, second float64) line {
	name := fleetName + "-" + strings.ReplaceAll(id, "/", "-")
	return request("update", client+"/fleet-member/x", "coordination.k8s.io", "leases", "kube-system", name, second).
		with("responseObject", map[string]any{
			"kind": "Lease", "metadata": map[string]any{"name": name, "resourceVersion": fmt.Sprint(version)},
			"spec": map[string]any{
				"holderIdentity": holder, "leaseTransitions": term, "leaseDurationSeconds": leaseTime,
				"renewTime": fmt.Sprintf("2026-07-01T%02d:%02d:%09.6fZ", 12+int(second)/3600, int(second)/60%60, second-float64(int(second)/60*60)),
			},
		})
}

func agent(member, id string, term int) string {
	return fmt.Sprintf("%s flotilla (member=%s; shard=%s; term=%d)", client, member, id, term)
}

// write returns an update of a ReplicaSet by a shard's controllers. Its answer has no object if
// version is 0.
func write(member, id string, term int, namespace string, version int, second float64) line {
	l := request("update", agent(member, id, term), "apps", "replicasets", namespace, "web", second)
	if version == 0 {
		return l
	}
	return l.with("responseObject", map[string]any{
		"kind": "ReplicaSet", "metadata": map[string]any{"name": "web", "namespace": namespace, "resourceVersion": fmt.Sprint(version)},
	})
}

func options(p shard.Plan) audit.Options {
	return audit.Options{Fleet: fleetName, Plan: &p, Controllers: identities}
}

var identities = catalogue.Identities()

func reading(text string) audit.Log { return audit.Log{Reader: strings.NewReader(text)} }

func check(t *testing.T, lines ...line) audit.Report {
	t.Helper()
	report, err := audit.Judge(options(plan(t)), reading(logOf(t, lines...)))
	if err != nil {
		t.Fatal(err)
	}
	return report
}

func logOf(t *testing.T, lines ...line) string {
	t.Helper()
	var log strings.Builder
	encoder := json.NewEncoder(&log)
	for _, l := range lines {
		if err := encoder.Encode(l); err != nil {
			t.Fatal(err)
		}
	}
	return log.String()
}

// TestRequestsBetweenTwoParts has requests that arrive in one part of a log and end in the next. It
// reads the parts in both orders, and with a next part of any length.
func TestRequestsBetweenTwoParts(t *testing.T) {
	other := does("delete", user, "", "pods", pod("other"), 0, 100)
	killed := arrives(does("delete", user, "", "pods", pod("p0"), 0, 99)).with("auditID", "lost")
	long := []line{does("update", user, "", "configmaps", object("ConfigMap", low, "c"), 100, 99.9999)}
	for i := range 500 {
		long = append(long, does("update", user, "", "configmaps", object("ConfigMap", low, "c"), 101+i, 100).with("auditID", fmt.Sprint("c", i)))
	}
	first, second := logOf(t, arrives(other), killed), logOf(t, append(long, other.with("responseStatus", map[string]any{"code": 200}))...)
	for name, parts := range map[string][]string{"in order": {first, second}, "the other way round": {second, first}} {
		report, err := audit.Judge(options(plan(t)), reading(parts[0]), reading(parts[1]))
		if err != nil {
			t.Fatal(err)
		}
		if report.Lost != 1 {
			t.Errorf("%s: %d requests were lost, want the one whose server was killed", name, report.Lost)
		}
	}
}
