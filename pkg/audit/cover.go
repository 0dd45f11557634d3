package audit

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// cover is what a shard covers, by a write of its Lease.
type cover struct {
	// fleet and id come from the labels.
	fleet string
	id    shard.ID
	// extent is the whole keyspace unless ranged is set, and has no controllers unless named is.
	extent        shard.Extent
	ranged, named bool
	// generation of the holder's plan; 0 if it does not say.
	generation int64
	// ready is set while the holder waits for the shard's predecessors.
	ready bool
	// fault says what cannot be read; empty if everything can.
	fault string
	// text is everything above except ready, to see whether it has changed.
	text string
}

func coverOf(lease *coordinationv1.Lease, term int32) cover {
	labels, notes := lease.Labels, lease.Annotations
	c := cover{fleet: labels[leaseapi.FleetLabel], id: shard.ID{Ring: labels[leaseapi.RingLabel], Name: labels[leaseapi.ShardLabel]}}
	text, ranged := notes[leaseapi.RangeAnnotation]
	if ranged {
		r, err := shard.ParseRange(text)
		if err != nil {
			c.fault = err.Error()
		}
		c.extent.Range, c.ranged = r, err == nil
	}
	names, named := notes[leaseapi.ControllersAnnotation]
	if named {
		c.extent.Controllers, c.named = strings.Split(names, ","), true
		if names == "" || !slices.IsSorted(c.extent.Controllers) {
			c.fault = fmt.Sprintf("controllers %q must be names in order", names)
		}
	}
	if generation := notes[leaseapi.GenerationAnnotation]; generation != "" {
		n, err := strconv.ParseInt(generation, 10, 64)
		if err != nil {
			c.fault = fmt.Sprintf("plan generation %q is not a number", generation)
		}
		c.generation = n
	}
	c.ready = notes[leaseapi.ReadyAnnotation] == strconv.Itoa(int(term)) && notes[leaseapi.ReadyAnnotation] != ""
	c.text = strings.Join([]string{c.fleet, c.id.Ring, c.id.Name, strconv.FormatBool(ranged), text, strconv.FormatBool(named), names, notes[leaseapi.GenerationAnnotation]}, "\n")
	return c
}

// describe returns an extent as text for people.
func describe(e shard.Extent, ranged bool) string {
	what := "a group"
	if ranged {
		what = "range " + e.Range.String()
	}
	return what + " of " + strings.Join(e.Controllers, ",")
}

// fact is what is known about what a shard covers.
type fact struct {
	extent shard.Extent
	// namespaced is set for a range, not for a group.
	namespaced bool
	// exact is set if the Lease named the controllers; otherwise they are a plan's, or made up.
	exact bool
}

func factOf(p shard.Plan, id shard.ID) (fact, bool) {
	extent, known := p.Extent(id)
	s, _ := p.Shard(id)
	return fact{extent: extent, namespaced: s.Namespaced()}, known
}

// fact returns what is known about a claim's shard: what the Lease said in its term, else at any
// time, else the plan given up front, else a plan in the log.
func (c *checker) fact(by Identity) (fact, bool) {
	if t, ok := c.term(by); ok && t.cover != nil {
		return t.cover.fact(), true
	}
	return c.shardFact(by.Shard)
}

func (v *cover) fact() fact { return fact{extent: v.extent, namespaced: v.ranged, exact: true} }

func (c *checker) shardFact(id shard.ID) (fact, bool) {
	if f, known := c.facts[id]; known {
		return f, true
	}
	f, known := c.findFact(id)
	if known {
		c.facts[id] = f
	}
	return f, known
}

func (c *checker) findFact(id shard.ID) (fact, bool) {
	if h := c.histories[id]; h != nil {
		for i := range h.states {
			if v := &h.states[i].cover; v.named && v.fault == "" {
				return v.fact(), true
			}
		}
	}
	if f, known := factOf(c.plan, id); known {
		return f, true
	}
	for _, p := range c.plans {
		if f, known := factOf(p.plan, id); known {
			return f, true
		}
	}
	return fact{}, false
}
