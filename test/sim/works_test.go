package sim

import (
	"slices"
	"time"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
)

// beginWork checks that work begins under a claim, that nobody else works on what the shard covers,
// and that caches are fresh.
func (sim *simulation) beginWork(k *work) {
	seen := k.seen()
	sim.mu.Lock()
	defer sim.mu.Unlock()
	p, id := k.process, k.part.id
	sim.noteLockedf("%s works on %s, warm %t", p.name(), id, k.warmed)
	held := sim.heldLocked(p, id)
	if held == nil && !p.wasSuspended() {
		sim.failLockedf(entitled, "%s begins to work on %s without a valid claim", p.name(), id)
	}
	if held != nil {
		k.term = held.term
		sim.judgeLeaderLocked(p, p.name()+" begins to work on "+id.String())
	}
	k.began = time.Now()
	for _, overlapping := range sim.overlappingLocked(k.part) {
		for _, other := range sim.works[overlapping] {
			sim.judgeBesideLocked(k, other, held != nil)
		}
	}
	sim.works[k.part] = append(sim.works[k.part], k)
	if !k.warmed {
		sim.countLocked(coldStarts)
		return
	}
	sim.countLocked(warmStarts)
	if held != nil && !p.wasFrozen() { // Otherwise its fence or the API server blocks everything.
		sim.judgeFreshLocked(k, seen)
	}
}

// judgeBesideLocked checks whether work may begin beside other work on the same part. If all clocks
// run at one speed, it may not. The other claim ended a renew deadline after its last renewal, and
// a lease duration later its work has returned or its process has ended. Nobody takes over its
// Lease before that.
//
// If clocks differ, a lease duration of a faster member is shorter than one of the holder. The
// other work may overlap for that difference and no longer.
func (sim *simulation) judgeBesideLocked(k, other *work, entitled bool) {
	both := entitled && sim.heldLocked(other.process, other.part.id) != nil && !other.process.wasFrozen() && !k.process.wasFrozen()
	beside := func() {
		sim.failLockedf(overlap, "%s begins to work on %s while %s does on %s", k.process.name(), k.part.id, other.process.name(), other.part.id)
	}
	fastest := sim.fastestRate()
	allowed := lasts(other.process.seat.rate) - lasts(fastest)
	switch {
	case sim.excusedLocked(k.part):
	case both:
		beside()
	case k.process.wasSuspended() || other.process.wasSuspended():
	case allowed <= 0:
		beside()
	default:
		time.AfterFunc(allowed, func() {
			sim.mu.Lock()
			defer sim.mu.Unlock()
			works := func(k *work) bool { return slices.Contains(sim.works[k.part], k) && !k.process.wasSuspended() }
			if works(k) && works(other) && !sim.excusedLocked(k.part) {
				sim.failLockedf(overlap, "%s has worked on %s for %v while %s did on %s, by clocks of speed %.2f and %.2f", k.process.seat.name,
					k.part.id, allowed, other.process.seat.name, other.part.id, fastest, other.process.seat.rate)
			}
		})
	}
}

// fastestRate returns the rate of the fastest clock of a member: any of them may list a holder as
// ended.
func (sim *simulation) fastestRate() float64 {
	rate := 0.0
	for _, s := range sim.seats {
		rate = max(rate, s.rate)
	}
	return rate
}

// lasts returns how long a lease duration lasts by a clock of this rate.
func lasts(rate float64) time.Duration {
	return time.Duration(float64(election.DefaultTiming().LeaseDuration) / rate)
}

// judgeFreshLocked checks that prepared work has seen all earlier writes made under claims that
// were valid. Late writes of earlier holders count if they arrived before the cache was filled or
// compared with the current state. They also count if the cache trusts what those holders left.
func (sim *simulation) judgeFreshLocked(k *work, seen int) {
	for _, overlapping := range sim.overlappingLocked(k.part) {
		if overlapping.id != k.part.id && sim.excusedLocked(k.part) {
			continue
		}
		for _, last := range slices.Backward(sim.written[overlapping]) {
			if seen >= last.version {
				break
			}
			if last.late && !k.answersFor(overlapping, last) {
				continue
			}
			if sim.misledLocked(last, overlapping, k.part) {
				continue
			}
			term := int32(0)
			if last.claim != nil {
				term = last.claim.term
			}
			sim.failLockedf(stale, "%s begins to work on %s with a cache at %d, and %s wrote %d to %s in term %d at %.3f, late %t", k.process.name(),
				k.part.id, seen, last.process.name(), last.version, overlapping.id, term, last.at.Sub(sim.begin).Seconds(), last.late)
			return
		}
	}
}

// answersFor reports whether a cache must have seen a write that arrived after its claim had ended.
func (k *work) answersFor(of part, late written) bool {
	return late.at.Before(k.listedAt) || late.at.Before(k.refreshed) || k.trusts(of, late)
}

