package audit

import (
	"slices"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"

	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
)

// strangers is what is known about requests without the fence's part, and how to recognise those of
// members. Whatever the binary is called, its build has sent requests with the part, or written
// members' Leases; and members publish the ids of their tokens there.
type strangers struct {
	unmarked []unmarked
	// own counts, by binary, requests that need no claim.
	own map[string]int
	// builds has the builds that have sent what only a member of a fleet sends, and the
	// incarnations that did; "" for writes of the Leases of this fleet's members.
	builds map[string]sets.Set[string]
	// published are the ids of tokens on members' Leases, named the leader locks that members wait
	// for.
	published, named sets.Set[string]
	// others are the incarnations of other fleets' members, which have their own marks and Leases.
	others sets.Set[string]
}

// unmarked is a write without the fence's part.
type unmarked struct {
	event        event
	agent, token string
}

func newStrangers() strangers {
	return strangers{own: map[string]int{}, builds: map[string]sets.Set[string]{}, published: sets.New[string](), named: sets.New[string](), others: sets.New[string]()}
}

// noteBuild records the build that sent a request, if only a member of a fleet sends such a
// request. A binary that is not built on client-go has none.
func (c *checker) noteBuild(e event, part agentPart) {
	incarnation := part.by.Member
	switch r := e.ObjectRef; {
	case e.binary == "":
		return
	case part.marked && part.err == nil:
	case r.Resource != "leases" || r.Namespace != c.namespace || !strings.HasPrefix(r.Name, c.fleet+"-") || !strings.Contains(e.UserAgent, memberMark):
		return
	case !leaserecord.IsMemberLease(c.fleet, r.Name):
		// A shard's, or of a fleet whose name begins with ours: its holder shows which.
		lease, err := e.lease()
		if err != nil || ptr.Deref(lease.Spec.HolderIdentity, "") == "" {
			return
		}
		incarnation = *lease.Spec.HolderIdentity
	}
	if c.builds[e.binary] == nil {
		c.builds[e.binary] = sets.New[string]()
	}
	c.builds[e.binary].Insert(incarnation)
}

// isBuild reports whether a build is that of a member of this fleet.
func (c *checker) isBuild(binary string) bool {
	for incarnation := range c.builds[binary] {
		if !c.others.Has(incarnation) {
			return true
		}
	}
	return false
}

// readUnmarked keeps a write until it is known whether a member made it.
func (c *checker) readUnmarked(e event) {
	token := e.token()
	switch {
	case e.binary == "" && token == "", strings.HasPrefix(e.User.Username, "system:node:"):
	case e.isEvent(), e.storesNothing(), e.refused(), e.dryRun(), c.isOwn(e):
		c.own[e.binary]++
	default:
		c.unmarked = append(c.unmarked, unmarked{event: e.lean(), agent: c.world.intern(e.UserAgent), token: c.world.intern(token)})
	}
}

// isOwn reports whether a member may write the object without a claim: the fleet's Leases, and the
// service accounts of controllers. Leader locks are known once everything has been read.
func (c *checker) isOwn(e event) bool {
	r := e.ObjectRef
	switch r.Resource {
	case "leases":
		return r.Namespace == c.namespace && strings.HasPrefix(r.Name, c.fleet+"-") || c.ofAnotherFleet(e)
	case "serviceaccounts":
		return r.Namespace == metav1.NamespaceSystem && e.Verb == "create"
	default:
		return false
	}
}

// ofAnotherFleet reports whether a Lease says that it belongs to another fleet, of another name or
// in another namespace: one build may serve several. It records its holder.
func (c *checker) ofAnotherFleet(e event) bool {
	lease, err := e.lease()
	if err != nil {
		return false
	}
	name := lease.Labels[leaseapi.FleetLabel]
	if name == "" || !strings.HasPrefix(e.ObjectRef.Name, name+"-") || name == c.fleet && e.ObjectRef.Namespace == c.namespace {
		return false
	}
	c.noteOthers(e, lease)
	return true
}

// readOtherMember records the holder of a Lease that is named like one of our shards', and is the
// Lease of a member of another fleet: fleet "a-b" has members on Leases a-b-member-NAME. Only such
// Leases count, because anybody who may write Leases can give ours another label.
func (c *checker) readOtherMember(e event) {
	lease, err := e.lease()
	if err != nil {
		return
	}
	name := lease.Labels[leaseapi.FleetLabel]
	if _, member := leaserecord.MemberOfLease(name, e.ObjectRef.Name); member && name != c.fleet {
		c.noteOthers(e, lease)
	}
}

// noteOthers records the holder of another fleet's Lease, and its leader locks.
func (c *checker) noteOthers(e event, lease *coordinationv1.Lease) {
	if holder := ptr.Deref(lease.Spec.HolderIdentity, ""); holder != "" {
		c.others.Insert(holder)
	}
	for _, lock := range leaderLocksOf(e, lease) {
		c.named.Insert(lock)
	}
}

// forgetOthers drops the requests of other fleets. An incarnation that one of our members' Leases
// has named is ours, whatever another Lease says: anybody may make one of another fleet somewhere.
func (c *checker) forgetOthers() {
	for _, l := range c.members {
		for i := range l.states {
			c.others.Delete(l.states[i].holder)
		}
	}
	c.writes = slices.DeleteFunc(c.writes, func(w write) bool { return c.others.Has(w.by.Member) })
	w := c.world
	w.creations = slices.DeleteFunc(w.creations, func(made creation) bool { return c.others.Has(made.by.Member) })
	w.deletions = slices.DeleteFunc(w.deletions, func(gone deletion) bool { return c.others.Has(gone.by.Member) })
	for _, all := range w.siblings {
		for i := range all {
			if all[i].by != nil && c.others.Has(all[i].by.Member) {
				all[i].by = nil
			}
		}
	}
}

// judgeStrangers convicts members of writes outside of any shard, and counts their requests.
func (c *checker) judgeStrangers() {
	twins := c.twins()
	for binary, n := range c.own {
		if c.isBuild(binary) && !twins.Has(programOf(binary)) {
			c.report.FleetOwn += n
		}
	}
	for _, u := range c.unmarked {
		build, twin := c.isBuild(u.event.binary), twins.Has(programOf(u.event.binary))
		lock := u.event.ObjectRef.Resource == "leases" && c.named.Has(lockKey(u.event, u.event.ObjectRef.Name))
		switch ours := u.token != "" && c.published.Has(u.token) || build && !twin; {
		case ours:
			c.report.FleetOwn++
		case build && u.token == "" && !lock:
			c.report.Unnamed++
			continue
		default:
			continue // somebody else's
		}
		if lock {
			continue
		}
		c.convict(u.event, Unfenced, "user agent %q has no claim in it", u.agent)
	}
}

// twins returns the members' binaries with which somebody else held a leader lock as well: a stock
// controller manager of the same name, version and commit. Their tokens distinguish them.
func (c *checker) twins() sets.Set[string] {
	twins := sets.New[string]()
	for name := range c.named {
		if l := c.leaderLocks[name]; l != nil {
			for _, s := range l.states {
				if s.holder != "" && s.holder != leaseapi.LeaderLockIdentity(c.fleet) {
					twins.Insert(programOf(s.event.binary))
				}
			}
		}
	}
	return twins
}

// ours reports whether the fleet's build sent a request.
func (c *checker) ours(e event) bool { return c.isBuild(e.binary) }
