package sim

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/fleet"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// excuse is how long a holder may not know that somebody has given its Lease away. Its renewals
// fail from then on, so it is less than a renew deadline plus a request.
const excuse = 16 * time.Second

// judge checks the invariants. Processes report to it, and it trusts no clock of theirs except the
// one that measures a claim.
type judge struct {
	claims map[shard.ID][]*claim
	works  map[part][]*work
	// disturbed is when somebody last gave a Lease away, removed when it was last deleted, and
	// touched when it was last tampered with.
	disturbed, removed, touched map[string]time.Time
	instances                   map[*process]int
	// extents has the extent of each part, and near the parts that overlap it.
	extents map[part]shard.Extent
	near    map[part][]part
	counts  [kinds]int
	// settled is how long it took after the last fault until all shards ran.
	settled time.Duration
	// sentPlans is when a member first sent each plan.
	sentPlans map[string]time.Time
	// lostLock is set once a leader lock was lost.
	lostLock bool
	// gaveUp is when a process last exited because its work did not end.
	gaveUp time.Time
}

// part is a shard as one plan has it. After a plan was started over, a shard of the same name may
// cover something else.
type part struct {
	id     shard.ID
	covers string
}

func (j *judge) init() {
	j.claims, j.works = map[shard.ID][]*claim{}, map[part][]*work{}
	j.disturbed, j.removed, j.touched = map[string]time.Time{}, map[string]time.Time{}, map[string]time.Time{}
	j.sentPlans = map[string]time.Time{}
	j.instances = map[*process]int{}
	j.extents, j.near = map[part]shard.Extent{}, map[part][]part{}
}

// know records what a shard covers.
func (sim *simulation) know(given fleet.Work) part {
	p := part{id: given.Shard.ID, covers: given.Shard.Range.String() + " " + strings.Join(given.Controllers, ",")}
	sim.mu.Lock()
	defer sim.mu.Unlock()
	if _, known := sim.extents[p]; !known {
		sim.extents[p] = shard.Extent{Range: given.Shard.Range, Controllers: given.Controllers}
		clear(sim.near)
	}
	return p
}

// overlappingLocked returns p and all parts, of any plan, that overlap it.
func (sim *simulation) overlappingLocked(p part) []part {
	if near, known := sim.near[p]; known {
		return near
	}
	near := []part{p}
	for other, extent := range sim.extents {
		if other != p && extent.Overlaps(sim.extents[p]) {
			near = append(near, other)
		}
	}
	slices.SortFunc(near[1:], func(a, b part) int { return strings.Compare(a.id.String()+a.covers, b.id.String()+b.covers) })
	sim.near[p] = near
	return near
}

// excusedLocked reports whether somebody has recently given away the Lease of the shard or of one
// that overlaps it. Deleting a predecessor's Lease counts: to its successor the shard looks unheld.
func (sim *simulation) excusedLocked(p part) bool {
	return slices.ContainsFunc(sim.overlappingLocked(p), func(other part) bool {
		given, ok := sim.disturbed[sim.leaseOf(other.id)]
		removed, gone := sim.removed[sim.leaseOf(other.id)]
		return ok && time.Since(given) < excuse || other.id != p.id && gone && time.Since(removed) < excuse
	})
}

// observe receives every event of every claim.
func (sim *simulation) observe(p *process, e fleet.Event) {
	if p.isDead() {
		return
	}
	sim.mu.Lock()
	defer sim.mu.Unlock()
	if e.Type != election.EventRenewed && e.Type != fleet.EventLeaderLock+election.EventRenewed {
		sim.noteLockedf("%s %s %s term %d %s%s", p.name(), e.Name, e.Type, e.Term, e.Reason, errorText(e.Err))
	}
	switch e.Type {
	case fleet.EventLeaderLock + election.EventAcquired:
		sim.countLocked(locksHeld)
		if sim.lostLock {
			sim.countLocked(locksRegained)
		}
	case fleet.EventLeaderLock + election.EventEnded:
		sim.countLocked(locksLost)
		sim.lostLock = true
	case fleet.EventFenced:
		sim.countLocked(marks)
	}
	if e.ID != (shard.ID{}) {
		sim.observeClaimLocked(p, e)
	} else if e.Name == leaserecord.MemberLease(fleetName, p.seat.name) && (e.Type == election.EventRenewed || e.Type == election.EventAcquired) {
		p.beat = p.clock.Now().Add(-e.Duration)
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return " (" + err.Error() + ")"
}

// exit receives a process's decision to exit.
func (sim *simulation) exit(p *process, reason string) {
	if p.isDead() {
		return
	}
	sim.mu.Lock()
	sim.countLocked(processExits)
	sim.noteLockedf("%s exits: %s", p.name(), reason)
	excused := p.wasSuspended()
	for _, works := range sim.works {
		for _, k := range works {
			if k.process == p && k.stubborn {
				excused, sim.gaveUp = true, time.Now()
			}
		}
	}
	if !excused {
		sim.failLockedf(exit, "%s was told to exit: %s", p.name(), reason)
	}
	sim.mu.Unlock()
	p.kill()
}

// forget removes the state of a dead process.
func (sim *simulation) forget(p *process) {
	sim.mu.Lock()
	defer sim.mu.Unlock()
	for part := range sim.works {
		sim.works[part] = slices.DeleteFunc(sim.works[part], func(k *work) bool { return k.process == p })
	}
}

func (sim *simulation) built(k *work, n int) {
	sim.mu.Lock()
	defer sim.mu.Unlock()
	sim.instances[k.process] += n
}

// judgeEnd checks the final state and the whole history of the Leases.
func (sim *simulation) judgeEnd() {
	if *mistake == "goroutine_left" {
		go func() { <-make(chan struct{}) }()
	}
	sim.mu.Lock()
	defer sim.mu.Unlock()
	for p, n := range sim.instances {
		if n != 0 && !p.isDead() {
			sim.failLockedf(closes, "%s has built %d instances that it neither ran nor closed", p.name(), n)
		}
	}
	history := sim.store.History()
	sim.judgeTermsLocked(history)
	sim.judgePlansLocked(history)
}

// disturb records that somebody has given a Lease away.
func (sim *simulation) disturb(name string) {
	sim.mu.Lock()
	defer sim.mu.Unlock()
	sim.disturbed[name] = time.Now()
}

// touch records that somebody has written a Lease.
func (sim *simulation) touch(name string) {
	sim.mu.Lock()
	defer sim.mu.Unlock()
	sim.touched[name] = time.Now()
}

// remove deletes a Lease. Soon after its creation, or a second time, that equals giving it away: a
// process that missed what happened in between counts from before. Package election documents this.
func (sim *simulation) remove(name string) bool {
	sim.mu.Lock()
	at, before := sim.removed[name]
	sim.removed[name] = time.Now()
	lease := sim.store.Get(name)
	if name == stockLease || before && time.Since(at) < time.Minute || lease != nil && time.Since(lease.CreationTimestamp.Time) < time.Minute {
		sim.disturbed[name] = time.Now()
	}
	sim.mu.Unlock()
	return sim.store.Remove(name)
}

// leases returns the names of all Leases that the fleet may have.
func (sim *simulation) leases() []string {
	names := map[string]bool{}
	sim.mu.Lock()
	for p := range sim.extents {
		names[sim.leaseOf(p.id)] = true
	}
	sim.mu.Unlock()
	names[leaseapi.PlanLease(fleetName)] = true
	for _, s := range sim.seats {
		names[leaserecord.MemberLease(fleetName, s.name)] = true
	}
	return slices.Sorted(maps.Keys(names))
}
