package audit_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/flotilla-kube/flotilla/pkg/audit"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

const (
	deployments = "deployment-controller"
	replicaSets = "replicaset-controller"
)

// plans returns the stages of a change: two halves; the lower half cut in two; one controller in a
// ring of its own.
func plans(t *testing.T) (halves, split, moved shard.Plan) {
	t.Helper()
	quarters, err := shard.EqualRanges(4)
	if err != nil {
		t.Fatal(err)
	}
	two, _ := shard.EqualRanges(2)
	ring := func(name string, controllers []string, ranges map[string]shard.Range) shard.Ring {
		r := shard.Ring{Name: name, Scope: shard.ScopeNamespaced, Controllers: controllers}
		for _, s := range slices.Sorted(maps.Keys(ranges)) {
			r.Shards = append(r.Shards, shard.Shard{ID: shard.ID{Ring: name, Name: s}, Range: ranges[s]})
		}
		return r
	}
	both := []string{deployments, replicaSets}
	group := shard.Ring{Name: "cluster", Scope: shard.ScopeCluster, Shards: []shard.Shard{
		{ID: shard.ID{Ring: "cluster", Name: "nodes"}, Group: "nodes", Controllers: []string{"node-lifecycle-controller"}},
	}}
	halves = shard.Plan{Generation: 1, Rings: []shard.Ring{ring("namespaces", both, map[string]shard.Range{"00": two[0], "01": two[1]}), group}}
	split = shard.Plan{Generation: 2, Rings: []shard.Ring{ring("namespaces", both, map[string]shard.Range{"01": two[1], "02": quarters[0], "03": quarters[1]}), group}}
	moved = shard.Plan{Generation: 2, Rings: []shard.Ring{
		ring("apps", both[:1], map[string]shard.Range{"00": shard.Everything()}),
		ring("namespaces", both[1:], map[string]shard.Range{"10": two[0], "11": two[1]}), group,
	}}
	return halves, split, moved
}

// planLease returns a write of the plan's Lease.
func planLease(t *testing.T, p shard.Plan, version int, second float64) line {
	t.Helper()
	document, err := p.Document()
	if err != nil {
		t.Fatal(err)
	}
	answer := object("Lease", "kube-system", fleetName+"-plan").set("metadata", "resourceVersion", fmt.Sprint(version)).
		set("metadata", "annotations", map[string]any{"flotilla.dev/plan-document": document})
	return request("update", client+"/fleet-member/x", "coordination.k8s.io", "leases", "kube-system", fleetName+"-plan", second).with("responseObject", map[string]any(answer))
}

// notes returns the line with annotations added to the Lease.
func (l line) notes(add map[string]string) line {
	answer := jsonObject(l["responseObject"].(map[string]any))
	annotations, _ := answer["metadata"].(map[string]any)["annotations"].(map[string]any)
	annotations = maps.Clone(annotations)
	if annotations == nil {
		annotations = map[string]any{}
	}
	for key, value := range add {
		annotations[key] = value
	}
	return l.with("responseObject", map[string]any(answer.set("metadata", "annotations", annotations)))
}

// told returns a write of a shard's Lease with what the shard covers in plan p.
func told(t *testing.T, p shard.Plan, id, holder string, term, version int, second float64) line {
	t.Helper()
	parsed, err := shard.ParseID(id)
	if err != nil {
		t.Fatal(err)
	}
	s, known := p.Shard(parsed)
	if !known {
		t.Fatalf("the plan has no %s", id)
	}
	l := lease(id, holder, term, version, second)
	l = l.with("responseObject", map[string]any(jsonObject(l["responseObject"].(map[string]any)).set("metadata", "labels",
		map[string]any{"flotilla.dev/fleet": fleetName, "flotilla.dev/ring": parsed.Ring, "flotilla.dev/shard": parsed.Name})))
	l = l.notes(map[string]string{
		"flotilla.dev/controllers":     strings.Join(p.ControllersOf(parsed), ","),
		"flotilla.dev/plan-generation": strconv.FormatInt(p.Generation, 10),
	})
	if s.Namespaced() {
		l = l.notes(map[string]string{"flotilla.dev/range": s.Range.String()})
	}
	return l
}

