package sim

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

// kind is a kind of event in the simulation.
type kind int

const (
	writes kind = iota
	lateWrites
	fenceRefusals
	warmStarts
	coldStarts
	claimsBegun
	processExits
	planChanges
	plannerChanges
	ringMoves
	memberDrains
	locksHeld
	locksLost
	locksRegained
	stockLeads
	marks
	serverRefusals
	thaws
	standbyTakeovers
	ringClaims
	versionChanges
	canaryChanges
	canariesSettled
	kinds // the number of kinds
)

// floors has each kind's name and the least count that 2,000 seeds must reach, about half of the
// usual count. A lower count means that a fault, a feature or the judge has stopped working.
var floors = [kinds]struct {
	name  string
	least int
}{
	writes:           {"writes", 250000},
	lateWrites:       {"writes that arrived late", 300},
	fenceRefusals:    {"writes refused by a fence", 4000},
	warmStarts:       {"warm starts", 6000},
	coldStarts:       {"cold starts", 6000},
	claimsBegun:      {"claims", 13000},
	processExits:     {"exits", 100},
	planChanges:      {"changes of plan", 1600},
	plannerChanges:   {"changes by the planner", 400},
	ringMoves:        {"controllers moved between rings", 100},
	memberDrains:     {"drains", 650},
	locksHeld:        {"leader locks held", 1500},
	locksLost:        {"leader locks lost", 100},
	locksRegained:    {"leader locks regained", 150},
	stockLeads:       {"terms of a stock leader", 250},
	marks:            {"dead members fenced", 200},
	serverRefusals:   {"writes refused by the API server", 100},
	thaws:            {"clocks that stood still", 500},
	standbyTakeovers: {"takeovers by a standby", 250},
	ringClaims:       {"claims by members that serve some rings", 1800},
	versionChanges:   {"changes of plan for versions", 140},
	canaryChanges:    {"canaries begun, promoted, aborted or forgotten", 290},
	canariesSettled:  {"canaries in the end with members of both versions", 1200},
}

// totals shows that the simulation reaches the cases it is meant to reach.
type totals struct {
	// versions is set if seeds may have members of two versions.
	versions bool

	mu      sync.Mutex
	seeds   int
	counts  [kinds]int
	steps   int
	slowest time.Duration
}

func (s *totals) add(sim *simulation) {
	sim.mu.Lock()
	defer sim.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seeds++
	for k, n := range sim.counts {
		s.counts[k] += n
	}
	s.steps = max(s.steps, sim.steps)
	s.slowest = max(s.slowest, sim.settled)
}

func (s *totals) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	parts := make([]string, 0, kinds)
	for k, floor := range floors {
		parts = append(parts, fmt.Sprintf("%d %s", s.counts[k], floor.name))
	}
	return fmt.Sprintf("%d seeds: %s; at most %d requests for Leases; all shards were run again at most %v after the last fault",
		s.seeds, strings.Join(parts, ", "), s.steps, s.slowest)
}

// fewest is the number of seeds from which counts are meaningful.
const fewest = 100

// complaints names the kinds with too low a count.
func (s *totals) complaints() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var complaints []string
	for k, floor := range floors {
		if kind(k) >= versionChanges && !s.versions {
			continue
		}
		least := floor.least * s.seeds / 2000
		if s.seeds < 1000 {
			least /= 2 // A few seeds vary more.
		}
		if s.seeds >= fewest && s.counts[k] < least {
			complaints = append(complaints, fmt.Sprintf("%d %s in %d seeds, want %d or more: the cause of this event has stopped working",
				s.counts[k], floor.name, s.seeds, least))
		}
	}
	return complaints
}

// TestFloorsComplain removes one kind at a time.
func TestFloorsComplain(t *testing.T) {
	for without := range floors {
		s := totals{seeds: 2000, versions: true}
		for k, floor := range floors {
			if floor.name == "" || floor.least == 0 {
				t.Fatalf("kind %d has no floor", k)
			}
			s.counts[k] = floor.least
		}
		if complaints := s.complaints(); len(complaints) > 0 {
			t.Fatalf("complains without a reason: %q", complaints)
		}
		s.counts[without] = floors[without].least - 1
		if complaints := s.complaints(); len(complaints) != 1 || !strings.Contains(complaints[0], floors[without].name) {
			t.Errorf("%s fewer: complains %q", floors[without].name, complaints)
		}
	}
}

// countLocked counts one event of a kind.
func (sim *simulation) countLocked(k kind) { sim.counts[k]++ }

func (sim *simulation) tally(k kind) {
	sim.mu.Lock()
	defer sim.mu.Unlock()
	sim.countLocked(k)
}
