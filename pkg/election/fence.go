package election

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/flotilla-kube/flotilla/internal/plant"
)

// ErrFenced is what every FencedError is, for errors.Is.
var ErrFenced = errors.New("refused by the fence")

// FencedError is the error of a mutating request that was refused, or given up, because no valid claim was behind it.
type FencedError struct {
	// Shard that the fence is for.
	Shard string
	// Term of the claim; 0 if the fence was closed.
	Term int32
	// Cause is why the claim has ended; nil if the fence was closed or the claim's time was up.
	Cause error
}

func (e *FencedError) Error() string {
	msg := fmt.Sprintf("%v: shard %q, term %d", ErrFenced, e.Shard, e.Term)
	if e.Cause != nil {
		msg += ": " + e.Cause.Error()
	}
	return msg
}

// Is reports a FencedError as ErrFenced.
func (e *FencedError) Is(target error) bool { return target == ErrFenced }

// Unwrap returns Cause.
func (e *FencedError) Unwrap() error { return e.Cause }

// Refusal is why a fence has refused a mutating request. The values are stable and few enough for a metric label.
type Refusal string

const (
	// RefusedClosed: there is no claim, because the fence has not been opened yet, or has been closed.
	RefusedClosed Refusal = "closed"
	// RefusedExpired: the claim has ended, or its time was up.
	RefusedExpired Refusal = "expired"
	// RefusedLeaderLock: the claim is valid, and FenceConfig.Permit does not let writes pass.
	RefusedLeaderLock Refusal = "leader-lock"
)

// FenceConfig configures a Fence.
type FenceConfig struct {
	// Member is the incarnation's identity and Shard the shard's name, for the User-Agent. Required; letters, digits and
	// "-_./" only.
	Member, Shard string
	// Clock must be the one that the claims are measured by. Required.
	Clock Clock
	// Permit tells whether writes may be sent at all at a reading of the clock, whatever the claim
	// says: it is how a leader lock that is not held refuses them. It must not block. Default: they
	// may.
	Permit func(now time.Time) bool
	// OnRefused is called for every mutating request that is refused before it is sent, from the goroutine that sends it. It must
	// not block. Default: none.
	OnRefused func(Refusal)
}

// Fence lets mutating requests pass only while a valid claim is behind it. One fence serves all clients of one shard. A new
// fence is closed. All methods are safe for concurrent use.
type Fence struct {
	cfg     FenceConfig
	claim   atomic.Pointer[Claim]
	closed  atomic.Bool // Close was called
	refused atomic.Uint64
	written writeLog
}

// NewFence returns a closed fence. The error names the field that is out of bounds.
func NewFence(cfg FenceConfig) (*Fence, error) {
	var errs []error
	for _, f := range []struct{ field, value string }{{"Member", cfg.Member}, {"Shard", cfg.Shard}} {
		if f.value == "" || strings.ContainsFunc(f.value, outsideAgent) {
			errs = append(errs, fmt.Errorf(`FenceConfig.%s is %q, must be letters, digits and "-_./"`, f.field, f.value))
		}
	}
	if cfg.Clock == nil {
		errs = append(errs, errors.New("FenceConfig.Clock is nil, must be the clock of the claims"))
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	if cfg.Permit == nil {
		cfg.Permit = func(time.Time) bool { return true }
	}
	if cfg.OnRefused == nil {
		cfg.OnRefused = func(Refusal) {}
	}
	return &Fence{cfg: cfg}, nil
}

func outsideAgent(r rune) bool {
	letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
	return !letter && !strings.ContainsRune("-_./", r)
}

// Open lets mutating requests pass while claim is valid. It replaces an earlier claim.
func (f *Fence) Open(claim *Claim) {
	f.closed.Store(false)
	f.claim.Store(claim)
}

// Close refuses all requests from now on, reads too. Requests under way are left to the end of their claim.
func (f *Fence) Close() {
	f.closed.Store(true)
	f.claim.Store(nil)
}

// Writes returns what has been written through the fence last, as the holder of term. Answers that nobody has read to
// their end are not in it.
func (f *Fence) Writes(term int32) Writes { return f.written.writes(term) }

// Term returns that of the claim behind the fence; 0 before it has been opened, and once it is closed.
func (f *Fence) Term() int32 {
	if claim := f.claim.Load(); claim != nil {
		return claim.Term()
	}
	return 0
}

// Refused returns how many requests have been refused.
func (f *Fence) Refused() uint64 { return f.refused.Load() }

// Wrap puts the fence before rt. It fits rest.Config.Wrap, and belongs innermost, so that nothing waits between its
// check and the sending.
//
// Every request carries " flotilla (member=…; shard=…; term=…)" at the end of its User-Agent. Requests that cannot change
// anything (GET, HEAD, OPTIONS) pass while the fence has not been opened yet, because work is built before its claim;
// afterwards they end with the claim, or the work would wait for answers that are of no use to it any more. Any other is
// refused with a *FencedError unless the claim is valid at that moment; it is cancelled when the claim ends, and at the
// latest when the Lease would expire, reading the answer's body included.
func (f *Fence) Wrap(rt http.RoundTripper) http.RoundTripper {
	return &fencedTransport{fence: f, next: rt}
}

// IsRead reports whether a request of this HTTP method cannot change anything, so that a fence lets
// it pass before it has been opened. The empty method is GET, as for http.Request.
func IsRead(method string) bool {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, "":
		return true
	}
	return false
}

