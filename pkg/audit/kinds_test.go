package audit_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/flotilla-kube/flotilla/pkg/audit"
)

// trip plants a violation of exactly one rule.
type trip func(t *testing.T) audit.Report

func tripped(lines ...line) trip {
	return func(t *testing.T) audit.Report { return check(t, lines...) }
}

func inHandoff(lines ...line) trip { return tripped(append(handoff(lower), lines...)...) }

func inScene(lines ...line) trip { return tripped(append(scene(), lines...)...) }

// inTakeover plants into a clean takeover in a fleet with one heartbeat per member.
func inTakeover(plant func(scene map[string]line)) trip {
	return func(t *testing.T) audit.Report {
		scene := takeover()
		plant(scene)
		return check(t, linesOf(scene)...)
	}
}

// changed plants a fault into a clean split.
func changed(plant func(t *testing.T, scene map[string]line, successor string)) trip {
	return func(t *testing.T) audit.Report {
		halves, _, _ := plans(t)
		mine, _ := successor(t)
		scene := splitScene(t)
		plant(t, scene, mine)
		return checkPlan(t, halves, linesOf(scene)...)
	}
}

// trips has a trip for each kind of violation.
var trips = map[audit.Kind]trip{
	audit.WrongRange: inHandoff(write(a, lower, 1, high, 15, 1)),
	audit.WrongScope: inHandoff(request("patch", agent(a, lower, 1), "", "nodes", "", machine, 1)),
	audit.WrongController: changed(func(_ *testing.T, s map[string]line, successor string) {
		s["19"] = by("job-controller", write(b, successor, 1, low, 141, 15.5))
	}),
	audit.NotHolder:      inHandoff(write(a, lower, 1, low, 35, 4.5)),
	audit.UnknownShard:   inHandoff(write(a, "namespaces/07", 1, low, 15, 1)),
	audit.BadAgent:       inHandoff(write(a, lower, 1, low, 15, 1).with("userAgent", client+" flotilla (member=flotilla-0...TRUNCATED")),
	audit.Unfenced:       inHandoff(write(a, lower, 1, low, 15, 1).with("userAgent", client)),
	audit.TermReused:     tripped(lease(lower, a, 1, 10, 0), lease(lower, "", 1, 20, 1), lease(lower, b, 1, 30, 2)),
	audit.TakenEarly:     tripped(lease(lower, a, 1, 10, 0), lease(lower, b, 2, 20, 5.9)),
	audit.HolderNotEnded: inTakeover(func(s map[string]line) { delete(s, "strike") }),
	audit.WriterEnded:    inTakeover(func(s map[string]line) { s["x"] = write(a, lower, 1, low, 32, 10.15) }),
	audit.EndedEarly:     inTakeover(func(s map[string]line) { s["strike"] = ends("flotilla-1", a, 4, 30, 9.9) }),
	audit.BeatAfterEnd:   inTakeover(func(s map[string]line) { s["x"] = beats(a, 33, 10.15, a) }),
	audit.Overlapping: tripped(lease(lower, a, 1, 10, 0), lease(lower, "", 1, 20, 1), lease(lower, b, 2, 30, 2), lease(lower, "", 2, 40, 3),
		lease(lower, a, 1, 50, 4)),
	audit.OverlappingShards: changed(func(_ *testing.T, s map[string]line, successor string) { s["10b"] = wrote(b, successor, 1, 60, 8.5) }),
	audit.WrongLayout: changed(func(_ *testing.T, s map[string]line, _ string) {
		s["16 renewed"] = s["16 renewed"].notes(map[string]string{"flotilla.dev/controllers": deployments})
	}),
	audit.DuplicatePod: inScene(does("create", by1, "", "pods", pod("p3"), 101, 101)),
	audit.DuplicateReplicaSet: inScene(
		does("create", by1, "apps", "replicasets", object("ReplicaSet", low, "s1").of("apps/v1", object("Deployment", low, "shop")), 40, 40),
		does("create", by1, "apps", "replicasets", object("ReplicaSet", low, "s2").of("apps/v1", object("Deployment", low, "shop")), 41, 41)),
	audit.DuplicateJob: inScene(
		does("create", by1, "batch", "jobs", dueJob("j1"), 40, 40),
		does("update", by1, "batch", "cronjobs/status", object("CronJob", low, "c").set("status", "lastScheduleTime", due), 41, 41),
		does("delete", user, "batch", "jobs", dueJob("j1"), 0, 42), does("create", by1, "batch", "jobs", dueJob("j2"), 90, 90)),
	audit.DuplicateSlice: inScene(
		does("create", by1, "discovery.k8s.io", "endpointslices", object("EndpointSlice", low, "e1").of("v1", object("Service", low, "shop")), 40, 40),
		does("create", by1, "discovery.k8s.io", "endpointslices", object("EndpointSlice", low, "e2").of("v1", object("Service", low, "shop")), 41, 41)),
	audit.WantedPodDeleted: inScene(does("delete", by1, "", "pods", pod("p0"), 105, 105)),
	audit.OwnedDeleted: inScene(does("delete", agent(a, nodes, 1), "", "pods", pod("p0"), 105, 105).
		with("user", map[string]any{"username": collector})),
	audit.LeaderLockNotHeld: tripped(waits(a, lockName), lease(lower, a, 1, 10, 10), lock(stock, 6, 1), write(a, lower, 1, low, 35, 13)),
	audit.LeaseDeleted:      inHandoff(lease(lower, "", 1, 60, 8).with("verb", "delete").with("responseObject", map[string]any{"kind": "Status"})),
}

