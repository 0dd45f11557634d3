package system

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flotilla-kube/flotilla/internal/status"
	"github.com/flotilla-kube/flotilla/pkg/shard"
	"github.com/flotilla-kube/flotilla/test/bench/measure"
	"github.com/flotilla-kube/flotilla/test/bench/result"
	"github.com/flotilla-kube/flotilla/test/harness"
)

const (
	fleetName  = "flotilla"
	stockLease = "kube-controller-manager"
	// wholeLimit limits a system's start, quietLimit the time to fill its caches and come to rest,
	// on a busy machine.
	wholeLimit, quietLimit = 2 * time.Minute, 5 * time.Minute
	// Each rebalancing goes part of the way.
	mostRebalancings = 8
)

// Whole returns once the system does its work: the stock leader has its Lease, or every member is
// active and each shard's owner runs it.
func (r *Running) Whole(ctx context.Context) error {
	return r.until(ctx, "the system is whole", wholeLimit, func(ctx context.Context) error {
		for _, p := range r.processes {
			if _, err := r.get(ctx, p.process.URL+"/healthz"); err != nil {
				return err
			}
		}
		if !r.config.fleet() {
			lease, err := r.client.CoordinationV1().Leases(metav1.NamespaceSystem).Get(ctx, stockLease, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "" {
				return errors.New("nobody holds the stock Lease")
			}
			return nil
		}
		reading, err := r.reading(ctx)
		if err != nil {
			return err
		}
		return whole(status.Of(reading), r.config.System.Replicas)
	})
}

// whole returns why a fleet is not whole.
func whole(v status.View, replicas int) error {
	if v.Fault != "" {
		return errors.New(v.Fault)
	}
	active := 0
	for _, m := range v.Members {
		if m.State == "active" {
			active++
		}
	}
	if active != replicas {
		return fmt.Errorf("%d members are active, want %d", active, replicas)
	}
	if len(v.Rings) == 0 {
		return errors.New("the plan has no rings")
	}
	for _, ring := range v.Rings {
		for _, s := range ring.Shards {
			if s.State != status.StateRunning || s.Holder != s.Wanted {
				return fmt.Errorf("%s is %s and held by %q, wanted is %q", s.Shard, s.State, s.Holder, s.Wanted)
			}
		}
	}
	if len(v.Older) > 0 {
		return fmt.Errorf("%s of an older plan is held", v.Older[0].Lease)
	}
	return nil
}

// Balance balances the fleet's plan as its planner would, until there is nothing left to do. Stock
// has no plan. It waits until the holders have weighed their shards.
func (r *Running) Balance(ctx context.Context) error {
	if !r.config.fleet() {
		return nil
	}
	for range mostRebalancings {
		steps := 0
		err := r.until(ctx, "the shards are weighed", wholeLimit, func(ctx context.Context) error {
			reading, err := r.reading(ctx)
			if err != nil {
				return err
			}
			steps, err = proposals(reading)
			return err
		})
		if err != nil || steps == 0 {
			return err
		}
		command := exec.CommandContext(ctx, r.config.Flotilla, "plan", "rebalance", "--kubeconfig="+r.config.Plane.AdminKubeconfig(), "--wait=2m")
		if output, err := command.CombinedOutput(); err != nil {
			return fmt.Errorf("flotilla plan rebalance: %w\n%s", err, output)
		}
		if err := r.Whole(ctx); err != nil {
			return err
		}
		if steps == 1 {
			return nil // holders of new shards take long to weigh them, and the result is known
		}
	}
	return nil
}

// proposals returns how often the planner would change the plan, by the shards' current weights, at
// most 2; an error if that is not known yet.
func proposals(reading *status.Reading) (int, error) {
	plan, steps := reading.Plan, 0
	for _, ring := range reading.Plan.Rings {
		if ring.Scope != shard.ScopeNamespaced {
			continue
		}
		weights, missing := reading.Weights(ring)
		if len(missing) > 0 {
			return 0, fmt.Errorf("%d shards of ring %s are not weighed yet, %s among them", len(missing), ring.Name, missing[0])
		}
		if weights.PerObject > 0 && !weights.Whole {
			return 0, fmt.Errorf("not all groups are weighed yet, to balance ring %s", ring.Name)
		}
		for range 2 {
			proposal, worth, err := shard.Propose(plan, ring.Name, weights.Weights, reading.Stayers(ring), shard.DefaultLimits())
			if err != nil {
				return 0, err
			}
			if !worth {
				break
			}
			plan, steps = proposal.Plan, steps+1
		}
	}
	return min(steps, 2), nil
}

// Spread returns how many of these namespaces are in each member's shards; nil for stock.
func (r *Running) Spread(ctx context.Context, namespaces []string) (map[string]int, error) {
	if !r.config.fleet() {
		return nil, nil
	}
	reading, err := r.reading(ctx)
	if err != nil {
		return nil, err
	}
	spread, holders := map[string]int{}, reading.Holders()
	for _, ring := range reading.Plan.Rings {
		if ring.Scope != shard.ScopeNamespaced {
			continue
		}
		for _, namespace := range namespaces {
			if s, found := reading.Plan.ShardFor(ring.Name, namespace); found {
				spread[holders[s.ID]]++
			}
		}
	}
	return spread, nil
}

// reading returns the fleet's current state, from its Leases.
func (r *Running) reading(ctx context.Context) (*status.Reading, error) {
	leases, err := r.leases(ctx)
	if err != nil {
		return nil, err
	}
	return status.Read(fleetName, leases, time.Now()), nil
}

func (r *Running) leases(ctx context.Context) ([]coordinationv1.Lease, error) {
	list, err := r.client.CoordinationV1().Leases(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// Quiet returns once all processes together have used little CPU for some seconds: their caches are
// full, and the work of their start is done.
func (r *Running) Quiet(ctx context.Context) error {
	var pids []int
	for _, p := range r.processes {
		pids = append(pids, p.process.Pid())
	}
	if err := measure.Quiet(ctx, quietLimit, pids...); err != nil {
		return errors.Join(err, r.Ended())
	}
	return nil
}

// until waits for a condition, and fails if a process ends that nobody has killed.
func (r *Running) until(ctx context.Context, what string, limit time.Duration, condition harness.Condition) error {
	_, err := harness.Await(ctx, limit, r.config.System.Kind+" "+what, func(ctx context.Context) error {
		if err := r.Ended(); err != nil {
			return err
		}
		return condition(ctx)
	})
	return err
}

// Name returns a system as the command's flags name it: "stock", "fleet-4", "ceiling-4".
func Name(s result.System) string {
	if s.Kind == result.Fleet || s.Replicas > 1 {
		return fmt.Sprintf("%s-%d", s.Kind, s.Replicas)
	}
	return s.Kind
}
