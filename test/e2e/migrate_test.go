package e2e

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/flotilla-kube/flotilla/pkg/audit"
	"github.com/flotilla-kube/flotilla/test/calibrate"
	"github.com/flotilla-kube/flotilla/test/harness"
)

var (
	migrations   = flag.Int("migrations", 1, "how many times TestStockToFleetAndBack moves from stock to the fleet and back")
	defaultRetry = flag.Bool("default-retry", false, "leave the stock replicas of TestStockToFleetAndBack and TestStopAndStart their default --leader-elect-retry-period")
)

const (
	// stockLease is the stock leader's Lease.
	stockLease = "kube-controller-manager"
	// releaseOnExit makes the stock controller manager release its Lease.
	releaseOnExit = "--feature-gates=ControllerManagerReleaseLeaderElectionLockOnExit=true"
	// mostFree limits how long a planned move may leave the leader lock without a holder, on any
	// machine: two thirds of the default lease duration.
	mostFree = 2 * leaseDuration / 3
)

// TestStockToFleetAndBack moves a cluster under load from stock to a fleet that waits for the stock
// leader's Lease, and back. At first the stock replica does not release its Lease when it exits, as
// is the default: the fleet waits until the Lease has expired, unless the operator clears it after
// the exit. Then two replicas alternate. The audit log shows whether anybody wrote without holding
// the Lease, and how long nobody wrote.
func TestStockToFleetAndBack(t *testing.T) {
	t.Parallel()
	m := startMigration(t, stockLease)
	timings := steady()
	m.stockFlags = slices.Clone(timings)
	if !*defaultRetry {
		m.stockFlags = append(m.stockFlags, "--leader-elect-retry-period=250ms")
	}
	m.startStock(t)
	m.works(t)
	m.load(t)
	m.startFleet(t, 2, timings...)
	m.saysThatItWaits(t)
	m.stopStockLeader(t)
	m.fleetRuns(t)
	m.wayOut(t)

	m.startFleet(t, 2, timings...)
	leader := m.stock[0]
	m.stock = nil
	leader.MustStop(t)
	m.clear(t)
	m.fleetRuns(t)
	m.works(t)

	m.stockFlags = append(m.stockFlags, releaseOnExit)
	m.startStock(t)
	m.wayOut(t)
	lost := 0
	var machine measured
	for range *migrations {
		machine.again(t, m.client)
		m.startFleet(t, 2, timings...)
		lost += m.wayIn(t)
		m.wayOut(t)
	}
	if lost > 0 {
		t.Logf("%d times another stock replica was quicker than the fleet and was stopped as well", lost)
	}
	moves := m.judge(t, stockLease, everyWrite).moves()
	for _, v := range moves {
		t.Log(v)
	}
	if len(moves) < 4 || moves[0].released || moves[0].early || !moves[1].released || !moves[2].released {
		t.Fatal("want an expired Lease first, then two that were cleared")
	}
	m.requireMoves(t, moves[3:], machine)
}

// saysThatItWaits checks 'flotilla status' for a fleet that waits for the leader lock: it names the
// leader and finds nothing wrong.
func (m *migration) saysThatItWaits(t *testing.T) {
	t.Helper()
	o := newOperator(t, m.plane, harness.Fleet)
	harness.Eventually(t, harness.Patience, "status says that the fleet waits", func(ctx context.Context) error {
		out, err := o.try(ctx, "status") // fails unless the exit status is 0
		if err == nil && (!strings.Contains(out, "Note: WaitingForLeaderLock: ") || !strings.Contains(out, "locked-out") || strings.Contains(out, "unowned")) {
			err = errors.New("status does not say so")
		}
		if err != nil {
			return fmt.Errorf("%w\n%s", err, out)
		}
		return nil
	})
}

// wayOut starts a stock replica and stops the fleet, and waits until stock leads and works.
func (m *migration) wayOut(t *testing.T) {
	t.Helper()
	m.startStock(t)
	m.works(t)
	m.stopFleet(t)
	harness.Eventually(t, harness.Patience, "a stock replica leads", m.stockLeads)
	m.works(t)
}