// by returns the line as a write by one controller.
func by(controller string, l line) line {
	return l.with("user", map[string]any{"username": "system:serviceaccount:kube-system:" + controller})
}

func wrote(member, id string, term, version int, second float64) line {
	return by(replicaSets, write(member, id, term, low, version, second))
}

// successor returns the shard that has the low namespace after the split, and the other one.
func successor(t *testing.T) (successor, other string) {
	t.Helper()
	_, split, _ := plans(t)
	if s, _ := split.ShardFor("namespaces", low); s.Name == "03" {
		return "namespaces/03", "namespaces/02"
	}
	return "namespaces/02", "namespaces/03"
}

// splitScene returns a clean split under load: member b claims both successors of a's shard, waits,
// and runs them after the release at second 10 and version 100.
func splitScene(t *testing.T) map[string]line {
	halves, split, _ := plans(t)
	mine, other := successor(t)
	return map[string]line{
		"01 first plan":    planLease(t, halves, 5, 0),
		"02 predecessor":   told(t, halves, lower, a, 1, 10, 1),
		"03 write":         wrote(a, lower, 1, 11, 2),
		"04 plan":          planLease(t, split, 20, 5),
		"05 claim":         told(t, split, mine, b, 1, 30, 6),
		"06 claim other":   told(t, split, other, b, 1, 31, 6.1),
		"07 ready":         told(t, split, mine, b, 1, 40, 7).notes(map[string]string{"flotilla.dev/ready": "1"}),
		"08 ready other":   told(t, split, other, b, 1, 41, 7.1).notes(map[string]string{"flotilla.dev/ready": "1"}),
		"09 renewed":       told(t, halves, lower, a, 1, 45, 7.5),
		"10 write":         wrote(a, lower, 1, 50, 8),
		"11 last write":    wrote(a, lower, 1, 90, 9.9),
		"12 release":       told(t, halves, lower, "", 1, 100, 10),
		"13 runs":          told(t, split, mine, b, 1, 110, 10.1).notes(map[string]string{"flotilla.dev/ready": ""}),
		"14 runs other":    told(t, split, other, b, 1, 111, 10.2).notes(map[string]string{"flotilla.dev/ready": ""}),
		"15 first write":   wrote(b, mine, 1, 120, 10.5),
		"16 renewed":       told(t, split, mine, b, 1, 130, 14),
		"17 renewed other": told(t, split, other, b, 1, 131, 14.1),
		"18 write":         wrote(b, mine, 1, 140, 15),
	}
}

func linesOf(scene map[string]line) []line {
	var lines []line
	for _, key := range slices.Sorted(maps.Keys(scene)) {
		lines = append(lines, scene[key])
	}
	return lines
}

