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

// Check judges logs by the plan that the fleet of this name followed from the beginning, and by those that the log has on the
// plan's Lease. Several logs are parts of one, such as the files of a log that was rotated. The error is about reading the
// logs; what they prove is in the report. It depends on nothing but its arguments.
func Check(fleetName string, plan shard.Plan, logs ...io.Reader) (Report, error) {
	if err := plan.Validate(); err != nil {
		return Report{}, fmt.Errorf("plan: %w", err)
	}
	c := newChecker(fleetName, plan)
	var err error
	if c.report.Lines, c.report.Cut, err = readLogs(logs, c.read); err != nil {
		return Report{}, err
	}
	c.readPlans()
	if err := c.findShards(); err != nil {
		return Report{}, err
	}
	c.judgeLeases()
	c.judgeGateLeases()
	c.judgeWrites()
	c.judgeOverlaps()
	c.world.finish()
	b := bench{world: c.world, judged: Judged{Skipped: map[string]int{}}, convict: c.convict}
	b.sit()
	c.report.Objects, c.report.Plans, c.report.tale = b.judged, len(c.plans), c.tell()
	c.report.sort()
	return c.report, nil
}

func newChecker(fleetName string, plan shard.Plan) *checker {
	c := &checker{
		fleet:     fleetName,
		plan:      plan,
		plans:     []planned{{plan: plan, digest: plan.Digest()}},
		histories: map[shard.ID]*history{},
		leases:    map[shard.ID]*leaseLog{},
		facts:     map[shard.ID]fact{},
		works:     map[Identity]*work{},
		gates:     map[string]*gateLog{},
		gated:     map[string][]string{},
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
		c.histories[s.ID] = &history{}
	}
	return c
}

// judgeLeases holds the writes of each shard's Lease against each other.
func (c *checker) judgeLeases() {
	for id, h := range c.histories {
		h.sort()
		c.report.Terms[id] = h.terms()
		c.report.Violations = append(c.report.Violations, h.faults()...)
		overlaps, resumed := h.overlaps(id)
		c.report.Overlaps = append(c.report.Overlaps, overlaps...)
		c.report.Violations = append(c.report.Violations, resumed...)
		c.checkLayout(id, h)
	}
}

// sort puts everything in the logs' order, or in that of time.
func (r *Report) sort() {
	for _, times := range r.times {
		slices.SortFunc(times, time.Time.Compare)
	}
	slices.SortStableFunc(r.Overlaps, func(a, b Overlap) int {
		return cmp.Or(a.Shard.Compare(b.Shard), a.Other.Compare(b.Other), a.Second.Began.Compare(b.Second.Began))
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
	fleet     string
	plan      shard.Plan // given up front
	plans     []planned  // that one, and those of the log, in order
	histories map[shard.ID]*history
	// leases are Leases that are named like those of shards and that the plan given up front does not have: whether they are
	// is known once all has been read.
	leases     map[shard.ID]*leaseLog
	planWrites []planWrite
	facts      map[shard.ID]fact
	works      map[Identity]*work
	// gates are the foreign Leases of the log by name, gated the gates that an incarnation said
	// that it waits for.
	gates  map[string]*gateLog
	gated  map[string][]string
	writes []write
	last   time.Time            // when the last request was answered
	agents map[string]agentPart // by User-Agent, of which there are few
	world  *world
	report Report
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

// write is a request under a claim.
type write struct {
	event    event // without the object
	by       Identity
	identity string // of the controller that sent it
	version  uint64 // 0 if the answer has none
}

func (c *checker) read(e event) error {
	if e.Answered.After(c.last) {
		c.last = e.Answered.Time
	}
	if !e.mutating() {
		return nil
	}
	if e.ObjectRef.Resource == "leases" {
		c.readGate(e)
		if e.ObjectRef.Name == fleet.PlanLease(c.fleet) {
			if err := c.readPlanLease(e); err != nil {
				return err
			}
		} else if id, ok := c.shardOfLease(e.ObjectRef.Name); ok {
			if h, planned := c.histories[id]; planned {
				return c.readLease(id, h, e)
			}
			c.keepLease(id, e)
			return nil
		}
	}
	return c.readOther(e)
}

// readOther reads what is no write of a shard's Lease.
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
	case strings.HasPrefix(e.UserAgent, binary):
		c.readUnmarked(e)
	}
	return nil
}

func (c *checker) readLease(id shard.ID, h *history, e event) error {
	if !c.countLease(id, e) {
		return nil
	}
	return h.add(e)
}

// countLease tells whether a write of a shard's Lease took effect, and left a Lease.
func (c *checker) countLease(id shard.ID, e event) bool {
	if strings.HasPrefix(e.UserAgent, binary) {
		c.report.FleetOwn++
	}
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
		c.convict(e, LeaseDeleted, "terms of %s may restart", id)
		return false
	default:
		return true
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
