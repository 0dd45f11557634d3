package cli

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/cobra"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// cluster is an API server with nothing but Leases.
type cluster struct {
	*fake.Clientset
	clock clock.WithTicker
}

func newCluster(l leases) *cluster {
	var objects []runtime.Object
	for _, lease := range l {
		objects = append(objects, lease.DeepCopy())
	}
	return &cluster{Clientset: fake.NewClientset(objects...), clock: clocktesting.NewFakeClock(testNow)}
}

// run runs a command as a shell would, and returns its output.
func (c *cluster) run(t *testing.T, stdin string, args ...string) (out, progress string, err error) {
	t.Helper()
	root := &cobra.Command{Use: "flotilla", SilenceErrors: true, SilenceUsage: true}
	root.AddCommand(Commands(Config{
		Check: acceptAll, Clock: c.clock, Deciding: testDeciding,
		Connect: func(Target) (kubernetes.Interface, error) { return c.Clientset, nil },
	})...)
	var stdout, stderr bytes.Buffer
	root.SetIn(strings.NewReader(stdin))
	root.SetOut(&stdout)
	root.SetErr(&stderr)
	root.SetArgs(args)
	err = root.ExecuteContext(t.Context())
	return stdout.String(), stderr.String(), err
}

func (c *cluster) plan(t *testing.T) (shard.Plan, error) {
	t.Helper()
	lease, err := c.CoordinationV1().Leases(metav1.NamespaceSystem).Get(t.Context(), leaseapi.PlanLease(testFleet), metav1.GetOptions{})
	if err != nil {
		return shard.Plan{}, err
	}
	return leaseapi.PlanOn(lease)
}

func (c *cluster) writes() int {
	n := 0
	for _, action := range c.Actions() {
		if verb := action.GetVerb(); verb != "list" && verb != "get" {
			n++
		}
	}
	return n
}

// conflicts makes the first n updates of Leases fail; before makes the change of the other writer.
func (c *cluster) conflicts(n int, before func()) {
	c.PrependReactor("update", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
		if n--; n < 0 {
			return false, nil, nil
		}
		before()
		return true, nil, apierrors.NewConflict(coordinationv1.Resource("leases"), leaseapi.PlanLease(testFleet), errors.New("the object has been modified"))
	})
}