// trusts reports whether the work began because the holder that sent the write recorded its last
// writes and knew the outcome of all of them.
func (k *work) trusts(of part, write written) bool {
	return k.trusted != nil && of == k.part && write.claim != nil && write.claim.term == k.trusted.Term
}

// judgeAcceptedLocked compares an accepted write with work that has begun on the same part under
// later claims.
func (sim *simulation) judgeAcceptedLocked(p part, write written) {
	for _, overlapping := range sim.overlappingLocked(p) {
		for _, k := range sim.works[overlapping] {
			if k.process != write.process && (write.claim == nil || k.began.After(write.claim.acquired)) {
				sim.judgeWriteBesideLocked(p, write, k)
			}
		}
	}
}

// judgeWriteBesideLocked judges a write that arrives beside the successor's work, after its claim
// has ended. It is allowed if the holder released the Lease with the write unanswered, and said so.
// If clocks differ and the holder died, a lease duration of another member may be shorter than a
// renew deadline of the holder plus the transit time. Where the API server enforces the fence,
// nothing is accepted from a dead holder, whatever its clock says.
func (sim *simulation) judgeWriteBesideLocked(p part, write written, k *work) {
	c := write.claim
	lastWrite := time.Duration(float64(election.DefaultTiming().RenewDeadline)/write.process.seat.rate) + longestWire
	broken := late
	switch {
	case c == nil, sim.excusedLocked(k.part), sim.excusedLocked(p):
		return
	case k.process.wasSuspended() && !sim.succeedsLocked(k, c):
		return // On waking it has begun under an older claim.
	case c.released && write.sent.Before(k.began) && (c.unsure || !k.trusts(p, write)):
		return
	case sim.misledLocked(write, p, k.part):
		return
	case write.process.wasFrozen():
		broken = fenced
	case !c.released && lastWrite > lasts(sim.fastestRate()):
		return
	}
	sim.failLockedf(broken, "a write of %s to %s in term %d, sent at %.3f, is taken while %s works on %s", write.process.name(), p.id, c.term,
		write.sent.Sub(sim.begin).Seconds(), k.process.name(), k.part.id)
}

// succeedsLocked reports whether the work's claim is known to be newer than c.
func (sim *simulation) succeedsLocked(k *work, c *claim) bool {
	own := sim.claimLocked(k.process, k.part.id, k.term)
	return own != nil && own.acquired.After(c.acquired) && !own.waking
}

// misledLocked reports whether the write is from a process whose clock stood still, so that it
// believes its claim is valid. Nothing kept the write out because somebody has spoilt the Leases
// that say whom to fence.
func (sim *simulation) misledLocked(write written, parts ...part) bool {
	return write.process.wasFrozen() && slices.ContainsFunc(parts, func(p part) bool { return sim.spoiltLocked(p, write) })
}

// spoiltLocked reports whether somebody has recently written the Leases that say whom to fence.
func (sim *simulation) spoiltLocked(p part, write written) bool {
	of := func(lease string) bool {
		at, touched := sim.touched[lease]
		return touched && time.Since(at) < time.Minute
	}
	return of(leaserecord.MemberLease(fleetName, write.process.seat.name)) ||
		slices.ContainsFunc(sim.overlappingLocked(p), func(other part) bool { return of(sim.leaseOf(other.id)) })
}

func (sim *simulation) endWork(k *work) {
	sim.mu.Lock()
	defer sim.mu.Unlock()
	sim.noteLockedf("%s ends its work on %s", k.process.name(), k.part.id)
	sim.works[k.part] = slices.DeleteFunc(sim.works[k.part], func(other *work) bool { return other == k })
}

// judgeLeaderLocked checks that no stock controller manager works while a process does, unless
// somebody has given the leader lock away.
func (sim *simulation) judgeLeaderLocked(p *process, what string) {
	for _, c := range sim.stocks {
		if !c.works.IsZero() && !sim.lockExcusedLocked(p) {
			sim.failLockedf(leaderLock, "%s while %s runs since %.3f", what, c.name, c.works.Sub(sim.begin).Seconds())
		}
	}
}

// judgeStockLocked checks that nobody works under a valid claim when a stock controller manager
// begins to.
func (sim *simulation) judgeStockLocked(c *stock) {
	for part, works := range sim.works {
		for _, k := range works {
			if sim.heldLocked(k.process, part.id) != nil && !sim.lockExcusedLocked(k.process) {
				sim.failLockedf(leaderLock, "%s leads while %s works on %s", c.name, k.process.name(), part.id)
			}
		}
	}
}

// lockExcusedLocked reports whether somebody has recently given the leader lock away, or the
// process was suspended or its clock stood still: it learns with its next request that the lock is
// lost.
func (sim *simulation) lockExcusedLocked(p *process) bool {
	given, ok := sim.disturbed[stockLease]
	return ok && time.Since(given) < excuse || p.wasFrozen() || p.wasSuspended()
}
