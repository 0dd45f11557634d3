package fence

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"
)

// ErrRefused is what every RefusedError is, for errors.Is.
var ErrRefused = errors.New("refused by the fence")

// RefusedError is the error of a mutating request that was refused, or given up, because no valid
// claim was behind it.
type RefusedError struct {
	// Shard that the fence is for.
	Shard string
	// Term of the claim; 0 if the fence was closed.
	Term int32
	// Cause is why the claim has ended; nil if the fence was closed or the claim's time was up.
	Cause error
}

func (e *RefusedError) Error() string {
	msg := fmt.Sprintf("%v: shard %q, term %d", ErrRefused, e.Shard, e.Term)
	if e.Cause != nil {
		msg += ": " + e.Cause.Error()
	}
	return msg
}

// Is reports a RefusedError as ErrRefused.
func (e *RefusedError) Is(target error) bool { return target == ErrRefused }

// Unwrap returns Cause.
func (e *RefusedError) Unwrap() error { return e.Cause }

// Refusal is why a fence has refused a mutating request. The values are stable and few enough for a
// metric label.
type Refusal string

const (
	// RefusalClosed: there is no claim, because the fence has not been opened yet, or has been
	// closed.
	RefusalClosed Refusal = "closed"
	// RefusalExpired: the claim has ended, or its time was up.
	RefusalExpired Refusal = "expired"
	// RefusalNotPermitted: the claim is valid, and Config.Permit does not let writes pass.
	RefusalNotPermitted Refusal = "leader-lock"
)

// Claim is a right to write, for a time. Its methods are safe for concurrent use. Once it is
// invalid it stays so.
type Claim interface {
	// Term is the claim's number.
	Term() int32
	// Context ends with the right, with its reason as the cause. It may end late.
	Context() context.Context
	// Expiry is when no write may be under way any more, by the fence's clock; zero means never.
	Expiry() time.Time
	// Valid reports whether a write may start at now, a reading of the fence's clock.
	Valid(now time.Time) bool
}

// Clock is what a fence knows of time.
type Clock interface{ Now() time.Time }

// Config configures a Fence.
type Config struct {
	// Member is the incarnation's identity and Shard the shard's name, for the User-Agent.
	// Required; letters, digits and "-_./" only.
	Member, Shard string
	// Clock must be the one that the claims are measured by. Required.
	Clock Clock
	// Permit reports whether writes may be sent at all at a reading of the clock, whatever the
	// claim says: it is how a leader lock that is not held refuses them. It must not block.
	// Default: they may.
	Permit func(now time.Time) bool
	// OnRefused is called for every mutating request that is refused before it is sent, from the
	// goroutine that sends it. It must not block. Default: none.
	OnRefused func(Refusal)
}

// Fence lets mutating requests pass only while a valid claim is behind it. One fence serves all
// clients of one shard. A new fence is closed. All methods are safe for concurrent use.
type Fence struct {
	cfg     Config
	claim   atomic.Pointer[Claim]
	closed  atomic.Bool // Close was called
	refused atomic.Uint64
	written writeLog
}

// New returns a closed fence. The error names the field that is out of bounds.
func New(cfg Config) (*Fence, error) {
	var errs []error
	for _, f := range []struct{ field, value string }{{"Member", cfg.Member}, {"Shard", cfg.Shard}} {
		if f.value == "" || strings.ContainsFunc(f.value, outsideAgent) {
			errs = append(errs, fmt.Errorf(`fence.Config.%s is %q, must be letters, digits and "-_./"`, f.field, f.value))
		}
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

// Open lets mutating requests pass while claim, which must not be nil, is valid. It replaces an
// earlier claim.
func (f *Fence) Open(claim Claim) {
	f.closed.Store(false)
	f.claim.Store(&claim)
}

// Close refuses all requests from now on, reads too. Requests under way are left to the end of
// their claim.
func (f *Fence) Close() {
	f.closed.Store(true)
	f.claim.Store(nil)
}

// Writes returns what has been written through the fence last, as the holder of term. Answers that
// nobody has read to their end are not in it.
func (f *Fence) Writes(term int32) Writes { return f.written.writes(term) }

// behind returns the claim behind the fence; nil if there is none.
func (f *Fence) behind() Claim {
	if claim := f.claim.Load(); claim != nil {
		return *claim
	}
	return nil
}

// Term returns that of the claim behind the fence; 0 before it has been opened, and once it is
// closed.
func (f *Fence) Term() int32 {
	if claim := f.behind(); claim != nil {
		return claim.Term()
	}
	return 0
}

// Refused returns how many requests have been refused.
func (f *Fence) Refused() uint64 { return f.refused.Load() }

// Wrap puts the fence before rt. It fits rest.Config.Wrap, and belongs innermost, so that nothing
// waits between its check and the sending.
//
// Every request carries " flotilla (member=…; shard=…; term=…)" at the end of its User-Agent.
// Requests that cannot change anything (GET, HEAD, OPTIONS) pass while the fence has not been
// opened yet, because work is built before its claim; afterwards they end with the claim, or the
// work would wait for answers that are of no use to it any more. Any other is refused with a
// *RefusedError unless the claim is valid at that moment; it is cancelled when the claim ends, and
// at the latest when the Lease would expire, reading the answer's body included.
func (f *Fence) Wrap(rt http.RoundTripper) http.RoundTripper {
	return &transport{fence: f, next: rt}
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
