package main

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/flotilla-kube/flotilla/test/harness"
)

// calm is the phase in which no fault acts.
const calm = "(no fault)"

// latencies measures how long the controllers take to see a change of a canary: from when the API
// server received the change, to its answer to the status update. Both times are in one process's
// audit log.
type latencies struct {
	// canaries by namespace.
	canaries map[string]*canaryState
	phases   []phaseStart
	samples  map[string][]time.Duration
}

type phaseStart struct {
	name string
	from time.Time
}

// canaryState has one canary's changes that have not been seen, and the last one that has.
type canaryState struct {
	pending []patched
	seen    int64
	seenAt  time.Time
	// newest is when the newest seen change was made.
	newest time.Time
}

type patched struct {
	generation int64
	at         time.Time
}

func newLatencies() *latencies {
	return &latencies{canaries: map[string]*canaryState{}, samples: map[string][]time.Duration{}}
}

// add records a write of a canary.
func (l *latencies) add(e *harness.Event, set *appsv1.ReplicaSet) {
	c := l.canaries[e.ObjectRef.Namespace]
	if c == nil {
		c = &canaryState{}
		l.canaries[e.ObjectRef.Namespace] = c
	}
	switch {
	case e.Verb == "patch" && e.ObjectRef.Subresource == "":
		c.pending = append(c.pending, patched{generation: set.Generation, at: e.RequestReceivedTimestamp.Time})
		// Lines are in the order of the answers, so the status may come first.
		l.resolve(c, c.seenAt)
	case e.ObjectRef.Subresource == "status" && set.Status.ObservedGeneration > c.seen:
		c.seen, c.seenAt = set.Status.ObservedGeneration, e.StageTimestamp.Time
		l.resolve(c, c.seenAt)
	}
}

func (l *latencies) resolve(c *canaryState, at time.Time) {
	var left []patched
	for _, p := range c.pending {
		if p.generation > c.seen {
			left = append(left, p)
			continue
		}
		name := l.phaseOf(p.at, at)
		l.samples[name] = append(l.samples[name], max(0, at.Sub(p.at)))
		if p.at.After(c.newest) {
			c.newest = p.at
		}
	}
	c.pending = left
}

func (l *latencies) phase(name string, from time.Time) {
	l.phases = append(l.phases, phaseStart{name: name, from: from})
}

// phaseOf returns the phase of a change that waited from one time to another: the phase in which it
// was made, or the first fault that began before it was seen.
func (l *latencies) phaseOf(from, to time.Time) string {
	name := calm
	for _, p := range l.phases {
		switch {
		case !p.from.After(from):
			name = p.name
		case name == calm && !p.from.After(to):
			name = p.name
		}
	}
	return name
}

func (l *latencies) progressed(namespaces []string, since time.Time) error {
	var stale []string
	for _, namespace := range namespaces {
		if c := l.canaries[namespace]; c == nil || c.newest.Before(since) {
			stale = append(stale, namespace)
		}
	}
	if len(stale) > 0 {
		return fmt.Errorf("%d of %d canaries have not moved: %v", len(stale), len(namespaces), stale)
	}
	return nil
}

// spread is the distribution of one phase's latencies.
type spread struct {
	phase           string
	n               int
	p50, p99, worst time.Duration
}

func (l *latencies) spreads() []spread {
	var all []spread
	for name, samples := range l.samples {
		all = append(all, newSpread(name, samples))
	}
	slices.SortFunc(all, func(a, b spread) int { return cmp.Compare(a.phase, b.phase) })
	return all
}

func newSpread(name string, samples []time.Duration) spread {
	sorted := slices.Sorted(slices.Values(samples))
	return spread{phase: name, n: len(sorted), p50: quantile(sorted, 0.5), p99: quantile(sorted, 0.99), worst: quantile(sorted, 1)}
}

// quantile returns the smallest of the sorted values that at least this share of them does not
// exceed.
func quantile(sorted []time.Duration, part float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	i := int(part*float64(len(sorted)) + 0.999999)
	return sorted[min(max(i, 1), len(sorted))-1]
}

// String returns one line of the table.
func (s spread) String() string {
	return fmt.Sprintf("%-18s n=%-6d p50 %-8v p99 %-8v worst %v", s.phase, s.n, millis(s.p50), millis(s.p99), millis(s.worst))
}

func millis(d time.Duration) time.Duration { return d.Round(time.Millisecond) }
