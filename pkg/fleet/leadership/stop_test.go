package leadership

import (
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
)

const stopText = "2026-11-24T08:50:00Z by alice@laptop"

// TestStopState checks among other things that an unreadable stop changes nothing.
func TestStopState(t *testing.T) {
	lease := func(annotations map[string]string) election.Observation {
		l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "flotilla-plan", Annotations: annotations}}
		return election.Observation{Record: leaserecord.From(l), Exists: true, Lease: l}
	}
	with := func(value string) election.Observation {
		return lease(map[string]string{leaseapi.DocumentAnnotation: "{}", leaseapi.StopAnnotation: value})
	}
	working := stopState{}.next(lease(map[string]string{leaseapi.DocumentAnnotation: "{}"}), false)
	stopped := stopState{}.next(with(stopText), false)
	for _, test := range []struct {
		name                   string
		before                 stopState
		seen                   election.Observation
		othersWork             bool
		stops, decided, faulty bool
		text                   string
	}{
		{"stopped", working, with(stopText), true, true, true, false, stopText},
		{"started", stopped, lease(map[string]string{leaseapi.DocumentAnnotation: "{}"}), false, false, true, false, ""},
		{"no Lease yet", stopState{}, election.Observation{}, false, false, false, false, ""},
		{"no plan yet", stopState{}, lease(map[string]string{leaseapi.StopAnnotation: stopText}), false, false, false, false, ""},
		{"Lease deleted", stopped, election.Observation{}, false, true, true, false, stopText},
		{"plan removed", stopped, lease(nil), false, true, true, false, stopText},
		{"unreadable while it works", working, with("true"), true, false, true, true, ""},
		{"unreadable while it works, alone", working, with("true"), false, false, true, true, ""},
		{"unreadable while it is stopped", stopped, with("true"), true, true, true, true, stopText},
		{"empty while it is stopped", stopped, with(""), true, true, true, true, stopText},
		{"unreadable, just started beside others", stopState{}, with("true"), true, false, true, true, ""},
		{"unreadable, just started alone", stopState{}, with("true"), false, true, true, true, ""},
	} {
		after := test.before.next(test.seen, test.othersWork)
		if (after.stop != nil) != test.stops || after.decided != test.decided || (after.fault != nil) != test.faulty || after.text != test.text {
			t.Errorf("%s: %+v", test.name, after)
		}
		if again := after.next(test.seen, !test.othersWork); (again.stop != nil) != (after.stop != nil) || again.text != after.text {
			t.Errorf("%s: %+v, and seen again %+v", test.name, after, again)
		}
	}
	if after := (stopState{}).next(with("true"), false).next(lease(map[string]string{leaseapi.DocumentAnnotation: "{}"}), false); after.stop != nil {
		t.Errorf("after an operator fixed it: %+v", after)
	}
}
