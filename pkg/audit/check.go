package audit

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// DefaultRequestTimeout is the API server's default.
const DefaultRequestTimeout = time.Minute

// Options say what to judge, and by what.
type Options struct {
	// Fleet is the fleet's name. Required.
	Fleet string
	// Namespace is the namespace of the fleet's Leases. Default: kube-system.
	Namespace string
	// Plan is the plan that the fleet followed at the beginning of the log; later plans are in the
	// log. Default: the first plan in the log, or what the Leases of its shards say: see ReadPlan.
	Plan *shard.Plan
	// RequestTimeout is the API server's --request-timeout: no request is in flight for longer.
	// Default: DefaultRequestTimeout.
	RequestTimeout time.Duration
	// Controllers names the controllers that use each identity. Default: none are known, and the
	// rule on controllers judges nothing.
	Controllers map[string][]string
}

// Judge judges a fleet by audit logs. These are parts of one log, in any order, such as the files
// of a log that was rotated. The error is about the options and about reading the logs; violations
// are in the report. It depends only on its arguments.
func Judge(opts Options, logs ...Log) (Report, error) {
	if opts.Plan != nil {
		if err := opts.Plan.Validate(); err != nil {
			return Report{}, fmt.Errorf("plan: %w", err)
		}
	}
	c := newChecker(opts)
	x, err := readLogs(logs, c.read)
	if err != nil {
		return Report{}, err
	}
	c.report.Lines, c.report.Torn, c.report.Cut = x.lines, x.torn, x.cut
	if opts.Plan == nil {
		plan, err := c.firstPlan()
		if err != nil {
			return Report{}, err
		}
		c.begin(plan)
	}
	c.forgetOthers()
	c.readPlans()
	if err := c.findShards(); err != nil {
		return Report{}, err
	}
	c.judgeMembers()
	c.judgeLeases()
	c.judgeLeaderLockLeases()
	c.judgeStrangers()
	c.judgeWrites()
	c.judgeOverlaps()
	c.world.finish()
	b := bench{world: c.world, judged: Judged{Skipped: map[string]int{}}, convict: c.convict}
	b.sit()
	c.report.Objects, c.report.Plans, c.report.tale = b.judged, len(c.plans), c.tell()
	c.report.sort()
	return c.report, nil
}

func newChecker(opts Options) *checker {
	c := &checker{
		fleet:          opts.Fleet,
		namespace:      cmp.Or(opts.Namespace, metav1.NamespaceSystem),
		requestTimeout: cmp.Or(opts.RequestTimeout, DefaultRequestTimeout),
		controllers:    opts.Controllers,
		identified:     sets.New(slices.Concat(slices.Collect(maps.Values(opts.Controllers))...)...),
		histories:      map[shard.ID]*history{},
		leases:         map[shard.ID]*leaseLog{},
		facts:          map[shard.ID]fact{},
		works:          map[Identity]*work{},
		unwritten:      sets.New[Identity](),
		leaderLocks:    map[string]*lockLog{},
		awaited:        map[string][]string{},
		members:        members{},
		agents:         map[string]agentPart{},
		strangers:      newStrangers(),
		world:          newWorld(),
		report: Report{
			DeniedLate: map[int32]int{},
			times:      map[string][]time.Time{},
			Writes:     map[shard.ID]map[string]int{},
			Namespaces: map[string][]TermWrites{},
			Terms:      map[shard.ID][]Term{},
		},
	}
	if opts.Plan != nil {
		c.begin(*opts.Plan)
		for _, s := range opts.Plan.Shards() {
			c.histories[s.ID] = &history{}
		}
	}
	return c
}

// begin takes a plan as the first.
func (c *checker) begin(plan shard.Plan) {
	c.plan, c.plans = plan, []planned{{plan: plan, digest: plan.Digest()}}
}

// judgeLeases compares the writes of each shard's Lease with each other.
func (c *checker) judgeLeases() {
	for id, h := range c.histories {
		h.sort()
		c.judgeDeletions(id, h)
		terms := h.terms()
		c.members.settle(terms)
		c.report.Terms[id] = terms
		c.report.Violations = append(c.report.Violations, h.faults(c.beating)...)
		early := c.judgeTakings(id, h)
		c.judgeHoles(id, h)
		overlaps, resumed := h.overlaps(id, terms, early)
		c.report.Overlaps = append(c.report.Overlaps, overlaps...)
		c.report.Violations = append(c.report.Violations, resumed...)
		c.checkLayout(id, h)
	}
}

