package fence

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/flotilla-kube/flotilla/internal/apiresponse"
	"github.com/flotilla-kube/flotilla/internal/faults"
)

var _ utilnet.RoundTripperWrapper = &transport{}

type transport struct {
	fence *Fence
	next  http.RoundTripper
	// foreign is set if next does not lead to the API server.
	foreign bool
}

// WrappedRoundTripper lets client-go find the transport behind the fence.
func (t *transport) WrappedRoundTripper() http.RoundTripper { return t.next }

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	claim := t.fence.behind()
	req = t.identify(req, claim)
	path := t.fence.pathOf(req)
	if t.reads(req.Method, path) {
		return t.read(req, claim)
	}
	if claim == nil {
		t.fence.cfg.OnRefused(RefusalClosed)
		return nil, t.refuse(req, claim)
	}
	given, elsewhere := req.Context(), t.elsewhere(path)
	ctx, cancel := t.bound(given, claim, elsewhere)
	req = req.WithContext(ctx)
	// Checked immediately before sending, with a fresh reading of the clock.
	if now := t.fence.cfg.Clock.Now(); !faults.FenceOff && !(claim.Valid(now) && t.fence.cfg.Permit(now)) {
		cancel()
		if claim.Valid(now) {
			t.fence.cfg.OnRefused(RefusalNotPermitted)
		} else {
			t.fence.cfg.OnRefused(RefusalExpired)
		}
		return nil, t.refuse(req, claim)
	}
	if err := given.Err(); err != nil { // its own context would outlive that
		cancel()
		closeBody(req)
		return nil, err
	}
	t.timed(req, claim)
	t.fence.sent.Add(1)
	resource := ""
	if !elsewhere {
		resource = resourceOf(path)
	}
	ended := t.fence.written.begin(resource)
	resp, err := t.next.RoundTrip(req)
	switch {
	case elsewhere:
	case err != nil && !faults.UnansweredForgotten:
		t.fence.written.unanswered(path)
	case err == nil && resp.Body != nil:
		resp.Body = t.fence.written.answered(req.Method, path, resp)
	}
	if err == nil && resp.StatusCode == http.StatusSwitchingProtocols {
		ended() // A connection is no write under way, however long it is open.
	}
	return t.bounded(ctx, claim, func() { cancel(); ended() }, resp, err)
}

// reads reports whether a request cannot change anything. path is its API path.
func (t *transport) reads(method, path string) bool {
	if t.foreign {
		return IsRead(method)
	}
	return IsAPIRead(method, path)
}

// elsewhere reports whether a write goes to something other than the API's objects: to another
// server, or through the API server to a pod, a service or a node. The next holder's caches do not
// show what it changes.
func (t *transport) elsewhere(path string) bool {
	return t.foreign || apiresponse.IsConnection(path)
}

// resourceOf returns the name of the resource that a write to an API path is to; empty for a path
// without one.
func resourceOf(path string) string {
	resource, ok := apiresponse.Resource(path)
	if !ok {
		return ""
	}
	return resource.String()
}

// timed makes the body of req, which is the transport's own, end with an error once the claim's
// Lease has expired. Between the check above and the system call a connection's other goroutines
// have their turns, and the transport may try again on another connection: a process that is
// suspended there would send the request when it resumes. A body is read immediately before it is
// sent, and a server does nothing with half a request.
func (t *transport) timed(req *http.Request, claim Claim) {
	if req.Body == nil || req.Body == http.NoBody || faults.FenceOff {
		return
	}
	expired := func() error {
		expiry := claim.Expiry()
		if expiry.IsZero() || t.fence.cfg.Clock.Now().Before(expiry) {
			return nil
		}
		t.fence.cfg.OnRefused(RefusalExpired)
		return t.error(claim)
	}
	req.Body = timedBody{req.Body, expired}
	if again := req.GetBody; again != nil {
		req.GetBody = func() (io.ReadCloser, error) {
			body, err := again()
			if err != nil {
				return nil, err
			}
			return timedBody{body, expired}, nil
		}
	}
}

type timedBody struct {
	io.ReadCloser
	expired func() error
}

// Read implements io.Reader.
func (b timedBody) Read(into []byte) (int, error) {
	n, err := b.ReadCloser.Read(into)
	if expired := b.expired(); expired != nil {
		return 0, expired
	}
	return n, err
}

// read sends a request that cannot change anything.
func (t *transport) read(req *http.Request, claim Claim) (*http.Response, error) {
	if claim == nil && !t.fence.closed.Load() {
		return t.next.RoundTrip(req)
	}
	if claim == nil || claim.Context().Err() != nil {
		return nil, t.refuse(req, claim)
	}
	ctx, cancel := t.untilEnd(req.Context(), claim)
	resp, err := t.next.RoundTrip(req.WithContext(ctx))
	return t.bounded(ctx, claim, cancel, resp, err)
}

// bounded returns the outcome of a request and ends its context with the answer's body.
func (t *transport) bounded(ctx context.Context, claim Claim, cancel context.CancelFunc, resp *http.Response, err error) (*http.Response, error) {
	if err != nil {
		if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
			err = fmt.Errorf("%w: %w", cause, err)
		}
		cancel()
		return nil, err
	}
	if resp.Body == nil {
		cancel()
		return resp, nil
	}
	conn, handedOver := resp.Body.(io.ReadWriteCloser)
	if handedOver && resp.StatusCode == http.StatusSwitchingProtocols {
		resp.Body = t.connected(ctx, claim, conn, cancel)
	} else {
		resp.Body = &boundedBody{ReadCloser: resp.Body, done: cancel}
	}
	return resp, nil
}

