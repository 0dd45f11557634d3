package controllers

import (
	"context"
	"sync"
	"time"

	"k8s.io/kubernetes/cmd/kube-controller-manager/app"

	"github.com/flotilla-kube/flotilla/pkg/controllers/queues"
	"github.com/flotilla-kube/flotilla/pkg/election"
)

// announce calls running once all caches are full, at once if they are: then the controllers have nothing more to wait for. What
// it returns waits for that or the end of ctx.
func (i *Instance) announce(ctx context.Context) (wait func()) {
	if i.informers.HasSynced() {
		i.running()
		return func() {}
	}
	var waiting sync.WaitGroup
	waiting.Go(func() {
		// Not all that there will ever be: controllers that follow discovery add informers while they run.
		if result := i.informers.WaitForCacheSyncWithContext(ctx); result.Err == nil {
			i.running()
		}
	})
	return waiting.Wait
}

// grouped returns the controllers such that each begins when it may, and queues which it makes when
// it runs count for the shard, too.
func (i *Instance) grouped() []app.Controller {
	all := make([]app.Controller, 0, len(i.controllers))
	for _, c := range i.controllers {
		if i.idle.Has(c.Name()) {
			c = idle{c}
		}
		all = append(all, groupedController{c, i.queues, i.start})
	}
	return all
}

type groupedController struct {
	app.Controller
	queues *queues.Group
	start  func(context.Context)
}

// idle is a controller that does nothing. As when an instance is closed, it is run in the end with a
// context that has ended: only so does it end what its constructor has started.
type idle struct{ app.Controller }

// Run implements app.Controller.
func (c idle) Run(ctx context.Context) {
	<-ctx.Done()
	c.Controller.Run(ctx)
}

// Run implements app.Controller. A controller whose context has ended before it may begin is run
// all the same: only so does it end what its constructor has started.
func (c groupedController) Run(ctx context.Context) {
	c.start(ctx)
	c.queues.Do(func() { c.Controller.Run(ctx) })
}

// pause returns after d, or when ctx ends.
func pause(ctx context.Context, clock election.Clock, d time.Duration) {
	if d <= 0 {
		return
	}
	timer := clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C():
	case <-ctx.Done():
	}
}
