package election

import (
	"math"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/flotilla-kube/flotilla/internal/apiresponse"
	"github.com/flotilla-kube/flotilla/pkg/election/fence"
	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
)

// Observation is what this process knows about one Lease, with the time from which it has known
// that, by its own clock. It is a value, but Lease and the maps of Record are shared and must not
// be changed.
type Observation struct {
	leaserecord.Record
	// Exists is false if the Lease is known not to exist, or nothing is known. Record then has only
	// Name, ResourceVersion and the incarnations that the Lease listed as ended.
	Exists bool
	// Seen is when this process last saw the Lease's spec change, appear or disappear. Zero means
	// that nothing is known yet, neither that the Lease exists nor that it does not.
	Seen time.Time
	// Renewed is when this process last saw the Lease's renewTime change, or the Lease appear: the
	// writer's last sign of life.
	Renewed time.Time
	// HolderSeen is when this process first saw the present holder in its present term.
	HolderSeen time.Time
	// HighTerm is the highest leaseTransitions this process has ever seen under this name,
	// including on deleted Leases.
	HighTerm int32
	// Heartbeat is the observation of the Lease of the holder's member, which decides whether the
	// holder lives. It is nil for members' Leases and those in ObserverConfig.Extra, which are
	// renewed themselves, and if the holder is not a member's incarnation.
	Heartbeat *Observation
	// Lease is the object that Record was read from; nil if it does not exist.
	Lease *coordinationv1.Lease
}

// Known reports whether anything is known about the Lease.
func (o Observation) Known() bool {
	return !o.Seen.IsZero()
}

// ExpiresAt returns when this process may regard the holder as gone if it sees no further change:
// Seen plus the larger of the declared duration and atLeast, the reader's own LeaseDuration. For a
// Lease without a holder it returns Seen; for one that does not exist, Seen plus atLeast. If the
// holder lives by a heartbeat, it returns when the holder may be listed as ended or, once it is
// listed, when this process saw that.
func (o Observation) ExpiresAt(atLeast time.Duration) time.Time {
	switch {
	case !o.Exists:
		return o.Seen.Add(atLeast)
	case o.Holder == "":
		return o.Seen
	case o.Heartbeat != nil && o.HolderEnded() && o.Heartbeat.Holder != "":
		return o.Heartbeat.HolderSeen
	case o.Heartbeat != nil:
		return o.Heartbeat.ExpiresAt(atLeast)
	default:
		return o.Seen.Add(max(o.Duration, atLeast))
	}
}

// Expired reports whether nobody can hold the Lease at now. A Lease about which nothing is known
// has not expired. A holder that lives by a heartbeat has ended once its member's Lease says so,
// and not before.
func (o Observation) Expired(now time.Time, atLeast time.Duration) bool {
	if o.Heartbeat != nil {
		return o.HolderEnded()
	}
	return o.Known() && !now.Before(o.ExpiresAt(atLeast))
}

// IsHeld reports whether the Lease has a holder and has not expired at now.
func (o Observation) IsHeld(now time.Time, atLeast time.Duration) bool {
	return o.Exists && o.Holder != "" && !o.Expired(now, atLeast)
}

// HolderEnded reports whether the Lease of the holder's member lists the holder as ended.
func (o Observation) HolderEnded() bool {
	return o.Heartbeat != nil && o.Holder != "" && o.Heartbeat.HasEnded(o.Holder)
}

// LastSign returns when this process last saw a sign of life of the Lease's holder, or of whoever
// released or emptied it. If another incarnation of the holder's member has since replaced the
// holder, the result is an estimate: a lease duration before that.
func (o Observation) LastSign() time.Time {
	switch h := o.Heartbeat; {
	case h == nil || !h.Exists:
		return o.Seen
	case h.Holder != "" && h.Holder != o.Holder:
		return h.HolderSeen.Add(-h.Duration)
	default:
		return h.Renewed
	}
}

// LastStamp returns the timestamp, for people, of the last sign of life of the Lease's holder, or
// of whoever released it. Like LastSign it is an estimate once another incarnation has replaced the
// holder.
func (o Observation) LastStamp() time.Time {
	switch h := o.Heartbeat; {
	case h == nil || !h.Exists:
		return o.RenewTime
	case h.Holder != "" && h.Holder != o.Holder:
		return h.AcquireTime.Add(-h.Duration)
	default:
		return h.RenewTime
	}
}

