package heartbeat

import (
	"math"
	"strings"
	"testing"
	"time"
)

// mistake is a bug planted in the decisions, or in the store, that the tests must find.
type mistake struct {
	rules rules
	// explored is the case in which the explorer finds it, and want is part of the failure.
	explored exploreCase
	want     string
	// simulated: the simulation finds it too.
	simulated bool
}

// stepWith changes the input of Step.
func stepWith(change func(*Input)) rules {
	return rules{claim: ClaimStep, judge: JudgeStep, step: func(in Input) Output {
		change(&in)
		return Step(in)
	}}
}

// judgeWith changes the input of JudgeStep.
func judgeWith(change func(*JudgeInput)) rules {
	return rules{step: Step, claim: ClaimStep, judge: func(in JudgeInput) JudgeOutput {
		change(&in)
		return JudgeStep(in)
	}}
}

// seenWith changes the input of ClaimStep, by what the process knows.
func seenWith(change func(*process, *system, *ClaimInput)) rules {
	return rules{step: Step, claim: ClaimStep, judge: JudgeStep, seen: change}
}

// claimWith changes the input of ClaimStep.
func claimWith(change func(*ClaimInput)) rules {
	return rules{step: Step, judge: JudgeStep, claim: func(in ClaimInput) ClaimOutput {
		change(&in)
		return ClaimStep(in)
	}}
}

// noFaults has only slow watches and slow requests.
var noFaults = exploreCase{shards: 2, ticks: 4}

var mistakes = map[string]mistake{
	"a strike is not conditional": {
		rules: rules{step: Step, claim: ClaimStep, judge: JudgeStep, unconditional: true}, explored: noFaults, want: "have rights",
	},
	"a shard is taken without a strike": {
		rules: seenWith(func(p *process, sys *system, in *ClaimInput) {
			if i := sys.memberOf(in.Shard.Holder); i >= 0 && in.Shard.Holder != p.self {
				m := p.members[i]
				in.Ended = in.Ended || m.Exists && !in.Now.Before(m.endableAt(in.Shard.Holder, in.Timing.LeaseDuration))
			}
		}), explored: noFaults, want: "have rights", simulated: true,
	},
	"a claim outlives a strike": {
		rules:    stepWith(func(in *Input) { in.Timing.RenewDeadline = time.Hour }),
		explored: exploreCases["a member is suspended, an answer is lost"], want: "have rights", simulated: true,
	},
	"an incarnation ignores its own strike": {
		rules: stepWith(func(in *Input) {
			if in.State.Phase == Live && in.Member.Exists && in.Member.HasEnded(in.Self) {
				in.Member.Ended, in.Member.Holder = nil, in.Self
			}
		}), explored: exploreCases["a member is paused with its clock"], want: "knows that it was struck",
	},
	"ended is dropped too early": {
		rules:    stepWith(func(in *Input) { in.Named = nil }),
		explored: exploreCases["a member dies and starts again"], want: "is not any more", simulated: true,
	},
	"a hung loop sends heartbeats": {
		rules:    stepWith(func(in *Input) { in.Turned = in.Now }),
		explored: exploreCases["a member hangs"], want: "nobody holds shard",
	},
	"a heartbeat counts before the watch has come to it": {
		rules:    stepWith(func(in *Input) { in.Through = math.MaxUint64 }),
		explored: exploreCases["a shard's Lease is emptied or deleted"], want: "have rights",
	},
	"a strike comes too early": {
		rules:    judgeWith(func(in *JudgeInput) { in.Timing.LeaseDuration, in.Member.Duration = in.Timing.RetryPeriod, 0 }),
		explored: noFaults, want: "have rights", simulated: true,
	},
	"a Lease is released while work runs": {
		rules:    claimWith(func(in *ClaimInput) { in.Working = in.Working && in.Want }),
		explored: exploreCases["a member leaves, desired states change"], want: "releases shard",
	},
	"a term is not counted up": {
		rules: rules{step: Step, judge: JudgeStep, claim: func(in ClaimInput) ClaimOutput {
			out := ClaimStep(in)
			if out.Action == ClaimAcquire {
				out.Shard.Term = max(1, in.Shard.Term)
			}
			return out
		}}, explored: exploreCases["a member leaves, desired states change"], want: "acquires term",
	},
	"an absent Lease counts as a strike": {
		rules: seenWith(func(p *process, sys *system, in *ClaimInput) {
			if i := sys.memberOf(in.Shard.Holder); i >= 0 {
				m := p.members[i]
				in.Ended = in.Ended || m.Known() && !m.Exists
			}
		}), explored: exploreCases["a member's Lease is deleted, the member dies"], want: "have rights",
	},
	"an emptied Lease counts as released": {
		rules:    claimWith(func(in *ClaimInput) { in.Shard.Released = in.Shard.Holder == "" }),
		explored: exploreCases["a shard's Lease is emptied or deleted"], want: "have rights",
	},
	"a forged Lease is trusted": {
		rules:    claimWith(func(in *ClaimInput) { in.State.Asked = in.Shard.Term }),
		explored: exploreCases["a shard's Lease is forged or deleted"], want: "have rights",
	},
}

// TestExploreConvicts plants each mistake, and checks that the explorer finds it.
func TestExploreConvicts(t *testing.T) {
	if testing.Short() {
		t.Skip("left out: it takes some seconds")
	}
	for name, m := range mistakes {
		t.Run(name, func(t *testing.T) {
			e := explore(&m.rules, m.explored)
			if e.broken == nil {
				t.Fatalf("not found in %d states, want a conviction for %q", len(e.known), m.want)
			}
			if !strings.Contains(e.why, m.want) {
				t.Fatalf("after %d states, want a conviction for %q: %s", len(e.known), m.want, e.history())
			}
			t.Logf("after %d states: %s", len(e.known), e.history())
		})
	}
}

// TestSimulationConvicts plants the mistakes that the simulation must find too.
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