// steady returns flags for a lease duration that outlasts the stalls of a busy machine, or none,
// for the default, with -strict.
func steady() []string {
	if *strict {
		return nil
	}
	return []string{"--leader-elect-lease-duration=" + (2 * leaseDuration).String(), "--leader-elect-renew-deadline=24s"}
}

// requireMoves prints how long the leader lock was free in each planned move, and requires that
// this was short. The moves are one to stock, and then the given number to the fleet and back. With
// -strict they must be as promised.
func (m *migration) requireMoves(t *testing.T, moves []move, machine measured) {
	t.Helper()
	rounds := *migrations
	in, out := []move{}, []move{}
	for _, v := range moves {
		promised := calibrate.LeaderLockToFleet
		switch {
		case v.to == harness.Fleet && v.from != harness.Fleet:
			in = append(in, v)
		case v.from == harness.Fleet && v.to != harness.Fleet:
			promised = calibrate.LeaderLockToStock
			out = append(out, v)
			if *defaultRetry {
				continue // A stock replica checks every 2 to 4.4 s.
			}
		default:
			continue
		}
		if !v.released {
			t.Errorf("%s: the Lease was not released", v)
		}
		if v.lease > mostFree {
			t.Errorf("%s: the Lease was free for more than %v", v, mostFree)
		}
		machine.require(t, "the leader lock was free", v.lease, promised, calibrate.TakeoverSteps)
		machine.require(t, "nobody wrote", v.writes, calibrate.NobodyWrites, calibrate.StartSteps)
	}
	if len(in) != rounds || len(out) != rounds+1 {
		t.Errorf("%d moves to the fleet and %d back, want %d and %d", len(in), len(out), rounds, rounds+1)
	}
	t.Logf("stock -> fleet: %s", summary(in))
	t.Logf("fleet -> stock: %s", summary(out))
}

func summary(moves []move) string {
	var parts []string
	for _, column := range []struct {
		name string
		of   func(move) time.Duration
	}{
		{"Lease free", func(m move) time.Duration { return m.lease }},
		{"first write after", func(m move) time.Duration { return m.after }},
		{"writes apart", func(m move) time.Duration { return m.writes }},
	} {
		var all []time.Duration
		for _, m := range moves {
			all = append(all, column.of(m).Round(time.Millisecond))
		}
		slices.Sort(all)
		if len(all) > 0 {
			parts = append(parts, fmt.Sprintf("%s p50 %v, max %v", column.name, audit.Percentile(all, 50), all[len(all)-1]))
		}
	}
	return fmt.Sprintf("%d moves; %s", len(moves), strings.Join(parts, "; "))
}

// clear removes the holder from the leader lock's Lease, as an operator may once that process has
// ended.
func (m *migration) clear(t *testing.T) {
	t.Helper()
	m.hold(t, m.lease, `{"spec":{"holderIdentity":""}}`)
}

