package sim

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/utils/ptr"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/fleet"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// fault has one thing go wrong.
func (w *world) fault() {
	s := w.seats[w.random.IntN(len(w.seats))]
	p := s.process
	if p == nil || p.over() {
		return
	}
	d := upTo(w.random, 25*time.Second)
	n := 1 + w.random.IntN(4)
	verbs := [][]string{nil, {"create", "update"}, {"get"}, {"watch"}, {"list", "watch"}}[w.random.IntN(5)]
	kind := w.random.IntN(26)
	switch kind {
	case 0, 1:
		w.notef("%s is killed", p.name())
		p.kill()
		s.start = time.Now().Add(d)
	case 2, 3, 4:
		late := time.Duration(w.random.IntN(2)) * upTo(w.random, 10*time.Second)
		w.notef("%s is suspended for %v, timers late by %v", p.name(), d, late)
		p.suspend(d, late)
	case 5:
		w.notef("%s is cut off for %v: %v", p.name(), d, verbs)
		p.client.Block(verbs...)
		time.AfterFunc(d, func() { p.client.Unblock() })
	case 6:
		w.notef("%s loses %d requests: %v", p.name(), n, verbs)
		p.client.Drop(n, verbs...)
	case 7:
		w.notef("%s loses %d answers: %v", p.name(), n, verbs)
		p.client.DropReply(n, verbs...)
	case 8:
		out, back := upTo(w.random, 8*time.Second), upTo(w.random, 8*time.Second)
		w.notef("%s: %d requests are slow, %v there and %v back: %v", p.name(), n, out, back, verbs)
		p.client.Delay(n, out, back, verbs...)
	case 9:
		n *= 3
		w.notef("%s meets %d conflicts", p.name(), n)
		p.client.Conflict(n)
	case 10:
		w.notef("%s sees events %v late, for %v", p.name(), d/3, d)
		p.client.LagWatch(d / 3)
		time.AfterFunc(d, func() { p.client.LagWatch(0) })
	case 11:
		w.notef("all watches break")
		w.store.BreakWatches()
	case 12:
		w.flap(d)
	case 13, 14:
		w.notef("%s is stopped, and started again after %v", p.name(), d)
		p.stop()
		s.start = time.Now().Add(d)
	case 15:
		w.notef("the API server fails for %s for %v", p.name(), d)
		p.fail(0.3)
		time.AfterFunc(d, func() { p.fail(0) })
	case 16, 17, 18, 19:
		w.replan()
	case 20, 21:
		w.drain(s)
	case 22:
		w.misplan()
	default:
		w.tamper()
	}
}

// replan has an operator change the plan: a range is split, two are merged, or a boundary moves.
func (w *world) replan() {
	lease := w.store.Get(fleet.PlanLease(fleetName))
	current, err := fleet.PlanOf(lease)
	if err != nil {
		return
	}
	if w.isBad(lease) {
		// The operator works from the plan that was there before.
		generation := current.Generation
		current = w.latest
		current.Generation = max(generation, current.Generation)
	}
	edited := fleet.KeepHomes(current, "namespaces", func(id shard.ID) string {
		return election.MemberOf(election.RecordFrom(w.store.Get(w.leaseOf(id))).Holder)
	})
	ring := &edited.Rings[0]
	ring.Shards = slices.Clone(ring.Shards)
	slices.SortFunc(ring.Shards, func(a, b shard.Shard) int { return cmp.Compare(a.Range.Start, b.Range.Start) })
	i := w.random.IntN(len(ring.Shards))
	old := ring.Shards[i]
	switch n := len(ring.Shards); {
	case n < 5 && w.random.IntN(2) == 0:
		first, second := w.renamed(old), w.renamed(old)
		middle := old.Range.Start + (old.Range.End-1-old.Range.Start)/2 + 1 // End 0 is 2^64
		first.Range.End, second.Range.Start = middle, middle
		ring.Shards = slices.Replace(ring.Shards, i, i+1, first, second)
	case n > 1 && i+1 < n && w.random.IntN(2) == 0:
		merged := w.renamed(old)
		merged.Range.End = ring.Shards[i+1].Range.End
		ring.Shards = slices.Replace(ring.Shards, i, i+2, merged)
	case i+1 < n:
		step := (old.Range.End - old.Range.Start) / 3
		first, second := w.renamed(old), w.renamed(ring.Shards[i+1])
		first.Range.End -= step
		second.Range.Start -= step
		ring.Shards = slices.Replace(ring.Shards, i, i+2, first, second)
	default:
		ring.Shards[i].Pin = w.seats[w.random.IntN(len(w.seats))].name
	}
	next, err := current.Successor(edited)
	if err != nil {
		w.failf("an operator's plan is refused: %v", err)
		return
	}
	changed, err := fleet.WithPlan(fleetName, lease, next)
	if err != nil {
		w.failf("an operator's plan cannot be written: %v", err)
		return
	}
	w.know(next)
	w.latest = next
	if w.store.Tamper(lease.Name, func(l *coordinationv1.Lease) { l.Labels, l.Annotations = changed.Labels, changed.Annotations }) {
		w.notef("the plan becomes generation %d: %v", next.Generation, ring.IDs())
		w.mu.Lock()
		w.count.plans++
		w.mu.Unlock()
	}
}

