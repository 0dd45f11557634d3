package sim

import (
	"slices"
	"time"

	"github.com/flotilla-kube/flotilla/pkg/election"
)

// beginWork checks that work begins under a claim, that nobody else works on what the shard covers,
// and that caches are fresh.
func (w *world) beginWork(k *work) {
	seen := k.seen()
	w.mu.Lock()
	defer w.mu.Unlock()
	p, id := k.process, k.part.id
	w.noteLockedf("%s works on %s, warm %t", p.name(), id, k.warmed)
	held := w.heldLocked(p, id)
	if held == nil && !p.wasSuspended() {
		w.failLockedf(entitled, "%s begins to work on %s without a valid claim", p.name(), id)
	}
	if held != nil {
		k.term = held.term
		w.judgeLeaderLocked(p, p.name()+" begins to work on "+id.String())
	}
	k.began = time.Now()
	for _, overlapping := range w.overlappingLocked(k.part) {
		for _, other := range w.works[overlapping] {
			w.judgeBesideLocked(k, other, held != nil)
		}
	}
	w.works[k.part] = append(w.works[k.part], k)
	if !k.warmed {
		w.countLocked(coldStarts)
		return
	}
	w.countLocked(warmStarts)
	if held != nil && !p.wasFrozen() { // Otherwise its fence or the API server blocks everything.
		w.judgeFreshLocked(k, seen)
	}
}

// judgeBesideLocked checks whether work may begin beside other work on the same part. If all clocks
// run at one speed, it may not. The other claim ended a renew deadline after its last renewal, and
// a lease duration later its work has returned or its process has ended. Nobody takes over its
// Lease before that.
//
// If clocks differ, a lease duration of a faster member is shorter than one of the holder. The
// other work may overlap for that difference and no longer. Any member may list the holder as
// ended, so the fastest clock counts and not the claimant's.
func (w *world) judgeBesideLocked(k, other *work, entitled bool) {
	both := entitled && w.heldLocked(other.process, other.part.id) != nil && !other.process.wasFrozen() && !k.process.wasFrozen()
	beside := func() {
		w.failLockedf(overlap, "%s begins to work on %s while %s does on %s", k.process.name(), k.part.id, other.process.name(), other.part.id)
	}
	fastest := k.process.seat.rate
	for _, s := range w.seats {
		fastest = max(fastest, s.rate)
	}
	allowed := lasts(other.process.seat.rate) - lasts(fastest)
	switch {
	case w.excusedLocked(k.part):
	case both:
		beside()
	case k.process.wasSuspended() || other.process.wasSuspended():
	case allowed <= 0:
		beside()
	default:
		time.AfterFunc(allowed, func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			works := func(k *work) bool { return slices.Contains(w.works[k.part], k) && !k.process.wasSuspended() }
			if works(k) && works(other) && !w.excusedLocked(k.part) {
				w.failLockedf(overlap, "%s has worked on %s for %v while %s did on %s, by clocks of speed %.2f and %.2f", k.process.name(),
					k.part.id, allowed, other.process.name(), other.part.id, fastest, other.process.seat.rate)
			}
		})
	}
}

// lasts returns how long a lease duration lasts by a clock of this rate.
func lasts(rate float64) time.Duration {
	return time.Duration(float64(election.DefaultTiming().LeaseDuration) / rate)
}

