package leaserecord

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/flotilla-kube/flotilla/pkg/election/heartbeat"
)

// TestMemberOf compares which names members can have with the API server's rule for names of
// objects.
func TestMemberOf(t *testing.T) {
	longest := strings.Repeat("a", heartbeat.MaxMemberName)
	for _, name := range []string{
		"a", "a-0", "cp-1.example.org", "7", "a--b", longest, "", "a_b", "A", "a/b", "-a", "a-", ".a", "a.", "a..b", "a.-b", "a-.b", "ä", "a b", longest + "a",
	} {
		want := name
		if len(name) > heartbeat.MaxMemberName || len(validation.IsDNS1123Subdomain(name)) > 0 {
			want = ""
		}
		if got := MemberOf(name + "_1b4e28ba"); got != want {
			t.Errorf("the member of an incarnation of %q is %q, want %q", name, got, want)
		}
	}
	if got := MemberOf("nonsense"); got != "" {
		t.Errorf("nonsense is of member %q", got)
	}
	if why := validation.IsDNS1123Subdomain(MemberLease(strings.Repeat("f", 63), longest)); len(why) > 0 {
		t.Errorf("the longest names make no Lease: %v", why)
	}
}