// judgeDeletions convicts those who deleted the Lease, unless it was retired.
func (c *checker) judgeDeletions(id shard.ID, h *history) {
	for _, e := range h.deleted {
		if h.retiredAt(e) {
			h.collected = append(h.collected, e.Answered.Time)
		} else {
			c.convict(e, LeaseDeleted, "terms of %s may restart", id)
		}
	}
}

// judgeHoles reports where the log lacks writes of a Lease, and what they could have been.
func (c *checker) judgeHoles(id shard.ID, h *history) {
	for i, g := range h.holes {
		if i == 0 && h.partial {
			c.report.Partial++
			continue
		}
		c.doubt(g.after.event, LeaseHole, "Lease of %s: this was made on version %d, which no write in the log has made; the one before is version %d",
			id, g.after.based, g.before.version)
	}
	for _, e := range h.unasked {
		c.doubt(e, LeaseUnanswered, "Lease of %s: the log does not have what it asked for", id)
	}
}

// sort puts everything in the logs' order, or in order of time.
func (r *Report) sort() {
	for _, times := range r.times {
		slices.SortFunc(times, time.Time.Compare)
	}
	slices.SortStableFunc(r.Overlaps, func(a, b Overlap) int {
		return cmp.Or(a.Shard.Compare(b.Shard), a.Other.Compare(b.Other), a.Second.Began.Compare(b.Second.Began))
	})
	slices.SortStableFunc(r.InFlight, func(a, b Flight) int { return cmp.Or(cmp.Compare(a.Log, b.Log), cmp.Compare(a.Line, b.Line)) })
	for _, terms := range r.Namespaces {
		slices.SortStableFunc(terms, func(a, b TermWrites) int { return a.First.Compare(b.First) })
	}
	for _, list := range [][]Violation{r.Violations, r.Undecided} {
		slices.SortStableFunc(list, func(a, b Violation) int { return cmp.Or(cmp.Compare(a.Log, b.Log), cmp.Compare(a.Line, b.Line)) })
	}
}

// checker reads the whole log before it judges by the Leases: the write that began a term may be
// logged after writes of that term.
type checker struct {
	fleet string
	// requestTimeout is the API server's.
	requestTimeout time.Duration
	// namespace is the namespace of the fleet's Leases.
	namespace   string
	controllers map[string][]string // by identity
	identified  sets.Set[string]    // all of these controllers
	plan        shard.Plan          // given up front, or the first of the log
	// late is set if the log may begin under an earlier plan, which it does not have.
	late      bool
	plans     []planned // the given one, and those of the log, in order
	histories map[shard.ID]*history
	// leases are Leases that are named like those of shards but are not in the plan given up front:
	// only the whole log shows whether they are shards'.
	leases     map[shard.ID]*leaseLog
	planWrites []planWrite
	facts      map[shard.ID]fact
	works      map[Identity]*work
	// unwritten are claims on shards without a write of their Lease.
	unwritten sets.Set[Identity]
	// leaderLocks are the foreign Leases of the log by name. awaited are the names of those that an
	// incarnation said it waits for.
	leaderLocks map[string]*lockLog
	awaited     map[string][]string
	// members are the Leases of the fleet's members.
	members members
	strangers
	writes []write
	last   time.Time            // when the last request was answered
	agents map[string]agentPart // by User-Agent, of which there are few
	world  *world
	report Report
}

// agentPart is ParseAgent's result for a User-Agent.
type agentPart struct {
	by     Identity
	marked bool
	err    error
	binary string
}

func (c *checker) parse(agent string) agentPart {
	part, known := c.agents[agent]
	if !known {
		part.by, part.marked, part.err = ParseAgent(agent)
		part.binary = builtAgent.FindString(agent)
		c.agents[agent] = part
	}
	return part
}

