package sim

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/utils/ptr"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/fleet"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// excuse is how long a holder may not know that somebody has given its Lease away: its renewals fail from then on, so it
// is less than a renew deadline and a request.
const excuse = 16 * time.Second

// judge is what the invariants are held against. It is told what processes do, and believes none of their clocks but the
// one that a claim is measured by.
type judge struct {
	claims map[shard.ID][]*claim
	works  map[shard.ID][]*work
	// disturbed is when somebody last gave away a Lease, removed when it was last deleted.
	disturbed, removed map[string]time.Time
	instances          map[*process]int
	// extents has what each shard of any plan covers.
	extents map[shard.ID]shard.Extent
	count   counts
}

type counts struct {
	writes, late, refused, warm, cold, takeovers, exits, plans int
	settled                                                    time.Duration
}

// claim is a claim as its holder sees it.
type claim struct {
	process *process
	term    int32
	// renewed is when the last request that renewed it was started, by the holder's clock.
	renewed time.Time
	ended   bool
}

func (j *judge) init() {
	j.claims, j.works = map[shard.ID][]*claim{}, map[shard.ID][]*work{}
	j.disturbed, j.removed = map[string]time.Time{}, map[string]time.Time{}
	j.instances = map[*process]int{}
	j.extents = map[shard.ID]shard.Extent{}
}

// know takes in what the shards of a plan cover.
func (w *world) know(plan shard.Plan) {
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.Copy(w.extents, plan.Extents())
}

// overlappingLocked returns the shard and all others, of any plan, that cover some of what it covers.
func (w *world) overlappingLocked(id shard.ID) []shard.ID {
	ids := []shard.ID{id}
	for other, extent := range w.extents {
		if other != id && extent.Overlaps(w.extents[id]) {
			ids = append(ids, other)
		}
	}
	slices.SortFunc(ids, shard.ID.Compare)
	return ids
}

// valid tells whether a write may start now.
func (c *claim) valid() bool {
	return !c.ended && !c.process.isDead() && c.process.clock.Now().Before(c.renewed.Add(election.DefaultTiming().RenewDeadline))
}

func (w *world) claimLocked(p *process, id shard.ID, term int32) *claim {
	for _, c := range w.claims[id] {
		if c.process == p && c.term == term {
			return c
		}
	}
	return nil
}

func (w *world) validLocked(p *process, id shard.ID, term int32) bool {
	c := w.claimLocked(p, id, term)
	return c != nil && c.valid()
}

// entitledLocked tells whether a process has a valid claim on a shard.
func (w *world) entitledLocked(p *process, id shard.ID) bool {
	return slices.ContainsFunc(w.claims[id], func(c *claim) bool { return c.process == p && c.valid() })
}

// excusedLocked tells whether somebody has given the Lease of the shard, or of one that it overlaps, away of late. To delete
// that of an ancestor is to give it away: who inherits sees nobody hold it.
func (w *world) excusedLocked(id shard.ID) bool {
	return slices.ContainsFunc(w.overlappingLocked(id), func(other shard.ID) bool {
		given, ok := w.disturbed[w.leaseOf(other)]
		removed, gone := w.removed[w.leaseOf(other)]
		return ok && time.Since(given) < excuse || other != id && gone && time.Since(removed) < excuse
	})
}

