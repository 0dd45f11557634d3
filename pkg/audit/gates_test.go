package audit_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/flotilla-kube/flotilla/pkg/audit"
)

const (
	gateName = "kube-controller-manager"
	gatekept = fleetName + "_fleet"
	stock    = "cp-1_0000"

	stockAgent = "kube-controller-manager/v1.37.1 (linux/amd64) kubernetes/0123456"
)

// gate is a write of the stock controller manager's Lease, by anybody.
func gate(holder string, version int, second float64) line {
	l := lease("x/y", holder, 1, version, second)
	if holder != gatekept {
		l = l.with("userAgent", stockAgent+"/leader-election")
	}
	l["objectRef"] = map[string]any{"apiGroup": "coordination.k8s.io", "resource": "leases", "namespace": "kube-system", "name": gateName}
	return l
}

// gone is the gate's deletion, whose answer has no version.
func gone(second float64) line {
	return gate("", 0, second).with("verb", "delete").with("responseObject", map[string]any{"kind": "Status"})
}

// waits is the Lease of the member of an incarnation, which names its gates.
func waits(incarnation, gates string) line {
	l := lease("member/flotilla-0", incarnation, 1, 5, 0)
	l["responseObject"].(map[string]any)["metadata"] = map[string]any{
		"name": fmt.Sprintf("%s-member-flotilla-0", fleetName), "resourceVersion": "5", "annotations": map[string]any{"flotilla.dev/gates": gates},
	}
	return l
}

// TestGate has a hold a shard from version 10 on, at second 10, and a write at a moment.
func TestGate(t *testing.T) {
	held := []line{gate(gatekept, 6, 1), gate(gatekept, 30, 12)}
	taken := append(slices.Clone(held), gate(stock, 40, 20))
	deleted := append(slices.Clone(held), gone(20), gate(gatekept, 40, 21).with("verb", "create"))
	for name, test := range map[string]struct {
		gates string // that the member waits for
		log   []line
		at    line
		want  []audit.Kind
	}{
		"held":                             {gates: gateName, log: held, at: write(a, lower, 1, low, 35, 13)},
		"held, no version":                 {gates: gateName, log: held, at: write(a, lower, 1, low, 0, 13)},
		"changed nothing":                  {gates: gateName, log: []line{gate(gatekept, 30, 12)}, at: write(a, lower, 1, low, 20, 13)},
		"not held yet":                     {gates: gateName, log: []line{gate(gatekept, 30, 14)}, at: write(a, lower, 1, low, 20, 13), want: []audit.Kind{audit.NotGated}},
		"not held yet, no version":         {gates: gateName, log: []line{gate(gatekept, 30, 14)}, at: write(a, lower, 1, low, 0, 13), want: []audit.Kind{audit.NotGated}},
		"another holds it":                 {gates: gateName, log: []line{gate(stock, 6, 1)}, at: write(a, lower, 1, low, 35, 13), want: []audit.Kind{audit.NotGated}},
		"nobody has ever had it":           {gates: gateName, at: write(a, lower, 1, low, 35, 13), want: []audit.Kind{audit.NotGated}},
		"no gates":                         {log: []line{gate(stock, 6, 1)}, at: write(a, lower, 1, low, 35, 13)},
		"one of two":                       {gates: gateName + ",other", log: held, at: write(a, lower, 1, low, 35, 13), want: []audit.Kind{audit.NotGated}},
		"before it was taken":              {gates: gateName, log: taken, at: write(a, lower, 1, low, 35, 19)},
		"after it was taken":               {gates: gateName, log: taken, at: write(a, lower, 1, low, 45, 21), want: []audit.Kind{audit.NotGated}},
		"after it was taken, no version":   {gates: gateName, log: taken, at: write(a, lower, 1, low, 0, 21), want: []audit.Kind{audit.NotGated}},
		"on the wire when it was taken":    {gates: gateName, log: taken, at: write(a, lower, 1, low, 45, 20.001)},
		"refused after it was taken":       {gates: gateName, log: taken, at: write(a, lower, 1, low, 0, 21).code(403)},
		"an old version after it was lost": {gates: gateName, log: append(slices.Clone(taken), does("update", by1, "apps", "replicasets", set, 35, 13)), at: does("update", by1, "apps", "replicasets", set, 35, 21), want: []audit.Kind{audit.NotGated}},
		"while it is deleted":              {gates: gateName, log: deleted, at: write(a, lower, 1, low, 35, 20.5), want: []audit.Kind{audit.NotGated}},
		"after it was written again":       {gates: gateName, log: deleted, at: write(a, lower, 1, low, 45, 22)},
		"deleted for good":                 {gates: gateName, log: append(slices.Clone(held), gone(20)), at: write(a, lower, 1, low, 35, 21), want: []audit.Kind{audit.NotGated}},
		"the write failed, and took effect": {gates: gateName, at: write(a, lower, 1, low, 25, 11), log: []line{
			gate(stock, 6, 1), gate("", 7, 2), asking(gate(gatekept, 0, 10).code(500), 7), asking(gate(gatekept, 30, 12), 20)}},
		"taken early":               {gates: gateName, log: []line{gate(stock, 4, 1), gate(gatekept, 6, 6.9)}, at: write(a, lower, 1, low, 35, 13), want: []audit.Kind{audit.TakenEarly}},
		"taken after it":            {gates: gateName, log: []line{gate(stock, 4, 1), gate(gatekept, 6, 7.1)}, at: write(a, lower, 1, low, 35, 13)},
		"released before":           {gates: gateName, log: []line{gate(stock, 4, 1), gate("", 5, 2), gate(gatekept, 6, 2.1)}, at: write(a, lower, 1, low, 35, 13)},
		"held elsewhere by another": {gates: gateName, log: append(slices.Clone(held), elsewhere(gate(stock, 32, 12.5))), at: write(a, lower, 1, low, 35, 13)},
		"held elsewhere":            {gates: gateName, log: []line{elsewhere(gate(gatekept, 6, 1))}, at: write(a, lower, 1, low, 35, 13), want: []audit.Kind{audit.NotGated, audit.Unfenced}},
	} {
		t.Run(name, func(t *testing.T) {
			// First in the log: the order must not matter.
			lines := append([]line{test.at, waits(a, test.gates), lease(lower, a, 1, 10, 10), lease(lower, a, 1, 50, 15)}, test.log...)
			requireKinds(t, check(t, lines...), test.want...)
		})
	}
}

