package main

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/flotilla-kube/flotilla/test/harness"
)

// leaderLockTerm is what a leader lock is known by: whoever acquires it changes one of these.
type leaderLockTerm struct {
	holder      string
	transitions int32
	acquired    time.Time
}

// equal reports whether both are the same term of the same holder.
func (t leaderLockTerm) equal(other leaderLockTerm) bool {
	return t.holder == other.holder && t.transitions == other.transitions && t.acquired.Equal(other.acquired)
}

// leaderLockState is what the audit log has told of a leader lock's Lease so far. A Lease that was
// deleted has no holder.
type leaderLockState struct {
	leaderLockTerm
	// written is when the request arrived that made it so, renewed when the last renewal was
	// answered.
	written, renewed time.Time
	stamp            time.Time // the renewal's own
	version          uint64
}

// leaderLockChange is a change of a leader lock's term.
type leaderLockChange struct {
	from, to leaderLockTerm
	at       time.Time
}

// addLeaderLock records a write of the leader lock's Lease.
func (j *journal) addLeaderLock(e *harness.Event) {
	before := j.leaderLock
	if e.Verb == "delete" {
		if before.written.After(e.RequestReceivedTimestamp.Time) {
			return // It has been written again, which was logged first.
		}
		j.changeLeaderLock(leaderLockState{written: e.RequestReceivedTimestamp.Time, renewed: before.renewed, version: before.version}, e)
		return
	}
	var lease coordinationv1.Lease
	version := e.Version()
	if version == 0 || e.Answer(&lease) != nil || version <= before.version {
		return
	}
	now := leaderLockState{
		leaderLockTerm: leaderLockTerm{
			holder: ptr.Deref(lease.Spec.HolderIdentity, ""), transitions: ptr.Deref(lease.Spec.LeaseTransitions, 0),
			acquired: ptr.Deref(lease.Spec.AcquireTime, metav1.MicroTime{}).Time,
		},
		written: e.RequestReceivedTimestamp.Time, renewed: e.StageTimestamp.Time, version: version,
		stamp: ptr.Deref(lease.Spec.RenewTime, metav1.MicroTime{}).Time,
	}
	if now.equal(before.leaderLockTerm) && now.stamp.Equal(before.stamp) {
		now.renewed = before.renewed
	}
	j.changeLeaderLock(now, e)
}

func (j *journal) changeLeaderLock(now leaderLockState, e *harness.Event) {
	if !now.equal(j.leaderLock.leaderLockTerm) {
		j.leaderLockChanges = append(j.leaderLockChanges, leaderLockChange{from: j.leaderLock.leaderLockTerm, to: now.leaderLockTerm, at: e.StageTimestamp.Time})
	}
	j.leaderLock = now
}

// leaderLockNow returns what the leader lock's Lease says.
func (j *journal) leaderLockNow() leaderLockState {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.leaderLock
}

// leaderLockChangesSince returns the changes of the leader lock's term from a time on, in the log's
// order.
func (j *journal) leaderLockChangesSince(since time.Time) []leaderLockChange {
	j.mu.Lock()
	defer j.mu.Unlock()
	var found []leaderLockChange
	for _, c := range j.leaderLockChanges {
		if !c.at.Before(since) {
			found = append(found, c)
		}
	}
	return found
}

// writesBetween returns how many writes the fleet's members have made that arrived between two
// times.
func (j *journal) writesBetween(from, to time.Time) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	n := 0
	for _, at := range j.fleetWrites {
		if at.After(from) && at.Before(to) {
			n++
		}
	}
	return n
}
