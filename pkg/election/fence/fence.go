package fence

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/flotilla-kube/flotilla/internal/apiresponse"
)

// ErrRefused matches every RefusedError in errors.Is.
var ErrRefused = errors.New("refused by the fence")

// RefusedError is the error of a request that the fence refused, or gave up, because no valid claim
// was behind it.
type RefusedError struct {
	// Shard that the fence is for.
	Shard string
	// Term of the claim; 0 if the fence was closed.
	Term int32
	// Cause is why the claim ended; nil if the fence was closed or the claim had expired. It is
	// context.DeadlineExceeded if the claim expired while the request was under way.
	Cause error
}

func (e *RefusedError) Error() string {
	msg := fmt.Sprintf("%v: shard %q, term %d", ErrRefused, e.Shard, e.Term)
	if e.Cause != nil {
		msg += ": " + e.Cause.Error()
	}
	return msg
}

// Is reports whether target is ErrRefused.
func (e *RefusedError) Is(target error) bool { return target == ErrRefused }

// Unwrap returns Cause.
func (e *RefusedError) Unwrap() error { return e.Cause }

// Refusal is why a fence refused a mutating request. The values are stable and few enough for a
// metric label.
type Refusal string

const (
	// RefusalClosed: there is no claim, because the fence was not opened yet, or was closed.
	RefusalClosed Refusal = "closed"
	// RefusalExpired: the claim had ended or expired.
	RefusalExpired Refusal = "expired"
	// RefusalNotPermitted: the claim is valid, but Config.Permit does not let writes pass.
	RefusalNotPermitted Refusal = "leader-lock"
)

// Claim is a time-limited right to write. Its methods are safe for concurrent use. Once invalid, a
// claim stays invalid.
type Claim interface {
	// Term returns the claim's number.
	Term() int32
	// Context ends when the right does, with the reason as its cause. It may end late.
	Context() context.Context
	// Expiry returns when all writes must have ended, by the fence's clock; zero means never. A
	// heartbeat may move it later, never earlier.
	Expiry() time.Time
	// Valid reports whether a write may start at now, a reading of the fence's clock.
	Valid(now time.Time) bool
}

// Clock is a fence's source of time.
type Clock interface{ Now() time.Time }

// Config configures a Fence.
type Config struct {
	// Member is the incarnation's identity and Shard the shard's name, for the User-Agent.
	// Required; letters, digits and "-_./" only.
	Member, Shard string
	// ServerPath is the path in the address of the API server, if it has one, such as
	// /k8s/clusters/c-1: what precedes /api and /apis in the paths of its requests. It begins with
	// a slash and does not end with one. The fence tells by it what a request is for. A request
	// whose path does not lie below it counts as one to the same API server at an address without a
	// path. Default: none.
	ServerPath string
	// Clock must be the clock of the claims. Required.
	Clock Clock
	// Permit reports whether writes may be sent at now at all, whatever the claim says. A leader
	// lock that is not held refuses them through it. It must not block. Default: true.
	Permit func(now time.Time) bool
	// OnRefused is called for every mutating request that the fence refuses before sending, from
	// the requesting goroutine. It must not block. Default: none.
	OnRefused func(Refusal)
}

// Fence lets mutating requests pass only while it has a valid claim. One fence serves all clients
// of one shard. A new fence lets only reads pass. All methods are safe for concurrent use.
type Fence struct {
	cfg     Config
	claim   atomic.Pointer[Claim]
	closed  atomic.Bool // Close was called
	refused atomic.Uint64
	sent    atomic.Int64
	written writeLog
}

