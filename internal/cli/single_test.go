package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// TestSingleChanges makes one change after the other. Each writes the next generation, and nothing
// if it changes nothing.
func TestSingleChanges(t *testing.T) {
	c := newCluster(newLeases(t, testPlan(t)))
	own := shard.Range{Start: shard.Hash("orders"), End: shard.Hash("orders") + 1}
	for _, test := range []struct {
		args       string
		want       string
		generation int64
		check      func(shard.Plan) bool
	}{
		{"plan pin namespaces/02 flotilla-1 --dry-run", "Dry run: plan generation 4 was not written", 3, func(p shard.Plan) bool { return p.Rings[0].Shards[2].Pin == "" }},
		{"plan pin namespaces/02 flotilla-1", "Plan generation 4 is written", 4, func(p shard.Plan) bool { return p.Rings[0].Shards[2].Pin == "flotilla-1" }},
		{"plan pin namespaces/02 flotilla-1", "Nothing would change", 4, nil},
		{"plan pin cluster/nodes flotilla-0", "Plan generation 5 is written", 5, func(p shard.Plan) bool { return p.Rings[1].Shards[0].Pin == "flotilla-0" }},
		{"plan unpin namespaces/02", "Plan generation 6 is written", 6, func(p shard.Plan) bool {
			return p.Rings[0].Shards[2].Pin == "" && p.Rings[0].Shards[2].Home == "flotilla-1" && p.Rings[1].Shards[0].Pin == "flotilla-0"
		}},
		{"plan isolate orders", "Plan generation 7 is written", 7, func(p shard.Plan) bool {
			s, _ := p.ShardFor("namespaces", "orders")
			return s.Range == own && len(p.Rings[1].Isolate) == 0
		}},
		{"plan isolate orders", "Nothing would change", 7, nil},
		{"plan isolate billing", "Plan generation 8 is written", 8, func(p shard.Plan) bool {
			s, _ := p.ShardFor("namespaces", "orders")
			return s.Range == own && len(p.Rings[0].Isolate) == 2
		}},
		{"plan unisolate orders", "Plan generation 9 is written", 9, func(p shard.Plan) bool {
			return len(p.Rings[0].Isolate) == 1 && p.Rings[0].Isolate[0] == "billing"
		}},
	} {
		out, _, err := c.run(t, "", strings.Fields(test.args)...)
		now, fault := c.plan(t)
		if err != nil || fault != nil || !strings.Contains(out, test.want) || now.Generation != test.generation || test.check != nil && !test.check(now) {
			t.Errorf("%s: %v, %v, the plan is %+v\n%s", test.args, err, fault, now, out)
		}
	}
}

// TestSingleChangesRefused checks that nothing is written, and that the error says what exists.
func TestSingleChangesRefused(t *testing.T) {
	for _, test := range []struct {
		args string
		want []string
	}{
		{"plan pin namespaces/99 flotilla-0", []string{`SHARD "namespaces/99"`, "namespaces/00"}},
		{"plan pin namespaces/00 flotilla-9", []string{`MEMBER "flotilla-9"`, "ring namespaces: flotilla-0, flotilla-1"}},
		{"plan unpin namespaces/00", []string{"SHARD namespaces/00", "not pinned"}},
		{"plan unisolate orders", []string{`NAMESPACE "orders"`, "no ring isolates it"}},
	} {
		c := newCluster(newLeases(t, testPlan(t)))
		_, _, err := c.run(t, "", strings.Fields(test.args)...)
		if err == nil || c.writes() > 0 {
			t.Errorf("%s: %v, %d writes", test.args, err, c.writes())
			continue
		}
		for _, text := range test.want {
			if !strings.Contains(err.Error(), text) {
				t.Errorf("%s: %v: does not say %q", test.args, err, text)
			}
		}
	}
}

// TestSingleChangeInConflict checks that another writer's changes in between are kept.
func TestSingleChangeInConflict(t *testing.T) {
	plan := testPlan(t)
	c := newCluster(newLeases(t, plan))
	other := newCluster(newLeases(t, plan))
	if _, _, err := other.run(t, "", "plan", "isolate", "orders"); err != nil {
		t.Fatal(err)
	}
	theirs, err := other.plan(t)
	if err != nil {
		t.Fatal(err)
	}
	lease, err := leaseapi.WithPlan(testFleet, newLeases(t, plan)[leaseapi.PlanLease(testFleet)], theirs)
	if err != nil {
		t.Fatal(err)
	}
	c.conflicts(1, func() {
		if err := c.Tracker().Update(coordinationv1.SchemeGroupVersion.WithResource("leases"), lease, lease.Namespace); err != nil {
			t.Error(err)
		}
	})
	out, _, err := c.run(t, "", "plan", "pin", "cluster/nodes", "flotilla-1")
	now, fault := c.plan(t)
	if err != nil || fault != nil || now.Generation != 5 || now.Rings[1].Shards[0].Pin != "flotilla-1" || len(now.Rings[0].Isolate) != 1 {
		t.Errorf("%v, %v, the plan is %+v\n%s", err, fault, now, out)
	}
}

// TestEdit runs an editor, which is a command line with arguments.
func TestEdit(t *testing.T) {
	script := filepath.Join(t.TempDir(), "editor with a blank")
	for _, test := range []struct {
		name, edit, editor string
		want               []string // Parts of the output or of the error.
		fails              bool
		generation         int64
	}{
		{name: "saved", edit: `sed -i 's/"name":"00",/"name":"00","pin":"flotilla-1",/' "$2"`, want: []string{"Generation 3 -> 4", "Plan generation 4 is written"}, generation: 4},
		{name: "not changed", edit: "true", want: []string{"Nothing would change"}, generation: 3},
		{name: "not valid", edit: `sed -i 's/"name":"00",/"name":"00","pin":"A b",/' "$2"`, want: []string{"A b", "flotilla plan apply -f "}, fails: true, generation: 3},
		{name: "no plan at all", edit: `echo '{' > "$2"`, want: []string{"flotilla plan apply -f "}, fails: true, generation: 3},
		{name: "given up", edit: "exit 3", want: []string{"editor ", "exit status 3"}, fails: true, generation: 3},
		{name: "no editor", editor: "/nonexistent/editor", want: []string{`editor "/nonexistent/editor"`}, fails: true, generation: 3},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Setenv("TMPDIR", t.TempDir())
			t.Setenv("KUBE_EDITOR", test.editor)
			if test.editor == "" {
				if err := os.WriteFile(script, []byte("#!/bin/sh\n"+test.edit+"\n"), 0o755); err != nil {
					t.Fatal(err)
				}
				t.Setenv("EDITOR", "'"+script+"' --wait")
			}
			c := newCluster(newLeases(t, testPlan(t)))
			out, _, err := c.run(t, "", "plan", "edit")
			said := out
			if err != nil {
				said = err.Error()
			}
			now, fault := c.plan(t)
			if (err != nil) != test.fails || fault != nil || now.Generation != test.generation {
				t.Errorf("%v, %v, generation %d\n%s", err, fault, now.Generation, out)
			}
			for _, text := range test.want {
				if !strings.Contains(said, text) {
					t.Errorf("does not say %q:\n%s", text, said)
				}
			}
			left, err := filepath.Glob(filepath.Join(os.TempDir(), "flotilla-plan-*", "plan.json"))
			if kept := strings.Contains(said, "flotilla plan apply -f "); err != nil || (len(left) == 1) != kept {
				t.Errorf("files left: %v, %v; want one kept for the operator: %t", left, err, kept)
			}
		})
	}
}
