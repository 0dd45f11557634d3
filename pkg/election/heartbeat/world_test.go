package heartbeat

import (
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"
)

// This file has the model in which Step and ClaimStep are tried: a store of Leases, and processes
// that do what the two ask for. What the processes know is gained by MemberView.Saw and
// ShardView.Saw, answers are recorded by the methods of State and ClaimState: all of them the
// product's. When anything happens is decided elsewhere: by the explorer, which tries every order,
// and by the simulation, which draws it from a seed.

// rules are the decisions that are tried. They are the product's, or have a mistake planted.
type rules struct {
	step  func(Input) Output
	claim func(ClaimInput) ClaimOutput
	judge func(JudgeInput) JudgeOutput
	// seen has a claim decide by something else than what is so, which it finds in what the process
	// knows.
	seen func(*process, *world, *ClaimInput)
	// careless: the store carries a strike out whatever the version is.
	careless bool
}

var productRules = rules{step: Step, claim: ClaimStep, judge: JudgeStep}

var (
	epoch       = time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	memberNames = manyNames()
	// memberNumbers are their places.
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

// memberOf is the number of the member to which an incarnation belongs; -1 if there is none in the
// world.
func (w *world) memberOf(incarnation string) int {
	i, known := memberNumbers[MemberOf(incarnation)]
	if !known || i >= len(w.leases)-len(w.high) {
		return -1
	}
	return i
}

// leaseOf is the Lease of a member, by its number, or that of a shard.
type leaseOf struct {
	shard bool
	index int
}

// revision is what a Lease said from one version on. Of member and shard only the one is set that
// it is for.
type revision struct {
	member  MemberRecord
	shard   ShardRecord
	version Version
	exists  bool
}

// request is what a process has asked the store for. It is not changed, but copied.
type request struct {
	action fmt.Stringer
	on     leaseOf
	// claim is the shard for whose claim it is; -1 for the heartbeat, -2 and less for the judge of
	// a member.
	claim  int
	write  revision
	start  time.Time // by the process's clock
	sentAt time.Time
	// applied: the store has carried it out, or refused it, and what follows is the answer.
	applied  bool
	conflict bool
	got      revision
	all      []revision // to a Read: members, then shards
	through  Version
}

// claimed is the claim of a process on one shard.
type claimed struct {
	state   ClaimState
	leave   bool // else it is wanted
	working bool
	request *request
}

// judging is what a process remembers of judging another member.
type judging struct {
	notBefore time.Time
	request   *request
}

// process is one incarnation of a member.
type process struct {
	self   string
	member int
	rate   float64       // of its clock
	frozen time.Duration // for which its clock has stood still before
	froze  time.Time     // since when its clock stands still; zero if it goes

	dead, suspended, hung bool
	// steady: its heartbeat is not modelled. It always has a right, and others always have just
	// seen it renew.
	steady bool
	// slept: its clock has stood still since its claims began.
	slept bool

	members []MemberView
	shards  []ShardView
	through Version
	// fresh is for each Lease, members first, the first version that its watch has not brought; 0
	// if there is none.
	fresh []Version

	want    bool
	state   State
	right   Right
	turned  time.Time
	wake    time.Time // when it looks again by itself, by its clock; zero if it does not
	request *request
	claims  []claimed
	judges  []judging // one for each member
	// strays were given up, and are perhaps still under way.
	strays []*request
}

// world is a store and the processes that use it.
type world struct {
	rules   *rules
	timing  Timing
	now     time.Time
	version Version
	uids    int
	leases  []revision // members first
	hosts   []*process
	// slow: work that is asked to stop returns when somebody decides so, and not at once.
	slow bool

	high []int32 // the highest term of each shard
	// struck: the holder of the shard's Lease was listed as ended while that named it.
	struck []bool
	// removed: somebody has deleted the Lease, members first.
	removed []bool
	broken  string

	// onWrite and onSend are told of writes and requests in the simulation; nil in the explorer.
	onWrite func(leaseOf, revision)
	onSend  func(*process, *request)
}

// newWorld has free shards and no members.
func newWorld(r *rules, timing Timing, members, shards int) *world {
	w := &world{rules: r, timing: timing, now: epoch, high: make([]int32, shards), struck: make([]bool, shards), removed: make([]bool, members+shards)}
	w.leases = make([]revision, members+shards)
	for s := range shards {
		w.version++
		w.leases[members+s] = revision{shard: ShardRecord{Version: w.version, UID: "first", Released: true}, version: w.version, exists: true}
	}
	return w
}

func (w *world) at(l leaseOf) int {
	if l.shard {
		return len(w.leases) - len(w.high) + l.index
	}
	return l.index
}

func (w *world) lease(i int) leaseOf {
	if members := len(w.leases) - len(w.high); i >= members {
		return leaseOf{shard: true, index: i - members}
	}
	return leaseOf{index: i}
}

// start adds a process that has listed all Leases.
func (w *world) start(member, generation int, rate float64) *process {
	p := &process{
		self: fmt.Sprintf("%s_%d", memberNames[member], generation), member: member, rate: rate, want: true,
		members: make([]MemberView, len(w.leases)-len(w.high)), shards: make([]ShardView, len(w.high)),
		fresh: make([]Version, len(w.leases)), claims: make([]claimed, len(w.high)), through: w.version,
	}
	p.judges = make([]judging, len(p.members))
	w.hosts = append(w.hosts, p)
	for i := range w.leases {
		p.learn(w, w.lease(i), w.listed(i))
	}
	return p
}

// listed is what a list that is made now says of a Lease.
func (w *world) listed(i int) revision {
	r := w.leases[i]
	if !r.exists {
		r.version = max(r.version, w.version)
	}
	return r
}

func (w *world) fail(format string, args ...any) {
	if w.broken == "" {
		w.broken = fmt.Sprintf(format, args...)
	}
}

// clock is what the process's own clock says.
func (p *process) clock(w *world) time.Time {
	passed := w.now.Sub(epoch)
	if !p.froze.IsZero() {
		passed = p.froze.Sub(epoch)
	}
	if p.rate != 1 {
		passed = time.Duration(float64(passed) * p.rate)
	}
	return epoch.Add(passed - p.frozen)
}

// suspend stops the process, and perhaps its clock with it.
func (p *process) suspend(w *world, clock bool) {
	p.suspended = true
	if clock {
		p.slept, p.froze = true, w.now
	}
}

// resume has the process go on.
func (p *process) resume(w *world) {
	p.suspended = false
	if !p.froze.IsZero() {
		p.frozen += time.Duration(float64(w.now.Sub(p.froze)) * p.rate)
		p.froze = time.Time{}
	}
	w.run(p)
}

// kill ends the process. What it has sent may still arrive.
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

// learn takes in what a Lease says.
func (p *process) learn(w *world, on leaseOf, r revision) {
	now := p.clock(w)
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
func (w *world) put(on leaseOf, r revision) revision {
	w.version++
	i := w.at(on)
	r.version = w.version
	if r.exists && !w.leases[i].exists {
		w.uids++
		r.member.UID = fmt.Sprint(w.uids)
		r.shard.UID = r.member.UID
	}
	r.member.Version, r.shard.Version = w.version, w.version
	if on.shard && (!r.exists || r.shard.Holder != w.leases[i].shard.Holder || r.shard.Term != w.leases[i].shard.Term) {
		w.struck[on.index] = false
	}
	w.leases[i] = r
	for _, p := range w.hosts {
		if !p.dead && p.fresh[i] == 0 {
			p.fresh[i] = w.version
		}
	}
	if !on.shard {
		w.noteStruck(on.index)
	}
	if w.onWrite != nil {
		w.onWrite(on, r)
	}
	return r
}

// noteStruck remembers which shards have come free by what the member's Lease says.
func (w *world) noteStruck(member int) {
	for s := range w.struck {
		holder := w.leases[w.at(leaseOf{true, s})].shard.Holder
		if holder != "" && MemberOf(holder) == memberNames[member] && w.leases[member].member.HasEnded(holder) {
			w.struck[s] = true
		}
	}
}

// next is the first Lease of which the process's watch has something to bring, and what; -1 if
// there is none.
func (p *process) next() int {
	first := -1
	for i, v := range p.fresh {
		if v != 0 && (first < 0 || v < p.fresh[first]) {
			first = i
		}
	}
	return first
}

// deliver has the watch bring the next change, as the Lease is now: what lies between is skipped,
// as by a new list.
func (p *process) deliver(w *world) {
	i := p.next()
	p.learn(w, w.lease(i), w.leases[i])
	p.fresh[i] = 0
	p.through = w.version
	if next := p.next(); next >= 0 {
		p.through = p.fresh[next] - 1
	}
}

// run has the loops of the process go round until they wait.
func (w *world) run(p *process) {
	for range 200 {
		if p.dead || p.suspended {
			return
		}
		p.wake = time.Time{}
		again := !p.steady && w.beat(p)
		if !p.hung {
			p.turned = p.clock(w)
			for s := range p.claims {
				again = w.claim(p, s) || again
			}
			for m := range p.judges {
				again = w.judgeMember(p, m) || again
			}
		}
		if !again {
			return
		}
	}
	w.fail("%s does not come to rest", p.self)
}

// spreads has members read all Leases early or late, by the first letters of their names.
var spreads = map[string]float64{"b": 0.9}

// beat makes one step of the heartbeat.
func (w *world) beat(p *process) bool {
	in := Input{
		Self: p.self, Now: p.clock(w), Want: p.want, Member: p.members[p.member], Through: p.through, State: p.state,
		Timing: w.timing, Busy: p.request != nil, Turned: p.turned, Holding: p.holding(), Spread: spreads[p.self[:1]],
	}
	if in.Member.Ended != nil {
		in.Named = p.named()
	}
	for i, m := range p.members {
		in.Foreign = in.Foreign || i != p.member && m.Foreign(in.Now, w.timing.LeaseDuration)
	}
	out := w.rules.step(in)
	p.state, p.right = out.State, out.Right
	p.wakeAt(out.Wake)
	switch out.Action {
	case Wait:
		return false
	case End:
	default:
		p.request = w.send(p, &request{action: out.Action, on: leaseOf{index: p.member}, claim: -1, write: revision{member: out.Member, exists: true}})
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

// named are the incarnations of the process's member that shards' Leases name.
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
func (w *world) judgeMember(p *process, m int) bool {
	if m == p.member {
		return false
	}
	j := &p.judges[m]
	in := JudgeInput{
		Now: p.clock(w), Right: p.right, Member: p.members[m], NotBefore: j.notBefore, Timing: w.timing, Busy: j.request != nil,
	}
	for _, s := range p.shards {
		if s.Exists && w.memberOf(s.Holder) == m && s.Seen.After(in.Holders[s.Holder]) {
			if in.Holders == nil {
				in.Holders = map[string]time.Time{}
			}
			in.Holders[s.Holder] = s.Seen
		}
	}
	if slices.ContainsFunc(w.hosts, func(o *process) bool { return o.steady && o.self == in.Member.Holder }) {
		in.Member.Seen = in.Now
	}
	out := w.rules.judge(in)
	p.wakeAt(out.Wake)
	if out.Action == JudgeWait {
		return false
	}
	j.request = w.send(p, &request{action: out.Action, on: leaseOf{index: m}, claim: -2 - m, write: revision{member: out.Member, exists: true}})
	return true
}

// slots are the numbers of the requests that a process may have under way, as request.claim has
// them.
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
func (w *world) claim(p *process, s int) bool {
	c := &p.claims[s]
	in := ClaimInput{
		Self: p.self, Now: p.clock(w), Want: !c.leave, Leave: c.leave, Right: p.right, Shard: p.shards[s], State: c.state,
		Timing: w.timing, Busy: c.request != nil, Working: c.working,
	}
	if i := w.memberOf(in.Shard.Holder); i >= 0 {
		in.Ended = p.members[i].HasEnded(in.Shard.Holder)
	}
	if w.rules.seen != nil {
		w.rules.seen(p, w, &in)
	}
	out := w.rules.claim(in)
	c.state = out.State
	p.wakeAt(out.Wake)
	if c.working && (c.state.Phase == Idle || c.leave) && !w.slow {
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
	c.request = w.send(p, &request{action: out.Action, on: leaseOf{shard: true, index: s}, claim: s, write: revision{shard: out.Shard, exists: true}})
	return true
}

func (w *world) send(p *process, r *request) *request {
	r.start, r.sentAt = p.clock(w), w.now
	if w.onSend != nil {
		w.onSend(p, r)
	}
	return r
}

// serve has the store carry a request out, and returns it with its answer.
func (w *world) serve(p *process, sent request) *request {
	r := sent
	r.applied = true
	if r.action == Read {
		r.through = w.version
		for i := range w.leases {
			r.all = append(r.all, w.listed(i))
		}
		return &r
	}
	i := w.at(r.on)
	head := w.leases[i]
	version, uid, headUID := r.write.member.Version, r.write.member.UID, head.member.UID
	if r.on.shard {
		version, uid, headUID = r.write.shard.Version, r.write.shard.UID, head.shard.UID
	}
	matches := head.exists && version == head.version && uid == headUID
	if version == 0 {
		matches = !head.exists
	}
	if w.rules.careless && r.action == JudgeStrike && head.exists {
		matches = true
		r.write.member.Beat = head.member.Beat
	}
	if !matches {
		r.conflict, r.got = true, w.listed(i)
		return &r
	}
	w.judgeWrite(p, &r)
	r.got = w.put(r.on, r.write)
	return &r
}

// judgeWrite holds a write that is about to be stored against what is promised of it.
func (w *world) judgeWrite(p *process, r *request) {
	s := r.on.index
	switch {
	case (r.action == ClaimAcquire || r.action == ClaimCreate) && r.write.shard.Term <= w.high[s]:
		if !w.removed[w.at(r.on)] && r.action == ClaimAcquire {
			w.fail("%s acquires term %d of shard %d after term %d", p.self, r.write.shard.Term, s, w.high[s])
		}
	case r.action == ClaimRelease && p.claims[s].working && !p.dead:
		w.fail("%s releases shard %d while its work runs", p.self, s)
	}
	if r.on.shard {
		w.high[s] = max(w.high[s], r.write.shard.Term)
	}
}

// answer takes in the answer to a request, or that there is none.
func (w *world) answer(p *process, r *request, lost bool) {
	if !lost {
		p.takeIn(w, r)
	}
	failed := lost || r.conflict
	if r.claim == -1 {
		p.request = nil
		switch {
		case failed:
			p.state = p.state.Failed(r.start, r.conflict && !lost, w.timing)
		case r.action == Read || r.action == Release:
			p.state = p.state.Done()
		default:
			p.state = p.state.Beaten(r.start, p.clock(w), r.got.version)
		}
		return
	}
	if r.claim < 0 {
		j := &p.judges[-2-r.claim]
		*j = judging{}
		if failed && (lost || !r.conflict) {
			j.notBefore = r.start.Add(w.timing.RetryPeriod)
		}
		return
	}
	c := &p.claims[r.claim]
	c.request = nil
	switch {
	case failed:
		c.state = c.state.Failed(r.start, r.conflict && !lost, w.timing)
	case r.action == ClaimAcquire || r.action == ClaimCreate:
		c.state = c.state.Taken(r.write.shard.Term)
	default:
		c.state = c.state.Done()
	}
}

func (p *process) takeIn(w *world, r *request) {
	if r.action != Read {
		p.learn(w, r.on, r.got)
		return
	}
	for i, known := range r.all {
		p.learn(w, w.lease(i), known)
		if p.fresh[i] != 0 && p.fresh[i] <= r.through {
			p.fresh[i] = 0
			if w.leases[i].version > r.through {
				p.fresh[i] = r.through + 1
			}
		}
	}
	p.through = max(p.through, r.through)
}

// holds reports whether the process may write for the shard now, by its own clock.
func (p *process) holds(w *world, s int) bool {
	return !p.dead && p.claims[s].state.Valid(p.self, p.shards[s], p.right, p.clock(w))
}

// judge holds the world against the invariants.
func (w *world) judge() {
	for s := range w.high {
		var holders []string
		for _, p := range w.hosts {
			if p.holds(w, s) && !(p.slept && w.leases[p.member].member.HasEnded(p.self)) {
				holders = append(holders, p.self)
			}
		}
		if len(holders) > 1 {
			w.fail("%s have rights to shard %d", strings.Join(holders, " and "), s)
		}
		w.judgeEvidence(s)
	}
	for _, p := range w.hosts {
		if m := p.members[p.member]; !p.dead && !p.suspended && p.state.Phase == Live && m.HasEnded(p.self) {
			w.fail("%s knows that it was struck, and goes on", p.self)
		}
	}
}

// judgeEvidence holds that what has come free stays free until it is taken.
func (w *world) judgeEvidence(s int) {
	if !w.struck[s] {
		return
	}
	holder := w.leases[w.at(leaseOf{true, s})].shard.Holder
	member := w.memberOf(holder)
	if !w.removed[member] && !w.leases[member].member.HasEnded(holder) {
		w.fail("shard %d was free of %s, and is not any more", s, holder)
	}
}