// hold patches a Lease.
func (m *migration) hold(t *testing.T, lease, patch string) {
	t.Helper()
	leases := m.client.CoordinationV1().Leases(metav1.NamespaceSystem)
	if _, err := leases.Patch(t.Context(), lease, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

// TestLeaderLockPerController gives only the job controller to a fleet and takes it back. Two stock
// replicas run everything else under their usual Lease, and two run the job controller under its
// own. Then both sides get leader migrations.
func TestLeaderLockPerController(t *testing.T) {
	t.Parallel()
	m := startMigration(t, "kcm-jobs", releaseOnExit, "--leader-elect-retry-period=250ms")
	common := m.stockFlags
	jobsAlone := append([]string{"--controllers=job-controller", "--leader-lock=kcm-jobs=job-controller"}, quick...)
	m.stockFlags = append(slices.Clone(common), "--controllers=*,-job-controller")
	m.startStock(t)
	m.startStock(t)
	main := m.stock
	m.stock, m.stockFlags = nil, append(slices.Clone(common), "--controllers=job-controller", "--leader-elect-resource-name=kcm-jobs")
	m.startStock(t)
	m.startStock(t)
	m.works(t)
	stopLoad := m.load(t)
	m.startFleet(t, 2, jobsAlone...)
	m.wayIn(t)
	m.wayOut(t)
	stopLoad()
	for _, replica := range main {
		if err := replica.Running(); err != nil {
			t.Error(err)
		}
	}
	m.requireJobsAlone(t)
	m.stopStock(t, main...)
	m.stopStock(t, m.stock...)

	m.stock, m.stockFlags = nil, common
	m.startFleet(t, 1, jobsAlone...)
	m.fleetRuns(t)
	m.stockMigrates(t)
	m.fleetMigrates(t)
}

// stopStock stops replicas, which exit with status 1 if they have led.
func (m *migration) stopStock(t *testing.T, replicas ...*harness.Manager) {
	t.Helper()
	for _, replica := range replicas {
		replica.MustStop(t)
	}
}

// requireJobsAlone checks in the audit log that the fleet ran only the job controller, and only
// while it held the leader lock.
func (m *migration) requireJobsAlone(t *testing.T) {
	t.Helper()
	jobs := func(e *harness.Event) bool {
		return e.User.Username == "system:serviceaccount:kube-system:job-controller"
	}
	log := m.judge(t, m.lease, jobs)
	for _, v := range log.moves() {
		t.Log(v)
	}
	if !slices.ContainsFunc(log.writes, func(w lockWrite) bool { return w.process == harness.Fleet }) {
		t.Error("the fleet's job controller has written nothing")
	}
	rest := m.judge(t, stockLease, func(e *harness.Event) bool { return !jobs(e) })
	if len(rest.terms) != 1 {
		t.Errorf("the stock leader of everything else changed: %d terms", len(rest.terms))
	}
	for _, w := range lockLogOf(t, m.plane, m.lease, func(e *harness.Event) bool { return !jobs(e) }).writes {
		if w.process == harness.Fleet {
			t.Errorf("the fleet must run only the job controller: %v", w.Event)
		}
	}
}

// stockMigrates checks a claim of docs/migration.md: a stock controller manager of this version
// with a leader migration works while the fleet holds the migration's Lease, and exits as soon as
// it gets the Lease. If this fails, fix that page.
func (m *migration) stockMigrates(t *testing.T) {
	t.Helper()
	m.stockFlags = append(m.stockFlags, migrateJobs(t)...)
	m.startStock(t)
	m.works(t)
	m.stopFleet(t)
	if status := m.stock[0].MustExit(t, harness.Patience); status == 0 {
		t.Error("the stock controller manager ended with status 0")
	}
	if !harness.HasLine(m.stock[0].MustLog(t), "command failed", `informer name \"kube-controller-manager\" is already registered`) {
		t.Error("the stock controller manager ended for another reason")
	}
	m.stock = nil
	m.hold(t, stockLease, `{"spec":{"holderIdentity":""}}`) // not released
}

// migrateJobs returns the flags of a leader migration: whoever has the Lease kcm-jobs runs the job
// controller. more are further lines of its controllerLeaders.
func migrateJobs(t *testing.T, more ...string) []string {
	t.Helper()
	text := `apiVersion: controllermanager.config.k8s.io/v1
kind: LeaderMigrationConfiguration
leaderName: kcm-jobs
controllerLeaders:
- {name: job-controller, component: "*"}
` + strings.Join(more, "\n")
	file := filepath.Join(t.TempDir(), "leader-migration.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return []string{"--enable-leader-migration", "--leader-migration-config=" + file}
}

// fleetMigrates gives a fleet a leader migration: the fleet waits for the Lease, and does not run
// controllers that another component has.
func (m *migration) fleetMigrates(t *testing.T) {
	t.Helper()
	m.hold(t, m.lease, `{"spec":{"holderIdentity":"cloud-controller-manager-0","leaseDurationSeconds":600}}`)
	m.startFleet(t, 1, append(migrateJobs(t, "- {name: cronjob-controller, component: cloud-controller-manager}\n"), quick...)...)
	m.fleetWaits(t)
	m.clear(t)
	m.fleetRuns(t)
	m.works(t)
	_, body, err := m.members[0].Get(t.Context(), "/healthz?verbose")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(body, "job-controller") || strings.Contains(body, "cronjob-controller") {
		t.Errorf("want a health check of the job controller, and none of the cronjob controller, which another component runs:\n%s", body)
	}
	m.stopFleet(t)
	if holder, err := m.holder(t.Context()); err != nil || holder != "" {
		t.Errorf("the fleet has ended, and %s is held by %q: %v", m.lease, holder, err)
	}
}
