package leaseapi

import (
	"sort"
	"sync"
	"time"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/election/membership"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// Snapshot is what a process knew of a fleet's Leases at one moment. It never changes, so
// everything that is concluded from one Snapshot agrees. The zero value has no Leases.
type Snapshot struct {
	fleet    string
	now      time.Time
	duration time.Duration
	leases   []election.Observation // sorted by name
	roster   func() membership.Roster
}

// NewSnapshot returns the Leases as they were known at now, by the clock of the observations. They
// must be sorted by name, and must not be changed afterwards. leaseDuration is the least time for
// which a silent holder counts as alive; 0 leaves it to what each Lease declares.
func NewSnapshot(fleet string, leases []election.Observation, leaseDuration time.Duration, now time.Time) Snapshot {
	return Snapshot{
		fleet: fleet, now: now, duration: leaseDuration, leases: leases,
		roster: sync.OnceValue(func() membership.Roster { return membership.RosterFrom(fleet, leases, leaseDuration, now) }),
	}
}

// Fleet returns the fleet's name.
func (s Snapshot) Fleet() string { return s.fleet }

// Now returns the moment.
func (s Snapshot) Now() time.Time { return s.now }

// Leases returns all Leases, sorted by name. The slice must not be changed.
func (s Snapshot) Leases() []election.Observation { return s.leases }

// Get returns the Lease of this name, or one that does not exist.
func (s Snapshot) Get(name string) election.Observation {
	// By index: an observation is large, and slices.BinarySearchFunc would copy one at each step.
	i := sort.Search(len(s.leases), func(i int) bool { return s.leases[i].Name >= name })
	if i == len(s.leases) || s.leases[i].Name != name {
		return election.Observation{}
	}
	return s.leases[i]
}

// Shard returns the Lease of a shard, or one that does not exist.
func (s Snapshot) Shard(id shard.ID) election.Observation { return s.Get(ShardLease(s.fleet, id)) }

// IsShard reports whether a Lease belongs to a shard of the fleet; see [IsShard].
func (s Snapshot) IsShard(o election.Observation) bool { return IsShard(s.fleet, o, s.Get) }

// IsHeld reports whether a Lease has a holder that is not known to be dead.
func (s Snapshot) IsHeld(o election.Observation) bool { return o.IsHeld(s.now, s.duration) }

// IsReady reports whether the holder of a Lease has everything prepared, or runs.
func (s Snapshot) IsReady(o election.Observation) bool {
	return s.IsHeld(o) && (SaysReady(o) || SaysRunning(o))
}

// IsOthers reports whether a Lease is a shard's that an incarnation other than this one holds.
func (s Snapshot) IsOthers(o election.Observation, incarnation string) bool {
	return s.IsShard(o) && s.IsHeld(o) && o.Holder != incarnation
}

// OthersShard returns a Lease for which IsOthers is true, or one that does not exist.
func (s Snapshot) OthersShard(incarnation string) election.Observation {
	for _, o := range s.leases {
		if s.IsOthers(o, incarnation) {
			return o
		}
	}
	return election.Observation{}
}

// Roster returns the live members.
func (s Snapshot) Roster() membership.Roster {
	if s.roster == nil {
		return membership.Roster{}
	}
	return s.roster()
}

// Known returns the members that exist or will presumably come back; see [KnownMembers].
func (s Snapshot) Known() []membership.Member { return KnownMembers(s.fleet, s.leases) }
