package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/flotilla-kube/flotilla/internal/cli"
	"github.com/flotilla-kube/flotilla/internal/status"
	"github.com/flotilla-kube/flotilla/pkg/controllers/catalogue"
	"github.com/flotilla-kube/flotilla/pkg/shard"
	"github.com/flotilla-kube/flotilla/test/controlplane"
	"github.com/flotilla-kube/flotilla/test/harness"
)

// operator runs commands as a user with a kubeconfig would.
type operator struct {
	binary, kubeconfig, home string
	// fleet is the default --fleet-name of the commands.
	fleet string
}

func newOperator(t *testing.T, plane *controlplane.ControlPlane, fleetName string) *operator {
	t.Helper()
	return &operator{binary: harness.Binary(t, plane, harness.Fleet), kubeconfig: plane.AdminKubeconfig(), home: t.TempDir(), fleet: fleetName}
}

// about adds the fleet's name to a command's arguments.
func (o *operator) about(args []string) []string {
	if slices.ContainsFunc(args, func(arg string) bool { return strings.HasPrefix(arg, "--fleet-name=") }) {
		return args
	}
	return append(slices.Clone(args), "--fleet-name="+o.fleet)
}

// try runs a command and returns its output. The error includes what the command says about its
// failure.
func (o *operator) try(ctx context.Context, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, harness.Patience)
	defer cancel()
	command := exec.CommandContext(ctx, o.binary, o.about(args)...)
	command.Env = []string{"KUBECONFIG=" + o.kubeconfig, "HOME=" + o.home}
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := command.Run(); err != nil {
		return stdout.String(), fmt.Errorf("flotilla %s: %w: %s", strings.Join(args, " "), err, stderr.String())
	}
	return stdout.String(), nil
}

func (o *operator) run(t *testing.T, args ...string) string {
	t.Helper()
	out, err := o.try(t.Context(), args...)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return out
}

// refused requires that a command fails, and that the one line it prints says why.
func (o *operator) refused(t *testing.T, want []string, args ...string) {
	t.Helper()
	out, err := o.try(t.Context(), args...)
	if err == nil {
		t.Fatalf("flotilla %s was not refused:\n%s", strings.Join(args, " "), out)
	}
	for _, text := range append(want, "Error: ") {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("%v: does not say %q", err, text)
		}
	}
}

func (o *operator) explain(t *testing.T, namespace string) cli.Explanation {
	t.Helper()
	var e cli.Explanation
	if err := json.Unmarshal([]byte(o.run(t, "explain", namespace, "-o", "json")), &e); err != nil {
		t.Fatal(err)
	}
	if len(e.Rings) != 1 {
		t.Fatalf("%d rings, want the one that is namespaced: %+v", len(e.Rings), e)
	}
	return e
}

// settled returns a condition: all shards of the plan of that generation run, and nothing else is
// held.
func (o *operator) settled(generation int64) func(context.Context) error {
	return o.settledWith(generation, 2)
}

// settledWith is settled for this many members.
func (o *operator) settledWith(generation int64, members int) func(context.Context) error {
	return func(ctx context.Context) error {
		out, err := o.try(ctx, "plan", "show", "-o", "json")
		if err != nil {
			return err
		}
		var v status.View
		if err := json.Unmarshal([]byte(out), &v); err != nil {
			return err
		}
		if v.Generation != generation || len(v.Older) > 0 || len(v.Members) != members {
			return fmt.Errorf("generation %d, older shards %v, members %v", v.Generation, v.Older, v.Members)
		}
		for _, ring := range v.Rings {
			for _, s := range ring.Shards {
				if s.State != status.StateRunning || len(ring.Members) != members {
					return fmt.Errorf("%s is %s; members of its ring are %v", s.Shard, s.State, ring.Members)
				}
			}
		}
		return nil
	}
}

