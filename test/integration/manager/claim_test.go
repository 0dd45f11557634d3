package manager

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	ctrlmanager "sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/flotilla-kube/flotilla/pkg/election/fence"
	"github.com/flotilla-kube/flotilla/pkg/flotilla"
	"github.com/flotilla-kube/flotilla/test/harness"
)

// leaderLock creates a Lease that somebody else holds. A fleet that waits for it builds and warms,
// and owns nothing.
func leaderLock(t *testing.T) (name string, open func()) {
	t.Helper()
	leases := client.CoordinationV1().Leases(metav1.NamespaceDefault)
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: "lock-" + fleetName(t)},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: ptr.To("old-leader"), LeaseDurationSeconds: ptr.To[int32](3600),
			RenewTime: ptr.To(metav1.NowMicro()), AcquireTime: ptr.To(metav1.NowMicro()),
		},
	}
	lease, err := leases.Create(t.Context(), lease, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return lease.Name, func() {
		t.Helper()
		lease.Spec.HolderIdentity = ptr.To("")
		if _, err := leases.Update(t.Context(), lease, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// spied reports when each shard has been warmed up.
type spied struct {
	flotilla.Runnable
	warm chan<- struct{}
}

func (s spied) Warm(ctx context.Context) error {
	err := s.Runnable.(flotilla.Warmer).Warm(ctx)
	if err == nil {
		s.warm <- struct{}{}
	}
	return err
}

func (s spied) Close() { s.Runnable.(flotilla.Closer).Close() }

func requireEventuallySame(t *testing.T, reconciled *seen, shard string, want []string) {
	t.Helper()
	harness.Eventually(t, harness.Patience, shard+" has reconciled all there is", func(context.Context) error {
		got := reconciled.of(shard)
		slices.Sort(got)
		if !slices.Equal(got, want) {
			return fmt.Errorf("got %v, want %v", got, want)
		}
		return nil
	})
}

func TestNothingHappensBeforeTheClaim(t *testing.T) {
	t.Parallel()
	lease, open := leaderLock(t)
	var managers shards
	var reconciled seen
	var early, leading atomic.Int32
	warm := make(chan struct{}, 100)
	setup := func(s *flotilla.Shard, mgr ctrlmanager.Manager) error {
		// A controller whose source does not wait for the cache, so that only the leader lock holds
		// its workers back.
		pushed := make(chan event.GenericEvent, 1)
		pushed <- event.GenericEvent{Object: &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "pushed"}}}
		return errors.Join(
			reconciled.reconciles(s, mgr),
			builder.ControllerManagedBy(mgr).Named("pushed").WatchesRawSource(source.Channel(pushed, &handler.EnqueueRequestForObject{})).
				Complete(reconcile.Func(func(_ context.Context, r reconcile.Request) (reconcile.Result, error) {
					reconciled.note(s.String(), r.Namespace)
					return reconcile.Result{}, nil
				})),
			mgr.Add(ctrlmanager.RunnableFunc(func(ctx context.Context) error { leading.Add(1); <-ctx.Done(); return nil })),
			mgr.Add(always(func(ctx context.Context) error { early.Add(1); <-ctx.Done(); return nil })),
		)
	}
	f, _ := begin(t, plane.AdminConfig(), func(f *flotilla.Fleet) {
		f.Namespaced("a", managers.build(setup, func(r flotilla.Runnable) flotilla.Runnable { return spied{r, warm} }))
	}, func(o *flotilla.Options) { o.LeaderLocks, o.HandoffTimeout = []string{lease}, time.Minute })
	for range ranges {
		select {
		case <-warm:
		case <-time.After(harness.Patience):
			t.Fatal("a shard has not been warmed up")
		}
	}
	all := managers.get()
	for name, s := range all {
		requireWarmAndFenced(t, s)
		if got := reconciled.of(name); len(got) > 0 {
			t.Errorf("%s has reconciled %v before it is owned", name, got)
		}
	}
	if n := early.Load(); n != ranges {
		t.Errorf("%d runnables that need no leader election are running, want %d", n, ranges)
	}
	if n := leading.Load(); n != 0 {
		t.Errorf("%d runnables that need leader election are running", n)
	}

	open()
	awaitReady(t, f)
	for name, s := range managers.elected(t) {
		want := append(owned(s.Shard), "pushed")
		slices.Sort(want)
		requireEventuallySame(t, &reconciled, name, want)
	}
	harness.Eventually(t, harness.Patience, "all runnables run", func(context.Context) error {
		if n := leading.Load(); n != ranges {
			return fmt.Errorf("%d do, want %d", n, ranges)
		}
		return nil
	})
}

// always is a runnable that needs no leader election.
type always func(context.Context) error

func (a always) Start(ctx context.Context) error { return a(ctx) }
func (a always) NeedLeaderElection() bool        { return false }

// requireWarmAndFenced requires that the cache of an unowned shard is full and kept current, and
// that nothing can be written.
func requireWarmAndFenced(t *testing.T, s shardOf) {
	t.Helper()
	c, mine := s.mgr.GetClient(), owned(s.Shard)[0]
	select {
	case <-s.mgr.Elected():
		t.Errorf("%s says that it is elected", s.Shard)
	default:
	}
	// Before anybody reads: watched kinds are cached without a read.
	if n := s.Informers().Objects()[corev1.SchemeGroupVersion.WithResource("configmaps")]; n < len(owned(s.Shard)) {
		t.Errorf("the informers of %s hold %d ConfigMaps, want %d or more", s.Shard, n, len(owned(s.Shard)))
	}
	var list corev1.ConfigMapList
	if err := c.List(t.Context(), &list, ctrlclient.HasLabels{label}); err != nil || len(list.Items) != len(owned(s.Shard)) {
		t.Errorf("the cache of %s has %d ConfigMaps, %v; want %d", s.Shard, len(list.Items), err, len(owned(s.Shard)))
	}
	name := "written-" + fleetName(t)
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: mine}}
	if err := c.Create(t.Context(), m.DeepCopy()); !errors.Is(err, fence.ErrRefused) {
		t.Errorf("%s may write before it is owned: %v", s.Shard, err)
	}
	if _, err := client.CoreV1().ConfigMaps(mine).Create(t.Context(), m, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, harness.Patience, "the cache has seen what somebody else has written", func(ctx context.Context) error {
		return c.Get(ctx, ctrlclient.ObjectKeyFromObject(m), &corev1.ConfigMap{})
	})
}

