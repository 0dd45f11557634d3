package planner

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/flotilla-kube/flotilla/internal/faults"
	"github.com/flotilla-kube/flotilla/pkg/fleet/inforce"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// restIntervals is how many planner intervals a shard rests after a change of plan, unless members
// come or go or the weights are very uneven.
const restIntervals = 12

// content is what a plan was found to be good for: the members, and the weights as long as they are
// not urgent.
type content struct {
	members []string
	weights shard.Weights
}

// outlook is the planner's view of a ring whose shards are all where they should be.
type outlook struct {
	plan shard.Plan
	ring shard.Ring
	// members are the members that serve the ring and are there to stay, sorted.
	members []string
	weights leaseapi.Weights
	// judgeable is set if all members are there and everything that they carry has been weighed.
	judgeable bool
	// newest are the shards that stay with members of the newest version.
	newest kept
}

// change is a change of plan that is worth making.
type change struct {
	shard.Proposal
	// forMembers is set if the change is made because members have come or gone, not because of
	// weights.
	forMembers bool
}

// propose returns a change for a ring, if one is due and worth making.
func (p *Planner) propose(ctx context.Context, l look, ring shard.Ring) (change, bool) {
	if ring.Scope != shard.ScopeNamespaced || !l.settled(ring) {
		return change{}, false
	}
	plan, assignment := l.InForce.Plan, l.Assignment
	members := leaseapi.Stayers(l.Known(), l.Roster(), ring)
	carrier := func(id shard.ID) string { return assignment.Carrier(plan, id) }
	weights, complete := leaseapi.WeightsOf(p.config.Fleet, plan, ring, l.Get, carrier)
	if !complete {
		return change{}, false
	}
	return p.decide(ctx, outlook{
		plan: plan, ring: ring, members: members, weights: weights,
		newest: keepNewest(plan, ring.Name, l.Roster()),
		judgeable: slices.Equal(assignment.MembersOf(ring.Name), members) &&
			(weights.PerObject == 0 || weights.Whole),
	}, l.Now())
}

// decide is the pure part of propose. When members have come or gone, a change need not wait for
// the interval or for a large imbalance, and shards do not rest.
func (p *Planner) decide(ctx context.Context, o outlook, now time.Time) (change, bool) {
	last := p.content[o.ring.Name]
	if before := unsettled(o.ring, o.members); before > 0 && !slices.Equal(last.members, o.members) {
		proposal, worth, err := p.around(ctx, o, o.newest)
		if err != nil {
			return change{}, false
		}
		if ring, _ := proposal.Plan.Ring(o.ring.Name); worth && unsettled(ring, o.members) < before {
			return change{proposal, true}, true
		}
		// Some members rightly have no shard. The weights decide about everything else.
		last.members = o.members
		p.content[o.ring.Name] = last
	}
	imbalance := sync.OnceValue(func() float64 { return p.imbalance(o) })
	urgent := p.config.Replanning.Urgent
	if due := now.Sub(p.last) >= p.config.Replanning.Interval || faults.ReplanRestless; !due {
		same := slices.Equal(last.weights.Census, o.weights.Census) &&
			maps.Equal(last.weights.Carried, o.weights.Carried)
		if same || imbalance() <= urgent {
			// Look again at what cannot be judged yet, even if it does not change.
			if o.judgeable {
				p.content[o.ring.Name] = content{last.members, o.weights.Weights}
			}
			return change{}, false
		}
	}
	keep := o.newest
	if imbalance() <= urgent*wakes && !faults.ReplanRestless {
		keep = keep.and(p.resting(o.ring, o.members, now))
	}
	proposal, worth, err := p.around(ctx, o, keep)
	if !worth && err == nil {
		p.content[o.ring.Name] = content{o.members, o.weights.Weights}
	}
	return change{Proposal: proposal}, worth && err == nil
}

