package election

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	"k8s.io/klog/v2"
)

// ErrMembershipLost is what Membership.Run returns when the member's Lease was lost: another
// incarnation of the member has taken it, or it could not be renewed in time.
var ErrMembershipLost = errors.New("membership lost")

// MembershipConfig configures a Membership. Fields without a default are required.
type MembershipConfig struct {
	// Fleet is the fleet's name, the Observer's.
	Fleet string
	// Incarnation of the member, from NewIncarnation: one for each process start.
	Incarnation string
	// Client, Observer, Clock, Timing, Labels, OnEvent and Jitter are as in ClaimantConfig, for the
	// member's Lease. The Client lists Leases, too.
	Client   Leases
	Observer *Observer
	Clock    Clock
	Timing   Timing
	Labels   map[string]string
	OnEvent  func(Event)
	Jitter   func(time.Duration) time.Duration
	// RebalanceDelay is how long the member stays joining, by its own clock, while another member
	// is active. Default 0: it becomes active at once. Must not be negative.
	RebalanceDelay time.Duration
	// Turned returns when those loops last came round without which the member does no work, and
	// the name of the one that did longest ago; the zero time if there is nothing that should. No
	// heartbeat is sent if it has not come round since the one before. It must not block. Default:
	// nothing.
	Turned func() (time.Time, string)
	// Fences reports whether members that are listed as ended are to be marked, see
	// [FenceIncarnation]. It must not block. Default: not.
	Fences func() bool
	// Annotations returns what else to say of the member on its Lease; an empty value removes a
	// key. It must not block. Call Membership.Touch when its answer changes. Default: nothing is
	// said.
	Annotations func() map[string]string
}

// Membership keeps one member's Lease, by which others know that it lives, and judges other
// members. It is the Heartbeat of the member's claims. It serves for one hold: once lost or left,
// make a new one. Run must be called once; the other methods are safe for concurrent use at any
// time.
//
//	          Lease acquired           RebalanceDelay, or nobody else is active           Leave
//	(waiting) ──────────────▶ joining ─────────────────────────────────────────▶ active ──────▶ leaving
//	                             └─────────────────────── Leave ───────────────────────────────────┘
type Membership struct {
	cfg    MembershipConfig
	member string
	pace   *pacemaker
	joined chan struct{}
	lost   chan struct{}
	revoke func()

	credentials credentials

	mu    sync.Mutex
	state MemberState
}

// NewMembership returns a membership that is joining. The error names every field that is out of
// bounds.
func NewMembership(cfg MembershipConfig) (*Membership, error) {
	m := &Membership{
		cfg:    cfg,
		member: MemberOf(cfg.Incarnation),
		joined: make(chan struct{}),
		lost:   make(chan struct{}),
		state:  MemberJoining,
	}
	var errs []error
	require := func(ok bool, field, value, allowed string) {
		if !ok {
			errs = append(errs, fmt.Errorf("MembershipConfig.%s is %s, must %s", field, value, allowed))
		}
	}
	require(m.member != "", "Incarnation", fmt.Sprintf("%q", cfg.Incarnation), "be of the form <member>_<uuid>")
	require(cfg.Fleet != "", "Fleet", "empty", "be the fleet's name")
	require(cfg.Client != nil, "Client", "nil", "read and write Leases")
	require(cfg.Observer != nil, "Observer", "nil", "observe the same Leases")
	require(cfg.Clock != nil, "Clock", "nil", "be the Observer's clock")
	require(cfg.RebalanceDelay >= 0, "RebalanceDelay", fmt.Sprint(cfg.RebalanceDelay), "not be negative")
	if err := cfg.Timing.Validate(); err != nil {
		errs = append(errs, fmt.Errorf("MembershipConfig.%w", err))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if m.cfg.Annotations == nil {
		m.cfg.Annotations = func() map[string]string { return nil }
	}
	if m.cfg.OnEvent == nil {
		m.cfg.OnEvent = func(Event) {}
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
// reports EventWaiting. When ctx ends it releases the Lease and returns nil; hand over all shards
// before, after Leave. When the Lease is lost it closes Lost, and once ctx has ended, too, by when
// all work must have returned, it returns an error that is ErrMembershipLost and says why.
func (m *Membership) Run(ctx context.Context) error { return m.pace.run(ctx) }

// Joined is closed once the Lease is held: from then on the process may claim shards, until Lost.
func (m *Membership) Joined() <-chan struct{} { return m.joined }

// Lost is closed when the Lease was held and is no more, other than by the end of Run's ctx. All
// claims of the process must end: give it to their claimants as ClaimantConfig.Revoked.
func (m *Membership) Lost() <-chan struct{} { return m.lost }

// Name returns the member's name.
func (m *Membership) Name() string { return m.member }

// Confirmed returns the start of the last heartbeat that is confirmed, and whether rights come of
// it, see [Heartbeat].
func (m *Membership) Confirmed() (start time.Time, right bool) { return m.pace.confirmed() }

var _ Heartbeat = (*Membership)(nil)

// State returns what the member says of itself.
func (m *Membership) State() MemberState {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.state
}

// Leave takes the member out of the ring, for good. It goes on renewing, so that it can hand over
// its shards in peace.
func (m *Membership) Leave() {
	m.setState(MemberLeaving)
}

// Touch has the Lease written as soon as possible, after the answer of MembershipConfig.Annotations
// has changed.
func (m *Membership) Touch() { m.pace.touch() }

// setState moves to state, unless the member is leaving, and has it written.
func (m *Membership) setState(state MemberState) {
	m.mu.Lock()
	if m.state != MemberLeaving {
		m.state = state
	}
	m.mu.Unlock()
	m.Touch()
}

func (m *Membership) annotations() map[string]string {
	all := map[string]string{}
	maps.Copy(all, m.cfg.Annotations())
	maps.Copy(all, m.credentialAnnotations())
	all[StateAnnotation] = string(m.State())
	return all
}

// activate waits until the member may become active, and says so.
func (m *Membership) activate(ctx context.Context, term int32) {
	changed, unsubscribe := m.cfg.Observer.SubscribeChanges(func(before, after Observation) bool {
		return strings.HasPrefix(after.Name, MemberLease(m.cfg.Fleet, "")) && IsMore(before, after)
	})
	defer unsubscribe()
	stable := m.cfg.Clock.Now().Add(m.cfg.RebalanceDelay)
	for ctx.Err() == nil && m.State() == MemberJoining {
		now := m.cfg.Clock.Now()
		roster := RosterFrom(m.cfg.Fleet, m.cfg.Observer.List(), m.cfg.Timing.LeaseDuration, now)
		alone := m.cfg.Observer.HasSynced() && !roster.othersActive(m.member)
		if alone || !now.Before(stable) {
			m.setState(MemberActive)
			klog.FromContext(ctx).Info("Became an active member", "member", m.member, "term", term, "alone", alone)
			break
		}
		wake := stable
		if next := roster.NextChange(); next.After(now) && next.Before(wake) {
			wake = next
		}
		m.pause(ctx, changed, wake.Sub(now))
	}
}

func (m *Membership) pause(ctx context.Context, changed <-chan struct{}, d time.Duration) {
	timer := m.cfg.Clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-changed:
	case <-timer.C():
	}
}

// othersActive reports whether a member other than self is active.
func (r Roster) othersActive(self string) bool {
	for _, m := range r.members {
		if m.State == MemberActive && m.Name != self {
			return true
		}
	}
	return false
}