// TestPlanCommands lets an operator inspect a fleet of two members, split a shard under a
// namespace, and make mistakes. The second member's flags differ from the fleet's: its number of
// shards has no effect, because the fleet has a plan. A third process has a name that is taken.
func TestPlanCommands(t *testing.T) {
	t.Parallel()
	const name = "plans"
	plane := sharedPlane(t)
	client := harness.Client(t, plane)
	o := newOperator(t, plane, name)
	o.refused(t, []string{`fleet "plans" has no plan on Lease plans-plan`}, "plan", "show")
	first := harness.Run(t, plane, memberOf(name, "fleet-0", append([]string{"--shards=4"}, quick...)...))
	harness.Eventually(t, harness.Patience, "the first member is ready", first.Ready)
	other := harness.Run(t, plane, memberOf(name, "fleet-1", append([]string{"--shards=8"}, quick...)...))
	harness.Eventually(t, harness.Patience, "a member with another number of shards is ready", other.Ready)
	harness.Eventually(t, leaseDuration+harness.Patience, "two members run the first plan", o.settled(1))
	plan, err := catalogue.DefaultPlan(4)
	if err != nil {
		t.Fatal(err)
	}
	f := &fleetRun{name: name, plan: plan, client: client, members: map[string]*harness.Manager{"fleet-0": first, "fleet-1": other}}
	harness.Eventually(t, harness.Patience, "both hold shards of the fleet's plan", f.allHeld)
	if got, want := len(f.terms(t)), len(plan.Shards()); got != want {
		t.Errorf("there are Leases of %d shards, want the %d of the fleet's plan", got, want)
	}
	createNamespace(t, client, "web")

	table := o.run(t, "plan", "show")
	for _, want := range []string{"plan generation 1", "fleet-0", "fleet-1", "0xc000000000000000-0x10000000000000000", "running"} {
		if !strings.Contains(table, want) {
			t.Errorf("plan show does not say %q:\n%s", want, table)
		}
	}
	before := o.explain(t, "web")
	file := o.split(t, "web")
	took := o.apply(t, file)
	after := o.explain(t, "web")
	compareSplit(t, before, after)
	t.Logf("the split was done %v after it was applied", took)
	harness.Eventually(t, harness.Patience, "and all runs", o.settled(2))

	o.refused(t, []string{"generation 1", "generation 2", "plan show -o document"}, "plan", "apply", "-f", file)
	o.mistakes(t)
	harness.Eventually(t, harness.Patience, "the census is complete", func(ctx context.Context) error {
		out, err := o.try(ctx, "plan", "rebalance", "--dry-run")
		if err == nil && !strings.Contains(out, "Ring namespaces: ") {
			return fmt.Errorf("%w: %s", harness.ErrGiveUp, out)
		}
		return err
	})
	if out := o.run(t, "plan", "simulate", "--members=3"); !strings.Contains(out, "With 3 members") || !strings.Contains(out, "fleet-2") {
		t.Errorf("plan simulate says:\n%s", out)
	}
	if err := o.settled(2)(t.Context()); err != nil {
		t.Errorf("after the dry run: %v", err)
	}
	o.run(t, "plan", "isolate", "payments", "--wait")
	if ring := o.explain(t, "payments").Rings[0]; ring.State != status.StateRunning || !ring.Isolated {
		t.Errorf("payments is in %+v, want its own running shard", ring)
	}
	for _, member := range []string{"fleet-0", "fleet-1"} {
		o.run(t, "plan", "pin", "cluster/policy", member, "--wait")
		harness.Eventually(t, harness.Patience, "the shard is where it is pinned", func(ctx context.Context) error {
			out, err := o.try(ctx, "plan", "show")
			if err == nil && !strings.Contains(out, member+" (pin)") {
				err = fmt.Errorf("it is not pinned:\n%s", out)
			}
			return err
		})
	}
	secondProcess(t, plane, name, first)
}

// secondProcess starts a process under a member's name. It must wait until the member has ended.
func secondProcess(t *testing.T, plane *controlplane.ControlPlane, fleetName string, first *harness.Manager) {
	t.Helper()
	spec := memberOf(fleetName, "fleet-0", append([]string{"--shards=4"}, quick...)...)
	spec.Name = fleetName + "-second"
	second := harness.Run(t, plane, spec)
	harness.Eventually(t, harness.Patience, "the second process of a name says that it waits", second.Logs("Waiting for the member's Lease", "fleet-0_"))
	harness.Eventually(t, harness.Patience, "and is not ready", second.Answers("/readyz", http.StatusInternalServerError))
	harness.Eventually(t, harness.Patience, "for this reason", second.Says("/readyz/fleet", "its Lease is held by fleet-0_"))
	if status, body, err := first.Get(t.Context(), "/readyz"); err != nil || status != http.StatusOK {
		t.Errorf("the first member is not ready any more: %d %s %v", status, body, err)
	}
	began := time.Now()
	first.MustStop(t)
	harness.Eventually(t, harness.Patience, "the second process becomes the member", second.Ready)
	t.Logf("the second process was ready %v after the first was told to stop", time.Since(began).Round(10*time.Millisecond))
}