// observe is told every event of every claim.
func (w *world) observe(p *process, e fleet.Event) {
	if p.isDead() {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if e.Type != election.EventRenewed {
		w.noteLockedf("%s %s %s term %d %s%s", p.name(), e.Name, e.Type, e.Term, e.Reason, errorText(e.Err))
	}
	if e.ID == (shard.ID{}) {
		return
	}
	switch e.Type {
	case election.EventAcquired:
		w.count.takeovers++
		w.claims[e.ID] = append(w.claims[e.ID], &claim{process: p, term: e.Term, renewed: p.clock.Now().Add(-e.Duration)})
		w.judgeClaimsLocked(e.ID)
	case election.EventRenewed:
		if c := w.claimLocked(p, e.ID, e.Term); c != nil {
			c.renewed = p.clock.Now().Add(-e.Duration)
		}
	case election.EventEnded:
		if c := w.claimLocked(p, e.ID, e.Term); c != nil {
			c.ended = true
		}
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return " (" + err.Error() + ")"
}

// judgeClaimsLocked holds that no two claims on a shard are valid.
func (w *world) judgeClaimsLocked(id shard.ID) {
	var holders []string
	w.claims[id] = slices.DeleteFunc(w.claims[id], func(c *claim) bool { return c.ended || c.process.isDead() })
	for _, c := range w.claims[id] {
		if c.valid() {
			holders = append(holders, fmt.Sprintf("%s in term %d", c.process.name(), c.term))
		}
	}
	if len(holders) > 1 && !w.excusedLocked(id) {
		w.failLockedf("two claims on %s are valid: %s", id, strings.Join(holders, ", "))
	}
}

// judgeSent holds that a write starts under a valid claim.
func (w *world) judgeSent(p *process, id shard.ID, term int32) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !p.isDead() && !w.validLocked(p, id, term) {
		w.failLockedf("%s writes to %s in term %d, and has no valid claim", p.name(), id, term)
	}
	w.judgeClaimsLocked(id)
}

// judgeUpdate holds that nobody clears a Lease while its own work runs.
func (w *world) judgeUpdate(p *process, lease *coordinationv1.Lease) {
	if ptr.Deref(lease.Spec.HolderIdentity, "") != "" {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, works := range w.works {
		for _, k := range works {
			if k.process == p && w.leaseOf(id) == lease.Name {
				w.failLockedf("%s releases %s while its work runs", p.name(), lease.Name)
			}
		}
	}
}

// beginWork holds that nobody else works on what the shard covers, and that caches are fresh.
func (w *world) beginWork(k *work) {
	id, seen := k.given.Shard.ID, k.seen()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.noteLockedf("%s works on %s, warm %t", k.process.name(), id, k.warmed)
	entitled := w.entitledLocked(k.process, id)
	if !entitled && !k.process.wasSuspended() {
		w.failLockedf("%s begins to work on %s without a valid claim", k.process.name(), id)
	}
	for _, overlapping := range w.overlappingLocked(id) {
		for _, other := range w.works[overlapping] {
			excused := w.drift || k.process.wasSuspended() || other.process.wasSuspended() || other.stubborn
			if entitled && w.entitledLocked(other.process, overlapping) {
				excused = false
			}
			if !excused && !w.excusedLocked(id) {
				w.failLockedf("%s begins to work on %s while %s does on %s", k.process.name(), id, other.process.name(), overlapping)
			}
		}
	}
	w.works[id] = append(w.works[id], k)
	if !k.warmed {
		w.count.cold++
		return
	}
	w.count.warm++
	if !entitled {
		return // It has been suspended, and its fence lets nothing pass any more.
	}
	for _, overlapping := range w.overlappingLocked(id) {
		for _, last := range slices.Backward(w.written[overlapping]) {
			if last.late {
				continue
			}
			if seen < last.version && (overlapping == id || !w.excusedLocked(id)) {
				w.failLockedf("%s begins to work on %s with a cache at %d, and %s wrote %d to %s in term %d at %.3f", k.process.name(), id, seen,
					last.process.name(), last.version, overlapping, last.term, last.at.Sub(w.begin).Seconds())
			}
			break
		}
	}
}

func (w *world) endWork(k *work) {
	w.mu.Lock()
	defer w.mu.Unlock()
	id := k.given.Shard.ID
	w.noteLockedf("%s ends its work on %s", k.process.name(), id)
	w.works[id] = slices.DeleteFunc(w.works[id], func(other *work) bool { return other == k })
}

// forget takes out what a process did, because it is dead.
func (w *world) forget(p *process) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id := range w.works {
		w.works[id] = slices.DeleteFunc(w.works[id], func(k *work) bool { return k.process == p })
	}
}

// exit is told that a process must end.
func (w *world) exit(p *process, reason string) {
	if p.isDead() {
		return
	}
	w.mu.Lock()
	w.count.exits++
	w.noteLockedf("%s exits: %s", p.name(), reason)
	excused := p.wasSuspended()
	for _, works := range w.works {
		for _, k := range works {
			excused = excused || k.process == p && k.stubborn
		}
	}
	if !excused {
		w.failLockedf("%s was told to exit: %s", p.name(), reason)
	}
	w.mu.Unlock()
	p.kill()
}

func (w *world) built(k *work, n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.instances[k.process] += n
}

func (w *world) refused() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.count.refused++
}

