package fleet

import (
	"slices"
	"time"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/fleet/assignment"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// prospects are what a member that waits for the leader locks expects to own once the fleet holds
// them: what it prepares for. The members of a fresh fleet come one after the other. If each
// prepared for what the roster of the moment gives it, the first would list the whole cluster, and
// most of what all of them list would be dropped again.
type prospects struct {
	// crew are the incarnations that will be active then, and since is when they became these.
	crew  []string
	since time.Time
	// assignment is that for the last crew that was the same for a while; empty at first.
	assignment assignment.Assignment
}

// settling is how long the roster must have been the same before a member that waits for the leader
// locks prepares by it.
func (m *Member) settling() time.Duration { return 2 * m.config.Timing.RetryPeriod }

// look computes the assignment for a roster in which those that are joining count as active, if its
// members have been the same for so long. What is prepared by the last one is kept until then.
func (p *prospects) look(force *inForce, roster election.Roster, known []election.Member, holders map[shard.ID]string, now time.Time, settling time.Duration) {
	var crew []string
	for _, name := range roster.Active() {
		m, _ := roster.Get(name)
		crew = append(crew, m.Incarnation)
	}
	if p.since.IsZero() || !slices.Equal(crew, p.crew) {
		p.crew, p.since = crew, now
	}
	if now.Sub(p.since) < settling {
		return
	}
	// That the plan can be placed, the assignment of the moment has shown.
	if a, err := assignment.Of(force.plan, force.digest, roster, known, holders, p.assignment); err == nil {
		p.assignment = a
	}
}
