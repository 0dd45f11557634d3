package leaseapi

import (
	"slices"
	"strings"
	"time"

	"github.com/flotilla-kube/flotilla/internal/faults"
	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/shard"
	"github.com/flotilla-kube/flotilla/pkg/shard/skew"
)

// PlanFormat is the form of plans that this build reads: 2 may have a canary.
const PlanFormat = "2"

// VersionOf returns the version of a member's build, as it publishes it; empty if it does not.
func VersionOf(m election.Member) string {
	version, _, _ := strings.Cut(m.Annotations[CatalogueAnnotation], " ")
	return version
}

// MemberOn returns the member that a Lease is for, by its name, and whether it is for one.
func MemberOn(fleet string, o election.Observation) (string, bool) {
	name, ours := strings.CutPrefix(o.Name, election.MemberLease(fleet, ""))
	return name, ours && name != ""
}

// MaxAway is how long a member that is away counts as one that will come back.
const MaxAway = 15 * time.Minute

// KnownMembers returns the members that there are, and those that have been away for no longer than
// [MaxAway] at the last sign of life of any, so that they count as ones that will come back, each
// with its name and annotations. Shards have their homes among them. What is compared stands on the
// Leases, so that all members know the same ones, and is of the API server's clock: a member whose
// own is wrong, or was when its process began, makes no other be forgotten.
func KnownMembers(fleet string, observations []election.Observation) []election.Member {
	var known []election.Member
	for _, o := range PresencesOf(fleet, observations) {
		if o.Silence <= MaxAway {
			known = append(known, election.Member{Name: o.Member, Annotations: o.Annotations})
		}
	}
	return known
}

// Presence is the Lease of a member, and for how long that had been silent at the last sign of
// life of any.
type Presence struct {
	election.Observation
	// Member is its name, Silence 0 or more.
	Member  string
	Silence time.Duration
}

// PresencesOf returns the Leases of all members that there have been.
func PresencesOf(fleet string, observations []election.Observation) []Presence {
	var all []Presence
	var signs []time.Time
	for _, o := range observations {
		name, ours := MemberOn(fleet, o)
		if !ours || !o.Exists {
			continue
		}
		if _, says := o.Annotations[election.StateAnnotation]; !says {
			continue // Somebody has written it for a holder that was to be judged.
		}
		all, signs = append(all, Presence{Observation: o, Member: name}), append(signs, lastSign(o))
	}
	if len(all) == 0 {
		return nil
	}
	last := slices.MaxFunc(signs, time.Time.Compare)
	for i := range all {
		all[i].Silence = last.Sub(signs[i])
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

// IsDrained reports whether an operator has asked that the member gets no shards.
func IsDrained(m election.Member) bool {
	return m.Annotations[DrainAnnotation] != "" && !faults.DrainIgnored
}

// ServersOf returns the names of those members that serve the ring, sorted. Drained members are
// among them only where all are drained: that a shard has an owner is worth more than what was
// asked for.
func ServersOf(members []election.Member, ring string) []string {
	var names, drained []string
	for _, m := range members {
		rings := m.Annotations[RingsAnnotation]
		if rings != "" && !faults.RingsIgnored && !slices.Contains(strings.Split(rings, ","), ring) {
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

// KnownOf returns what a member says that its build knows; false if it says nothing, or nonsense.
func KnownOf(m election.Member) (skew.Known, bool) {
	text := m.Annotations[CatalogueAnnotation]
	if text == "" {
		return skew.Known{}, false
	}
	known, err := skew.ParseKnown(text)
	return known, err == nil
}

// LeaderLockIdentity returns the name under which all members of a fleet together hold a leader
// lock: "<fleet>_fleet".
func LeaderLockIdentity(fleet string) string { return fleet + "_fleet" }
