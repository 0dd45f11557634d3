package slim

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/record"
	"k8s.io/kubernetes/pkg/controller/util/node"
)

// TestStatusIsPutOverThePod makes upstream mark a Pod through its slim copy.
func TestStatusIsPutOverThePod(t *testing.T) {
	there := whole("web", "n")
	for name, c := range map[string]struct {
		cached func(*v1.Pod) *v1.Pod
		failed func(error) bool
	}{
		"a slim copy":               {func(p *v1.Pod) *v1.Pod { return Pod(p).(*v1.Pod) }, nil},
		"the whole Pod":             {func(p *v1.Pod) *v1.Pod { return p }, nil},
		"one of an earlier version": {func(p *v1.Pod) *v1.Pod { p.ResourceVersion = "5"; return Pod(p).(*v1.Pod) }, apierrors.IsConflict},
		"one of an earlier Pod":     {func(p *v1.Pod) *v1.Pod { p.UID = "other"; return Pod(p).(*v1.Pod) }, apierrors.IsConflict},
		"one of a Pod that is gone": {func(p *v1.Pod) *v1.Pod { p.Name = "gone"; return Pod(p).(*v1.Pod) }, apierrors.IsNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			base := fake.NewClientset(there.DeepCopy())
			client := Client(base)
			cached := c.cached(there.DeepCopy())
			before := cached.DeepCopy()
			if c.failed != nil {
				if _, err := client.CoreV1().Pods("ns").UpdateStatus(t.Context(), cached, metav1.UpdateOptions{}); !c.failed(err) {
					t.Errorf("error %v", err)
				}
			} else if err := node.MarkPodsNotReady(t.Context(), client, record.NewFakeRecorder(1), []*v1.Pod{cached}, "n"); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(before, cached); diff != "" {
				t.Errorf("the cached Pod has changed:\n%s", diff)
			}
			got, err := base.CoreV1().Pods("ns").Get(t.Context(), "web", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			want := there.DeepCopy()
			if c.failed == nil {
				want.Status.Conditions[1].Status = v1.ConditionFalse
			}
			for i := range got.Status.Conditions {
				got.Status.Conditions[i].LastTransitionTime = metav1.Time{}
			}
			want.ResourceVersion = got.ResourceVersion
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("the Pod (-want +got):\n%s", diff)
			}
		})
	}
}