func document(t *testing.T, plan shard.Plan) string {
	t.Helper()
	text, err := plan.Document()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestShowEditApply follows an operator's steps: the output of show can be edited and applied once.
func TestShowEditApply(t *testing.T) {
	plan := testPlan(t)
	c := newCluster(newLeases(t, plan))
	shown, _, err := c.run(t, "", "plan", "show", "-o", "document")
	if err != nil || shown != document(t, plan) {
		t.Fatalf("shown: %v\n%s", err, shown)
	}
	edited := strings.Replace(shown, `"name":"00",`, `"name":"00","pin":"flotilla-1",`, 1)
	for _, args := range [][]string{{"plan", "diff", "-f", "-"}, {"plan", "apply", "--dry-run", "-f", "-"}} {
		out, _, err := c.run(t, edited, args...)
		if err != nil || !strings.Contains(out, "Generation 3 -> 4") || !strings.Contains(out, "namespaces/00") || c.writes() > 0 {
			t.Errorf("%q: %v, %d writes\n%s", args, err, c.writes(), out)
		}
	}
	file := filepath.Join(t.TempDir(), "plan.json")
	if err := os.WriteFile(file, []byte(edited), 0o644); err != nil {
		t.Fatal(err)
	}
	out, _, err := c.run(t, "", "plan", "apply", "-f", file)
	if err != nil || !strings.Contains(out, "Plan generation 4 is written") || c.writes() != 1 {
		t.Errorf("apply: %v, %d writes\n%s", err, c.writes(), out)
	}
	if now, err := c.plan(t); err != nil || now.Generation != 4 || now.Rings[0].Shards[0].Pin != "flotilla-1" {
		t.Errorf("the plan is %+v, %v", now, err)
	}
	if _, _, err = c.run(t, "", "plan", "apply", "-f", file); !errors.Is(err, ErrChanged) || c.writes() != 1 {
		t.Errorf("the same document again: %v, %d writes; want an error", err, c.writes())
	}
	shown, _, _ = c.run(t, "", "plan", "show", "-o", "document")
	out, _, err = c.run(t, shown, "plan", "apply", "-f", "-")
	if err != nil || !strings.Contains(out, "Nothing would change") || c.writes() != 1 {
		t.Errorf("nothing edited: %v, %d writes\n%s", err, c.writes(), out)
	}
}

// TestApplyInConflict checks that a renewal in between costs a second try, and that another plan in
// between is not overwritten.
func TestApplyInConflict(t *testing.T) {
	plan := testPlan(t)
	edited := document(t, split(plan))
	t.Run("renewal", func(t *testing.T) {
		c := newCluster(newLeases(t, plan))
		c.conflicts(2, func() {})
		if out, _, err := c.run(t, edited, "plan", "apply", "-f", "-"); err != nil || c.writes() != 3 {
			t.Errorf("%v, %d writes\n%s", err, c.writes(), out)
		}
	})
	t.Run("always", func(t *testing.T) {
		c := newCluster(newLeases(t, plan))
		c.conflicts(1000, func() {})
		_, _, err := c.run(t, edited, "plan", "apply", "-f", "-")
		if !apierrors.IsConflict(err) || !strings.Contains(err.Error(), "nothing is changed") || c.writes() != maxTries {
			t.Errorf("%v, %d writes", err, c.writes())
		}
	})
	t.Run("another plan", func(t *testing.T) {
		c := newCluster(newLeases(t, plan))
		other := plan
		other.Generation = 4
		c.conflicts(1, func() {
			lease, err := leaseapi.WithPlan(testFleet, newLeases(t, plan)[leaseapi.PlanLease(testFleet)], other)
			if err != nil {
				t.Fatal(err)
			}
			if err := c.Tracker().Update(coordinationv1.SchemeGroupVersion.WithResource("leases"), lease, metav1.NamespaceSystem); err != nil {
				t.Fatal(err)
			}
		})
		_, _, err := c.run(t, edited, "plan", "apply", "-f", "-")
		if !errors.Is(err, ErrChanged) || !strings.Contains(err.Error(), "generation 3") || !strings.Contains(err.Error(), "generation 4") || c.writes() != 1 {
			t.Errorf("%v, %d writes", err, c.writes())
		}
		if now, err := c.plan(t); err != nil || now.Digest() != other.Digest() {
			t.Errorf("the other plan was overwritten: %+v, %v", now, err)
		}
	})
	t.Run("no room", func(t *testing.T) {
		for _, args := range []string{"plan apply -f -", "plan apply -f - --dry-run"} {
			l := newLeases(t, plan)
			l[leaseapi.PlanLease(testFleet)].Annotations["example.com/note"] = strings.Repeat("x", 250<<10)
			c := newCluster(l)
			_, _, err := c.run(t, edited, strings.Fields(args)...)
			if err == nil || !strings.Contains(err.Error(), "remove what is not the fleet's") || strings.Contains(err.Error(), "not known") || c.writes() > 0 {
				t.Errorf("%s: %v, %d writes", args, err, c.writes())
			}
		}
	})
	t.Run("first plan", func(t *testing.T) {
		c := newCluster(leases{})
		c.PrependReactor("create", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
			lease := newLeases(t, plan)[leaseapi.PlanLease(testFleet)]
			_ = c.Tracker().Add(lease)
			return false, nil, nil // So it exists.
		})
		if out, _, err := c.run(t, edited, "plan", "apply", "-f", "-"); err != nil || c.writes() != 2 {
			t.Errorf("%v, %d writes\n%s", err, c.writes(), out)
		}
	})
}

func TestRebalanceWrites(t *testing.T) {
	plan := testPlan(t)
	l := newLeases(t, plan)
	l.census(plan, 4000, 100, 100, 100, 900)
	c := newCluster(l)
	if out, _, err := c.run(t, "", "plan", "rebalance", "--dry-run"); err != nil || !strings.Contains(out, "Dry run") || c.writes() > 0 {
		t.Errorf("dry run: %v, %d writes\n%s", err, c.writes(), out)
	}
	if out, _, err := c.run(t, "", "plan", "rebalance"); err != nil || !strings.Contains(out, "Plan generation 4 is written") || c.writes() != 1 {
		t.Errorf("%v, %d writes\n%s", err, c.writes(), out)
	}
	if now, err := c.plan(t); err != nil || now.Generation != 4 {
		t.Errorf("the plan is %+v, %v", now, err)
	}
	delete(l.at("00").Annotations, leaseapi.CensusAnnotation)
	c = newCluster(l)
	if _, _, err := c.run(t, "", "plan", "rebalance"); !errors.Is(err, errNotCounted) || !strings.Contains(err.Error(), "missing from namespaces/00") || c.writes() > 0 {
		t.Errorf("without a census: %v, %d writes", err, c.writes())
	}
}

