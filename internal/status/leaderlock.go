package status

import (
	"slices"
	"strings"
	"time"

	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
)

// LeaderLockView is the Lease of another leader election, usually that of a stock
// kube-controller-manager. The fleet works only while it holds all of its leader locks.
type LeaderLockView struct {
	Lease string `json:"lease"`
	// Holder is what the Lease says; empty if nobody holds it, or there is no such Lease.
	Holder string `json:"holder,omitempty"`
	// Held is set if the fleet holds it.
	Held bool `json:"held"`
	// Since is when the holder acquired it, Renewed when it renewed it last, both by the holder's
	// clock.
	Since   *time.Time `json:"since,omitempty"`
	Renewed *time.Time `json:"renewed,omitempty"`
	// Silent is set if the holder has not renewed it for longer than its duration, as far as clocks
	// tell.
	Silent bool `json:"silent,omitempty"`

	silence time.Duration // since it was renewed; 0 if unknown
}

// elsewhere reports whether somebody else holds the leader lock.
func (l LeaderLockView) elsewhere() bool { return l.Holder != "" && !l.Held }

// LeaderLocks returns the leader locks that live members wait for, in the members' order. If no
// member lives, it returns those of all members that have ever been there.
func (r *Reading) LeaderLocks() []LeaderLockView {
	var said, names []string
	for _, m := range r.Roster.Members() {
		said = append(said, m.Annotations[leaseapi.LeaderLocksAnnotation])
	}
	if len(said) == 0 {
		for _, m := range leaseapi.PresencesOf(r.Fleet, r.sorted) {
			said = append(said, m.Annotations[leaseapi.LeaderLocksAnnotation])
		}
	}
	for _, list := range said {
		for name := range strings.SplitSeq(list, ",") {
			if name != "" && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	var leaderLocks []LeaderLockView
	for _, name := range names {
		o, foreign := r.foreign[name]
		if !foreign {
			o = r.leases[name] // its name begins like those of the fleet
		}
		l := LeaderLockView{Lease: name, Holder: o.Holder, Held: o.Holder == leaseapi.LeaderLockIdentity(r.Fleet)}
		if l.Holder != "" {
			l.Since, l.Renewed, l.Silent = Stamp(o.AcquireTime), Stamp(o.RenewTime), o.Expired(r.AsOf, 0)
			if l.Renewed != nil {
				l.silence = max(0, r.AsOf.Sub(o.Seen))
			}
		}
		leaderLocks = append(leaderLocks, l)
	}
	return leaderLocks
}

// WaitsFor returns the first leader lock that live members wait for and somebody else holds; nil if
// there is none.
func (r *Reading) WaitsFor() *LeaderLockView {
	if len(r.Roster.Members()) == 0 {
		return nil
	}
	leaderLocks := r.LeaderLocks()
	if i := slices.IndexFunc(leaderLocks, LeaderLockView.elsewhere); i >= 0 {
		return &leaderLocks[i]
	}
	return nil
}

// unrenewed reports leader locks that live members hold and do not renew: their claims have ended.
func (f *finder) unrenewed() {
	if len(f.r.Roster.Members()) == 0 {
		return
	}
	for _, l := range f.r.LeaderLocks() {
		if l.Held && l.Silent {
			f.add(severityFor(l.silence), LeaderLockWithoutHolder, AboutLease, l.Lease, l.Renewed,
				"the fleet has not renewed its leader lock, Lease %s%s, although members live: may they update it? Nobody runs the controllers", l.Lease, forTime(l.silence))
		}
	}
}

// waits reports a leader lock that somebody else holds. That is correct while they work.
func (f *finder) waits() {
	f.unrenewed()
	l := f.r.leaderLock
	if l == nil {
		return
	}
	if !l.Silent {
		if f.r.stop.stops() {
			return // as the finding about the stop says
		}
		f.add(Note, WaitingForLeaderLock, AboutLease, l.Lease, l.Since,
			"the fleet waits for its leader lock: Lease %s is held by %s, renewed %s ago, which runs the controllers; the fleet begins when it is released", l.Lease, Plain(l.Holder), Short(l.silence))
		return
	}
	f.add(severityFor(l.silence), LeaderLockWithoutHolder, AboutLease, l.Lease, l.Renewed,
		"the fleet waits for its leader lock: the holder of Lease %s, %s, has not renewed it%s, unless its clock is wrong; nobody may be running the controllers", l.Lease, Plain(l.Holder), forTime(l.silence))
}