// connected returns a connection that was handed over with an answer. The request's context has no
// power over it, nor should it: its caller may have bounded no more than the opening. The
// connection is closed when the claim ends, or when its Lease expires. done is called when its user
// closes it.
func (t *transport) connected(values context.Context, claim Claim, conn io.ReadWriteCloser, done context.CancelFunc) io.ReadWriteCloser {
	ctx, end := t.bound(context.WithoutCancel(values), claim, true)
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	return &connection{
		ReadWriteCloser: conn,
		cut:             func() error { return context.Cause(ctx) },
		done:            func() { stop(); end(); done() },
	}
}

// connection is one that the fence may close.
type connection struct {
	io.ReadWriteCloser
	// cut returns why the fence has closed it, or nil.
	cut  func() error
	done func()
}

// Read implements io.Reader.
func (c *connection) Read(p []byte) (int, error) {
	n, err := c.ReadWriteCloser.Read(p)
	return n, c.because(err)
}

// Write implements io.Writer.
func (c *connection) Write(p []byte) (int, error) {
	n, err := c.ReadWriteCloser.Write(p)
	return n, c.because(err)
}

// because returns err with its cause, if that is the fence.
func (c *connection) because(err error) error {
	if cause := c.cut(); err != nil && !errors.Is(err, io.EOF) && errors.Is(cause, ErrRefused) {
		return fmt.Errorf("%w: %w", cause, err)
	}
	return err
}

// Close implements io.Closer.
func (c *connection) Close() error {
	c.done()
	return c.ReadWriteCloser.Close()
}

// identify returns a copy of req that names its sender, because a RoundTripper must not modify its
// request.
func (t *transport) identify(req *http.Request, claim Claim) *http.Request {
	var term int32
	if claim != nil {
		term = claim.Term()
	}
	req = utilnet.CloneRequest(req)
	agent := fmt.Sprintf("%s flotilla (member=%s; shard=%s; term=%d)", req.Header.Get("User-Agent"), t.fence.cfg.Member, t.fence.cfg.Shard, term)
	req.Header.Set("User-Agent", strings.TrimSpace(agent))
	return req
}

// refuse counts the refusal, closes the request's body as a RoundTripper must, and returns the
// error.
func (t *transport) refuse(req *http.Request, claim Claim) error {
	t.fence.refused.Add(1)
	closeBody(req)
	return t.error(claim)
}

func closeBody(req *http.Request) {
	if req.Body != nil {
		_ = req.Body.Close()
	}
}

func (t *transport) error(claim Claim) *RefusedError {
	err := &RefusedError{Shard: t.fence.cfg.Shard}
	if claim != nil {
		err.Term = claim.Term()
		err.Cause = context.Cause(claim.Context())
	}
	return err
}

// patience is how long the fence waits for the answer to a write that its caller has given up. API
// servers answer almost all writes sooner, and it is short beside the time for a handoff.
const patience = time.Second

// outliving returns a context that ends [patience] after parent is cancelled, but at once when
// parent's deadline has passed. A controller that is told to stop gives up everything that it has
// sent. The server might carry it out nevertheless, even after the Lease has been released, and
// nobody would know.
func outliving(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(parent))
	stop := context.AfterFunc(parent, func() {
		wait := patience
		if errors.Is(parent.Err(), context.DeadlineExceeded) {
			wait = 0
		}
		time.AfterFunc(wait, func() { cancel(context.Cause(parent)) })
	})
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// bound returns a context for a write: it outlives parent, and ends with the claim, or once the
// claim's Lease has expired. If renewed is set, heartbeats move that moment while the write is
// under way: a cloud may take minutes, and a connection lasts as long as it is used. An API server
// does not take as long, and a controller whose client waits for an answer that got lost, which has
// no timeout of its own, must be able to try again.
func (t *transport) bound(parent context.Context, claim Claim, renewed bool) (context.Context, context.CancelFunc) {
	outlives, done := outliving(parent)
	ctx, end := t.untilEnd(outlives, claim)
	if claim.Expiry().IsZero() {
		return ctx, func() {
			end()
			done()
		}
	}
	expiry := claim.Expiry
	if !renewed {
		first := claim.Expiry()
		expiry = func() time.Time { return first }
	}
	ctx, expire := context.WithCancelCause(ctx)
	var mu sync.Mutex // guards timer
	var timer *time.Timer
	var look func()
	look = func() {
		mu.Lock()
		defer mu.Unlock()
		if ctx.Err() != nil {
			return
		}
		// A timer, not a deadline: the context's clock is not the claim's.
		left := expiry().Sub(t.fence.cfg.Clock.Now())
		if left <= 0 {
			expire(t.expired(claim))
			return
		}
		timer = time.AfterFunc(left, look)
	}
	look()
	return ctx, func() {
		expire(nil)
		mu.Lock()
		defer mu.Unlock()
		if timer != nil {
			timer.Stop()
		}
		end()
		done()
	}
}

// expired returns the error of a request that was under way when the claim's Lease expired.
func (t *transport) expired(claim Claim) error {
	err := t.error(claim)
	if err.Cause == nil {
		err.Cause = context.DeadlineExceeded
	}
	return err
}

// untilEnd returns a context that ends with the claim.
func (t *transport) untilEnd(parent context.Context, claim Claim) (context.Context, context.CancelFunc) {
	ctx, cancelCause := context.WithCancelCause(parent)
	stop := context.AfterFunc(claim.Context(), func() { cancelCause(t.error(claim)) })
	return ctx, func() {
		stop()
		cancelCause(nil)
	}
}

// boundedBody is a body that ends the request's context once it has been read or closed.
type boundedBody struct {
	io.ReadCloser
	done context.CancelFunc
}

func (b *boundedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.done()
	}
	return n, err
}

func (b *boundedBody) Close() error {
	defer b.done()
	return b.ReadCloser.Close()
}