// TestTheEndIsAwaited checks that a member releases a shard, and returns, only once its reconcilers
// have returned.
func TestTheEndIsAwaited(t *testing.T) {
	t.Parallel()
	began, goOn := make(chan struct{}, teams), make(chan struct{})
	var working atomic.Int32
	var managers shards
	f, end := begin(t, plane.AdminConfig(), func(f *flotilla.Fleet) {
		f.Namespaced("a", managers.build(func(_ *flotilla.Shard, mgr ctrlmanager.Manager) error {
			return builder.ControllerManagedBy(mgr).Named("slow").For(&corev1.ConfigMap{}).Complete(
				reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) {
					working.Add(1)
					defer working.Add(-1)
					select {
					case began <- struct{}{}:
					default:
					}
					<-goOn
					return reconcile.Result{}, nil
				}))
		}))
	}, func(o *flotilla.Options) { o.Ranges = 1 })
	awaitReady(t, f)
	<-began
	ended := make(chan error)
	go func() { ended <- end() }()
	select {
	case err := <-ended:
		t.Errorf("the fleet has ended with %v while a reconciler works", err)
	case <-time.After(time.Second): // there is no condition to wait for if nothing may happen
	}
	close(goOn)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if n := working.Load(); n != 0 {
		t.Errorf("the fleet has ended while %d reconcilers work", n)
	}
}
