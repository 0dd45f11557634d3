package heartbeat

import "strings"

// MaxMemberName is the maximum length of a member's name: with a fleet's name of at most 63
// characters, the name of its Lease, "<fleet>-member-<member>", has at most 253.
const MaxMemberName = 253 - 63 - len("-member-")

// maxStart is the maximum length of what follows a member's name: that of a label's value, of which
// a UUID takes 36.
const maxStart = 63

// MemberOf returns the member that an incarnation, "<member>_<uuid>", belongs to: the part before
// the last underscore, which no name of a pod contains. It is empty if no member can have that
// incarnation: if the member is not the name of an object (a DNS subdomain, RFC 1123) of at most
// MaxMemberName characters, or the rest is not of 1 to 63 letters, digits and hyphens. Somebody
// else has written such a holder. It has no heartbeat, and a list of ended incarnations could not
// name it, so a Lease that names it expires by time.
func MemberOf(incarnation string) string {
	i := strings.LastIndexByte(incarnation, '_')
	if i <= 0 || i > MaxMemberName || !isStart(incarnation[i+1:]) {
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

// isStart reports whether a text may tell the starts of a member apart.
func isStart(text string) bool {
	for _, c := range []byte(text) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-':
		default:
			return false
		}
	}
	return len(text) > 0 && len(text) <= maxStart
}
