package sim

import (
	"cmp"
	"context"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/flotilla-kube/flotilla/pkg/election/leasetest"
)

// deadConnection is how long client-go keeps a connection whose pings go unanswered.
const deadConnection = 45 * time.Second

// barrierClient is a process's client for Leases. Its requests and their answers pass the process's
// barrier.
type barrierClient struct {
	process *process
	client  *leasetest.Client
}

// behindBarrier sends a request. If the process is suspended after that, the server still carries
// it out, and the answer waits.
func behindBarrier[T any](c barrierClient, request func() (T, error)) (T, error) {
	var none T
	if err := c.process.barrier.pass(); err != nil {
		return none, err
	}
	c.process.sim.step()
	value, err := request()
	if dead := c.process.barrier.pass(); dead != nil {
		return none, dead
	}
	return value, err
}

// Get implements fleet.Leases, as do the four methods below.
func (c barrierClient) Get(ctx context.Context, name string, opts metav1.GetOptions) (*coordinationv1.Lease, error) {
	return behindBarrier(c, func() (*coordinationv1.Lease, error) { return c.client.Get(ctx, name, opts) })
}

func (c barrierClient) List(ctx context.Context, opts metav1.ListOptions) (*coordinationv1.LeaseList, error) {
	ctx, cancel := context.WithTimeout(ctx, deadConnection)
	defer cancel()
	return behindBarrier(c, func() (*coordinationv1.LeaseList, error) { return c.client.List(ctx, opts) })
}

func (c barrierClient) Create(ctx context.Context, lease *coordinationv1.Lease, opts metav1.CreateOptions) (*coordinationv1.Lease, error) {
	return behindBarrier(c, func() (*coordinationv1.Lease, error) { return c.client.Create(ctx, lease, opts) })
}

func (c barrierClient) Update(ctx context.Context, lease *coordinationv1.Lease, opts metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	return behindBarrier(c, func() (*coordinationv1.Lease, error) {
		c.process.sim.judgeUpdate(c.process, lease)
		return c.client.Update(ctx, lease, opts)
	})
}

func (c barrierClient) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	ctx, cancel := context.WithCancel(ctx)
	dead := time.AfterFunc(deadConnection, cancel)
	return behindBarrier(c, func() (watch.Interface, error) {
		inner, err := c.client.Watch(ctx, opts)
		if !dead.Stop() || err != nil {
			cancel()
			return nil, cmp.Or(err, context.DeadlineExceeded)
		}
		w := &barrierWatch{Interface: inner, cancel: cancel, events: make(chan watch.Event), done: make(chan struct{})}
		go w.pump(ctx, c.process)
		return w, nil
	})
}

type barrierWatch struct {
	watch.Interface
	events chan watch.Event
	done   chan struct{}
	cancel context.CancelFunc
}

// ResultChan implements watch.Interface.
func (w *barrierWatch) ResultChan() <-chan watch.Event { return w.events }

// Stop implements watch.Interface.
func (w *barrierWatch) Stop() {
	select {
	case <-w.done:
	default:
		close(w.done)
	}
	w.Interface.Stop()
}

func (w *barrierWatch) pump(ctx context.Context, p *process) {
	defer w.cancel()
	defer close(w.events)
	for event := range w.Interface.ResultChan() {
		if p.barrier.pass() != nil {
			w.Interface.Stop()
			return
		}
		select {
		case <-time.After(p.blind()):
		case <-ctx.Done(): // Nobody else makes virtual time pass.
			return
		}
		select {
		case w.events <- event:
		case <-w.done:
			return
		}
	}
	_ = p.barrier.pass() // A suspended process does not see its connection end.
}