func checkPlan(t *testing.T, p shard.Plan, lines ...line) audit.Report {
	t.Helper()
	report, err := audit.Judge(options(p), reading(logOf(t, lines...)))
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// TestChange plants faults into a clean split.
func TestChange(t *testing.T) {
	halves, split, moved := plans(t)
	mine, other := successor(t)
	early := split
	early.Generation = 1
	reused := halves // The same shards without one of their controllers.
	reused.Generation, reused.Rings = 3, slices.Clone(halves.Rings)
	reused.Rings[0].Controllers = []string{replicaSets}
	homed := split
	homed.Rings = slices.Clone(split.Rings)
	homed.Rings[0].Shards = slices.Clone(split.Rings[0].Shards)
	homed.Rings[0].Shards[0].Home = "flotilla-0"
	wide, _ := split.Shard(shard.ID{Ring: "namespaces", Name: strings.TrimPrefix(other, "namespaces/")})
	tests := map[string]struct {
		plant func(scene map[string]line)
		want  []audit.Kind
	}{
		"clean": {},
		"predecessor writes after the successor began": {func(s map[string]line) {
			s["19"] = wrote(a, lower, 1, 141, 15.5)
		}, []audit.Kind{audit.NotHolder}},
		"on the wire at the release": {func(s map[string]line) {
			s["19"] = wrote(a, lower, 1, 125, 10.6).arrived(9.9)
		}, nil},
		"successor began before the release": {func(s map[string]line) {
			s["10b"] = wrote(b, mine, 1, 60, 8.5)
		}, []audit.Kind{audit.OverlappingShards}},
		"successor began before the release, no version": {func(s map[string]line) {
			s["10b"] = wrote(b, mine, 1, 0, 8.5)
		}, []audit.Kind{audit.OverlappingShards}},
		"successor began elsewhere": {func(s map[string]line) { // Perhaps it never runs.
			s["10b"] = by("expand-controller", request("update", agent(b, mine, 1), "", "persistentvolumes", "", "pv", 8.5))
		}, []audit.Kind{audit.WrongController, audit.OverlappingShards}},
		"successor wrote last before the release": {func(s map[string]line) {
			s["11b"] = wrote(b, mine, 1, 95, 9.95)
		}, []audit.Kind{audit.OverlappingShards}},
		"at the release, no version": {func(s map[string]line) {
			s["11b"] = wrote(b, mine, 1, 0, 10.001)
		}, nil},
		"changes nothing, and is answered with the predecessor's version": {func(s map[string]line) {
			s["15"] = wrote(b, mine, 1, 90, 10.4)
		}, nil},
		"changes nothing at the release": {func(s map[string]line) {
			delete(s, "10 write")
			s["10"] = does("update", agent(a, lower, 1), "apps", "replicasets/status", set, 50, 8)
			s["12b"] = does("update", agent(b, mine, 1), "apps", "replicasets/status", set, 50, 10.0015).arrived(9.9995)
		}, nil},
		"another began, which shares nothing": {func(s map[string]line) {
			s["07b"] = told(t, halves, upper, b, 1, 42, 7.2)
			s["07c"] = by(replicaSets, write(b, upper, 1, high, 43, 7.3))
		}, nil},
		"predecessor never wrote": {func(s map[string]line) {
			for _, key := range []string{"03 write", "10 write", "11 last write"} {
				delete(s, key)
			}
			s["10b"] = wrote(b, mine, 1, 60, 8.5)
		}, nil},
		"by a controller of none": {func(s map[string]line) {
			s["19"] = by("job-controller", write(b, mine, 1, low, 141, 15.5))
		}, []audit.Kind{audit.WrongController}},
		"successor without a generation": {func(s map[string]line) {
			for _, key := range []string{"05 claim", "07 ready", "13 runs", "16 renewed"} {
				s[key] = s[key].notes(map[string]string{"flotilla.dev/plan-generation": ""})
			}
		}, []audit.Kind{audit.WrongLayout}},
		"by an identity of none": {func(s map[string]line) {
			s["19"] = by("somebody", write(b, mine, 1, low, 141, 15.5))
		}, nil},
		"beyond the successor's range": {func(s map[string]line) {
			s["19"] = wrote(b, other, 1, 141, 15.5)
		}, []audit.Kind{audit.WrongRange}},
		"a successor that nobody knows": {func(s map[string]line) {
			s["19"] = wrote(b, "namespaces/77", 1, 141, 15.5)
		}, []audit.Kind{audit.UnknownShard}},
		"range changed": {func(s map[string]line) {
			s["19"] = s["16 renewed"].notes(map[string]string{"flotilla.dev/range": wide.Range.String()}).
				with("stageTimestamp", s["18 write"]["stageTimestamp"])
			s["16 renewed"] = told(t, split, mine, b, 1, 129, 13.9)
		}, []audit.Kind{audit.WrongLayout}},
		"controllers changed": {func(s map[string]line) {
			s["16 renewed"] = s["16 renewed"].notes(map[string]string{"flotilla.dev/controllers": deployments})
		}, []audit.Kind{audit.WrongLayout}},
		"controllers are not those of the plan": {func(s map[string]line) {
			for _, key := range []string{"05 claim", "07 ready", "13 runs", "16 renewed"} {
				s[key] = s[key].notes(map[string]string{"flotilla.dev/controllers": replicaSets})
			}
		}, []audit.Kind{audit.WrongLayout}},
		"controllers are not in order": {func(s map[string]line) {
			s["09 renewed"] = s["09 renewed"].notes(map[string]string{"flotilla.dev/controllers": replicaSets + "," + deployments})
		}, []audit.Kind{audit.WrongLayout}},
		"range changed, and there is no plan": {func(s map[string]line) {
			delete(s, "01 first plan")
			delete(s, "04 plan")
			s["16 renewed"] = s["16 renewed"].notes(map[string]string{"flotilla.dev/range": wide.Range.String()})
		}, []audit.Kind{audit.WrongLayout}},
		"range changed with the term": {func(s map[string]line) {
			s["19"] = told(t, split, mine, "", 1, 142, 16)
			s["20"] = told(t, split, mine, a, 2, 143, 17).notes(map[string]string{"flotilla.dev/range": wide.Range.String()})
			s["21"] = wrote(a, mine, 2, 144, 18)
		}, []audit.Kind{audit.WrongLayout, audit.WrongRange}},
		"a plan that changes a shard": {func(s map[string]line) {
			s["19"] = planLease(t, reused, 142, 16)
		}, []audit.Kind{audit.WrongLayout}},
		"before its plan, which had another's generation": {func(s map[string]line) {
			s["01 plan"], s["01 plan again"] = planLease(t, moved, 6, 0.5), planLease(t, halves, 7, 0.6)
			s["04 plan"] = planLease(t, split, 35, 6.5)
		}, []audit.Kind{audit.WrongLayout, audit.WrongLayout}},
		"labelled as another": {func(s map[string]line) {
			l := told(t, halves, upper, b, 1, 42, 7.2)["responseObject"].(map[string]any)
			m := maps.Clone(l["metadata"].(map[string]any))
			m["name"], m["resourceVersion"] = "flotilla-namespaces-01", "42"
			m["labels"] = map[string]any{"flotilla.dev/fleet": fleetName, "flotilla.dev/ring": "namespaces", "flotilla.dev/shard": "00"}
			s["07b"] = told(t, halves, upper, b, 1, 42, 7.2).with("responseObject", map[string]any{"metadata": m, "spec": l["spec"]})
		}, []audit.Kind{audit.WrongLayout}},
		"before its plan": {func(s map[string]line) {
			s["04 plan"] = planLease(t, split, 35, 6.5)
		}, []audit.Kind{audit.WrongLayout, audit.WrongLayout}},
		"by a plan that has no such shard": {func(s map[string]line) {
			s["05 claim"] = s["05 claim"].notes(map[string]string{"flotilla.dev/plan-generation": "1"})
		}, []audit.Kind{audit.WrongLayout}},
		"by a plan that nobody wrote": {func(s map[string]line) {
			s["16 renewed"] = s["16 renewed"].notes(map[string]string{"flotilla.dev/plan-generation": "9"})
		}, []audit.Kind{audit.WrongLayout}},
		"a predecessor that knows the next plan": {func(s map[string]line) {
			s["09 renewed"] = s["09 renewed"].notes(map[string]string{"flotilla.dev/plan-generation": "2"})
		}, nil},
		"the generation was used before": {func(s map[string]line) {
			s["01 plan"] = planLease(t, early, 6, 0.5)
		}, []audit.Kind{audit.WrongLayout}},
		"the same generation with another home": {func(s map[string]line) {
			s["04b"] = planLease(t, homed, 21, 5.1)
		}, []audit.Kind{audit.WrongLayout}},
		"a home that was not given up front": {func(s map[string]line) {
			homed := halves
			homed.Rings = slices.Clone(halves.Rings)
			homed.Rings[0].Shards = slices.Clone(halves.Rings[0].Shards)
			homed.Rings[0].Shards[0].Home = "flotilla-0"
			s["01 first plan"] = planLease(t, homed, 5, 0)
		}, nil},
		"a user's that cannot follow": {func(s map[string]line) {
			s["01 plan"] = planLease(t, early, 6, 0.5).with("userAgent", user)
			s["01 plan again"] = planLease(t, halves, 7, 0.6)
		}, nil},
		"the plan is put back": {func(s map[string]line) {
			s["01 plan"] = planLease(t, moved, 6, 0.5)
			s["01 plan again"] = planLease(t, halves, 7, 0.6)
			delete(s, "04 plan")
			s["04"] = planLease(t, split, 20, 5) // With the generation that was refused.
		}, nil},
		"the plan was deleted": {func(s map[string]line) {
			s["19"] = planLease(t, split, 142, 16).with("verb", "delete").with("responseObject", map[string]any{"kind": "Status"})
		}, []audit.Kind{audit.LeaseDeleted}},
		"a successor's Lease was deleted": {func(s map[string]line) {
			s["19"] = told(t, split, mine, "", 1, 142, 16).with("verb", "delete").with("responseObject", map[string]any{"kind": "Status"})
		}, []audit.Kind{audit.LeaseDeleted}},
		"another fleet's": {func(s map[string]line) {
			s["19"] = lease("other/00", a, 1, 142, 16).with("userAgent", user)
			s["20"] = lease("other/00", b, 1, 143, 17).with("userAgent", user)
		}, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			scene := splitScene(t)
			if test.plant != nil {
				test.plant(scene)
			}
			lines := linesOf(scene)
			requireKinds(t, checkPlan(t, halves, lines...), test.want...)
			slices.Reverse(lines) // The log may be out of order.
			report := checkPlan(t, halves, lines...)
			slices.SortStableFunc(report.Violations, func(a, b audit.Violation) int { return a.Time.Compare(b.Time) })
			requireKinds(t, report, test.want...)
		})
	}
}

