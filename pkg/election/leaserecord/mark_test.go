package leaserecord

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func memberLease(holder, credentials, fenced, fencedCredentials string) *coordinationv1.Lease {
	annotations := Overlay(map[string]string{StateAnnotation: "active"}, map[string]string{
		CredentialsAnnotation: credentials, FencedAnnotation: fenced, FencedCredentialsAnnotation: fencedCredentials,
	})
	var labels map[string]string
	if fencedCredentials != "" {
		labels = map[string]string{MarkedLabel: "true"}
	}
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: "f-member-a", ResourceVersion: "7", Annotations: annotations, Labels: labels},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder},
	}
}

func TestMark(t *testing.T) {
	for name, tc := range map[string]struct {
		lease  *coordinationv1.Lease
		want   *coordinationv1.Lease
		needed bool
	}{
		"no lease":             {nil, nil, false},
		"nothing published":    {memberLease("a_1", "", "", ""), memberLease("a_1", "", "", ""), false},
		"held":                 {memberLease("a_1", "x,y", "", ""), memberLease("a_1", "x,y", "a_1", "x,y"), true},
		"released":             {memberLease("", "x,y", "", ""), memberLease("", "x,y", "a_1", "x,y"), true},
		"a later incarnation":  {memberLease("a_2", "z", "", ""), memberLease("a_2", "z", "", ""), false},
		"after another":        {memberLease("a_1", "x", "a_0", "w"), memberLease("a_1", "x", "a_0,a_1", "w,x"), true},
		"already":              {memberLease("a_1", "x", "a_1", "x"), memberLease("a_1", "x", "a_1", "x"), false},
		"more published since": {memberLease("a_1", "x,y", "a_1", "x"), memberLease("a_1", "x,y", "a_1", "x,y"), true},
	} {
		before := tc.lease.DeepCopy()
		got, needed := FenceIncarnation(tc.lease, "a_1")
		if diff := cmp.Diff(tc.want, got); diff != "" || needed != tc.needed {
			t.Errorf("%s: FenceIncarnation() needed %t, want %t (-want +got):\n%s", name, needed, tc.needed, diff)
		}
		if diff := cmp.Diff(before, tc.lease); diff != "" {
			t.Errorf("%s: FenceIncarnation() changed its argument (-before +after):\n%s", name, diff)
		}
	}
}

// TestMarksDoNotOutgrowTheLease has a member die many times.
func TestMarksDoNotOutgrowTheLease(t *testing.T) {
	lease := memberLease("a_0", "", "", "")
	for n := range 200 {
		var ids []string
		for i := range 40 {
			ids = append(ids, fmt.Sprintf("JTI=%08d-1111-2222-3333-%012d", n, i))
		}
		incarnation := fmt.Sprintf("a_%d", n)
		lease.Spec.HolderIdentity = &incarnation
		lease.Annotations[CredentialsAnnotation] = strings.Join(ids, ",")
		lease, _ = FenceIncarnation(lease, incarnation)
	}
	size := 0
	for _, value := range lease.Annotations {
		size += len(value)
	}
	record := From(lease)
	if size > 64<<10 || !record.Fenced("a_199") || record.Fenced("a_1") {
		t.Errorf("%d bytes of annotations and the incarnations %v, want at most 64 KiB, with the last and without the first", size, record.FencedIncarnations())
	}
	if fenced := lease.Annotations[FencedCredentialsAnnotation]; !strings.HasSuffix(fenced, "JTI=00000199-1111-2222-3333-000000000039") || strings.HasPrefix(fenced, ",") {
		t.Errorf("fenced credentials end with %q", fenced[len(fenced)-80:])
	}
}

func TestUnmarked(t *testing.T) {
	const struck, released = 15, 1
	for name, tc := range map[string]struct {
		lease    *coordinationv1.Lease
		ended    string
		duration int32
		want     string
		unmarked bool
	}{
		"held":                       {memberLease("a_1", "x", "", ""), "", struck, "", false},
		"released":                   {memberLease("", "x", "", ""), "", released, "", false},
		"struck":                     {memberLease("", "x", "", ""), "a_1", struck, "a_1", true},
		"struck, nothing published":  {memberLease("", "", "", ""), "a_1", struck, "", false},
		"struck and marked":          {memberLease("", "x", "a_1", "x"), "a_1", struck, "", false},
		"struck and partly marked":   {memberLease("", "x,y", "a_1", "x"), "a_1", struck, "a_1", true},
		"struck after a marked one":  {memberLease("", "y", "a_1", "x"), "a_1,a_2", struck, "a_2", true},
		"emptied by hand":            {memberLease("", "x", "", ""), "", struck, "", true},
		"emptied after a marked one": {memberLease("", "y", "a_1", "x"), "a_1", struck, "a_1", true},
	} {
		t.Run(name, func(t *testing.T) {
			transitions := int32(1)
			tc.lease.Spec.LeaseDurationSeconds, tc.lease.Spec.LeaseTransitions = &tc.duration, &transitions
			tc.lease.Annotations = Overlay(tc.lease.Annotations, map[string]string{ProtocolAnnotation: "2", EndedAnnotation: tc.ended})
			if got, unmarked := From(tc.lease).Unmarked(); got != tc.want || unmarked != tc.unmarked {
				t.Errorf("%q, %t; want %q, %t", got, unmarked, tc.want, tc.unmarked)
			}
		})
	}
}

// TestMarksOfNobodyKnown checks that credentials are fenced even if the Lease does not tell whose
// they are.
func TestMarksOfNobodyKnown(t *testing.T) {
	want := map[string]string{FencedAnnotation: "a_0", FencedCredentialsAnnotation: "w,x"}
	if diff := cmp.Diff(want, MarksFor(From(memberLease("", "x", "a_0", "w")), "")); diff != "" {
		t.Error(diff)
	}
}
