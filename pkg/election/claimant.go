package election

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flotilla-kube/flotilla/pkg/election/request"
)

// LeaseWriter is the part of client-go's LeaseInterface that a claimant needs. Give it its own
// client: heartbeats must not wait behind other requests in a client's rate limiter.
type LeaseWriter interface {
	Get(ctx context.Context, name string, opts metav1.GetOptions) (*coordinationv1.Lease, error)
	Create(ctx context.Context, lease *coordinationv1.Lease, opts metav1.CreateOptions) (*coordinationv1.Lease, error)
	Update(ctx context.Context, lease *coordinationv1.Lease, opts metav1.UpdateOptions) (*coordinationv1.Lease, error)
}

// ClaimantConfig configures a Claimant. Fields without a default are required.
type ClaimantConfig struct {
	// Name of the Lease. The Observer must keep it.
	Name string
	// Identity of the incarnation, unique among all process starts of all members; see
	// leaserecord.NewIncarnation.
	Identity string
	// Client writes Leases of the namespace that the Observer watches.
	Client LeaseWriter
	// Observer provides what others have written, and records what this claimant writes.
	Observer *Observer
	// Clock must be the Observer's.
	Clock Clock
	// Timing of the claim.
	Timing Timing
	// Labels are written on the Lease with every acquisition. Default: none.
	Labels map[string]string
	// Annotations returns the annotations to keep on the Lease while it is held; an empty value
	// removes a key. It is called from one goroutine and must not block. Call Touch when its result
	// changes. Default: none.
	Annotations func() map[string]string
	// Leave returns the annotations to write when the claimant releases the Lease in a term, after
	// Work has returned: WritesAnnotation and StoppedAnnotation, for the next holder. An empty
	// value removes a key. It must not block. Default: none.
	Leave func(term int32) map[string]string
	// Heartbeat keeps the claim alive. It must be that of Identity's member.
	Heartbeat Heartbeat
	// Revoked, once closed, ends any claim at once, prevents further claims, and counts as
	// Released. Through it a lost membership ends all claims of a process. Default: never.
	Revoked <-chan struct{}
	// Work runs under the claim. It is called once per term on its own goroutine, never before an
	// earlier call has returned. Its context ends when the work must stop: with cause ErrDraining
	// for a planned stop, during which the claim holds until Work returns; with an *EndedError when
	// the claim has ended.
	Work func(ctx context.Context, claim *Claim)
	// Beside is called by Run's loop, with Run's context, each time before it waits: so what Beside
	// decides and the claim take turns. It must not block. Nudge brings the next turn, and so does
	// the time that it returns, unless zero. Run returns only once Beside has settled. Default: it
	// has.
	Beside func(ctx context.Context) (next time.Time, settled bool)
	// OnEvent is called for every event, in order, from the claimant's goroutine. It must not
	// block. Default: none.
	OnEvent func(Event)
	// DrainTimeout returns how long Work may take to return after a planned stop was requested. It
	// is called for every step and must not block; call SetDesired when its result changes.
	// Default: LeaseDuration.
	DrainTimeout func() time.Duration
	// OnStuck is called at most once per claim, from the claimant's goroutine, when Work has not
	// returned in time: DrainTimeout after it was asked to stop, or, if the claim was lost,
	// LeaseDuration after the last heartbeat, whichever is earlier. It must end the process: others
	// may already hold a lost claim, and a draining one stays held, because a Lease is never
	// released while its work runs.
	OnStuck func(StuckClaim)
	// Jitter lengthens the pause after a failed request. Default: by up to a fifth, at random.
	Jitter func(time.Duration) time.Duration
}

