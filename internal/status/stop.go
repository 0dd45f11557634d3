package status

import (
	"fmt"
	"strings"
	"time"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
)

// StopView is a stop by an operator, or why it cannot be read.
type StopView struct {
	// Since is when the operator stopped the fleet, and By who, as the operator wrote it.
	Since *time.Time `json:"since,omitempty"`
	By    string     `json:"by,omitempty"`
	// Fault says why the annotation cannot be read: members go on as before.
	Fault string `json:"fault,omitempty"`
	// Still are the live members that run nothing because of it, Draining those that do not say so
	// yet.
	Still    []string `json:"still,omitempty"`
	Draining []string `json:"draining,omitempty"`

	stop leaseapi.Stop
}

// Stop returns the stop of the fleet; nil if there is none on its plan's Lease.
func (r *Reading) Stop() *StopView {
	lease := r.Lease(leaseapi.PlanLease(r.Fleet))
	text, there := lease.Annotations[leaseapi.StopAnnotation]
	if !there {
		return nil
	}
	v := &StopView{}
	if stop, err := leaseapi.StopOn(lease.Lease); err != nil {
		v.Fault = err.Error()
	} else {
		v.stop, v.Since, v.By = *stop, Stamp(stop.Since), stop.By
	}
	for _, m := range r.Roster.Members() {
		if still := m.Annotations[leaseapi.StillAnnotation]; still == text || v.Fault != "" && still != "" {
			v.Still = append(v.Still, m.Name)
		} else {
			v.Draining = append(v.Draining, m.Name)
		}
	}
	return v
}

// stops reports whether the members run nothing, or are about to, because the fleet is stopped.
func (v *StopView) stops() bool { return v != nil && (v.Fault == "" || len(v.Still) > 0) }

// Unfinished returns what must still happen until a stopped fleet runs nothing and has released its
// leader locks; nil if everything has happened.
func (v *StopView) Unfinished(r *Reading) error {
	var missing []string
	for _, name := range v.Draining {
		missing = append(missing, fmt.Sprintf("member %s, which holds %d", Plain(name), r.heldBy(name)))
	}
	if len(missing) > 0 {
		return fmt.Errorf("shards are still held, or may be, by %s", strings.Join(missing[:min(len(missing), 4)], "; "))
	}
	for _, o := range r.sorted {
		if r.isShard(o) && r.IsHeld(o) && !r.isLeftBehind(o) {
			return fmt.Errorf("shard Lease %s is still held by %s", Plain(o.Name), Plain(o.Holder))
		}
	}
	for _, l := range r.LeaderLocks() {
		if l.Held && !l.Silent {
			return fmt.Errorf("the leader lock, Lease %s, is still held by the fleet", Plain(l.Lease))
		}
	}
	return nil
}

// isLeftBehind reports whether a Lease names a member although none lives. The member's claims have
// ended by its own clock, and nobody is there to list it as ended.
func (r *Reading) isLeftBehind(o election.Observation) bool {
	return len(r.Roster.Members()) == 0 && leaserecord.MemberOf(o.Holder) != ""
}

// FreeLeaderLock returns a leader lock that nobody holds; empty if there is none.
func (r *Reading) FreeLeaderLock() string {
	for _, l := range r.LeaderLocks() {
		if l.Holder == "" {
			return l.Lease
		}
	}
	return ""
}

// heldBy returns how many shards a member holds, of any plan.
func (r *Reading) heldBy(member string) int {
	n := 0
	for _, o := range r.sorted {
		if r.isShard(o) && r.IsHeld(o) && leaserecord.MemberOf(o.Holder) == member {
			n++
		}
	}
	return n
}

// Leaders returns who holds the leader locks, in words.
func (r *Reading) Leaders() string {
	var texts []string
	for _, l := range r.LeaderLocks() {
		switch {
		case l.Holder == "":
			texts = append(texts, fmt.Sprintf("the leader lock, Lease %s, is free: nobody runs its controllers", Plain(l.Lease)))
		case l.Silent:
			texts = append(texts, fmt.Sprintf("the leader lock, Lease %s, names %s, which has not renewed it%s: nobody may be running its controllers", Plain(l.Lease), Plain(l.Holder), forTime(l.silence)))
		case l.Held:
			texts = append(texts, fmt.Sprintf("the leader lock, Lease %s, is held by the fleet", Plain(l.Lease)))
		default:
			texts = append(texts, fmt.Sprintf("the leader lock, Lease %s, is held by %s", Plain(l.Lease), Plain(l.Holder)))
		}
	}
	if len(texts) == 0 {
		return "it has no leader lock"
	}
	return strings.Join(texts, "; ")
}

// stopped reports that an operator has stopped the fleet, and what keeps it from stopping
// completely.
func (f *finder) stopped() {
	r, v := f.r, f.r.stop
	name := leaseapi.PlanLease(r.Fleet)
	switch {
	case v == nil:
		return
	case v.Fault != "":
		f.add(Warning, StopUnreadable, AboutPlan, name, nil, "whether the fleet is stopped cannot be read, so members go on as before: %s", v.Fault)
	default:
		f.stoppedSince(v)
	}
	if !v.stops() || len(v.Draining) > 0 {
		return
	}
	for _, l := range r.LeaderLocks() {
		if l.Holder != "" {
			continue
		}
		o := r.foreign[l.Lease]
		since, free := Stamp(o.RenewTime), max(0, r.AsOf.Sub(o.RenewTime))
		if !o.Exists || since == nil {
			since, free = nil, StandsAfter
		}
		if free >= StandsAfter {
			f.add(severityFor(free), LeaderLockWithoutHolder, AboutLease, l.Lease, since, "the fleet is stopped, and nobody holds its leader lock, Lease %s: nobody runs the controllers", l.Lease)
		}
	}
}

// stoppedSince is a note; a warning if the fleet does not stop completely.
func (f *finder) stoppedSince(v *StopView) {
	r := f.r
	if err := v.Unfinished(r); err != nil {
		severity := Note
		if v.Since != nil && r.AsOf.Sub(*v.Since) >= stuckAfter {
			severity = Warning
		}
		f.add(severity, Stopped, AboutFleet, r.Fleet, v.Since, "the fleet is being stopped,%s: %v", v.stop, err)
		return
	}
	f.add(Note, Stopped, AboutFleet, r.Fleet, v.Since, "the fleet is stopped%s, until 'flotilla start': %s; %s",
		v.stop, standBy(len(v.Still)), r.Leaders())
}

func standBy(members int) string {
	if members == 1 {
		return "its one live member stands by"
	}
	return fmt.Sprintf("its %d live members stand by", members)
}
