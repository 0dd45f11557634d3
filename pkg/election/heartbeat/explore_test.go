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

// This file walks through every history, within bounds, of two members and two shards. Time goes in
// ticks, three to a lease duration and two to a renew deadline. Between any two things that happen
// anything else may: requests are carried out late, answers are lost and their requests carried out
// after that, watches are behind for any time. Two scenes are the same if they differ in absolute
// time, in versions, or in ages that no rule can tell apart.

var exploreTiming = Timing{LeaseDuration: 3 * time.Second, RenewDeadline: 2 * time.Second, RetryPeriod: time.Second}

const (
	tick = time.Second
	// oldest is the greatest age in ticks that is told from greater ones: no rule looks further
	// back.
	oldest = 3
	// wire is how many ticks a request may be on its way.
	wire = 2
	// mostScenes bounds memory: what is more was not meant.
	mostScenes = 2_000_000
	// taken is within how many ticks after the last fault every shard that anybody wants is held:
	// the lease duration, and a retry period in which a member that hangs may renew once more, or a
	// Lease that was deleted is waited for.
	taken = 5
)

// budget is what may still go wrong.
type budget struct {
	losses, kills, starts, pauses, freezes, hangs, flips, removals, empties, forgeries int8
}

// scene is a state of the world.
type scene struct {
	*world
	left budget
	// id is the scene's place in explorer.moves.
	id int32
}

// move is how a scene came about: the nth thing that may happen after another scene.
type move struct {
	from, nth int32
}

// what happened, to be put into words only if somebody asks.
type what struct {
	format, self string
	action       fmt.Stringer
	slot         int
}

func (w what) String() string {
	return strings.NewReplacer("SELF", w.self, "ACTION", fmt.Sprint(w.action), "SLOT", strconv.Itoa(w.slot)).Replace(w.format)
}

// explorer walks through all scenes.
type explorer struct {
	seed  maphash.Seed
	known map[uint64]struct{}
	// next are the scenes to look at in this tick, later those of the next one: a scene is first
	// met with the most time left.
	next, later []*scene
	end         time.Time
	checked     int // scenes from which liveness was tried
	keyer       keyer
	// moves are how the known scenes came about, by id, and start is the first of them. What a
	// history was is found out by going through it again: to keep every scene would take most of
	// the memory.
	moves []move
	start *scene
	// nth counts what has been tried after the scene that is expanded. If wanted is not negative,
	// only that one is tried.
	nth, wanted int32
	// spare are scenes to be overwritten, and whole is the one from which liveness is tried.
	spare []*scene
	whole world
	// broken is how the first scene that breaks an invariant came about, and why.
	broken *move
	why    string
	// made and what are the scene that was wanted, and what led to it.
	made *scene
	what what
}

// copyTo makes n the same world, and uses what n was made of.
func (w *world) copyTo(n *world) {
	was := *n
	*n = *w
	n.leases, n.high = append(was.leases[:0], w.leases...), append(was.high[:0], w.high...)
	n.struck, n.removed = append(was.struck[:0], w.struck...), append(was.removed[:0], w.removed...)
	n.hosts = was.hosts[:0]
	for i, p := range w.hosts {
		c := &process{}
		if i < len(was.hosts) {
			c = was.hosts[i]
		}
		p.copyTo(c)
		n.hosts = append(n.hosts, c)
	}
}

func (p *process) copyTo(n *process) {
	was := *n
	*n = *p
	n.members, n.shards, n.fresh = append(was.members[:0], p.members...), append(was.shards[:0], p.shards...), append(was.fresh[:0], p.fresh...)
	n.claims, n.judges, n.strays = append(was.claims[:0], p.claims...), append(was.judges[:0], p.judges...), append(was.strays[:0], p.strays...)
}

// requestOf is the request of a claim, of the heartbeat, -1, or of a judge, -2 and less.
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

// expand adds all that may happen next.
func (e *explorer) expand(s *scene) {
	e.nth = 0
	for i, p := range s.hosts {
		e.expandStrays(s, i)
		if !p.dead {
			e.expandHost(s, i)
		}
	}
	e.expandTampering(s)
	if s.now.Before(e.end) && s.mayTick() {
		e.try(s, what{format: "time passes"}, func(n *scene) {
			n.now = n.now.Add(tick)
			for _, p := range n.hosts {
				n.run(p)
			}
		})
	}
}

