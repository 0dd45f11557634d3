package flotilla

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"k8s.io/klog/v2"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/election/fence"
	"github.com/flotilla-kube/flotilla/pkg/fleet"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// checkRanges is the smallest number of ranges with which each instance finds namespaces that
// belong to another one.
const checkRanges = 2

// Check runs the controllers in this process, each namespaced controller once on each half of the
// namespaces. It reports the requests that they send outside of their half through [Shard.Config]
// and [Shard.Reading]. It does not see requests of a configuration that a controller got elsewhere.
// Use it in a test: with a cluster, or an API server of envtest, on which nothing else runs the
// controllers. Check uses no Leases, and does not need the fleet to run.
//
// When all caches are full, Check calls work, which gives the controllers something to do: it
// creates objects in namespaces of both halves, and returns once the controllers have dealt with
// them. Then the controllers end, and Check returns. They also end if work or a Build panics or
// ends its goroutine, as t.Fatal does. The report covers only what the controllers did while work
// ran.
//
// The error is work's, or says why the controllers could not be built or have ended, or which ones
// have not returned within Options.HandoffTimeout. There is a report once work was called. Check
// does not call Options.Exit. Options.Outside receives requests as in Run.
func (f *Fleet) Check(ctx context.Context, work func(ctx context.Context) error) (*Report, error) {
	c, err := f.newCheck(klog.FromContext(ctx))
	if err != nil {
		return nil, fmt.Errorf("flotilla: %w", err)
	}
	report, err := c.run(ctx, work)
	if err != nil {
		return report, fmt.Errorf("flotilla: check: %w", err)
	}
	return report, nil
}

// check is one call of Check.
type check struct {
	process *process
	halves  []*half
	notes   *notes
}

// half is one shard of a check: one of the two ranges, or a singleton.
type half struct {
	fleet       *Fleet
	shard       shard.Shard
	controllers []string
	instance    fleet.Instance
	fence       *fence.Fence
	// end ends the claim behind the fence.
	end context.CancelCauseFunc
	// owned is set while writes pass.
	owned atomic.Bool
	// closed is closed by the method close, once.
	closing sync.Once
	closed  chan struct{}
	// running is closed once Run waits for nothing.
	running chan struct{}
	// worked is set once the fence has let a write pass that is work on the half.
	worked atomic.Bool
}

func (f *Fleet) newCheck(logger klog.Logger) (*check, error) {
	f.mu.Lock()
	own := &Fleet{
		options: f.options, config: f.config, serverPath: f.serverPath,
		controllers: slices.Clone(f.controllers),
	}
	f.mu.Unlock()
	if len(own.controllers) == 0 {
		return nil, errNoControllers
	}
	own.options.Ranges = checkRanges
	c := &check{process: &process{Fleet: own, checking: true}}
	if err := c.process.connect(); err != nil {
		return nil, err
	}
	c.notes = newNotes(logger, c.process.namespaced)
	tell := own.options.Outside
	own.options.Outside = func(a Access) {
		c.notes.note(a)
		if tell != nil {
			tell(a)
		}
	}
	plan, err := own.plan()
	if err != nil {
		return nil, err
	}
	for _, s := range plan.Shards() {
		f, err := fence.New(fence.Config{
			Member: own.options.Member, Shard: s.ID.String(), ServerPath: own.serverPath,
			Clock: own.options.Clock,
		})
		if err != nil {
			return nil, err
		}
		c.halves = append(c.halves, &half{
			fleet: own, shard: s, controllers: plan.ControllersOf(s.ID), fence: f,
			end: func(error) {}, closed: make(chan struct{}), running: make(chan struct{}),
		})
	}
	return c, nil
}

var errNoControllers = errors.New(
	"there are no controllers: add them with Namespaced and Singleton")

func (c *check) run(
	ctx context.Context, work func(context.Context) error,
) (report *Report, err error) {
	if err := c.prepare(ctx); err != nil {
		return nil, err
	}
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	c.process.options.Exit = func(reason string) { fail(errors.New(reason)) }
	// The end of ctx ends work, but not the controllers: they return after it.
	controllers, end := context.WithCancel(context.WithoutCancel(ctx))
	ended := make([]chan struct{}, len(c.halves))
	for n, h := range c.halves {
		ended[n] = make(chan struct{})
		h.open(controllers, c.process.options.Member)
		go func() {
			defer close(ended[n])
			if err := h.instance.Run(controllers); err != nil {
				fail(err)
			}
		}()
	}
	// Deferred, since work may panic or end the goroutine: t.Fatal does.
	defer func() {
		end()
		if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
			err = errors.Join(err, cause)
		}
		err = errors.Join(err, c.finish(ended))
	}()
	if err := c.await(ctx); err != nil {
		return nil, err
	}
	err = work(ctx)
	return c.report(), err
}

