package main

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// Bounds of a schedule. The timeouts of upstream's specs assume a working cluster, so pauses let
// specs make progress.
const (
	shortestPause, longestPause = 15 * time.Second, 40 * time.Second
	shortestAway, longestAway   = 2 * time.Second, 12 * time.Second
	// rollEvery is how many kills there are per rolling restart.
	rollEvery = 3
)

// disturbance is one step of the schedule.
type disturbance struct {
	// after is how long the fleet is left alone first.
	after time.Duration
	// If roll is set, all members are restarted, one after the other. Otherwise victim is killed
	// and stays away for the duration away.
	roll   bool
	victim int
	away   time.Duration
}

// String describes the step.
func (d disturbance) String() string {
	if d.roll {
		return "rolling restart"
	}
	return fmt.Sprintf("kill %s-%d, away for %.1f s", fleetName, d.victim, d.away.Seconds())
}

// schedule generates disturbances, which depend only on the seed and the number of members.
type schedule struct {
	random  *rand.Rand
	members int
	dealt   int
}

func newSchedule(seed int64, members int) *schedule {
	return &schedule{random: rand.New(rand.NewPCG(uint64(seed), 0)), members: members}
}

func (s *schedule) next() disturbance {
	s.dealt++
	d := disturbance{after: s.between(shortestPause, longestPause)}
	if d.roll = s.dealt%(rollEvery+1) == 0; !d.roll {
		d.victim, d.away = s.random.IntN(s.members), s.between(shortestAway, longestAway)
	}
	return d
}

func (s *schedule) between(least, most time.Duration) time.Duration {
	return least + time.Duration(s.random.Int64N(int64(most-least)+1))
}
