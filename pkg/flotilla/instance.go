package flotilla

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/election/fence"
	"github.com/flotilla-kube/flotilla/pkg/fleet"
	"github.com/flotilla-kube/flotilla/pkg/informer"
)

// instance has the controllers of one shard.
type instance struct {
	process   *process
	work      fleet.Work
	informers *informer.Factory
	runnables []named
	// left are those that have not returned from what was called last.
	left remaining
	// failed ends with the first error of a controller, given to fail.
	failed context.Context // Lives exactly as long as the instance.
	fail   context.CancelCauseFunc
	// warm is set once the caches have been filled. The methods of one instance are never called
	// concurrently.
	warm bool
}

type named struct {
	Runnable
	name string
}

var _ interface {
	fleet.Instance
	fleet.Refresher
	fleet.Forgetter
	fleet.Weigher
	fleet.Loader
} = &instance{}

// build makes the controllers of a shard, in the order in which they were added.
func (p *process) build(ctx context.Context, work fleet.Work) (fleet.Instance, error) {
	i := &instance{
		process: p, work: work, informers: p.pool.NewFactory(work.Shard.Range, p.namespaced),
	}
	i.failed, i.fail = context.WithCancelCause(context.WithoutCancel(ctx))
	if work.Shard.Namespaced() {
		i.informers.OnlyRange()
	}
	built := false
	// Deferred, since a Build may panic or end the goroutine.
	defer func() {
		if !built {
			i.Close()
			i.Forget()
		}
	}()
	for _, c := range p.controllers {
		if !slices.Contains(work.Controllers, c.name) {
			continue
		}
		s := &Shard{process: p, work: work, informers: i.informers, controller: c, fail: i.fail}
		logger := klog.LoggerWithValues(klog.FromContext(ctx), "controller", c.name, "shard", s.String())
		r, err := c.build(klog.NewContext(ctx, logger), s)
		if err == nil && r == nil {
			err = errors.New("the function has returned nil")
		}
		if err != nil {
			return nil, fmt.Errorf("building controller %s for shard %s: %w", c.name, s, err)
		}
		i.runnables = append(i.runnables, named{r, c.name})
	}
	built = true
	return i, nil
}

// namespaced is an informer.ScopeFunc.
func (p *process) namespaced(gvr schema.GroupVersionResource) (bool, error) {
	kind, err := p.mapper.KindFor(gvr)
	if err != nil {
		p.mapper.Reset() // the kind may be new
		if kind, err = p.mapper.KindFor(gvr); err != nil {
			return false, err
		}
	}
	mapping, err := p.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return false, err
	}
	return mapping.Scope.Name() == meta.RESTScopeNameNamespace, nil
}

// Warm implements fleet.Instance. It fills the informers and the controllers' own caches at the
// same time.
func (i *instance) Warm(ctx context.Context) error {
	return i.unlessFailed(ctx, i.fill)
}

// unlessFailed calls f with a context that also ends when the instance fails. It returns the
// instance's error then, and otherwise f's.
func (i *instance) unlessFailed(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(i.failed, cancel)()
	err := f(ctx)
	if i.failed.Err() != nil {
		return context.Cause(i.failed)
	}
	return err
}

// fill is Warm, but goes on if the instance fails: a cache that cannot be filled fails it.
func (i *instance) fill(ctx context.Context) error {
	var filling sync.WaitGroup
	fill := func(what string, warm func(context.Context) error) {
		filling.Go(func() {
			if err := warm(ctx); err != nil && ctx.Err() == nil {
				i.fail(fmt.Errorf("filling the caches of %s%s: %w", what, i.work.Shard.ID, err))
			}
		})
	}
	fill("", i.informers.Warm)
	for _, r := range i.runnables {
		if w, ok := r.Runnable.(Warmer); ok {
			i.left.add(r.name)
			fill("controller "+r.name+" for ", func(ctx context.Context) error {
				defer i.left.remove(r.name)
				return w.Warm(ctx)
			})
		}
	}
	filling.Wait()
	i.warm = ctx.Err() == nil
	return context.Cause(ctx)
}

// CatchUp implements fleet.Instance.
func (i *instance) CatchUp(ctx context.Context, writes fence.Writes) error {
	marks := map[schema.GroupResource]informer.Mark{}
	for resource, mark := range writes.Marks() {
		marks[resource] = informer.Mark(mark)
	}
	return i.unlessFailed(ctx, func(ctx context.Context) error {
		return i.informers.CatchUp(ctx, marks)
	})
}

