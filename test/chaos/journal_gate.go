package main

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/flotilla-kube/flotilla/test/harness"
)

// gateTerm is what a gate is known by: whoever acquires it changes one of these.
type gateTerm struct {
	holder      string
	transitions int32
	acquired    time.Time
}

// equal reports whether both are the same term of the same holder.
func (t gateTerm) equal(other gateTerm) bool {
	return t.holder == other.holder && t.transitions == other.transitions && t.acquired.Equal(other.acquired)
}

// gateState is what the audit log has told of a gate's Lease so far. A Lease that was deleted has
// no holder.
type gateState struct {
	gateTerm
	// written is when the request arrived that made it so, renewed when the last renewal was
	// answered.
	written, renewed time.Time
	stamp            time.Time // the renewal's own
	version          uint64
}

// gateChange is a change of a gate's term.
type gateChange struct {
	from, to gateTerm
	at       time.Time
}

// addGate records a write of the gate's Lease.
func (j *journal) addGate(e *harness.Event) {
	before := j.gate
	if e.Verb == "delete" {
		if before.written.After(e.RequestReceivedTimestamp.Time) {
			return // It has been written again, which was logged first.
		}
		j.changeGate(gateState{written: e.RequestReceivedTimestamp.Time, renewed: before.renewed, version: before.version}, e)
		return
	}
	var lease coordinationv1.Lease
	version := e.Version()
	if version == 0 || e.Answer(&lease) != nil || version <= before.version {
		return
	}
	now := gateState{
		gateTerm: gateTerm{
			holder: ptr.Deref(lease.Spec.HolderIdentity, ""), transitions: ptr.Deref(lease.Spec.LeaseTransitions, 0),
			acquired: ptr.Deref(lease.Spec.AcquireTime, metav1.MicroTime{}).Time,
		},
		written: e.RequestReceivedTimestamp.Time, renewed: e.StageTimestamp.Time, version: version,
		stamp: ptr.Deref(lease.Spec.RenewTime, metav1.MicroTime{}).Time,
	}
	if now.equal(before.gateTerm) && now.stamp.Equal(before.stamp) {
		now.renewed = before.renewed
	}
	j.changeGate(now, e)
}

func (j *journal) changeGate(now gateState, e *harness.Event) {
	if !now.equal(j.gate.gateTerm) {
		j.gateChanges = append(j.gateChanges, gateChange{from: j.gate.gateTerm, to: now.gateTerm, at: e.StageTimestamp.Time})
	}
	j.gate = now
}

// gateNow returns what the gate's Lease says.
func (j *journal) gateNow() gateState {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.gate
}

// gateChangesSince returns the changes of the gate's term from a time on, in the log's order.
func (j *journal) gateChangesSince(since time.Time) []gateChange {
	j.mu.Lock()
	defer j.mu.Unlock()
	var found []gateChange
	for _, c := range j.gateChanges {
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
