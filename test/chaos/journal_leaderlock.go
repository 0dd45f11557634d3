package main

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/flotilla-kube/flotilla/test/harness"
)

// leaderLockTerm identifies a term of a leader lock: every acquisition changes one of these fields.
type leaderLockTerm struct {
	holder      string
	transitions int32
	acquired    time.Time
}

// equal reports whether both are the same term of the same holder.
func (t leaderLockTerm) equal(other leaderLockTerm) bool {
	return t.holder == other.holder && t.transitions == other.transitions && t.acquired.Equal(other.acquired)
}

// leaderLockState is the state of a leader lock's Lease in the audit log so far. A deleted Lease
// has no holder.
type leaderLockState struct {
	leaderLockTerm
	// written is when the request arrived that began the term, renewed when the last renewal was
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
			return // It has been rewritten, which was logged first.
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

// leaderLockNow returns the state of the leader lock's Lease.
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

// writesBetween returns how many of the members' writes arrived between two times.
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
