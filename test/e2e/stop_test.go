package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/flotilla-kube/flotilla/internal/status"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/test/harness"
)

// TestStopAndStart has an operator stop a fleet under load beside which a stock replica waits: that leads and works while all
// members stay. A member that is started meanwhile stands by as well. Once the replica has ended, 'flotilla start' has the
// fleet work again. The audit log tells whether anybody wrote without the leader lock.
func TestStopAndStart(t *testing.T) {
	t.Parallel()
	m := startMigration(t, stockLease, "--leader-elect-retry-period=250ms")
	timings := steady()
	m.stockFlags = append(m.stockFlags, timings...)
	m.startFleet(t, 2, timings...)
	m.fleetRuns(t)
	m.startStock(t)
	m.works(t)
	m.load(t)
	o := newOperator(t, m.plane, harness.Fleet)

	began := time.Now()
	t.Log(o.run(t, "stop", "--by=alice", "--wait=2m"))
	harness.Eventually(t, harness.Patience, "the stock replica leads", m.stockLeads)
	t.Logf("stock led %v after 'flotilla stop' was given", time.Since(began).Round(time.Millisecond))
	m.works(t)
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

	leader := m.stock[0]
	m.stock = nil
	leader.MustStop(t)
	m.clear(t)
	t.Log(o.run(t, "start", "--wait=2m"))
	m.fleetRuns(t)
	m.works(t)
	o.run(t, "status")
	for _, v := range m.judge(t, stockLease, notByOperator).moves() {
		t.Log(v)
	}
}

// notByOperator leaves out what the command writes on the plan's Lease: it is the members' binary, and no member.
func notByOperator(e *harness.Event) bool {
	return !(e.IsLease() && e.ObjectRef.Name == leaseapi.PlanLease(harness.Fleet) && strings.HasSuffix(e.UserAgent, "/flotilla-cli"))
}

// standsBy requires that all members, status, probes and metrics say that the fleet is stopped, with exit status 0, and that no
// shard is held.
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
			return fmt.Errorf("it does not say so: %+v\n%s", v.Stop, out)
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
