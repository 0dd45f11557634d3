package audit

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/flotilla-kube/flotilla/pkg/fleet"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// binary begins the User-Agent of all that the flotilla binary sends.
const binary = "flotilla/"

// Check judges logs by the plan that the fleet of this name followed all the time. Several logs are parts of one, such as
// the files of a log that was rotated. The error is about reading the logs; what they prove is in the report. It depends
// on nothing but its arguments.
func Check(fleetName string, plan shard.Plan, logs ...io.Reader) (Report, error) {
	if err := plan.Validate(); err != nil {
		return Report{}, fmt.Errorf("plan: %w", err)
	}
	c := checker{
		plan:      plan,
		leases:    map[string]shard.ID{},
		histories: map[shard.ID]*history{},
		agents:    map[string]agentPart{},
		world:     newWorld(),
		report: Report{
			DeniedLate: map[int32]int{},
			times:      map[string][]time.Time{},
			Writes:     map[shard.ID]map[string]int{},
			Namespaces: map[string][]Tenure{},
			Terms:      map[shard.ID][]Term{},
		},
	}
	for _, s := range plan.Shards() {
		c.leases[fleet.ShardLease(fleetName, s.ID)] = s.ID
		c.histories[s.ID] = &history{}
	}
	var err error
	if c.report.Lines, c.report.Cut, err = readLogs(logs, c.read); err != nil {
		return Report{}, err
	}
	for id, h := range c.histories {
		h.sort()
		c.report.Terms[id] = h.terms()
		c.report.Violations = append(c.report.Violations, h.faults()...)
		overlaps, resumed := h.overlaps(id)
		c.report.Overlaps = append(c.report.Overlaps, overlaps...)
		c.report.Violations = append(c.report.Violations, resumed...)
	}
	for _, w := range c.writes {
		c.judge(w)
	}
	for _, r := range c.refusals {
		c.judgeRefusal(r)
	}
	c.world.finish()
	b := bench{world: c.world, judged: Judged{Skipped: map[string]int{}}, convict: c.convict}
	b.sit()
	c.report.Objects = b.judged
	c.report.sort()
	return c.report, nil
}

// sort puts everything in the logs' order, or in that of time.
func (r *Report) sort() {
	for _, times := range r.times {
		slices.SortFunc(times, time.Time.Compare)
	}
	slices.SortStableFunc(r.Overlaps, func(a, b Overlap) int {
		return cmp.Or(a.Shard.Compare(b.Shard), a.Second.Began.Compare(b.Second.Began))
	})
	slices.SortStableFunc(r.InFlight, func(a, b Flight) int { return cmp.Or(cmp.Compare(a.Log, b.Log), cmp.Compare(a.Line, b.Line)) })
	for _, tenures := range r.Namespaces {
		slices.SortStableFunc(tenures, func(a, b Tenure) int { return a.First.Compare(b.First) })
	}
	slices.SortStableFunc(r.Violations, func(a, b Violation) int {
		return cmp.Or(cmp.Compare(a.Log, b.Log), cmp.Compare(a.Line, b.Line))
	})
}

// checker reads the whole log before it judges by the Leases: the write that began a term may be logged after writes of
// that term.
type checker struct {
	plan      shard.Plan
	leases    map[string]shard.ID // by the Lease's name
	histories map[shard.ID]*history
	writes    []write
	refusals  []refusal
	agents    map[string]agentPart // by User-Agent, of which there are few
	world     *world
	report    Report
}

// agentPart is what ParseAgent says of a User-Agent.
type agentPart struct {
	by     Identity
	marked bool
	err    error
}

func (c *checker) parse(agent string) agentPart {
	part, known := c.agents[agent]
	if !known {
		part.by, part.marked, part.err = ParseAgent(agent)
		c.agents[agent] = part
	}
	return part
}

// write is a write whose Lease is to be looked up.
type write struct {
	event   event // without the object
	by      Identity
	version uint64 // 0 if the answer has none
}

func (c *checker) read(e event) error {
	if !e.mutating() {
		return nil
	}
	if id, ok := c.leases[e.ObjectRef.Name]; ok && e.ObjectRef.Resource == "leases" {
		return c.readLease(id, e)
	}
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
		c.readWrite(part.by, e)
	case strings.HasPrefix(e.UserAgent, binary):
		c.readUnmarked(e)
	}
	return nil
}

func (c *checker) readLease(id shard.ID, e event) error {
	if strings.HasPrefix(e.UserAgent, binary) {
		c.report.FleetOwn++
	}
	switch {
	case e.refused():
		return nil
	case e.failed():
		c.report.LeaseUnknown++
		return nil
	case e.Verb == "delete":
		c.convict(e, LeaseDeleted, "terms of %s may restart", id)
		return nil
	default:
		return c.histories[id].add(e)
	}
}

