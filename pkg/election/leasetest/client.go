package leasetest

import (
	"context"
	"errors"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// Fault is what happens to one request. The zero value is none.
type Fault struct {
	// Out and Back are how long the request and its answer take to arrive. A client that gives up
	// meanwhile does not recall the request.
	Out, Back time.Duration
	// LoseRequest: the server never sees the request. The client waits until its context ends.
	LoseRequest bool
	// LoseReply: the server executes the request, but the client waits until its context ends.
	LoseReply bool
	// Conflict: the server refuses a create or update as if another write had come first.
	Conflict bool
	// Error: the server fails the request at once, without executing it.
	Error bool
}

// Client is one member's connection to a Store. It serves only the verbs that the fleet may use.
// Its fault methods take any of get, list, watch, create and update; no verb means all. Methods are
// safe for concurrent use.
type Client struct {
	store *Store
	name  string

	mu      sync.Mutex
	blocked map[string]chan struct{} // closed by Unblock
	queued  map[string][]Fault
	script  func(verb string) Fault
	lag     time.Duration
}

// Verbs are the verbs that a Client serves.
var Verbs = []string{"get", "list", "watch", "create", "update"}

func newClient(store *Store, name string) *Client {
	return &Client{store: store, name: name, blocked: make(map[string]chan struct{}), queued: make(map[string][]Fault)}
}

// Block holds back requests, and watch events, until Unblock.
func (c *Client) Block(verbs ...string) {
	c.each(verbs, func(verb string) {
		if c.blocked[verb] == nil {
			c.blocked[verb] = make(chan struct{})
		}
	})
}

// Unblock ends Block. Requests whose context has not ended continue.
func (c *Client) Unblock(verbs ...string) {
	c.each(verbs, func(verb string) {
		if c.blocked[verb] != nil {
			close(c.blocked[verb])
			delete(c.blocked, verb)
		}
	})
}

// Drop loses the next n requests.
func (c *Client) Drop(n int, verbs ...string) { c.queue(n, Fault{LoseRequest: true}, verbs) }

// DropReply has the server execute the next n requests, and loses their answers.
func (c *Client) DropReply(n int, verbs ...string) { c.queue(n, Fault{LoseReply: true}, verbs) }

// Delay delays the next n requests by out, and their answers by back.
func (c *Client) Delay(n int, out, back time.Duration, verbs ...string) {
	c.queue(n, Fault{Out: out, Back: back}, verbs)
}

// Conflict refuses the next n creates and updates.
func (c *Client) Conflict(n int) { c.queue(n, Fault{Conflict: true}, []string{"create", "update"}) }

// Fail answers the next n requests of each verb with an error.
func (c *Client) Fail(n int, verbs ...string) { c.queue(n, Fault{Error: true}, verbs) }

// Script calls fault for each request that has no queued fault. nil ends it.
func (c *Client) Script(fault func(verb string) Fault) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.script = fault
}

// LagWatch delays further watch events by d.
func (c *Client) LagWatch(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lag = d
}

// Heal ends all faults but Script. Requests under way keep theirs.
func (c *Client) Heal() {
	c.Unblock()
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.queued)
	c.lag = 0
}

// Get implements LeaseInterface, as do the four methods below.
func (c *Client) Get(ctx context.Context, name string, _ metav1.GetOptions) (*coordinationv1.Lease, error) {
	return do(ctx, c, "get", func() (*coordinationv1.Lease, error) { return c.store.get(name) })
}

// List returns all Leases.
func (c *Client) List(ctx context.Context, _ metav1.ListOptions) (*coordinationv1.LeaseList, error) {
	return do(ctx, c, "list", func() (*coordinationv1.LeaseList, error) { return c.store.list(), nil })
}

// Watch watches all Leases.
func (c *Client) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	return do(ctx, c, "watch", func() (watch.Interface, error) { return c.store.watch(ctx, c, opts) })
}

// Create writes a new Lease.
func (c *Client) Create(ctx context.Context, lease *coordinationv1.Lease, _ metav1.CreateOptions) (*coordinationv1.Lease, error) {
	lease = lease.DeepCopy()
	return do(ctx, c, "create", func() (*coordinationv1.Lease, error) { return c.store.create(c.name, lease) })
}

// Update writes an existing Lease.
func (c *Client) Update(ctx context.Context, lease *coordinationv1.Lease, _ metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	lease = lease.DeepCopy()
	return do(ctx, c, "update", func() (*coordinationv1.Lease, error) { return c.store.update(c.name, lease) })
}

func (c *Client) each(verbs []string, f func(verb string)) {
	if len(verbs) == 0 {
		verbs = Verbs
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, verb := range verbs {
		f(verb)
	}
}

func (c *Client) queue(n int, fault Fault, verbs []string) {
	c.each(verbs, func(verb string) {
		for range n {
			c.queued[verb] = append(c.queued[verb], fault)
		}
	})
}

// next takes the fault for one request, and the channel to wait for; nil if the verb is not
// blocked.
func (c *Client) next(verb string) (Fault, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if queue := c.queued[verb]; len(queue) > 0 {
		c.queued[verb] = queue[1:]
		return queue[0], c.blocked[verb]
	}
	if c.script != nil {
		return c.script(verb), c.blocked[verb]
	}
	return Fault{}, c.blocked[verb]
}

// do executes one request with its fault. The server's part runs on its own goroutine, because it
// does not stop when the client gives up.
func do[T any](ctx context.Context, c *Client, verb string, serve func() (T, error)) (T, error) {
	var none T
	fault, blocked := c.next(verb)
	if blocked != nil {
		select {
		case <-blocked:
		case <-ctx.Done():
			return none, ctx.Err()
		}
	}
	if err := ctx.Err(); err != nil {
		return none, err
	}
	if fault.LoseRequest {
		<-ctx.Done()
		return none, ctx.Err()
	}
	if fault.Conflict {
		return none, apierrors.NewConflict(resource, "", errors.New("injected"))
	}
	if fault.Error {
		return none, apierrors.NewInternalError(errors.New("injected"))
	}
	type answer struct {
		value T
		err   error
	}
	answers := make(chan answer, 1)
	c.store.requests.Go(func() {
		pause(fault.Out)
		value, err := serve()
		pause(fault.Back)
		if !fault.LoseReply {
			answers <- answer{value, err}
		}
	})
	select {
	case a := <-answers:
		return a.value, a.err
	case <-ctx.Done():
		return none, ctx.Err()
	}
}

func pause(d time.Duration) {
	if d > 0 {
		<-time.After(d)
	}
}
