package heartbeat

import "strings"

// MaxMemberName is the maximum length of a member's name: with a fleet's name of at most 63
// characters, the name of its Lease, "<fleet>-member-<member>", has at most 253.
const MaxMemberName = 253 - 63 - len("-member-")

// MemberOf returns the member that an incarnation, "<member>_<uuid>", belongs to: the part before
// the last underscore, which no name of a pod contains. It is empty if that could not be a member:
// if it is not the name of an object (a DNS subdomain, RFC 1123) of at most MaxMemberName
// characters. Somebody else has written such a holder. It has no heartbeat, so nobody could list it
// as ended, and a Lease that names it expires by time.
func MemberOf(incarnation string) string {
	i := strings.LastIndexByte(incarnation, '_')
	if i <= 0 || i > MaxMemberName {
		return ""
	}
	member, before := incarnation[:i], byte('.')
	for j := range i {
		switch c := member[j]; {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9':
		case c == '-' && before != '.', c == '.' && before != '.' && before != '-':
		default:
			return ""
		}
		before = member[j]
	}
	if before == '.' || before == '-' {
		return ""
	}
	return member
}
