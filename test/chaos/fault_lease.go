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

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
)

const (
	// forgedHolder is an incarnation of no member.
	forgedHolder = "forged_00000000-0000-0000-0000-000000000000"
	// parkedHolder is one of a member that could not have a Lease: the API server refuses its name.
	parkedHolder = "parked_by_nobody"
)

// leaseEdit is a change by an administrator to a Lease that should be left alone. A nil result
// deletes the Lease.
type leaseEdit func(*coordinationv1.Lease) *coordinationv1.Lease

func deleteLease(*coordinationv1.Lease) *coordinationv1.Lease { return nil }

var (
	emptyLease = nameHolder("")
	forgeLease = nameHolder(forgedHolder)
	parkLease  = nameHolder(parkedHolder)
)

// nameHolder writes a holder; "" for none.
func nameHolder(holder string) leaseEdit {
	return func(l *coordinationv1.Lease) *coordinationv1.Lease {
		l.Spec.HolderIdentity = &holder
		return l
	}
}

func spoilLease(l *coordinationv1.Lease) *coordinationv1.Lease {
	l.Spec.LeaseDurationSeconds = ptr.To[int32](math.MaxInt32)
	l.Spec.RenewTime = ptr.To(metav1.NewMicroTime(time.Unix(0, 0)))
	return l
}

// aftermath returns an error if the state of a shard's Lease is not what the fleet promises after
// such tampering. before is its state before, after its state once the fleet is whole again. taken
// is how long after the tampering somebody acquired it; zero if nobody has.
type aftermath func(before, after hold, taken time.Duration, timing election.Timing) error

// keepsClaim requires that the holder rewrites the Lease and its claim goes on.
func keepsClaim(before, after hold, _ time.Duration, _ election.Timing) error {
	if after.holder != before.holder || after.term != before.term {
		return fmt.Errorf("%s held it for term %d, and now %s for term %d: the claim must go on", before.holder, before.term, after.holder, after.term)
	}
	return nil
}

// newClaim requires that the holder's claim ends and another one begins.
func newClaim(before, after hold, _ time.Duration, _ election.Timing) error {
	if after.term <= before.term {
		return fmt.Errorf("%s holds it for term %d: must be above %d, the term that was ended", after.holder, after.term, before.term)
	}
	return nil
}

// runsOut requires that the holder's claim ends and another one begins, no earlier than what the
// Lease says has expired.
func runsOut(before, after hold, taken time.Duration, timing election.Timing) error {
	if taken < timing.LeaseDuration {
		return fmt.Errorf("%s took it %v after the forgery: must be %v or later", after.holder, taken, timing.LeaseDuration)
	}
	return newClaim(before, after, taken, timing)
}

// tamperFault changes the Lease of a shard at work.
type tamperFault struct {
	env    *environment
	how    leaseEdit
	then   aftermath
	name   string
	before hold
	began  time.Time
}

// Begin implements fault.
func (f *tamperFault) Begin(ctx context.Context) (expectation, error) {
	id, before, err := f.env.loadedShard(ctx)
	if err != nil {
		return expectation{}, err
	}
	f.name, f.before, f.began = leaseapi.ShardLease(fleetName, id), before, time.Now()
	t := &tampering{lease: f.name, shard: id, from: f.began}
	err = f.env.tamper(ctx, f.name, f.how)
	// The holder's right ends by then (docs/design/heartbeat.md). What it sent before may take a
	// moment to arrive.
	t.ended = time.Now().Add(f.env.opts.timing.RenewDeadline + time.Second)
	return expectation{tampered: t, verify: f.verify}, err
}

// End implements fault.
func (f *tamperFault) End(context.Context) error { return nil }

// verify checks that the Lease's history is what is promised, and that its content makes sense.
func (f *tamperFault) verify(ctx context.Context) error {
	var taken time.Duration
	for _, c := range f.env.journal.changesSince(f.began) {
		if c.lease == f.name && c.to != "" && c.to != forgedHolder && c.to != parkedHolder {
			taken = c.at.Sub(f.began)
		}
	}
	after, timing := f.env.journal.snapshot()[f.name], f.env.opts.timing
	if err := f.then(f.before, after, taken, timing); err != nil {
		return fmt.Errorf("%s: %w", f.name, err)
	}
	// A holder writes a Lease no more often than at each retry period.
	_, err := f.env.await(ctx, 2*timing.RetryPeriod, f.name+" says how long it lasts", func(ctx context.Context) error {
		lease, err := f.env.client.CoordinationV1().Leases(metav1.NamespaceSystem).Get(ctx, f.name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if seconds := ptr.Deref(lease.Spec.LeaseDurationSeconds, 0); time.Duration(seconds)*time.Second != timing.LeaseDuration {
			return fmt.Errorf("%s says that it lasts %d s, must be %v", f.name, seconds, timing.LeaseDuration)
		}
		return nil
	})
	return err
}

// tamper changes the current state of a Lease in kube-system.
func (env *environment) tamper(ctx context.Context, name string, how leaseEdit) error {
	leases := env.client.CoordinationV1().Leases(metav1.NamespaceSystem)
	return retry.RetryOnConflict(retry.DefaultRetry, func() error { return edit(ctx, leases, name, how) })
}

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

// leaseHolders returns an error for each of the Leases that still has a holder.
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