func (cfg ClaimantConfig) validate() error {
	var errs []error
	require := func(ok bool, field, value, allowed string) {
		if !ok {
			errs = append(errs, fmt.Errorf("ClaimantConfig.%s is %s, must %s", field, value, allowed))
		}
	}
	require(cfg.Name != "", "Name", "empty", "be the Lease's name")
	require(cfg.Identity != "", "Identity", "empty", "be the incarnation's identity")
	require(cfg.Client != nil, "Client", "nil", "write Leases")
	require(cfg.Observer != nil, "Observer", "nil", "observe the same Leases")
	require(cfg.Observer == nil || cfg.Observer.Watches(cfg.Name), "Name", fmt.Sprintf("%q", cfg.Name), "be a Lease that the Observer keeps")
	require(cfg.Clock != nil, "Clock", "nil", "be the Observer's clock")
	require(cfg.Work != nil, "Work", "nil", "be the work that the claim entitles to")
	require(cfg.Heartbeat != nil, "Heartbeat", "nil", "be that of the incarnation's member")
	require(cfg.OnStuck != nil, "OnStuck", "nil", "end the process")
	if err := cfg.Timing.Validate(); err != nil {
		errs = append(errs, fmt.Errorf("ClaimantConfig.%w", err))
	}
	return errors.Join(errs...)
}

// Claimant claims one Lease while the desired state is Held, and runs the work while the claim
// holds. Step decides what to do, and the claimant carries it out. Call Run once; the other methods
// are safe for concurrent use at any time.
type Claimant struct {
	cfg  ClaimantConfig
	wake chan struct{} // capacity 1: Nudge, SetDesired, SetAsk or Touch was called

	turned atomic.Pointer[time.Time]

	mu      sync.Mutex
	desired Desired
	touched int // counts calls of Touch
	ask     bool
	claim   *Claim
}

// NewClaimant returns a claimant whose desired state is Released. The error names every invalid
// field.
func NewClaimant(cfg ClaimantConfig) (*Claimant, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if cfg.Annotations == nil {
		cfg.Annotations = func() map[string]string { return nil }
	}
	if cfg.Leave == nil {
		cfg.Leave = func(int32) map[string]string { return nil }
	}
	if cfg.Beside == nil {
		cfg.Beside = func(context.Context) (time.Time, bool) { return time.Time{}, true }
	}
	if cfg.OnEvent == nil {
		cfg.OnEvent = func(Event) {}
	}
	if cfg.DrainTimeout == nil {
		cfg.DrainTimeout = func() time.Duration { return cfg.Timing.LeaseDuration }
	}
	if cfg.Jitter == nil {
		cfg.Jitter = request.Jitter
	}
	return &Claimant{cfg: cfg, wake: make(chan struct{}, 1)}, nil
}

// SetDesired sets the state to reach. It returns at once; events report the outcome. A drain that
// has begun is completed, and Held then acquires again.
func (c *Claimant) SetDesired(desired Desired) {
	c.mu.Lock()
	// A member calls this for every shard of other members, a thousand at a time.
	idle := c.desired == Released && desired == Released && c.claim == nil
	c.desired = desired
	c.mu.Unlock()
	if !idle {
		c.Nudge()
	}
}

// Touch has the claimant write changed annotations as soon as possible. Without a claim it does
// nothing.
func (c *Claimant) Touch() {
	c.mu.Lock()
	c.touched++
	c.mu.Unlock()
	c.Nudge()
}

// SetAsk sets whether to ask for the Lease while it is wanted and another incarnation holds it. Set
// it once everything is prepared to take over at once. The holder sees the request and gives the
// Lease up only if it agrees.
func (c *Claimant) SetAsk(ask bool) {
	c.mu.Lock()
	c.ask = ask
	c.mu.Unlock()
	c.Nudge()
}

// Claim returns the current claim, or nil. The claim may end at any moment: call Valid before each
// write.
func (c *Claimant) Claim() *Claim {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.claim
}

// Turned returns when Run's loop last began an iteration, which it does at least twice per
// RetryPeriod while a claim is held. Without a claim it returns false.
func (c *Claimant) Turned() (time.Time, bool) {
	if at := c.turned.Load(); at != nil && c.Claim() != nil {
		return *at, true
	}
	return time.Time{}, false
}

func (c *Claimant) setClaim(claim *Claim) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.claim = claim
}

func (c *Claimant) orders() (desired Desired, ask bool, touched int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.desired, c.ask, c.touched
}

// Nudge brings another turn of Run's loop. Call it when what Beside decides by has changed.
func (c *Claimant) Nudge() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}
