package fleet

import (
	"slices"
	"time"

	"github.com/flotilla-kube/flotilla/pkg/election/membership"
	"github.com/flotilla-kube/flotilla/pkg/fleet/assignment"
	"github.com/flotilla-kube/flotilla/pkg/fleet/inforce"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// prospects are what a member that waits for the leader locks expects to own once the fleet holds
// them. It prepares for these shards. The members of a fresh fleet come one after another. If each
// prepared by the roster of the moment, the first would list the whole cluster, and most of what
// all of them list would be discarded.
type prospects struct {
	// crew are the incarnations that will be active then. since is when the crew last changed.
	crew  []string
	since time.Time
	// assignment is the one for the last crew that was stable for a while; empty at first.
	assignment assignment.Assignment
}

// settling is how long the roster must be stable before a member that waits for the leader locks
// prepares by it.
func (m *Member) settling() time.Duration { return 2 * m.config.Timing.RetryPeriod }

// look computes the assignment for a roster in which joining members count as active, once its
// members have been stable for settling. Until then the last assignment applies.
func (p *prospects) look(plan *inforce.Plan, roster membership.Roster, known []membership.Member, holders map[shard.ID]string, now time.Time, settling time.Duration) {
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
	// That a plan cannot be placed is reported with the assignment of the moment.
	if a, err := assignment.Of(plan.Plan, plan.Digest(), roster, known, holders, p.assignment); err == nil {
		p.assignment = a
	}
}
