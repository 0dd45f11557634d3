package heartbeat

import (
	"math"
	"strings"
	"testing"
	"time"
)

// mistake is a bug that is planted into the decisions, or into the store, and must be found.
type mistake struct {
	rules rules
	// world it is found in, by the explorer, and part of what it is convicted for there.
	world exploreWorld
	want  string
	// simulated: the simulation finds it as well.
	simulated bool
}

// thinks has the heartbeat decide by something else than what is so.
func thinks(change func(*Input)) rules {
	return rules{claim: ClaimStep, judge: JudgeStep, step: func(in Input) Output {
		change(&in)
		return Step(in)
	}}
}

// judges has judges decide by something else than what is so.
func judges(change func(*JudgeInput)) rules {
	return rules{step: Step, claim: ClaimStep, judge: func(in JudgeInput) JudgeOutput {
		change(&in)
		return JudgeStep(in)
	}}
}

// sees has claims decide by something else than what is so, which they find in what the process
// knows.
func sees(change func(*process, *world, *ClaimInput)) rules {
	return rules{step: Step, claim: ClaimStep, judge: JudgeStep, seen: change}
}

// believes has claims decide by something else than what is so.
func believes(change func(*ClaimInput)) rules {
	return rules{step: Step, judge: JudgeStep, claim: func(in ClaimInput) ClaimOutput {
		change(&in)
		return ClaimStep(in)
	}}
}

// calmWorld has nothing but watches that are behind and requests that take their time.
var calmWorld = exploreWorld{shards: 2, ticks: 4}

var mistakes = map[string]mistake{
	"a strike is not conditional": {
		rules: rules{step: Step, claim: ClaimStep, judge: JudgeStep, careless: true}, world: calmWorld, want: "have rights",
	},
	"a shard is taken without a strike": {
		rules: sees(func(p *process, w *world, in *ClaimInput) {
			if i := w.memberOf(in.Shard.Holder); i >= 0 && in.Shard.Holder != p.self {
				m := p.members[i]
				in.Ended = in.Ended || m.Exists && !in.Now.Before(m.endableAt(in.Shard.Holder, in.Timing.LeaseDuration))
			}
		}), world: calmWorld, want: "have rights", simulated: true,
	},
	"a claim outlives a strike": {
		rules: thinks(func(in *Input) { in.Timing.RenewDeadline = time.Hour }),
		world: exploreWorlds["a member is suspended, an answer is lost"], want: "have rights", simulated: true,
	},
	"an incarnation ignores its own strike": {
		rules: thinks(func(in *Input) {
			if in.State.Phase == Live && in.Member.Exists && in.Member.HasEnded(in.Self) {
				in.Member.Ended, in.Member.Holder = nil, in.Self
			}
		}), world: exploreWorlds["a member is paused with its clock"], want: "knows that it was struck",
	},
	"ended is dropped too early": {
		rules: thinks(func(in *Input) { in.Named = nil }),
		world: exploreWorlds["a member dies and starts again"], want: "is not any more", simulated: true,
	},
	"a hung loop sends heartbeats": {
		rules: thinks(func(in *Input) { in.Turned = in.Now }),
		world: exploreWorlds["a member hangs"], want: "nobody holds shard",
	},
	"a heartbeat counts before the watch has come to it": {
		rules: thinks(func(in *Input) { in.Through = math.MaxUint64 }),
		world: exploreWorlds["a shard's Lease is emptied or deleted"], want: "have rights",
	},
	"a strike comes too early": {
		rules: judges(func(in *JudgeInput) { in.Timing.LeaseDuration, in.Member.Duration = in.Timing.RetryPeriod, 0 }),
		world: calmWorld, want: "have rights", simulated: true,
	},
	"a Lease is released while work runs": {
		rules: believes(func(in *ClaimInput) { in.Working = in.Working && in.Want }),
		world: exploreWorlds["a member leaves, desired states change"], want: "releases shard",
	},
	"a term is not counted up": {
		rules: rules{step: Step, judge: JudgeStep, claim: func(in ClaimInput) ClaimOutput {
			out := ClaimStep(in)
			if out.Action == ClaimAcquire {
				out.Shard.Term = max(1, in.Shard.Term)
			}
			return out
		}}, world: exploreWorlds["a member leaves, desired states change"], want: "acquires term",
	},
	"an absent Lease counts as a strike": {
		rules: sees(func(p *process, w *world, in *ClaimInput) {
			if i := w.memberOf(in.Shard.Holder); i >= 0 {
				m := p.members[i]
				in.Ended = in.Ended || m.Known() && !m.Exists
			}
		}), world: exploreWorlds["a member's Lease is deleted, the member dies"], want: "have rights",
	},
	"an emptied Lease counts as released": {
		rules: believes(func(in *ClaimInput) { in.Shard.Released = in.Shard.Holder == "" }),
		world: exploreWorlds["a shard's Lease is emptied or deleted"], want: "have rights",
	},
	"a forged Lease is trusted": {
		rules: believes(func(in *ClaimInput) { in.State.Asked = in.Shard.Term }),
		world: exploreWorlds["a shard's Lease is forged or deleted"], want: "have rights",
	},
}

// TestExploreConvicts plants each mistake, and has the explorer find it.
func TestExploreConvicts(t *testing.T) {
	if testing.Short() {
		t.Skip("left out: it takes some seconds")
	}
	for name, m := range mistakes {
		t.Run(name, func(t *testing.T) {
			e := explore(&m.rules, m.world)
			if e.broken == nil {
				t.Fatalf("not found in %d scenes, want a conviction for %q", len(e.known), m.want)
			}
			if !strings.Contains(e.why, m.want) {
				t.Fatalf("after %d scenes, want a conviction for %q: %s", len(e.known), m.want, e.history())
			}
			t.Logf("after %d scenes: %s", len(e.known), e.history())
		})
	}
}

// TestSimulationConvicts plants those that larger worlds find as well.
func TestSimulationConvicts(t *testing.T) {
	if testing.Short() {
		t.Skip("left out: it takes some seconds")
	}
	for name, m := range mistakes {
		if !m.simulated {
			continue
		}
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(100) {
				if s := faultySimulation(seed+1, &m.rules, map[string]int{}); strings.Contains(s.broken, m.want) {
					t.Logf("seed %d: %s", seed+1, s.broken)
					return
				}
			}
			t.Fatal("not found in 100 seeds")
		})
	}
}