// readUnmarked counts a request that the binary made outside of any shard.
func (c *checker) readUnmarked(e event) {
	c.report.FleetOwn++
	switch {
	case e.isEvent(), e.storesNothing(), e.refused():
	case e.ObjectRef.Resource == "leases", e.ObjectRef.Resource == "serviceaccounts" && e.Verb == "create":
	default:
		c.convict(e, Unfenced, "user agent %q has no claim in it", e.UserAgent)
	}
}

func (c *checker) readWrite(by Identity, e event) {
	s, known := c.plan.Shard(by.Shard)
	switch {
	case !known:
		c.convict(e, UnknownShard, "%s: the plan has no such shard", by)
		return
	case e.isEvent():
		c.report.Events++
		return
	case e.storesNothing():
		c.report.StoreNothing++
		return
	}
	if s.Namespaced() {
		c.judgeRange(s, by, e)
	}
	if e.refused() {
		c.report.Refused++
		c.refusals = append(c.refusals, refusal{by: by, received: e.Received.Time, code: e.ResponseStatus.Code})
		return
	}
	w := write{event: e.lean(), by: by}
	w.version, _ = e.version()
	c.writes = append(c.writes, w)
}

func (c *checker) judgeRange(s shard.Shard, by Identity, e event) {
	namespace := e.namespace()
	switch {
	case namespace == "" && e.ObjectRef.Resource == "persistentvolumes":
	case namespace == "":
		c.convict(e, WrongScope, "%s: %s %q is cluster-scoped", by, e.resource(), e.ObjectRef.Name)
	case !s.Range.ContainsNamespace(namespace):
		c.convict(e, WrongRange, "%s: namespace %q is at %#016x, outside of %s", by, namespace, shard.Hash(namespace), s.Range)
	}
}

// judge holds a write against the Lease and counts it.
func (c *checker) judge(w write) {
	if term, ok := c.term(w.by); ok {
		c.judgeTerm(w, term)
	} else {
		c.convict(w.event, NotHolder, "%s: the Lease never said so", w.by)
	}
	c.report.times[w.by.Member] = append(c.report.times[w.by.Member], w.event.Answered.Time)
	if c.report.Writes[w.by.Shard] == nil {
		c.report.Writes[w.by.Shard] = map[string]int{}
	}
	c.report.Writes[w.by.Shard][w.by.Member]++
	if s, _ := c.plan.Shard(w.by.Shard); s.Namespaced() {
		c.tenure(w)
	}
}

// term returns the term that an identity speaks of.
func (c *checker) term(by Identity) (Term, bool) {
	for _, t := range c.report.Terms[by.Shard] {
		if t.Holder == by.Member && t.Term == by.Term {
			return t, true
		}
	}
	return Term{}, false
}

func (c *checker) judgeTerm(w write, t Term) {
	h := c.histories[w.by.Shard]
	// A version from before the term is that of an earlier change: this write changed nothing.
	if w.version < t.first.version {
		c.report.ByTime++
		if !t.couldCover(w.event) {
			c.convict(w.event, NotHolder, "%s: the term lasted from %s to %s", w.by, stamp(t.Began), stamp(t.Ended))
			return
		}
	} else {
		c.report.ByVersion++
		if s, _ := h.at(w.version); s.holder != w.by.Member || s.term != w.by.Term {
			if t.onTheWire(w.event) {
				c.report.InFlight = append(c.report.InFlight, w.flight(t))
				return
			}
			c.convict(w.event, NotHolder, "%s: the Lease at version %d named %q, term %d", w.by, w.version, s.holder, s.term)
			return
		}
	}
	if h.ranOut(w.event.Received.Time) {
		c.report.Late++
	}
}

func (c *checker) tenure(w write) {
	namespace := w.event.namespace()
	if namespace == "" {
		return
	}
	tenures := c.report.Namespaces[namespace]
	answered := w.event.Answered.Time
	i := slices.IndexFunc(tenures, func(t Tenure) bool { return t.Identity == w.by })
	if i < 0 {
		i = len(tenures)
		tenures = append(tenures, Tenure{Identity: w.by, First: answered})
	}
	t := &tenures[i]
	t.Writes++
	if answered.Before(t.First) {
		t.First = answered
	}
	if answered.After(t.Last) {
		t.Last = answered
	}
	c.report.Namespaces[namespace] = tenures
}

func (c *checker) convict(e event, kind Kind, format string, args ...any) {
	c.report.Violations = append(c.report.Violations, e.violation(kind, format, args...))
}