// TestControllersOfOthers: a fleet of other controllers may have one that uses the identity of
// another one of kube-controller-manager's.
func TestControllersOfOthers(t *testing.T) {
	halves, _, _ := plans(t)
	for controllers, want := range map[string][]audit.Kind{"cloud-node-controller": nil, "cloud-node-controller,job-controller": {audit.WrongController}} {
		names := strings.Split(controllers, ",")
		p := shard.Plan{Generation: 1, Rings: []shard.Ring{{Name: "namespaces", Scope: shard.ScopeNamespaced, Controllers: names, Shards: halves.Rings[0].Shards}}}
		report := checkPlan(t, p, told(t, p, lower, a, 1, 10, 1), by("node-controller", write(a, lower, 1, low, 11, 2)), told(t, p, lower, a, 1, 20, 3))
		if requireKinds(t, report, want...); (report.ByController > 0) != (want != nil) {
			t.Errorf("%s: %d writes compared with the controllers", controllers, report.ByController)
		}
	}
}

// TestLogFromTheMiddle judges a log that begins under the first plan, without any write that names
// it, and without the plan given up front.
func TestLogFromTheMiddle(t *testing.T) {
	halves, _, _ := plans(t)
	good, err := halves.Packed()
	if err != nil {
		t.Fatal(err)
	}
	judge := func(plant func(s map[string]line)) audit.Report {
		scene := splitScene(t)
		deleteAll(scene, "01 first plan", "02 predecessor", "03 write", "09 renewed")
		scene["04 plan"] = scene["04 plan"].on(5)
		scene["12 release"] = scene["12 release"].on(45)
		plant(scene)
		opts := options(halves)
		opts.Plan = nil
		report, err := audit.Judge(opts, reading(logOf(t, linesOf(scene)...)))
		if err != nil {
			t.Fatal(err)
		}
		return report
	}
	withGood := func(s map[string]line) {
		s["04 plan"] = s["04 plan"].notes(map[string]string{"flotilla.dev/last-good-plan": good}).on(5)
	}
	report := judge(withGood)
	requireKinds(t, report)
	if report.Plans != 2 {
		t.Errorf("%d plans, want the first one too, from the annotation", report.Plans)
	}
	requireKinds(t, judge(func(map[string]line) {}))
	// The predecessor dies, and its Lease is never written.
	report = judge(func(s map[string]line) { delete(s, "12 release") })
	requireKinds(t, report)
	requireDoubts(t, report, audit.LeaseHole, audit.LeaseHole)
	// Nothing is excused that a known plan forbids.
	requireKinds(t, judge(func(s map[string]line) {
		withGood(s)
		s["05 claim"] = s["05 claim"].notes(map[string]string{"flotilla.dev/plan-generation": "3"})
	}), audit.WrongLayout)
}

