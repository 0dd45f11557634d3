package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"

	"github.com/flotilla-kube/flotilla/pkg/fleet"
)

// forgedHolder is nobody's incarnation.
const forgedHolder = "forged_00000000-0000-0000-0000-000000000000"

// leaseEdit is what an administrator does to a Lease that he should leave alone. A nil lease is deleted.
type leaseEdit func(*coordinationv1.Lease) *coordinationv1.Lease

func deleteLease(*coordinationv1.Lease) *coordinationv1.Lease { return nil }

func emptyLease(l *coordinationv1.Lease) *coordinationv1.Lease {
	l.Spec.HolderIdentity = ptr.To("")
	return l
}

func forgeLease(l *coordinationv1.Lease) *coordinationv1.Lease {
	l.Spec.HolderIdentity = ptr.To(forgedHolder)
	return l
}

func spoilLease(l *coordinationv1.Lease) *coordinationv1.Lease {
	l.Spec.LeaseDurationSeconds = ptr.To[int32](math.MaxInt32)
	l.Spec.RenewTime = ptr.To(metav1.NewMicroTime(time.Unix(0, 0)))
	return l
}

// tamperFault changes the Lease of a shard at work.
type tamperFault struct {
	world *world
	how   leaseEdit
}

// Begin implements fault.
func (f *tamperFault) Begin(ctx context.Context) (expectation, error) {
	id, _, err := f.world.loadedShard(ctx)
	if err != nil {
		return expectation{}, err
	}
	t := &tampering{shard: id, from: time.Now()}
	leases := f.world.client.CoordinationV1().Leases(metav1.NamespaceSystem)
	err = retry.RetryOnConflict(retry.DefaultRetry, func() error { return edit(ctx, leases, fleet.ShardLease(fleetName, id), f.how) })
	return expectation{tampered: t}, err
}

// End implements fault.
func (f *tamperFault) End(context.Context) error { return nil }

func edit(ctx context.Context, leases coordinationclient.LeaseInterface, name string, how leaseEdit) error {
	lease, err := leases.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if lease = how(lease); lease == nil {
		return leases.Delete(ctx, name, metav1.DeleteOptions{})
	}
	_, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
	return err
}

// leaseHolders returns the Leases of the fleet that still have a holder.
func leaseHolders(ctx context.Context, leases coordinationclient.LeaseInterface, names []string) error {
	var errs []error
	for _, name := range names {
		lease, err := leases.Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return err
		}
		if holder := ptr.Deref(lease.Spec.HolderIdentity, ""); holder != "" {
			errs = append(errs, fmt.Errorf("%s is still held by %s", name, holder))
		}
	}
	return errors.Join(errs...)
}
