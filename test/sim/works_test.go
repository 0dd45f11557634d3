package sim

import (
	"slices"
	"time"

	"github.com/flotilla-kube/flotilla/pkg/election"
)

// beginWork holds that a claim is behind work that begins, that nobody else works on what the shard
// covers, and that caches are fresh.
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
	if held != nil && !p.wasFrozen() { // Else its fence, or the API server, lets nothing pass any more.
		w.judgeFreshLocked(k, seen)
	}
}

// judgeBesideLocked holds that work may begin beside other work on some of the same. By clocks of
// one speed it may not: the other one's claim has ended a renew deadline after its last renewal,
// its work has returned a lease duration after that, or its process has ended, and nobody takes its
// Lease over before.
//
// By clocks that differ, a lease duration of a member that is faster passes in less time than one
// of the holder. That difference, and no more, the other work may go on. It is not the claimant who
// waits for that long, but whoever lists the holder as ended: any member.
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

// lasts returns how long a lease duration lasts by a clock of some speed.
func lasts(rate float64) time.Duration {
	return time.Duration(float64(election.DefaultTiming().LeaseDuration) / rate)
}

// judgeFreshLocked holds that what was prepared has seen all that was written before: under claims
// that held then, and by earlier holders whose writes arrived late, if they arrived before the
// cache was filled or held against the present, or if the cache was held against what those left
// alone.
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

// trusts reports whether the work began because the holder that sent the write left what it had
// written last, and knew what had become of all of it.
func (k *work) trusts(of part, write written) bool {
	return k.trusted != nil && of == k.part && write.claim != nil && write.claim.term == k.trusted.Term
}

// judgeAcceptedLocked holds a write that was taken against the work of others that have begun on
// some of the same under later claims.
func (w *world) judgeAcceptedLocked(p part, write written) {
	for _, overlapping := range w.overlappingLocked(p) {
		for _, k := range w.works[overlapping] {
			if k.process != write.process && (write.claim == nil || k.began.After(write.claim.acquired)) {
				w.judgeWriteBesideLocked(p, write, k)
			}
		}
	}
}

// judgeWriteBesideLocked: a write of a holder whose claim has ended may be on the wire still when
// its successor begins. That is so if the holder released the Lease with a write unanswered, and
// said so; and by clocks that differ, if it died, since a lease duration of the successor may pass
// before a renew deadline of the holder and the time on the wire. Where the API server enforces the
// fence, nothing is taken from a holder that is dead, whatever its clock says.
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

// misledLocked reports whether a write is of a process whose clock stood still, which takes its
// claim for valid, and nothing kept the write out because somebody has spoilt the Leases that say
// whom to fence.
func (w *world) misledLocked(write written, parts ...part) bool {
	return write.process.wasFrozen() && slices.ContainsFunc(parts, func(p part) bool { return w.spoiltLocked(p, write) })
}

// spoiltLocked reports whether somebody has written the Leases that say whom to fence, of late.
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

// judgeLeaderLocked holds that no stock controller manager works while a process does, unless
// somebody has given the leader lock away.
func (w *world) judgeLeaderLocked(p *process, what string) {
	for _, c := range w.stocks {
		if !c.works.IsZero() && !w.lockExcusedLocked(p) {
			w.failLockedf(leaderLock, "%s while %s runs since %.3f", what, c.name, c.works.Sub(w.begin).Seconds())
		}
	}
}

// judgeStockLocked holds that nobody works under a valid claim when a stock controller manager
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

// lockExcusedLocked reports whether somebody has given the leader lock away recently, or the
// process's clock has stood still: that the leader lock is lost it learns with its next request.
func (w *world) lockExcusedLocked(p *process) bool {
	given, ok := w.disturbed[stockLease]
	return ok && time.Since(given) < excuse || p.wasFrozen() || p.wasSuspended()
}
