package heartbeat

import (
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"
)

// This file models the system in which Step, ClaimStep and JudgeStep are tested: a store of Leases,
// and processes that do what the steps ask for. It uses the product's code for what processes know
// (MemberView.Saw, ShardView.Saw) and for recording answers (the methods of State and ClaimState).
// The explorer, which tries every order, and the simulation, which draws one from a seed, decide
// when events happen.

// rules are the decisions under test: the product's, or with a planted mistake.
type rules struct {
	step  func(Input) Output
	claim func(ClaimInput) ClaimOutput
	judge func(JudgeInput) JudgeOutput
	// seen, if set, changes a claim's input by what the process knows.
	seen func(*process, *system, *ClaimInput)
	// unconditional: the store executes a strike whatever its version is.
	unconditional bool
}

var productRules = rules{step: Step, claim: ClaimStep, judge: JudgeStep}

var (
	epoch       = time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	memberNames = manyNames()
	// memberNumbers are the indices of memberNames.
	memberNumbers = map[string]int{}
)

func manyNames() []string {
	var names []string
	for i := range 100 {
		names = append(names, string(rune('a'+i%26))+strings.Repeat("'", i/26))
		memberNumbers[names[i]] = i
	}
	return names
}

// memberOf returns the number of the incarnation's member; -1 if the system has no such member.
func (sys *system) memberOf(incarnation string) int {
	i, known := memberNumbers[MemberOf(incarnation)]
	if !known || i >= len(sys.leases)-len(sys.high) {
		return -1
	}
	return i
}

// leaseOf identifies the Lease of a member or of a shard, by number.
type leaseOf struct {
	shard bool
	index int
}

// revision is the content of a Lease at one version. Only one of member and shard is set, by the
// kind of Lease.
type revision struct {
	member  MemberRecord
	shard   ShardRecord
	version Version
	exists  bool
}

// request is a process's request to the store. It is immutable: changes are made on a copy.
type request struct {
	action fmt.Stringer
	on     leaseOf
	// claim is the shard whose claim sent it; -1 for the heartbeat, -2 and less for the judge of a
	// member.
	claim  int
	write  revision
	start  time.Time // by the process's clock
	sentAt time.Time
	// applied: the store has executed or refused it, and the following fields are the answer.
	applied  bool
	conflict bool
	got      revision
	all      []revision // the answer to a Read: members, then shards
	through  Version
}

// claimed is a process's claim on one shard.
type claimed struct {
	state   ClaimState
	leave   bool // else the shard is wanted
	working bool
	request *request
}

// judging is a process's state of judging another member.
type judging struct {
	notBefore time.Time
	request   *request
}

// process is one incarnation of a member.
type process struct {
	self   string
	member int
	rate   float64       // of its clock
	frozen time.Duration // how long its clock has stopped in the past
	froze  time.Time     // when its clock stopped; zero while it runs

	dead, suspended, hung bool
	// steady: its heartbeat is not modelled. It always has a right, and to others it has always
	// just renewed.
	steady bool
	// slept: its clock has stopped at some time.
	slept bool

	members []MemberView
	shards  []ShardView
	through Version
	// fresh has for each Lease, members first, the first version that its watch has not delivered;
	// 0 if there is none.
	fresh []Version

	want    bool
	state   State
	right   Right
	turned  time.Time
	wake    time.Time // when it next wakes by itself, by its clock; zero if it does not
	request *request
	claims  []claimed
	judges  []judging // one for each member
	// strays were given up, but are possibly still under way.
	strays []*request
}

// system is a store of Leases and the processes that use it.
type system struct {
	rules     *rules
	timing    Timing
	now       time.Time
	version   Version
	uids      int
	leases    []revision // members first
	processes []*process
	// slow: work that is asked to stop returns when the explorer decides, rather than at once.
	slow bool

	high []int32 // the highest term of each shard
	// struck: the holder of the shard's Lease was listed as ended while the Lease named it.
	struck []bool
	// removed: somebody has deleted the Lease by hand, members first.
	removed []bool
	broken  string

	// onWrite and onSend are called for writes and requests in the simulation; nil in the explorer.
	onWrite func(leaseOf, revision)
	onSend  func(*process, *request)
}

