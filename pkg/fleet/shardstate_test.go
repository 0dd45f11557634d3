package fleet

import (
	"testing"

	"github.com/flotilla-kube/flotilla/pkg/fleet/shardrun"
)

func TestStateOfARun(t *testing.T) {
	ahead := func(stage shardrun.PrepareStage) shardrun.State {
		return shardrun.State{Preparation: shardrun.Preparation{Stage: stage}}
	}
	work := func(stage shardrun.WorkStage) shardrun.State {
		return shardrun.State{
			Preparation: shardrun.Preparation{Stage: shardrun.Warm},
			Work:        shardrun.Work{Stage: stage, Term: 7},
		}
	}
	for _, c := range []struct {
		name         string
		run          shardrun.State
		held, drains bool
		want         ShardState
	}{
		{"nothing", ahead(shardrun.Resting), false, false, StateNone},
		{"a slot is awaited", ahead(shardrun.Queued), false, false, StateNone},
		{"it is filled", ahead(shardrun.Filling), false, false, StatePreparing},
		{"it is full", ahead(shardrun.Warm), false, false, StatePrepared},
		{"it is given up", ahead(shardrun.Discarding), false, false, StateNone},
		{"it is claimed", ahead(shardrun.Warm), true, false, StateStarting},
		{"its preflight runs", work(shardrun.Checking), true, false, StateStarting},
		{"its predecessors run", work(shardrun.Succeeding), true, false, StateWaiting},
		{"its predecessors are asked", work(shardrun.Waiting), true, false, StateWaiting},
		{"its predecessors have gone", work(shardrun.Joining), true, false, StateStarting},
		{"it is started", work(shardrun.Running), true, false, StateStarting},
		{"it runs", work(shardrun.Running).Raised(7), true, false, StateRunning},
		{"it ran in another term", work(shardrun.Running).Raised(6), true, false, StateStarting},
		{"it drains", work(shardrun.Running).Raised(7), true, true, StateDraining},
		{"it drains before it ran", work(shardrun.Running), true, true, StateDraining},
		{"its claim is lost", work(shardrun.Running).Raised(7), false, false, StateDraining},
		{"it has paused", work(shardrun.Pausing), true, false, StateStarting},
		{"what it has is dropped", work(shardrun.Dropping), true, true, StateStarting},
		{"its claim is lost before it ran", work(shardrun.Checking), false, false, StatePrepared},
	} {
		if got := stateOf(c.run, c.held, c.drains); got != c.want {
			t.Errorf("%s: it is %q, want %q", c.name, got, c.want)
		}
	}
}
