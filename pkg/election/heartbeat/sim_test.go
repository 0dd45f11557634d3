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

// This file runs larger worlds in virtual time. A seed decides everything: how long requests and
// events take, how fast each clock goes, and what goes wrong when. A member whose incarnation is
// over starts again.

// simulation is a world in which things happen at their time.
type simulation struct {
	*world
	random *rand.Rand
	agenda agenda
	turns  int
	// log has every write, for the watches.
	log   []logged
	hosts map[*process]*host

	// latency is the most that a request, an answer or an event is on its way.
	latency time.Duration
	outage  time.Time // until when the API server is away
	// counts of requests that were stored, and of those that were refused.
	writes, beats, reads, strikes, refused int
	// lastBeat is when each member's last heartbeat was stored.
	lastBeat []time.Time
	trace    []string
}

// logged is a write, as a watch brings it.
type logged struct {
	on leaseOf
	revision
	// structural: more than a heartbeat.
	structural bool
}

// host is what the simulation knows of a process beside the process itself.
type host struct {
	generation int
	delivered  int       // how much of the log its watch has brought
	deaf       time.Time // until when the watch hangs
	mute       time.Time // until when its requests are lost
	unheard    time.Time // until when answers to it are lost
	wake       time.Time // the next time it looks again by itself
	over       bool      // it is known to be
}

// agenda is what is to happen, the next first.
type agenda []*event

type event struct {
	at   time.Time
	turn int // in which order it was written down
	do   func()
}

func (a agenda) Len() int { return len(a) }
func (a agenda) Less(i, j int) bool {
	if c := a[i].at.Compare(a[j].at); c != 0 {
		return c < 0
	}
	return a[i].turn < a[j].turn
}
func (a agenda) Swap(i, j int) { a[i], a[j] = a[j], a[i] }

// Push and Pop are heap.Interface's.
func (a *agenda) Push(x any) { *a = append(*a, x.(*event)) }

// Pop removes the last one.
func (a *agenda) Pop() any {
	last := (*a)[len(*a)-1]
	*a = (*a)[:len(*a)-1]
	return last
}

