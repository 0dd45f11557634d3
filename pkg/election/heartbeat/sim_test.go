package heartbeat

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// This file simulates larger fleets in virtual time. A seed decides everything: how long requests
// and events take, how fast each clock runs, and which faults happen when. A member whose
// incarnation is over starts again.

// simulation is a system driven by timed events.
type simulation struct {
	*system
	random *rand.Rand
	events eventQueue
	turns  int
	// log has every write, for the watches to deliver.
	log   []logged
	procs map[*process]*procState

	// latency bounds how long a request, an answer or an event is in flight.
	latency time.Duration
	outage  time.Time // until when the API server is unreachable
	// How many requests were executed, by kind, and how many were refused.
	writes, beats, reads, strikes, refused int
	// lastBeat is when each member's last heartbeat was stored.
	lastBeat []time.Time
	trace    []string
}

// logged is a write, as a watch delivers it.
type logged struct {
	on leaseOf
	revision
	// structural: more than a heartbeat.
	structural bool
}

// procState is the simulation's state of one process and its connections.
type procState struct {
	generation   int
	delivered    int       // how much of the log its watch has delivered
	watchHangs   time.Time // until when the watch hangs
	requestsLost time.Time // until when its requests are lost
	answersLost  time.Time // until when answers to it are lost
	wake         time.Time // when its next timer fires
	over         bool      // its phase Over has been handled
}

// eventQueue is a heap of future events, the next first.
type eventQueue []*event

type event struct {
	at   time.Time
	turn int // the order in which it was scheduled
	do   func()
}

func (q eventQueue) Len() int { return len(q) }
func (q eventQueue) Less(i, j int) bool {
	if c := q[i].at.Compare(q[j].at); c != 0 {
		return c < 0
	}
	return q[i].turn < q[j].turn
}
func (q eventQueue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }

// Push implements heap.Interface.
func (q *eventQueue) Push(x any) { *q = append(*q, x.(*event)) }

// Pop implements heap.Interface.
func (q *eventQueue) Pop() any {
	last := (*q)[len(*q)-1]
	*q = (*q)[:len(*q)-1]
	return last
}

func newSimulation(seed uint64, r *rules, members, shards int) *simulation {
	s := &simulation{
		system: newSystem(r, defaultTiming, members, shards), random: rand.New(rand.NewPCG(seed, 0)),
		procs: map[*process]*procState{}, latency: 20 * time.Millisecond, lastBeat: make([]time.Time, members),
	}
	s.onWrite, s.onSend = s.written, s.sent
	return s
}

func (s *simulation) notef(format string, args ...any) {
	s.trace = append(s.trace, fmt.Sprintf("%9.3f %s", s.now.Sub(epoch).Seconds(), fmt.Sprintf(format, args...)))
	if len(s.trace) > 400 {
		s.trace = slices.Clone(s.trace[200:])
	}
}

// in schedules do after d.
func (s *simulation) in(d time.Duration, do func()) {
	s.turns++
	heap.Push(&s.events, &event{at: s.now.Add(d), turn: s.turns, do: do})
}

func (s *simulation) upTo(d time.Duration) time.Duration {
	return time.Duration(s.random.Int64N(int64(d) + 1))
}

// until runs the simulation until end after its beginning, or until an invariant breaks.
func (s *simulation) until(end time.Duration) {
	for s.broken == "" && len(s.events) > 0 && !s.events[0].at.After(epoch.Add(end)) {
		next := heap.Pop(&s.events).(*event)
		s.now = next.at
		next.do()
		s.judge()
	}
	s.now = epoch.Add(end)
}

// join starts an incarnation of a member.
func (s *simulation) join(member, generation int, rate float64) *process {
	p := s.start(member, generation, rate)
	s.procs[p] = &procState{generation: generation, delivered: len(s.log)}
	s.notef("%s starts", p.self)
	s.loop(p)
	return p
}

