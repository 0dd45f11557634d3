package leaserecord

import (
	"strings"

	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/flotilla-kube/flotilla/pkg/election/heartbeat"
)

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
