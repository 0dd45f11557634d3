package membership

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
)

// ErrLost is returned by Membership.Run when the member's Lease was lost, for example because
// another incarnation took it or it was not renewed in time.
var ErrLost = errors.New("membership lost")

// Config configures a Membership. Fields without a default are required.
type Config struct {
	// Fleet is the fleet's name, the Observer's.
	Fleet string
	// Incarnation of the member, from leaserecord.NewIncarnation: one for each process start.
	Incarnation string
	// Client, Observer, Clock, Timing, Labels, OnEvent and Jitter are as in
	// election.ClaimantConfig, for the member's Lease. Client also lists Leases.
	Client   Leases
	Observer *election.Observer
	Clock    election.Clock
	Timing   election.Timing
	Labels   map[string]string
	OnEvent  func(election.Event)
	Jitter   func(time.Duration) time.Duration
	// RebalanceDelay is how long the member stays joining, by its own clock, while another member
	// is active. Default 0: it becomes active at once. Must not be negative.
	RebalanceDelay time.Duration
	// Turned covers the loops without which the member does no work. It returns the earliest of
	// their last iterations and that loop's name; the zero time if there is no such loop. No
	// heartbeat is sent if that iteration was before the previous heartbeat. It must not block.
	// Default: no loops.
	Turned func() (time.Time, string)
	// Fences reports whether to mark members that are listed as ended, see
	// [leaserecord.FenceIncarnation]. It must not block. Default: false.
	Fences func() bool
	// Annotations returns further annotations for the member's Lease; an empty value removes a key.
	// It must not block. Call Membership.Touch when its result changes. Default: none.
	Annotations func() map[string]string
}

// Membership keeps one member's Lease, which shows others that the member is live, and judges other
// members. It is the Heartbeat of the member's claims. It serves one hold: after a loss or a leave,
// make a new one. Call Run once; the other methods are safe for concurrent use at any time.
//
//	          Lease acquired           RebalanceDelay, or nobody else is active           Leave
//	(waiting) ──────────────▶ joining ─────────────────────────────────────────▶ active ──────▶ leaving
//	                             └─────────────────────── Leave ───────────────────────────────────┘
type Membership struct {
	cfg    Config
	member string
	pace   *pacemaker
	joined chan struct{}
	lost   chan struct{}
	revoke func()

	credentials credentials

	mu    sync.Mutex
	state State
}