func createNamespace(t *testing.T, client kubernetes.Interface, name string) {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := client.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// split writes a file with the plan in force, in which the namespace's shard is cut in the middle.
func (o *operator) split(t *testing.T, namespace string) string {
	t.Helper()
	return o.splitAt(t, namespace, func(s shard.Shard) uint64 { return s.Range.Start + 1<<61 }) // of a quarter of the keyspace
}

// splitAt is split with the cut at a given hash.
func (o *operator) splitAt(t *testing.T, namespace string, at func(shard.Shard) uint64) string {
	t.Helper()
	document := o.run(t, "plan", "show", "-o", "document")
	plan, err := shard.ParsePlan([]byte(document))
	if err != nil {
		t.Fatal(err)
	}
	s, _ := plan.ShardFor("namespaces", namespace)
	low, high := shard.Range{Start: s.Range.Start, End: at(s)}, shard.Range{Start: at(s), End: s.Range.End}
	line := func(r shard.Range) string { return fmt.Sprintf(`{"ring":"namespaces","name":"","range":"%s"}`, r) }
	was := fmt.Sprintf(`{"ring":"namespaces","name":"%s","range":"%s"}`, s.Name, s.Range)
	return o.edited(t, was, line(low)+",\n"+line(high))
}

// apply applies the file, after a dry run, and returns how long it took until everything was done.
func (o *operator) apply(t *testing.T, file string) time.Duration {
	t.Helper()
	for _, args := range [][]string{{"plan", "diff", "-f", file}, {"plan", "apply", "--dry-run", "-f", file}} {
		if out := o.run(t, args...); strings.Count(out, "shard added") != 2 || strings.Count(out, "shard removed") != 1 || strings.Contains(out, "shard moved") {
			t.Errorf("%q says:\n%s", args, out)
		}
	}
	began := time.Now()
	out := o.run(t, "plan", "apply", "-f", file, "--wait")
	took := time.Since(began).Round(10 * time.Millisecond)
	if !strings.Contains(out, "Plan generation 2 is written") || !strings.Contains(out, "Every shard of it runs") {
		t.Errorf("plan apply says:\n%s", out)
	}
	return took
}

// compareSplit requires that the namespace has moved to a part of its former shard.
func compareSplit(t *testing.T, before, after cli.Explanation) {
	t.Helper()
	was, is := before.Rings[0], after.Rings[0]
	if before.Hash != after.Hash || before.Generation != 1 || after.Generation != 2 {
		t.Errorf("hash %s, generation %d before, %s, %d after", before.Hash, before.Generation, after.Hash, after.Generation)
	}
	if was.State != status.StateRunning || is.State != status.StateRunning || was.Holder == "" || is.Holder == "" || len(is.Older) > 0 {
		t.Errorf("%s by %q before, %s by %q after, behind %v", was.State, was.Holder, is.State, is.Holder, is.Older)
	}
	wide, err := shard.ParseRange(was.Range)
	if err != nil {
		t.Fatal(err)
	}
	narrow, err := shard.ParseRange(is.Range)
	if err != nil {
		t.Fatal(err)
	}
	if was.Shard == is.Shard || wide == narrow || !wide.Contains(narrow.Start) || !narrow.ContainsNamespace("web") {
		t.Errorf("in %s, %s before, in %s, %s after", was.Shard, wide, is.Shard, narrow)
	}
}

// mistakes checks that mistakes are answered with what is wrong.
func (o *operator) mistakes(t *testing.T) {
	t.Helper()
	junk := filepath.Join(t.TempDir(), "junk.json")
	if err := os.WriteFile(junk, []byte("{\"generation\": \x1b[2J"), 0o644); err != nil {
		t.Fatal(err)
	}
	unknown := filepath.Join(t.TempDir(), "unknown.json")
	document := o.run(t, "plan", "show", "-o", "document")
	if err := os.WriteFile(unknown, []byte(strings.Replace(document, `"cronjob-controller"`, `"cronjobs"`, 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	o.refused(t, []string{"--filename", junk, "plan show -o document"}, "plan", "apply", "-f", junk)
	o.refused(t, []string{`"cronjobs"`, "flotilla controllers"}, "plan", "apply", "-f", unknown)
	o.refused(t, []string{"--members 0", "from 1 to 256"}, "plan", "simulate")
	o.refused(t, []string{"NAMESPACE", `"No_Name"`}, "explain", "No_Name")
	o.refused(t, []string{`fleet "armada" has no plan on Lease armada-plan`}, "plan", "show", "--fleet-name=armada")
	o.refused(t, []string{"--kubeconfig", "/nowhere/config"}, "plan", "show", "--kubeconfig=/nowhere/config")
	var exit *exec.ExitError
	if _, err := o.try(t.Context(), "plan", "show", "-o", "broad"); !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Errorf("a wrong flag ends the command with %v, want status 1", err)
	}
}