type fencedTransport struct {
	fence *Fence
	next  http.RoundTripper
}

var _ utilnet.RoundTripperWrapper = &fencedTransport{}

// WrappedRoundTripper lets client-go find the transport that is behind.
func (t *fencedTransport) WrappedRoundTripper() http.RoundTripper { return t.next }

// RoundTrip implements http.RoundTripper.
func (t *fencedTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	claim := t.fence.claim.Load()
	req = t.identify(req, claim)
	if IsRead(req.Method) {
		return t.read(req, claim)
	}
	if claim == nil {
		t.fence.cfg.OnRefused(RefusedClosed)
		return nil, t.refuse(req, claim)
	}
	ctx, cancel := t.bound(req.Context(), claim)
	req = req.WithContext(ctx)
	// Immediately before the sending, with a clock read for this.
	if now := t.fence.cfg.Clock.Now(); !plant.FenceOff && !(claim.Valid(now) && t.fence.cfg.Permit(now)) {
		cancel()
		if claim.Valid(now) {
			t.fence.cfg.OnRefused(RefusedLeaderLock)
		} else {
			t.fence.cfg.OnRefused(RefusedExpired)
		}
		return nil, t.refuse(req, claim)
	}
	resp, err := t.next.RoundTrip(req)
	switch {
	case err != nil && !plant.UnansweredForgotten:
		t.fence.written.unanswered(req)
	case err == nil && resp.Body != nil:
		resp.Body = t.fence.written.answered(req, resp)
	}
	return t.bounded(ctx, cancel, resp, err)
}

// read sends a request that cannot change anything.
func (t *fencedTransport) read(req *http.Request, claim *Claim) (*http.Response, error) {
	if claim == nil && !t.fence.closed.Load() {
		return t.next.RoundTrip(req)
	}
	if claim == nil || claim.Context().Err() != nil {
		return nil, t.refuse(req, claim)
	}
	ctx, cancel := t.untilEnd(req.Context(), claim)
	resp, err := t.next.RoundTrip(req.WithContext(ctx))
	return t.bounded(ctx, cancel, resp, err)
}

// bounded returns the outcome of a request whose context ends with its answer's body.
func (t *fencedTransport) bounded(ctx context.Context, cancel context.CancelFunc, resp *http.Response, err error) (*http.Response, error) {
	if err != nil {
		if cause := context.Cause(ctx); errors.Is(cause, ErrFenced) {
			err = fmt.Errorf("%w: %w", cause, err)
		}
		cancel()
		return nil, err
	}
	if resp.Body == nil {
		cancel()
		return resp, nil
	}
	resp.Body = bounded(resp.Body, cancel)
	return resp, nil
}

// identify returns a copy of req that says who sends it, because a RoundTripper must not change what it is given.
func (t *fencedTransport) identify(req *http.Request, claim *Claim) *http.Request {
	var term int32
	if claim != nil {
		term = claim.Term()
	}
	req = utilnet.CloneRequest(req)
	agent := fmt.Sprintf("%s flotilla (member=%s; shard=%s; term=%d)", req.Header.Get("User-Agent"), t.fence.cfg.Member, t.fence.cfg.Shard, term)
	req.Header.Set("User-Agent", strings.TrimSpace(agent))
	return req
}

// refuse counts, closes the request's body as a RoundTripper must, and returns the error.
func (t *fencedTransport) refuse(req *http.Request, claim *Claim) error {
	t.fence.refused.Add(1)
	if req.Body != nil {
		_ = req.Body.Close()
	}
	return t.error(claim)
}

func (t *fencedTransport) error(claim *Claim) *FencedError {
	err := &FencedError{Shard: t.fence.cfg.Shard}
	if claim != nil {
		err.Term = claim.Term()
		err.Cause = context.Cause(claim.Context())
	}
	return err
}

// bound returns a context that ends with the claim, or when the Lease would expire as it stands now.
func (t *fencedTransport) bound(parent context.Context, claim *Claim) (context.Context, context.CancelFunc) {
	ctx, cancel := t.untilEnd(parent, claim)
	expiry := claim.Expiry()
	if expiry.IsZero() {
		return ctx, cancel
	}
	// By what is left, not by the time: the context's clock is not the claim's.
	left := expiry.Sub(t.fence.cfg.Clock.Now())
	ctx, cancelTimeout := context.WithTimeoutCause(ctx, max(left, time.Duration(0)), t.error(claim))
	return ctx, func() {
		cancelTimeout()
		cancel()
	}
}

// untilEnd returns a context that ends with the claim.
func (t *fencedTransport) untilEnd(parent context.Context, claim *Claim) (context.Context, context.CancelFunc) {
	ctx, cancelCause := context.WithCancelCause(parent)
	stop := context.AfterFunc(claim.Context(), func() { cancelCause(t.error(claim)) })
	return ctx, func() {
		stop()
		cancelCause(nil)
	}
}

// bounded returns body, ending the request's context when it has been read or closed, and not before. The body of an
// upgraded connection stays one.
func bounded(body io.ReadCloser, done context.CancelFunc) io.ReadCloser {
	b := &boundedBody{ReadCloser: body, done: done}
	if stream, ok := body.(io.ReadWriteCloser); ok {
		return struct {
			*boundedBody
			io.Writer
		}{b, stream}
	}
	return b
}

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
