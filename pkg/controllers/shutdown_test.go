package controllers

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app"

	"github.com/flotilla-kube/flotilla/pkg/controllers/owners"
	"github.com/flotilla-kube/flotilla/pkg/controllers/queues"
	"github.com/flotilla-kube/flotilla/pkg/informer"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// lingering is a controller that keeps running after it was told to stop.
type lingering struct{ until <-chan struct{} }

func (lingering) Name() string          { return "lingering-controller" }
func (c lingering) Run(context.Context) { <-c.until }

// newInstance returns an instance of no controllers, which reads nothing.
func newInstance(t *testing.T) *Instance {
	t.Helper()
	nowhere := &rest.Config{Host: "http://nowhere.test"}
	pool, err := informer.NewPool(informer.PoolConfig{
		Client: kubernetes.NewForConfigOrDie(nowhere), Metadata: metadata.NewForConfigOrDie(nowhere),
	})
	if err != nil {
		t.Fatal(err)
	}
	return &Instance{
		start:     func(context.Context) {},
		informers: pool.NewFactory(shard.Everything(), nil),
		started:   make(chan struct{}), endpoints: NewEndpoints(), ctx: t.Context(), cancel: func() {},
		queues: queues.NewGroup("", ""), running: func() {}, count: func() func() { return func() {} }, late: func() error { return nil },
	}
}

// TestShutdownTimeout has a controller that keeps running in a process, which then ends, and in a
// shard, whose Run may not return until the controller has.
func TestShutdownTimeout(t *testing.T) {
	const linger = time.Minute
	for name, tc := range map[string]struct {
		timeout, want time.Duration
		err           error
	}{
		"a process that ends": {10 * time.Second, 10 * time.Second, ErrShutdownTimeout},
		"a shard":             {0, linger, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				until := make(chan struct{})
				i := newInstance(t)
				i.controllers, i.shutdown = []app.Controller{lingering{until}}, tc.timeout
				ctx, stop := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- i.Run(ctx) }()
				synctest.Wait()
				stop()
				told := time.Now()
				time.AfterFunc(linger, func() { close(until) })
				if err := <-ended; !errors.Is(err, tc.err) || time.Since(told) != tc.want {
					t.Errorf("Run returned %v %v after it was told to stop, want %v after %v", err, time.Since(told), tc.err, tc.want)
				}
				<-until
			})
		})
	}
}

// unread are informers that are never started.
type unread struct {
	informers.SharedInformerFactory
}

func (unread) Start(<-chan struct{}) {}

// TestOwnersEndWithTheInstance has informers of a garbage collector that wait for a kind. The
// bubble fails if a goroutine is left.
func TestOwnersEndWithTheInstance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := newInstance(t)
		i.owners = owners.First(unread{informers.NewSharedInformerFactory(fake.NewClientset(), 0)}, nil)
		if _, err := i.owners.ForResource(corev1.SchemeGroupVersion.WithResource("pods")); err != nil {
			t.Fatal(err)
		}
		i.owners.Start(nil)
		synctest.Wait()
		i.Close()
	})
}

// TestStopWhileAConstructorWaits ends a shard while a controller that is built late waits for the
// API server: Run returns when the constructor does, and nothing has run.
func TestStopWhileAConstructorWaits(t *testing.T) {
	for name, late := range map[string]error{"the constructor fails": errors.New("could not list"), "it succeeds": nil} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				i := newInstance(t)
				i.ctx, i.cancel = context.WithCancel(t.Context())
				i.running = func() { t.Error("something has run") }
				i.late = func() error {
					<-i.ctx.Done()
					return late
				}
				ctx, stop := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- i.Run(ctx) }()
				synctest.Wait()
				stop()
				if err := <-ended; err != nil {
					t.Error(err)
				}
			})
		})
	}
}