// loop runs a process until it waits, and schedules its timer, or its restart when it is over.
func (s *simulation) loop(p *process) {
	if p.dead || p.suspended {
		return
	}
	dies := s.assign(p)
	s.run(p)
	ps := s.procs[p]
	if p.state.Phase == Over {
		if ps.over {
			return
		}
		ps.over = true
		s.notef("%s is over", p.self)
		s.in(time.Second+s.upTo(2*time.Second), func() { s.restart(p) })
		return
	}
	p.wakeAt(dies)
	if p.wake.IsZero() {
		return
	}
	d := max(time.Duration(float64(p.wake.Sub(p.clock(s.system)))/p.rate), 0) + time.Microsecond
	at := s.now.Add(d)
	if ps.wake.After(s.now) && !ps.wake.After(at) {
		return // a timer fires before that
	}
	ps.wake = at
	s.in(d, func() {
		if ps.wake.Equal(at) {
			ps.wake = time.Time{}
		}
		s.loop(p)
	})
}

// restart ends a process and schedules the member's next incarnation.
func (s *simulation) restart(p *process) {
	if p.dead {
		return
	}
	s.notef("%s ends", p.self)
	p.kill()
	p.strays = nil // they are scheduled
	s.in(s.upTo(20*time.Second), func() { s.join(p.member, s.procs[p].generation+1, p.rate) })
}

// assign assigns each shard to one of the members that the process considers alive. It returns when
// the first of them expires unless it renews.
func (s *simulation) assign(p *process) (dies time.Time) {
	now := p.clock(s.system)
	var live []int
	for m, v := range p.members {
		if at := v.Seen.Add(s.timing.LeaseDuration); v.Exists && v.Holder != "" && now.Before(at) {
			live = append(live, m)
			if dies.IsZero() || at.Before(dies) {
				dies = at
			}
		}
	}
	for i := range p.claims {
		p.claims[i].leave = !p.want || len(live) == 0 || live[i%len(live)] != p.member
	}
	return dies
}

// sent schedules the delivery of a request.
func (s *simulation) sent(p *process, r *request) {
	ps := s.procs[p]
	slot := func() **request { return p.requestOf(r.claim) }
	giveUp := func() {
		if *slot() == r && !p.dead {
			s.answer(p, r, true)
			s.loop(p)
		}
	}
	s.in(time.Duration(float64(s.timing.RenewDeadline/2)/p.rate), func() {
		if p.suspended {
			s.in(time.Second, giveUp)
		} else {
			giveUp()
		}
	})
	if s.now.Before(ps.requestsLost) {
		return
	}
	s.in(s.upTo(s.latency), func() {
		if s.now.Before(s.outage) {
			return
		}
		answered := s.serve(p, *r)
		s.count(answered)
		s.in(s.upTo(s.latency), func() { s.arrive(p, r, answered) })
	})
}

func (s *simulation) count(r *request) {
	switch {
	case r.action == Read:
		s.reads++
	case r.conflict:
		s.refused++
	case r.action == JudgeStrike:
		s.strikes++
		s.writes++
	case r.action == Renew:
		s.beats++
		s.writes++
	default:
		s.writes++
	}
}

// arrive delivers the answer to a request, if its process still waits for it.
func (s *simulation) arrive(p *process, r, answered *request) {
	slot := p.requestOf(r.claim)
	switch {
	case p.dead || *slot != r || s.now.Before(s.procs[p].answersLost):
	case p.suspended:
		s.in(time.Second, func() { s.arrive(p, r, answered) })
	default:
		s.answer(p, answered, false)
		s.loop(p)
	}
}

// written schedules the delivery of a write by all watches.
func (s *simulation) written(on leaseOf, r revision) {
	entry := logged{on: on, revision: r, structural: on.shard || !r.exists}
	if !on.shard {
		if last := s.members(on.index); last != nil && last.Holder == r.member.Holder && len(last.Ended) == len(r.member.Ended) {
			s.lastBeat[on.index] = s.now
		} else {
			entry.structural = true
		}
	}
	s.log = append(s.log, entry)
	for _, p := range s.processes {
		if !p.dead {
			s.in(s.upTo(s.latency), func() { s.watch(p, len(s.log)) })
		}
	}
}

// members returns the last record of a member's Lease in the log.
func (s *simulation) members(index int) *MemberRecord {
	for i := len(s.log) - 1; i >= 0 && i > len(s.log)-1000; i-- {
		if e := &s.log[i]; !e.on.shard && e.on.index == index {
			return &e.member
		}
	}
	return nil
}

