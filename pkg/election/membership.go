package election

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/klog/v2"
)

// ErrMembershipLost is what Membership.Run returns when the member's Lease was lost: another incarnation of the member
// has taken it, or it could not be renewed in time.
var ErrMembershipLost = errors.New("membership lost")

// MembershipConfig configures a Membership. Fields without a default are required.
type MembershipConfig struct {
	// Fleet is the fleet's name, the Observer's.
	Fleet string
	// Incarnation of the member, from NewIncarnation: one for each process start.
	Incarnation string
	// Client, Observer, Clock, Timing, Labels, OnEvent, OnStuck and Jitter are as in ClaimantConfig, for the member's Lease.
	// If the Observer is one of a fleet with heartbeats, the Client must be a LeaseReader too: then the member follows
	// [heartbeat.Step], and the membership is the Heartbeat of its claims.
	Client   LeaseWriter
	Observer *Observer
	Clock    Clock
	Timing   Timing
	Labels   map[string]string
	OnEvent  func(Event)
	OnStuck  func(StuckClaim)
	Jitter   func(time.Duration) time.Duration
	// RebalanceDelay is how long the member stays joining, by its own clock, while another member is active. Default 0: it
	// becomes active at once. Must not be negative.
	RebalanceDelay time.Duration
	// Turned returns when those loops last came round without which the member does no work, and the name of the one that
	// did longest ago; the zero time if there is nothing that should. No heartbeat is sent if it has not come round since
	// the one before. It must not block. Default: nothing.
	Turned func() (time.Time, string)
	// Fences reports whether members that are listed as ended are to be marked, see [Mark]. It must not block. Default: not.
	Fences func() bool
	// Annotations returns what else to say of the member on its Lease; an empty value removes a key. It must not block. Call
	// Membership.Touch when its answer changes. Default: nothing is said.
	Annotations func() map[string]string
}

// Membership keeps one member's Lease, by which others know that it lives. It serves for one hold: once lost or left, make
// a new one. Run must be called once; the other methods are safe for concurrent use at any time.
//
//	          Lease acquired           RebalanceDelay, or nobody else is active           Leave
//	(waiting) ──────────────▶ joining ─────────────────────────────────────────▶ active ──────▶ leaving
//	                             └─────────────────────── Leave ───────────────────────────────────┘
type Membership struct {
	cfg      MembershipConfig
	member   string
	claimant *Claimant // nil if there is a pacemaker
	pace     *pacemaker
	joined   chan struct{}
	lost     chan struct{}
	revoke   func() // closes the claimant's Revoked

	credentials credentials

	mu    sync.Mutex
	state MemberState

	// These belong to the goroutine of Run, which is the one that reports events.
	cancel context.CancelFunc
	reason Reason // why it was lost; empty if it was not
}

