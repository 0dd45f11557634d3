package fleet

import (
	"time"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// Afresh returns what the rings would want if these were all members of the fleet, all of one
// build, and nobody held anything.
func Afresh(fleet string, plan shard.Plan, members []string) (Wishes, error) {
	at := time.Time{}.Add(time.Hour) // any: all have come then, and it is now
	var leases []election.Observation
	for _, name := range members {
		leases = append(leases, election.Observation{
			Record: election.Record{
				Name:        election.MemberLease(fleet, name),
				Holder:      name + "_afresh",
				Annotations: map[string]string{election.StateAnnotation: string(election.MemberActive)},
			},
			Exists: true,
			Seen:   at,
		})
	}
	return Of(plan, election.RosterFrom(fleet, leases, time.Minute, at), nil, nil, Wishes{})
}