// watch delivers the log up to an index to a process, in order.
func (s *simulation) watch(p *process, upTo int) {
	ps := s.procs[p]
	away := later(later(ps.watchHangs, ps.answersLost), s.outage)
	switch {
	case p.dead:
		return
	case p.suspended:
		s.in(time.Second, func() { s.watch(p, upTo) })
		return
	case s.now.Before(away):
		s.in(away.Sub(s.now)+s.upTo(s.latency), func() { s.watch(p, upTo) })
		return
	}
	woken := false
	for ; ps.delivered < upTo; ps.delivered++ {
		e := s.log[ps.delivered]
		p.learn(s.system, e.on, e.revision)
		p.through = max(p.through, e.version)
		woken = woken || e.structural || !e.on.shard && e.on.index == p.member
	}
	if woken {
		s.loop(p)
	}
}

// TestSimulation runs fleets of five members and fifty shards through seeded random faults.
func TestSimulation(t *testing.T) {
	seeds := 80
	if testing.Short() {
		seeds = 10
	}
	total := map[string]int{}
	for seed := range seeds {
		s := faultySimulation(uint64(seed)+1, &productRules, total)
		if s.broken != "" {
			t.Fatalf("seed %d: %s\n%s", seed+1, s.broken, strings.Join(s.trace, "\n"))
		}
		total["writes"] += s.writes
		total["heartbeats"] += s.beats
		total["refused"] += s.refused
		total["lists because a watch lagged"] += s.reads
		total["strikes"] += s.strikes
	}
	t.Logf("%d seeds: %v", seeds, total)
	for _, name := range []string{"strikes", "refused", "lists because a watch lagged", "kill", "pause", "freeze", "hang", "cut", "hung watch", "outage", "slow", "tamper"} {
		if total[name] < seeds/3 {
			t.Errorf("%s: %d in %d seeds: the simulation does not reach it", name, total[name], seeds)
		}
	}
}

// faultySimulation runs one seed: two minutes of faults, and a minute in which the fleet must
// recover.
func faultySimulation(seed uint64, r *rules, total map[string]int) *simulation {
	const faults, calm = 120 * time.Second, 60 * time.Second
	s := newSimulation(seed, r, 5, 50)
	for m := range 5 {
		// Rates differ by a factor of at most 1.45: the timing tolerates 1.5.
		rate := 0.85 + s.random.Float64()*(0.85*1.45-0.85)
		s.in(s.upTo(3*time.Second), func() { s.join(m, 1, rate) })
	}
	for at := 5 * time.Second; at < faults; at += s.upTo(8 * time.Second) {
		s.in(at, func() { s.fault(total) })
	}
	s.until(faults + calm)
	if s.broken == "" {
		s.judgeWhole()
		s.judgeEnded()
	}
	return s
}

// judgeEnded checks that no incarnation is listed as ended that no shard's Lease names.
func (s *simulation) judgeEnded() {
	for m := range s.lastBeat {
		if ended := s.leases[m].member.Ended; len(ended) > 0 {
			s.fail("in the end the Lease of %s still lists %q as ended", memberNames[m], ended)
		}
	}
}

// judgeWhole checks that exactly one process holds each shard.
func (s *simulation) judgeWhole() {
	for i := range s.high {
		var holders []string
		for _, p := range s.processes {
			if p.holds(s.system, i) {
				holders = append(holders, p.self)
			}
		}
		if len(holders) != 1 {
			s.fail("in the end shard %d is held by %q, and its Lease names %q", i, holders, s.leases[s.at(leaseOf{true, i})].shard.Holder)
		}
	}
}

// fault injects one fault.
func (s *simulation) fault(total map[string]int) {
	var live []*process
	for _, p := range s.processes {
		if !p.dead && !p.suspended {
			live = append(live, p)
		}
	}
	if len(live) == 0 {
		return
	}
	p := live[s.random.IntN(len(live))]
	ps, d := s.procs[p], time.Second+s.upTo(25*time.Second)
	faults := []string{"kill", "pause", "freeze", "hang", "cut", "hung watch", "outage", "slow", "tamper"}
	name := faults[s.random.IntN(len(faults))]
	s.notef("%s: %s for %v", p.self, name, d)
	total[name]++
	switch name {
	case "kill":
		s.restart(p)
	case "pause", "freeze":
		p.suspend(s.system, name == "freeze")
		s.in(d, func() {
			if !p.dead {
				s.notef("%s resumes", p.self)
				p.resume(s.system)
				s.loop(p)
			}
		})
	case "hang":
		p.hung = true
		s.in(d, func() {
			p.hung = false
			s.loop(p)
		})
	case "cut":
		if s.random.IntN(2) == 0 {
			ps.requestsLost = s.now.Add(d)
		}
		ps.answersLost = s.now.Add(d)
	case "hung watch":
		ps.watchHangs = s.now.Add(d)
	case "outage":
		s.outage = s.now.Add(d / 2)
	case "slow":
		s.latency = s.upTo(3 * time.Second)
		s.in(d, func() { s.latency = 20 * time.Millisecond })
	case "tamper":
		s.tamper()
	}
}

