package sim

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/flotilla-kube/flotilla/pkg/election"
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
func (w *world) know(given fleet.Work) part {
	p := part{id: given.Shard.ID, covers: given.Shard.Range.String() + " " + strings.Join(given.Controllers, ",")}
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, known := w.extents[p]; !known {
		w.extents[p] = shard.Extent{Range: given.Shard.Range, Controllers: given.Controllers}
		clear(w.near)
	}
	return p
}

// overlappingLocked returns p and all parts, of any plan, that overlap it.
func (w *world) overlappingLocked(p part) []part {
	if near, known := w.near[p]; known {
		return near
	}
	near := []part{p}
	for other, extent := range w.extents {
		if other != p && extent.Overlaps(w.extents[p]) {
			near = append(near, other)
		}
	}
	slices.SortFunc(near[1:], func(a, b part) int { return strings.Compare(a.id.String()+a.covers, b.id.String()+b.covers) })
	w.near[p] = near
	return near
}

// excusedLocked reports whether somebody has recently given away the Lease of the shard or of one
// that overlaps it. Deleting a predecessor's Lease counts: to its successor the shard looks unheld.
func (w *world) excusedLocked(p part) bool {
	return slices.ContainsFunc(w.overlappingLocked(p), func(other part) bool {
		given, ok := w.disturbed[w.leaseOf(other.id)]
		removed, gone := w.removed[w.leaseOf(other.id)]
		return ok && time.Since(given) < excuse || other.id != p.id && gone && time.Since(removed) < excuse
	})
}

// observe receives every event of every claim.
func (w *world) observe(p *process, e fleet.Event) {
	if p.isDead() {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if e.Type != election.EventRenewed && e.Type != fleet.EventLeaderLock+election.EventRenewed {
		w.noteLockedf("%s %s %s term %d %s%s", p.name(), e.Name, e.Type, e.Term, e.Reason, errorText(e.Err))
	}
	switch e.Type {
	case fleet.EventLeaderLock + election.EventAcquired:
		w.countLocked(locksHeld)
		if w.lostLock {
			w.countLocked(locksRegained)
		}
	case fleet.EventLeaderLock + election.EventEnded:
		w.countLocked(locksLost)
		w.lostLock = true
	case fleet.EventFenced:
		w.countLocked(marks)
	}
	if e.ID != (shard.ID{}) {
		w.observeClaimLocked(p, e)
	} else if e.Name == election.MemberLease(fleetName, p.seat.name) && (e.Type == election.EventRenewed || e.Type == election.EventAcquired) {
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
func (w *world) exit(p *process, reason string) {
	if p.isDead() {
		return
	}
	w.mu.Lock()
	w.countLocked(processExits)
	w.noteLockedf("%s exits: %s", p.name(), reason)
	excused := p.wasSuspended()
	for _, works := range w.works {
		for _, k := range works {
			if k.process == p && k.stubborn {
				excused, w.gaveUp = true, time.Now()
			}
		}
	}
	if !excused {
		w.failLockedf(exit, "%s was told to exit: %s", p.name(), reason)
	}
	w.mu.Unlock()
	p.kill()
}

// forget removes the state of a dead process.
func (w *world) forget(p *process) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for part := range w.works {
		w.works[part] = slices.DeleteFunc(w.works[part], func(k *work) bool { return k.process == p })
	}
}

func (w *world) built(k *work, n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.instances[k.process] += n
}

// judgeEnd checks the final state and the whole history of the Leases.
func (w *world) judgeEnd() {
	if *mistake == "goroutine_left" {
		go func() { <-make(chan struct{}) }()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for p, n := range w.instances {
		if n != 0 && !p.isDead() {
			w.failLockedf(closes, "%s has built %d instances that it neither ran nor closed", p.name(), n)
		}
	}
	history := w.store.History()
	w.judgeTermsLocked(history)
	w.judgePlansLocked(history)
}

// disturb records that somebody has given a Lease away.
func (w *world) disturb(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.disturbed[name] = time.Now()
}

// touch records that somebody has written a Lease.
func (w *world) touch(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.touched[name] = time.Now()
}

// remove deletes a Lease. Soon after its creation, or a second time, that equals giving it away: a
// process that missed what happened in between counts from before. Package election documents this.
func (w *world) remove(name string) bool {
	w.mu.Lock()
	at, before := w.removed[name]
	w.removed[name] = time.Now()
	lease := w.store.Get(name)
	if name == stockLease || before && time.Since(at) < time.Minute || lease != nil && time.Since(lease.CreationTimestamp.Time) < time.Minute {
		w.disturbed[name] = time.Now()
	}
	w.mu.Unlock()
	return w.store.Remove(name)
}

// leases returns the names of all Leases that the fleet may have.
func (w *world) leases() []string {
	names := map[string]bool{}
	w.mu.Lock()
	for p := range w.extents {
		names[w.leaseOf(p.id)] = true
	}
	w.mu.Unlock()
	names[leaseapi.PlanLease(fleetName)] = true
	for _, s := range w.seats {
		names[election.MemberLease(fleetName, s.name)] = true
	}
	return slices.Sorted(maps.Keys(names))
}