// Link returns the observations of a fleet's Leases with the Heartbeat of each, as an Observer has
// them. It returns them unchanged if no member has a heartbeat, as in a fleet of an older build.
func Link(fleet string, observations []Observation) []Observation {
	known, follow := map[string]*Observation{}, false
	for i, o := range observations {
		known[o.Name] = &observations[i]
		follow = follow || leaserecord.IsMemberLease(fleet, o.Name) && o.Protocol() > 1
	}
	if !follow {
		return observations
	}
	linked := slices.Clone(observations)
	for i, o := range linked {
		linked[i] = o.linked(fleet, nil, o.Seen, func(name string) *Observation { return known[name] })
	}
	return linked
}

// linked returns the observation with its Heartbeat, which known finds by name. If known returns
// nil, the Heartbeat is a Lease that has been absent since absent.
func (o Observation) linked(fleet string, extra []string, absent time.Time, known func(name string) *Observation) Observation {
	member := leaserecord.MemberOf(o.Holder)
	if o.Heartbeat != nil || member == "" || leaserecord.IsMemberLease(fleet, o.Name) || slices.Contains(extra, o.Name) {
		return o
	}
	name := leaserecord.MemberLease(fleet, member)
	if o.Heartbeat = known(name); o.Heartbeat == nil {
		o.Heartbeat = &Observation{Record: leaserecord.Record{Name: name}, Seen: absent}
	}
	return o
}

// Saw returns the observation after the Lease was seen at now, and reports whether that changed it.
// It ignores a Lease that is not newer than the one known: knowledge never goes back.
func (o Observation) Saw(lease *coordinationv1.Lease, now time.Time) (Observation, bool) {
	if !apiresponse.Newer(lease.ResourceVersion, o.ResourceVersion) {
		return o, false
	}
	next := Observation{Record: leaserecord.From(lease), Exists: true, Seen: now, Renewed: now, HolderSeen: now, Lease: lease}
	next.HighTerm = max(o.HighTerm, next.Transitions)
	if o.Exists {
		if o.Lease != nil && o.Lease.UID == lease.UID && equality.Semantic.DeepEqual(o.Lease.Spec, lease.Spec) {
			next.Seen = o.Seen
		}
		if o.Lease != nil && o.Lease.UID == lease.UID && o.RenewTime.Equal(next.RenewTime) {
			next.Renewed = o.Renewed
		}
		if o.Lease != nil && o.Lease.UID == lease.UID && o.Holder == next.Holder && o.Transitions == next.Transitions {
			next.HolderSeen = o.HolderSeen
		}
	}
	return next, true
}

// Gone returns the observation after the Lease was found absent at now, as of version, and reports
// whether that changed it. An absence older than what is known is ignored; an empty version counts
// as newest.
func (o Observation) Gone(version string, now time.Time) (Observation, bool) {
	if o.Known() && !o.Exists || version != "" && !apiresponse.Newer(version, o.ResourceVersion) {
		return o, false
	}
	if version == "" {
		version = o.ResourceVersion
	}
	gone := Observation{Record: leaserecord.Record{Name: o.Name, ResourceVersion: version}, Seen: now, HighTerm: o.HighTerm}
	if gone.HighTerm == math.MaxInt32 {
		gone.HighTerm = 0 // no term is greater: who deletes such a Lease wants terms to start again
	}
	if ended, listed := o.Annotations[leaserecord.EndedAnnotation]; listed {
		gone.Annotations = map[string]string{leaserecord.EndedAnnotation: ended} // an incarnation that has ended stays ended
	}
	return gone, true
}

// IsMore reports whether two observations of a Lease differ by more than a renewal and the ignored
// annotations. A hundred members make fifty renewals a second, which concern only those who watch
// for expiry.
func IsMore(before, after Observation, ignored ...string) bool {
	return before.Exists != after.Exists || before.uid() != after.uid() || before.Holder != after.Holder || before.Transitions != after.Transitions ||
		misses(before.Annotations, after.Annotations, ignored) || misses(after.Annotations, before.Annotations, ignored)
}

// uid returns the Lease's UID; empty if it does not exist.
func (o Observation) uid() types.UID {
	if o.Lease == nil {
		return ""
	}
	return o.Lease.UID
}

// misses reports whether one has not all values of other, apart from ignored keys.
func misses(one, other map[string]string, ignored []string) bool {
	for key, value := range other {
		if has, exists := one[key]; (!exists || has != value) && !slices.Contains(ignored, key) {
			return true
		}
	}
	return false
}

// Writes returns the writes that the last holder left on a released Lease, and reports whether they
// prove anything. They do not if the Lease was not released, or if they are from an earlier term or
// cannot be read.
func (o Observation) Writes() (fence.Writes, bool) {
	text, left := o.Annotations[leaserecord.WritesAnnotation]
	if !left || !o.Exists || o.Holder != "" {
		return fence.Writes{}, false
	}
	return fence.ParseWrites(text, o.Transitions)
}