// unsettled says what is not as it is to be after the last fault; empty if all is well.
func (w *world) unsettled() string {
	plan, err := fleet.PlanOf(w.store.Get(fleet.PlanLease(fleetName)))
	if err != nil {
		return fmt.Sprintf("the plan cannot be read: %v", err)
	}
	spare := slices.ContainsFunc(w.seats, func(s *seat) bool {
		return s.process != nil && !s.process.over() && !s.process.unwanted.Load() && !w.isDrained(s.name)
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, works := range w.works {
		if _, planned := plan.Shard(id); !planned && len(works) > 0 {
			return fmt.Sprintf("%s works on %s, which is not in the plan", works[0].process.name(), id)
		}
	}
	for _, s := range plan.Shards() {
		works := w.works[s.ID]
		if len(works) != 1 {
			return fmt.Sprintf("%d members work on %s", len(works), s.ID)
		}
		if name := works[0].process.seat.name; spare && w.isDrained(name) {
			return fmt.Sprintf("%s is drained and works on %s, though others are there", name, s.ID)
		}
		valid := 0
		for _, c := range w.claims[s.ID] {
			if c.valid() && c.process == works[0].process {
				valid++
			}
		}
		if valid != 1 {
			return fmt.Sprintf("%s works on %s under %d valid claims", works[0].process.name(), s.ID, valid)
		}
	}
	return ""
}

// judgeEnd looks at what is left, and at the history of the Leases as a whole.
func (w *world) judgeEnd() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.failed {
		return
	}
	for p, n := range w.instances {
		if n != 0 && !p.isDead() {
			w.failLockedf("%s has built %d instances that it neither ran nor closed", p.name(), n)
		}
	}
	highest := map[string]int32{}
	for _, write := range w.store.History() {
		before, after := election.RecordFrom(write.Before), election.RecordFrom(write.After)
		name := after.Name
		switch {
		case write.After == nil:
			delete(highest, before.Name)
			continue
		case write.Client == "":
			// Somebody else wrote: from here on that is the term to beat.
			highest[name] = after.Transitions
			continue
		case after.Holder == "" || after.Holder == before.Holder && after.Transitions == before.Transitions:
			continue
		}
		last, known := highest[name]
		if known && after.Transitions <= last {
			w.failLockedf("%s was acquired by %s at %.3f in term %d after term %d", name, after.Holder,
				write.Time.Sub(w.begin).Seconds(), after.Transitions, last)
		}
		highest[name] = after.Transitions
	}
}

// disturb notes that somebody has given a Lease away.
func (w *world) disturb(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.disturbed[name] = time.Now()
}

// remove deletes a Lease. Soon after it was created, or a second time, that is like giving it away: whoever has not heard of
// what was between counts from before. The comment of package election says so.
func (w *world) remove(name string) bool {
	w.mu.Lock()
	at, before := w.removed[name]
	w.removed[name] = time.Now()
	lease := w.store.Get(name)
	if before && time.Since(at) < time.Minute || lease != nil && time.Since(lease.CreationTimestamp.Time) < time.Minute {
		w.disturbed[name] = time.Now()
	}
	w.mu.Unlock()
	return w.store.Remove(name)
}

// leases returns the names of all Leases that the fleet may have.
func (w *world) leases() []string {
	names := map[string]bool{}
	w.mu.Lock()
	for id := range w.extents {
		names[w.leaseOf(id)] = true
	}
	w.mu.Unlock()
	names[fleet.PlanLease(fleetName)] = true
	for _, s := range w.seats {
		names[election.MemberLease(fleetName, s.name)] = true
	}
	return slices.Sorted(maps.Keys(names))
}
