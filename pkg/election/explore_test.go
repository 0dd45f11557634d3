package election

import (
	"bytes"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// This file walks through every history, within bounds, of two members that may want one Lease.
// Decisions are those of Step, knowledge is gained by Observation.Saw and Gone, and Leases are
// written by stamp.held, asked and released: all of them the product's. What the loop around them
// does is modelled here.
//
// Of heartbeats it assumes what the explorer of package heartbeat holds, and no more: a member may
// be listed as ended from a lease duration after its last stored heartbeat on, has no confirmed one
// after that, and a heartbeat is confirmed only when everything written before it is known.
// Whatever happens to a heartbeat happens at the worst moment: it is stored as soon as it is
// started, at the beginning of a tick, and who reads that somebody has ended may do so then or any
// time later.
//
// Time goes in ticks, three to a lease duration and two to a renew deadline. Between any two things
// that happen anything else may: requests are carried out late, answers are lost and their requests
// carried out after that, watches lag for any time and skip what is older, members are suspended
// for any time, desired states change. Two worlds are the same if they differ in absolute time, in
// versions, in ages that no rule can tell apart, or in which of the two members is which: nothing
// goes by their names.

// exploreTiming has the proportions of DefaultTiming.
var exploreTiming = Timing{LeaseDuration: 3 * time.Second, RenewDeadline: 2 * time.Second, RetryPeriod: time.Second}

// exploreDrain is how long work may take to return once it has been asked to stop.
const exploreDrain = 2 * time.Second

const (
	// oldest is the greatest age in ticks that is told from greater ones: no rule looks further
	// back.
	oldest = 3
	// wire is how many ticks a request may be on its way.
	wire = 2
	// mostStates bounds memory: what is more was not meant.
	mostStates = 5_000_000
	// never is the tick of the zero time.
	never = int16(-1000)
)

// revision is one version of the Lease; without a lease it is a deletion.
type revision struct {
	lease   *coordinationv1.Lease
	record  Record
	version int16
	written int16
}

// sentRequest is a request to the server, from when it is sent until its answer is recorded. It is
// not changed, but copied.
type sentRequest struct {
	action  Action
	fresh   bool
	before  *revision // as it was observed; nil if it was not
	term    int32
	start   int16
	fetched *revision // by a Release, before its update
	applied bool
	// The answer: what was read or written, and whether it was refused as a conflict.
	got      *revision
	conflict bool
}

// player is one member.
type player struct {
	desired Desired
	paused  bool
	// slept: it was suspended since its claim began.
	slept bool
	dead  bool
	busy  bool
	// working, returned: its work runs, or has returned and nobody has taken notice.
	working, returned bool

	phase                               ClaimPhase
	warned                              bool
	term, termAsked                     int32
	lastRenew, ended, notBefore, asking int16
	drained                             int16 // since when it drains

	// Its heartbeats: the last that is confirmed and the last that is stored, by when they were
	// started, and what must be known for the latter to be confirmed; nil if it is.
	confirmed, stored int16
	pending           *revision
	lost              bool // its membership is lost, which takes all rights
	knows             bool // it has read that the other one is listed as ended

	known    bool
	seen     *revision
	seenAt   int16
	highTerm int32

	event   *revision    // what the watch brings next; what is older is skipped, as by a new list
	request *sentRequest // under way
	stray   *sentRequest // given up, and perhaps still under way
}

// scene is a state of the world.
type scene struct {
	now     int16
	players [2]player
	head    *revision
	high    int32 // the highest term that was acquired
	// What may still go wrong.
	losses, pauses, flips, removals, clearings, quits int8
	// removed, cleared: somebody deleted the Lease, or emptied it. excused: so that a second holder
	// is possible.
	removed, cleared, excused bool
	// asks: whoever wants the Lease asks for it. steady: no heartbeat fails, however late it is
	// confirmed.
	asks, steady bool

	// id is the scene's place in explorer.moves.
	id int32
}

// move is how a scene came about: the nth thing that may happen after another scene.
type move struct {
	from, nth int32
}

// explorer walks through all scenes.
type explorer struct {
	step func(Input) Output
	// terms is how many acquisitions a history may have.
	terms int32
	// ticks is how long a history may be.
	ticks int16
	seed  maphash.Seed
	keyer keyer
	known map[uint64]struct{}
	// next are the scenes to look at in this tick, later those of the next one. All of a tick come
	// before any of the next, so that a scene is first met with the most time left.
	next, later []*scene
	// moves are how the known scenes came about, by id, and start is the first of them. What a
	// history was is found out by going through it again: to keep every scene would take most of
	// the memory.
	moves []move
	start scene
	// nth counts what has been tried after the scene that is expanded. If wanted is not negative,
	// only that one is tried.
	nth, wanted int32
	// spare are scenes to be overwritten.
	spare []*scene
	// broken is how the first scene that breaks an invariant came about, and why.
	broken *move
	why    string
	// made and what are the scene that was wanted, and what led to it.
	made *scene
	what what
}

// what happened, to be put together only if somebody asks.
type what [4]string

func (w what) String() string { return strings.Join(w[:], "") }

var (
	exploreNames = [2]string{"a_1", "b_1"}
	exploreEnded = [2]map[string]string{{EndedAnnotation: "a_1"}, {EndedAnnotation: "b_1"}}
)

func tickTime(tick int16) time.Time {
	if tick == never {
		return time.Time{}
	}
	return epoch.Add(time.Duration(tick) * time.Second)
}

func tickOf(t time.Time) int16 {
	if t.IsZero() {
		return never
	}
	return int16(t.Sub(epoch) / time.Second)
}

func (p *player) state() State {
	return State{
		Phase: p.phase, Term: p.term, TermAsked: p.termAsked, LastRenew: tickTime(p.lastRenew), EndedAt: tickTime(p.ended),
		NotBefore: tickTime(p.notBefore), Asked: tickTime(p.asking), Warned: p.warned, DrainingSince: tickTime(p.drained),
	}
}

func (p *player) setState(s State) {
	p.phase, p.term, p.termAsked, p.warned = s.Phase, s.Term, s.TermAsked, s.Warned
	p.lastRenew, p.ended, p.notBefore, p.asking = tickOf(s.LastRenew), tickOf(s.EndedAt), tickOf(s.NotBefore), tickOf(s.Asked)
	p.drained = tickOf(s.DrainingSince)
}

func (p *player) observation() Observation {
	o := Observation{Record: Record{Name: leaseName}, HighTerm: p.highTerm}
	if p.known {
		o.Seen = tickTime(p.seenAt)
	}
	if p.seen != nil {
		o.Record.ResourceVersion = strconv.Itoa(int(p.seen.version))
		if p.seen.lease != nil {
			o.Record, o.Exists, o.Lease = p.seen.record, true, p.seen.lease
		}
	}
	return o
}

// learn takes in a revision by Observation's own rules.
func (p *player) learn(r *revision, now int16) {
	before := p.observation()
	var after Observation
	var changed bool
	if r.lease != nil {
		after, changed = before.Saw(r.lease, tickTime(now))
	} else {
		after, changed = before.Gone(strconv.Itoa(int(r.version)), tickTime(now))
	}
	if changed {
		p.known, p.seen, p.seenAt, p.highTerm = true, r, tickOf(after.Seen), after.HighTerm
	}
}

func (p *player) holds() bool {
	return p.phase == Acquired || p.phase == Running || p.phase == Draining
}

// right reports whether p's heartbeat gives it rights.
func (p *player) right(now int16) bool {
	return !p.lost && tickTime(now).Before(tickTime(p.confirmed).Add(exploreTiming.RenewDeadline))
}

// gone reports whether p may be listed as ended.
func (p *player) gone(now int16) bool {
	return !tickTime(now).Before(tickTime(p.stored).Add(exploreTiming.LeaseDuration))
}

// valid reports whether p's claim is valid, as heartbeat.ClaimState.Valid has it.
func (p *player) valid(now int16) bool {
	return !p.dead && p.holds() && p.right(now) && p.seen.lease != nil
}

// write makes a new revision the head and puts it on its way to both.
func (s *scene) write(lease *coordinationv1.Lease) *revision {
	r := &revision{version: s.head.version + 1, written: s.now}
	if lease != nil {
		lease.ResourceVersion = strconv.Itoa(int(r.version))
		r.lease, r.record = lease, RecordFrom(lease)
	}
	s.head = r
	for i := range s.players {
		if !s.players[i].dead {
			s.players[i].event = r
		}
	}
	return r
}

// run has a player's loop go round until it waits.
func (e *explorer) run(s *scene, i int) {
	p := &s.players[i]
	for range 20 {
		if p.dead || p.paused {
			return
		}
		in := Input{
			Self: exploreNames[i], Now: tickTime(s.now), Desired: p.desired, Observation: p.observation(), State: p.state(),
			Timing: exploreTiming, Busy: p.busy, Returned: p.returned, Ask: s.asks && p.desired == Held, DrainTimeout: exploreDrain,
			Confirmed: tickTime(p.confirmed), Right: !p.lost,
		}
		if in.Observation.Holder != "" {
			in.Observation.Heartbeat = &Observation{Exists: true}
			if p.knows && in.Observation.Holder == exploreNames[1-i] {
				in.Observation.Heartbeat.Annotations = exploreEnded[1-i]
			}
		}
		out := e.step(in)
		p.setState(out.State)
		switch out.Action {
		case Wait:
			return
		case Start:
			p.working, p.returned = true, false
		case End:
			if in.Returned {
				p.returned = false
			}
		case Rest:
			p.returned = false
		case Stuck:
			p.dead, p.working, p.busy = true, false, false
			if p.request != nil && !p.request.applied {
				p.stray = p.request
			}
			p.request, p.event, p.pending = nil, nil, nil
			return
		case Create, Acquire, Renew, Ask, Release:
			p.busy = true
			p.request = &sentRequest{
				action: out.Action, fresh: in.State.Phase == Idle && (out.Action == Create || out.Action == Acquire),
				before: p.seen, term: out.Term, start: s.now,
			}
		}
	}
	e.fail(s, exploreNames[i]+" does not come to rest")
}

// serve carries a request out and returns it with its answer.
func (e *explorer) serve(s *scene, i int, r sentRequest) *sentRequest {
	now, self := tickTime(s.now), exploreNames[i]
	exists := s.head.lease != nil
	same := func(v *revision) bool { return v != nil && exists && v.version == s.head.version }
	r.applied = true
	refuse := func() *sentRequest {
		r.conflict, r.got = true, s.head
		return &r
	}
	switch r.action {
	case Create:
		if exists {
			return refuse()
		}
		e.acquired(s, i, r)
		r.got = s.write(stamp{}.held(nil, leaseName, self, r.term, exploreTiming.LeaseDuration, tickTime(r.start)))
	case Acquire, Renew:
		if !same(r.before) {
			return refuse()
		}
		e.acquired(s, i, r)
		r.got = s.write(stamp{}.held(r.before.lease, leaseName, self, r.term, exploreTiming.LeaseDuration, tickTime(r.start)))
	case Ask:
		if !same(r.before) {
			return refuse()
		}
		r.got = s.write(asked(r.before.lease, self))
	case Release:
		if r.fetched == nil {
			switch {
			case !exists:
				return refuse()
			case s.head.record.Holder != self:
				r.got = s.head
			default:
				r.fetched, r.applied = s.head, false
			}
			return &r
		}
		if !same(r.fetched) {
			return refuse()
		}
		if s.head.record.Holder != self {
			e.fail(s, self+" clears the Lease of "+s.head.record.Holder)
		}
		if s.players[i].working && !s.players[i].dead {
			e.fail(s, self+" releases while its work runs")
		}
		left := map[string]string{ReleasedAnnotation: strconv.Itoa(int(r.fetched.record.Transitions))}
		r.got = s.write(WithoutHolder(r.fetched.lease, left, now))
	}
	return &r
}

// acquired holds that terms rise, and that nobody takes from one that has not ended.
func (e *explorer) acquired(s *scene, i int, r sentRequest) {
	if !r.fresh {
		return
	}
	if from := s.head.record.Holder; from == exploreNames[1-i] && !s.players[1-i].gone(s.now) {
		e.fail(s, exploreNames[i]+" takes from "+from+", which has not ended")
	}
	if r.term <= s.high && !s.removed {
		e.fail(s, fmt.Sprintf("%s acquires term %d after term %d", exploreNames[i], r.term, s.high))
	}
	s.high = max(s.high, r.term)
}

// take is what the loop does with an answer; a lost one is a failure.
func (s *scene) take(i int, lost bool) {
	p := &s.players[i]
	r := p.request
	p.request, p.busy = nil, false
	if lost && !r.applied {
		p.stray = r
	}
	if !lost {
		p.learn(r.got, s.now)
	}
	state := p.state()
	now := tickTime(s.now)
	switch {
	case (r.action == Renew || r.action == Create) && !r.fresh && !state.held():
	case lost:
		state.NotBefore = now.Add(exploreTiming.RetryPeriod)
	case r.conflict:
		state.NotBefore = now
	case r.action == Release, r.action == Ask:
		state.NotBefore = time.Time{}
	case r.fresh:
		state = state.acquired(r.term)
		p.slept = p.paused
	default:
		state.NotBefore = time.Time{}
	}
	p.setState(state)
}

// fail is about what comes of s.id by the latest move.
func (e *explorer) fail(s *scene, why string) {
	if e.broken == nil {
		e.broken, e.why = &move{s.id, e.nth}, why
	}
}

// judge holds a scene against the invariants.
func (e *explorer) judge(s *scene) {
	a, b := &s.players[0], &s.players[1]
	if a.valid(s.now) && b.valid(s.now) && !s.excused {
		e.fail(s, "both hold valid rights")
	}
	// Work of a claim that ended because of tampering may run on behind its closed fence, for a
	// lease duration after the last heartbeat.
	if a.working && b.working && !a.slept && !b.slept && !s.removed && !s.cleared {
		e.fail(s, "both work")
	}
	for i := range s.players {
		p := &s.players[i]
		if p.dead || p.paused {
			continue
		}
		if p.working && p.phase == Draining && tickTime(s.now).After(tickTime(p.drained).Add(exploreDrain)) {
			e.fail(s, exploreNames[i]+" drains without a bound")
		}
		if p.holds() && !p.right(s.now) {
			e.fail(s, exploreNames[i]+" holds on without a right")
		}
		if o := p.observation(); p.holds() && o.Exists && o.Holder != exploreNames[i] {
			e.fail(s, exploreNames[i]+" knows of another holder and holds on")
		}
	}
}

// expand adds all that may happen next.
func (e *explorer) expand(s *scene) {
	e.nth = 0
	for i := range s.players {
		e.expandPlayer(s, i)
	}
	if s.removals > 0 && s.head.lease != nil {
		e.try(s, what{"somebody deletes the Lease"}, func(n *scene) {
			n.removals--
			n.removed = true
			// Whoever has not heard that the Lease was there, or has sent its own creation before,
			// makes a second holder: the package comment says so.
			for i := range n.players {
				n.excused = n.excused || n.players[i].seen.lease == nil || n.players[i].creates()
			}
			n.write(nil)
		})
	}
	if s.clearings > 0 && s.head.lease != nil && s.head.record.Holder != "" {
		e.try(s, what{"somebody clears the holder"}, func(n *scene) {
			n.clearings--
			n.cleared = true
			lease := n.head.lease.DeepCopy()
			lease.Spec.HolderIdentity = ptr.To("")
			n.write(lease)
		})
	}
	if s.now < e.ticks && s.mayTick() {
		for _, beats := range [4][2]bool{{}, {true, false}, {false, true}, {true, true}} {
			able := [2]bool{s.players[0].beats(s.now + 1), s.players[1].beats(s.now + 1)}
			if beats[0] && !able[0] || beats[1] && !able[1] || s.steady && beats != able {
				continue
			}
			e.try(s, what{"time passes", beating[beats]}, func(n *scene) {
				n.now++
				for i := range n.players {
					if p := &n.players[i]; beats[i] {
						p.stored, p.pending = n.now, n.head
					} else if !p.right(n.now) {
						p.pending = nil // too late
					}
				}
				e.run(n, 0)
				e.run(n, 1)
			})
		}
	}
}

var beating = map[[2]bool]string{
	{true, false}: ", a_1's heartbeat is stored", {false, true}: ", b_1's heartbeat is stored", {true, true}: ", both heartbeats are stored",
}

// beats reports whether a heartbeat of p may be stored that is of any use.
func (p *player) beats(now int16) bool { return !p.dead && !p.paused && p.right(now) }

// creates reports whether a request to create the Lease is on its way.
func (p *player) creates() bool {
	return slices.ContainsFunc([]*sentRequest{p.request, p.stray}, func(r *sentRequest) bool {
		return r != nil && r.action == Create && !r.applied
	})
}

// mayTick holds time back while something is due: requests end in time, and so does lost work, or
// its process.
func (s *scene) mayTick() bool {
	for i := range s.players {
		p := &s.players[i]
		if r := p.request; r != nil {
			if age := s.now - r.start; !p.paused && age >= 1 || !r.applied && age >= wire {
				return false
			}
		}
		if p.stray != nil && s.now-p.stray.start >= wire {
			return false
		}
	}
	return true
}

func (e *explorer) expandPlayer(s *scene, i int) {
	p, name := &s.players[i], exploreNames[i]
	if r := p.stray; r != nil {
		e.try(s, what{name, "'s stray ", r.action.String(), " is carried out"}, func(n *scene) {
			if answer := e.serve(n, i, *r); r.action == Release && !answer.applied {
				n.players[i].stray = nil // The client has gone before its second part.
			} else {
				n.players[i].stray = nil
			}
		})
		e.try(s, what{name, "'s stray is lost"}, func(n *scene) { n.players[i].stray = nil })
	}
	if p.dead {
		return
	}
	if r := p.request; r != nil && !r.applied {
		e.try(s, what{name, "'s ", r.action.String(), " is carried out"}, func(n *scene) {
			n.players[i].request = e.serve(n, i, *r)
		})
	}
	if p.paused {
		e.try(s, what{name, " is resumed"}, func(n *scene) {
			n.players[i].paused = false
			e.run(n, i)
		})
		return
	}
	if s.pauses > 0 {
		e.try(s, what{name, " is suspended"}, func(n *scene) {
			n.pauses--
			n.players[i].paused, n.players[i].slept = true, true
		})
	}
	if r := p.request; r != nil {
		if r.applied {
			e.try(s, what{name, " is answered"}, func(n *scene) {
				n.take(i, false)
				e.run(n, i)
			})
		}
		if s.losses > 0 && (r.applied || p.stray == nil) {
			e.try(s, what{name, " is not answered"}, func(n *scene) {
				n.losses--
				n.take(i, true)
				e.run(n, i)
			})
		}
	}
	if p.pending != nil {
		e.try(s, what{name, "'s heartbeat is confirmed"}, func(n *scene) {
			q := &n.players[i]
			q.confirmed, q.pending = q.stored, nil
			if q.learn(p.pending, n.now); q.event != nil && q.event.version <= p.pending.version {
				q.event = nil
			}
			e.run(n, i)
		})
	}
	if !p.knows && s.players[1-i].gone(s.now) {
		e.try(s, what{name, " reads that ", exploreNames[1-i], " has ended"}, func(n *scene) {
			n.players[i].knows = true
			e.run(n, i)
		})
	}
	if s.quits > 0 && !p.lost {
		e.try(s, what{name, "'s membership is lost"}, func(n *scene) {
			n.quits--
			n.players[i].lost, n.players[i].pending = true, nil
			e.run(n, i)
		})
	}
	if p.event != nil {
		e.try(s, what{name, " sees an event"}, func(n *scene) {
			n.players[i].learn(p.event, n.now)
			n.players[i].event = nil
			e.run(n, i)
		})
	}
	if p.working && p.phase != Running {
		e.try(s, what{name, "'s work returns"}, func(n *scene) {
			n.players[i].working, n.players[i].returned = false, true
			e.run(n, i)
		})
	}
	if s.flips > 0 {
		for _, desired := range []Desired{Released, Retained, Held} {
			if desired != p.desired {
				e.try(s, what{name, " wants ", desired.String()}, func(n *scene) {
					n.flips--
					n.players[i].desired = desired
					e.run(n, i)
				})
			}
		}
	}
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
	e.judge(n)
	if n.high > e.terms {
		e.spare = append(e.spare, n)
		return
	}
	key := e.key(n)
	if _, known := e.known[key]; known {
		e.spare = append(e.spare, n)
		return
	}
	e.known[key] = struct{}{}
	n.id = int32(len(e.moves))
	e.moves = append(e.moves, move{s.id, e.nth})
	if n.now > s.now {
		e.later = append(e.later, n)
	} else {
		e.next = append(e.next, n)
	}
}

func (e *explorer) copy(s *scene) *scene {
	n := &scene{}
	if last := len(e.spare) - 1; last >= 0 {
		n, e.spare = e.spare[last], e.spare[:last]
	}
	*n = *s
	return n
}

// key is the same for scenes that no rule tells apart: those in which the members have changed
// places are among them.
func (e *explorer) key(s *scene) uint64 {
	k := &e.keyer
	k.scene, k.ranked, k.versions = s, false, k.versions[:0]
	k.write(0) // gathers the versions
	slices.Sort(k.versions)
	k.versions = slices.Compact(k.versions)
	k.ranked = true
	k.out = k.out[:0]
	k.write(0)
	length := len(k.out)
	k.write(1)
	least := k.out[:length]
	if other := k.out[length:]; bytes.Compare(other, least) < 0 {
		least = other
	}
	return maphash.Bytes(e.seed, least)
}

// keyer writes all of a scene that matters. First it gathers the versions, then it writes their
// order instead of them.
type keyer struct {
	*scene
	// first is the member that is written before the other one.
	first    int
	versions []int16
	ranked   bool
	out      []byte
}

func (k *keyer) put(v int16) {
	if k.ranked {
		k.out = append(k.out, byte(v), byte(v>>8))
	}
}

func (k *keyer) flags(flags ...bool) {
	var bits int16
	for _, f := range flags {
		bits = bits<<1 | bit(f)
	}
	k.put(bits)
}

func (k *keyer) age(t int16) { k.put(max(min(k.now-t, oldest), -oldest)) }

func (k *keyer) name(holder string) {
	switch holder {
	case "":
		k.put(-1)
	case exploreNames[k.first]:
		k.put(0)
	case exploreNames[1-k.first]:
		k.put(1)
	default:
		panic(holder + " is neither member")
	}
}

func (k *keyer) revision(r *revision) {
	switch {
	case r == nil:
		k.put(-1)
		return
	case k.ranked:
		at, _ := slices.BinarySearch(k.versions, r.version)
		k.put(int16(at))
	default:
		k.versions = append(k.versions, r.version)
	}
	if r.lease != nil && k.ranked {
		k.put(int16(r.record.Transitions))
		k.age(tickOf(r.record.RenewTime))
		k.flags(true, r.record.IsReleased())
		k.name(r.record.Holder)
		k.name(r.record.NextHolder())
		k.put(int16(r.record.Duration / time.Second))
	}
}

func (k *keyer) request(r *sentRequest) {
	if r == nil {
		k.put(-2)
		return
	}
	k.put(int16(r.action))
	k.put(int16(r.term))
	k.age(r.start)
	// A request by an old version is refused, whatever was in it.
	k.flags(r.fresh, r.applied, r.conflict, r.before != nil && r.before.version == k.head.version,
		r.fetched != nil, r.fetched != nil && r.fetched.version == k.head.version)
	k.revision(r.got)
}

func (k *keyer) write(first int) {
	k.first = first
	k.revision(k.head)
	k.put(int16(k.high))
	for _, left := range [...]int8{k.losses, k.pauses, k.flips, k.removals, k.clearings, k.quits} {
		k.put(int16(left))
	}
	k.flags(k.removed, k.cleared, k.excused)
	for n := range k.players {
		k.player(&k.players[(first+n)%len(k.players)])
	}
}

func (k *keyer) player(p *player) {
	k.put(int16(p.desired))
	k.flags(p.paused, p.slept, p.dead, p.busy, p.working, p.returned, p.warned, p.known, p.lost, p.knows, p.pending != nil)
	k.put(int16(p.phase))
	if p.phase != Idle {
		k.put(int16(p.term))
		k.age(p.lastRenew)
	}
	switch p.phase {
	case Lost:
		k.age(p.ended)
	case Draining:
		k.age(p.drained)
	}
	k.put(max(p.notBefore-k.now, 0))
	k.put(min(k.now-p.asking, 1))
	k.age(p.seenAt)
	k.put(int16(p.highTerm))
	k.revision(p.seen)
	k.put(int16(p.termAsked))
	k.age(p.confirmed)
	k.age(p.stored)
	if p.pending != nil && p.pending.version > p.seen.version {
		k.revision(p.pending) // What is known already need not be learnt.
	} else {
		k.put(-3)
	}
	// What has been learnt from an answer meanwhile is no news.
	k.flags(p.event != nil && (p.seen == nil || p.event.version > p.seen.version))
	k.request(p.request)
	k.request(p.stray)
}

func bit(b bool) int16 {
	if b {
		return 1
	}
	return 0
}

func newExplorer(step func(Input) Output, terms int32, ticks int16, start *scene) *explorer {
	e := &explorer{step: step, terms: terms, ticks: ticks, seed: maphash.MakeSeed(), known: map[uint64]struct{}{}, moves: []move{{}}, wanted: -1}
	e.run(start, 0)
	e.run(start, 1)
	e.start = *start
	e.next = []*scene{start}
	return e
}

// explore walks from start to all that is within reach, or to the first scene that breaks an
// invariant.
func explore(step func(Input) Output, terms int32, ticks int16, start *scene) *explorer {
	e := newExplorer(step, terms, ticks, start)
	for len(e.next) > 0 && e.broken == nil && len(e.known) < mostStates {
		for len(e.next) > 0 && e.broken == nil {
			level := e.next
			e.next = nil
			for i, s := range level {
				if e.broken != nil {
					break
				}
				e.expand(s)
				e.spare = append(e.spare, s)
				level[i] = nil
			}
		}
		e.next, e.later = e.later, nil
	}
	return e
}

// history is how the scene that breaks an invariant came about.
func (e *explorer) history() string {
	var nths []int32
	for m := *e.broken; m.nth > 0; m = e.moves[m.from] {
		nths = append(nths, m.nth)
	}
	s, text := e.start, fmt.Sprintf("%s\n%s", e.why, e.start.line(what{}))
	for _, nth := range slices.Backward(nths) {
		e.wanted = nth
		e.expand(&s)
		s = *e.made
		text += "\n" + s.line(e.what)
	}
	return text
}

// line is a line of a history.
func (s *scene) line(what what) string {
	line := fmt.Sprintf("  %2d  %-42s", s.now, what)
	for i := range s.players {
		p := &s.players[i]
		line += fmt.Sprintf("  %s %s term %d", exploreNames[i], p.phase, p.term)
	}
	return line
}

// startScene has both want a Lease that exists and is free, or does not exist.
func startScene(exists bool) *scene {
	s := &scene{head: &revision{}}
	if exists {
		free := lease("", 0)
		free.ResourceVersion = "0"
		free.Spec.LeaseDurationSeconds = ptr.To[int32](3)
		free.Spec.RenewTime = ptr.To(metav1.NewMicroTime(epoch))
		s.head.lease, s.head.record = free, RecordFrom(free)
	}
	for i := range s.players {
		p := &s.players[i]
		p.desired, p.known, p.seen = Held, true, s.head
		p.ended, p.notBefore, p.asking, p.lastRenew, p.drained = never, never, never, never, never
	}
	return s
}

// bounds within which everything is tried.
type bounds struct {
	terms int32
	ticks int16
	// states is how many there are at least: that all is well in fewer says little.
	states int
	start  func() *scene
}

var (
	faultyWorld = bounds{2, 7, 1_000_000, func() *scene {
		s := startScene(true)
		s.losses, s.pauses = 1, 1
		return s
	}}
	fickleWorld = bounds{2, 4, 1_250_000, func() *scene {
		s := startScene(true)
		s.flips, s.asks, s.steady = 2, true, true
		return s
	}}
	deletedWorld = bounds{2, 7, 1_050_000, func() *scene {
		s := startScene(false)
		s.losses, s.removals = 1, 1
		return s
	}}
	clearedWorld = bounds{2, 6, 700_000, func() *scene {
		s := startScene(true)
		s.losses, s.clearings = 1, 1
		return s
	}}
	lostWorld = bounds{2, 6, 385_000, func() *scene {
		s := startScene(true)
		s.quits, s.losses = 1, 1
		return s
	}}
)

// exchanged is the scene in which the members have changed places.
func (s *scene) exchanged() *scene {
	n := *s
	n.players[0], n.players[1] = s.players[1], s.players[0]
	other := func(name string) string {
		switch name {
		case exploreNames[0]:
			return exploreNames[1]
		case exploreNames[1]:
			return exploreNames[0]
		}
		return name
	}
	made := map[*revision]*revision{nil: nil}
	revised := func(r **revision) {
		if made[*r] == nil && *r != nil {
			c := **r
			if c.lease != nil {
				c.lease = c.lease.DeepCopy()
				c.lease.Spec.HolderIdentity = ptr.To(other(*c.lease.Spec.HolderIdentity))
				if next, asked := c.lease.Annotations[NextHolderAnnotation]; asked {
					c.lease.Annotations[NextHolderAnnotation] = other(next)
				}
				c.record = RecordFrom(c.lease)
			}
			made[*r] = &c
		}
		*r = made[*r]
	}
	revised(&n.head)
	for i := range n.players {
		p := &n.players[i]
		for _, r := range []**revision{&p.pending, &p.seen, &p.event} {
			revised(r)
		}
		for _, r := range []**sentRequest{&p.request, &p.stray} {
			if *r != nil {
				c := **r
				for _, of := range []**revision{&c.before, &c.fetched, &c.got} {
					revised(of)
				}
				*r = &c
			}
		}
	}
	return &n
}

// after returns the keys of all that may happen after a scene.
func (e *explorer) after(s *scene) map[uint64]struct{} {
	e.known, e.next, e.later, e.moves = map[uint64]struct{}{}, nil, nil, e.moves[:1]
	e.expand(s)
	return e.known
}

// TestExploreIsSymmetric holds what lets the explorer take two scenes for one: where the members
// change places, the same may happen next, with the members in each other's places.
func TestExploreIsSymmetric(t *testing.T) {
	for name, step := range map[string]func(Input) Output{"the product's": Step, "one that goes by names": byNames} {
		differ, held, n := 0, 0, 0
		world := fickleWorld.start()
		world.losses, world.pauses, world.clearings, world.removals, world.quits = 1, 1, 1, 1, 1
		walk := newExplorer(Step, 2, 3, world)
		try := newExplorer(step, 2, 3, fickleWorld.start())
		try.seed = walk.seed
		for walk.next = []*scene{world}; len(walk.next) > 0 && n < 20_000; n++ {
			s := walk.next[0]
			walk.next = walk.next[1:]
			x := s.exchanged()
			if walk.key(s) != walk.key(x) {
				t.Fatalf("a scene and its exchange have different keys:\n%s\n%s", s.line(what{}), x.line(what{}))
			}
			if !maps.Equal(try.after(s), try.after(x)) {
				differ++
			}
			if s.players[0].holds() != s.players[1].holds() {
				held++
			}
			walk.expand(s)
			walk.next, walk.later = append(walk.next, walk.later...), nil
		}
		if held < n/10 {
			t.Errorf("%s: in %d of %d scenes one member holds the Lease: they are too much alike", name, held, n)
		}
		if symmetric := name == "the product's"; symmetric != (differ == 0) {
			t.Errorf("%s: after %d of %d scenes something else may happen to the other member", name, differ, n)
		}
	}
}

// byNames is a mistake: the first member waits for a tick longer than the second.
func byNames(in Input) Output {
	if in.Self == exploreNames[0] && in.State.Phase == Idle && in.Now.Before(in.Observation.Seen.Add(time.Second)) {
		return Output{Action: Wait, State: in.State}
	}
	return Step(in)
}

// TestExplore tries everything that can happen to two members and one Lease.
func TestExplore(t *testing.T) {
	if underRace {
		t.Skip("left out: it has no second goroutine, and would take minutes")
	}
	for name, w := range map[string]bounds{
		"a lost answer, a suspended member": faultyWorld,
		"changing desired states":           fickleWorld,
		"a lost membership":                 lostWorld,
		"a Lease that is deleted":           deletedWorld,
		"a holder that is cleared by hand":  clearedWorld,
	} {
		t.Run(name, func(t *testing.T) {
			if testing.Short() && name != "changing desired states" {
				t.Skip("left out: one world is enough of a first look")
			}
			began := time.Now()
			e := explore(Step, w.terms, w.ticks, w.start())
			if e.broken != nil {
				t.Fatal(e.history())
			}
			if len(e.next) > 0 {
				t.Errorf("more than %d states", mostStates)
			}
			if len(e.known) < w.states {
				t.Errorf("only %d states, want at least %d", len(e.known), w.states)
			}
			t.Logf("%d states in %v", len(e.known), time.Since(began).Round(time.Millisecond))
		})
	}
}

// TestExploreConvicts has Step make mistakes, and each of them found.
func TestExploreConvicts(t *testing.T) {
	if underRace {
		t.Skip("left out: it has no second goroutine, and would take minutes")
	}
	for name, tc := range map[string]struct {
		world bounds
		step  func(Input) Output
		want  string
	}{
		"renew deadline ignored": {faultyWorld, func(in Input) Output {
			in.Timing.RenewDeadline = time.Hour
			return Step(in)
		}, "holds on without a right"},
		"right ignored": {lostWorld, func(in Input) Output {
			in.Right = true
			return Step(in)
		}, "holds on without a right"},
		"claim outlives the strike": {faultyWorld, func(in Input) Output {
			if in.State.held() {
				in.Confirmed = in.Now
			}
			return Step(in)
		}, "holds on without a right"},
		"taken without the strike": {faultyWorld, func(in Input) Output {
			if in.State.Phase == Idle && in.Observation.Holder != in.Self {
				in.Observation = ended(in.Observation)
			}
			return Step(in)
		}, "which has not ended"},
		"emptied Lease taken at once": {clearedWorld, func(in Input) Output {
			if in.State.Phase == Idle && in.Observation.Holder == "" {
				in.Observation.Annotations = map[string]string{ReleasedAnnotation: strconv.Itoa(int(in.Observation.Transitions))}
			}
			return Step(in)
		}, "both hold valid rights"},
		"expiry too early": {clearedWorld, func(in Input) Output {
			in.Timing.LeaseDuration = time.Second
			return Step(in)
		}, "both hold valid rights"},
		"release before work returned": {fickleWorld, func(in Input) Output {
			in.Returned = in.Returned || in.State.Phase == Draining
			return Step(in)
		}, "releases while its work runs"},
		"drain without a bound": {fickleWorld, func(in Input) Output {
			in.DrainTimeout = time.Hour
			return Step(in)
		}, "drains without a bound"},
		"other holder ignored": {clearedWorld, func(in Input) Output {
			if in.State.held() && in.Observation.Exists {
				in.Observation.Holder, in.Observation.Transitions = in.Self, in.State.Term
			}
			return Step(in)
		}, "knows of another holder and holds on"},
		"term not counted up": {faultyWorld, func(in Input) Output {
			out := Step(in)
			if out.Action == Acquire {
				out.Term = max(1, in.Observation.Transitions)
			}
			return out
		}, "acquires term"},
	} {
		t.Run(name, func(t *testing.T) {
			e := explore(tc.step, tc.world.terms, tc.world.ticks, tc.world.start())
			if e.broken == nil || !strings.Contains(e.why, tc.want) {
				t.Fatalf("after %d states: %q, want a conviction for %q", len(e.known), e.why, tc.want)
			}
			t.Logf("after %d states: %s", len(e.known), e.history())
		})
	}
}
