package fleet

import (
	"slices"
	"strings"
	"time"

	"github.com/flotilla-kube/flotilla/internal/plant"
	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// Labels and annotations of a fleet's Leases. See also those of package election.
const (
	// FleetLabel names the fleet, on every Lease of it.
	FleetLabel = "flotilla.dev/fleet"
	// RingLabel and ShardLabel name what a shard's Lease is for.
	RingLabel  = "flotilla.dev/ring"
	ShardLabel = "flotilla.dev/shard"
	// RangeAnnotation is the shard's part of the keyspace; it is missing where the
	// shard is a group of cluster-scoped controllers.
	RangeAnnotation = "flotilla.dev/range"
	// ControllersAnnotation lists the shard's controllers, sorted, comma separated. With the range it says what the
	// Lease covers, whichever plan the reader knows.
	ControllersAnnotation = "flotilla.dev/controllers"
	// PlanAnnotation is the digest of the plan that a member, or a shard's holder, works by.
	PlanAnnotation = "flotilla.dev/plan"
	// GenerationAnnotation is the generation of that plan; on the plan's Lease, of the plan there.
	GenerationAnnotation = "flotilla.dev/plan-generation"
	// ReadyAnnotation has the term of a holder that waits, with everything prepared, for the Leases that its shard
	// inherits from.
	ReadyAnnotation = "flotilla.dev/ready"
	// RunningAnnotation has the term of a holder that runs the shard.
	RunningAnnotation = "flotilla.dev/running"
	// CensusAnnotation has what the shard's namespaces weigh, see [shard.Census].
	CensusAnnotation = "flotilla.dev/census"
	// MemoryAnnotation has what a shard takes of its holder's memory, see [ShardMemory]; on a member's Lease, what the member
	// takes, see [Memory]. It stays when a shard changes hands, until the new holder has counted.
	MemoryAnnotation = "flotilla.dev/memory"
	// RingsAnnotation lists the rings that a member serves, comma separated; it is missing where it serves all.
	RingsAnnotation = "flotilla.dev/rings"
	// LeaderLocksAnnotation lists the foreign Leases that a member waits for, comma separated; it
	// is missing where it waits for none. Members that differ are a mistake of whoever set them up.
	LeaderLocksAnnotation = "flotilla.dev/leader-locks"
	// NodeAnnotation and ZoneAnnotation say where a member runs; they are missing where it does not know.
	NodeAnnotation = "flotilla.dev/node"
	ZoneAnnotation = "flotilla.dev/zone"
	// DrainAnnotation is set by an operator on a member's Lease: whatever its value, the member gets no shards and hands over
	// those that it has. It stays until an operator removes it, also when the member is started anew.
	DrainAnnotation = "flotilla.dev/drain"
	// RefusedAnnotation says which plan generation a member refuses, and why.
	RefusedAnnotation = "flotilla.dev/refused-plan"
)

// ShardLease returns the name of a shard's Lease: "<fleet>-<ring>-<shard>".
func ShardLease(fleet string, id shard.ID) string {
	return fleet + "-" + id.Ring + "-" + id.Name
}

func shardLabels(fleet string, id shard.ID) map[string]string {
	return map[string]string{FleetLabel: fleet, RingLabel: id.Ring, ShardLabel: id.Name}
}

// isShard tells whether a Lease is that of a shard of the fleet: by its labels, or, should somebody have stripped them, because
// a member of the fleet holds it.
func (m *Member) isShard(o election.Observation) bool {
	of, labelled := o.Labels[FleetLabel]
	switch {
	case labelled:
		return of == m.config.Fleet && o.Labels[RingLabel] != ""
	case !strings.HasPrefix(o.Name, m.config.Fleet+"-") || o.Name == PlanLease(m.config.Fleet) || m.isMemberLease(o.Name):
		return false
	}
	holder := election.MemberOf(o.Holder)
	return holder != "" && m.observer.Get(election.MemberLease(m.config.Fleet, holder)).Exists
}

// isMemberLease reports whether a Lease is a member's, by its name.
func (m *Member) isMemberLease(name string) bool {
	return strings.HasPrefix(name, election.MemberLease(m.config.Fleet, ""))
}

// coverOf returns what a shard's Lease says that it covers. What it does not say, or nobody can read, is everything.
func coverOf(o election.Observation) cover {
	c := cover{any: o.Annotations[ControllersAnnotation] == ""}
	if text, ranged := o.Annotations[RangeAnnotation]; ranged {
		var err error
		if c.Range, err = shard.ParseRange(text); err != nil {
			return cover{any: true}
		}
	}
	c.Controllers = strings.Split(o.Annotations[ControllersAnnotation], ",")
	return c
}

// cover is the extent that a Lease tells of.
type cover struct {
	shard.Extent
	// any is set where it cannot be read, or may be any controller's.
	any bool
}

func (c cover) overlaps(e shard.Extent) bool {
	if c.any {
		return c.Range.Overlaps(e.Range)
	}
	return c.Overlaps(e)
}

// memory is how long a member that is away counts as one that will come back.
const memory = 15 * time.Minute

// KnownMembers returns the members that there are, and those that have been away for so short a time that they count as ones
// that will come back: until a while after the last sign of life of any, each with its name and annotations. Shards have
// their homes among them. What is compared stands on the Leases, so that all members know the same
// ones, and is of the API server's clock: a member whose own is wrong, or was when its process
// began, makes no other be forgotten.
func KnownMembers(fleet string, observations []election.Observation) []election.Member {
	var known []election.Member
	for _, o := range memberLeases(fleet, observations) {
		if o.silence <= memory {
			known = append(known, election.Member{Name: o.member, Annotations: o.Annotations})
		}
	}
	return known
}

// memberLease is the Lease of a member, and for how long that had been silent at the last sign of
// life of any.
type memberLease struct {
	election.Observation
	member  string
	silence time.Duration
}

// memberLeases returns the Leases of all members that there have been.
func memberLeases(fleet string, observations []election.Observation) []memberLease {
	var all []memberLease
	var signs []time.Time
	for _, o := range observations {
		name, ours := strings.CutPrefix(o.Name, election.MemberLease(fleet, ""))
		if !ours || !o.Exists {
			continue
		}
		if _, says := o.Annotations[election.StateAnnotation]; !says {
			continue // Somebody has written it for a holder that was to be judged.
		}
		all, signs = append(all, memberLease{Observation: o, member: name}), append(signs, lastSign(o))
	}
	if len(all) == 0 {
		return nil
	}
	last := slices.MaxFunc(signs, time.Time.Compare)
	for i := range all {
		all[i].silence = last.Sub(signs[i])
	}
	return all
}

// lastSign returns when a Lease was renewed last, as the API server has noted beside the fields
// that the writer changed; or else what the writer says itself.
func lastSign(o election.Observation) time.Time {
	var last time.Time
	if o.Lease != nil {
		for _, entry := range o.Lease.ManagedFields {
			if entry.Time != nil && entry.Time.After(last) && entry.FieldsV1 != nil && strings.Contains(entry.FieldsV1.GetRawString(), `"f:renewTime"`) {
				last = entry.Time.Time
			}
		}
	}
	if last.IsZero() {
		return o.RenewTime
	}
	return last
}

// IsDrained tells whether an operator has asked that the member gets no shards.
func IsDrained(m election.Member) bool {
	return m.Annotations[DrainAnnotation] != "" && !plant.DrainIgnored
}

// ServersOf returns the names of those members that serve the ring, sorted. Drained members are among them only where
// all are drained: that a shard has an owner is worth more than what was asked for.
func ServersOf(members []election.Member, ring string) []string {
	var names, drained []string
	for _, m := range members {
		if rings := m.Annotations[RingsAnnotation]; rings != "" && !plant.RingsIgnored && !slices.Contains(strings.Split(rings, ","), ring) {
			continue
		}
		if IsDrained(m) {
			drained = append(drained, m.Name)
		} else {
			names = append(names, m.Name)
		}
	}
	if len(names) == 0 {
		names = drained
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Stayers returns the names of the members that serve the ring and are there to stay, sorted: the
// planner gives shards to them. They are the known ones and those that live, whatever stamps others
// may bear. A joining member is one of them if it is the home of a shard: it was restarted.
func Stayers(known []election.Member, roster election.Roster, ring shard.Ring) []string {
	return slices.DeleteFunc(ServersOf(slices.Concat(known, roster.Members()), ring.Name), func(name string) bool {
		member, live := roster.Get(name)
		returns := slices.ContainsFunc(ring.Shards, func(s shard.Shard) bool { return s.Home == name })
		return live && member.State == election.MemberJoining && !returns
	})
}
