package sim

import (
	"slices"
	"testing"
)

// invariant names a property that the simulation checks. A failure prints it.
type invariant string

const (
	oneClaim   invariant = "one-claim"
	entitled   invariant = "entitled"
	overlap    invariant = "overlap"
	fencing    invariant = "fence"
	drainFence invariant = "drain-fence"
	release    invariant = "release"
	stale      invariant = "stale"
	late       invariant = "late"
	fenced     invariant = "fenced"
	leaderLock invariant = "leader-lock"
	ringServed invariant = "rings"
	terms      invariant = "terms"
	plans      invariant = "plans"
	calm       invariant = "calm"
	exit       invariant = "exit"
	drains     invariant = "drains"
	settles    invariant = "settles"
	placed     invariant = "placed"
	drained    invariant = "drained"
	everywhere invariant = "everywhere"
	leaves     invariant = "leaves"
	closes     invariant = "closes"
	goroutines invariant = "goroutines"
	requests   invariant = "requests"
	livelock   invariant = "livelock"
	wireTime   invariant = "wire"
	operator   invariant = "operator"
)

// invariants describes each of them.
var invariants = map[invariant]string{
	oneClaim:   "no two members hold valid claims on one shard",
	entitled:   "no work begins without a valid claim",
	overlap:    "no work overlaps other work on the same part, of any plan; if clocks differ, not for longer than they explain",
	fencing:    "no write leaves a process after its claim has ended",
	drainFence: "no write leaves a process for longer than the handoff timeout after its work was asked to stop",
	release:    "nobody clears a Lease while its own work runs",
	stale:      "work that begins with prepared caches has seen all earlier writes",
	late:       "no write of an earlier holder is accepted beside its successor's work, except those in transit at the release",
	fenced:     "if the API server enforces the fence, that also holds for a process whose clock stood still",
	leaderLock: "nothing runs while a stock controller manager does",
	ringServed: "nobody claims a shard of a ring that it does not serve",
	terms:      "terms rise with every acquisition",
	plans:      "members replace a plan only with one of a greater generation",
	calm:       "the planner waits an interval between changes caused by weights",
	exit:       "no process is told to exit, unless its work does not end",
	drains:     "work that was asked to stop has returned, or its process has ended, within the time in the flags",
	settles:    "in the end one member runs each shard, under one valid claim",
	placed:     "in the end its owner runs each shard",
	drained:    "in the end a drained member runs nothing, if there are others",
	everywhere: "in the end a controller that all versions have runs on every namespace",
	leaves:     "every member can leave within the time in the flags",
	closes:     "every built instance has been run or closed",
	goroutines: "no goroutine is left",
	requests:   "a seed makes a bounded number of Lease requests",
	livelock:   "a seed takes a bounded time",
	wireTime:   "the model: no write is in transit for longer than is assumed",
	operator:   "the model: what the operator writes is a plan",
}

// TestEveryInvariantHasABug checks that every invariant can fail: a planted bug, or a mistake in a
// model, violates it and no other.
func TestEveryInvariantHasABug(t *testing.T) {
	convict := map[invariant][]string{}
	for _, b := range bugs {
		convict[b.by] = append(convict[b.by], b.name)
	}
	for name := range invariants {
		if len(convict[name]) == 0 {
			t.Errorf("%s: it finds no planted bug: plant one", name)
		}
	}
	for _, b := range bugs {
		for _, name := range slices.Concat([]invariant{b.by}, b.also) {
			if invariants[name] == "" {
				t.Errorf("%s must be found by %q, which is not an invariant", b.name, name)
			}
		}
	}
}
