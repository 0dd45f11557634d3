package e2e

import (
	"flag"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/flotilla-kube/flotilla/pkg/audit"
	"github.com/flotilla-kube/flotilla/pkg/controllers/catalogue"
	"github.com/flotilla-kube/flotilla/pkg/shard"
	"github.com/flotilla-kube/flotilla/test/controlplane"
	"github.com/flotilla-kube/flotilla/test/harness"
)

var plantedLive = flag.Bool("planted", false, "build a binary with the planted bugs and require that the judge finds three of them, which takes minutes")

// TestPlantedBugsAreConvicted runs fleets of a binary with planted bugs on a control plane, one bug
// at a time. The judge of the audit log must find what each bug does, perhaps with what follows from
// it, and nothing else: docs/design/planted.md.
func TestPlantedBugsAreConvicted(t *testing.T) {
	if !*plantedLive {
		t.Skip("left out: takes minutes, make long RUN=planted-live")
	}
	binary := plantedBinary(t)
	for _, tc := range []struct {
		bug  string
		do   func(*testing.T, *fleetRun)
		want []audit.Kind // the first one, and perhaps the others
	}{
		{"term_kept", func(t *testing.T, f *fleetRun) { f.stop(t, "two"); f.allSettled(t) }, []audit.Kind{audit.TermReused}},
		{"expiry_early", func(t *testing.T, f *fleetRun) { f.suspended(t, "two", 8*time.Second) }, []audit.Kind{audit.EndedEarly, audit.Overlapping}},
		{"range_off_by_one", func(t *testing.T, f *fleetRun) { f.cutAtANamespace(t) }, []audit.Kind{
			audit.WrongRange, audit.DuplicatePod, audit.DuplicateReplicaSet, audit.DuplicateJob, audit.WantedPodDeleted,
		}},
	} {
		t.Run(tc.bug, func(t *testing.T) {
			t.Setenv("FLOTILLA_PLANT", tc.bug)
			plan, err := catalogue.DefaultPlan(defaultShards)
			if err != nil {
				t.Fatal(err)
			}
			f := newFleetRun(t, harness.StartPlane(t, controlplane.Options{AuditObjects: true}), plan)
			for _, name := range []string{"one", "two"} {
				// With upstream's limits, a member that has most of the namespaces is too slow for the
				// burst: its updates of status conflict for ever.
				spec := harness.Member(name, append([]string{"--rebalance-delay=1s", "--kube-api-qps=100", "--kube-api-burst=200"}, fencedTimings...)...)
				spec.Binary = binary
				f.members[name] = harness.Run(t, f.plane, spec)
			}
			f.allSettled(t)
			f.createWork(t)
			stop := f.burst(t)
			defer stop()
			tc.do(t, f)
			stop()
			f.convicted(t, tc.want)
		})
	}
}

// fencedTimings match a Lease of fencedLeaseDuration.
var fencedTimings = []string{
	"--leader-elect-lease-duration=" + fencedLeaseDuration.String(), "--leader-elect-renew-deadline=7s", "--leader-elect-retry-period=1s",
}

func (f *fleetRun) allSettled(t *testing.T) {
	t.Helper()
	harness.Eventually(t, fencedLeaseDuration+harness.Patience, "every shard held", f.allHeld)
}

// suspended suspends a member for some time in the middle of its work, and then stops it.
func (f *fleetRun) suspended(t *testing.T, name string, d time.Duration) {
	t.Helper()
	member := f.members[name]
	delete(f.members, name)
	if err := member.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = member.Signal(syscall.SIGCONT) })
	select {
	case <-time.After(d):
	case <-t.Context().Done():
	}
	f.allSettled(t)
	if err := member.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	member.MustExit(t, grace)
}

// cutAtANamespace splits a range exactly at the hash of a namespace, which then belongs to the
// upper part alone, and waits until work has continued there for some time.
func (f *fleetRun) cutAtANamespace(t *testing.T) {
	t.Helper()
	o := newOperator(t, f.plane, f.name)
	file := o.splitAt(t, namespaces[0], func(shard.Shard) uint64 { return shard.Hash(namespaces[0]) })
	o.run(t, "plan", "apply", "-f", file, "--wait")
	for range 20 {
		f.caughtUp(t)
	}
}

// convicted requires that the judge finds the first kind, and none but these.
func (f *fleetRun) convicted(t *testing.T, want []audit.Kind) {
	t.Helper()
	report := harness.Report(t, f.plane, judging(&f.plan))
	found := false
	for _, v := range report.Violations {
		found = found || v.Kind == want[0]
		if !slices.Contains(want, v.Kind) {
			t.Errorf("convicted of something else: %v", v)
		}
	}
	if !found {
		t.Errorf("not convicted of %q: %v", want[0], report.Violations)
	}
	t.Logf("%d violations", len(report.Violations))
}

// plantedBinary builds a member with the planted bugs, which can imitate another version.
func plantedBinary(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), harness.Fleet) // its name begins the User-Agent
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-buildvcs=false", "-tags=planted", "-o", binary, "./cmd/flotilla")
	build.Dir = "../.."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", build, err, out)
	}
	return binary
}