// Refresh implements fleet.Refresher.
func (i *instance) Refresh(ctx context.Context) error {
	return i.unlessFailed(ctx, i.informers.Refresh)
}

// Run implements fleet.Instance. The informers keep running until the last controller has returned.
// If nothing was prepared, Run fills the caches first: a shard does not run before that.
func (i *instance) Run(ctx context.Context) error {
	if !i.warm && i.warmOrClose(ctx) != nil {
		return context.Cause(i.failed) // nil if only ctx has ended
	}
	i.informers.StartWithContext(context.WithoutCancel(ctx))
	asked := ctx
	ctx, cancel := context.WithCancel(asked)
	defer cancel()
	defer context.AfterFunc(i.failed, cancel)()
	var running sync.WaitGroup
	for _, r := range i.runnables {
		i.left.add(r.name)
		running.Go(func() {
			defer i.left.remove(r.name)
			switch err := r.Run(ctx); {
			case ctx.Err() != nil:
			case err != nil:
				i.fail(fmt.Errorf("controller %s on %s: %w", r.name, i.work.Shard.ID, err))
			default:
				klog.FromContext(ctx).Info("A controller has returned without being asked to, and its shard does without it",
					"controller", r.name, "shard", i.work.Shard.ID)
			}
		})
	}
	running.Go(func() {
		if i.informers.AwaitFilled(ctx) == nil {
			i.work.Running()
		}
	})
	<-ctx.Done() // even if every controller returns because it has nothing to do
	err := context.Cause(i.failed)
	i.await(asked, func() {
		running.Wait()
		i.shutdown()
	})
	return err
}

// warmOrClose is Warm, with the bounds of Run. If it returns an error, the instance is closed.
func (i *instance) warmOrClose(ctx context.Context) error {
	var err error
	i.await(ctx, func() {
		if err = i.Warm(ctx); err != nil {
			i.Close()
		}
	})
	return err
}

// await calls f. How long f may take after asked has ended is bounded by the claim. If it is to end
// because a controller has failed, nobody else would notice that another one does not return: the
// shard is owned, and nothing works on it. Then the fence closes after HandoffTimeout, as it does
// when a shard is handed over, and a LeaseDuration later the process ends.
func (i *instance) await(asked context.Context, f func()) {
	returned := make(chan struct{})
	go func() { // which ends when await does
		f()
		close(returned)
	}()
	select {
	case <-returned:
	case <-asked.Done():
	case <-i.failed.Done():
	}
	o := i.process.options
	lasts := func(d time.Duration) bool {
		election.Await(asked, o.Clock, returned, d)
		select {
		case <-returned:
			return false
		default:
			return asked.Err() == nil
		}
	}
	if lasts(o.HandoffTimeout) {
		i.work.Close()
		if lasts(o.Timing.LeaseDuration) {
			o.Exit(fmt.Sprintf("%v, and %v later these have not returned: %s",
				context.Cause(i.failed), o.HandoffTimeout+o.Timing.LeaseDuration,
				strings.Join(i.left.list(), ", ")))
		}
	}
	<-returned
}

// remaining are names of controllers, and of what else runs. Its methods may be called
// concurrently.
type remaining struct {
	mu    sync.Mutex
	names []string
}

func (r *remaining) add(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.names = append(r.names, name)
}

func (r *remaining) remove(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.names = slices.DeleteFunc(r.names, func(n string) bool { return n == name })
}

func (r *remaining) list() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.names)
}

// Close implements fleet.Instance.
func (i *instance) Close() {
	for _, r := range i.runnables {
		if c, ok := r.Runnable.(Closer); ok {
			i.left.add(r.name)
			c.Close()
			i.left.remove(r.name)
		}
	}
	i.shutdown()
}

func (i *instance) shutdown() {
	const handlers = "handlers of its informers"
	i.left.add(handlers)
	i.informers.Shutdown()
	i.left.remove(handlers)
}

// Forget implements fleet.Forgetter.
func (i *instance) Forget() { i.informers.Forget() }

// Weigh implements fleet.Weigher.
func (i *instance) Weigh() map[string]int64 { return i.informers.Weights() }

// Load implements fleet.Loader.
func (i *instance) Load() (fleet.Load, bool) {
	load, there := i.informers.Load()
	return fleet.Load{Namespaces: load.Namespaces, Shared: load.Shared}, there
}
