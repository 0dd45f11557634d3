package e2e

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/flotilla-kube/flotilla/test/audit"
)

var (
	migrations   = flag.Int("migrations", 2, "how many times TestStockToFleetAndBack goes from stock to the fleet and back")
	strict       = flag.Bool("strict", false, "have TestStockToFleetAndBack require that a planned move leaves the gate free for 2 s at most")
	defaultRetry = flag.Bool("default-retry", false, "leave the stock replicas of TestStockToFleetAndBack their default --leader-elect-retry-period")
)

const (
	// stockLease is the Lease of the stock leader.
	stockLease = "kube-controller-manager"
	// releaseOnExit has the stock controller manager release its Lease.
	releaseOnExit = "--feature-gates=ControllerManagerReleaseLeaderElectionLockOnExit=true"
	// mostFree is how long a planned move may leave the gate without a holder on any machine, strictlyFree on one with time to spare.
	mostFree, strictlyFree = 10 * time.Second, 2 * time.Second
)

// TestStockToFleetAndBack moves a cluster under load from two stock replicas to a fleet that waits for their Lease, and back, again
// and again. The audit log tells whether anybody wrote who did not hold the Lease, and how long nobody did.
func TestStockToFleetAndBack(t *testing.T) {
	m := startMigration(t, stockLease, releaseOnExit)
	lasting, timings := steady()
	m.stockFlags = append(m.stockFlags, timings...)
	if !*defaultRetry {
		m.stockFlags = append(m.stockFlags, "--leader-elect-retry-period=250ms")
	}
	for range 2 {
		m.startStock(t)
	}
	m.works(t)
	m.load(t)
	lost := 0
	for range *migrations {
		m.startFleet(t, 2, timings...)
		m.waitedLongEnough(t, lasting)
		lost += m.wayIn(t)
		m.startStock(t)
		m.works(t)
		m.stopFleet(t)
		eventually(t, patience, "a stock replica leads", m.stockLeads)
		m.works(t)
	}
	if lost > 0 {
		t.Logf("%d times another stock replica was quicker than the fleet, and had to be stopped as well", lost)
	}
	log := m.judge(t, stockLease, everyWrite)
	m.requireMoves(t, log, *migrations)
}

// steady returns a lease duration, and flags for it, that outlast the stalls of a busy machine; the default one with -strict.
func steady() (time.Duration, []string) {
	if *strict {
		return leaseDuration, nil
	}
	return 2 * leaseDuration, []string{"--leader-elect-lease-duration=" + (2 * leaseDuration).String(), "--leader-elect-renew-deadline=24s"}
}