// NewMembership returns a membership that is joining. The error names every field that is out of bounds.
func NewMembership(cfg MembershipConfig) (*Membership, error) {
	m := &Membership{
		cfg:    cfg,
		member: MemberOf(cfg.Incarnation),
		joined: make(chan struct{}),
		lost:   make(chan struct{}),
		state:  MemberJoining,
	}
	var errs []error
	if m.member == "" {
		errs = append(errs, fmt.Errorf("MembershipConfig.Incarnation is %q, must be of the form <member>_<uuid>", cfg.Incarnation))
	}
	if cfg.Fleet == "" {
		errs = append(errs, errors.New("MembershipConfig.Fleet is empty, must be the fleet's name"))
	}
	if cfg.RebalanceDelay < 0 {
		errs = append(errs, fmt.Errorf("MembershipConfig.RebalanceDelay is %v, must not be negative", cfg.RebalanceDelay))
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
	if cfg.Observer != nil && cfg.Observer.cfg.Heartbeats {
		reader, reads := cfg.Client.(leases)
		if !reads {
			errs = append(errs, errors.New("MembershipConfig.Client must list Leases, too"))
		}
		if err := errors.Join(append(errs, cfg.Timing.Validate())...); err != nil {
			return nil, err
		}
		m.pace = newPacemaker(m, reader, revoked)
		return m, nil
	}
	claimant, err := NewClaimant(ClaimantConfig{
		Name:        MemberLease(cfg.Fleet, m.member),
		Revoked:     revoked,
		Identity:    cfg.Incarnation,
		Client:      cfg.Client,
		Observer:    cfg.Observer,
		Clock:       cfg.Clock,
		Timing:      cfg.Timing,
		Labels:      cfg.Labels,
		Annotations: m.annotations,
		// Only incarnations of this member want this Lease, and new pods must not wait to be seen. Should it be deleted under
		// a live incarnation, the shards' Leases still keep the two apart.
		CreateAtOnce: true,
		Work: func(ctx context.Context, claim *Claim) {
			m.activate(ctx, claim.Term())
			<-ctx.Done()
		},
		OnEvent: m.onEvent,
		OnStuck: cfg.OnStuck,
		Jitter:  cfg.Jitter,
	})
	if err = errors.Join(append(errs, err)...); err != nil {
		return nil, err
	}
	m.claimant = claimant
	return m, nil
}

// Run acquires and keeps the member's Lease until ctx ends or the Lease is lost. While another incarnation of the member
// holds it, Run waits and reports EventWaiting. When ctx ends it releases the Lease and returns nil; hand over all shards
// before, after Leave. When the Lease is lost it closes Lost and returns an error that is ErrMembershipLost and says why; with
// heartbeats only after ctx has ended, too, by when all work must have returned.
func (m *Membership) Run(ctx context.Context) error {
	ctx, m.cancel = context.WithCancel(ctx)
	defer m.cancel()
	if m.pace != nil {
		return m.pace.run(ctx)
	}
	m.awaitProtocol(ctx)
	m.claimant.SetWish(Want)
	m.claimant.Run(ctx)
	if m.reason != "" {
		return fmt.Errorf("%w: %s", ErrMembershipLost, m.reason)
	}
	return nil
}

// awaitProtocol returns when no live member has heartbeats, or ctx has ended: what such members hold
// looks to this one as if nobody renewed it. They wait for this one in the same way, so none may
// start at the same time as the other.
func (m *Membership) awaitProtocol(ctx context.Context) {
	o := m.cfg.Observer
	changed, unsubscribe := o.Subscribe(o.isMember)
	defer unsubscribe()
	said := ""
	for ctx.Err() == nil {
		known, now := o.List(), m.cfg.Clock.Now()
		i := slices.IndexFunc(known, func(lease Observation) bool {
			return o.isMember(lease.Name) && MemberOf(lease.Holder) != "" && lease.Protocol() > 1 &&
				!lease.Expired(now, m.cfg.Timing.LeaseDuration)
		})
		switch {
		case i < 0 && o.HasSynced():
			return
		case i < 0:
		case known[i].Holder != said:
			said = known[i].Holder
			klog.FromContext(ctx).Info("Waiting to join: a live member follows another protocol", "holder", said)
			m.cfg.OnEvent(Event{Type: EventWaiting, Name: MemberLease(m.cfg.Fleet, m.member), Reason: ReasonProtocol, Holder: said})
		}
		m.pause(ctx, changed, m.cfg.Timing.RetryPeriod)
	}
}

// Joined is closed once the Lease is held: from then on the process may claim shards, until Lost.
func (m *Membership) Joined() <-chan struct{} { return m.joined }

// Lost is closed when the Lease was held and is no more, other than by the end of Run's ctx. All claims of the process must
// end: give it to their claimants as ClaimantConfig.Revoked.
func (m *Membership) Lost() <-chan struct{} { return m.lost }

// Name returns the member's name.
func (m *Membership) Name() string { return m.member }

// Confirmed returns the start of the last heartbeat that is confirmed, and whether rights come of it, see [Heartbeat]. Without
// heartbeats it is that of the last renewal of the member's Lease.
func (m *Membership) Confirmed() (start time.Time, right bool) {
	if m.pace != nil {
		return m.pace.confirmed()
	}
	claim := m.claimant.Claim()
	if claim == nil {
		return time.Time{}, false
	}
	return claim.LastRenew(), claim.Context().Err() == nil
}

var _ Heartbeat = (*Membership)(nil)

// State returns what the member says of itself.
func (m *Membership) State() MemberState {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.state
}

// Leave takes the member out of the ring, for good. It goes on renewing, so that it can hand over its shards in peace.
func (m *Membership) Leave() {
	m.setState(MemberLeaving)
}

// Touch has the Lease written as soon as possible, after the answer of MembershipConfig.Annotations has changed.
func (m *Membership) Touch() {
	if m.pace != nil {
		m.pace.touch()
		return
	}
	m.claimant.Touch()
}

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

// onEvent notices the loss of the Lease before anything else happens.
func (m *Membership) onEvent(event Event) {
	switch {
	case event.Type == EventStarted:
		close(m.joined)
	case event.Type == EventEnded && !event.Reason.Planned() && closed(m.joined):
		m.reason = event.Reason
		close(m.lost)
		m.cancel()
	}
	m.cfg.OnEvent(event)
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

// othersActive tells whether a member other than self is active.
func (r Roster) othersActive(self string) bool {
	for _, m := range r.members {
		if m.State == MemberActive && m.Name != self {
			return true
		}
	}
	return false
}