// TestOverlapOfShards: the report names exactly the shards that overlapped.
func TestOverlapOfShards(t *testing.T) {
	halves, _, _ := plans(t)
	mine, _ := successor(t)
	scene := splitScene(t)
	scene["10b"], scene["10c"] = wrote(b, mine, 1, 60, 8.5), wrote(a, lower, 1, 61, 8.6)
	report := checkPlan(t, halves, linesOf(scene)...)
	requireKinds(t, report, audit.OverlappingShards)
	if len(report.Overlaps) != 1 {
		t.Fatalf("overlaps: %+v", report.Overlaps)
	}
	o := report.Overlaps[0]
	if o.Shard.String() != lower || o.Other.String() != mine || o.First.Holder != a || o.Second.Holder != b || o.Version != 60 || o.For != 1400*time.Millisecond {
		t.Errorf("overlap %+v", o)
	}
	detail := report.Violations[0].String()
	for _, want := range []string{a + " for " + lower, b + " for " + mine, "12:00:08.5", "12:00:10Z", replicaSets, "2 writes of the one and 1 of the other are such"} {
		if !strings.Contains(detail, want) {
			t.Errorf("%q does not have %q", detail, want)
		}
	}
}

// TestRings moves a controller to a ring of its own, whose shard covers what two shards covered
// before.
func TestRings(t *testing.T) {
	halves, _, moved := plans(t)
	const apps, rest = "apps/00", "namespaces/10"
	scene := func() map[string]line {
		return map[string]line{
			"01": planLease(t, halves, 5, 0), "02": told(t, halves, lower, a, 1, 10, 1), "03": told(t, halves, upper, a, 1, 11, 1),
			"04": by(deployments, write(a, lower, 1, low, 12, 2)), "05": by(deployments, write(a, upper, 1, high, 13, 2)),
			"06": planLease(t, moved, 20, 3), "07": told(t, moved, apps, b, 1, 21, 3.5), "08": told(t, moved, rest, a, 1, 22, 3.5),
			"09": told(t, halves, lower, "", 1, 30, 4), "10": told(t, halves, upper, "", 1, 31, 5),
			"11": by(deployments, write(b, apps, 1, low, 40, 6)), "12": wrote(a, rest, 1, 41, 4.5),
		}
	}
	requireKinds(t, checkPlan(t, halves, linesOf(scene())...))
	both := scene() // One half was released, the other was not.
	both["11"] = by(deployments, write(b, apps, 1, low, 30, 4.5))
	requireKinds(t, checkPlan(t, halves, linesOf(both)...), audit.OverlappingShards)
	foreign := scene()
	foreign["11"] = by(replicaSets, write(b, apps, 1, low, 40, 6))
	requireKinds(t, checkPlan(t, halves, linesOf(foreign)...), audit.WrongController)
	shared := scene() // The rings share no controller, so their shards may run at once.
	shared["13"] = wrote(a, rest, 1, 42, 7)
	shared["14"] = by(deployments, write(b, apps, 1, high, 43, 7.1))
	requireKinds(t, checkPlan(t, halves, linesOf(shared)...))
}

