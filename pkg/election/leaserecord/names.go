package leaserecord

import (
	"strings"

	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/flotilla-kube/flotilla/pkg/election/heartbeat"
)

// FleetLabel names the fleet, on each of its Leases.
const FleetLabel = "flotilla.dev/fleet"

// OfOtherFleet reports whether a Lease whose name begins like those of fleet belongs to another
// one: Leases of fleet "a-b" begin with "a-", too. A label alone does not make a Lease another
// fleet's, because whoever may write Leases can change it: the name must fit.
func (r Record) OfOtherFleet(fleet string) bool {
	other := r.Labels[FleetLabel]
	return other != "" && other != fleet && strings.HasPrefix(r.Name, other+"-")
}

// NewIncarnation returns the identity of a new process start of the member: "<member>_<uuid>".
func NewIncarnation(member string) string {
	return member + "_" + string(uuid.NewUUID())
}

// MemberOf returns the member that an incarnation belongs to, see [heartbeat.MemberOf]. It is empty
// if no member can have that incarnation.
func MemberOf(incarnation string) string { return heartbeat.MemberOf(incarnation) }

// IsMemberLease reports whether name is that of a member's Lease.
func IsMemberLease(fleet, name string) bool {
	_, is := MemberOfLease(fleet, name)
	return is
}

// MemberOfLease returns the member whose Lease has this name. It returns false if it is not the
// name of a member's Lease.
func MemberOfLease(fleet, name string) (string, bool) {
	return strings.CutPrefix(name, MemberLease(fleet, ""))
}

// MemberLease returns the name of a member's Lease: "<fleet>-member-<member>".
func MemberLease(fleet, member string) string {
	return fleet + "-member-" + member
}
