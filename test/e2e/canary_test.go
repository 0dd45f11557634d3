package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/flotilla-kube/flotilla/pkg/audit"
	"github.com/flotilla-kube/flotilla/pkg/shard"
	"github.com/flotilla-kube/flotilla/test/controlplane"
	"github.com/flotilla-kube/flotilla/test/harness"
)

var canary = flag.Bool("canary", false, "try a version on some namespaces of a fleet, abort it and promote it, which takes minutes")

// laterVersion is the version that members of the seemingly later build report; the others report
// their own.
const laterVersion = "v1.38.0"

// triedNamespaces are the canary's: two of those with work.
var triedNamespaces = []string{"orders", "shop"}

// TestCanary tries a version on two namespaces of a fleet under load. The canary begins before the
// version's first member exists. The test aborts and rolls back one canary, and promotes and rolls
// out another. According to the audit log, nobody wrote without a claim, and before the promotion
// the version's members wrote only in these namespaces.
func TestCanary(t *testing.T) {
	if !*canary {
		t.Skip("left out: takes minutes, make long RUN=canary")
	}
	plane := harness.StartPlane(t, controlplane.Options{Nodes: 3, Scheduler: true, AuditObjects: true})
	f := newFleetRun(t, plane, shard.Plan{}, "--shards=6", "--handoff-timeout=30s", "--rebalance-delay=1s")
	r := &canaryRun{minorRun: &minorRun{fleetRun: f, binary: plantedBinary(t)}}
	r.operator = newOperator(t, plane, f.name)
	r.operator.binary = r.binary
	for _, name := range []string{"canary-2", "canary-1", "canary-0"} {
		r.startAs(t, name, present)
	}
	r.adapted(t, siteOfPresent)
	first := f.plan
	f.createWork(t)
	f.workDone(t, f.replicas)
	stop := f.burst(t)
	defer stop()

	r.begin(t)
	if line := r.operator.run(t, "canary", "status"); !strings.Contains(line, "0 of 2 shards of it with 0 members of that version") {
		t.Errorf("before the version has a member:\n%s", line)
	}
	r.replace(t, "canary-2", later)
	aborted := window{member: f.incarnation(t, "canary-2"), began: time.Now()}
	r.tries(t, "canary-2")
	r.operator.run(t, "canary", "abort", "--wait=3m")
	r.holds(t, "canary-2", 0)
	if err := r.members["canary-2"].Ready(t.Context()); err != nil {
		t.Errorf("canary-2, which should have no shards, is not ready: %v", err)
	}
	r.replace(t, "canary-2", present)
	aborted.ended = time.Now()
	r.operator.run(t, "canary", "forget", "--wait=3m")

	r.begin(t)
	r.replace(t, "canary-2", later)
	promoted := window{member: f.incarnation(t, "canary-2"), began: time.Now()}
	r.tries(t, "canary-2")
	promoted.ended = time.Now()
	r.operator.run(t, "canary", "promote", "--wait=3m")
	harness.Eventually(t, harness.Patience, "canary-2 has its share", func(context.Context) error {
		if n := f.heldBy(t, "canary-2"); n <= len(triedNamespaces) {
			return fmt.Errorf("canary-2 holds %d shards", n)
		}
		return nil
	})
	for _, name := range []string{"canary-1", "canary-0"} {
		r.replace(t, name, later)
	}
	r.adapted(t, siteOfLater)
	stop()
	f.scale(t, int(f.replicas))
	f.workDone(t, f.replicas)
	f.end(t)

	f.plan = first
	r.requireGaps(t, f.judge(t))
	for _, w := range []window{aborted, promoted} {
		r.requireOutsideUntouched(t, w)
	}
}

// canaryRun is a fleet of two versions, and its operator.
type canaryRun struct {
	*minorRun
	operator *operator
}

// begin starts the canary, and waits until its namespaces have shards of their own.
func (r *canaryRun) begin(t *testing.T) {
	t.Helper()
	out := r.operator.run(t, "canary", "start", "--namespaces="+strings.Join(triedNamespaces, ","), "--version="+laterVersion, "--by=test", "--wait=3m")
	if !strings.Contains(out, "no live member has "+laterVersion+" yet") {
		t.Errorf("start says\n%s", out)
	}
	r.readPlan(t)
}

func (r *canaryRun) readPlan(t *testing.T) {
	t.Helper()
	plan, err := shard.ParsePlan([]byte(r.operator.run(t, "plan", "show", "-o", "document")))
	if err != nil {
		t.Fatal(err)
	}
	r.plan = plan
}

// tries waits until the member holds the canary's shards and nothing else, and reports what it
// does.
func (r *canaryRun) tries(t *testing.T, name string) {
	t.Helper()
	began := time.Now()
	r.holds(t, name, len(triedNamespaces))
	t.Logf("%s has its canary shards after another %.2f s", name, time.Since(began).Seconds())
	for id, holder := range r.holders(t) {
		s, _ := shard.ParseID(id)
		tried, _ := r.plan.Shard(s)
		if r.plan.Tries(tried) != (holder == name) {
			t.Errorf("%s is held by %s", id, holder)
		}
	}
	harness.Eventually(t, harness.Patience, "both versions say what they do", func(ctx context.Context) error {
		text, err := r.operator.try(ctx, "canary", "status", "-o", "json")
		if err != nil {
			return err
		}
		var s struct {
			Versions []struct {
				Tried      bool     `json:"tried"`
				Reconciles *float64 `json:"reconcilesPerSecond"`
				P99        *float64 `json:"p99Seconds"`
				Wait99     *float64 `json:"waitP99Seconds"`
				Requests   *float64 `json:"requestsPerSecond"`
				Errors     *float64 `json:"errorsPerSecond"`
			} `json:"versions"`
		}
		if err := json.Unmarshal([]byte(text), &s); err != nil {
			return err
		}
		if len(s.Versions) != 2 || s.Versions[0].Tried == s.Versions[1].Tried {
			return fmt.Errorf("versions: %s", text)
		}
		for _, v := range s.Versions {
			if v.Reconciles == nil || *v.Reconciles == 0 || v.P99 == nil || v.Wait99 == nil {
				return fmt.Errorf("one has reconciled nothing: %s", text)
			}
			if v.Requests == nil || *v.Requests == 0 || v.Errors == nil {
				return fmt.Errorf("one has asked for nothing: %s", text)
			}
		}
		return nil
	})
	t.Logf("\n%s", r.operator.run(t, "canary", "status"))
}

