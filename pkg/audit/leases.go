package audit

import (
	"fmt"
	"strings"

	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// leaseLog is the writes of a Lease that may be a shard's.
type leaseLog struct {
	history
	events []event // without their answers; with the request if only that is known
	err    error   // the first in reading them
}

// shardOfLease returns the shard whose Lease has this name, if there is one.
func (c *checker) shardOfLease(name string) (shard.ID, bool) {
	rest, ok := strings.CutPrefix(name, c.fleet+"-")
	ring, part, cut := strings.Cut(rest, "-")
	if !ok || !cut {
		return shard.ID{}, false
	}
	id, err := shard.ParseID(ring + "/" + part)
	return id, err == nil
}

// keepLease keeps a write until it is known whether the Lease is a shard's of this fleet.
func (c *checker) keepLease(id shard.ID, e event) {
	l := c.leases[id]
	if l == nil {
		l = &leaseLog{}
		c.leases[id] = l
	}
	if !e.refused() && !e.failed() && e.Verb != "delete" {
		if err := l.add(e); err != nil && l.err == nil {
			l.err = fmt.Errorf("%s: %w", where(e.file, e.log, e.line), err)
		}
	}
	if e.ResponseObject = nil; !e.failed() {
		e.RequestObject = nil
	}
	l.events = append(l.events, e)
}

// findShards finds the shards' Leases that are not in the plan given up front: those in another
// plan, and those that name the fleet and their controllers. All others do not belong to the fleet.
func (c *checker) findShards() error {
	for _, p := range c.plans {
		for _, s := range p.plan.Shards() {
			if c.histories[s.ID] == nil && c.leases[s.ID] == nil {
				c.histories[s.ID] = &history{}
			}
		}
	}
	for id, l := range c.leases {
		if !l.ours(c.fleet) && !c.planned(id) {
			for _, e := range l.events {
				if err := c.readOther(e); err != nil {
					return err
				}
			}
			continue
		}
		if l.err != nil {
			return l.err
		}
		c.histories[id] = &history{states: l.states}
		for _, e := range l.events {
			c.countLease(id, e)
		}
	}
	return nil
}

// ours reports whether the Lease said that it is the fleet's, even if its labels are wrong.
func (l *leaseLog) ours(fleetName string) bool {
	for i := range l.states {
		if v := &l.states[i].cover; v.fleet == fleetName && v.named {
			return true
		}
	}
	return false
}

func (c *checker) planned(id shard.ID) bool {
	for _, p := range c.plans {
		if _, has := p.plan.Shard(id); has {
			return true
		}
	}
	return false
}
