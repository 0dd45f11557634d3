package sim

import (
	"fmt"
	"slices"
	"strings"
	"testing/synctest"
	"time"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
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
func (sim *simulation) settle() {
	sim.heal()
	limit := settleTime + sim.longestDuration()
	var since, looked time.Time
	for begin := time.Now(); !sim.isOver(); {
		time.Sleep(500 * time.Millisecond) // virtual
		synctest.Wait()
		sim.tend()
		if time.Since(begin) > newcomer && time.Since(looked) > newcomer {
			looked = time.Now()
			if plan, err := leaseapi.PlanOn(sim.store.Get(leaseapi.PlanLease(fleetName))); err == nil && sim.isUnknown(plan) {
				sim.repair() // an alert has told the operator
			}
		}
		broken, problem := sim.unsettled()
		switch {
		case problem != "":
			since = time.Time{}
			if time.Since(sim.lastFault(begin)) > limit {
				sim.failf(broken, "%v after the last fault, %s", limit, problem)
			}
		case since.IsZero():
			since = time.Now()
			if limit < settleTime+time.Minute { // Otherwise the time comes from a tampered Lease and says nothing about the fleet.
				sim.mu.Lock()
				sim.settled = since.Sub(begin)
				sim.mu.Unlock()
			}
		case time.Since(since) > quiet:
			return
		}
	}
}

// lastFault returns when the last fault was, given that all others ended at healed.
func (sim *simulation) lastFault(healed time.Time) time.Time {
	sim.mu.Lock()
	defer sim.mu.Unlock()
	if sim.gaveUp.After(healed) {
		return sim.gaveUp
	}
	return healed
}

// heal ends all faults and makes sure that some member runs.
func (sim *simulation) heal() {
	sim.notef("all faults end")
	sim.healed.Store(true)
	sim.repair()
	for _, c := range sim.stocks {
		c.stop()
	}
	for _, s := range sim.seats {
		if s.process == nil {
			continue
		}
		s.process.heal()
		if s.process.unwanted.Load() {
			s.process.stop()
		}
	}
	if p := sim.seats[0].process; p == nil || p.over() || p.unwanted.Load() {
		sim.seats[0].start = time.Now()
	}
}

// longestDuration is how long members may have to wait because somebody wrote a duration on a
// Lease.
func (sim *simulation) longestDuration() time.Duration {
	var longest time.Duration
	names := sim.leases()
	if sim.leaderLocks {
		names = append(names, stockLease)
	}
	for _, name := range names {
		longest = max(longest, leaserecord.From(sim.store.Get(name)).Duration)
	}
	return longest
}

// unsettled returns what is not yet as it must be after the last fault; empty if all is well.
func (sim *simulation) unsettled() (invariant, string) {
	plan, err := leaseapi.PlanOn(sim.store.Get(leaseapi.PlanLease(fleetName)))
	if err != nil {
		return settles, fmt.Sprintf("the plan cannot be read: %v", err)
	}
	live := sim.live()
	sim.mu.Lock()
	defer sim.mu.Unlock()
	for _, works := range sim.works {
		for _, k := range works {
			if s, planned := plan.Shard(k.given.Shard.ID); !planned || s.Range != k.given.Shard.Range {
				return settles, fmt.Sprintf("%s works on %s, which is not in the plan", k.process.name(), k.given.Shard.ID)
			}
		}
	}
	for _, s := range plan.Shards() {
		if broken, problem := sim.unsettledLocked(s.ID, live); problem != "" {
			return broken, problem
		}
	}
	works := map[shard.ID]*work{}
	for part, all := range sim.works {
		for _, k := range all {
			works[part.id] = k
		}
	}
	if problem := sim.unrun(plan, works); problem != "" {
		return everywhere, problem
	}
	if problem := sim.astray(plan, works); problem != "" {
		return placed, problem
	}
	return "", ""
}

// live returns the processes that are there to stay.
func (sim *simulation) live() []*process {
	var live []*process
	for _, s := range sim.seats {
		if p := s.process; p != nil && !p.over() && !p.unwanted.Load() {
			live = append(live, p)
		}
	}
	return live
}

func (sim *simulation) unsettledLocked(id shard.ID, live []*process) (invariant, string) {
	var works []*work
	for part, all := range sim.works {
		if part.id == id {
			works = append(works, all...)
		}
	}
	if len(works) != 1 {
		return settles, fmt.Sprintf("%d members work on %s", len(works), id)
	}
	p := works[0].process
	spare := func(other *process) bool { return other.serves(id.Ring) && !sim.isDrained(other.seat.name) }
	if sim.isDrained(p.seat.name) && slices.ContainsFunc(live, spare) {
		return drained, fmt.Sprintf("%s is drained but works on %s, although there are others", p.name(), id)
	}
	valid := 0
	for _, c := range sim.claims[id] {
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
func (sim *simulation) leave() {
	for _, p := range sim.all {
		p.resume() // those that ended while suspended
		p.bury()
	}
	began := time.Now()
	for _, s := range sim.seats {
		if s.process != nil {
			s.process.stop()
		}
	}
	for _, c := range sim.stocks {
		c.stop()
	}
	for _, p := range sim.all {
		for ; !p.hasEnded(); p.bury() { // It may have been told to exit in the meantime.
			time.Sleep(time.Second) // virtual
			took := time.Since(began)
			switch {
			case took > sim.leaveTime() && !p.isDead():
				sim.failf(leaves, "%s does not leave: its Run has not returned after %v", p.name(), took)
			case took > time.Hour:
				sim.failf(goroutines, "%s was ended, but still runs", p.name())
			default:
				continue
			}
			panic(sim.report()) // The bubble would never end.
		}
	}
	for _, c := range sim.stocks {
		c.wait()
	}
	sim.admission.stop()
	sim.server.Wait()
	sim.store.Wait()
	sim.judgeEnd()
}

// leaveTime limits how long a process may take to leave: until others ask for its shards, until its
// fence closes, until work that does not return ends the process, plus its last requests.
func (sim *simulation) leaveTime() time.Duration {
	overtime := election.DefaultTiming().LeaseDuration
	if sim.shutdown > 0 {
		overtime = min(overtime, sim.shutdown)
	}
	return 2*handoffTimeout + overtime + requestSlack
}