// holds waits until the member holds this many of the plan's shards.
func (r *canaryRun) holds(t *testing.T, name string, want int) {
	t.Helper()
	harness.Eventually(t, leaseDuration+harness.Patience, fmt.Sprintf("%s holds %d shards", name, want), func(ctx context.Context) error {
		holders, err := r.readHolders(ctx)
		if err != nil {
			return err
		}
		n := 0
		for id, holder := range holders {
			if holder == "" {
				return fmt.Errorf("%s has no holder", id)
			}
			if holder == name {
				n++
			}
		}
		if n != want {
			return fmt.Errorf("it holds %d", n)
		}
		return nil
	})
}

// window is the time in which an incarnation ran a canary.
type window struct {
	member       string
	began, ended time.Time
}

// requireOutsideUntouched checks in the audit log that the member wrote in the canary's namespaces
// and nowhere else, apart from Leases and its controllers' tokens.
func (r *canaryRun) requireOutsideUntouched(t *testing.T, w window) {
	t.Helper()
	log, err := os.Open(r.plane.AuditLog())
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	wrote, err := w.writes(log)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s wrote %d times in the canary's namespaces, and for %d tokens, in %.0f s", w.member, wrote.inside, wrote.tokens, w.ended.Sub(w.began).Seconds())
	if wrote.inside == 0 {
		t.Errorf("%s wrote nothing in the canary's namespaces", w.member)
	}
	for what, n := range wrote.outside {
		t.Errorf("%s, of the canary's version, wrote %d times outside: %s", w.member, n, what)
	}
}

// writesByPlace counts the writes of a member's controllers: in the canary's namespaces, for their
// tokens, and others.
type writesByPlace struct {
	inside, tokens int
	outside        map[string]int
}

// writes counts the writes in an audit log.
func (w window) writes(log io.Reader) (writesByPlace, error) {
	wrote := writesByPlace{outside: map[string]int{}}
	err := harness.Events(log, func(e *harness.Event) error {
		by, known, _ := audit.ParseAgent(e.UserAgent)
		if !known || by.Member != w.member || e.RequestReceivedTimestamp.After(w.ended) || e.Verb == "get" || e.Verb == "list" || e.ObjectRef == nil {
			return nil
		}
		namespace := e.ObjectRef.Namespace
		switch {
		case slices.Contains(triedNamespaces, namespace):
			wrote.inside++
		case namespace == metav1.NamespaceSystem && e.ObjectRef.Resource == "serviceaccounts":
			wrote.tokens++
		default:
			wrote.outside[fmt.Sprintf("%s %s %s/%s", e.Verb, e.ObjectRef.Resource, namespace, e.ObjectRef.Name)]++
		}
		return nil
	})
	return wrote, err
}

// TestWritesOutsideACanary checks that writes gives exactly what the member wrote elsewhere before
// the window ended.
func TestWritesOutsideACanary(t *testing.T) {
	ended := time.Date(2026, 11, 24, 8, 50, 0, 0, time.UTC)
	var log bytes.Buffer
	line := func(member, verb, resource, namespace string, after time.Duration) {
		agent := fmt.Sprintf("flotilla/v1.38.0 (linux/amd64) kubernetes/x/system:serviceaccount:kube-system:job-controller flotilla (member=%s; shard=namespaces/g2-00; term=3)", member)
		e := auditv1.Event{
			UserAgent: agent, Verb: verb, ObjectRef: &auditv1.ObjectReference{Resource: resource, Namespace: namespace, Name: "work"},
			RequestReceivedTimestamp: metav1.NewMicroTime(ended.Add(after)),
		}
		if err := json.NewEncoder(&log).Encode(e); err != nil {
			t.Fatal(err)
		}
	}
	line("canary-2_1", "update", "deployments", "orders", -time.Second)
	line("canary-2_1", "create", "serviceaccounts", metav1.NamespaceSystem, -time.Second)
	line("canary-2_1", "patch", "pods", "web", -time.Second)
	line("canary-2_1", "delete", "nodes", "", -time.Minute)
	line("canary-2_1", "get", "deployments", "web", -time.Second)
	line("canary-2_1", "update", "deployments", "web", time.Second)
	line("canary-2_2", "update", "deployments", "web", -time.Second)
	line("canary-1_1", "update", "deployments", "web", -time.Second)
	wrote, err := window{member: "canary-2_1", ended: ended}.writes(&log)
	want := map[string]int{"patch pods web/work": 1, "delete nodes /work": 1}
	if err != nil || wrote.inside != 1 || wrote.tokens != 1 || !maps.Equal(wrote.outside, want) {
		t.Errorf("%v: %+v, want 1 inside, 1 for tokens, and outside %v", err, wrote, want)
	}
}