func (e *explorer) expandStrays(s *scene, i int) {
	for k, r := range s.hosts[i].strays {
		e.try(s, what{format: "SELF's stray ACTION is carried out", self: s.hosts[i].self, action: r.action}, func(n *scene) {
			p := n.hosts[i]
			p.strays = slices.Delete(slices.Clone(p.strays), k, k+1)
			n.serve(p, *r)
		})
		e.try(s, what{format: "SELF's stray ACTION is lost", self: s.hosts[i].self, action: r.action}, func(n *scene) {
			n.hosts[i].strays = slices.Delete(slices.Clone(n.hosts[i].strays), k, k+1)
		})
	}
}

func (e *explorer) expandHost(s *scene, i int) {
	p := s.hosts[i]
	for claim := range p.slots() {
		if r := *p.requestOf(claim); r != nil && !r.applied {
			e.try(s, what{format: "SELF has its ACTION (SLOT) carried out", self: p.self, action: r.action, slot: claim}, func(n *scene) {
				*n.hosts[i].requestOf(claim) = n.serve(n.hosts[i], *r)
			})
		}
	}
	if s.left.kills > 0 && i == 0 {
		e.try(s, what{format: "SELF dies", self: p.self}, func(n *scene) {
			n.left.kills--
			n.hosts[i].kill()
		})
	}
	if p.suspended {
		e.try(s, what{format: "SELF is resumed", self: p.self}, func(n *scene) { n.hosts[i].resume(n.world) })
		return
	}
	for claim := range p.slots() {
		e.expandAnswer(s, i, claim)
	}
	if p.next() >= 0 {
		e.try(s, what{format: "SELF sees an event", self: p.self}, func(n *scene) {
			n.hosts[i].deliver(n.world)
			n.run(n.hosts[i])
		})
	}
	e.expandFaults(s, i)
	e.expandDesired(s, i)
}

func (e *explorer) expandAnswer(s *scene, i, claim int) {
	p := s.hosts[i]
	r := *p.requestOf(claim)
	if r == nil {
		return
	}
	if r.applied {
		e.try(s, what{format: "SELF is answered its ACTION (SLOT)", self: p.self, action: r.action, slot: claim}, func(n *scene) {
			n.answer(n.hosts[i], r, false)
			n.run(n.hosts[i])
		})
	}
	if s.left.losses > 0 {
		e.try(s, what{format: "SELF is not answered its ACTION (SLOT)", self: p.self, action: r.action, slot: claim}, func(n *scene) {
			n.left.losses--
			if !r.applied && r.action != Read {
				n.hosts[i].strays = append(n.hosts[i].strays, r)
			}
			n.answer(n.hosts[i], r, true)
			n.run(n.hosts[i])
		})
	}
}

func (e *explorer) expandFaults(s *scene, i int) {
	self := s.hosts[i].self
	if s.left.pauses > 0 {
		e.try(s, what{format: "SELF is suspended", self: self}, func(n *scene) {
			n.left.pauses--
			n.hosts[i].suspend(n.world, false)
		})
	}
	if s.left.freezes > 0 {
		e.try(s, what{format: "SELF is paused with its clock", self: self}, func(n *scene) {
			n.left.freezes--
			n.hosts[i].suspend(n.world, true)
		})
	}
	if s.left.hangs > 0 && !s.hosts[i].hung {
		e.try(s, what{format: "SELF hangs", self: self}, func(n *scene) {
			n.left.hangs--
			n.hosts[i].hung = true
		})
	}
}

func (e *explorer) expandDesired(s *scene, i int) {
	p := s.hosts[i]
	for c := range p.claims {
		if claim := p.claims[c]; claim.working && (claim.state.Phase == Idle || claim.leave) {
			e.try(s, what{format: "SELF's work for SLOT returns", self: p.self, slot: c}, func(n *scene) {
				n.hosts[i].claims[c].working = false
				n.run(n.hosts[i])
			})
		}
		if s.left.flips > 0 {
			e.try(s, what{format: "SELF changes what it wants of SLOT", self: p.self, slot: c}, func(n *scene) {
				n.left.flips--
				n.hosts[i].claims[c].leave = !p.claims[c].leave
				n.run(n.hosts[i])
			})
		}
	}
	if s.left.flips > 0 && i == 0 && p.want {
		e.try(s, what{format: "SELF leaves", self: p.self}, func(n *scene) {
			n.left.flips--
			n.hosts[i].want = false
			for c := range p.claims {
				n.hosts[i].claims[c].leave = true
			}
			n.run(n.hosts[i])
		})
	}
}