// judgeFreshLocked checks that prepared work has seen all earlier writes made under claims that
// were valid. It must also have seen late writes of earlier holders, if they arrived before the
// cache was filled or compared with the current state, or if the cache trusts what those holders
// left.
func (w *world) judgeFreshLocked(k *work, seen int) {
	for _, overlapping := range w.overlappingLocked(k.part) {
		if overlapping.id != k.part.id && w.excusedLocked(k.part) {
			continue
		}
		for _, last := range slices.Backward(w.written[overlapping]) {
			if seen >= last.version {
				break
			}
			if last.late && !k.answersFor(overlapping, last) {
				continue
			}
			if w.misledLocked(last, overlapping, k.part) {
				continue
			}
			term := int32(0)
			if last.claim != nil {
				term = last.claim.term
			}
			w.failLockedf(stale, "%s begins to work on %s with a cache at %d, and %s wrote %d to %s in term %d at %.3f, late %t", k.process.name(),
				k.part.id, seen, last.process.name(), last.version, overlapping.id, term, last.at.Sub(w.begin).Seconds(), last.late)
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
func (w *world) judgeAcceptedLocked(p part, write written) {
	for _, overlapping := range w.overlappingLocked(p) {
		for _, k := range w.works[overlapping] {
			if k.process != write.process && (write.claim == nil || k.began.After(write.claim.acquired)) {
				w.judgeWriteBesideLocked(p, write, k)
			}
		}
	}
}

// judgeWriteBesideLocked judges a write that arrives beside the successor's work, after its claim
// has ended. It is allowed if the holder released the Lease with the write unanswered, and said so.
// If clocks differ and the holder died, a lease duration of the successor may be shorter than a
// renew deadline of the holder plus the transit time. Where the API server enforces the fence,
// nothing is accepted from a dead holder, whatever its clock says.
func (w *world) judgeWriteBesideLocked(p part, write written, k *work) {
	c := write.claim
	lastWrite := time.Duration(float64(election.DefaultTiming().RenewDeadline)/write.process.seat.rate) + longestWire
	broken := late
	switch {
	case c == nil, w.excusedLocked(k.part), w.excusedLocked(p), k.process.wasSuspended():
		return
	case c.released && write.sent.Before(k.began) && !k.trusts(p, write):
		return
	case w.misledLocked(write, p, k.part):
		return
	case write.process.wasFrozen():
		broken = fenced
	case !c.released && lastWrite > lasts(k.process.seat.rate):
		return
	}
	w.failLockedf(broken, "a write of %s to %s in term %d, sent at %.3f, is taken while %s works on %s", write.process.name(), p.id, c.term,
		write.sent.Sub(w.begin).Seconds(), k.process.name(), k.part.id)
}

// misledLocked reports whether the write is from a process whose clock stood still, so that it
// believes its claim is valid, and nothing kept it out because somebody has spoilt the Leases that
// say whom to fence.
func (w *world) misledLocked(write written, parts ...part) bool {
	return write.process.wasFrozen() && slices.ContainsFunc(parts, func(p part) bool { return w.spoiltLocked(p, write) })
}

// spoiltLocked reports whether somebody has recently written the Leases that say whom to fence.
func (w *world) spoiltLocked(p part, write written) bool {
	of := func(lease string) bool {
		at, touched := w.touched[lease]
		return touched && time.Since(at) < time.Minute
	}
	return of(election.MemberLease(fleetName, write.process.seat.name)) ||
		slices.ContainsFunc(w.overlappingLocked(p), func(other part) bool { return of(w.leaseOf(other.id)) })
}

func (w *world) endWork(k *work) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.noteLockedf("%s ends its work on %s", k.process.name(), k.part.id)
	w.works[k.part] = slices.DeleteFunc(w.works[k.part], func(other *work) bool { return other == k })
}

// judgeLeaderLocked checks that no stock controller manager works while a process does, unless
// somebody has given the leader lock away.
func (w *world) judgeLeaderLocked(p *process, what string) {
	for _, c := range w.stocks {
		if !c.works.IsZero() && !w.lockExcusedLocked(p) {
			w.failLockedf(leaderLock, "%s while %s runs since %.3f", what, c.name, c.works.Sub(w.begin).Seconds())
		}
	}
}

// judgeStockLocked checks that nobody works under a valid claim when a stock controller manager
// begins to.
func (w *world) judgeStockLocked(c *stock) {
	for part, works := range w.works {
		for _, k := range works {
			if w.heldLocked(k.process, part.id) != nil && !w.lockExcusedLocked(k.process) {
				w.failLockedf(leaderLock, "%s leads while %s works on %s", c.name, k.process.name(), part.id)
			}
		}
	}
}

// lockExcusedLocked reports whether somebody has recently given the leader lock away, or the
// process was suspended or its clock stood still: it learns with its next request that the lock is
// lost.
func (w *world) lockExcusedLocked(p *process) bool {
	given, ok := w.disturbed[stockLease]
	return ok && time.Since(given) < excuse || p.wasFrozen() || p.wasSuspended()
}