// misplan has somebody write a plan that no member may follow: a shard in it covers something else
// than before. What members would judge it by may go with it.
func (w *world) misplan() {
	lease := w.store.Get(fleet.PlanLease(fleetName))
	plan, err := fleet.PlanOf(lease)
	if err != nil || w.isBad(lease) || len(plan.Rings[0].Shards) < 2 {
		return
	}
	plan.Generation += 1 + w.random.Int64N(3)
	ring := &plan.Rings[0]
	ring.Shards = slices.Clone(ring.Shards)
	slices.SortFunc(ring.Shards, func(a, b shard.Shard) int { return cmp.Compare(a.Range.Start, b.Range.Start) })
	step := (ring.Shards[0].Range.End - ring.Shards[0].Range.Start) / 3
	ring.Shards[0].Range.End -= step
	ring.Shards[1].Range.Start -= step
	document, err := plan.Document()
	if err != nil {
		w.failf("a bad plan cannot be written: %v", err)
		return
	}
	good := [...]string{"removes", "spoils", "leaves"}[w.random.IntN(3)]
	w.bad = document
	w.store.Tamper(lease.Name, func(l *coordinationv1.Lease) {
		l.Annotations[fleet.DocumentAnnotation] = document
		switch good {
		case "removes":
			delete(l.Annotations, fleet.LastGoodAnnotation)
		case "spoils":
			l.Annotations[fleet.LastGoodAnnotation] = "gzip:junk"
		}
	})
	w.notef("somebody writes plan generation %d, which may not follow, and %s the last good one", plan.Generation, good)
}

// isBad reports whether what is on the plan's Lease is what misplan wrote there.
func (w *world) isBad(lease *coordinationv1.Lease) bool {
	return w.bad != "" && lease != nil && lease.Annotations[fleet.DocumentAnnotation] == w.bad
}

// drain has an operator drain a member, or take that back.
func (w *world) drain(s *seat) {
	w.store.Tamper(election.MemberLease(fleetName, s.name), func(l *coordinationv1.Lease) {
		if l.Annotations[fleet.DrainAnnotation] != "" {
			w.notef("%s is undrained", s.name)
			delete(l.Annotations, fleet.DrainAnnotation)
			return
		}
		w.notef("%s is drained", s.name)
		if l.Annotations == nil {
			l.Annotations = map[string]string{}
		}
		l.Annotations[fleet.DrainAnnotation] = "yes"
	})
}

// isDrained tells whether an operator has drained the member.
func (w *world) isDrained(member string) bool {
	lease := w.store.Get(election.MemberLease(fleetName, member))
	return lease != nil && lease.Annotations[fleet.DrainAnnotation] != ""
}

// mend has the operator write a good plan where nonsense was written in its place: members that know a good one do so
// themselves, and those that have never seen one must not guess.
func (w *world) mend() {
	lease := w.store.Get(fleet.PlanLease(fleetName))
	if lease == nil || lease.Annotations[fleet.DocumentAnnotation] == "" {
		return
	}
	if _, err := fleet.PlanOf(lease); err == nil && !w.isBad(lease) {
		return
	}
	plan := w.latest
	plan.Generation += 100
	good, err := fleet.WithPlan(fleetName, lease, plan)
	if err != nil {
		w.failf("the operator's plan cannot be written: %v", err)
		return
	}
	w.store.Tamper(lease.Name, func(l *coordinationv1.Lease) { l.Labels, l.Annotations = good.Labels, good.Annotations })
	w.notef("the operator mends the plan")
}

