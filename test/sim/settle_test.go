package sim

import (
	"fmt"
	"slices"
	"strings"
	"testing/synctest"
	"time"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

const (
	// settleTime limits the time from the last fault until each shard runs: a lease duration until
	// the last victim expires, then the longest backoff of work that could not start. If older work
	// does not end, the last fault is when its process gives it up.
	settleTime = 2 * time.Minute
	// newcomer is how long a process may take to know what the others do: a lease duration until
	// its own Lease is free, and a margin.
	newcomer = 30 * time.Second
	// quiet is how long everything must stay well.
	quiet = 5 * time.Second
	// requestSlack is how long a few Lease requests take without faults, plus the longest transit
	// of a write.
	requestSlack = 2*time.Second + longestWire
)

// settle ends all faults and waits until every shard runs.
func (w *world) settle() {
	w.heal()
	limit := settleTime + w.longestDuration()
	var since, looked time.Time
	for begin := time.Now(); !w.isOver(); {
		time.Sleep(500 * time.Millisecond) // virtual
		synctest.Wait()
		w.tend()
		if time.Since(begin) > newcomer && time.Since(looked) > newcomer {
			looked = time.Now()
			if plan, err := leaseapi.PlanOn(w.store.Get(leaseapi.PlanLease(fleetName))); err == nil && w.isUnknown(plan) {
				w.repair() // an alert has told the operator
			}
		}
		broken, problem := w.unsettled()
		switch {
		case problem != "":
			since = time.Time{}
			if time.Since(w.lastFault(begin)) > limit {
				w.failf(broken, "%v after the last fault, %s", limit, problem)
			}
		case since.IsZero():
			since = time.Now()
			if limit < settleTime+time.Minute { // Otherwise the time comes from a tampered Lease and says nothing about the fleet.
				w.mu.Lock()
				w.settled = since.Sub(begin)
				w.mu.Unlock()
			}
		case time.Since(since) > quiet:
			return
		}
	}
}

// lastFault returns when the last fault was, given that all others ended at healed.
func (w *world) lastFault(healed time.Time) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.gaveUp.After(healed) {
		return w.gaveUp
	}
	return healed
}

// heal ends all faults and makes sure that some member runs.
func (w *world) heal() {
	w.notef("all faults end")
	w.healed.Store(true)
	w.repair()
	for _, c := range w.stocks {
		c.stop()
	}
	for _, s := range w.seats {
		if s.process == nil {
			continue
		}
		s.process.heal()
		if s.process.unwanted.Load() {
			s.process.stop()
		}
	}
	if p := w.seats[0].process; p == nil || p.over() || p.unwanted.Load() {
		w.seats[0].start = time.Now()
	}
}

// longestDuration is how long members may have to wait because somebody wrote a duration on a
// Lease.
func (w *world) longestDuration() time.Duration {
	var longest time.Duration
	names := w.leases()
	if w.leaderLocks {
		names = append(names, stockLease)
	}
	for _, name := range names {
		longest = max(longest, election.RecordFrom(w.store.Get(name)).Duration)
	}
	return longest
}

// unsettled returns what is not yet as it must be after the last fault; empty if all is well.
func (w *world) unsettled() (invariant, string) {
	plan, err := leaseapi.PlanOn(w.store.Get(leaseapi.PlanLease(fleetName)))
	if err != nil {
		return settles, fmt.Sprintf("the plan cannot be read: %v", err)
	}
	live := w.live()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, works := range w.works {
		for _, k := range works {
			if s, planned := plan.Shard(k.given.Shard.ID); !planned || s.Range != k.given.Shard.Range {
				return settles, fmt.Sprintf("%s works on %s, which is not in the plan", k.process.name(), k.given.Shard.ID)
			}
		}
	}
	for _, s := range plan.Shards() {
		if broken, problem := w.unsettledLocked(s.ID, live); problem != "" {
			return broken, problem
		}
	}
	works := map[shard.ID]*work{}
	for part, all := range w.works {
		for _, k := range all {
			works[part.id] = k
		}
	}
	if problem := w.unrun(plan, works); problem != "" {
		return everywhere, problem
	}
	if problem := w.astray(plan, works); problem != "" {
		return placed, problem
	}
	return "", ""
}

// live returns the processes that are there to stay.
func (w *world) live() []*process {
	var live []*process
	for _, s := range w.seats {
		if p := s.process; p != nil && !p.over() && !p.unwanted.Load() {
			live = append(live, p)
		}
	}
	return live
}

func (w *world) unsettledLocked(id shard.ID, live []*process) (invariant, string) {
	var works []*work
	for part, all := range w.works {
		if part.id == id {
			works = append(works, all...)
		}
	}
	if len(works) != 1 {
		return settles, fmt.Sprintf("%d members work on %s", len(works), id)
	}
	p := works[0].process
	spare := func(other *process) bool { return other.serves(id.Ring) && !w.isDrained(other.seat.name) }
	if w.isDrained(p.seat.name) && slices.ContainsFunc(live, spare) {
		return drained, fmt.Sprintf("%s is drained and works on %s, though others are there", p.name(), id)
	}
	valid := 0
	for _, c := range w.claims[id] {
		if c.valid() && c.process == p {
			valid++
		}
	}
	if valid != 1 {
		return settles, fmt.Sprintf("%s works on %s under %d valid claims", p.name(), id, valid)
	}
	for _, other := range live {
		if time.Since(other.started) < newcomer {
			continue // The process before it may have ended because of its work.
		}
		if owner := other.Assignment().Owner(id); owner != p.seat.name {
			return placed, fmt.Sprintf("%s works on %s, and wants it on %q, and %s wants it on %q: %s", p.name(), id, p.Assignment().Owner(id), other.name(), owner, views(live))
		}
	}
	return "", ""
}

// views lists the plan that each member follows.
func views(live []*process) string {
	var views []string
	for _, p := range live {
		plan, _ := p.Plan()
		views = append(views, fmt.Sprintf("%s plan %d, refused: %v", p.name(), plan.Generation, p.Refused()))
	}
	return strings.Join(views, "; ")
}

// leave makes every member leave and checks that nothing is left.
func (w *world) leave() {
	for _, p := range w.all {
		p.resume() // those that ended while suspended
		p.bury()
	}
	began := time.Now()
	for _, s := range w.seats {
		if s.process != nil {
			s.process.stop()
		}
	}
	for _, c := range w.stocks {
		c.stop()
	}
	for _, p := range w.all {
		for ; !p.hasEnded(); p.bury() { // It may have been told to exit in the meantime.
			time.Sleep(time.Second) // virtual
			took := time.Since(began)
			switch {
			case took > w.leaveTime() && !p.isDead():
				w.failf(leaves, "%s does not leave: its Run has not returned after %v", p.name(), took)
			case took > time.Hour:
				w.failf(goroutines, "%s was ended, but still runs", p.name())
			default:
				continue
			}
			panic(w.report()) // The bubble would never end.
		}
	}
	for _, c := range w.stocks {
		c.wait()
	}
	w.admission.stop()
	w.server.Wait()
	w.store.Wait()
	w.judgeEnd()
}

// leaveTime limits how long a process may take to leave: until others ask for its shards, until its
// fence closes, until work that does not return ends the process, plus its last requests.
func (w *world) leaveTime() time.Duration {
	overtime := election.DefaultTiming().LeaseDuration
	if w.shutdown > 0 {
		overtime = min(overtime, w.shutdown)
	}
	return 2*handoffTimeout + overtime + requestSlack
}