func newSimulation(seed uint64, r *rules, members, shards int) *simulation {
	s := &simulation{
		world: newWorld(r, defaultTiming, members, shards), random: rand.New(rand.NewPCG(seed, 0)),
		hosts: map[*process]*host{}, latency: 20 * time.Millisecond, lastBeat: make([]time.Time, members),
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

// in has something happen later.
func (s *simulation) in(d time.Duration, do func()) {
	s.turns++
	heap.Push(&s.agenda, &event{at: s.now.Add(d), turn: s.turns, do: do})
}

func (s *simulation) upTo(d time.Duration) time.Duration {
	return time.Duration(s.random.Int64N(int64(d) + 1))
}

// until lets the world go on until a moment after its beginning, or until something is broken.
func (s *simulation) until(end time.Duration) {
	for s.broken == "" && len(s.agenda) > 0 && !s.agenda[0].at.After(epoch.Add(end)) {
		next := heap.Pop(&s.agenda).(*event)
		s.now = next.at
		next.do()
		s.judge()
	}
	s.now = epoch.Add(end)
}

// join starts an incarnation of a member.
func (s *simulation) join(member, generation int, rate float64) *process {
	p := s.start(member, generation, rate)
	s.hosts[p] = &host{generation: generation, delivered: len(s.log)}
	s.notef("%s starts", p.self)
	s.loop(p)
	return p
}

// loop has a process go round, and looks after it when it is over.
func (s *simulation) loop(p *process) {
	if p.dead || p.suspended {
		return
	}
	dies := s.assign(p)
	s.run(p)
	h := s.hosts[p]
	if p.state.Phase == Over {
		if h.over {
			return
		}
		h.over = true
		s.notef("%s is over", p.self)
		s.in(time.Second+s.upTo(2*time.Second), func() { s.restart(p) })
		return
	}
	p.wakeAt(dies)
	if p.wake.IsZero() {
		return
	}
	d := max(time.Duration(float64(p.wake.Sub(p.clock(s.world)))/p.rate), 0) + time.Microsecond
	at := s.now.Add(d)
	if h.wake.After(s.now) && !h.wake.After(at) {
		return // it looks before that
	}
	h.wake = at
	s.in(d, func() {
		if h.wake.Equal(at) {
			h.wake = time.Time{}
		}
		s.loop(p)
	})
}

// restart ends a process and begins the member's next one.
func (s *simulation) restart(p *process) {
	if p.dead {
		return
	}
	s.notef("%s ends", p.self)
	p.kill()
	p.strays = nil // they are on the agenda
	s.in(s.upTo(20*time.Second), func() { s.join(p.member, s.hosts[p].generation+1, p.rate) })
}

// assign gives each shard to one of the members that the process takes for alive. It returns when
// the first of them is dead if it does not renew.
func (s *simulation) assign(p *process) (dies time.Time) {
	now := p.clock(s.world)
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

// sent puts a request on its way.
func (s *simulation) sent(p *process, r *request) {
	h := s.hosts[p]
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
	if s.now.Before(h.mute) {
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

// arrive has the answer to a request reach its process, if that waits for it still.
func (s *simulation) arrive(p *process, r, answered *request) {
	slot := p.requestOf(r.claim)
	switch {
	case p.dead || *slot != r || s.now.Before(s.hosts[p].unheard):
	case p.suspended:
		s.in(time.Second, func() { s.arrive(p, r, answered) })
	default:
		s.answer(p, answered, false)
		s.loop(p)
	}
}

// written tells the watches of a write.
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
	for _, p := range s.world.hosts {
		if !p.dead {
			s.in(s.upTo(s.latency), func() { s.watch(p, len(s.log)) })
		}
	}
}

// members returns what the Lease of a member said in the log last.
func (s *simulation) members(index int) *MemberRecord {
	for i := len(s.log) - 1; i >= 0 && i > len(s.log)-1000; i-- {
		if e := &s.log[i]; !e.on.shard && e.on.index == index {
			return &e.member
		}
	}
	return nil
}

// watch brings a process what was written up to a place in the log, in its order.
func (s *simulation) watch(p *process, upTo int) {
	h := s.hosts[p]
	away := later(later(h.deaf, h.unheard), s.outage)
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
	for ; h.delivered < upTo; h.delivered++ {
		e := s.log[h.delivered]
		p.learn(s.world, e.on, e.revision)
		p.through = max(p.through, e.version)
		woken = woken || e.structural || !e.on.shard && e.on.index == p.member
	}
	if woken {
		s.loop(p)
	}
}

// TestSimulation runs fleets of five members and fifty shards through faults that a seed decides.
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
		total["lists because a watch was behind"] += s.reads
		total["strikes"] += s.strikes
	}
	t.Logf("%d seeds: %v", seeds, total)
	for _, name := range []string{"strikes", "refused", "lists because a watch was behind", "kill", "pause", "freeze", "hang", "cut", "deaf watch", "outage", "slow", "tamper"} {
		if total[name] < seeds/3 {
			t.Errorf("%s: %d in %d seeds: the simulation does not reach it any more", name, total[name], seeds)
		}
	}
}

// faultySimulation runs one seed: two minutes of faults, and a minute in which everything must come
// right.
func faultySimulation(seed uint64, r *rules, total map[string]int) *simulation {
	const faults, calm = 120 * time.Second, 60 * time.Second
	s := newSimulation(seed, r, 5, 50)
	for m := range 5 {
		// By 1.45 at most: the timings tolerate 1.5.
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

// judgeEnded wants nobody listed as ended whom no shard's Lease names.
func (s *simulation) judgeEnded() {
	for m := range s.lastBeat {
		if ended := s.leases[m].member.Ended; len(ended) > 0 {
			s.fail("in the end the Lease of %s still lists %q as ended", memberNames[m], ended)
		}
	}
}

// judgeWhole wants each shard held by exactly one process.
func (s *simulation) judgeWhole() {
	for i := range s.high {
		var holders []string
		for _, p := range s.world.hosts {
			if p.holds(s.world, i) {
				holders = append(holders, p.self)
			}
		}
		if len(holders) != 1 {
			s.fail("in the end shard %d is held by %q, and its Lease names %q", i, holders, s.leases[s.at(leaseOf{true, i})].shard.Holder)
		}
	}
}

// fault has one thing go wrong.
func (s *simulation) fault(total map[string]int) {
	var live []*process
	for _, p := range s.world.hosts {
		if !p.dead && !p.suspended {
			live = append(live, p)
		}
	}
	if len(live) == 0 {
		return
	}
	p := live[s.random.IntN(len(live))]
	h, d := s.hosts[p], time.Second+s.upTo(25*time.Second)
	faults := []string{"kill", "pause", "freeze", "hang", "cut", "deaf watch", "outage", "slow", "tamper"}
	name := faults[s.random.IntN(len(faults))]
	s.notef("%s: %s for %v", p.self, name, d)
	total[name]++
	switch name {
	case "kill":
		s.restart(p)
	case "pause", "freeze":
		p.suspend(s.world, name == "freeze")
		s.in(d, func() {
			if !p.dead {
				s.notef("%s goes on", p.self)
				p.resume(s.world)
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
			h.mute = s.now.Add(d)
		}
		h.unheard = s.now.Add(d)
	case "deaf watch":
		h.deaf = s.now.Add(d)
	case "outage":
		s.outage = s.now.Add(d / 2)
	case "slow":
		s.latency = s.upTo(3 * time.Second)
		s.in(d, func() { s.latency = 20 * time.Millisecond })
	case "tamper":
		s.tamper()
	}
}

// tamper changes a Lease by hand, in ways that must make no second holder.
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
		// A second time is not promised to be harmless.
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

// TestWritesOfAnIdleFleet holds that an idle fleet writes a heartbeat a member and retry period,
// whatever the shards.
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

// TestTakeover measures how long after a member's last heartbeat the last of its shards is held by
// others.
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
		s.world.hosts[0].kill()
		last := s.lastBeat[s.world.hosts[0].member]
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
