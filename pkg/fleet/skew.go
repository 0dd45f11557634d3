package fleet

import (
	"context"
	"errors"
	"strings"

	"k8s.io/klog/v2"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// scopeOf returns the scope of the shard's ring.
func scopeOf(s shard.Shard) shard.Scope {
	if s.Namespaced() {
		return shard.ScopeNamespaced
	}
	return shard.ScopeCluster
}

// EventLacking reports that the plan that came into force names controllers that this member's
// build does not have. Err lists them.
const EventLacking election.EventType = "lacking"

// Lacks returns the controllers that the plan in force names and that this member's build cannot
// run where the plan has them, sorted; nil for none. The shards that the member holds run without
// them.
func (m *Member) Lacks() []string {
	plan := m.inForce.Load()
	if plan == nil {
		return nil
	}
	return m.judge.Lacks(plan.Plan)
}

// tellLacks reports which controllers of a plan that just came into force this build lacks.
func (m *Member) tellLacks(ctx context.Context, plan shard.Plan) {
	lacks := m.judge.Lacks(plan)
	if len(lacks) == 0 {
		return
	}
	said := leaseapi.Shorten(strings.Join(lacks, ", "), leaseapi.MaxText)
	klog.FromContext(ctx).Info("The plan names controllers that this build does not have: its shards run without them", "controllers", said, "generation", plan.Generation, "version", m.config.Catalogue.Version)
	m.reportPlan(EventLacking, errors.New(said))
}