// deadScene returns a split in which the predecessor dies at second 8. Its Lease expires at 13.5,
// and nobody takes it.
func deadScene(t *testing.T) map[string]line {
	s := splitScene(t)
	for _, key := range []string{"11 last write", "12 release", "13 runs", "14 runs other", "15 first write", "16 renewed", "17 renewed other", "18 write"} {
		delete(s, key)
	}
	_, split, _ := plans(t)
	mine, other := successor(t)
	ready := map[string]string{"flotilla.dev/ready": "1"}
	s["11"], s["12"] = told(t, split, mine, b, 1, 60, 11).notes(ready), told(t, split, other, b, 1, 61, 11.1).notes(ready)
	s["13"], s["14"] = told(t, split, mine, b, 1, 70, 13.6), told(t, split, other, b, 1, 71, 13.6)
	s["15"] = wrote(b, mine, 1, 80, 13.7)
	return s
}

func TestDeadPredecessor(t *testing.T) {
	halves, _, _ := plans(t)
	mine, _ := successor(t)
	report := checkPlan(t, halves, linesOf(deadScene(t))...)
	requireKinds(t, report)
	for _, s := range report.Successions() {
		if s.Planned || s.Gap() != 6100*time.Millisecond || s.Predecessor.String() != lower || s.Before != a || s.After != b {
			t.Errorf("succession %+v, gap %v", s, s.Gap())
		}
	}
	if n := len(report.Successions()); n != 2 {
		t.Errorf("%d successions, want 2", n)
	}
	early := deadScene(t)
	early["15"] = wrote(b, mine, 1, 65, 13.4)
	requireKinds(t, checkPlan(t, halves, linesOf(early)...), audit.OverlappingShards)
	alive := deadScene(t) // It comes back without a renewal.
	alive["16"] = wrote(a, lower, 1, 90, 14)
	requireKinds(t, checkPlan(t, halves, linesOf(alive)...), audit.OverlappingShards)
	wire := deadScene(t)
	wire["16"] = wrote(a, lower, 1, 90, 14).arrived(13.4)
	report = checkPlan(t, halves, linesOf(wire)...)
	requireKinds(t, report)
	requireDoubts(t, report)
	if len(report.InFlight) != 1 || report.InFlight[0].Ended != 80 {
		t.Errorf("in flight: %+v", report.InFlight)
	}
	wire["16"] = wrote(a, lower, 1, 90, 14).arrived(13.65)
	report = checkPlan(t, halves, linesOf(wire)...)
	requireKinds(t, report)
	requireDoubts(t, report, audit.LateFlight)
}

