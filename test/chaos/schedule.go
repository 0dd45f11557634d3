package main

import (
	"math/rand/v2"
	"slices"
)

// schedule deals names like cards: all of them in a random order, then all again in another. No
// fault is left out for long.
type schedule struct {
	names  []string
	random *rand.Rand
	left   []string
}

// next returns the next name.
func (s *schedule) next() string {
	if len(s.left) == 0 {
		s.left = slices.Clone(s.names)
		s.random.Shuffle(len(s.left), func(i, j int) { s.left[i], s.left[j] = s.left[j], s.left[i] })
	}
	name := s.left[0]
	s.left = s.left[1:]
	return name
}

// newRandom returns random numbers for one purpose, which do not depend on how many others draw.
func newRandom(seed, purpose uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, purpose)) }

// Purposes of newRandom.
const (
	scheduleChance = iota + 1
	faultChance
	loadChance
)