// TestWaitsForWhatMoves: with --wait, a pin waits until the shard is there. Aborting a canary warns
// where nobody can take it over.
func TestWaitsForWhatMoves(t *testing.T) {
	run := func(t *testing.T, l leases, args string) (string, error) {
		l.age(time.Since(testNow))
		c := newCluster(l)
		c.clock = clock.RealClock{} // virtual
		defer c.beat(t)()
		out, progress, err := c.run(t, "", strings.Fields(args)...)
		return out + progress, err
	}
	synctest.Test(t, func(t *testing.T) {
		var waited []string
		for _, member := range []string{"flotilla-0", "flotilla-1"} {
			if _, err := run(t, newLeases(t, testPlan(t)), "plan pin cluster/nodes "+member+" --wait=5s"); err != nil {
				waited = append(waited, err.Error())
			}
		}
		if len(waited) != 1 || !strings.Contains(waited[0], "1 not at the member that they are pinned to (cluster/nodes)") {
			t.Errorf("errors %q, want one, of the member that does not hold the shard", waited)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		for _, wait := range []string{"", " --wait"} {
			l := newLeases(t, testPlan(t))
			l.versions("v1.38.0", "v1.38.0")
			edited := testPlan(t)
			edited.Canary = &shard.Canary{Version: "v1.38.0", Ranges: []shard.Range{edited.Rings[0].Shards[0].Range}, Since: "2027-01-02T00:00:00Z"}
			lease, err := leaseapi.WithPlan(testFleet, l[leaseapi.PlanLease(testFleet)], edited)
			if err != nil {
				t.Fatal(err)
			}
			l[lease.Name] = lease
			const want = "no live member that is not drained has another version than v1.38.0"
			said, err := run(t, l, "canary abort"+wait)
			if err != nil || !strings.Contains(said, want) {
				t.Errorf("canary abort%s: %v\n%s, want %q", wait, err, said, want)
			}
		}
	})
}

// TestApplyWaits, in virtual time, has members that adopt the plan after a while.
func TestApplyWaits(t *testing.T) {
	plan := testPlan(t)
	next, err := plan.Successor(split(plan))
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name string
		wait string
		// after is when change is made to the members.
		after  time.Duration
		change func(leases)
		want   []string // Parts of the error; none if apply must succeed.
	}{
		{"in time", "--wait", 30 * time.Second, func(l leases) {
			for i, name := range []string{"g4-00", "g4-01"} {
				l.shard(next, shard.ID{Ring: "namespaces", Name: name}, "flotilla-0", int32(i+1))
			}
			*l.at("00").Spec.HolderIdentity = ""
		}, nil},
		{"too late", "--wait=20s", 30 * time.Second, func(leases) {}, []string{"waited 20s", "generation 4", "2 older (namespaces/g4-00, namespaces/g4-01)", "flotilla-namespaces-00"}},
		{"refused", "--wait", 5 * time.Second, func(l leases) {
			l["flotilla-member-flotilla-1"].Annotations[leaseapi.RefusedAnnotation] = "4: rings[0]: unknown"
		}, []string{"flotilla-1 refuses it", "4: rings[0]: unknown"}},
		{"replaced", "--wait", 5 * time.Second, func(l leases) {
			other := plan
			other.Generation = 5
			lease, _ := leaseapi.WithPlan(testFleet, l[leaseapi.PlanLease(testFleet)], other)
			l[leaseapi.PlanLease(testFleet)] = lease
		}, []string{"generation 4", "generation 5 has taken its place"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLeases(t, plan)
				l.age(time.Since(testNow))
				c := newCluster(l)
				c.clock = clock.RealClock{} // virtual
				defer time.AfterFunc(test.after+waitInterval/2, func() { c.change(t, test.change) }).Stop()
				defer c.beat(t)()
				out, progress, err := c.run(t, document(t, split(plan)), "plan", "apply", "-f", "-", test.wait)
				if len(test.want) == 0 && (err != nil || !strings.Contains(out, "Every shard of it runs") || !strings.Contains(progress, "Waiting: shards: 2 older")) {
					t.Errorf("%v\n%s%s", err, out, progress)
				}
				for _, want := range test.want {
					if err == nil || !strings.Contains(err.Error(), want) {
						t.Errorf("error %v, want %q in it", err, want)
					}
				}
			})
		})
	}
}
