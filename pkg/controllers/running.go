package controllers

import (
	"context"
	"sync"

	"k8s.io/kubernetes/cmd/kube-controller-manager/app"

	"github.com/flotilla-kube/flotilla/pkg/controllers/queues"
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

// grouped returns the controllers such that queues which they make when they run count for the shard, too.
func (i *Instance) grouped() []app.Controller {
	all := make([]app.Controller, 0, len(i.controllers))
	for _, c := range i.controllers {
		all = append(all, groupedController{c, i.queues})
	}
	return all
}

type groupedController struct {
	app.Controller
	queues *queues.Group
}

// Run implements app.Controller.
func (c groupedController) Run(ctx context.Context) { c.queues.Do(func() { c.Controller.Run(ctx) }) }
