package cloud

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/flotilla-kube/flotilla/test/cloud/provider"
	"github.com/flotilla-kube/flotilla/test/cloud/sky"
	"github.com/flotilla-kube/flotilla/test/harness"
)

const services = 60

// begun returns a condition: some of the Services have an address, and the others do not yet.
func (w *Cluster) begun(names []Name, part int) harness.Condition {
	return func(ctx context.Context) error {
		count, err := w.CountAddressed(ctx, names)
		if err == nil && count < part {
			err = fmt.Errorf("%d of %d Services have an address", count, len(names))
		}
		return err
	}
}

// TestAMemberIsKilled kills one member of three while they create load balancers. Another member
// leaves while they delete them.
func TestAMemberIsKilled(t *testing.T) {
	t.Parallel()
	w, ctx := newCluster(t), t.Context()
	members := w.fleet(t, 3, "--use-service-account-credentials")
	harness.Eventually(t, harness.Patience, "the nodes are initialized", w.NodesInitialized)

	names := Names("killed", services, 1)
	must(t, w.AddNamespaces(ctx, names))
	must(t, w.AddServices(ctx, names))
	must(t, w.Serve(ctx, names))
	harness.Eventually(
		t, harness.Patience, "a third of the load balancers are there", w.begun(names, services/3),
	)
	must(t, members[0].Kill())
	harness.Eventually(t, harness.Patience, "all Services have an address", w.Addressed(names))
	must(t, w.Answered(ctx, names))
	if counts := w.callers(); len(counts) != len(members) {
		t.Errorf("not every member has called the cloud: %v", counts)
	}

	must(t, w.DeleteServices(ctx, names[:services/2]))
	must(t, members[1].Stop(ctx))
	must(t, w.DeleteServices(ctx, names[services/2:]))
	harness.Eventually(t, harness.Patience, "all Services are gone", w.Gone(names))
	if left := w.Sky.LoadBalancers(); len(left) > 0 {
		t.Errorf("%d load balancers remain", len(left))
	}
	w.judge(t)
}

// TestBesideAStockLeader starts a fleet next to a stock leader, and a stock replica next to the
// fleet.
func TestBesideAStockLeader(t *testing.T) {
	t.Parallel()
	w, ctx := newCluster(t), t.Context()
	stock := w.start(t, Spec{Name: "stock-0", Kind: provider.Stock})
	harness.Eventually(t, harness.Patience, "the nodes are initialized", w.NodesInitialized)
	first := w.member(t, "member-0")
	second := w.member(t, "member-1")
	for _, m := range []*harness.Manager{first, second} {
		harness.Eventually(t, harness.Patience, m.Name()+" serves", m.Healthy)
	}

	before := Names("before", services/4, 1)
	must(t, w.AddNamespaces(ctx, before))
	must(t, w.AddServices(ctx, before))
	harness.Eventually(
		t, harness.Patience, "the stock leader has made the load balancers", w.Addressed(before),
	)
	if counts := w.callers(); len(counts) != 1 || counts["stock-0"] == 0 {
		t.Errorf("the fleet has called the cloud beside a stock leader: %v", counts)
	}
	must(t, stock.Kill())
	for _, m := range []*harness.Manager{first, second} {
		harness.Eventually(t, harness.Patience, m.Name()+" is ready", m.Ready)
	}

	again := w.start(t, Spec{Name: "stock-1", Kind: provider.Stock})
	harness.Eventually(t, harness.Patience, "the second stock replica serves", again.Healthy)
	after := Names("after", services/4, 1)
	must(t, w.AddNamespaces(ctx, after))
	must(t, w.AddServices(ctx, after))
	harness.Eventually(
		t, harness.Patience, "the fleet has made the load balancers", w.Addressed(after),
	)
	if counts := w.callers(); counts["stock-1"] > 0 {
		t.Errorf("a stock replica has called the cloud beside the fleet: %v", counts)
	}
	all := append(before, after...)
	must(t, w.Serve(ctx, all))
	must(t, w.Answered(ctx, all))

	must(t, first.Stop(ctx))
	must(t, second.Stop(ctx))
	harness.Eventually(t, harness.Patience, "the stock replica leads", func(context.Context) error {
		if w.callers()["stock-1"] == 0 {
			return fmt.Errorf("it has not called the cloud")
		}
		return nil
	})
	must(t, w.DeleteServices(ctx, all))
	harness.Eventually(t, harness.Patience, "all Services are gone", w.Gone(all))
	w.judge(t)
}

// TestTwoFleetsAreConvicted plants two owners: two fleets without a leader lock. If the judge
// missed this, its silence in the other tests would mean nothing.
func TestTwoFleetsAreConvicted(t *testing.T) {
	t.Parallel()
	w, ctx := newCluster(t), t.Context()
	for _, name := range []string{"one", "two"} {
		m := w.member(t, name, "--fleet-name="+name, "--leader-lock=none")
		harness.Eventually(t, harness.Patience, m.Name()+" is ready", m.Ready)
	}
	// Neither learns that there is no load balancer before the other has looked, too.
	var looks []<-chan sky.Call
	var answers []func()
	for _, name := range []string{"one", "two"} {
		looked, answer := w.Sky.Block(func(c sky.Call) bool { return c.Client == name && c.UID != "" && !c.Writes() })
		defer answer()
		looks, answers = append(looks, looked), append(answers, answer)
	}
	names := Names("two", 1, 1)
	must(t, w.AddNamespaces(ctx, names))
	must(t, w.AddServices(ctx, names))
	for i, looked := range looks {
		select {
		case <-looked:
		case <-time.After(harness.Patience):
			t.Fatalf("fleet %d has not looked for a load balancer", i+1)
		}
	}
	for _, answer := range answers {
		answer()
	}
	harness.Eventually(t, harness.Patience, "the Service has an address", w.Addressed(names))
	found, err := w.Judge(ctx)
	must(t, err)
	if len(found) == 0 {
		t.Error("two fleets worked on the same Service, and the judge found nothing")
	}
}