// New returns a fence without a claim. The error names every invalid field.
func New(cfg Config) (*Fence, error) {
	var errs []error
	for _, f := range []struct{ field, value string }{{"Member", cfg.Member}, {"Shard", cfg.Shard}} {
		if f.value == "" || strings.ContainsFunc(f.value, outsideAgent) {
			errs = append(errs, fmt.Errorf(`fence.Config.%s is %q, must be letters, digits and "-_./"`, f.field, f.value))
		}
	}
	if !apiresponse.IsServerPath(cfg.ServerPath) {
		errs = append(errs, fmt.Errorf("fence.Config.ServerPath is %q, must be empty or a path that begins with a slash and does not end with one", cfg.ServerPath))
	}
	if cfg.Clock == nil {
		errs = append(errs, errors.New("fence.Config.Clock is nil, must be the clock of the claims"))
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

// Open lets mutating requests pass while claim, which must not be nil, is valid. It replaces any
// earlier claim.
func (f *Fence) Open(claim Claim) {
	f.closed.Store(false)
	f.claim.Store(&claim)
}

// Close refuses all further requests, including reads. Requests under way end with their claim.
func (f *Fence) Close() {
	f.closed.Store(true)
	f.claim.Store(nil)
}

// Sent returns how many mutating requests the fence has let pass. It only grows.
func (f *Fence) Sent() int64 { return f.sent.Load() }

// Await returns once every write that has passed has been answered, but after a second at most.
// Call it after Close: goroutines that a controller has started may outlive its Run.
func (f *Fence) Await() {
	quiet := f.written.quiet()
	if quiet == nil {
		return
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-quiet:
	case <-timer.C:
	}
}

// Writes returns the last writes through the fence, as those of the holder of term. Where the
// answer to a write has not been read to its end, it is Unknown.
func (f *Fence) Writes(term int32) Writes { return f.written.writes(term) }

// behind returns the fence's claim; nil if there is none.
func (f *Fence) behind() Claim {
	if claim := f.claim.Load(); claim != nil {
		return *claim
	}
	return nil
}

// Term returns the term of the fence's claim; 0 before Open and after Close.
func (f *Fence) Term() int32 {
	if claim := f.behind(); claim != nil {
		return claim.Term()
	}
	return 0
}

// pathOf returns the path of a request to the API server, below the server's own.
func (f *Fence) pathOf(req *http.Request) string {
	return apiresponse.Below(f.cfg.ServerPath, req.URL.Path)
}

// Refused returns how many requests the fence has refused.
func (f *Fence) Refused() uint64 { return f.refused.Load() }

// Wrap puts the fence before rt. It fits rest.Config.Wrap, and belongs innermost, so that nothing
// waits between its check and sending.
//
// Every request carries " flotilla (member=…; shard=…; term=…)" at the end of its User-Agent.
// Requests that cannot change anything ([IsAPIRead]) pass before the fence is first opened, because
// work is built before its claim. Afterwards they end with the claim, or the work would wait for
// answers that it cannot use. Any other request is refused with a *RefusedError unless the claim is
// valid at that moment. It is cancelled, reading the answer's body included, when the claim ends,
// and at the latest when the Lease would expire without another heartbeat.
//
// A connection to a pod, a service or a node is a write, by whatever method, but heartbeats defer
// the moment at which it is cancelled. If an answer hands the connection over (101 Switching
// Protocols), the fence closes the answer's body then; after that, its methods return a
// *RefusedError. The caller must close it in any case.
func (f *Fence) Wrap(rt http.RoundTripper) http.RoundTripper {
	return &transport{fence: f, next: rt}
}

// WrapForeign is Wrap for a transport that leads to a server other than the API server, such as a
// cloud. A request is a read by its method alone ([IsRead]). Heartbeats defer the moment at which a
// request is cancelled. Writes does not report what was written there: the next holder's caches are
// of this cluster.
func (f *Fence) WrapForeign(rt http.RoundTripper) http.RoundTripper {
	return &transport{fence: f, next: rt, foreign: true}
}

// IsAPIRead reports whether a request to the API server cannot change anything, so that a fence
// lets it pass before Open. Its method is that of a read, and its path is not that of a connection
// to a pod, a service or a node: the subresources exec, attach, portforward and proxy, of any
// resource. The API server opens these for a GET, too, and what is sent through them may have any
// effect. path is the request's, without that in the address of the server ([Config].ServerPath).
func IsAPIRead(method, path string) bool { return IsRead(method) && !apiresponse.IsConnection(path) }

// IsRead reports whether a request of this HTTP method cannot change anything, at a server that
// keeps to HTTP's rules. The API server does not: see [IsAPIRead]. The empty method is GET, as in
// http.Request.
func IsRead(method string) bool {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, "":
		return true
	}
	return false
}
