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

	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
)

// This file explores every history, within bounds, of two members that may want one Lease. It uses
// the product's code for decisions (Step), for knowledge (Observation.Saw and Gone) and for the
// Leases written (leaserecord.Stamp.Held, Asked, WithoutHolder). It models the loop around them.
//
// Of heartbeats it assumes only what the explorer of package heartbeat checks. A member may be
// listed as ended a lease duration after its last stored heartbeat, and has no confirmed one after
// that. A heartbeat is confirmed only when everything written before it is known. Each event of a
// heartbeat happens at the worst moment: it is stored as soon as it is started, at the beginning of
// a tick, and a member may read that the other has ended then or at any later time.
//
// Time advances in ticks, three to a lease duration and two to a renew deadline. Between any two
// events anything else may happen: requests are executed late, answers are lost and their requests
// executed after that, watches lag for any time and skip older versions, members are suspended for
// any time, desired states change. Two states are the same if they differ only in absolute time, in
// versions, in ages that no rule distinguishes, or in which of the two members is which: no rule
// depends on their names.

// exploreTiming has the proportions of DefaultTiming.
var exploreTiming = Timing{LeaseDuration: 3 * time.Second, RenewDeadline: 2 * time.Second, RetryPeriod: time.Second}

// exploreDrain is how long work may take to return once it has been asked to stop.
const exploreDrain = 2 * time.Second

const (
	// oldest is the age in ticks beyond which all ages are equal: no rule looks further back.
	oldest = 3
	// wire is how many ticks a request may be in flight.
	wire = 2
	// mostStates bounds memory; a test that exceeds it fails.
	mostStates = 5_000_000
	// never is the tick of the zero time.
	never = int16(-1000)
)

// revision is one version of the Lease; with a nil lease it is a deletion.
type revision struct {
	lease   *coordinationv1.Lease
	record  leaserecord.Record
	version int16
	written int16
}

// sentRequest is a request to the server, from sending until its answer is recorded. It is
// immutable: changes are made on a copy.
type sentRequest struct {
	action  Action
	fresh   bool
	before  *revision // the Lease as observed; nil if it was not
	term    int32
	start   int16
	fetched *revision // what a Release has read before its update
	applied bool
	// got and conflict are the answer: what was read or written, and whether it was refused as a
	// conflict.
	got      *revision
	conflict bool
}

// simMember is one simulated member.
type simMember struct {
	desired Desired
	paused  bool
	// slept: it was suspended at some time since its claim began.
	slept bool
	dead  bool
	busy  bool
	// working: its work runs. returned: its work has returned, and no step has seen that.
	working, returned bool

	phase                               ClaimPhase
	warned                              bool
	term, termAsked                     int32
	lastRenew, ended, notBefore, asking int16
	drained                             int16 // when draining began

	// confirmed and stored are when the last confirmed and the last stored heartbeat started.
	// pending is the revision that must be known to confirm the latter; nil if it is confirmed.
	confirmed, stored int16
	pending           *revision
	lost              bool // its membership is lost, which ends all rights
	unanswered        bool // as Input.Unanswered
	knows             bool // it has read that the other member is listed as ended

	known    bool
	seen     *revision
	seenAt   int16
	highTerm int32

	event   *revision    // what the watch delivers next; older events are skipped, as by a new list
	request *sentRequest // under way
	stray   *sentRequest // given up, but possibly still under way
}

// sysState is a state of the whole system.
type sysState struct {
	now     int16
	members [2]simMember
	head    *revision
	high    int32 // the highest term that was acquired
	// How many faults of each kind may still happen.
	losses, pauses, flips, removals, clearings, quits int8
	// removed, cleared: somebody deleted the Lease, or emptied it. excused: that makes a second
	// holder possible.
	removed, cleared, excused bool
	// asks: a member that wants the Lease asks for it. steady: no heartbeat fails, though it may be
	// confirmed late.
	asks, steady bool

	// id is the state's index in explorer.moves.
	id int32
}

// move identifies a state by the one before it: it is the nth of the states that may follow that
// one.
type move struct {
	from, nth int32
}

