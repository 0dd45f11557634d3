package cloud

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"

	"k8s.io/klog/v2"

	"github.com/flotilla-kube/flotilla/pkg/election/fence"
)

// owner is the part of a flotilla.Shard that a guard needs.
type owner interface {
	String() string
	Closed() <-chan struct{}
	Wrap(http.RoundTripper) http.RoundTripper
	WrapAPI(http.RoundTripper) http.RoundTripper
	Fail(error)
}

// guard lets calls to the cloud begin only while a shard runs and is owned, and knows which calls
// are in progress. A new guard refuses all. Its methods may be called concurrently, run once.
type guard struct {
	shard owner
	// value is put into the context of every call, for Transport and ShardOf.
	value any

	mu      sync.Mutex
	running context.Context // nil before run, and after it
	owned   context.Context // ends when no write passes any more
	calls   sync.WaitGroup  // Add under mu, and only while running is there
}

// run lets calls begin until ctx ends. Then it returns, once all calls that have begun have
// returned. Meanwhile it calls work, whose error ends the guard as well, and fails the shard at
// once: a call may never return.
func (g *guard) run(ctx context.Context, work func(context.Context) error) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	owned, disown := context.WithCancelCause(context.WithoutCancel(ctx))
	defer disown(nil)
	g.mu.Lock()
	g.running, g.owned = ctx, owned
	g.mu.Unlock()

	var watching sync.WaitGroup
	watching.Go(func() {
		select {
		case <-g.shard.Closed():
			disown(g.refusal())
		case <-owned.Done():
		}
	})
	err := work(ctx)
	if err != nil && ctx.Err() == nil {
		g.shard.Fail(err)
	}
	stop()
	g.mu.Lock()
	g.running = nil
	g.mu.Unlock()
	g.calls.Wait()
	disown(nil)
	watching.Wait()
	return err
}

func (g *guard) refusal() error { return &fence.RefusedError{Shard: g.shard.String()} }

// enter begins a call. The returned context has the caller's deadline, and ends when the caller
// gives the call up. It does not end with the shard's work: a call that has begun may finish, until
// no write passes any more. leave must be called when the call has returned, and ends the context.
//
// Once the work is to end, a caller's cancellation does not count: it is almost always that end, in
// a context that some controllers make of a channel, which hides where it comes from.
func (g *guard) enter(ctx context.Context) (call context.Context, leave func(), err error) {
	g.mu.Lock()
	running, owned := g.running, g.owned
	if running == nil || running.Err() != nil {
		g.mu.Unlock()
		return nil, nil, fmt.Errorf("calling the cloud: the shard is not run here: %w", g.refusal())
	}
	g.calls.Add(1)
	g.mu.Unlock()
	if err := passes(g.shard); err != nil {
		g.calls.Done()
		return nil, nil, fmt.Errorf("calling the cloud: %w", err)
	}
	call, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	call = context.WithValue(call, shardKey{}, g.value)
	expire := func() {}
	if deadline, has := ctx.Deadline(); has {
		call, expire = context.WithDeadline(call, deadline)
	}
	unhear := context.AfterFunc(ctx, func() {
		if running.Err() == nil && !errors.Is(ctx.Err(), context.DeadlineExceeded) {
			cancel(context.Cause(ctx))
		}
	})
	unclose := context.AfterFunc(owned, func() { cancel(context.Cause(owned)) })
	return call, func() {
		unhear()
		unclose()
		expire()
		cancel(nil)
		g.calls.Done()
	}, nil
}

// passes returns nil if a write of the shard would be sent now: it asks the fence, which reads the
// clock.
func passes(shard owner) error {
	resp, err := shard.Wrap(nowhere{}).RoundTrip(probe.Clone(context.Background()))
	if err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.Body.Close()
}

var probe, _ = http.NewRequest(http.MethodPost, "http://fence.invalid/", nil)

// nowhere answers requests that must not be sent.
type nowhere struct{}

func (nowhere) RoundTrip(req *http.Request) (*http.Response, error) {
	return &http.Response{
		StatusCode: http.StatusNoContent, Body: io.NopCloser(strings.NewReader("")), Request: req,
	}, nil
}

// through makes one call to the cloud with a result.
func through[T any](
	ctx context.Context, g *guard, what string, f func(context.Context) (T, error),
) (T, error) {
	call, leave, err := g.enter(ctx)
	if err != nil {
		var none T
		return none, fmt.Errorf("%s: %w", what, err)
	}
	defer leave()
	result, err := f(call)
	if err != nil && call.Err() != nil && ctx.Err() == nil {
		klog.FromContext(ctx).V(2).Info(
			"A call to the cloud was given up", "call", what, "shard", g.shard.String(), "cause",
			context.Cause(call),
		)
	}
	return result, err
}

// do makes one call to the cloud without a result.
func do(ctx context.Context, g *guard, what string, f func(context.Context) error) error {
	_, err := through(ctx, g, what, func(call context.Context) (struct{}, error) {
		return struct{}{}, f(call)
	})
	return err
}
