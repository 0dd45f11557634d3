package audit

import (
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
)

// lockLog is all writes of a Lease that does not belong to the fleet.
type lockLog struct {
	history
	holds []lockHold // by the fleet, in order; see finish
}

// lockHold is a time during which the Lease named the fleet.
type lockHold struct {
	first state
	ended bool
	end   moment // of the write that ended it; without a version for a deletion
}

// covers reports whether a write may have taken effect during that time.
func (h lockHold) covers(d moment) bool {
	if d.version > 0 && d.version < h.first.version && d.received.After(h.first.answered) {
		d.version = 0 // The write changed nothing: the version is that of an earlier write.
	}
	switch {
	case d.version > 0 && d.version < h.first.version, d.version == 0 && d.answered.Before(h.first.received):
		return false
	case !h.ended:
		return true
	case d.version > 0 && h.end.version > 0:
		return d.version < h.end.version
	default:
		return !d.received.After(h.end.answered)
	}
}

// onTheWire reports whether a write that the hold does not cover was in progress when it ended.
func (h lockHold) onTheWire(d moment) bool {
	return h.ended && !d.received.After(h.end.answered) && !d.answered.Before(h.end.received)
}

// readLeaderLock keeps a write of a foreign Lease, and the leader locks that members say they wait
// for.
func (c *checker) readLeaderLock(e event) {
	name := e.ObjectRef.Name
	switch {
	case leaserecord.IsMemberLease(c.fleet, name) && e.ObjectRef.Namespace == c.namespace:
		if e.refused() || e.failed() || e.Verb == "delete" {
			return
		}
		lease, err := e.lease()
		if err != nil || lease.Spec.HolderIdentity == nil {
			return
		}
		leaderLocks := leaderLocksOf(e, lease)
		c.named.Insert(leaderLocks...)
		// A client that creates the Lease again after a deletion does not know them.
		if holder := *lease.Spec.HolderIdentity; len(leaderLocks) > 0 || c.awaited[holder] == nil {
			c.awaited[holder] = leaderLocks
		}
		c.published.Insert(strings.Split(lease.Annotations[leaserecord.CredentialsAnnotation], ",")...)
	case e.ObjectRef.Namespace == corev1.NamespaceNodeLease, e.refused(), c.isLabelled(e):
	default:
		key := lockKey(e, name)
		l := c.leaderLocks[key]
		if l == nil {
			l = &lockLog{}
			c.leaderLocks[key] = l
		}
		l.read(e)
	}
}

// isLabelled reports whether a Lease is the fleet's own by its name and its label. A leader lock
// may have such a name, but not the label.
func (c *checker) isLabelled(e event) bool {
	if e.ObjectRef.Namespace != c.namespace || !strings.HasPrefix(e.ObjectRef.Name, c.fleet+"-") {
		return false
	}
	lease, err := e.lease()
	return err == nil && lease.Labels[leaseapi.FleetLabel] == c.fleet
}

// leaderLocksOf returns the leader locks that a member's Lease names.
func leaderLocksOf(e event, lease *coordinationv1.Lease) (leaderLocks []string) {
	for lock := range strings.SplitSeq(lease.Annotations[leaseapi.LeaderLocksAnnotation], ",") {
		if lock != "" {
			leaderLocks = append(leaderLocks, lockKey(e, lock))
		}
	}
	return leaderLocks
}

// lockKey names a leader lock: members and their leader locks are in one namespace.
func lockKey(e event, name string) string { return e.ObjectRef.Namespace + "/" + name }

func (l *lockLog) read(e event) {
	switch {
	case e.failed():
		l.addUnknown(e)
	case e.Verb == "delete":
		l.deletions = append(l.deletions, e.moment(0))
	default:
		// A Lease that cannot be read is not a leader lock: nothing else names its holder.
		_ = l.add(e)
	}
}

