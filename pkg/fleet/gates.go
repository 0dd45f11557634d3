package fleet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/flotilla-kube/flotilla/internal/plant"
	"github.com/flotilla-kube/flotilla/pkg/election"
)

// EventGate is an event of a gate's Lease: its Type is that of the event of package election, with this before it.
const EventGate election.EventType = "gate-"

// GateIdentity returns the name under which all members of a fleet together hold a gate: "<fleet>_fleet".
func GateIdentity(fleet string) string { return fleet + "_fleet" }

// gates are the foreign Leases that the fleet must hold while any member runs.
type gates struct {
	member *Member
	// lost is closed once one of them was held and is lost.
	lost chan struct{}
	held atomic.Pointer[hold]
}

// hold is one time that the gates are held, or waited for. A fleet that is stopped and started has another one.
type hold struct {
	all []*election.Gate
	// opened is closed once all are held: from then on shards may be claimed.
	opened chan struct{}
	// since is when opened was closed, and who had the gates had had the time to stop; zero if there are none. It may be read
	// once open returns true.
	since time.Time
}

func (m *Member) newGates() (*gates, error) {
	g := &gates{member: m, lost: make(chan struct{})}
	h, err := g.newHold()
	if err != nil {
		return nil, err
	}
	g.held.Store(h)
	return g, nil
}

// current returns the hold that is under way, or that is to come.
func (g *gates) current() *hold { return g.held.Load() }

func (g *gates) newHold() (*hold, error) {
	m, h := g.member, &hold{opened: make(chan struct{})}
	for _, name := range m.config.Gates {
		gate, err := election.NewGate(election.GateConfig{
			Name:     name,
			Identity: GateIdentity(m.config.Fleet),
			Client:   m.config.Leases,
			Observer: m.observer,
			Clock:    m.config.Clock,
			Timing:   m.config.Timing,
			OnEvent:  func(e election.Event) { e.Type = EventGate + e.Type; m.config.Observe(Event{Event: e}) },
		})
		if err != nil {
			return nil, fmt.Errorf("gate %q: %w", name, err)
		}
		h.all = append(h.all, gate)
	}
	if len(h.all) == 0 {
		close(h.opened)
	}
	return h, nil
}

// run holds the gates until ctx ends, but not while the fleet is stopped. The error is that of the gates that were lost.
func (g *gates) run(ctx context.Context) error {
	for {
		g.member.standStill(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err := g.keep(ctx, g.current()); err != nil || ctx.Err() != nil {
			return err
		}
		h, err := g.newHold()
		if err != nil {
			return err
		}
		g.held.Store(h)
	}
}

// keep holds the gates until ctx ends or the member is still, and takes all claims of the process back when one is lost. They are acquired in their order,
// each once the one before it is held: a fleet that waited for one gate with the next in its hands would keep its controllers from
// whoever has the first. The stock controller manager does the same with the Lease of a leader migration. The error is that of
// the gates that were lost.
func (g *gates) keep(ctx context.Context, h *hold) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	errs := make([]error, len(h.all))
	var running sync.WaitGroup
	end := sync.OnceFunc(func() {
		g.member.membership.Revoke()
		close(g.lost)
		cancel()
	})
	running.Go(func() { g.member.untilStill(ctx); cancel() })
	if len(h.all) > 0 {
		running.Go(func() { g.wait(ctx, h) })
	}
	for i, gate := range h.all {
		running.Go(func() {
			if i > 0 {
				select {
				case <-h.all[i-1].Held():
				case <-ctx.Done():
					return
				}
			}
			if errs[i] = gate.Run(ctx); errs[i] != nil {
				end()
			}
		})
	}
	running.Wait()
	return errors.Join(errs...)
}

// wait closes opened once all gates are held and, if no other member runs anything, nobody else has
// kept one of them for GateDelay: a holder that has just let go of a gate may still be stopping. It
// returns then or when ctx has ended.
func (g *gates) wait(ctx context.Context, h *hold) {
	for i, gate := range h.all {
		if name := g.member.config.Gates[i]; !gate.Valid(g.member.config.Clock.Now()) {
			klog.FromContext(ctx).V(1).Info("Waiting for the gate: nothing runs before the fleet holds it", "lease", name, "holder", gate.Holder())
		}
		select {
		case <-gate.Held():
		case <-ctx.Done():
			return
		}
	}
	m := g.member
	if now := m.config.Clock.Now(); m.liveShard(now).Name == "" && !plant.GateDelayIgnored {
		m.pause(ctx, max(0, m.config.GateDelay-now.Sub(h.freeSince())))
	}
	if ctx.Err() == nil {
		h.since = g.member.config.Clock.Now()
		close(h.opened)
	}
}

// freeSince returns the time since which nobody but the fleet has kept any of the gates, all of
// which are held.
func (h *hold) freeSince() time.Time {
	var since time.Time
	for _, gate := range h.all {
		if free := gate.FreeSince(); free.After(since) {
			since = free
		}
	}
	return since
}

// open tells whether all gates have been held.
func (g *gates) open() bool {
	return g.current().isOpen()
}

func (h *hold) isOpen() bool { return isClosed(h.opened) || plant.GateIgnored }

// opening returns what is closed when all gates are held; nil if they have been.
func (g *gates) opening() <-chan struct{} {
	if h := g.current(); !h.isOpen() {
		return h.opened
	}
	return nil
}

// permit tells whether all gates are held at now.
func (g *gates) permit(now time.Time) bool {
	for _, gate := range g.current().all {
		if !gate.Valid(now) {
			return false
		}
	}
	return true
}

// pending returns an error that names the first gate that is not held; nil if all are.
func (g *gates) pending(now time.Time) error {
	for i, gate := range g.current().all {
		if !gate.Valid(now) {
			name, holder := g.member.config.Gates[i], gate.Holder()
			if holder == "" {
				return fmt.Errorf("the gate, Lease %s, is held by nobody yet", name)
			}
			return fmt.Errorf("the gate, Lease %s, is held by %q", name, holder)
		}
	}
	return nil
}

// release gives the gates up if no other member is left to hold them. This member has released its own Lease before, so
// of two that leave at least one sees that nobody is left.
func (g *gates) release(ctx context.Context) {
	m, h := g.member, g.current()
	if len(h.all) == 0 || !m.started.Load() {
		return
	}
	logger := klog.FromContext(ctx)
	list, err := m.list(ctx, metav1.ListOptions{})
	if err != nil {
		logger.Error(err, "Could not see whether other members are left, leaving the gates to expire")
		return
	}
	m.observeAll(list)
	roster := m.Roster()
	if others := roster.Live(); len(others) > 0 {
		logger.V(1).Info("Left the gates to the other members", "members", others)
		return
	}
	for i, gate := range slices.Backward(h.all) {
		if gate.Holder() != GateIdentity(m.config.Fleet) {
			continue // The list has just said so: the fleet was still waiting.
		}
		releasing, cancel := context.WithTimeout(ctx, m.config.Timing.RenewDeadline/2)
		if err := gate.Release(releasing); err != nil {
			logger.Error(err, "Could not release the gate, it expires", "lease", m.config.Gates[i])
		} else {
			logger.Info("Released the gate: this was the last member", "lease", m.config.Gates[i])
		}
		cancel()
	}
}
