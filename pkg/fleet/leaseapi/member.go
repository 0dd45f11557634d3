package leaseapi

import (
	"slices"
	"strings"
	"time"

	"github.com/flotilla-kube/flotilla/internal/faults"
	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/election/membership"
	"github.com/flotilla-kube/flotilla/pkg/shard"
	"github.com/flotilla-kube/flotilla/pkg/shard/skew"
)

// PlanFormat is the format of plans that this build reads: 2 may have a canary.
const PlanFormat = "2"

// VersionOf returns the version that a member publishes for its build; empty if it publishes none.
func VersionOf(m membership.Member) string {
	version, _, _ := strings.Cut(m.Annotations[CatalogueAnnotation], " ")
	return version
}

// MemberOn returns the member whose Lease this is, by the Lease's name, and whether it is a
// member's.
func MemberOn(fleet string, o election.Observation) (string, bool) {
	name, ours := leaserecord.MemberOfLease(fleet, o.Name)
	return name, ours && name != ""
}

// MaxAway is how long a member that is away counts as one that will come back.
const MaxAway = 15 * time.Minute

// KnownMembers returns the members that exist or will presumably come back, each with its name and
// annotations. Shards have their homes among them. A member that is away counts as coming back if
// it has been away for at most [MaxAway] at the last sign of life of any member. All compared times
// are on the Leases, so that all members know the same ones, and come from the API server's clock.
// So a member whose own clock is wrong, or was wrong at its start, does not make others be
// forgotten.
func KnownMembers(fleet string, observations []election.Observation) []membership.Member {
	var known []membership.Member
	for _, o := range PresencesOf(fleet, observations) {
		if o.Silence <= MaxAway {
			known = append(known, membership.Member{Name: o.Member, Annotations: o.Annotations})
		}
	}
	return known
}

// Presence is the Lease of a member, and how long it had been silent at the last sign of life of
// any member.
type Presence struct {
	election.Observation
	// Member is the member's name. Silence is 0 or more.
	Member  string
	Silence time.Duration
}

// PresencesOf returns the Leases of all members that have ever been there.
func PresencesOf(fleet string, observations []election.Observation) []Presence {
	var all []Presence
	var signs []time.Time
	for _, o := range observations {
		name, ours := MemberOn(fleet, o)
		if !ours || !o.Exists {
			continue
		}
		if _, says := o.Annotations[leaserecord.StateAnnotation]; !says {
			continue // Somebody else created it, to judge a holder.
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

// lastSign returns when a Lease was last renewed, as the API server noted it with the fields that
// the writer changed. If there is no such note, it returns what the writer says.
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

// IsDrained reports whether an operator has drained the member.
func IsDrained(m membership.Member) bool {
	return m.Annotations[DrainAnnotation] != "" && !faults.DrainIgnored
}

// ServersOf returns the names of the members that serve the ring, sorted. Drained members are among
// them only if all are drained: giving a shard an owner matters more than the drain.
func ServersOf(members []membership.Member, ring string) []string {
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

// Stayers returns the names of the members that serve the ring and are there to stay, sorted. The
// planner gives shards to them. They are the known members and the live ones, whatever stamps
// others may have. A joining member is one of them if it is the home of a shard: it has restarted.
func Stayers(known []membership.Member, roster membership.Roster, ring shard.Ring) []string {
	return slices.DeleteFunc(ServersOf(slices.Concat(known, roster.Members()), ring.Name), func(name string) bool {
		member, live := roster.Get(name)
		returns := slices.ContainsFunc(ring.Shards, func(s shard.Shard) bool { return s.Home == name })
		return live && member.State == membership.Joining && !returns
	})
}

// KnownOf returns what a member publishes that its build knows; false if it publishes nothing or
// the text is invalid.
func KnownOf(m membership.Member) (skew.Known, bool) {
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
