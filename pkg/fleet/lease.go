package fleet

import (
	"strings"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
)

// isShard reports whether a Lease is that of a shard of the fleet.
func (m *Member) isShard(o election.Observation) bool {
	return leaseapi.IsShard(m.config.Fleet, o, m.observer.Get)
}

// isMemberLease reports whether a Lease is a member's, by its name.
func (m *Member) isMemberLease(name string) bool {
	return strings.HasPrefix(name, election.MemberLease(m.config.Fleet, ""))
}