// doubts has a trip for each kind of undecided finding.
var doubts = map[audit.Kind]trip{
	audit.LeaseHole:       tripped(lease(lower, a, 1, 10, 1), lease(lower, b, 2, 40, 3).on(30)),
	audit.LeaseUnanswered: inHandoff(lease(lower, "", 2, 0, 8).code(504)),
	audit.EndUnknown:      inTakeover(func(s map[string]line) { deleteAll(s, "strike", "next", "next 2") }),
	audit.LogGap: inTakeover(func(s map[string]line) {
		deleteAll(s, "b 4", "b 6", "b 8")
		s["b 10"] = s["b 10"].on(24)
	}),
	audit.LongFlight: inHandoff(write(a, lower, 1, low, 35, 69).arrived(3.9)),
	audit.LateFlight: tripped(lease(lower, a, 1, 10, 0), lease(lower, b, 2, 40, 8), write(a, lower, 1, low, 45, 9).arrived(7.9)),
}

const due = "2026-07-01T12:00:00Z"

func dueJob(name string) jsonObject {
	return object("Job", low, name).of("batch/v1", object("CronJob", low, "c")).
		set("metadata", "annotations", map[string]any{"batch.kubernetes.io/cronjob-scheduled-timestamp": due})
}

// TestEveryKindTrips checks that each kind is found where it was planted, and that nothing else is
// found.
func TestEveryKindTrips(t *testing.T) {
	violations, undecided := audit.Kinds()
	for _, kind := range violations {
		t.Run(string(kind), func(t *testing.T) {
			if trips[kind] == nil {
				t.Fatal("nothing trips it")
			}
			report := trips[kind](t)
			requireOnly(t, report, kind)
			if report.Err() == nil || !strings.Contains(report.Err().Error(), string(kind)) {
				t.Errorf("the error does not name it: %v", report.Err())
			}
		})
	}
	for _, kind := range undecided {
		t.Run(string(kind), func(t *testing.T) {
			if doubts[kind] == nil {
				t.Fatal("nothing trips it")
			}
			report := doubts[kind](t)
			requireKinds(t, report)
			requireDoubts(t, report, kind)
			if report.Undisturbed() == nil || !strings.Contains(report.Undisturbed().Error(), string(kind)) {
				t.Errorf("the error does not name it: %v", report.Undisturbed())
			}
		})
	}
}

// requireOnly requires violations of one kind only. A term that goes on also counts as reused,
// because the rules overlap.
func requireOnly(t *testing.T, report audit.Report, kind audit.Kind) {
	t.Helper()
	kinds := slices.Compact(slices.Sorted(slices.Values(kindsOf(report.Violations))))
	if kind == audit.Overlapping {
		kinds = slices.DeleteFunc(kinds, func(k audit.Kind) bool { return k == audit.TermReused })
	}
	if !slices.Equal(kinds, []audit.Kind{kind}) {
		t.Errorf("found %q, want only %q: %v", kinds, kind, report.Violations)
	}
}

// TestKindsAreAll finds kinds that the lists lack, and kinds that the operator's page does not
// explain.
func TestKindsAreAll(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "kinds.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	declared := 0
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok {
			if kind, ok := spec.Type.(*ast.Ident); ok && kind.Name == "Kind" {
				declared += len(spec.Names)
			}
		}
		return true
	})
	violations, undecided := audit.Kinds()
	all := slices.Concat(violations, undecided)
	if distinct := slices.Compact(slices.Sorted(slices.Values(all))); len(distinct) != declared || len(all) != declared {
		t.Errorf("%d kinds are declared, the lists have %d, %d of them distinct", declared, len(all), len(distinct))
	}
	page, err := os.ReadFile("../../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range all {
		if !strings.Contains(string(page), "| "+string(kind)+" |") {
			t.Errorf("docs/cli.md does not explain %q", kind)
		}
	}
}