// New returns a membership in state joining. The error names every invalid field.
func New(cfg Config) (*Membership, error) {
	m := &Membership{
		cfg:    cfg,
		member: leaserecord.MemberOf(cfg.Incarnation),
		joined: make(chan struct{}),
		lost:   make(chan struct{}),
		state:  Joining,
	}
	var errs []error
	require := func(ok bool, field, value, allowed string) {
		if !ok {
			errs = append(errs, fmt.Errorf("membership.Config.%s is %s, must %s", field, value, allowed))
		}
	}
	require(m.member != "", "Incarnation", fmt.Sprintf("%q", cfg.Incarnation), "be of the form <member>_<uuid>")
	require(cfg.Fleet != "", "Fleet", "empty", "be the fleet's name")
	require(cfg.Client != nil, "Client", "nil", "read and write Leases")
	require(cfg.Observer != nil, "Observer", "nil", "observe the same Leases")
	require(cfg.Clock != nil, "Clock", "nil", "be the Observer's clock")
	require(cfg.RebalanceDelay >= 0, "RebalanceDelay", fmt.Sprint(cfg.RebalanceDelay), "not be negative")
	if err := cfg.Timing.Validate(); err != nil {
		errs = append(errs, fmt.Errorf("membership.Config.%w", err))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if m.cfg.Annotations == nil {
		m.cfg.Annotations = func() map[string]string { return nil }
	}
	if m.cfg.OnEvent == nil {
		m.cfg.OnEvent = func(election.Event) {}
	}
	if m.cfg.Fences == nil {
		m.cfg.Fences = func() bool { return false }
	}
	if m.cfg.Turned == nil {
		m.cfg.Turned = func() (time.Time, string) { return time.Time{}, "" }
	}
	revoked := make(chan struct{})
	m.revoke = sync.OnceFunc(func() { close(revoked) })
	m.pace = newPacemaker(m, revoked)
	return m, nil
}

// Run acquires and keeps the member's Lease until ctx ends or the Lease is lost. While another
// incarnation of the member holds it, or a live member follows another protocol, Run waits and
// reports EventWaiting. When ctx ends, Run releases the Lease and returns nil: call Leave and hand
// over all shards before that. When the Lease is lost, Run closes Lost. It then waits until ctx has
// ended, by when all work must have returned, and returns an error that wraps ErrLost and
// says why.
func (m *Membership) Run(ctx context.Context) error { return m.pace.run(ctx) }

// Joined returns a channel that is closed once the Lease is held: the process may claim shards from
// then on, until Lost.
func (m *Membership) Joined() <-chan struct{} { return m.joined }

// Lost returns a channel that is closed when a held Lease is lost, other than by the end of Run's
// ctx. All claims of the process must then end: pass it to their claimants as
// election.ClaimantConfig.Revoked.
func (m *Membership) Lost() <-chan struct{} { return m.lost }

// Name returns the member's name.
func (m *Membership) Name() string { return m.member }

// Confirmed implements [election.Heartbeat].
func (m *Membership) Confirmed() (start time.Time, right bool) { return m.pace.confirmed() }

var _ election.Heartbeat = (*Membership)(nil)

// State returns the state that the member declares.
func (m *Membership) State() State {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.state
}

// Leave takes the member out of the ring, for good. The member keeps renewing, so that it can hand
// over its shards.
func (m *Membership) Leave() {
	m.setState(Leaving)
}

// Touch has the Lease written as soon as possible. Call it when the result of
// Config.Annotations has changed.
func (m *Membership) Touch() { m.pace.touch() }

// setState moves to state, unless the member is leaving, and has the Lease written.
func (m *Membership) setState(state State) {
	m.mu.Lock()
	if m.state != Leaving {
		m.state = state
	}
	m.mu.Unlock()
	m.Touch()
}

func (m *Membership) annotations() map[string]string {
	all := map[string]string{}
	maps.Copy(all, m.cfg.Annotations())
	maps.Copy(all, m.credentialAnnotations())
	all[leaserecord.StateAnnotation] = string(m.State())
	return all
}

// activate waits until the member may become active, and makes it so.
func (m *Membership) activate(ctx context.Context, term int32) {
	changed, unsubscribe := m.cfg.Observer.SubscribeChanges(func(before, after election.Observation) bool {
		return leaserecord.IsMemberLease(m.cfg.Fleet, after.Name) && election.IsMore(before, after)
	})
	defer unsubscribe()
	stable := m.cfg.Clock.Now().Add(m.cfg.RebalanceDelay)
	for ctx.Err() == nil && m.State() == Joining {
		now := m.cfg.Clock.Now()
		roster := RosterFrom(m.cfg.Fleet, m.cfg.Observer.List(), m.cfg.Timing.LeaseDuration, now)
		alone := m.cfg.Observer.HasSynced() && !roster.othersActive(m.member)
		if alone || !now.Before(stable) {
			m.setState(Active)
			klog.FromContext(ctx).Info("Became an active member", "member", m.member, "term", term, "alone", alone)
			break
		}
		wake := stable
		if next := roster.NextChange(); next.After(now) && next.Before(wake) {
			wake = next
		}
		election.Await(ctx, m.cfg.Clock, changed, wake.Sub(now))
	}
}

// othersActive reports whether a member other than self is active.
func (r Roster) othersActive(self string) bool {
	for _, m := range r.members {
		if m.State == Active && m.Name != self {
			return true
		}
	}
	return false
}

func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}
