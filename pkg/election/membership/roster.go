package membership

import (
	"slices"
	"strings"
	"time"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
)

// State is the state that a member declares on its Lease.
type State string

const (
	// Joining: has just started and must not cause moves yet. Any unknown value counts as
	// joining.
	Joining State = "joining"
	// Active: counts for the ring.
	Active State = "active"
	// Leaving: hands over its shards and gets no others.
	Leaving State = "leaving"
)

// Member is one live member as this process sees it.
type Member struct {
	// Name is the member's name: its pod's.
	Name string
	// Incarnation is the process start that holds the member's Lease.
	Incarnation string
	// State that the member declares.
	State State
	// Since is when this process first saw the incarnation hold its Lease.
	Since time.Time
	// Acquired is when it acquired its Lease, by its own clock. Compare it only with other members'
	// Acquired.
	Acquired time.Time
	// Annotations of its Lease. They must not be changed.
	Annotations map[string]string
	// LastSeen is when this process last saw the member renew its Lease.
	LastSeen time.Time
}

// Roster is an immutable snapshot of the live members, as this process has observed them. Its zero
// value has none.
type Roster struct {
	members []Member
	next    time.Time
}

// RosterFrom returns the members that are live at now: the holders of the fleet's member Leases
// that have not expired. atLeast is the reader's own LeaseDuration, see Observation.ExpiresAt.
// RosterFrom skips a Lease whose holder is not an incarnation of the member it is named after, and
// one without a state, which a judge has restored. It is pure, and the order of observations does
// not matter.
func RosterFrom(fleet string, observations []election.Observation, atLeast time.Duration, now time.Time) Roster {
	var r Roster
	for _, obs := range observations {
		name, ok := leaserecord.MemberOfLease(fleet, obs.Name)
		if !ok || !obs.Exists || obs.Holder == "" || leaserecord.MemberOf(obs.Holder) != name || obs.Expired(now, atLeast) {
			continue
		}
		word, says := obs.Annotations[leaserecord.StateAnnotation]
		if !says {
			continue
		}
		state := State(word)
		if state != Active && state != Leaving {
			state = Joining
		}
		r.members = append(r.members, Member{
			Name:        name,
			Incarnation: obs.Holder,
			State:       state,
			Since:       obs.HolderSeen,
			Acquired:    obs.AcquireTime,
			Annotations: obs.Annotations,
			LastSeen:    obs.Seen,
		})
		if at := obs.ExpiresAt(atLeast); r.next.IsZero() || at.Before(r.next) {
			r.next = at
		}
	}
	slices.SortFunc(r.members, func(a, b Member) int { return strings.Compare(a.Name, b.Name) })
	return r
}

// Members returns all members, sorted by name. The slice is the caller's.
func (r Roster) Members() []Member {
	return slices.Clone(r.members)
}

// Get returns the member of this name, and whether it is live.
func (r Roster) Get(name string) (Member, bool) {
	i, ok := slices.BinarySearchFunc(r.members, name, func(m Member, name string) int { return strings.Compare(m.Name, name) })
	if !ok {
		return Member{}, false
	}
	return r.members[i], true
}

// Live returns the names of all members, sorted.
func (r Roster) Live() []string {
	return r.names(Joining, Active, Leaving)
}

// Active returns the names of the members that count for the ring, sorted: the active ones, or the
// joining ones if none is active. Leaving members never count.
func (r Roster) Active() []string {
	if active := r.names(Active); len(active) > 0 {
		return active
	}
	return r.names(Joining)
}

// IsNew reports whether a member gets no shard yet, because it joins others that are active.
func (r Roster) IsNew(name string) bool {
	m, live := r.Get(name)
	return live && m.State == Joining && len(r.names(Active)) > 0
}

// Grown returns the roster as it will be once all joining members are active.
func (r Roster) Grown() Roster {
	r.members = slices.Clone(r.members)
	for i := range r.members {
		if r.members[i].State == Joining {
			r.members[i].State = Active
		}
	}
	return r
}

// NextChange returns when the first member expires unless it renews before. Build the roster again
// then if nothing is observed until then. It is zero for an empty roster.
func (r Roster) NextChange() time.Time {
	return r.next
}

func (r Roster) names(states ...State) []string {
	var names []string
	for _, m := range r.members {
		if slices.Contains(states, m.State) {
			names = append(names, m.Name)
		}
	}
	return names
}
