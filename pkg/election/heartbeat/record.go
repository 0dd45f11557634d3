package heartbeat

import (
	"slices"
	"strconv"
	"time"
)

// Protocol is the version of what this package writes on Leases. Members with different protocols
// must not be in one fleet: one would wait for renewals that the other does not make.
const Protocol = 2

// Version is a Lease's resourceVersion, which the API server increases with every write to any
// object. 0 is none.
type Version uint64

// ParseVersion returns a resourceVersion as a number; 0 if it is not one.
func ParseVersion(resourceVersion string) Version {
	v, err := strconv.ParseUint(resourceVersion, 10, 64)
	if err != nil {
		return 0
	}
	return Version(v)
}

// MemberRecord is the content of a member's Lease.
type MemberRecord struct {
	// Version of the Lease. In a record to write, the update is conditional on it; 0 is a creation,
	// which fails if the Lease exists.
	Version Version
	// UID distinguishes a Lease from an earlier, deleted one.
	UID string
	// Holder is the incarnation that holds the Lease; empty after a release or a strike.
	Holder string
	// Beat is renewTime, which changes with each heartbeat. It is compared only for equality.
	Beat int64
	// Ended are the member's incarnations that have ended for good, sorted: their rights have run
	// out, and none of their writes to this Lease succeeds. It must not be changed.
	Ended []string
	// Duration is the lease duration that the holder declares.
	Duration time.Duration
	// Protocol that the holder follows; 1 if the Lease has none.
	Protocol int
}

// HasEnded reports whether the incarnation is listed as ended.
func (r MemberRecord) HasEnded(incarnation string) bool {
	_, found := slices.BinarySearch(r.Ended, incarnation)
	return found
}

// beaten returns the record of self's next heartbeat, which lists the incarnations of keep as
// ended.
func (r MemberRecord) beaten(self string, keep []string, now time.Time, duration time.Duration) MemberRecord {
	return MemberRecord{
		Version: r.Version, UID: r.UID, Holder: self, Beat: beatAt(now, r.Beat), Ended: keep, Duration: duration, Protocol: Protocol,
	}
}

// ended returns the record with the incarnation listed as ended, and without a holder if that is
// the incarnation. Nothing else changes: a strike is not a heartbeat.
func (r MemberRecord) ended(incarnation string) MemberRecord {
	r.Ended = with(r.Ended, incarnation)
	if r.Holder == incarnation {
		r.Holder = ""
	}
	return r
}

// latestBeat is the last one that a Lease can have: JSON has no year after 9999.
var latestBeat = time.Date(9999, time.December, 31, 23, 59, 59, 999999000, time.UTC).UnixMicro()

// beatAt returns the beat for a heartbeat at now. It differs from last, whatever the clock says.
func beatAt(now time.Time, last int64) int64 {
	if last >= latestBeat {
		return now.UnixMicro()
	}
	return max(now.UnixMicro(), last+1)
}

// with returns the sorted list with item added. It does not modify list.
func with(list []string, item string) []string {
	at, found := slices.BinarySearch(list, item)
	if found {
		return list
	}
	return slices.Insert(slices.Clone(list), at, item)
}

// MemberView is what this process knows about a member's Lease, with the time from which it has
// known that, by its own clock. The zero value knows nothing.
type MemberView struct {
	MemberRecord
	// Exists is false if the Lease is known not to exist. The record then has only a Version at
	// which it was absent, and Ended, which stays true.
	Exists bool
	// Seen is when this process last saw a heartbeat or a change of holder, or the Lease appear or
	// disappear; zero if nothing is known.
	Seen time.Time
	// HolderSeen is when this process first saw the current holder in this Lease.
	HolderSeen time.Time
}

// Known reports whether anything is known about the Lease.
func (v MemberView) Known() bool { return !v.Seen.IsZero() }

