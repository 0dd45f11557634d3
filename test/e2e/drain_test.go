package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/flotilla-kube/flotilla/internal/status"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/test/harness"
)

// drain drains one of two members under load, and undrains it. All of its shards are handed over,
// nobody's Lease expires, the member stays ready, and gets shards again.
func (f *fleetRun) drain(t *testing.T, stays, drained string) {
	t.Helper()
	o := newOperator(t, f.plane, f.name)
	before, held := f.terms(t), f.holders(t)
	ready, stopLooking := f.staysReady(t, drained)
	o.refused(t, []string{`"fleet-7"`, stays + ", " + drained}, "drain", "fleet-7")
	if out := o.run(t, "drain", drained, "--dry-run"); !strings.Contains(out, "Dry run: member "+drained+" would be drained") || !strings.Contains(out, "go to "+stays) {
		t.Errorf("the dry run says\n%s", out)
	}
	f.change(t)
	out := o.run(t, "drain", drained)
	t.Logf("flotilla drain %s:\n%s", drained, out)
	if !strings.Contains(out, "Member "+drained+" is drained") || !strings.Contains(out, "Member "+drained+" holds no shards, after ") {
		t.Errorf("drain says\n%s", out)
	}
	// The last shards were released a moment ago; the next holders are what counts.
	var after map[string]string
	harness.Eventually(t, harness.Patience, "every shard has a holder", func(context.Context) error {
		after = f.holders(t)
		for id, holder := range after {
			if holder == "" {
				return fmt.Errorf("%s has none", id)
			}
		}
		return nil
	})
	for id, holder := range after {
		if holder != stays {
			t.Errorf("%s is held by %q after the drain", id, holder)
		}
	}
	f.workDone(t, f.replicas)
	f.requireMovedOnce(t, before, held, drained)
	s := &statusRun{operator: o}
	if v, code, err := s.look(t.Context()); err != nil || code != 0 || len(v.Findings) != 1 || v.Findings[0].Kind != status.MemberDrained {
		t.Errorf("status says %+v about a drained member, and exits with %d, %v", v.Findings, code, err)
	}
	o.refused(t, []string{"the last that serves ring", "--force"}, "drain", stays)
	if out := o.run(t, "drain", drained); !strings.Contains(out, "is drained already, since 20") {
		t.Errorf("drained again, it says\n%s", out)
	}
	stopLooking()
	if err := ready(); err != nil {
		t.Error(err)
	}
	if out := o.run(t, "undrain", drained); !strings.Contains(out, "Member "+drained+" is undrained") {
		t.Errorf("undrain says\n%s", out)
	}
	t.Logf("%s has shards again after %v", drained, f.settle(t, harness.Patience))
	f.change(t)
	f.workDone(t, f.replicas)
}

// requireMovedOnce requires that each shard of the drained member has passed through one term
// since, and every other shard through none.
func (f *fleetRun) requireMovedOnce(t *testing.T, before map[string]int32, held map[string]string, drained string) {
	t.Helper()
	after := f.terms(t)
	for _, s := range f.plan.Shards() {
		moved := int32(0)
		if held[s.ID.String()] == drained {
			moved = 1
		}
		if name := leaseapi.ShardLease(f.name, s.ID); after[name]-before[name] != moved {
			t.Errorf("%s went through %d terms, want %d", s.ID, after[name]-before[name], moved)
		}
	}
}

// staysReady polls a member's readiness until stop is called; then ready returns what was wrong. A
// member that gets shards is not ready, so polling must stop before the member is undrained.
func (f *fleetRun) staysReady(t *testing.T, name string) (ready func() error, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() {
		ticker := time.NewTicker(100 * time.Millisecond)
		defer ticker.Stop()
		asked := 0
		for {
			select {
			case <-ctx.Done():
				if asked == 0 {
					result <- errors.New("its readiness was never checked")
				}
				close(result)
				return
			case <-ticker.C:
			}
			request, cancelRequest := context.WithTimeout(ctx, grace)
			code, body, err := f.members[name].Get(request, "/readyz")
			cancelRequest()
			if err != nil {
				continue
			}
			if code != http.StatusOK {
				result <- fmt.Errorf("while drained, %s answers %d: %s", name, code, body)
				close(result)
				return
			}
			asked++
		}
	}()
	return func() error { return <-result }, cancel
}