// requireMoves prints how long the gate was free in each planned move, and requires that it was not for long.
func (m *migration) requireMoves(t *testing.T, log *gateLog, rounds int) {
	t.Helper()
	most := mostFree
	if *strict {
		most = strictlyFree
	}
	in, out := []move{}, []move{}
	for _, v := range log.moves() {
		t.Log(v)
		switch {
		case v.to == fleetName && v.from != fleetName:
			in = append(in, v)
		case v.from == fleetName && v.to != fleetName:
			out = append(out, v)
			if *defaultRetry {
				continue // A stock replica looks every 2 to 4.4 s.
			}
		default:
			continue
		}
		if !v.released {
			t.Errorf("%s: the Lease was not released", v)
		}
		if v.lease > most {
			t.Errorf("%s: the Lease was free for more than %v", v, most)
		}
	}
	if len(in) != rounds || len(out) != rounds {
		t.Errorf("%d moves to the fleet and %d back, want %d each", len(in), len(out), rounds)
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

// TestWayInWithoutRelease moves from stock replicas that do not release their Lease when they end, as is the default: the fleet waits
// until it has expired, unless the operator clears it once the process has gone.
func TestWayInWithoutRelease(t *testing.T) {
	t.Parallel()
	m := startMigration(t, stockLease)
	_, timings := steady()
	m.stockFlags = append(slices.Clone(timings), "--leader-elect-retry-period=250ms")
	fleetFlags := timings
	m.startStock(t)
	m.works(t)
	m.load(t)
	m.startFleet(t, 2, fleetFlags...)
	m.stopStockLeader(t)
	m.fleetRuns(t)
	m.startStock(t)
	m.works(t)
	m.stopFleet(t)
	eventually(t, patience, "a stock replica leads", m.stockLeads)
	m.works(t)

	m.startFleet(t, 2, fleetFlags...)
	leader := m.stock[0]
	m.stock = nil
	leader.stop(t)
	m.clear(t)
	m.fleetRuns(t)
	m.works(t)

	log := m.judge(t, stockLease, everyWrite)
	moves := log.moves()
	for _, v := range moves {
		t.Log(v)
	}
	if len(moves) != 3 || moves[0].released || moves[0].early || !moves[1].released || !moves[2].released {
		t.Error("want an expired Lease first, then two that were cleared")
	}
}

// clear takes the holder out of the gate's Lease, as an operator may once that process has ended.
func (m *migration) clear(t *testing.T) {
	t.Helper()
	patch := []byte(`{"spec":{"holderIdentity":""}}`)
	if _, err := m.client.CoordinationV1().Leases(metav1.NamespaceSystem).Patch(t.Context(), m.lease, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

// TestGatePerController gives the job controller alone to a fleet and takes it back. Two stock replicas run everything else, under
// their usual Lease, and two run the job controller, under one of its own.
func TestGatePerController(t *testing.T) {
	t.Parallel()
	m := startMigration(t, "kcm-jobs", releaseOnExit, "--leader-elect-retry-period=250ms")
	common := m.stockFlags
	m.stockFlags = append(slices.Clone(common), "--controllers=*,-job-controller")
	m.startStock(t)
	m.startStock(t)
	main := m.stock
	m.stock, m.stockFlags = nil, append(slices.Clone(common), "--controllers=job-controller", "--leader-elect-resource-name=kcm-jobs")
	m.startStock(t)
	m.startStock(t)
	m.works(t)
	m.load(t)
	m.startFleet(t, 2, append([]string{"--controllers=job-controller", "--gate-lease=kcm-jobs=job-controller"}, quick...)...)
	m.wayIn(t)
	m.startStock(t)
	m.works(t)
	m.stopFleet(t)
	eventually(t, patience, "a stock replica leads for jobs again", m.stockLeads)
	m.works(t)

	for _, replica := range main {
		if err := replica.running(); err != nil {
			t.Error(err)
		}
	}
	jobs := func(e gateEvent) bool { return e.User.Username == "system:serviceaccount:kube-system:job-controller" }
	log := m.judge(t, m.lease, jobs)
	for _, v := range log.moves() {
		t.Log(v)
	}
	if !slices.ContainsFunc(log.writes, func(w gateWrite) bool { return w.process == fleetName }) {
		t.Error("the fleet's job controller has written nothing")
	}
	rest := m.judge(t, stockLease, func(e gateEvent) bool { return !jobs(e) })
	if len(rest.terms) != 1 {
		t.Errorf("the stock leader of everything else changed: %d terms", len(rest.terms))
	}
	for _, w := range gateLogOf(t, m.plane, m.lease, func(e gateEvent) bool { return !jobs(e) }).writes {
		if w.process == fleetName {
			t.Errorf("the fleet is to run the job controller alone: %v", w.gateEvent)
		}
	}
}

// TestStockLeaderMigration keeps a fact that docs/migration.md tells: a stock controller manager of this version with a leader migration
// works as long as the fleet holds the migration's Lease, and ends as soon as it gets it. When this fails, mend that page.
func TestStockLeaderMigration(t *testing.T) {
	t.Parallel()
	m := startMigration(t, "kcm-jobs", releaseOnExit, "--leader-elect-retry-period=250ms")
	m.startFleet(t, 1, append([]string{"--controllers=job-controller", "--gate-lease=kcm-jobs=job-controller"}, quick...)...)
	m.fleetRuns(t)
	m.stockFlags = append(m.stockFlags, migrateJobs(t)...)
	m.startStock(t)
	m.works(t)
	m.stopFleet(t)
	if status := m.stock[0].exit(t, patience); status == 0 {
		t.Error("the stock controller manager ended with status 0")
	}
	if !hasLine(m.stock[0].log(t), "command failed", `informer name \"kube-controller-manager\" is already registered`) {
		t.Error("the stock controller manager ended for another reason")
	}
}

// migrateJobs returns the flags of a leader migration: the job controller runs under the Lease kcm-jobs, whoever has it. More are
// further lines of its controllerLeaders.
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

// TestFleetLeaderMigration gives a fleet a leader migration of its own: it waits for the Lease, and does not run what is left to
// another component.
func TestFleetLeaderMigration(t *testing.T) {
	t.Parallel()
	m := startMigration(t, "kcm-jobs")
	leases := m.client.CoordinationV1().Leases(metav1.NamespaceSystem)
	held := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: m.lease},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: ptr.To("cloud-controller-manager-0"), LeaseDurationSeconds: ptr.To[int32](600), LeaseTransitions: ptr.To[int32](3),
		},
	}
	held, err := leases.Create(t.Context(), held, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	m.startFleet(t, 1, append(migrateJobs(t, "- {name: cronjob-controller, component: cloud-controller-manager}\n"), quick...)...)
	m.fleetWaits(t)
	held.Spec.HolderIdentity = ptr.To("")
	if _, err := leases.Update(t.Context(), held, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	m.fleetRuns(t)
	m.works(t)
	_, body, err := m.members[0].get(t.Context(), m.admin, "/healthz?verbose")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(body, "job-controller") || strings.Contains(body, "cronjob-controller") {
		t.Errorf("want a health check of the job controller, and none of the cronjob controller, which is left to another component:\n%s", body)
	}
	m.stopFleet(t)
	if holder, err := m.holder(t.Context()); err != nil || holder != "" {
		t.Errorf("the fleet has ended, and %s is held by %q: %v", m.lease, holder, err)
	}
}

// TestGateStandbyTakesOver kills all members at once: the stock standby leads when the fleet's Lease has expired, and the fleet that
// is started again waits.
func TestGateStandbyTakesOver(t *testing.T) {
	t.Parallel()
	m := startMigration(t, stockLease, releaseOnExit)
	timings := quick[:3]
	m.stockFlags = append(m.stockFlags, timings...)
	m.startFleet(t, 2, quick...)
	m.fleetRuns(t)
	m.startStock(t)
	m.works(t)
	m.load(t)
	began := time.Now()
	m.killFleet(t)
	eventually(t, patience, "the stock standby leads", m.stockLeads)
	t.Logf("the stock standby led %v after the fleet was killed", time.Since(began).Round(10*time.Millisecond))
	m.works(t)
	m.startFleet(t, 2, quick...)
	m.works(t)
	m.fleetWaits(t)
	log := m.judge(t, stockLease, everyWrite)
	for _, v := range log.moves() {
		t.Log(v)
		if v.from == fleetName && v.released || v.early {
			t.Errorf("%s: the standby did not wait until the Lease had expired", v)
		}
	}
}
