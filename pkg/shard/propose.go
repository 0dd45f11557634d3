package shard

import (
	"fmt"
	"slices"
	"strings"
)

// Proposal is what the planner would do with one ring.
type Proposal struct {
	// Plan is the whole plan of the next generation.
	Plan Plan
	// Steps say what happens to the ring's shards, by range.
	Steps []Step
	// Moved is the weight that changes its member, and Cut the weight of the new shards, and so of
	// those that stop and start. Weight that does both counts in both.
	Moved, Cut int64
	// Before and After are the balance of the ring's weight now and afterwards.
	Before, After Balance
}

// StepKind says what a Step does with a shard.
type StepKind string

const (
	// StepHome makes the member where a shard is its home, if it has none.
	StepHome StepKind = "home"
	// StepMove gives a shard another home.
	StepMove StepKind = "move"
	// StepSplit makes a shard from a part of another.
	StepSplit StepKind = "split"
	// StepMerge makes one shard from several, or from parts of them.
	StepMerge StepKind = "merge"
)

// Step is what a proposal does with one shard of the ring.
type Step struct {
	Kind StepKind
	// Shard is the shard in the proposed plan.
	Shard ID
	// Of are the shards of the current plan that it is made of, by range: only itself if its range
	// stays.
	Of []ID
	// From are the members where those are, in the same order, and To is where the shard will be.
	From []string
	To   string
	// Weight is the shard's weight, in objects.
	Weight int64
}

// String returns the step as one line for people.
func (s Step) String() string {
	return fmt.Sprintf("%s %s (%d objects) of %v on %v to %s", s.Kind, s.Shard, s.Weight, s.Of, s.From, s.To)
}

// Propose returns the next generation of the plan, in which the weight of one namespaced ring,
// together with what members carry in addition to it, is more even over its members. It returns
// false if nothing is worth doing. It is a pure function. Members are those that serve the ring and
// are there to stay, in any order.
//
// In this order it
//
//   - gives every shard a home, where HomesOf places it; shards whose home is gone go where there
//     is room for them, split if necessary;
//   - gives a member that has no shard its fair share, unless what it carries leaves it too little
//     room;
//   - while some member is above Limits.Trigger, moves shards, whole or cut between cells, until
//     all are at Limits.Target;
//   - merges neighbours where there are too many shards.
//
// Among the steps that help it takes those that move and cut least. Only ranges that change get new
// shards. A pinned shard stays as it is while its pin is among the members, and keeps its range
// when it is not; an isolated one keeps its range.
//
// It writes the weight of every shard of the ring into the plan, and those in Weights.Groups for
// other rings: while a member is away, its shards are dealt out by these weights. It does so only
// if the ring has Limits.MinWeight, and changes no plan for the weights alone.
//
// Repeated on its own result, with the same census, it comes to an end.
func Propose(plan Plan, ring string, weights Weights, members []string, limits Limits) (Proposal, bool, error) {
	return ProposeAround(plan, ring, weights, members, limits, nil)
}

// ProposeAround is [Propose] while some shards of the ring rest: they keep their ranges, and their
// homes if those are among the members. Their weight counts as any other: a member that is above
// its share because of resting shards stays so, and the others are not evened out below it.
func ProposeAround(plan Plan, ring string, weights Weights, members []string, limits Limits, resting map[ID]bool) (Proposal, bool, error) {
	if err := limits.Validate(); err != nil {
		return Proposal{}, false, fmt.Errorf("limits: %w", err)
	}
	if err := plan.Validate(); err != nil {
		return Proposal{}, false, fmt.Errorf("current plan: %w", err)
	}
	members = sortedUnique(members, strings.Compare)
	d, err := newDraft(plan, ring, weights, members, limits, resting)
	if err != nil {
		return Proposal{}, false, err
	}
	d.settle()
	if !d.changed() {
		return Proposal{}, false, nil
	}
	p := Proposal{Plan: d.plan(), Before: BalanceOf(plan, ring, weights, members)}
	p.Steps = d.steps(p.Plan)
	p.Moved, p.Cut = d.spent()
	p.After = BalanceOf(p.Plan, ring, weights, members)
	if err := CheckSuccessor(plan, p.Plan); err != nil {
		return Proposal{}, false, fmt.Errorf("proposed plan: %w", err)
	}
	return p, true, nil
}

// settle does everything that Propose documents.
func (d *draft) settle() {
	d.placeStrays()
	if d.total < d.limits.MinWeight {
		d.evenCounts()
		d.startBudget()
	} else {
		d.welcome()
		d.startBudget()
		d.balance()
	}
	d.tidy()
}

// changed reports whether the plan would differ from the current one.
func (d *draft) changed() bool {
	return slices.ContainsFunc(d.parts, func(p part) bool {
		return p.old < 0 || d.shardOf(p).Home != d.ring.Shards[p.old].Home
	})
}