// newSystem returns a system with free shards and no processes.
func newSystem(r *rules, timing Timing, members, shards int) *system {
	sys := &system{rules: r, timing: timing, now: epoch, high: make([]int32, shards), struck: make([]bool, shards), removed: make([]bool, members+shards)}
	sys.leases = make([]revision, members+shards)
	for s := range shards {
		sys.version++
		sys.leases[members+s] = revision{shard: ShardRecord{Version: sys.version, UID: "first", Released: true}, version: sys.version, exists: true}
	}
	return sys
}

func (sys *system) at(l leaseOf) int {
	if l.shard {
		return len(sys.leases) - len(sys.high) + l.index
	}
	return l.index
}

func (sys *system) lease(i int) leaseOf {
	if members := len(sys.leases) - len(sys.high); i >= members {
		return leaseOf{shard: true, index: i - members}
	}
	return leaseOf{index: i}
}

// start adds a process that has already listed all Leases.
func (sys *system) start(member, generation int, rate float64) *process {
	p := &process{
		self: fmt.Sprintf("%s_%d", memberNames[member], generation), member: member, rate: rate, want: true,
		members: make([]MemberView, len(sys.leases)-len(sys.high)), shards: make([]ShardView, len(sys.high)),
		fresh: make([]Version, len(sys.leases)), claims: make([]claimed, len(sys.high)), through: sys.version,
	}
	p.judges = make([]judging, len(p.members))
	sys.processes = append(sys.processes, p)
	for i := range sys.leases {
		p.learn(sys, sys.lease(i), sys.listed(i))
	}
	return p
}

// listed returns a Lease as in a list made now.
func (sys *system) listed(i int) revision {
	r := sys.leases[i]
	if !r.exists {
		r.version = max(r.version, sys.version)
	}
	return r
}

func (sys *system) fail(format string, args ...any) {
	if sys.broken == "" {
		sys.broken = fmt.Sprintf(format, args...)
	}
}

// clock returns the reading of the process's clock.
func (p *process) clock(sys *system) time.Time {
	passed := sys.now.Sub(epoch)
	if !p.froze.IsZero() {
		passed = p.froze.Sub(epoch)
	}
	if p.rate != 1 {
		passed = time.Duration(float64(passed) * p.rate)
	}
	return epoch.Add(passed - p.frozen)
}

// suspend stops the process, and its clock too if clock is set.
func (p *process) suspend(sys *system, clock bool) {
	p.suspended = true
	if clock {
		p.slept, p.froze = true, sys.now
	}
}

// resume lets the process continue.
func (p *process) resume(sys *system) {
	p.suspended = false
	if !p.froze.IsZero() {
		p.frozen += time.Duration(float64(sys.now.Sub(p.froze)) * p.rate)
		p.froze = time.Time{}
	}
	sys.run(p)
}

// kill ends the process. Requests that it has sent may still arrive.
func (p *process) kill() {
	p.dead = true
	var pending []*request
	for slot := range p.slots() {
		pending = append(pending, *p.requestOf(slot))
		*p.requestOf(slot) = nil
	}
	for i := range p.claims {
		p.claims[i].working = false
	}
	for _, r := range pending {
		if r != nil && !r.applied && r.action != Read {
			p.strays = append(p.strays, r)
		}
	}
}

// learn records a revision of a Lease in the process's views.
func (p *process) learn(sys *system, on leaseOf, r revision) {
	now := p.clock(sys)
	switch {
	case on.shard && r.exists:
		p.shards[on.index] = p.shards[on.index].Saw(r.shard, now)
	case on.shard:
		p.shards[on.index] = p.shards[on.index].Gone(r.version, now)
	case r.exists:
		p.members[on.index] = p.members[on.index].Saw(r.member, now)
	default:
		p.members[on.index] = p.members[on.index].Gone(r.version, now)
	}
}

