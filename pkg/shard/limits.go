package shard

import (
	"fmt"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"math"
)

// Limits say when the planner acts and how far it goes. Start from DefaultLimits.
type Limits struct {
	// ShardsPerMember is how many shards of the ring a member should have, on average; 1 or more,
	// default 4. The planner merges shards when there are clearly more.
	ShardsPerMember int
	// MostShardsPerMember is how many shards of the ring a member may have before the planner stops
	// giving it more; at least ShardsPerMember, default 6.
	MostShardsPerMember int
	// Trigger is the ratio of the heaviest member's weight to the mean up to which nothing moves;
	// greater than Target, default 1.08.
	Trigger float64
	// Target is the ratio that the planner works towards once it acts; at least 1, default 1.04.
	// The distance to Trigger keeps it from acting again soon.
	Target float64
	// MaxRound is the share of the ring's weight that one proposal may move or cut, over 0 to 1,
	// default 0.25. One step is always allowed, and so are the steps needed for members that join
	// or leave.
	MaxRound float64
	// MinWeight is how many objects a member must have above its fair share to make action
	// worthwhile; 1 or more, default 100. A ring with fewer objects in all is balanced by the
	// number of its shards.
	MinWeight int64
}

// DefaultLimits returns the limits for a fleet whose use is not known.
func DefaultLimits() Limits {
	return Limits{ShardsPerMember: 4, MostShardsPerMember: 6, Trigger: 1.08, Target: 1.04, MaxRound: 0.25, MinWeight: 100}
}

// Validate returns an error that names each limit at fault, its value and what is allowed.
func (l Limits) Validate() error {
	var faults []error
	check := func(valid bool, format string, args ...any) {
		if !valid {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	check(l.ShardsPerMember >= 1, "shardsPerMember: %d: must be 1 or more", l.ShardsPerMember)
	check(l.MostShardsPerMember >= l.ShardsPerMember && l.MostShardsPerMember <= MaxShards,
		"mostShardsPerMember: %d: must be from shardsPerMember %d to %d", l.MostShardsPerMember, l.ShardsPerMember, MaxShards)
	check(l.Target >= 1 && !math.IsInf(l.Target, 0), "target: %v: must be 1 or more", l.Target)
	check(l.Trigger > l.Target && !math.IsInf(l.Trigger, 0), "trigger: %v: must be greater than target %v", l.Trigger, l.Target)
	check(l.MaxRound > 0 && l.MaxRound <= 1, "maxRound: %v: must be greater than 0 and at most 1", l.MaxRound)
	check(l.MinWeight >= 1, "minWeight: %d: must be 1 or more", l.MinWeight)
	return utilerrors.NewAggregate(faults)
}