// prepare builds the controllers and fills their caches, with writes refused, as in a fleet. If
// that fails, it closes everything that was built.
func (c *check) prepare(ctx context.Context) error {
	prepared := false
	// Deferred, since a Build may panic or end the goroutine.
	defer func() {
		if prepared {
			return
		}
		for _, h := range c.halves {
			h.giveUp()
		}
	}()
	for _, h := range c.halves {
		var err error
		if h.instance, err = c.process.build(ctx, h.work()); err != nil {
			return err
		}
	}
	var filling sync.WaitGroup
	errs := make([]error, len(c.halves))
	for n, h := range c.halves {
		filling.Go(func() {
			errs[n] = h.instance.Warm(ctx)
			if errs[n] == nil {
				errs[n] = h.instance.CatchUp(ctx, fence.Writes{})
			}
		})
	}
	filling.Wait()
	err := errors.Join(errs...)
	prepared = err == nil
	return err
}

// await returns once all controllers work.
func (c *check) await(ctx context.Context) error {
	for _, h := range c.halves {
		select {
		case <-h.running:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// finish returns once everything has ended, or with an error that names what is still running at
// the time when a fleet would refuse its writes.
func (c *check) finish(ended []chan struct{}) error {
	timeout := c.process.options.HandoffTimeout
	timer := c.process.options.Clock.NewTimer(timeout)
	defer timer.Stop()
	var errs []error
	late := false
	for n, h := range c.halves {
		if !late {
			select {
			case <-ended[n]:
			case <-timer.C():
				late = true
			}
		}
		h.close()
		select {
		case <-ended[n]:
		default:
			errs = append(errs, fmt.Errorf(
				"%v has not returned %v after its context ended, one of %s: a fleet refuses its writes "+
					"then; see %s", h.shard.ID, timeout, strings.Join(h.controllers, ", "), musts,
			))
		}
	}
	return errors.Join(errs...)
}

func (c *check) report() *Report {
	r := &Report{Findings: c.notes.findings()}
	for _, h := range c.halves {
		if h.shard.Namespaced() && !h.worked.Load() {
			r.Idle = append(r.Idle, h.shard.ID)
		}
	}
	return r
}

// work returns what a fleet would give to the shard.
func (h *half) work() fleet.Work {
	return fleet.Work{
		Shard: h.shard, Controllers: h.controllers, Share: 1, Shards: checkRanges,
		Fence: func(rt http.RoundTripper) http.RoundTripper {
			return h.fence.Wrap(noticed{rt, h, h.isWork})
		},
		FenceForeign: func(rt http.RoundTripper) http.RoundTripper {
			return h.fence.WrapForeign(noticed{rt, h, isForeignWork})
		},
		Term: func() int32 {
			if h.owned.Load() {
				return 1
			}
			return 0
		},
		Closed:  h.closed,
		Close:   h.close,
		Running: sync.OnceFunc(func() { close(h.running) }),
	}
}

// giveUp closes what was built but not run.
func (h *half) giveUp() {
	if h.instance != nil {
		h.instance.Close()
	}
	h.close()
}

// open lets writes pass until close.
func (h *half) open(ctx context.Context, member string) {
	ctx, h.end = context.WithCancelCause(context.WithoutCancel(ctx))
	h.fence.Open(election.EndlessClaim(ctx, h.shard.ID.String(), member))
	h.owned.Store(true)
}

var errChecked = errors.New("the check has ended")

// close stops all writes, including those in progress.
func (h *half) close() {
	h.closing.Do(func() {
		h.owned.Store(false)
		h.end(errChecked)
		h.fence.Close()
		close(h.closed)
	})
}

// isWork reports whether a request to the API server works on an object in the half's namespaces.
// A controller that reacts to something of the whole cluster does so on either half, whatever there
// is to do: it writes in the other half, cluster-scoped objects, or events about them.
func (h *half) isWork(req *http.Request) bool {
	path := h.fleet.pathOf(req)
	of, is := targetOf(path)
	if !is || of.namespace == "" || fence.IsAPIRead(req.Method, path) {
		return false
	}
	return h.shard.Range.ContainsNamespace(of.namespace) && !isEventOfNoNamespace(
		Access{Method: req.Method, Resource: of.resource, Namespace: of.namespace})
}

// isForeignWork is isWork for a request to another server, which says nothing of namespaces.
func isForeignWork(req *http.Request) bool { return !fence.IsRead(req.Method) }

// noticed tells a half of the work that reaches it.
type noticed struct {
	next   http.RoundTripper
	half   *half
	isWork func(*http.Request) bool
}

// WrappedRoundTripper lets client-go find the transport behind this one.
func (t noticed) WrappedRoundTripper() http.RoundTripper { return t.next }

// RoundTrip implements http.RoundTripper.
func (t noticed) RoundTrip(req *http.Request) (*http.Response, error) {
	if t.isWork(req) {
		t.half.worked.Store(true)
	}
	return t.next.RoundTrip(req)
}
