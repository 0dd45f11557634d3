package cli

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/ptr"

	"github.com/flotilla-kube/flotilla/internal/status"
	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

var rewrite = flag.Bool("rewrite", false, "write the outputs to testdata; review the diff")

// golden compares a view in all output formats with testdata.
func golden[V any](t *testing.T, name string, view V, table func(io.Writer, V)) {
	t.Helper()
	for _, form := range []string{formTable, formJSON, formYAML} {
		var b bytes.Buffer
		if err := print(&b, form, view, table); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join("testdata", name+"."+form)
		if *rewrite {
			if err := os.WriteFile(file, b.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), b.String()); diff != "" {
			t.Errorf("%s differs (-rewrite writes it):\n%s", file, diff)
		}
	}
}

// busyFleet returns a fleet in the middle of a change, with one of everything that can be odd.
func busyFleet(t *testing.T) (shard.Plan, leases) {
	t.Helper()
	plan := testPlan(t)
	namespaced := plan.Rings[0].Shards
	namespaced[1].Home, namespaced[2].Home, namespaced[2].Pin = "flotilla-0", "flotilla-0", "flotilla-9"
	namespaced[3].Weight = 50
	l := newLeases(t, plan)
	l.census(plan, 5, 0, 7)
	l.older("old", "flotilla-1", namespaced[0].Range.String())
	l.at("00").Annotations[leaseapi.RunningAnnotation] = ""
	l.at("00").Annotations[leaseapi.ReadyAnnotation] = "3"
	l.at("01").Annotations[leaseapi.RunningAnnotation] = "1" // Of another term.
	l.at("01").Annotations[leaserecord.NextHolderAnnotation] = "flotilla-0_0123"
	l.at("02").Spec.RenewTime.Time = testNow.Add(-20e9)
	l.at("03").Spec.HolderIdentity = ptr.To("")
	evil := l[leaseapi.ShardLease(testFleet, shard.ID{Ring: "cluster", Name: "nodes"})]
	evil.Spec.HolderIdentity, evil.Spec.LeaseDurationSeconds = ptr.To("evil\t\n\x1b[31m"), ptr.To[int32](-5)
	l[leaserecord.MemberLease(testFleet, "flotilla-1")].Annotations[leaseapi.RefusedAnnotation] = "4: rings: \x1b[2J"
	l.member("flotilla-10", plan).Spec.HolderIdentity = nil
	l[leaseapi.PlanLease(testFleet)].Annotations[leaseapi.RejectedAnnotation] = "junk"
	return plan, l
}

func TestShowOutputs(t *testing.T) {
	_, l := busyFleet(t)
	golden(t, "show-busy", status.Of(l.read()), tablePlan(false))
	golden(t, "show-calm", status.Of(newLeases(t, testPlan(t)).read()), tablePlan(false))
	l[leaseapi.PlanLease(testFleet)].Annotations[leaseapi.DocumentAnnotation] = "{\"\x1b\": 1}"
	golden(t, "show-junk", status.Of(l.read()), tablePlan(false))
	golden(t, "show-nothing", status.Of(leases{}.read()), tablePlan(false))
}

// TestLockedOutOutputs shows a fleet that waits while a stock controller manager leads.
func TestLockedOutOutputs(t *testing.T) {
	plan := testPlan(t)
	l := newLeases(t, plan)
	for _, s := range plan.Shards() {
		l[leaseapi.ShardLease(testFleet, s.ID)].Spec.HolderIdentity = ptr.To("")
	}
	for i := range 2 {
		l[leaserecord.MemberLease(testFleet, fmt.Sprintf("flotilla-%d", i))].Annotations[leaseapi.LeaderLocksAnnotation] = "kube-controller-manager"
	}
	l.hold("kube-controller-manager", "control-plane-1", 7)
	golden(t, "status-locked-out", status.Of(l.read()), tableStatus(false, false))
}

func TestExplainOutputs(t *testing.T) {
	_, l := busyFleet(t)
	for _, namespace := range []string{"orders", "web", "data", "payments"} {
		e, err := Explain(l.read(), namespace)
		if err != nil {
			t.Fatal(err)
		}
		golden(t, "explain-"+namespace, e, tableExplanation)
	}
}

func TestDiffOutputs(t *testing.T) {
	plan := testPlan(t)
	r := newLeases(t, plan).read()
	edited := split(plan)
	edited.Rings[0].Isolate = []string{"orders"}
	e, err := Prepare(r, edited, acceptAll)
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "diff-split", viewEdit(e), tableEdit)
	same, err := Prepare(r, plan, acceptAll)
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "diff-same", viewEdit(same), tableEdit)
}

func TestRebalanceAndSimulateOutputs(t *testing.T) {
	plan := testPlan(t)
	l := newLeases(t, plan)
	l.census(plan, 4000, 100, 100, 100, 900, 100, 100, 100, 0, 0, 0, 0, 100)
	r, err := Rebalance(l.read(), shard.DefaultLimits(), acceptAll)
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "rebalance", r.Rings, tableRebalancing)
	for name, members := range map[string]int{"simulate-1": 1, "simulate-4": 4} {
		s, err := Simulate(l.read(), members, shard.DefaultLimits())
		if err != nil {
			t.Fatal(err)
		}
		golden(t, name, s, tableSimulation)
	}
	l.measure(plan)
	s, err := Simulate(l.read(), 4, shard.DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "simulate-memory", s, tableSimulation)
	golden(t, "status-memory", status.Of(l.read()), tableStatus(false, false))
}