// asking is a write of the gate with its request, made on a version.
func asking(l line, based int) line {
	metadata := map[string]any{"name": gateName, "resourceVersion": fmt.Sprint(based)}
	spec := map[string]any{"holderIdentity": gatekept, "leaseTransitions": 1, "leaseDurationSeconds": leaseTime, "renewTime": fmt.Sprintf("2026-07-01T12:00:%02d.000000Z", based)}
	return l.with("requestObject", map[string]any{"kind": "Lease", "metadata": metadata, "spec": spec})
}

// elsewhere is the same Lease in another namespace.
func elsewhere(l line) line {
	return l.with("objectRef", map[string]any{"apiGroup": "coordination.k8s.io", "resource": "leases", "namespace": "other", "name": gateName})
}

// TestGateInFlight lists what was on the wire when the gate was taken.
func TestGateInFlight(t *testing.T) {
	report := check(t, waits(a, gateName), gate(gatekept, 6, 1), lease(lower, a, 1, 10, 10), write(a, lower, 1, low, 35, 13),
		gate(stock, 40, 20), write(a, lower, 1, low, 45, 20.5).arrived(19.9), lease(lower, a, 1, 50, 15))
	requireKinds(t, report)
	if len(report.InFlight) != 1 || report.InFlight[0].Ended != 40 || report.Gated != 2 {
		t.Errorf("in flight %+v, %d gated, want one when version 40 ended the hold, and 2", report.InFlight, report.Gated)
	}
}