// TestSuccessions measures the gaps of a split, from the log and from the Leases alone.
func TestSuccessions(t *testing.T) {
	halves, _, _ := plans(t)
	mine, other := successor(t)
	report := checkPlan(t, halves, linesOf(splitScene(t))...)
	got := report.Successions()
	if len(got) != 2 {
		t.Fatalf("%d successions, want 2: %+v", len(got), got)
	}
	for _, s := range got {
		gap := map[string]time.Duration{mine: 100 * time.Millisecond, other: 200 * time.Millisecond}[s.Successor.String()]
		if s.Predecessor.String() != lower || !s.Planned || s.Gap() != gap || len(s.Extent.Controllers) != 2 {
			t.Errorf("succession %+v, gap %v, want %v", s, s.Gap(), gap)
		}
		silence, written := s.Silence()
		if written != (s.Successor.String() == mine) || written && silence != 600*time.Millisecond {
			t.Errorf("%s: silence %v, %t", s.Successor, silence, written)
		}
	}
	scene := splitScene(t) // The successor is slow.
	for _, key := range []string{"13 runs", "14 runs other"} {
		delete(scene, key)
	}
	scene["15 first write"] = wrote(b, mine, 1, 120, 13)
	_, split, _ := plans(t)
	ready := map[string]string{"flotilla.dev/ready": "1"}
	scene["12b"], scene["12c"] = told(t, split, mine, b, 1, 112, 12).notes(ready), told(t, split, other, b, 1, 113, 12).notes(ready)
	report = checkPlan(t, halves, linesOf(scene)...)
	requireKinds(t, report)
	gaps := map[string]time.Duration{mine: 3 * time.Second, other: 4100 * time.Millisecond}
	interruptions := report.Interruptions()
	for _, o := range interruptions {
		if o.Gap() != gaps[o.Successor.String()] {
			t.Errorf("nobody ran it for %v, want %v: %+v", o.Gap(), gaps[o.Successor.String()], o)
		}
	}
	if len(interruptions) != 2 {
		t.Errorf("interruptions: %+v", interruptions)
	}
}

