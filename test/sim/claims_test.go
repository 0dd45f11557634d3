package sim

import (
	"fmt"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/utils/ptr"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/election/fence"
	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
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
	// acquired is when the holder heard that it has the claim.
	acquired time.Time
	// waking is set if the holder heard of the claim just after it was resumed. The claim may be as
	// old as the pause.
	waking bool
	// draining is when the holder asked its work to stop, by the holder's clock.
	draining time.Time
	// ended is when the claim ended; zero before that.
	ended time.Time
	// released is set once the holder has sent the release.
	released bool
	// unsure is set if the release said that the outcome of a write is unknown.
	unsure bool
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

func (sim *simulation) claimLocked(p *process, id shard.ID, term int32) *claim {
	for _, c := range sim.claims[id] {
		if c.process == p && c.term == term {
			return c
		}
	}
	return nil
}

// heldLocked returns the process's valid claim on a shard, or nil.
func (sim *simulation) heldLocked(p *process, id shard.ID) *claim {
	for _, c := range sim.claims[id] {
		if c.process == p && c.valid() {
			return c
		}
	}
	return nil
}

// observeClaimLocked receives the events of shards.
func (sim *simulation) observeClaimLocked(p *process, e fleet.Event) {
	c := sim.claimLocked(p, e.ID, e.Term)
	switch e.Type {
	case election.EventAcquired:
		sim.countLocked(claimsBegun)
		if len(p.rings) > 0 {
			sim.countLocked(ringClaims)
		}
		said, touched := sim.touched[leaserecord.MemberLease(fleetName, p.seat.name)]
		if len(p.rings) > 0 && !slices.Contains(p.rings, e.ID.Ring) && !(touched && time.Since(said) < excuse) {
			sim.failLockedf(ringServed, "%s claims %s, but serves the rings %v", p.name(), e.ID, p.rings)
		}
		sim.claims[e.ID] = append(sim.claims[e.ID], &claim{
			process: p, id: e.ID, term: e.Term, acquired: time.Now(), waking: p.isWaking(),
		})
		sim.judgeClaimsLocked(e.ID)
	case fleet.EventRunning:
		if a := e.Acquisition; a != nil && a.How == fleet.HowTakeover && a.Cold == nil {
			sim.countLocked(standbyTakeovers)
		}
	}
	if c == nil {
		return
	}
	switch e.Type {
	case election.EventDraining:
		c.draining = p.clock.Now()
		sim.judgeDrainLater(c)
	case election.EventEnded:
		c.ended = time.Now()
	}
}

// judgeClaimsLocked checks that at most one claim on a shard is valid.
func (sim *simulation) judgeClaimsLocked(id shard.ID) {
	var holders []string
	sim.claims[id] = slices.DeleteFunc(sim.claims[id], func(c *claim) bool { return c.over() || c.process.isDead() })
	excused := false
	for _, c := range sim.claims[id] {
		if c.valid() {
			holders = append(holders, fmt.Sprintf("%s in term %d", c.process.name(), c.term))
			excused = excused || c.process.wasFrozen()
		}
	}
	given, disturbed := sim.disturbed[sim.leaseOf(id)]
	if len(holders) > 1 && !excused && (!disturbed || time.Since(given) >= excuse) {
		sim.failLockedf(oneClaim, "two claims on %s are valid: %s", id, strings.Join(holders, ", "))
	}
}

// judgeSent checks that a write starts under a valid claim, and within the drain limit if the work
// was asked to stop. It returns the claim.
func (sim *simulation) judgeSent(p *process, id shard.ID, term int32) *claim {
	sim.mu.Lock()
	defer sim.mu.Unlock()
	c := sim.claimLocked(p, id, term)
	if p.isDead() {
		return c
	}
	if c == nil || c.over() || !c.confirmed() {
		sim.failLockedf(fencing, "%s writes to %s in term %d, and has no valid claim", p.name(), id, term)
		return c
	}
	if since := p.clock.Now().Sub(c.draining); !c.draining.IsZero() && since > handoffTimeout+10*time.Millisecond && !p.wasSuspended() {
		sim.failLockedf(drainFence, "%s writes to %s %v after its work was asked to stop", p.name(), id, since)
	}
	sim.judgeLeaderLocked(p, fmt.Sprintf("%s writes to %s", p.name(), id))
	sim.judgeClaimsLocked(id)
	return c
}

// judgeDrainLater checks that work that was asked to stop has returned, or that its process has
// ended, once the fence has been closed for a lease duration.
func (sim *simulation) judgeDrainLater(c *claim) {
	limit := handoffTimeout + election.DefaultTiming().LeaseDuration + requestSlack
	time.AfterFunc(limit, func() {
		sim.mu.Lock()
		defer sim.mu.Unlock()
		for part, works := range sim.works {
			for _, k := range works {
				if k.process == c.process && part.id == c.id && k.term == c.term && !c.process.wasSuspended() {
					sim.failLockedf(drains, "%s works on %s %v after it was asked to stop", c.process.name(), c.id, limit)
				}
			}
		}
	})
}

// judgeUpdate checks that no member clears a Lease while its own work runs.
func (sim *simulation) judgeUpdate(p *process, lease *coordinationv1.Lease) {
	if lease.Name == leaseapi.PlanLease(fleetName) {
		sim.notePlan(lease)
	}
	if ptr.Deref(lease.Spec.HolderIdentity, "") != "" {
		return
	}
	left, _ := fence.ParseWrites(lease.Annotations[leaserecord.WritesAnnotation], ptr.Deref(lease.Spec.LeaseTransitions, 0))
	unsure := len(left.Unknown()) > 0
	sim.mu.Lock()
	defer sim.mu.Unlock()
	for part, works := range sim.works {
		for _, k := range works {
			if k.process == p && sim.leaseOf(part.id) == lease.Name {
				sim.failLockedf(release, "%s releases %s while its work runs", p.name(), lease.Name)
			}
		}
	}
	for part := range sim.written {
		if sim.leaseOf(part.id) != lease.Name {
			continue
		}
		for _, write := range sim.written[part] {
			if write.process == p && write.claim != nil && !write.claim.released {
				write.claim.released, write.claim.unsure = true, unsure
			}
		}
	}
	for id, claims := range sim.claims {
		for _, c := range claims {
			if c.process == p && !c.released && sim.leaseOf(id) == lease.Name {
				c.released, c.unsure = true, unsure
			}
		}
	}
}

// judgeTermsLocked checks that terms rise with every acquisition.
func (sim *simulation) judgeTermsLocked(history []leasetest.Write) {
	highest := map[string]int32{}
	for _, write := range history {
		before, after := leaserecord.From(write.Before), leaserecord.From(write.After)
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
			sim.failLockedf(terms, "%s was acquired by %s at %.3f in term %d after term %d", name, after.Holder,
				write.Time.Sub(sim.begin).Seconds(), after.Transitions, last)
		}
		highest[name] = after.Transitions
	}
}
