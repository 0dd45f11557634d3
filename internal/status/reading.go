package status

import (
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/election/membership"
	"github.com/flotilla-kube/flotilla/pkg/fleet/assignment"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

const (
	// maxAhead is how far a stamp on a Lease may be ahead of the clock here. What is later is
	// nonsense.
	maxAhead = 10 * time.Minute
	// quietAfter is for how long, by the clock here, nothing may have been renewed before a warning
	// says so.
	quietAfter = time.Minute
)

// Reading is what the Leases say of a fleet at one moment. It is immutable.
type Reading struct {
	Fleet string
	// Now is when it was read, by the clock here. AsOf is the moment that silence is judged by: the
	// latest renewal of any member's Lease, by that member's clock; or Now, where the reader has
	// watched the Leases itself.
	Now, AsOf time.Time
	// Plan is the plan on the plan's Lease; if it cannot be read, Fault says why.
	Plan  shard.Plan
	Fault error
	// PlanLease is the plan's Lease, nil if there is none.
	PlanLease *coordinationv1.Lease
	// Roster has the members that are not silent. Known also has those that have been away only
	// briefly.
	Roster membership.Roster
	Known  []membership.Member

	leases     map[string]election.Observation
	sorted     []election.Observation          // the fleet's, by name
	foreign    map[string]election.Observation // those with other names, among them the leader locks
	leaderLock *LeaderLockView                 // the first leader lock that somebody else holds; nil if there is none
	stop       *StopView                       // nil if nothing says that the fleet is stopped
	// lastRenewal is the latest renewal of any member; judgedByStamps reports whether AsOf is that,
	// or follows from it.
	lastRenewal    time.Time
	judgedByStamps bool
	stands         standing
	assigned       assignment.Assignment
	unassigned     error  // why nothing is assigned
	digest         string // of Plan; computing it takes long
}

// Read makes a Reading of a list of Leases, which may include Leases outside of the fleet. It
// judges expiry by the members' own timestamps; see the package comment.
func Read(fleetName string, leases []coordinationv1.Lease, now time.Time) *Reading {
	observations := make([]election.Observation, 0, len(leases))
	for i := range leases {
		observations = append(observations, observe(&leases[i], now))
	}
	r := newReading(fleetName, observations, now)
	r.AsOf, r.lastRenewal, r.judgedByStamps = r.latest(), r.latest(), true
	r.complete()
	r.begin()
	return r
}

// Observed makes a Reading of what a process has observed of the Leases for a while: it has seen
// expiries itself.
func Observed(fleetName string, observations []election.Observation, now time.Time) *Reading {
	r := newReading(fleetName, observations, now)
	r.AsOf, r.lastRenewal = now, r.latest()
	r.complete()
	r.begin()
	return r
}

// newReading picks the fleet's Leases.
func newReading(fleetName string, observations []election.Observation, now time.Time) *Reading {
	r := &Reading{Fleet: fleetName, Now: now, Fault: leaseapi.ErrNoPlan, leases: map[string]election.Observation{}, foreign: map[string]election.Observation{}}
	for _, o := range observations {
		switch {
		case !o.Exists:
		case o.Labels[leaseapi.FleetLabel] == fleetName || strings.HasPrefix(o.Name, fleetName+"-"):
			r.leases[o.Name] = o
		default:
			r.foreign[o.Name] = o
		}
	}
	for _, o := range r.leases {
		if _, member := leaseapi.MemberOn(fleetName, o); !member && o.Name != leaseapi.PlanLease(fleetName) && !r.isShard(o) {
			continue // somebody else's, with a name like ours
		}
		r.sorted = append(r.sorted, o)
	}
	r.sorted = election.Link(fleetName, r.sorted)
	for _, o := range r.sorted {
		r.leases[o.Name] = o
	}
	slices.SortFunc(r.sorted, func(a, b election.Observation) int { return CompareNatural(a.Name, b.Name) })
	return r
}

// complete computes plan and members, as of AsOf.
func (r *Reading) complete() {
	if o := r.Lease(leaseapi.PlanLease(r.Fleet)); o.Exists {
		r.PlanLease = o.Lease
		r.Plan, r.Fault = leaseapi.PlanOn(o.Lease)
		r.digest = r.Plan.Digest()
	}
	r.Roster = membership.RosterFrom(r.Fleet, r.sorted, 0, r.AsOf)
	r.Known = leaseapi.KnownMembers(r.Fleet, r.sorted)
	r.leaderLock = r.WaitsFor()
	r.stop = r.Stop()
	r.assigned, r.unassigned = assignment.Assignment{}, r.Fault
	if r.Fault == nil {
		r.assigned, r.unassigned = assignment.Of(r.Plan, r.digest, r.Roster, r.Known, r.Holders(), assignment.Assignment{})
	}
}

// Assignment returns which member should own which shard, as the members compute it. If there is no
// plan that can be read and placed, it returns the zero Assignment, without owners, and an error.
func (r *Reading) Assignment() (assignment.Assignment, error) { return r.assigned, r.unassigned }

// owner returns the member that should own a shard, as computed here; empty if there is none.
func (r *Reading) owner(id shard.ID) string { return r.assigned.Owner(id) }

// Leases returns the fleet's Leases, sorted by name. The slice must not be changed.
func (r *Reading) Leases() []election.Observation { return r.sorted }

// observe uses the writer's timestamp as the moment at which the Lease was seen to change; see the
// package comment.
func observe(lease *coordinationv1.Lease, now time.Time) election.Observation {
	o := election.Observation{Record: leaserecord.From(lease), Exists: true, Lease: lease}
	if o.RenewTime.After(now.Add(maxAhead)) {
		o.RenewTime = time.Time{}
	}
	o.Seen, o.HolderSeen = o.RenewTime, o.AcquireTime
	if o.Seen.IsZero() {
		o.Seen = time.Unix(0, 0) // zero would mean unknown
	}
	o.Renewed = o.Seen
	return o
}

// isShard reports whether a Lease is that of a shard of the fleet, by the same rule as members.
func (r *Reading) isShard(o election.Observation) bool { return leaseapi.IsShard(r.Fleet, o, r.Lease) }

// latest returns the latest renewal of the members' Leases, or of all if there are none: others'
// writes are not by members' clocks.
func (r *Reading) latest() time.Time {
	var ofMembers, ofAll time.Time
	for _, o := range r.sorted {
		if o.Seen.After(ofAll) {
			ofAll = o.Seen
		}
		if name, member := leaseapi.MemberOn(r.Fleet, o); member && leaserecord.MemberOf(o.Holder) == name && o.Seen.After(ofMembers) {
			ofMembers = o.Seen
		}
	}
	if ofMembers.IsZero() {
		return ofAll
	}
	return ofMembers
}

// Lease returns the fleet's Lease with this name, or one that does not exist.
func (r *Reading) Lease(name string) election.Observation { return r.leases[name] }

// ShardLease returns the Lease of a shard, or one that does not exist.
func (r *Reading) ShardLease(id shard.ID) election.Observation {
	return r.Lease(leaseapi.ShardLease(r.Fleet, id))
}

// IsHeld reports whether a Lease has a holder that is not silent.
func (r *Reading) IsHeld(o election.Observation) bool { return o.IsHeld(r.AsOf, 0) }

// Older returns the held Leases of shards that are not in the plan, by name: those of older plan
// generations.
func (r *Reading) Older() []election.Observation {
	planned := map[string]shard.Extent{}
	for id, extent := range r.Plan.Extents() {
		planned[leaseapi.ShardLease(r.Fleet, id)] = extent
	}
	var found []election.Observation
	for _, o := range r.sorted {
		if !r.isShard(o) || !r.IsHeld(o) {
			continue
		}
		extent, named := planned[o.Name]
		// A Lease with another extent is from before the plan was started again.
		if !named || !leaseapi.CoverOn(o).Same(extent) {
			found = append(found, o)
		}
	}
	return found
}

// Covering returns the Leases that cover some of the extent, except the one with this name.
func Covering(leases []election.Observation, name string, e shard.Extent) []election.Observation {
	var found []election.Observation
	for _, o := range leases {
		if o.Name != name && leaseapi.CoverOn(o).Overlaps(e) {
			found = append(found, o)
		}
	}
	return found
}

// Holders returns the member that holds each shard of the plan.
func (r *Reading) Holders() map[shard.ID]string {
	holders := map[shard.ID]string{}
	for _, s := range r.Plan.Shards() {
		if o := r.ShardLease(s.ID); r.IsHeld(o) {
			holders[s.ID] = leaserecord.MemberOf(o.Holder)
		}
	}
	return holders
}

// Stayers returns the members that serve the ring and are there to stay, sorted: those that the
// planner gives shards to.
func (r *Reading) Stayers(ring shard.Ring) []string {
	return leaseapi.Stayers(r.Known, r.Roster, ring)
}

// Weights returns the weights of the ring's namespaces and of what members carry in addition, as
// the planner uses them, and the shards whose holders have not published their weights yet.
func (r *Reading) Weights(ring shard.Ring) (leaseapi.Weights, []shard.ID) {
	weights, complete := leaseapi.WeightsOf(r.Fleet, r.Plan, ring, r.Lease, func(id shard.ID) string {
		return r.assigned.Carrier(r.Plan, id)
	})
	if complete {
		return weights, nil
	}
	var missing []shard.ID
	for _, id := range ring.IDs() {
		if _, published := leaseapi.CensusOn(r.ShardLease(id)); !published {
			missing = append(missing, id)
		}
	}
	return weights, missing
}

// WeightsAmong returns what Weights would return with these members: what others carry goes to
// where the plan places it among them.
func (r *Reading) WeightsAmong(ring shard.Ring, members []string) leaseapi.Weights {
	weights, _ := leaseapi.WeightsOf(r.Fleet, r.Plan, ring, r.Lease, func(id shard.ID) string {
		if carrier := r.assigned.Carrier(r.Plan, id); slices.Contains(members, carrier) {
			return carrier
		}
		homes, _ := r.Plan.HomesOf(id.Ring, members)
		member, _ := homes.Owner(id)
		return member
	})
	return weights
}

// Silence returns for how long no member has renewed its Lease, if that is long, and whether it was
// seen to be so. Otherwise it is by the clock here, which may be wrong: once a renewal has been
// seen, that clock decides nothing.
func (r *Reading) Silence() (d time.Duration, seen bool) {
	if still := r.Now.Sub(r.stands.still); still >= StandsAfter {
		return still, true
	}
	if silence := r.Now.Sub(r.AsOf); !r.stands.moved && !r.AsOf.IsZero() && silence > quietAfter {
		return silence, false
	}
	return 0, false
}

// HasHeartbeats reports whether holders of shards live by their members' heartbeats. In a fleet of
// an earlier build they renew the shards' Leases.
func (r *Reading) HasHeartbeats() bool {
	return slices.ContainsFunc(r.sorted, func(o election.Observation) bool { return o.Heartbeat != nil })
}

// Names reports whether a Lease with this name is, or was, one of the fleet's: Leases of shards
// that left the plan lose their labels, and are deleted.
func (r *Reading) Names(name string) bool {
	return strings.HasPrefix(name, r.Fleet+"-") && !r.Lease(name).OfOtherFleet(r.Fleet)
}

// Fleets reports whether a Lease is one of the fleet: of its plan, of a member or of a shard.
func (r *Reading) Fleets(o election.Observation) bool {
	_, member := leaseapi.MemberOn(r.Fleet, o)
	return member || o.Name == leaseapi.PlanLease(r.Fleet) || o.Labels[leaseapi.FleetLabel] == r.Fleet || r.isShard(o)
}