// expandTampering adds what people do to Leases, and a new incarnation of a.
func (e *explorer) expandTampering(s *scene) {
	if s.left.removals > 0 && s.leases[0].exists {
		e.try(s, what{format: "somebody deletes the Lease of a"}, func(n *scene) {
			n.left.removals--
			n.removed[0] = true
			n.put(leaseOf{}, revision{})
		})
	}
	shard := leaseOf{true, 0}
	was := s.leases[s.at(shard)]
	if was.exists && (s.left.empties > 0 || s.left.forgeries > 0) {
		e.try(s, what{format: "somebody deletes the Lease of shard 0"}, func(n *scene) {
			n.left.empties, n.left.forgeries = 0, 0
			n.removed[s.at(shard)] = true
			n.put(shard, revision{})
		})
	}
	tamper := func(format string, left func(*scene) *int8, holder string) {
		if *left(s) > 0 && was.exists && was.shard.Holder != holder {
			e.try(s, what{format: format}, func(n *scene) {
				*left(n)--
				written := was
				written.shard.Holder = holder
				n.put(shard, written)
			})
		}
	}
	tamper("somebody empties the Lease of shard 0", func(s *scene) *int8 { return &s.left.empties }, "")
	tamper("somebody writes b_1 into the Lease of shard 0", func(s *scene) *int8 { return &s.left.forgeries }, "b_1")
	tamper("somebody writes nonsense into the Lease of shard 0", func(s *scene) *int8 { return &s.left.forgeries }, "nonsense")
	if s.left.starts > 0 && s.hosts[0].dead {
		e.try(s, what{format: "a_2 starts"}, func(n *scene) {
			n.left.starts--
			n.run(n.start(0, 2, 1))
		})
	}
}

