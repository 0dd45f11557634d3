package sim

import (
	"fmt"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/utils/ptr"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/election/leasetest"
	"github.com/flotilla-kube/flotilla/pkg/fleet"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// claim is a claim as its holder sees it.
type claim struct {
	process *process
	id      shard.ID
	term    int32
	// acquired is when the claim began.
	acquired time.Time
	// draining is when the holder asked its work to stop, by the holder's clock.
	draining time.Time
	// ended is when the claim ended; zero before that.
	ended time.Time
	// released is set once the holder has sent the release.
	released bool
}

// valid reports whether the holder may start a write.
func (c *claim) valid() bool { return c.ended.IsZero() && c.confirmed() }

// confirmed reports whether the last heartbeat is recent enough.
func (c *claim) confirmed() bool {
	deadline := c.process.beat.Add(election.DefaultTiming().RenewDeadline)
	return !c.process.isDead() && c.process.clock.Now().Before(deadline)
}

// over reports whether the claim ended before this instant. If a write passes the fence at the same
// virtual instant, nothing says which came first.
func (c *claim) over() bool { return !c.ended.IsZero() && time.Now().After(c.ended) }

func (w *world) claimLocked(p *process, id shard.ID, term int32) *claim {
	for _, c := range w.claims[id] {
		if c.process == p && c.term == term {
			return c
		}
	}
	return nil
}

// heldLocked returns the process's valid claim on a shard, or nil.
func (w *world) heldLocked(p *process, id shard.ID) *claim {
	for _, c := range w.claims[id] {
		if c.process == p && c.valid() {
			return c
		}
	}
	return nil
}

// observeClaimLocked receives the events of shards.
func (w *world) observeClaimLocked(p *process, e fleet.Event) {
	c := w.claimLocked(p, e.ID, e.Term)
	switch e.Type {
	case election.EventAcquired:
		w.countLocked(claimsBegun)
		if len(p.rings) > 0 {
			w.countLocked(ringClaims)
		}
		said, touched := w.touched[election.MemberLease(fleetName, p.seat.name)]
		if len(p.rings) > 0 && !slices.Contains(p.rings, e.ID.Ring) && !(touched && time.Since(said) < excuse) {
			w.failLockedf(ringServed, "%s claims %s, but serves the rings %v", p.name(), e.ID, p.rings)
		}
		w.claims[e.ID] = append(w.claims[e.ID], &claim{
			process: p, id: e.ID, term: e.Term, acquired: time.Now(),
		})
		w.judgeClaimsLocked(e.ID)
	case fleet.EventRunning:
		if a := e.Acquisition; a != nil && a.How == fleet.HowTakeover && a.Cold == nil {
			w.countLocked(standbyTakeovers)
		}
	}
	if c == nil {
		return
	}
	switch e.Type {
	case election.EventDraining:
		c.draining = p.clock.Now()
		w.judgeDrainLater(c)
	case election.EventEnded:
		c.ended = time.Now()
	}
}

// judgeClaimsLocked checks that at most one claim on a shard is valid.
func (w *world) judgeClaimsLocked(id shard.ID) {
	var holders []string
	w.claims[id] = slices.DeleteFunc(w.claims[id], func(c *claim) bool { return c.over() || c.process.isDead() })
	excused := false
	for _, c := range w.claims[id] {
		if c.valid() {
			holders = append(holders, fmt.Sprintf("%s in term %d", c.process.name(), c.term))
			excused = excused || c.process.wasFrozen()
		}
	}
	given, disturbed := w.disturbed[w.leaseOf(id)]
	if len(holders) > 1 && !excused && (!disturbed || time.Since(given) >= excuse) {
		w.failLockedf(oneClaim, "two claims on %s are valid: %s", id, strings.Join(holders, ", "))
	}
}

// judgeSent checks that a write starts under a valid claim, and within the drain limit if the work
// was asked to stop. It returns the claim.
func (w *world) judgeSent(p *process, id shard.ID, term int32) *claim {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.claimLocked(p, id, term)
	if p.isDead() {
		return c
	}
	if c == nil || c.over() || !c.confirmed() {
		w.failLockedf(fencing, "%s writes to %s in term %d, and has no valid claim", p.name(), id, term)
		return c
	}
	if since := p.clock.Now().Sub(c.draining); !c.draining.IsZero() && since > handoffTimeout+10*time.Millisecond && !p.wasSuspended() {
		w.failLockedf(drainFence, "%s writes to %s %v after its work was asked to stop", p.name(), id, since)
	}
	w.judgeLeaderLocked(p, fmt.Sprintf("%s writes to %s", p.name(), id))
	w.judgeClaimsLocked(id)
	return c
}

// judgeDrainLater checks that work that was asked to stop has returned, or that its process has
// ended, once the fence has been closed for a lease duration.
func (w *world) judgeDrainLater(c *claim) {
	limit := handoffTimeout + election.DefaultTiming().LeaseDuration + requestSlack
	time.AfterFunc(limit, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		for part, works := range w.works {
			for _, k := range works {
				if k.process == c.process && part.id == c.id && k.term == c.term && !c.process.wasSuspended() {
					w.failLockedf(drains, "%s works on %s %v after it was asked to stop", c.process.name(), c.id, limit)
				}
			}
		}
	})
}

// judgeUpdate checks that no member clears a Lease while its own work runs.
func (w *world) judgeUpdate(p *process, lease *coordinationv1.Lease) {
	if lease.Name == leaseapi.PlanLease(fleetName) {
		w.notePlan(lease)
	}
	if ptr.Deref(lease.Spec.HolderIdentity, "") != "" {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for part, works := range w.works {
		for _, k := range works {
			if k.process == p && w.leaseOf(part.id) == lease.Name {
				w.failLockedf(release, "%s releases %s while its work runs", p.name(), lease.Name)
			}
		}
	}
	for part := range w.written {
		if w.leaseOf(part.id) != lease.Name {
			continue
		}
		for _, write := range w.written[part] {
			if write.process == p && write.claim != nil {
				write.claim.released = true
			}
		}
	}
	for id, claims := range w.claims {
		for _, c := range claims {
			if c.process == p && w.leaseOf(id) == lease.Name {
				c.released = true
			}
		}
	}
}

// judgeTermsLocked checks that terms rise with every acquisition.
func (w *world) judgeTermsLocked(history []leasetest.Write) {
	highest := map[string]int32{}
	for _, write := range history {
		before, after := election.RecordFrom(write.Before), election.RecordFrom(write.After)
		name := after.Name
		switch {
		case write.After == nil:
			delete(highest, before.Name)
			continue
		case write.Client == "":
			// Somebody outside the fleet wrote: later terms must exceed this one.
			highest[name] = after.Transitions
			continue
		case name == stockLease:
			continue // Members that share a term write it again after a Lease was cleared.
		case after.Holder == "" || after.Holder == before.Holder && after.Transitions == before.Transitions:
			continue
		}
		last, known := highest[name]
		if known && after.Transitions <= last {
			w.failLockedf(terms, "%s was acquired by %s at %.3f in term %d after term %d", name, after.Holder,
				write.Time.Sub(w.begin).Seconds(), after.Transitions, last)
		}
		highest[name] = after.Transitions
	}
}
