package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	k8slabels "k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
)

const (
	leaseNamespace = metav1.NamespaceSystem
	rootCA         = "kube-root-ca.crt"

	leaseSelector = leaseapi.FleetLabel + "=" + fleetName

	// settle is how long nearly simultaneous changes are collected.
	settle = 20 * time.Millisecond
)

// observer watches what the demo shows and waits for.
type observer struct {
	// all watches everything without a filter, leases the Leases in the fleet's namespace, among
	// them its leader lock, and rootCAs the root CA's ConfigMaps.
	all, leases, rootCAs informers.SharedInformerFactory

	mu      sync.Mutex
	changed chan struct{} // closed and replaced whenever something has changed
	timer   *time.Timer   // runs when a change is to be reported
}

// newObserver returns an observer that has seen everything and watches until ctx ends.
func newObserver(ctx context.Context, client kubernetes.Interface) (*observer, error) {
	o := &observer{
		all:    informers.NewSharedInformerFactory(client, 0),
		leases: informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(leaseNamespace)),
		rootCAs: informers.NewSharedInformerFactoryWithOptions(client, 0,
			informers.WithTweakListOptions(func(opts *metav1.ListOptions) {
				opts.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, rootCA).String()
			})),
		changed: make(chan struct{}),
	}
	told := cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { o.tell() }, UpdateFunc: func(any, any) { o.tell() }, DeleteFunc: func(any) { o.tell() },
	}
	for _, informer := range o.informers() {
		if _, err := informer.AddEventHandler(told); err != nil {
			return nil, err
		}
	}
	for _, factory := range []informers.SharedInformerFactory{o.all, o.leases, o.rootCAs} {
		factory.Start(ctx.Done())
	}
	for _, factory := range []informers.SharedInformerFactory{o.all, o.leases, o.rootCAs} {
		for kind, synced := range factory.WaitForCacheSync(ctx.Done()) {
			if !synced {
				return nil, fmt.Errorf("watching %v: %w", kind, context.Cause(ctx))
			}
		}
	}
	return o, nil
}

func (o *observer) informers() []cache.SharedIndexInformer {
	core, apps, batch := o.all.Core().V1(), o.all.Apps().V1(), o.all.Batch().V1()
	return []cache.SharedIndexInformer{
		o.leases.Coordination().V1().Leases().Informer(), o.rootCAs.Core().V1().ConfigMaps().Informer(),
		core.Namespaces().Informer(), core.ServiceAccounts().Informer(), core.ResourceQuotas().Informer(), core.Pods().Informer(),
		apps.Deployments().Informer(), apps.StatefulSets().Informer(), apps.DaemonSets().Informer(),
		batch.Jobs().Informer(), batch.CronJobs().Informer(),
		o.all.Policy().V1().PodDisruptionBudgets().Informer(), o.all.Discovery().V1().EndpointSlices().Informer(),
	}
}

// tell wakes the waiters, a little later.
func (o *observer) tell() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.timer != nil {
		return
	}
	o.timer = time.AfterFunc(settle, func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.timer = nil
		close(o.changed)
		o.changed = make(chan struct{})
	})
}

// next returns a channel that is closed at the next change.
func (o *observer) next() <-chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.changed
}

// await returns once the condition returns nil, and evaluates it after every change. If ctx ends
// first, its error has the cause and the condition's last error.
func (o *observer) await(ctx context.Context, condition func(view) error) error {
	for {
		next := o.next()
		err := condition(o.view())
		if err == nil {
			return nil
		}
		select {
		case <-next:
		case <-ctx.Done():
			return fmt.Errorf("%w; seen: %w", context.Cause(ctx), err)
		}
	}
}

// milestone is a condition, and how long it took to hold.
type milestone struct {
	condition func(view) error
	reached   bool
	after     time.Duration
}

// awaitAll waits for several conditions that need not hold at the same time, and records how long
// after began each first held.
func (o *observer) awaitAll(ctx context.Context, began time.Time, milestones ...*milestone) error {
	return o.await(ctx, func(v view) error {
		var errs []error
		for _, m := range milestones {
			if m.reached {
				continue
			}
			if err := m.condition(v); err != nil {
				errs = append(errs, err)
				continue
			}
			m.reached, m.after = true, time.Since(began)
		}
		return errors.Join(errs...)
	})
}

// view returns the current state.
func (o *observer) view() view {
	core, apps, batch := o.all.Core().V1(), o.all.Apps().V1(), o.all.Batch().V1()
	var leases []coordinationv1.Lease
	for _, lease := range must(o.leases.Coordination().V1().Leases().Lister().List(everything)) {
		leases = append(leases, *lease)
	}
	return view{
		leases:       leases,
		namespaces:   must(core.Namespaces().Lister().List(everything)),
		accounts:     must(core.ServiceAccounts().Lister().List(everything)),
		configMaps:   must(o.rootCAs.Core().V1().ConfigMaps().Lister().List(everything)),
		quotas:       must(core.ResourceQuotas().Lister().List(everything)),
		pods:         must(core.Pods().Lister().List(everything)),
		deployments:  must(apps.Deployments().Lister().List(everything)),
		statefulSets: must(apps.StatefulSets().Lister().List(everything)),
		daemonSets:   must(apps.DaemonSets().Lister().List(everything)),
		jobs:         must(batch.Jobs().Lister().List(everything)),
		cronJobs:     must(batch.CronJobs().Lister().List(everything)),
		budgets:      must(o.all.Policy().V1().PodDisruptionBudgets().Lister().List(everything)),
		slices:       must(o.all.Discovery().V1().EndpointSlices().Lister().List(everything)),
	}
}

var everything = k8slabels.Everything()

// must is for listers: a list from memory without a selector cannot fail.
func must[T any](list []T, err error) []T {
	if err != nil {
		panic(err)
	}
	return list
}