// mayTick holds time back while something is due: requests end in time.
func (s *scene) mayTick() bool {
	late := func(r *request, most int) bool { return r != nil && s.now.Sub(r.sentAt) >= time.Duration(most)*tick }
	for _, p := range s.hosts {
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

// try adds one scene, unless it is known.
func (e *explorer) try(s *scene, what what, change func(*scene)) {
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
		// From every one would take most of the time.
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

func (e *explorer) copy(s *scene) *scene {
	n := &scene{world: &world{}}
	if last := len(e.spare) - 1; last >= 0 {
		n, e.spare = e.spare[last], e.spare[:last]
	}
	s.world.copyTo(n.world)
	n.left, n.id = s.left, s.id
	return n
}

// judgeLiveness has everything go well from here on, and wants each shard held in time.
func (e *explorer) judgeLiveness(s *scene) {
	w := &e.whole
	s.copyTo(w)
	w.slow = false
	for range taken {
		w.settle()
		w.now = w.now.Add(tick)
		for _, p := range w.hosts {
			w.run(p)
		}
	}
	w.settle()
	if w.broken != "" {
		s.fail("later: %s", w.broken)
		return
	}
	for i := range w.high {
		able, held := "", false
		for _, p := range w.hosts {
			if !p.dead && !p.suspended && !p.hung && p.state.Phase != Over && !p.claims[i].leave {
				able = p.self
			}
			held = held || !p.hung && !p.suspended && p.holds(w, i)
		}
		if able != "" && !held {
			s.fail("%d ticks later, nobody holds shard %d, which %s wants", taken, i, able)
		}
	}
}

// settle has all requests answered and all watches catch up, until nothing is under way.
func (w *world) settle() {
	for again := true; again && w.broken == ""; {
		again = false
		for _, p := range w.hosts {
			for _, r := range p.strays {
				w.serve(p, *r)
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
					r = w.serve(p, *r)
				}
				w.answer(p, r, false)
				w.run(p)
			}
			for p.next() >= 0 {
				again = true
				p.deliver(w)
			}
			w.run(p)
		}
		w.judge()
	}
}

// explore walks from start to all that is within reach, or to the first scene that breaks an
// invariant.
func explore(r *rules, world exploreWorld) *explorer {
	s := world.scene(r)
	e := &explorer{seed: maphash.MakeSeed(), known: map[uint64]struct{}{}, next: []*scene{s}, end: s.now.Add(world.ticks * tick), moves: []move{{}}, wanted: -1}
	e.start = e.copy(s)
	for len(e.next) > 0 && e.broken == nil && len(e.known) < mostScenes {
		for len(e.next) > 0 && e.broken == nil && len(e.known) < mostScenes {
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

// history is how the scene that breaks an invariant came about.
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

// exploreWorld is where an exploration begins, and its bounds.
type exploreWorld struct {
	shards int
	ticks  time.Duration
	left   budget
	slow   bool
	// both: b has a heartbeat as well.
	both bool
	// scenes is how many there are at least: that all is well in fewer says little.
	scenes int
}

// scene has a hold all shards, and b want them.
func (x exploreWorld) scene(r *rules) *scene {
	w := newWorld(r, exploreTiming, 2, x.shards)
	w.slow = x.slow
	for m := range 2 {
		p := w.start(m, 1, 1)
		w.run(p)
		w.settle()
		if m == 1 && !x.both {
			p.steady, p.right.Until = true, w.now.Add(time.Hour)
		}
	}
	return &scene{world: w, left: x.left}
}

// exploreWorlds are tried one after the other. In all but the last, b's heartbeat is left out: it
// has rights all the time.
var exploreWorlds = map[string]exploreWorld{
	"a member dies, an answer is lost":             {shards: 2, ticks: 4, left: budget{losses: 1, kills: 1}, scenes: 300_000},
	"a member is suspended":                        {shards: 2, ticks: 4, left: budget{pauses: 1}, scenes: 175_000},
	"a member is suspended, an answer is lost":     {shards: 1, ticks: 5, left: budget{losses: 1, pauses: 1}, scenes: 370_000},
	"a member is paused with its clock":            {shards: 2, ticks: 4, left: budget{freezes: 1}, scenes: 270_000},
	"a member hangs":                               {shards: 2, ticks: 5, left: budget{hangs: 1}, scenes: 270_000},
	"a member leaves, desired states change":       {shards: 1, ticks: 1, left: budget{flips: 2}, slow: true, scenes: 56_000},
	"a member's Lease is deleted, the member dies": {shards: 1, ticks: 4, left: budget{removals: 1, kills: 1}, scenes: 72_000},
	"a shard's Lease is emptied or deleted":        {shards: 1, ticks: 3, left: budget{empties: 1}, scenes: 99_000},
	"a shard's Lease is forged or deleted":         {shards: 1, ticks: 3, left: budget{forgeries: 1}, scenes: 115_000},
	"a member dies and starts again":               {shards: 1, ticks: 4, left: budget{kills: 1, starts: 1}, scenes: 590_000},
	"two heartbeats, a member dies":                {shards: 1, ticks: 3, left: budget{kills: 1}, both: true, scenes: 127_000},
}

// TestExplore tries everything that can happen to two members and two shards.
func TestExplore(t *testing.T) {
	if testing.Short() {
		t.Skip("left out: it takes half a minute, and the simulation is enough of a first look")
	}
	for _, name := range slices.Sorted(maps.Keys(exploreWorlds)) {
		world := exploreWorlds[name]
		t.Run(name, func(t *testing.T) {
			began := time.Now()
			e := explore(&productRules, world)
			if e.broken != nil {
				t.Fatal(e.history())
			}
			if len(e.next) > 0 {
				t.Errorf("more than %d scenes", mostScenes)
			}
			if len(e.known) < world.scenes {
				t.Errorf("only %d scenes, want at least %d", len(e.known), world.scenes)
			}
			t.Logf("%d scenes in %v, liveness from %d of them", len(e.known), time.Since(began).Round(time.Millisecond), e.checked)
		})
	}
}

// key is the same for scenes that no rule tells apart.
func (e *explorer) key(s *scene) uint64 {
	k := &e.keyer
	k.scene, k.ranked, k.versions = s, false, k.versions[:0]
	k.write() // gathers the versions
	slices.Sort(k.versions)
	k.versions = slices.Compact(k.versions)
	k.ranked = true
	k.out = k.out[:0]
	k.write()
	return maphash.Bytes(e.seed, k.out)
}

// keyer writes a scene twice: first it gathers the versions, then it writes their order instead of
// them.
type keyer struct {
	*scene
	versions []Version
	ranked   bool
	out      []byte
	clock    time.Time // of the process that is being written
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
	for _, p := range k.hosts {
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
	k.clock = p.clock(k.world)
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