// write is a request under a claim.
type write struct {
	event    event // without the object
	by       Identity
	identity string // the controller that sent it
	version  uint64 // 0 if the answer has none
}

func (c *checker) read(e event) error {
	if e.arrival {
		c.readLost(e)
		return nil
	}
	if e.Answered.After(c.last) {
		c.last = e.Answered.Time
	}
	if !e.mutating() {
		return nil
	}
	part := c.parse(e.UserAgent)
	if e.binary = part.binary; strings.HasSuffix(e.binary, unstamped) {
		e.binary += asAccount + e.User.Username
	}
	c.noteBuild(e, part)
	switch {
	case e.ObjectRef.Resource != "leases":
	case e.Verb == "deletecollection":
		if err := c.readLeaseCollection(e); err != nil {
			return err
		}
	default:
		if shards, err := c.readLease(e); shards || err != nil {
			return err
		}
	}
	return c.readOther(e)
}

// readLease reads a write of any Lease, and reports whether it is, or may be, one of a shard's.
func (c *checker) readLease(e event) (shards bool, err error) {
	c.readLeaderLock(e)
	c.readMember(e)
	if e.ObjectRef.Namespace != c.namespace {
		return false, nil // Leases of the same names in other namespaces do not belong to the fleet.
	}
	if e.ObjectRef.Name == leaseapi.PlanLease(c.fleet) {
		return false, c.readPlanLease(e)
	}
	id, ok := c.shardOfLease(e.ObjectRef.Name)
	if !ok {
		return false, nil
	}
	if h, planned := c.histories[id]; planned {
		if c.countLease(id, e) {
			err = h.add(e)
		}
		return true, err
	}
	c.readOtherMember(e)
	c.keepLease(id, e)
	return true, nil
}

// readLeaseCollection reads a deletion of many Leases as one of each in the answer.
func (c *checker) readLeaseCollection(e event) error {
	if e.ObjectRef.Namespace != c.namespace || e.refused() || e.dryRun() {
		return nil
	}
	deleted, err := e.deleted()
	if err != nil {
		c.doubt(e, LeaseUnanswered, "the log does not tell which Leases it has deleted: %v", err)
		return nil
	}
	for _, name := range deleted {
		d, ref := e, *e.ObjectRef
		ref.Name = name
		d.Verb, d.ObjectRef, d.RequestObject, d.ResponseObject = "delete", &ref, nil, nil
		if _, err := c.readLease(d); err != nil {
			return err
		}
	}
	return nil
}

// readLost reads a request that arrived and never ended. It may have taken effect at any time until
// its server's timeout. The sender is not convicted. A lost write of a Lease needs no rule: the
// next write names the version that it was made on.
func (c *checker) readLost(e event) {
	c.report.Lost++
	e.Answered = metav1.NewMicroTime(e.Received.Add(c.requestTimeout))
	c.world.read(e, nil)
}

// readOther reads requests other than writes of a shard's Lease.
func (c *checker) readOther(e event) error {
	part := c.parse(e.UserAgent)
	if part.marked && part.err == nil {
		c.world.read(e, &part.by)
	} else {
		c.world.read(e, nil)
	}
	switch {
	case part.err != nil:
		c.convict(e, BadAgent, "%v", part.err)
	case part.marked:
		w := write{event: e.lean(), by: part.by, identity: c.world.intern(e.controller())}
		w.version, _ = e.version()
		c.writes = append(c.writes, w)
	default:
		c.readUnmarked(e)
	}
	return nil
}

// countLease reports whether a write of a shard's Lease took effect, and left a Lease.
func (c *checker) countLease(id shard.ID, e event) bool {
	c.own[e.binary]++
	switch {
	case e.refused():
		return false
	case e.failed():
		c.report.LeaseUnknown++
		if h := c.histories[id]; h != nil {
			h.addUnknown(e)
		}
		return false
	case e.Verb == "delete":
		if h := c.histories[id]; h != nil {
			// Judged once the whole log is read: an answer that retired it may come later.
			h.deletions, h.deleted = append(h.deletions, e.moment(0)), append(h.deleted, e)
			return false
		}
		c.convict(e, LeaseDeleted, "terms of %s may restart", id)
		return false
	default:
		return true
	}
}