// tamper changes a Lease by hand, in a way that must make no second holder.
func (s *simulation) tamper() {
	i := s.random.IntN(len(s.leases))
	on, was := s.lease(i), s.leases[i]
	if !was.exists {
		return
	}
	s.notef("somebody changes Lease %v", on)
	switch {
	case !on.shard:
		s.removed[i] = true
		s.put(on, revision{})
	case s.random.IntN(3) == 0 && !s.removed[i]:
		// Deleting it twice is not promised to be harmless.
		s.removed[i] = true
		s.put(on, revision{})
	case s.random.IntN(2) == 0:
		was.shard.Holder, was.shard.Released = "", false
		s.put(on, was)
	default:
		was.shard.Holder = []string{"nonsense", memberNames[s.random.IntN(5)] + "_1000"}[s.random.IntN(2)]
		s.put(on, was)
	}
}

// TestWritesOfAnIdleFleet checks that an idle fleet writes one heartbeat per member and retry
// period, however many shards there are.
func TestWritesOfAnIdleFleet(t *testing.T) {
	const settled, end = 60 * time.Second, 160 * time.Second
	for _, size := range []struct{ members, shards int }{{3, 21}, {3, 210}, {10, 21}, {10, 210}} {
		s := newSimulation(1, &productRules, size.members, size.shards)
		for m := range size.members {
			s.in(s.upTo(3*time.Second), func() { s.join(m, 1, 1) })
		}
		s.until(settled)
		before := s.writes + s.refused + s.reads
		s.until(end)
		s.judgeWhole()
		if s.broken != "" {
			t.Fatalf("%v: %s", size, s.broken)
		}
		each := float64(s.writes+s.refused+s.reads-before) / (end - settled).Seconds()
		most := float64(size.members) / s.timing.RetryPeriod.Seconds()
		t.Logf("%d members, %d shards: %.2f requests for Leases a second", size.members, size.shards, each)
		if each > most || each < 0.95*most {
			t.Errorf("%d members, %d shards: %.2f requests for Leases a second, want %.2f", size.members, size.shards, each, most)
		}
	}
}

// TestTakeover measures the time from a member's last heartbeat until others hold all its shards.
func TestTakeover(t *testing.T) {
	const killed = 60 * time.Second
	var took []time.Duration
	requests := 0
	for seed := range uint64(50) {
		s := newSimulation(seed+1, &productRules, 5, 50)
		for m := range 5 {
			s.in(s.upTo(3*time.Second), func() { s.join(m, 1, 1) })
		}
		at := killed + s.upTo(2*time.Second)
		s.until(at)
		before := s.writes + s.refused - s.beats
		s.processes[0].kill()
		last := s.lastBeat[s.processes[0].member]
		for s.judgeWhole(); s.broken != "" && s.now.Before(last.Add(time.Minute)); s.judgeWhole() {
			s.broken = ""
			at += 5 * time.Millisecond
			s.until(at)
		}
		if s.broken != "" {
			t.Fatal(s.broken)
		}
		took = append(took, s.now.Sub(last))
		requests += s.writes + s.refused - s.beats - before
	}
	slices.Sort(took)
	worst := took[len(took)-1]
	t.Logf("from the last heartbeat to the last of ten shards: median %v, worst %v; %d requests beside heartbeats each",
		took[len(took)/2], worst, requests/len(took))
	if most := defaultTiming.LeaseDuration + 250*time.Millisecond; worst > most {
		t.Errorf("it took %v, want at most %v", worst, most)
	}
}