// around returns a change for a ring in which the shards in keep stay as they are. It logs each
// error once.
func (p *Planner) around(ctx context.Context, o outlook, keep kept) (shard.Proposal, bool, error) {
	limits := p.config.Replanning.Limits
	proposal, worth, err := shard.ProposeAround(o.plan, o.ring.Name, o.weights.Weights, o.members, limits, keep)
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != "" && text != p.unplanned[o.ring.Name] {
		klog.FromContext(ctx).Error(err, "Could not plan", "ring", o.ring.Name)
	}
	p.unplanned[o.ring.Name] = text
	return proposal, worth, err
}

// sent is a change of plan whose write failed, and when it was sent.
type sent struct {
	change
	at time.Time
}

// doubt remembers a change that was not answered.
func (p *Planner) doubt(change sent) {
	same := func(u sent) bool {
		return u.Plan.Generation == change.Plan.Generation && u.Plan.Digest() == change.Plan.Digest()
	}
	p.unanswered = append(slices.DeleteFunc(p.unanswered, same), change)
}

// answer counts a change that was not answered if it is the plan in force, or if a later plan is,
// which may have followed it.
func (p *Planner) answer(inForce *inforce.Plan) {
	p.unanswered = slices.DeleteFunc(p.unanswered, func(u sent) bool {
		if inForce.Generation < u.Plan.Generation {
			return false
		}
		if inForce.Generation > u.Plan.Generation || inForce.Digest() == u.Plan.Digest() {
			p.count(u.change, u.at)
		}
		return true
	})
}

// count records when a change of plan was made, and which shards it has moved or made because of
// weights.
func (p *Planner) count(c change, now time.Time) {
	p.last = now
	for _, step := range c.Steps {
		if step.Kind != shard.StepHome && !c.forMembers {
			p.moved[step.Shard] = now
		}
	}
	maps.DeleteFunc(p.moved, func(_ shard.ID, at time.Time) bool { return now.Sub(at) >= p.restTime() })
}

// resting returns the shards that stay as they are for a while because they were moved or made
// because of weights recently. Each move makes controllers forget what they keep only in memory.
func (p *Planner) resting(ring shard.Ring, members []string, now time.Time) kept {
	k := kept{}
	for _, s := range ring.Shards {
		at, moved := p.moved[s.ID]
		if moved && now.Sub(at) < p.restTime() && s.Pin == "" && slices.Contains(members, s.Home) {
			k[s.ID] = true
		}
	}
	return k
}

// restTime is how long a shard rests: an hour by default.
func (p *Planner) restTime() time.Duration {
	return restIntervals * p.config.Replanning.Interval
}

// wakes is how many times Replanning.Urgent an imbalance must be to move what was moved within the
// rest time: at 1.3, namespaces that grow and shrink at random would be moved again and again.
const wakes = 1.15

// imbalance returns the weight of the heaviest member over the lowest weight that it could have. It
// returns 0 while weights are uneven for a passing reason: a member is away, or a group has moved
// to another member and not been weighed there; and if the difference is not worth a move. What an
// operator has pinned is as even as it can be, too: no plan changes that.
func (p *Planner) imbalance(o outlook) float64 {
	if !o.judgeable {
		return 0
	}
	least := p.config.Replanning.Limits.MinWeight
	b := shard.BalanceOf(o.plan, o.ring.Name, o.weights.Weights, o.members)
	if b.Max-b.Mean*b.Bound < float64(least) {
		return 0
	}
	times, excess := shard.ExcessOf(o.plan, o.ring.Name, o.weights.Weights, o.members)
	if excess < least {
		return 0
	}
	return min(b.Ratio()/b.Bound, times)
}

// unsettled returns how many of members have no shard of the ring, plus how many shards have a home
// that is not in members. It returns 0 if no shard has a home yet. It ignores pins to other
// members: they are the operator's decision, and no change of plan affects them.
func unsettled(ring shard.Ring, members []string) int {
	homes, n := map[string]bool{}, 0
	for _, s := range ring.Shards {
		homes[s.PreferredMember()] = true
		if s.Pin == "" && s.Home != "" && !slices.Contains(members, s.Home) {
			n++
		}
	}
	delete(homes, "")
	if len(homes) == 0 {
		return 0
	}
	for _, member := range members {
		if !homes[member] {
			n++
		}
	}
	return n
}