// renamed returns the shard under a name that no other has had.
func (w *world) renamed(s shard.Shard) shard.Shard {
	w.names++
	s.Name = fmt.Sprintf("s%d", w.names)
	return s
}

// flap has a member come and go.
func (w *world) flap(d time.Duration) {
	s := &seat{name: fmt.Sprintf("z%d", len(w.seats)), rate: 1}
	if w.random.IntN(2) == 0 && len(w.seats) > 5 {
		return
	}
	if w.drift {
		s.rate = 1 + 0.45*w.random.Float64()
	}
	w.seats = append(w.seats, s)
	w.notef("%s flaps for %v", s.name, d/2)
	w.launch(s)
	p := s.process
	p.unwanted.Store(true)
	end := [...]func(){p.stop, p.kill}[w.random.IntN(2)]
	time.AfterFunc(d/2, func() {
		if !w.healed.Load() {
			end()
		}
	})
}

// tamper does to a Lease what an operator or a foreign controller might.
func (w *world) tamper() {
	names := w.leases()
	name := names[w.random.IntN(len(names))]
	var change func(*coordinationv1.Lease)
	what := ""
	disturbing := false
	switch w.random.IntN(9) {
	case 0, 1:
		w.notef("somebody deletes %s", name)
		w.remove(name)
		return
	case 2:
		what, disturbing = "empties", true
		change = func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = [...]*string{nil, ptr.To("")}[w.random.IntN(2)] }
	case 3:
		what, disturbing = "forges the holder of", true
		holder := election.NewIncarnation(w.seats[w.random.IntN(len(w.seats))].name)
		if w.random.IntN(3) == 0 {
			holder = "somebody"
		}
		change = func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = &holder }
	case 4:
		durations := []int32{-7, 0, 1, 3, 40}
		if w.random.IntN(4) == 0 {
			durations = []int32{1 << 30}
		}
		duration := durations[w.random.IntN(len(durations))]
		what = fmt.Sprintf("writes duration %d on", duration)
		change = func(l *coordinationv1.Lease) { l.Spec.LeaseDurationSeconds = &duration }
	case 5:
		// Not the highest value there is: that one stops all acquisitions, as documented.
		terms := []int32{-3, 0, 1, 1 << 20, 1<<31 - 1000}
		term := terms[w.random.IntN(len(terms))]
		what, disturbing = fmt.Sprintf("writes term %d on", term), true
		change = func(l *coordinationv1.Lease) { l.Spec.LeaseTransitions = &term }
	case 6:
		what = "writes garbage annotations on"
		change = func(l *coordinationv1.Lease) {
			l.Annotations = map[string]string{
				election.NextHolderAnnotation: "\x00nobody", election.WritesAnnotation: `{"term":`, election.StateAnnotation: "?",
				fleet.PlanAnnotation: "another", fleet.RangeAnnotation: "everything", fleet.ReadyAnnotation: "1",
				fleet.DocumentAnnotation: "{}",
			}
		}
	case 7:
		what = "writes what others cover on"
		change = func(l *coordinationv1.Lease) {
			l.Annotations = map[string]string{fleet.RangeAnnotation: shard.Everything().String(), fleet.ControllersAnnotation: "job-controller"}
		}
	default:
		what = "strips"
		change = func(l *coordinationv1.Lease) {
			l.Labels, l.Annotations, l.Spec.RenewTime, l.Spec.AcquireTime, l.Spec.LeaseDurationSeconds = nil, nil, nil, nil, nil
		}
	}
	if disturbing {
		w.disturb(name)
	}
	if w.store.Tamper(name, change) {
		w.notef("somebody %s %s", what, name)
	}
}

// heal ends all faults, and sees that there is somebody.
func (w *world) heal() {
	w.notef("all faults end")
	w.healed.Store(true)
	w.mend()
	live := false
	for _, s := range w.seats {
		if s.process == nil {
			continue
		}
		s.process.heal()
		if s.process.unwanted.Load() {
			s.process.stop()
		}
		live = live || !s.process.over() && !s.process.unwanted.Load()
	}
	if !live {
		w.seats[0].start = time.Now()
	}
}