// finish puts the writes in order and finds out when the Lease named the fleet.
func (l *lockLog) finish(identity string) {
	l.sort()
	var open *lockHold
	end := func(at moment) {
		if open != nil {
			open.ended, open.end = true, at
			l.holds = append(l.holds, *open)
			open = nil
		}
	}
	for i, s := range l.states {
		at := moment{version: s.version, received: s.received, answered: s.answered}
		if i > 0 && s.event.Verb == "create" {
			end(l.deletedBetween(l.states[i-1].received, at))
		}
		switch {
		case s.holder != identity:
			end(at)
		case open == nil && i == 0 && l.partial:
			open = &lockHold{} // from before the log
		case open == nil:
			open = &lockHold{first: s}
		}
	}
	if open == nil {
		return
	}
	for _, d := range l.deletions {
		if d.received.After(l.states[len(l.states)-1].answered) {
			end(d)
			return
		}
	}
	l.holds = append(l.holds, *open)
}

// deletedBetween returns the first deletion between a time and a create; the create if the log has
// none.
func (l *lockLog) deletedBetween(since time.Time, create moment) moment {
	for _, d := range l.deletions {
		if d.answered.After(since) && d.received.Before(create.answered) {
			return d
		}
	}
	return create
}

// judgeLeaderLockLeases convicts the fleet of each time that it took a leader lock from a holder
// whose time had not run out.
func (c *checker) judgeLeaderLockLeases() {
	identity := leaseapi.LeaderLockIdentity(c.fleet)
	for name, l := range c.leaderLocks {
		l.finish(identity)
		for i, s := range l.states {
			if i == 0 || s.holder != identity || s.event.Verb == "create" {
				continue
			}
			before := l.states[i-1]
			lasts := min(before.duration, leaserecord.MaxDuration)
			if before.holder == "" || before.holder == identity || !s.answered.Before(before.aliveReceived.Add(lasts)) {
				continue
			}
			if l.holeBefore(s.version) {
				c.doubt(s.event, LeaseHole, "%s took the leader lock %s; the log lacks a write before it", s.holder, name)
			} else {
				c.convict(s.event, TakenEarly, "%s took the leader lock %s %v after %s had renewed it for %v",
					s.holder, name, s.answered.Sub(before.aliveReceived), before.holder, before.duration)
			}
		}
	}
}

// judgeLeaderLocks convicts a write by a member that waits for leader locks if one of them did not
// name the fleet when the write took effect.
func (c *checker) judgeLeaderLocks(w write) {
	for _, name := range c.awaited[w.by.Member] {
		l, d := c.leaderLocks[name], w.event.moment(w.version)
		if l == nil {
			c.convict(w.event, LeaderLockNotHeld, "%s: the log has no leader lock %s", w.by, name)
			continue
		}
		// The answer to a write that changes nothing has the version of an earlier one.
		if first, told := c.world.told[w.version]; told && first.Before(d.answered) {
			d.version = 0
		}
		c.report.AgainstLeaderLock++
		covered := false
		var last lockHold // that began before it
		for _, h := range l.holds {
			covered = covered || h.covers(d)
			if !h.first.received.After(d.answered) {
				last = h
			}
		}
		switch {
		case covered:
		case last.onTheWire(d):
			c.fly(w.event, Flight{
				Identity: w.by, File: w.event.file, Log: w.event.log, Line: w.event.line, Verb: w.event.Verb, URI: w.event.RequestURI,
				Version: w.version, Ended: last.end.version, After: max(d.answered.Sub(last.end.answered), 0),
			}, false)
		case l.hides(d):
			c.doubt(w.event, LeaseHole, "%s: the log does not tell who held the leader lock %s", w.by, name)
		case last.ended:
			c.convict(w.event, LeaderLockNotHeld, "%s: the leader lock %s named %s until %s", w.by, name, leaseapi.LeaderLockIdentity(c.fleet), stamp(last.end.answered))
		default:
			c.convict(w.event, LeaderLockNotHeld, "%s: the leader lock %s did not name %s yet", w.by, name, leaseapi.LeaderLockIdentity(c.fleet))
		}
	}
}