// TestInterruptedForGood has a predecessor without a successor.
func TestInterruptedForGood(t *testing.T) {
	halves, _, _ := plans(t)
	scene := splitScene(t)
	_, other := successor(t)
	for key, l := range scene {
		if l["objectRef"].(map[string]any)["name"] == fleetName+"-"+strings.ReplaceAll(other, "/", "-") {
			delete(scene, key)
		}
	}
	interruptions := checkPlan(t, halves, linesOf(scene)...).Interruptions()
	if len(interruptions) != 2 || !slices.ContainsFunc(interruptions, func(s audit.Succession) bool { return s.Began.IsZero() && s.Predecessor.String() == lower }) {
		t.Errorf("interruptions: %+v", interruptions)
	}
}

// TestSuccessionsOfLeases observes the same split through a watch.
func TestSuccessionsOfLeases(t *testing.T) {
	mine, other := successor(t)
	var sightings []audit.Sighting
	for _, l := range linesOf(splitScene(t)) {
		if l["objectRef"].(map[string]any)["resource"] != "leases" {
			continue
		}
		var lease coordinationv1.Lease
		raw, _ := json.Marshal(l["responseObject"])
		if err := json.Unmarshal(raw, &lease); err != nil {
			t.Fatal(err)
		}
		at, err := time.Parse(time.RFC3339Nano, l["stageTimestamp"].(string))
		if err != nil {
			t.Fatal(err)
		}
		sightings = append(sightings, audit.Sighting{Lease: &lease, At: at})
	}
	gaps := map[string]time.Duration{}
	for _, s := range audit.Successions(fleetName, sightings) {
		gaps[s.Successor.String()] = s.Gap()
		if _, written := s.Silence(); written || s.Predecessor.String() != lower || !s.Planned {
			t.Errorf("succession %+v", s)
		}
	}
	if diff := cmp.Diff(map[string]time.Duration{mine: 100 * time.Millisecond, other: 200 * time.Millisecond}, gaps); diff != "" {
		t.Errorf("gaps (-want +got):\n%s", diff)
	}
	if got := audit.Successions("other", sightings); len(got) > 0 {
		t.Errorf("of another fleet: %+v", got)
	}
}

// TestReadFirstPlan reads the first plan from the plan's Lease, or from the Leases of shards with
// their controllers.
func TestReadFirstPlan(t *testing.T) {
	halves, _, _ := plans(t)
	scene := splitScene(t)
	for _, without := range []string{"", "plan"} {
		if without != "" {
			maps.DeleteFunc(scene, func(key string, _ line) bool { return strings.HasSuffix(key, without) })
			scene["02b"], scene["02c"] = told(t, halves, upper, a, 1, 12, 1.1), told(t, halves, nodes, a, 1, 13, 1.1)
		}
		got, err := audit.ReadPlan(audit.Options{Fleet: fleetName}, reading(logOf(t, linesOf(scene)...)))
		if err != nil {
			t.Fatal(err)
		}
		if got.Digest() != halves.Digest() || got.Generation != 1 {
			t.Errorf("without %q: plan %+v, want %+v", without, got, halves)
		}
	}
}

// TestChangeVerdict prints the verdict about a change.
func TestChangeVerdict(t *testing.T) {
	halves, _, _ := plans(t)
	mine, _ := successor(t)
	scene := splitScene(t)
	scene["10b"] = wrote(b, mine, 1, 60, 8.5)
	verdict := checkPlan(t, halves, linesOf(scene)...).Verdict()
	var text strings.Builder
	if err := verdict.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"2 plans", "passed on by changes of the plan: 2, worst gap 200ms", "overlapping shards 1", lower + " and " + mine} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("text does not have %q:\n%s", want, &text)
		}
	}
	data, err := json.Marshal(verdict)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"plans":2`, `"successions":[{"predecessor":"namespaces/00"`, `"gapSeconds":0.2`, `"other":"` + mine + `"`} {
		if !strings.Contains(string(data), want) {
			t.Errorf("JSON does not have %s:\n%s", want, data)
		}
	}
}
