package controllers

import (
	"context"
	"sync"
	"time"

	"k8s.io/kubernetes/cmd/kube-controller-manager/app"

	"github.com/flotilla-kube/flotilla/pkg/controllers/queues"
	"github.com/flotilla-kube/flotilla/pkg/election"
)

// announce calls running once all caches are full, at once if they are: then the controllers have
// nothing more to wait for. Caches of resources that cannot be read do not count: only the garbage
// collector and the quota controller need them, and wait by themselves. wait returns after that, or
// after the end of ctx.
func (i *Instance) announce(ctx context.Context) (wait func()) {
	if i.informers.HasSynced() {
		i.running()
		return func() {}
	}
	var waiting sync.WaitGroup
	waiting.Go(func() {
		// There may be more later: controllers that follow discovery add informers while they run.
		if i.informers.AwaitFilled(ctx) == nil {
			i.running()
		}
	})
	return waiting.Wait
}

// grouped wraps the controllers so that each begins when it may, and queues that it makes when it
// runs count for the shard, too.
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

// idle is a controller that does nothing. At the end it runs the controller with a context that has
// ended, as when an instance is closed: only so does the controller end what its constructor
// started.
type idle struct{ app.Controller }

// Run implements app.Controller.
func (c idle) Run(ctx context.Context) {
	<-ctx.Done()
	c.Controller.Run(ctx)
}

// Run implements app.Controller. It runs the controller even if its context ends before it may
// begin: only so does the controller end what its constructor started.
func (c groupedController) Run(ctx context.Context) {
	c.start(ctx)
	c.queues.Do(func() { c.Controller.Run(ctx) })
}

// pause returns after d, or when ctx ends.
func pause(ctx context.Context, clock election.Clock, d time.Duration) {
	if d > 0 {
		election.Await(ctx, clock, nil, d)
	}
}
