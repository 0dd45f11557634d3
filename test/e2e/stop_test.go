package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/flotilla-kube/flotilla/internal/status"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/test/calibrate"
	"github.com/flotilla-kube/flotilla/test/harness"
)

var stops = flag.Int("stops", 1, "how many times TestStopAndStart stops the fleet and starts it again")

// TestStopAndStart lets an operator stop a fleet under load while a stock replica waits. The
// replica then leads and works while all members stay, and a newly started member stands by as
// well. Once the replica has ended, 'flotilla start' lets the fleet work again. The audit log shows
// whether anybody wrote without the leader lock, and how long it took from the command to the stock
// replica's first write. With -stops the test repeats all of that except the restarts.
func TestStopAndStart(t *testing.T) {
	t.Parallel()
	m := startMigration(t, stockLease)
	timings := steady()
	m.stockFlags = slices.Clone(timings)
	if !*defaultRetry {
		m.stockFlags = append(m.stockFlags, "--leader-elect-retry-period=250ms")
	}
	m.startFleet(t, 2, timings...)
	m.fleetRuns(t)
	m.startStock(t)
	m.works(t)
	m.load(t)
	o := newOperator(t, m.plane, harness.Fleet)

	var machine measured
	machine.again(t, m.client)
	given := []time.Time{m.stops(t, o)}
	m.members = append(m.members, harness.Run(t, m.plane, harness.Member("late", timings...)))
	m.standsBy(t, o)
	m.works(t)

	// As an operator would whose stock controller manager is to stay for a day.
	for _, member := range m.members {
		member.MustTerminate(t)
		if code := member.MustExit(t, harness.Patience); code != 0 {
			t.Errorf("%s ended with status %d while the fleet was stopped", member.Name(), code)
		}
	}
	m.members = nil
	m.startFleet(t, 2, timings...)
	m.standsBy(t, o)
	if err := m.stockLeads(t.Context()); err != nil {
		t.Error(err)
	}

	m.starts(t, o)
	o.run(t, "status")
	for range *stops - 1 {
		m.startStock(t)
		m.works(t)
		machine.again(t, m.client)
		given = append(given, m.stops(t, o))
		m.starts(t, o)
	}
	m.requireStops(t, m.judge(t, stockLease, notByOperator), given, machine)
}

// stops runs 'flotilla stop', waits until the stock replica leads and works, and returns when the
// command was given.
func (m *migration) stops(t *testing.T, o *operator) time.Time {
	t.Helper()
	given := time.Now()
	t.Log(o.run(t, "stop", "--by=alice", "--wait=2m"))
	harness.Eventually(t, harness.Patience, "the stock replica leads", m.stockLeads)
	m.works(t)
	return given
}

// starts stops the stock replica, and runs 'flotilla start'.
func (m *migration) starts(t *testing.T, o *operator) {
	t.Helper()
	leader := m.stock[0]
	m.stock = nil
	leader.MustStop(t)
	m.clear(t)
	t.Log(o.run(t, "start", "--wait=2m"))
	m.fleetRuns(t)
	m.works(t)
}

// requireStops prints how long it took from each command to the release of the leader lock, to its
// next holder and to that holder's first write. With -strict the times must be as promised for a
// planned move.
func (m *migration) requireStops(t *testing.T, log *lockLog, given []time.Time, machine measured) {
	t.Helper()
	var freed, led, wrote []time.Duration
	for _, at := range given {
		s, err := log.stopped(at)
		if err != nil {
			t.Error(err)
			continue
		}
		t.Logf("'flotilla stop': %v", s)
		freed, led, wrote = append(freed, s.freed), append(led, s.freed+s.lease), append(wrote, s.freed+s.after)
		if !*defaultRetry { // With it, a stock replica checks every 2 to 4.4 s.
			machine.require(t, "the leader lock was free", s.lease, calibrate.LeaderLockToStock, calibrate.TakeoverSteps)
			machine.require(t, "nobody wrote", s.writes, calibrate.NobodyWrites, calibrate.StartSteps)
		}
	}
	for what, all := range map[string][]time.Duration{"the leader lock is released": freed, "stock leads": led, "stock writes": wrote} {
		slices.Sort(all)
		t.Logf("from 'flotilla stop' until %s: %s", what, spread(all))
	}
}

// notByOperator excludes the command's writes to the plan's Lease: it is the members' binary, but
// no member.
func notByOperator(e *harness.Event) bool {
	return !(e.IsLease() && e.ObjectRef.Name == leaseapi.PlanLease(harness.Fleet) && strings.HasSuffix(e.UserAgent, "/flotilla-cli"))
}

// standsBy requires that all members, status, probes and metrics say that the fleet is stopped,
// with exit status 0, and that no shard is held.
func (m *migration) standsBy(t *testing.T, o *operator) {
	t.Helper()
	for _, member := range m.members {
		harness.Eventually(t, harness.Patience, "a member stands by", func(ctx context.Context) error {
			return errors.Join(
				m.joined(ctx, member.Name()),
				member.Answers("/livez", http.StatusOK)(ctx),
				member.Answers("/readyz", http.StatusInternalServerError)(ctx),
				member.Says("/readyz/fleet", "the fleet is stopped since ")(ctx),
				member.Says("/readyz/fleet", " by alice: member ")(ctx),
				member.Says("/fleet?format=html", "the fleet is stopped since ")(ctx),
				member.Says("/metrics", "flotilla_fleet_stopped 1")(ctx))
		})
	}
	harness.Eventually(t, harness.Patience, "status says that the fleet is stopped", func(ctx context.Context) error {
		out, err := o.try(ctx, "status", "-o", "json") // fails unless the exit status is 0
		if err != nil {
			return fmt.Errorf("%w\n%s", err, out)
		}
		var v status.View
		if err := json.Unmarshal([]byte(out), &v); err != nil {
			return err
		}
		if v.Stop == nil || v.Stop.By != "alice" || v.Stop.Since == nil || len(v.Stop.Draining) > 0 || !strings.Contains(out, string(status.Stopped)) {
			return fmt.Errorf("status does not say so: %+v\n%s", v.Stop, out)
		}
		return nil
	})
	leases, err := m.client.CoordinationV1().Leases(metav1.NamespaceSystem).List(t.Context(), metav1.ListOptions{LabelSelector: leaseapi.ShardLabel})
	if err != nil {
		t.Fatal(err)
	}
	for _, lease := range leases.Items {
		if holder := ptr.Deref(lease.Spec.HolderIdentity, ""); holder != "" {
			t.Errorf("the fleet is stopped, and %s is held by %s", lease.Name, holder)
		}
	}
}
