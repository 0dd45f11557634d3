package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/utils/clock"

	"github.com/flotilla-kube/flotilla/internal/status"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// maxTries is how often a write is computed again after somebody else has written first. Members
// and the planner write their Leases now and then, so an occasional conflict is expected, and
// several in a row are not.
const maxTries = 10

// connection is a fleet and the client that reads its Leases.
type connection struct {
	target  Target
	connect func(Target) (kubernetes.Interface, error)
	clock   clock.WithTicker
	client  kubernetes.Interface              // set by the first read
	leases  coordinationclient.LeaseInterface // likewise
}

// read lists the Leases, once.
func (c *connection) read(ctx context.Context) (*status.Reading, error) {
	if c.leases == nil {
		client, err := c.connect(c.target)
		if err != nil {
			return nil, err
		}
		c.client, c.leases = client, client.CoordinationV1().Leases(c.target.Namespace)
	}
	list, err := c.leases.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing the Leases in namespace %s: %w", c.target.Namespace, err)
	}
	return status.Read(c.target.Fleet, list.Items, c.clock.Now()), nil
}

// write writes the plan on its Lease as it was read. After a conflict, the error is the API
// server's.
func (c *connection) write(ctx context.Context, r *status.Reading, plan shard.Plan) error {
	lease, err := leaseapi.WithPlan(c.target.Fleet, r.PlanLease, plan)
	if err != nil {
		return err
	}
	if r.PlanLease == nil {
		_, err = c.leases.Create(ctx, lease, metav1.CreateOptions{})
	} else {
		_, err = c.leases.Update(ctx, lease, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("writing the plan on Lease %s in namespace %s: %w", lease.Name, c.target.Namespace, err)
	}
	return nil
}

// writeIf reads, computes and writes until nobody has written meanwhile. compute returns the plan
// to write, or false if there is nothing to write. If the answer to a write is lost, and the plan
// there is a later one, it may have followed ours: writeIf returns an error then, because computing
// again might do the same a second time.
func (c *connection) writeIf(ctx context.Context, compute func(*status.Reading) (shard.Plan, bool, error)) error {
	type lostWrite struct {
		shard.Plan
		err error
	}
	var unanswered []lostWrite
	return c.settle(ctx, func(r *status.Reading) (func() error, error) {
		for _, plan := range unanswered {
			if r.Plan.Generation > plan.Generation {
				return nil, fmt.Errorf("it is not known whether plan generation %d was written, and the plan is generation %d by now: look at it before you try again: %w",
					plan.Generation, r.Plan.Generation, plan.err)
			}
		}
		next, wanted, err := compute(r)
		if err == nil && next.Generation > 0 && (wanted || next.Digest() != r.Plan.Digest()) {
			_, err = leaseapi.WithPlan(c.target.Fleet, r.PlanLease, next) // does it fit on the Lease?
		}
		if err != nil || !wanted {
			return nil, err
		}
		return func() error {
			err := c.write(ctx, r, next)
			if err != nil && isUnknown(err) {
				unanswered = append(unanswered, lostWrite{next, err})
			}
			return err
		}, nil
	}, func(r *status.Reading) bool {
		there, err := leaseapi.PlanOn(r.PlanLease)
		return err == nil && slices.ContainsFunc(unanswered, func(plan lostWrite) bool {
			return there.Generation == plan.Generation && there.Digest() == plan.Digest()
		})
	})
}

// settle reads, computes a write and makes it, until nobody has written meanwhile. compute returns
// nil if there is nothing to write. If the answer to a write is lost, because an API server is
// restarted for example, nobody knows whether it was carried out: settle then reads until ctx ends,
// and writes again unless written returns true, which says that the write is there.
func (c *connection) settle(ctx context.Context, compute func(*status.Reading) (write func() error, err error), written func(*status.Reading) bool) error {
	var lost, conflict error
	for tries := 0; tries < maxTries; {
		if lost != nil && !c.pause(ctx) {
			break
		}
		r, err := c.read(ctx)
		if err != nil && lost != nil && isUnknown(err) {
			continue
		}
		if err != nil || lost != nil && written(r) {
			return err
		}
		write, err := compute(r)
		if err != nil || write == nil {
			return err
		}
		switch err := write(); {
		case err == nil:
			return nil
		case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
			conflict = err
			tries++
		case isUnknown(err):
			lost = err
		default:
			return err
		}
	}
	if lost != nil {
		return fmt.Errorf("it is not known whether it was written, look before you try again: %w", lost)
	}
	return fmt.Errorf("gave up after %d tries, nothing is changed: %w", maxTries, conflict)
}

// lostPause is how long settle waits before it looks what has become of a write.
const lostPause = 500 * time.Millisecond

// pause returns true after lostPause, and false when ctx has ended before.
func (c *connection) pause(ctx context.Context) bool {
	timer := c.clock.NewTimer(lostPause)
	defer timer.Stop()
	select {
	case <-timer.C():
		return true
	case <-ctx.Done():
		return false
	}
}

// isUnknown reports whether an error leaves open whether the API server has carried out a request:
// the connection has failed, or the server has given up.
func isUnknown(err error) bool {
	var answer apierrors.APIStatus
	return !errors.As(err, &answer) || apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) ||
		apierrors.IsServiceUnavailable(err) || apierrors.IsInternalError(err)
}

// apply makes the edited plan the next one and returns the changes.
func (c *connection) apply(ctx context.Context, edited shard.Plan, check func(shard.Plan) error, dryRun bool) (Edit, error) {
	var e Edit
	err := c.writeIf(ctx, func(r *status.Reading) (shard.Plan, bool, error) {
		var err error
		e, err = Prepare(r, edited, check)
		return e.Next, !dryRun && !e.Same(), err
	})
	return e, err
}