// put stores a new revision of a Lease, or deletes it.
func (sys *system) put(on leaseOf, r revision) revision {
	sys.version++
	i := sys.at(on)
	r.version = sys.version
	if r.exists && !sys.leases[i].exists {
		sys.uids++
		r.member.UID = fmt.Sprint(sys.uids)
		r.shard.UID = r.member.UID
	}
	r.member.Version, r.shard.Version = sys.version, sys.version
	if on.shard && (!r.exists || r.shard.Holder != sys.leases[i].shard.Holder || r.shard.Term != sys.leases[i].shard.Term) {
		sys.struck[on.index] = false
	}
	sys.leases[i] = r
	for _, p := range sys.processes {
		if !p.dead && p.fresh[i] == 0 {
			p.fresh[i] = sys.version
		}
	}
	if !on.shard {
		sys.noteStruck(on.index)
	}
	if sys.onWrite != nil {
		sys.onWrite(on, r)
	}
	return r
}

// noteStruck records which shards the member's Lease has freed.
func (sys *system) noteStruck(member int) {
	for s := range sys.struck {
		holder := sys.leases[sys.at(leaseOf{true, s})].shard.Holder
		if holder != "" && MemberOf(holder) == memberNames[member] && sys.leases[member].member.HasEnded(holder) {
			sys.struck[s] = true
		}
	}
}

// next returns the index of the Lease whose change the process's watch delivers next; -1 if there
// is none.
func (p *process) next() int {
	first := -1
	for i, v := range p.fresh {
		if v != 0 && (first < 0 || v < p.fresh[first]) {
			first = i
		}
	}
	return first
}

// deliver delivers the next change, with the Lease as it is now: versions in between are skipped,
// as by a new list.
func (p *process) deliver(sys *system) {
	i := p.next()
	p.learn(sys, sys.lease(i), sys.leases[i])
	p.fresh[i] = 0
	p.through = sys.version
	if next := p.next(); next >= 0 {
		p.through = p.fresh[next] - 1
	}
}

// run steps the loops of the process until they wait.
func (sys *system) run(p *process) {
	for range 200 {
		if p.dead || p.suspended {
			return
		}
		p.wake = time.Time{}
		again := !p.steady && sys.beat(p)
		if !p.hung {
			p.turned = p.clock(sys)
			for s := range p.claims {
				again = sys.claim(p, s) || again
			}
			for m := range p.judges {
				again = sys.judgeMember(p, m) || again
			}
		}
		if !again {
			return
		}
	}
	sys.fail("%s does not come to rest", p.self)
}

// spreads has Input.Spread by the first letter of a member's name.
var spreads = map[string]float64{"b": 0.9}

// beat makes one step of the heartbeat. It reports whether to step again, as do judgeMember and
// claim.
func (sys *system) beat(p *process) bool {
	in := Input{
		Self: p.self, Now: p.clock(sys), Want: p.want, Member: p.members[p.member], Through: p.through, State: p.state,
		Timing: sys.timing, Busy: p.request != nil, Turned: p.turned, Holding: p.holding(), Spread: spreads[p.self[:1]],
	}
	if in.Member.Ended != nil {
		in.Named = p.named()
	}
	for i, m := range p.members {
		in.Foreign = in.Foreign || i != p.member && m.Foreign(in.Now, sys.timing.LeaseDuration)
	}
	out := sys.rules.step(in)
	p.state, p.right = out.State, out.Right
	p.wakeAt(out.Wake)
	switch out.Action {
	case Wait:
		return false
	case End:
	default:
		p.request = sys.send(p, &request{action: out.Action, on: leaseOf{index: p.member}, claim: -1, write: revision{member: out.Member, exists: true}})
	}
	return true
}

func (p *process) wakeAt(at time.Time) {
	if !at.IsZero() && (p.wake.IsZero() || at.Before(p.wake)) {
		p.wake = at
	}
}

func (p *process) holding() bool {
	return slices.ContainsFunc(p.claims, func(c claimed) bool { return c.working || c.state.Phase == Held })
}