// Saw returns the view after the Lease was seen at now. A record that is not newer than what is
// known is ignored.
func (v MemberView) Saw(r MemberRecord, now time.Time) MemberView {
	if v.Known() && r.Version <= v.Version {
		return v
	}
	next := MemberView{MemberRecord: r, Exists: true, Seen: now, HolderSeen: now}
	if v.Exists && v.UID == r.UID && v.Holder == r.Holder {
		next.HolderSeen = v.HolderSeen
		if v.Beat == r.Beat {
			next.Seen = v.Seen
		}
	}
	return next
}

// Gone returns the view after the Lease was found not to exist at now, as of version.
func (v MemberView) Gone(version Version, now time.Time) MemberView {
	if v.Known() && (version <= v.Version || !v.Exists) {
		return v
	}
	return MemberView{MemberRecord: MemberRecord{Version: version, Ended: v.Ended}, Seen: now}
}

// endableAt returns when an incarnation may be listed as ended, by an update of the Lease as seen.
//
// If the Lease names it, or nobody, it has not renewed since the Lease was last seen to change. If
// the Lease names another incarnation, it has not renewed since that one was first seen. Its right
// runs out before the larger of the two durations has passed.
func (v MemberView) endableAt(incarnation string, leaseDuration time.Duration) time.Time {
	since := v.Seen
	if v.Holder != incarnation && v.Holder != "" {
		since = v.HolderSeen
	}
	return since.Add(max(v.Duration, leaseDuration))
}

// Foreign reports whether the Lease is that of a live member with another protocol. This process
// must not join its fleet.
func (v MemberView) Foreign(now time.Time, leaseDuration time.Duration) bool {
	return v.Exists && v.Holder != "" && v.Protocol != Protocol && now.Before(v.Seen.Add(max(v.Duration, leaseDuration)))
}

// ShardRecord is the content of a shard's Lease.
type ShardRecord struct {
	// Version is as in MemberRecord.
	Version Version
	// UID is as in MemberRecord.
	UID string
	// Holder is the incarnation that holds the shard; empty if nobody does.
	Holder string
	// Term is the number of the current or last holder's claim.
	Term int32
	// Released is set if Holder is empty because the holder of Term released the Lease. It is not
	// set if somebody else emptied it.
	Released bool
}

// held returns the record in which self holds the shard in term.
func (r ShardRecord) held(self string, term int32) ShardRecord {
	return ShardRecord{Version: r.Version, UID: r.UID, Holder: self, Term: term}
}

// released returns the record of a shard that its holder has released.
func (r ShardRecord) released() ShardRecord {
	return ShardRecord{Version: r.Version, UID: r.UID, Term: r.Term, Released: true}
}

// ShardView is what this process knows about a shard's Lease, with the time from which it has known
// that, by its own clock. The zero value knows nothing.
type ShardView struct {
	ShardRecord
	// Exists is false if the Lease is known not to exist. The record then has only a Version at
	// which it was absent.
	Exists bool
	// Seen is when this process last saw the holder, the term or Released change, or the Lease
	// appear or disappear; zero if nothing is known.
	Seen time.Time
	// HighTerm is the highest term ever seen for this shard, including on deleted Leases.
	HighTerm int32
}

// Known reports whether anything is known about the Lease.
func (v ShardView) Known() bool { return !v.Seen.IsZero() }

// Saw returns the view after the Lease was seen at now. A record that is not newer than what is
// known is ignored.
func (v ShardView) Saw(r ShardRecord, now time.Time) ShardView {
	if v.Known() && r.Version <= v.Version {
		return v
	}
	next := ShardView{ShardRecord: r, Exists: true, Seen: now, HighTerm: max(v.HighTerm, r.Term)}
	if v.Exists && v.UID == r.UID && v.Holder == r.Holder && v.Term == r.Term && v.Released == r.Released {
		next.Seen = v.Seen
	}
	return next
}

// Gone returns the view after the Lease was found not to exist at now, as of version.
func (v ShardView) Gone(version Version, now time.Time) ShardView {
	if v.Known() && (version <= v.Version || !v.Exists) {
		return v
	}
	return ShardView{ShardRecord: ShardRecord{Version: version}, Seen: now, HighTerm: v.HighTerm}
}
