package heartbeat

import (
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// This file explores every history, within bounds, of two members and two shards. Time advances in
// ticks, three to a lease duration and two to a renew deadline. Between any two events anything
// else may happen: requests are executed late, answers are lost and their requests executed after
// that, watches lag for any time. Two states are the same if they differ only in absolute time, in
// versions, or in ages that no rule distinguishes.

var exploreTiming = Timing{LeaseDuration: 3 * time.Second, RenewDeadline: 2 * time.Second, RetryPeriod: time.Second}

const (
	tick = time.Second
	// oldest is the age in ticks beyond which all ages are equal: no rule looks further back.
	oldest = 3
	// wire is how many ticks a request may be in flight.
	wire = 2
	// mostStates bounds memory; a test that exceeds it fails.
	mostStates = 2_000_000
	// taken is within how many ticks after the last fault every wanted shard must be held: the
	// lease duration, and a retry period in which a hung member may renew once more, or judges wait
	// for a deleted Lease.
	taken = 5
)

// budget is how many faults of each kind may still happen.
type budget struct {
	losses, kills, starts, pauses, freezes, hangs, flips, removals, empties, forgeries int8
}

// sysState is a state of the whole system.
type sysState struct {
	*system
	left budget
	// id is the state's index in explorer.moves.
	id int32
}

// move identifies a state by the one before it: it is the nth of the states that may follow that
// one.
type move struct {
	from, nth int32
}

// description says what happened; it is formatted only when needed.
type description struct {
	format, self string
	action       fmt.Stringer
	slot         int
}

func (d description) String() string {
	return strings.NewReplacer("SELF", d.self, "ACTION", fmt.Sprint(d.action), "SLOT", strconv.Itoa(d.slot)).Replace(d.format)
}

// explorer visits all states.
type explorer struct {
	seed  maphash.Seed
	known map[uint64]struct{}
	// next are the states to expand in this tick, later those of the next one: a state is first
	// reached with the most time left.
	next, later []*sysState
	end         time.Time
	checked     int // states from which liveness was checked
	keyer       keyer
	// moves has the move that led to each known state, by id, and start is the first state. A
	// history is found by replaying its moves: keeping every state would take most of the memory.
	moves []move
	start *sysState
	// nth counts the successors tried of the state being expanded. If wanted is not negative, only
	// that one is tried.
	nth, wanted int32
	// spare are states to reuse, and whole is the system in which liveness is checked.
	spare []*sysState
	whole system
	// broken is the move to the first state that breaks an invariant, and why says which.
	broken *move
	why    string
	// made is the wanted state, and what describes the event that led to it.
	made *sysState
	what description
}

// copyTo makes n a copy of sys, and reuses n's memory.
func (sys *system) copyTo(n *system) {
	was := *n
	*n = *sys
	n.leases, n.high = append(was.leases[:0], sys.leases...), append(was.high[:0], sys.high...)
	n.struck, n.removed = append(was.struck[:0], sys.struck...), append(was.removed[:0], sys.removed...)
	n.processes = was.processes[:0]
	for i, p := range sys.processes {
		c := &process{}
		if i < len(was.processes) {
			c = was.processes[i]
		}
		p.copyTo(c)
		n.processes = append(n.processes, c)
	}
}

func (p *process) copyTo(n *process) {
	was := *n
	*n = *p
	n.members, n.shards, n.fresh = append(was.members[:0], p.members...), append(was.shards[:0], p.shards...), append(was.fresh[:0], p.fresh...)
	n.claims, n.judges, n.strays = append(was.claims[:0], p.claims...), append(was.judges[:0], p.judges...), append(was.strays[:0], p.strays...)
}

// requestOf returns the request of a claim; of the heartbeat for slot -1; of a judge for -2 and
// less.
func (p *process) requestOf(slot int) **request {
	switch {
	case slot == -1:
		return &p.request
	case slot < -1:
		return &p.judges[-2-slot].request
	default:
		return &p.claims[slot].request
	}
}

// expand adds all states that may follow.
func (e *explorer) expand(s *sysState) {
	e.nth = 0
	for i, p := range s.processes {
		e.expandStrays(s, i)
		if !p.dead {
			e.expandProcess(s, i)
		}
	}
	e.expandTampering(s)
	if s.now.Before(e.end) && s.mayTick() {
		e.try(s, description{format: "time passes"}, func(n *sysState) {
			n.now = n.now.Add(tick)
			for _, p := range n.processes {
				n.run(p)
			}
		})
	}
}

func (e *explorer) expandStrays(s *sysState, i int) {
	for k, r := range s.processes[i].strays {
		e.try(s, description{format: "SELF's stray ACTION is executed", self: s.processes[i].self, action: r.action}, func(n *sysState) {
			p := n.processes[i]
			p.strays = slices.Delete(slices.Clone(p.strays), k, k+1)
			n.serve(p, *r)
		})
		e.try(s, description{format: "SELF's stray ACTION is lost", self: s.processes[i].self, action: r.action}, func(n *sysState) {
			n.processes[i].strays = slices.Delete(slices.Clone(n.processes[i].strays), k, k+1)
		})
	}
}

func (e *explorer) expandProcess(s *sysState, i int) {
	p := s.processes[i]
	for claim := range p.slots() {
		if r := *p.requestOf(claim); r != nil && !r.applied {
			e.try(s, description{format: "SELF's ACTION (SLOT) is executed", self: p.self, action: r.action, slot: claim}, func(n *sysState) {
				*n.processes[i].requestOf(claim) = n.serve(n.processes[i], *r)
			})
		}
	}
	if s.left.kills > 0 && i == 0 {
		e.try(s, description{format: "SELF dies", self: p.self}, func(n *sysState) {
			n.left.kills--
			n.processes[i].kill()
		})
	}
	if p.suspended {
		e.try(s, description{format: "SELF is resumed", self: p.self}, func(n *sysState) { n.processes[i].resume(n.system) })
		return
	}
	for claim := range p.slots() {
		e.expandAnswer(s, i, claim)
	}
	if p.next() >= 0 {
		e.try(s, description{format: "SELF sees an event", self: p.self}, func(n *sysState) {
			n.processes[i].deliver(n.system)
			n.run(n.processes[i])
		})
	}
	e.expandFaults(s, i)
	e.expandDesired(s, i)
}

func (e *explorer) expandAnswer(s *sysState, i, claim int) {
	p := s.processes[i]
	r := *p.requestOf(claim)
	if r == nil {
		return
	}
	if r.applied {
		e.try(s, description{format: "SELF's ACTION (SLOT) is answered", self: p.self, action: r.action, slot: claim}, func(n *sysState) {
			n.answer(n.processes[i], r, false)
			n.run(n.processes[i])
		})
	}
	if s.left.losses > 0 {
		e.try(s, description{format: "SELF's ACTION (SLOT) is not answered", self: p.self, action: r.action, slot: claim}, func(n *sysState) {
			n.left.losses--
			if !r.applied && r.action != Read {
				n.processes[i].strays = append(n.processes[i].strays, r)
			}
			n.answer(n.processes[i], r, true)
			n.run(n.processes[i])
		})
	}
}

func (e *explorer) expandFaults(s *sysState, i int) {
	self := s.processes[i].self
	if s.left.pauses > 0 {
		e.try(s, description{format: "SELF is suspended", self: self}, func(n *sysState) {
			n.left.pauses--
			n.processes[i].suspend(n.system, false)
		})
	}
	if s.left.freezes > 0 {
		e.try(s, description{format: "SELF is paused with its clock", self: self}, func(n *sysState) {
			n.left.freezes--
			n.processes[i].suspend(n.system, true)
		})
	}
	if s.left.hangs > 0 && !s.processes[i].hung {
		e.try(s, description{format: "SELF hangs", self: self}, func(n *sysState) {
			n.left.hangs--
			n.processes[i].hung = true
		})
	}
}

func (e *explorer) expandDesired(s *sysState, i int) {
	p := s.processes[i]
	for c := range p.claims {
		if claim := p.claims[c]; claim.working && (claim.state.Phase == Idle || claim.leave) {
			e.try(s, description{format: "SELF's work for SLOT returns", self: p.self, slot: c}, func(n *sysState) {
				n.processes[i].claims[c].working = false
				n.run(n.processes[i])
			})
		}
		if s.left.flips > 0 {
			e.try(s, description{format: "SELF changes its desired state of SLOT", self: p.self, slot: c}, func(n *sysState) {
				n.left.flips--
				n.processes[i].claims[c].leave = !p.claims[c].leave
				n.run(n.processes[i])
			})
		}
	}
	if s.left.flips > 0 && i == 0 && p.want {
		e.try(s, description{format: "SELF leaves", self: p.self}, func(n *sysState) {
			n.left.flips--
			n.processes[i].want = false
			for c := range p.claims {
				n.processes[i].claims[c].leave = true
			}
			n.run(n.processes[i])
		})
	}
}

// expandTampering adds changes of Leases by hand, and a new incarnation of a.
func (e *explorer) expandTampering(s *sysState) {
	if s.left.removals > 0 && s.leases[0].exists {
		e.try(s, description{format: "somebody deletes the Lease of a"}, func(n *sysState) {
			n.left.removals--
			n.removed[0] = true
			n.put(leaseOf{}, revision{})
		})
	}
	shard := leaseOf{true, 0}
	was := s.leases[s.at(shard)]
	if was.exists && (s.left.empties > 0 || s.left.forgeries > 0) {
		e.try(s, description{format: "somebody deletes the Lease of shard 0"}, func(n *sysState) {
			n.left.empties, n.left.forgeries = 0, 0
			n.removed[s.at(shard)] = true
			n.put(shard, revision{})
		})
	}
	tamper := func(format string, left func(*sysState) *int8, holder string) {
		if *left(s) > 0 && was.exists && was.shard.Holder != holder {
			e.try(s, description{format: format}, func(n *sysState) {
				*left(n)--
				written := was
				written.shard.Holder = holder
				n.put(shard, written)
			})
		}
	}
	tamper("somebody empties the Lease of shard 0", func(s *sysState) *int8 { return &s.left.empties }, "")
	tamper("somebody writes b_1 into the Lease of shard 0", func(s *sysState) *int8 { return &s.left.forgeries }, "b_1")
	tamper("somebody writes nonsense into the Lease of shard 0", func(s *sysState) *int8 { return &s.left.forgeries }, "nonsense")
	if s.left.starts > 0 && s.processes[0].dead {
		e.try(s, description{format: "a_2 starts"}, func(n *sysState) {
			n.left.starts--
			n.run(n.start(0, 2, 1))
		})
	}
}

// mayTick reports whether time may advance: it must not while a request is due to end.
func (s *sysState) mayTick() bool {
	late := func(r *request, most int) bool { return r != nil && s.now.Sub(r.sentAt) >= time.Duration(most)*tick }
	for _, p := range s.processes {
		for claim := range p.slots() {
			r := *p.requestOf(claim)
			if r != nil && (!p.suspended && late(r, 1) || !r.applied && late(r, wire)) {
				return false
			}
		}
		if slices.ContainsFunc(p.strays, func(r *request) bool { return late(r, wire) }) {
			return false
		}
	}
	return true
}

// try adds one state, unless it is known.
func (e *explorer) try(s *sysState, what description, change func(*sysState)) {
	e.nth++
	if e.wanted >= 0 {
		if e.nth == e.wanted {
			e.made, e.what = e.copy(s), what
			change(e.made)
		}
		return
	}
	if e.broken != nil {
		return
	}
	n := e.copy(s)
	change(n)
	n.judge()
	if n.broken == "" {
		key := e.key(n)
		if _, known := e.known[key]; known {
			e.spare = append(e.spare, n)
			return
		}
		e.known[key] = struct{}{}
		// Checking every state would take most of the time.
		if n.left != s.left || key%64 == 0 {
			e.checked++
			e.judgeLiveness(n)
		}
	}
	if n.broken != "" {
		e.broken, e.why = &move{s.id, e.nth}, n.broken
		return
	}
	n.id = int32(len(e.moves))
	e.moves = append(e.moves, move{s.id, e.nth})
	if n.now.After(s.now) {
		e.later = append(e.later, n)
	} else {
		e.next = append(e.next, n)
	}
}

func (e *explorer) copy(s *sysState) *sysState {
	n := &sysState{system: &system{}}
	if last := len(e.spare) - 1; last >= 0 {
		n, e.spare = e.spare[last], e.spare[:last]
	}
	s.system.copyTo(n.system)
	n.left, n.id = s.left, s.id
	return n
}

// judgeLiveness runs the system without further faults, and checks that every wanted shard is held
// in time.
func (e *explorer) judgeLiveness(s *sysState) {
	sys := &e.whole
	s.copyTo(sys)
	sys.slow = false
	for range taken {
		sys.settle()
		sys.now = sys.now.Add(tick)
		for _, p := range sys.processes {
			sys.run(p)
		}
	}
	sys.settle()
	if sys.broken != "" {
		s.fail("later: %s", sys.broken)
		return
	}
	for i := range sys.high {
		able, held := "", false
		for _, p := range sys.processes {
			if !p.dead && !p.suspended && !p.hung && p.state.Phase != Over && !p.claims[i].leave {
				able = p.self
			}
			held = held || !p.hung && !p.suspended && p.holds(sys, i)
		}
		if able != "" && !held {
			s.fail("%d ticks later, nobody holds shard %d, which %s wants", taken, i, able)
		}
	}
}

// settle answers all requests and delivers all events, until nothing is under way.
func (sys *system) settle() {
	for again := true; again && sys.broken == ""; {
		again = false
		for _, p := range sys.processes {
			for _, r := range p.strays {
				sys.serve(p, *r)
			}
			p.strays = nil
			if p.dead || p.suspended {
				continue
			}
			for claim := range p.slots() {
				r := *p.requestOf(claim)
				if r == nil {
					continue
				}
				again = true
				if !r.applied {
					r = sys.serve(p, *r)
				}
				sys.answer(p, r, false)
				sys.run(p)
			}
			for p.next() >= 0 {
				again = true
				p.deliver(sys)
			}
			sys.run(p)
		}
		sys.judge()
	}
}

// explore visits all states within reach of x's start, until one breaks an invariant.
func explore(r *rules, x exploreCase) *explorer {
	s := x.start(r)
	e := &explorer{seed: maphash.MakeSeed(), known: map[uint64]struct{}{}, next: []*sysState{s}, end: s.now.Add(x.ticks * tick), moves: []move{{}}, wanted: -1}
	e.start = e.copy(s)
	for len(e.next) > 0 && e.broken == nil && len(e.known) < mostStates {
		for len(e.next) > 0 && e.broken == nil && len(e.known) < mostStates {
			level := e.next
			e.next = nil
			for i, s := range level {
				e.expand(s)
				e.spare = append(e.spare, s)
				level[i] = nil
			}
		}
		e.next, e.later = append(e.next, e.later...), nil
	}
	return e
}

// history describes how the state that breaks an invariant came about.
func (e *explorer) history() string {
	var nths []int32
	for m := *e.broken; m.nth > 0; m = e.moves[m.from] {
		nths = append(nths, m.nth)
	}
	s, text := e.start, e.why
	for _, nth := range slices.Backward(nths) {
		e.wanted = nth
		e.expand(s)
		text += fmt.Sprintf("\n  %2d  %s", int(s.now.Sub(epoch)/tick), e.what)
		s = e.made
	}
	return text
}

// exploreCase is the start and the bounds of an exploration.
type exploreCase struct {
	shards int
	ticks  time.Duration
	left   budget
	slow   bool
	// both: b's heartbeat is modelled as well.
	both bool
	// states is the least number of states to visit: finding no fault in fewer says little.
	states int
}

// start returns a state in which a holds all shards, and b wants them.
func (x exploreCase) start(r *rules) *sysState {
	sys := newSystem(r, exploreTiming, 2, x.shards)
	sys.slow = x.slow
	for m := range 2 {
		p := sys.start(m, 1, 1)
		sys.run(p)
		sys.settle()
		if m == 1 && !x.both {
			p.steady, p.right.Until = true, sys.now.Add(time.Hour)
		}
	}
	return &sysState{system: sys, left: x.left}
}

// exploreCases are explored one after the other. All but the last do not model b's heartbeat: b
// always has rights.
var exploreCases = map[string]exploreCase{
	"a member dies, an answer is lost":             {shards: 2, ticks: 4, left: budget{losses: 1, kills: 1}, states: 300_000},
	"a member is suspended":                        {shards: 2, ticks: 4, left: budget{pauses: 1}, states: 175_000},
	"a member is suspended, an answer is lost":     {shards: 1, ticks: 5, left: budget{losses: 1, pauses: 1}, states: 370_000},
	"a member is paused with its clock":            {shards: 2, ticks: 4, left: budget{freezes: 1}, states: 270_000},
	"a member hangs":                               {shards: 2, ticks: 5, left: budget{hangs: 1}, states: 270_000},
	"a member leaves, desired states change":       {shards: 1, ticks: 1, left: budget{flips: 2}, slow: true, states: 56_000},
	"a member's Lease is deleted, the member dies": {shards: 1, ticks: 4, left: budget{removals: 1, kills: 1}, states: 72_000},
	"a shard's Lease is emptied or deleted":        {shards: 1, ticks: 3, left: budget{empties: 1}, states: 99_000},
	"a shard's Lease is forged or deleted":         {shards: 1, ticks: 3, left: budget{forgeries: 1}, states: 115_000},
	"a member dies and starts again":               {shards: 1, ticks: 4, left: budget{kills: 1, starts: 1}, states: 590_000},
	"two heartbeats, a member dies":                {shards: 1, ticks: 3, left: budget{kills: 1}, both: true, states: 127_000},
}

// TestExplore visits every state of two members and two shards, within bounds.
func TestExplore(t *testing.T) {
	if testing.Short() {
		t.Skip("left out: it takes half a minute, and the simulation is enough in short mode")
	}
	for _, name := range slices.Sorted(maps.Keys(exploreCases)) {
		x := exploreCases[name]
		t.Run(name, func(t *testing.T) {
			began := time.Now()
			e := explore(&productRules, x)
			if e.broken != nil {
				t.Fatal(e.history())
			}
			if len(e.next) > 0 {
				t.Errorf("more than %d states", mostStates)
			}
			if len(e.known) < x.states {
				t.Errorf("only %d states, want at least %d", len(e.known), x.states)
			}
			t.Logf("%d states in %v, liveness from %d of them", len(e.known), time.Since(began).Round(time.Millisecond), e.checked)
		})
	}
}

// key is the same for states that no rule distinguishes.
func (e *explorer) key(s *sysState) uint64 {
	k := &e.keyer
	k.sysState, k.ranked, k.versions = s, false, k.versions[:0]
	k.write() // gathers the versions
	slices.Sort(k.versions)
	k.versions = slices.Compact(k.versions)
	k.ranked = true
	k.out = k.out[:0]
	k.write()
	return maphash.Bytes(e.seed, k.out)
}

// keyer encodes a state in two passes: it first gathers the versions, and then writes their ranks
// instead.
type keyer struct {
	*sysState
	versions []Version
	ranked   bool
	out      []byte
	clock    time.Time // of the process being written
}

func (k *keyer) put(values ...int) {
	if k.ranked {
		for _, v := range values {
			k.out = binary.LittleEndian.AppendUint16(k.out, uint16(v))
		}
	}
}

func (k *keyer) rank(v Version) {
	if !k.ranked {
		k.versions = append(k.versions, v)
		return
	}
	at, _ := slices.BinarySearch(k.versions, v)
	k.put(at)
}

func (k *keyer) age(t time.Time) {
	switch {
	case !k.ranked:
	case t.IsZero():
		k.put(-100)
	default:
		k.put(max(min(int(k.clock.Sub(t)/tick), oldest), -oldest))
	}
}

func (k *keyer) text(s string) {
	if k.ranked {
		k.out = append(append(k.out, s...), 0)
	}
}

func (k *keyer) flags(flags ...bool) {
	bits := 0
	for _, f := range flags {
		bits <<= 1
		if f {
			bits |= 1
		}
	}
	k.put(bits)
}

func (k *keyer) write() {
	b := k.left
	k.put(int(b.losses), int(b.kills), int(b.starts), int(b.pauses), int(b.freezes), int(b.hangs), int(b.flips), int(b.removals), int(b.empties), int(b.forgeries))
	for i := range k.leases {
		k.revision(i, k.leases[i])
		k.flags(k.removed[i])
	}
	for s := range k.high {
		k.put(int(k.high[s]))
		k.flags(k.struck[s])
	}
	for _, p := range k.processes {
		k.process(p)
	}
}

func (k *keyer) revision(i int, r revision) {
	k.rank(r.version)
	k.flags(r.exists)
	if k.lease(i).shard {
		k.shard(r.shard)
	} else {
		k.member(i, r.member)
	}
}

func (k *keyer) member(i int, r MemberRecord) {
	k.rank(r.Version)
	k.text(r.Holder)
	k.put(len(r.Ended))
	for _, ended := range r.Ended {
		k.text(ended)
	}
	head := k.leases[i].member
	k.flags(r.Beat == head.Beat, r.UID == head.UID)
}

func (k *keyer) shard(r ShardRecord) {
	k.rank(r.Version)
	k.text(r.Holder)
	k.put(int(r.Term))
	k.flags(r.Released)
}

func (k *keyer) process(p *process) {
	k.flags(p.dead, p.suspended, p.hung, p.slept, p.want, !p.froze.IsZero())
	k.clock = k.now
	for _, r := range p.strays {
		k.request(p, r)
	}
	if p.dead {
		return
	}
	k.clock = p.clock(k.system)
	for i, m := range p.members {
		k.member(i, m.MemberRecord)
		k.flags(m.Exists)
		k.age(m.Seen)
		k.age(m.HolderSeen)
	}
	for i, o := range p.shards {
		k.shard(o.ShardRecord)
		k.flags(o.Exists, o.UID == k.leases[k.at(leaseOf{true, i})].shard.UID)
		k.age(o.Seen)
		k.put(int(o.HighTerm))
	}
	for _, v := range p.fresh {
		k.rank(v)
	}
	k.rank(p.through)
	k.put(int(p.state.Phase))
	if p.state.Phase == Live {
		k.age(p.state.Deadline(exploreTiming))
		k.flags(p.state.Confirmed.IsZero())
		k.rank(p.state.Pending.Version)
		k.rank(p.state.Pending.Through)
		k.age(p.state.Pending.Start)
		k.age(p.state.Pending.Answered)
		k.age(p.state.Sent)
		k.flags(p.turned.Before(p.state.Sent))
	}
	k.age(later(p.state.NotBefore, k.clock))
	k.age(p.right.Until)
	k.request(p, p.request)
	for _, c := range p.claims {
		k.put(int(c.state.Phase), int(c.state.Asked))
		k.flags(c.working, c.leave)
		if c.state.Phase == Held {
			k.put(int(c.state.Term))
		}
		k.age(later(c.state.NotBefore, k.clock))
		k.request(p, c.request)
	}
	for _, j := range p.judges {
		k.age(later(j.notBefore, k.clock))
		k.request(p, j.request)
	}
}

func (k *keyer) request(p *process, r *request) {
	if r == nil {
		k.put(-1)
		return
	}
	switch action := r.action.(type) {
	case Action:
		k.put(int(action))
	case ClaimAction:
		k.put(100 + int(action))
	case JudgeAction:
		k.put(200 + int(action))
	}
	k.put(r.claim, k.at(r.on), int(k.now.Sub(r.sentAt)/tick))
	k.flags(r.applied, r.conflict)
	k.age(r.start)
	if r.action == Read {
		k.rank(r.through)
		for i, known := range r.all {
			k.revision(i, known)
		}
		return
	}
	if r.applied {
		k.revision(k.at(r.on), r.got)
	} else {
		k.revision(k.at(r.on), r.write)
	}
}