// named returns the incarnations of the process's member that shards' Leases name.
func (p *process) named() []string {
	var named []string
	for _, s := range p.shards {
		if s.Exists && MemberOf(s.Holder) == memberNames[p.member] {
			named = append(named, s.Holder)
		}
	}
	return named
}

// judgeMember makes one step of the judge of a member.
func (sys *system) judgeMember(p *process, m int) bool {
	if m == p.member && !p.members[m].Exists {
		return false
	}
	j := &p.judges[m]
	in := JudgeInput{
		Now: p.clock(sys), Right: p.right, Member: p.members[m], NotBefore: j.notBefore, Timing: sys.timing, Busy: j.request != nil,
	}
	for _, s := range p.shards {
		if s.Exists && s.Holder != p.self && sys.memberOf(s.Holder) == m && s.Seen.After(in.Holders[s.Holder]) {
			if in.Holders == nil {
				in.Holders = map[string]time.Time{}
			}
			in.Holders[s.Holder] = s.Seen
		}
	}
	if slices.ContainsFunc(sys.processes, func(o *process) bool { return o.steady && o.self == in.Member.Holder }) {
		in.Member.Seen = in.Now
	}
	out := sys.rules.judge(in)
	p.wakeAt(out.Wake)
	if out.Action == JudgeWait {
		return false
	}
	j.request = sys.send(p, &request{action: out.Action, on: leaseOf{index: m}, claim: -2 - m, write: revision{member: out.Member, exists: true}})
	return true
}

// slots yields the values of request.claim that the process's requests may have.
func (p *process) slots() iter.Seq[int] {
	return func(yield func(int) bool) {
		for slot := -1 - len(p.judges); slot < len(p.claims); slot++ {
			if !yield(slot) {
				return
			}
		}
	}
}

// claim makes one step of the claim on a shard.
func (sys *system) claim(p *process, s int) bool {
	c := &p.claims[s]
	in := ClaimInput{
		Self: p.self, Now: p.clock(sys), Want: !c.leave, Leave: c.leave, Right: p.right, Shard: p.shards[s], State: c.state,
		Timing: sys.timing, Busy: c.request != nil, Working: c.working,
	}
	if i := sys.memberOf(in.Shard.Holder); i >= 0 {
		in.Ended = p.members[i].HasEnded(in.Shard.Holder)
	}
	if sys.rules.seen != nil {
		sys.rules.seen(p, sys, &in)
	}
	out := sys.rules.claim(in)
	c.state = out.State
	p.wakeAt(out.Wake)
	if c.working && (c.state.Phase == Idle || c.leave) && !sys.slow {
		c.working = false
	}
	switch out.Action {
	case ClaimWait:
		if c.state.Phase == Held && !c.leave && !c.working {
			c.working = true
			return true
		}
		return in.Working != c.working
	case ClaimEnd:
		return true
	}
	c.request = sys.send(p, &request{action: out.Action, on: leaseOf{shard: true, index: s}, claim: s, write: revision{shard: out.Shard, exists: true}})
	return true
}

func (sys *system) send(p *process, r *request) *request {
	r.start, r.sentAt = p.clock(sys), sys.now
	if sys.onSend != nil {
		sys.onSend(p, r)
	}
	return r
}

// serve has the store execute a request, and returns it with its answer.
func (sys *system) serve(p *process, sent request) *request {
	r := sent
	r.applied = true
	if r.action == Read {
		r.through = sys.version
		for i := range sys.leases {
			r.all = append(r.all, sys.listed(i))
		}
		return &r
	}
	i := sys.at(r.on)
	head := sys.leases[i]
	version, uid, headUID := r.write.member.Version, r.write.member.UID, head.member.UID
	if r.on.shard {
		version, uid, headUID = r.write.shard.Version, r.write.shard.UID, head.shard.UID
	}
	matches := head.exists && version == head.version && uid == headUID
	if version == 0 {
		matches = !head.exists
	}
	if sys.rules.unconditional && r.action == JudgeStrike && head.exists {
		matches = true
		r.write.member.Beat = head.member.Beat
	}
	if !matches {
		r.conflict, r.got = true, sys.listed(i)
		return &r
	}
	sys.judgeWrite(p, &r)
	r.got = sys.put(r.on, r.write)
	return &r
}