// explorer visits all states.
type explorer struct {
	step func(Input) Output
	// terms is how many acquisitions a history may have.
	terms int32
	// ticks is how long a history may be.
	ticks int16
	seed  maphash.Seed
	keyer keyer
	known map[uint64]struct{}
	// next are the states to expand in this tick, later those of the next one. A tick is completed
	// before the next begins, so that a state is first reached with the most time left.
	next, later []*sysState
	// moves has the move that led to each known state, by id, and start is the first state. A
	// history is found by replaying its moves: keeping every state would take most of the memory.
	moves []move
	start sysState
	// nth counts the successors tried of the state being expanded. If wanted is not negative, only
	// that one is tried.
	nth, wanted int32
	// spare are states to reuse.
	spare []*sysState
	// broken is the move to the first state that breaks an invariant, and why says which.
	broken *move
	why    string
	// made is the wanted state, and what describes the event that led to it.
	made *sysState
	what description
}

// description says what happened; it is joined only when needed.
type description [4]string

func (d description) String() string { return strings.Join(d[:], "") }

var (
	exploreNames = [2]string{"a_1", "b_1"}
	exploreEnded = [2]map[string]string{{leaserecord.EndedAnnotation: "a_1"}, {leaserecord.EndedAnnotation: "b_1"}}
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

func (p *simMember) state() State {
	return State{
		Phase: p.phase, Term: p.term, TermAsked: p.termAsked, LastRenew: tickTime(p.lastRenew), EndedAt: tickTime(p.ended),
		NotBefore: tickTime(p.notBefore), Asked: tickTime(p.asking), Warned: p.warned, DrainingSince: tickTime(p.drained),
	}
}

func (p *simMember) setState(s State) {
	p.phase, p.term, p.termAsked, p.warned = s.Phase, s.Term, s.TermAsked, s.Warned
	p.lastRenew, p.ended, p.notBefore, p.asking = tickOf(s.LastRenew), tickOf(s.EndedAt), tickOf(s.NotBefore), tickOf(s.Asked)
	p.drained = tickOf(s.DrainingSince)
}

func (p *simMember) observation() Observation {
	o := Observation{Record: leaserecord.Record{Name: leaseName}, HighTerm: p.highTerm}
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

// learn records a revision by Observation's own rules.
func (p *simMember) learn(r *revision, now int16) {
	before := p.observation()
	var after Observation
	var changed bool
	if r.lease != nil {
		after, changed = before.Saw(r.lease, tickTime(now))
	} else {
		after, changed = before.Gone(strconv.Itoa(int(r.version)), tickTime(now))
	}
	if changed {
		p.known, p.seen, p.seenAt, p.highTerm, p.unanswered = true, r, tickOf(after.Seen), after.HighTerm, false
	}
}

func (p *simMember) holds() bool {
	return p.phase == Acquired || p.phase == Running || p.phase == Draining
}

// right reports whether p's heartbeat gives it rights.
func (p *simMember) right(now int16) bool {
	return !p.lost && tickTime(now).Before(tickTime(p.confirmed).Add(exploreTiming.RenewDeadline))
}

// gone reports whether other members may list p as ended.
func (p *simMember) gone(now int16) bool {
	return !tickTime(now).Before(tickTime(p.stored).Add(exploreTiming.LeaseDuration))
}

// valid reports whether p's claim is valid, as heartbeat.ClaimState.Valid does.
func (p *simMember) valid(now int16) bool {
	return !p.dead && p.holds() && p.right(now) && p.seen.lease != nil
}

// write makes a new revision the head and sends its event to both members.
func (s *sysState) write(lease *coordinationv1.Lease) *revision {
	r := &revision{version: s.head.version + 1, written: s.now}
	if lease != nil {
		lease.ResourceVersion = strconv.Itoa(int(r.version))
		r.lease, r.record = lease, leaserecord.From(lease)
	}
	s.head = r
	for i := range s.members {
		if !s.members[i].dead {
			s.members[i].event = r
		}
	}
	return r
}

// run steps a member's loop until it waits.
func (e *explorer) run(s *sysState, i int) {
	p := &s.members[i]
	for range 20 {
		if p.dead || p.paused {
			return
		}
		in := Input{
			Self: exploreNames[i], Now: tickTime(s.now), Desired: p.desired, Observation: p.observation(), State: p.state(),
			Timing: exploreTiming, Busy: p.busy, Returned: p.returned, Ask: s.asks && p.desired == Held, DrainTimeout: exploreDrain,
			Unanswered: p.unanswered, Confirmed: tickTime(p.confirmed), Right: !p.lost,
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
		case Create, Acquire, Renew, Ask, Unask, Release:
			p.busy = true
			p.request = &sentRequest{
				action: out.Action, fresh: in.State.Phase == Idle && (out.Action == Create || out.Action == Acquire),
				before: p.seen, term: out.Term, start: s.now,
			}
		}
	}
	e.fail(s, exploreNames[i]+" does not come to rest")
}

// serve executes a request and returns it with its answer.
func (e *explorer) serve(s *sysState, i int, r sentRequest) *sentRequest {
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
		r.got = s.write(leaserecord.Stamp{}.Held(nil, leaseName, self, r.term, exploreTiming.LeaseDuration, tickTime(r.start)))
	case Acquire, Renew:
		if !same(r.before) {
			return refuse()
		}
		e.acquired(s, i, r)
		r.got = s.write(leaserecord.Stamp{}.Held(r.before.lease, leaseName, self, r.term, exploreTiming.LeaseDuration, tickTime(r.start)))
	case Ask, Unask:
		if !same(r.before) {
			return refuse()
		}
		r.got = s.write(leaserecord.Asked(r.before.lease, map[Action]string{Ask: self}[r.action]))
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
		if s.members[i].working && !s.members[i].dead {
			e.fail(s, self+" releases while its work runs")
		}
		left := map[string]string{leaserecord.ReleasedAnnotation: strconv.Itoa(int(r.fetched.record.Transitions))}
		r.got = s.write(leaserecord.WithoutHolder(r.fetched.lease, left, now))
	}
	return &r
}

// acquired checks that terms rise, and that nobody takes the Lease from a member that has not
// ended.
func (e *explorer) acquired(s *sysState, i int, r sentRequest) {
	if !r.fresh {
		return
	}
	if from := s.head.record.Holder; from == exploreNames[1-i] && !s.members[1-i].gone(s.now) {
		e.fail(s, exploreNames[i]+" takes from "+from+", which has not ended")
	}
	if r.term <= s.high && !s.removed {
		e.fail(s, fmt.Sprintf("%s acquires term %d after term %d", exploreNames[i], r.term, s.high))
	}
	s.high = max(s.high, r.term)
}

// take models the loop's handling of an answer; a lost one is a failure.
func (s *sysState) take(i int, lost bool) {
	p := &s.members[i]
	r := p.request
	p.request, p.busy = nil, false
	if lost && !r.applied {
		p.stray = r
	}
	if !lost {
		p.learn(r.got, s.now)
	}
	if r.action == Release && !lost {
		p.unanswered = false
	}
	state := p.state()
	now := tickTime(s.now)
	switch {
	case (r.action == Renew || r.action == Create) && !r.fresh && !state.held():
	case lost && r.action == Ask:
	case lost:
		p.unanswered = p.unanswered || r.fresh && p.seen == r.before
		state.NotBefore = now.Add(exploreTiming.RetryPeriod)
	case r.conflict:
		state.NotBefore = now
	case r.action == Release, r.action == Ask, r.action == Unask:
		state.NotBefore = time.Time{}
	case r.fresh:
		state = state.acquired(r.term)
		p.slept = p.paused
	default:
		state.NotBefore = time.Time{}
	}
	p.setState(state)
}

// fail records a failure of the state that the latest move from s.id leads to.
func (e *explorer) fail(s *sysState, why string) {
	if e.broken == nil {
		e.broken, e.why = &move{s.id, e.nth}, why
	}
}

// judge checks the invariants of a state.
func (e *explorer) judge(s *sysState) {
	a, b := &s.members[0], &s.members[1]
	if a.valid(s.now) && b.valid(s.now) && !s.excused {
		e.fail(s, "both hold valid rights")
	}
	// Work of a claim that ended because of tampering may continue behind its closed fence, for a
	// lease duration after the last heartbeat.
	if a.working && b.working && !a.slept && !b.slept && !s.removed && !s.cleared {
		e.fail(s, "both work")
	}
	for i := range s.members {
		p := &s.members[i]
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

// expand adds all states that may follow.
func (e *explorer) expand(s *sysState) {
	e.nth = 0
	for i := range s.members {
		e.expandMember(s, i)
	}
	if s.removals > 0 && s.head.lease != nil {
		e.try(s, description{"somebody deletes the Lease"}, func(n *sysState) {
			n.removals--
			n.removed = true
			// A member that has not seen the Lease exist, or has already sent its own creation, can
			// become a second holder, as the package comment says.
			for i := range n.members {
				n.excused = n.excused || n.members[i].seen.lease == nil || n.members[i].creates()
			}
			n.write(nil)
		})
	}
	if s.clearings > 0 && s.head.lease != nil && s.head.record.Holder != "" {
		e.try(s, description{"somebody clears the holder"}, func(n *sysState) {
			n.clearings--
			n.cleared = true
			lease := n.head.lease.DeepCopy()
			lease.Spec.HolderIdentity = ptr.To("")
			n.write(lease)
		})
	}
	if s.now < e.ticks && s.mayTick() {
		for _, beats := range [4][2]bool{{}, {true, false}, {false, true}, {true, true}} {
			able := [2]bool{s.members[0].beats(s.now + 1), s.members[1].beats(s.now + 1)}
			if beats[0] && !able[0] || beats[1] && !able[1] || s.steady && beats != able {
				continue
			}
			e.try(s, description{"time passes", beating[beats]}, func(n *sysState) {
				n.now++
				for i := range n.members {
					if p := &n.members[i]; beats[i] {
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

// beats reports whether p may send a heartbeat that can still count.
func (p *simMember) beats(now int16) bool { return !p.dead && !p.paused && p.right(now) }

// creates reports whether a request to create the Lease is in flight.
func (p *simMember) creates() bool {
	return slices.ContainsFunc([]*sentRequest{p.request, p.stray}, func(r *sentRequest) bool {
		return r != nil && r.action == Create && !r.applied
	})
}

// mayTick reports whether time may advance: it must not while a request is due to end.
func (s *sysState) mayTick() bool {
	for i := range s.members {
		p := &s.members[i]
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

func (e *explorer) expandMember(s *sysState, i int) {
	p, name := &s.members[i], exploreNames[i]
	if r := p.stray; r != nil {
		e.try(s, description{name, "'s stray ", r.action.String(), " is executed"}, func(n *sysState) {
			e.serve(n, i, *r)
			n.members[i].stray = nil // Of a release that has only read: the client has gone before its update.
		})
		e.try(s, description{name, "'s stray is lost"}, func(n *sysState) { n.members[i].stray = nil })
	}
	if p.dead {
		return
	}
	if r := p.request; r != nil && !r.applied {
		e.try(s, description{name, "'s ", r.action.String(), " is executed"}, func(n *sysState) {
			n.members[i].request = e.serve(n, i, *r)
		})
	}
	if p.paused {
		e.try(s, description{name, " is resumed"}, func(n *sysState) {
			n.members[i].paused = false
			e.run(n, i)
		})
		return
	}
	if s.pauses > 0 {
		e.try(s, description{name, " is suspended"}, func(n *sysState) {
			n.pauses--
			n.members[i].paused, n.members[i].slept = true, true
		})
	}
	if r := p.request; r != nil {
		if r.applied {
			e.try(s, description{name, " is answered"}, func(n *sysState) {
				n.take(i, false)
				e.run(n, i)
			})
		}
		if s.losses > 0 && (r.applied || p.stray == nil) {
			e.try(s, description{name, " is not answered"}, func(n *sysState) {
				n.losses--
				n.take(i, true)
				e.run(n, i)
			})
		}
	}
	if p.pending != nil {
		e.try(s, description{name, "'s heartbeat is confirmed"}, func(n *sysState) {
			q := &n.members[i]
			q.confirmed, q.pending = q.stored, nil
			if q.learn(p.pending, n.now); q.event != nil && q.event.version <= p.pending.version {
				q.event = nil
			}
			e.run(n, i)
		})
	}
	if !p.knows && s.members[1-i].gone(s.now) {
		e.try(s, description{name, " reads that ", exploreNames[1-i], " has ended"}, func(n *sysState) {
			n.members[i].knows = true
			e.run(n, i)
		})
	}
	if s.quits > 0 && !p.lost {
		e.try(s, description{name, "'s membership is lost"}, func(n *sysState) {
			n.quits--
			n.members[i].lost, n.members[i].pending = true, nil
			e.run(n, i)
		})
	}
	if p.event != nil {
		e.try(s, description{name, " sees an event"}, func(n *sysState) {
			n.members[i].learn(p.event, n.now)
			n.members[i].event = nil
			e.run(n, i)
		})
	}
	if p.working && p.phase != Running {
		e.try(s, description{name, "'s work returns"}, func(n *sysState) {
			n.members[i].working, n.members[i].returned = false, true
			e.run(n, i)
		})
	}
	if s.flips > 0 {
		for _, desired := range []Desired{Released, Retained, Held} {
			if desired != p.desired {
				e.try(s, description{name, " wants ", desired.String()}, func(n *sysState) {
					n.flips--
					n.members[i].desired = desired
					e.run(n, i)
				})
			}
		}
	}
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

func (e *explorer) copy(s *sysState) *sysState {
	n := &sysState{}
	if last := len(e.spare) - 1; last >= 0 {
		n, e.spare = e.spare[last], e.spare[:last]
	}
	*n = *s
	return n
}

// key is the same for states that no rule distinguishes, including those in which the members have
// swapped places.
func (e *explorer) key(s *sysState) uint64 {
	k := &e.keyer
	k.sysState, k.ranked, k.versions = s, false, k.versions[:0]
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

// keyer encodes the relevant parts of a state. It first gathers the versions, and then writes their
// ranks instead.
type keyer struct {
	*sysState
	// first is the member that is written first.
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
	// The server refuses a request for an old version, whatever its content.
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
	for n := range k.members {
		k.member(&k.members[(first+n)%len(k.members)])
	}
}

func (k *keyer) member(p *simMember) {
	k.put(int16(p.desired))
	k.flags(p.paused, p.slept, p.dead, p.busy, p.working, p.returned, p.warned, p.known, p.lost, p.knows, p.unanswered, p.pending != nil)
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
		k.revision(p.pending) // A known revision teaches nothing.
	} else {
		k.put(-3)
	}
	// An event that an answer has overtaken teaches nothing.
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

func newExplorer(step func(Input) Output, terms int32, ticks int16, start *sysState) *explorer {
	e := &explorer{step: step, terms: terms, ticks: ticks, seed: maphash.MakeSeed(), known: map[uint64]struct{}{}, moves: []move{{}}, wanted: -1}
	e.run(start, 0)
	e.run(start, 1)
	e.start = *start
	e.next = []*sysState{start}
	return e
}

// explore visits all states within reach of start, until one breaks an invariant.
func explore(step func(Input) Output, terms int32, ticks int16, start *sysState) *explorer {
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

// history describes how the state that breaks an invariant came about.
func (e *explorer) history() string {
	var nths []int32
	for m := *e.broken; m.nth > 0; m = e.moves[m.from] {
		nths = append(nths, m.nth)
	}
	s, text := e.start, fmt.Sprintf("%s\n%s", e.why, e.start.line(description{}))
	for _, nth := range slices.Backward(nths) {
		e.wanted = nth
		e.expand(&s)
		s = *e.made
		text += "\n" + s.line(e.what)
	}
	return text
}

// line returns one line of a history.
func (s *sysState) line(what description) string {
	line := fmt.Sprintf("  %2d  %-42s", s.now, what)
	for i := range s.members {
		p := &s.members[i]
		line += fmt.Sprintf("  %s %s term %d", exploreNames[i], p.phase, p.term)
	}
	return line
}

// startState returns a state in which both members want a Lease that is free, or does not exist.
func startState(exists bool) *sysState {
	s := &sysState{head: &revision{}}
	if exists {
		free := lease("", 0)
		free.ResourceVersion = "0"
		free.Spec.LeaseDurationSeconds = ptr.To[int32](3)
		free.Spec.RenewTime = ptr.To(metav1.NewMicroTime(epoch))
		s.head.lease, s.head.record = free, leaserecord.From(free)
	}
	for i := range s.members {
		p := &s.members[i]
		p.desired, p.known, p.seen = Held, true, s.head
		p.ended, p.notBefore, p.asking, p.lastRenew, p.drained = never, never, never, never, never
	}
	return s
}

// bounds limit an exploration.
type bounds struct {
	terms int32
	ticks int16
	// states is the least number of states to visit: finding no fault in fewer says little.
	states int
	start  func() *sysState
}

var (
	answerLost = bounds{2, 7, 1_000_000, func() *sysState {
		s := startState(true)
		s.losses, s.pauses = 1, 1
		return s
	}}
	desiredChanges = bounds{2, 4, 1_250_000, func() *sysState {
		s := startState(true)
		s.flips, s.asks, s.steady = 2, true, true
		return s
	}}
	leaseDeleted = bounds{2, 7, 1_050_000, func() *sysState {
		s := startState(false)
		s.losses, s.removals = 1, 1
		return s
	}}
	holderCleared = bounds{2, 6, 700_000, func() *sysState {
		s := startState(true)
		s.losses, s.clearings = 1, 1
		return s
	}}
	membershipLost = bounds{2, 6, 385_000, func() *sysState {
		s := startState(true)
		s.quits, s.losses = 1, 1
		return s
	}}
)

// exchanged returns the state with the members swapped.
func (s *sysState) exchanged() *sysState {
	n := *s
	n.members[0], n.members[1] = s.members[1], s.members[0]
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
				if next, asked := c.lease.Annotations[leaserecord.NextHolderAnnotation]; asked {
					c.lease.Annotations[leaserecord.NextHolderAnnotation] = other(next)
				}
				c.record = leaserecord.From(c.lease)
			}
			made[*r] = &c
		}
		*r = made[*r]
	}
	revised(&n.head)
	for i := range n.members {
		p := &n.members[i]
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

// after returns the keys of all states that may follow s.
func (e *explorer) after(s *sysState) map[uint64]struct{} {
	e.known, e.next, e.later, e.moves = map[uint64]struct{}{}, nil, nil, e.moves[:1]
	e.expand(s)
	return e.known
}

// TestExploreIsSymmetric checks that swapping the members of a state swaps them in all states that
// may follow. This lets the explorer treat both as one state.
func TestExploreIsSymmetric(t *testing.T) {
	for name, step := range map[string]func(Input) Output{"the product's": Step, "one that goes by names": byNames} {
		differ, held, n := 0, 0, 0
		start := desiredChanges.start()
		start.losses, start.pauses, start.clearings, start.removals, start.quits = 1, 1, 1, 1, 1
		walk := newExplorer(Step, 2, 3, start)
		try := newExplorer(step, 2, 3, desiredChanges.start())
		try.seed = walk.seed
		for walk.next = []*sysState{start}; len(walk.next) > 0 && n < 20_000; n++ {
			s := walk.next[0]
			walk.next = walk.next[1:]
			x := s.exchanged()
			if walk.key(s) != walk.key(x) {
				t.Fatalf("a state and its exchange have different keys:\n%s\n%s", s.line(description{}), x.line(description{}))
			}
			if !maps.Equal(try.after(s), try.after(x)) {
				differ++
			}
			if s.members[0].holds() != s.members[1].holds() {
				held++
			}
			walk.expand(s)
			walk.next, walk.later = append(walk.next, walk.later...), nil
		}
		if held < n/10 {
			t.Errorf("%s: in %d of %d states one member holds the Lease: the states are too similar", name, held, n)
		}
		if symmetric := name == "the product's"; symmetric != (differ == 0) {
			t.Errorf("%s: after %d of %d states something else may happen to the other member", name, differ, n)
		}
	}
}

// byNames has a planted bug: the first member waits a tick longer than the second.
func byNames(in Input) Output {
	if in.Self == exploreNames[0] && in.State.Phase == Idle && in.Now.Before(in.Observation.Seen.Add(time.Second)) {
		return Output{Action: Wait, State: in.State}
	}
	return Step(in)
}

// TestExplore visits every state of two members and one Lease, within bounds.
func TestExplore(t *testing.T) {
	if underRace {
		t.Skip("left out: it has no second goroutine, and would take minutes")
	}
	for name, b := range map[string]bounds{
		"a lost answer, a suspended member": answerLost,
		"changing desired states":           desiredChanges,
		"a lost membership":                 membershipLost,
		"a Lease that is deleted":           leaseDeleted,
		"a holder that is cleared by hand":  holderCleared,
	} {
		t.Run(name, func(t *testing.T) {
			if testing.Short() && name != "a lost membership" {
				t.Skip("left out: the smallest case is enough in short mode")
			}
			began := time.Now()
			e := explore(Step, b.terms, b.ticks, b.start())
			if e.broken != nil {
				t.Fatal(e.history())
			}
			if len(e.next) > 0 {
				t.Errorf("more than %d states", mostStates)
			}
			if len(e.known) < b.states {
				t.Errorf("only %d states, want at least %d", len(e.known), b.states)
			}
			t.Logf("%d states in %v", len(e.known), time.Since(began).Round(time.Millisecond))
		})
	}
}

// TestExploreConvicts plants bugs in Step, and checks that the explorer finds each.
func TestExploreConvicts(t *testing.T) {
	if underRace {
		t.Skip("left out: it has no second goroutine, and would take minutes")
	}
	for name, tc := range map[string]struct {
		bounds bounds
		step   func(Input) Output
		want   string
	}{
		"renew deadline ignored": {answerLost, func(in Input) Output {
			in.Timing.RenewDeadline = time.Hour
			return Step(in)
		}, "holds on without a right"},
		"right ignored": {membershipLost, func(in Input) Output {
			in.Right = true
			return Step(in)
		}, "holds on without a right"},
		"claim outlives the strike": {answerLost, func(in Input) Output {
			if in.State.held() {
				in.Confirmed = in.Now
			}
			return Step(in)
		}, "holds on without a right"},
		"taken without the strike": {answerLost, func(in Input) Output {
			if in.State.Phase == Idle && in.Observation.Holder != in.Self {
				in.Observation = ended(in.Observation)
			}
			return Step(in)
		}, "which has not ended"},
		"emptied Lease taken at once": {holderCleared, func(in Input) Output {
			if in.State.Phase == Idle && in.Observation.Holder == "" {
				in.Observation.Annotations = map[string]string{leaserecord.ReleasedAnnotation: strconv.Itoa(int(in.Observation.Transitions))}
			}
			return Step(in)
		}, "both hold valid rights"},
		"expiry too early": {holderCleared, func(in Input) Output {
			in.Timing.LeaseDuration = time.Second
			return Step(in)
		}, "both hold valid rights"},
		"release before work returned": {desiredChanges, func(in Input) Output {
			in.Returned = in.Returned || in.State.Phase == Draining
			return Step(in)
		}, "releases while its work runs"},
		"drain without a bound": {desiredChanges, func(in Input) Output {
			in.DrainTimeout = time.Hour
			return Step(in)
		}, "drains without a bound"},
		"other holder ignored": {holderCleared, func(in Input) Output {
			if in.State.held() && in.Observation.Exists {
				in.Observation.Holder, in.Observation.Transitions = in.Self, in.State.Term
			}
			return Step(in)
		}, "knows of another holder and holds on"},
		"term not counted up": {answerLost, func(in Input) Output {
			out := Step(in)
			if out.Action == Acquire {
				out.Term = max(1, in.Observation.Transitions)
			}
			return out
		}, "acquires term"},
	} {
		t.Run(name, func(t *testing.T) {
			e := explore(tc.step, tc.bounds.terms, tc.bounds.ticks, tc.bounds.start())
			if e.broken == nil || !strings.Contains(e.why, tc.want) {
				t.Fatalf("after %d states: %q, want a conviction for %q", len(e.known), e.why, tc.want)
			}
			t.Logf("after %d states: %s", len(e.known), e.history())
		})
	}
}
