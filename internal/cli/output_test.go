package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// TestOutputForms runs commands with each of kubectl's output formats.
func TestOutputForms(t *testing.T) {
	for args, want := range map[string]string{
		"plan show -o name": "cluster/nodes\ncluster/volumes\nnamespaces/00\nnamespaces/01\nnamespaces/02\nnamespaces/03\n",
		"top -o name":       "flotilla-0\nflotilla-1\nflotilla-2\n",
		"status -o name":    "flotilla-0\nflotilla-1\nflotilla-2\n",
		"plan show -o jsonpath={.rings[0].shards[?(@.holder==\"flotilla-1\")].shard}": "namespaces/01 namespaces/03",
		"plan show -o jsonpath=.generation":                                           "3",
		"plan show -o jsonpath=generation":                                            "3",
		"top -o jsonpath={range.members[*]}{.name}={.queued};{end}":                   "flotilla-0=17;flotilla-1=;flotilla-2=;",
		"status -o jsonpath={.members[*].objects}":                                    "4300 900",
		"status -o jsonpath={.nothing}":                                               "",
	} {
		_, l := usedFleet(t)
		out, _, err := newCluster(l).run(t, "", strings.Split(args, " ")...)
		if diff := cmp.Diff(want, out); diff != "" || err != nil {
			t.Errorf("%s: %v\n%s", args, err, diff)
		}
	}
}

// TestWideOutputs: the wide format adds columns and changes nothing else.
func TestWideOutputs(t *testing.T) {
	for command, args := range map[string][]string{"top": {"top"}, "status": {"status", "--once"}, "show": {"plan", "show"}} {
		plan, l := usedFleet(t)
		l.knowing("flotilla-0", shard.ScopeNamespaced, plan.Rings[0].Controllers...)
		l[leaserecord.MemberLease(testFleet, "flotilla-2")].Spec.RenewTime.Time = testNow
		out, _, err := newCluster(l).run(t, "", append(args, "-o", "wide")...)
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join("testdata", "wide-"+command+".table")
		if *rewrite {
			if err := os.WriteFile(file, []byte(out), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if diff := cmp.Diff(string(want), out); err != nil || diff != "" {
			t.Errorf("%s differs (-rewrite writes it): %v\n%s", file, err, diff)
		}
	}
}