// judgeWrite checks the invariants of a write that is about to be stored.
func (sys *system) judgeWrite(p *process, r *request) {
	s := r.on.index
	switch {
	case (r.action == ClaimAcquire || r.action == ClaimCreate) && r.write.shard.Term <= sys.high[s]:
		if !sys.removed[sys.at(r.on)] && r.action == ClaimAcquire {
			sys.fail("%s acquires term %d of shard %d after term %d", p.self, r.write.shard.Term, s, sys.high[s])
		}
	case r.action == ClaimRelease && p.claims[s].working && !p.dead:
		sys.fail("%s releases shard %d while its work runs", p.self, s)
	}
	if r.on.shard {
		sys.high[s] = max(sys.high[s], r.write.shard.Term)
	}
}

// answer records the answer to a request, or that it is lost.
func (sys *system) answer(p *process, r *request, lost bool) {
	if !lost {
		p.takeIn(sys, r)
	}
	failed := lost || r.conflict
	if r.claim == -1 {
		p.request = nil
		switch {
		case failed:
			p.state = p.state.Failed(r.start, r.conflict && !lost, sys.timing)
		case r.action == Read || r.action == Release:
			p.state = p.state.Done()
		default:
			p.state = p.state.Beaten(r.start, p.clock(sys), r.got.version)
		}
		return
	}
	if r.claim < 0 {
		j := &p.judges[-2-r.claim]
		*j = judging{}
		if failed && (lost || !r.conflict) {
			j.notBefore = r.start.Add(sys.timing.RetryPeriod)
		}
		return
	}
	c := &p.claims[r.claim]
	c.request = nil
	switch {
	case failed:
		c.state = c.state.Failed(r.start, r.conflict && !lost, sys.timing)
	case r.action == ClaimAcquire || r.action == ClaimCreate:
		c.state = c.state.Taken(r.write.shard.Term)
	default:
		c.state = c.state.Done()
	}
}

func (p *process) takeIn(sys *system, r *request) {
	if r.action != Read {
		p.learn(sys, r.on, r.got)
		return
	}
	for i, known := range r.all {
		p.learn(sys, sys.lease(i), known)
		if p.fresh[i] != 0 && p.fresh[i] <= r.through {
			p.fresh[i] = 0
			if sys.leases[i].version > r.through {
				p.fresh[i] = r.through + 1
			}
		}
	}
	p.through = max(p.through, r.through)
}

// holds reports whether the process may write for the shard, by its own clock.
func (p *process) holds(sys *system, s int) bool {
	return !p.dead && p.claims[s].state.Valid(p.self, p.shards[s], p.right, p.clock(sys))
}

// judge checks the system's invariants.
func (sys *system) judge() {
	for s := range sys.high {
		var holders []string
		for _, p := range sys.processes {
			if p.holds(sys, s) && !(p.slept && sys.leases[p.member].member.HasEnded(p.self)) {
				holders = append(holders, p.self)
			}
		}
		if len(holders) > 1 {
			sys.fail("%s have rights to shard %d", strings.Join(holders, " and "), s)
		}
		sys.judgeEvidence(s)
	}
	for _, p := range sys.processes {
		if m := p.members[p.member]; !p.dead && !p.suspended && p.state.Phase == Live && m.HasEnded(p.self) {
			sys.fail("%s knows that it was struck, and goes on", p.self)
		}
	}
}

// judgeEvidence checks that a freed shard stays free until somebody takes it.
func (sys *system) judgeEvidence(s int) {
	if !sys.struck[s] {
		return
	}
	holder := sys.leases[sys.at(leaseOf{true, s})].shard.Holder
	member := sys.memberOf(holder)
	if !sys.removed[member] && !sys.leases[member].member.HasEnded(holder) {
		sys.fail("shard %d was free of %s, and is not any more", s, holder)
	}
}
