package slim

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"k8s.io/kubernetes/pkg/util/pod"
	"k8s.io/kubernetes/pkg/volume/util"
)

// TestSlimCopyIsACopy: the Pod does not change, and a slim copy of a slim copy is the same.
func TestSlimCopyIsACopy(t *testing.T) {
	for _, deleting := range []bool{false, true} {
		pod := full()
		if !deleting {
			pod.DeletionTimestamp = nil
		}
		before := pod.DeepCopy()
		once := Pod(pod)
		if diff := cmp.Diff(before, pod); diff != "" {
			t.Errorf("the Pod has changed (-before +after):\n%s", diff)
		}
		if diff := cmp.Diff(once, Pod(once)); diff != "" {
			t.Errorf("being deleted: %t: a slim copy of a slim copy differs (-once +twice):\n%s", deleting, diff)
		}
		slim := once.(*v1.Pod)
		slim.Spec.Volumes[0].Name, slim.Status.Conditions[0].Reason = "other", "other"
		if diff := cmp.Diff(before, pod); diff != "" {
			t.Errorf("a change of the slim copy changes the Pod:\n%s", diff)
		}
		if states := len(slim.Status.ContainerStatuses); (states > 0) != deleting {
			t.Errorf("being deleted: %t: %d states of containers", deleting, states)
		}
		if slim.Labels != nil || slim.Spec.Containers != nil || slim.Status.PodIPs != nil {
			t.Error("the slim copy is not slim")
		}
	}
	other := &v1.Node{}
	if Pod(other) != any(other) {
		t.Error("an object that is not a Pod is not returned unchanged")
	}
}

// TestSlimNodeIsACopy requires the same for Nodes.
func TestSlimNodeIsACopy(t *testing.T) {
	node := fullNode()
	before := node.DeepCopy()
	once := Node(node)
	if diff := cmp.Diff(once, Node(once)); diff != "" {
		t.Errorf("a slim copy of a slim copy differs (-once +twice):\n%s", diff)
	}
	slim := once.(*v1.Node)
	if len(slim.Status.Conditions) != 1 || slim.Status.Conditions[0].Type != v1.NodeReady || len(slim.Labels) == 0 || len(slim.Spec.Taints) == 0 {
		t.Errorf("the slim copy lacks something: %+v", slim)
	}
	slim.Status.Conditions[0].Reason, slim.Annotations = "other", map[string]string{}
	if diff := cmp.Diff(before, node); diff != "" {
		t.Errorf("a change of the slim copy changes the Node:\n%s", diff)
	}
	if slim.Status.Images != nil || slim.Spec.PodCIDRs != nil || slim.Status.VolumesInUse != nil || slim.ManagedFields != nil {
		t.Error("the slim copy is not slim")
	}
	other := &v1.Pod{}
	if Node(other) != any(other) {
		t.Error("an object that is not a Node is not returned unchanged")
	}
}

// A slim copy keeps its containers' states: upstream takes an empty list to mean that nothing runs,
// and would detach volumes in use.
func TestSlimCopyRunsAsThePod(t *testing.T) {
	running := []v1.ContainerStatus{{Name: "c", State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}}}
	ended := []v1.ContainerStatus{{Name: "c", State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{}}}}
	now := metav1.Now()
	for _, deleted := range []*metav1.Time{nil, &now} {
		for _, phase := range []v1.PodPhase{v1.PodRunning, v1.PodFailed} {
			for _, init := range [][]v1.ContainerStatus{nil, running, ended} {
				for _, main := range [][]v1.ContainerStatus{nil, running, ended} {
					for _, ephemeral := range [][]v1.ContainerStatus{nil, running, ended} {
						pod := &v1.Pod{
							ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: deleted},
							Status: v1.PodStatus{Phase: phase, InitContainerStatuses: init, ContainerStatuses: main,
								EphemeralContainerStatuses: ephemeral},
						}
						slim := Pod(pod).(*v1.Pod)
						if whole, got := util.IsPodTerminated(pod, pod.Status), util.IsPodTerminated(slim, slim.Status); whole != got {
							t.Errorf("%+v: terminated: %t, its slim copy: %t", pod, whole, got)
						}
					}
				}
			}
		}
	}
}

// TestPatchOfASlimStatus makes podgc's patch from a slim copy and from the whole Pod, and applies
// both as the API server does. It compares conditions by type: they are a map to the API server,
// and a patch that names two of four does not fix the order of the others.
func TestPatchOfASlimStatus(t *testing.T) {
	for name, marked := range map[string]bool{"marked already": true, "not marked": false} {
		there := whole("web", "n")
		if marked {
			there.Status.Conditions = append([]v1.PodCondition{{Type: v1.DisruptionTarget, Status: v1.ConditionFalse}}, there.Status.Conditions...)
		}
		var results []v1.Pod
		for _, cached := range []*v1.Pod{there, Pod(there).(*v1.Pod)} {
			client := fake.NewClientset(there.DeepCopy())
			status := cached.Status.DeepCopy()
			status.Phase = v1.PodFailed
			podutil.UpdatePodCondition(status, &v1.PodCondition{Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: "DeletionByPodGC"})
			if _, _, _, err := pod.PatchPodStatus(t.Context(), client, "ns", "web", there.UID, cached.Status, *status); err != nil {
				t.Fatal(err)
			}
			result, err := client.CoreV1().Pods("ns").Get(t.Context(), "web", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			for i := range result.Status.Conditions {
				result.Status.Conditions[i].LastTransitionTime = metav1.Time{}
			}
			slices.SortFunc(result.Status.Conditions, func(a, b v1.PodCondition) int {
				return strings.Compare(string(a.Type), string(b.Type))
			})
			results = append(results, *result)
		}
		if diff := cmp.Diff(results[0], results[1]); diff != "" || results[0].Status.Phase != v1.PodFailed {
			t.Errorf("%s: the Pod is %s; patched from itself (-) and from a slim copy (+):\n%s", name, results[0].Status.Phase, diff)
		}
	}
}

// whole returns a Pod as a kubelet leaves it.
func whole(name, node string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: "ns", UID: types.UID("uid-" + name), ResourceVersion: "7", Labels: map[string]string{"app": "web"},
			Annotations: map[string]string{"note": "kept"},
		},
		Spec: v1.PodSpec{NodeName: node, Containers: []v1.Container{{Name: "c", Image: "image"}}},
		Status: v1.PodStatus{
			Phase: v1.PodRunning, PodIP: "10.0.0.1", PodIPs: []v1.PodIP{{IP: "10.0.0.1"}}, HostIP: "10.1.0.1",
			Conditions: []v1.PodCondition{
				{Type: v1.PodInitialized, Status: v1.ConditionTrue}, {Type: v1.PodReady, Status: v1.ConditionTrue},
				{Type: v1.ContainersReady, Status: v1.ConditionTrue},
			},
			ContainerStatuses: []v1.ContainerStatus{{Name: "c", State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}}},
		},
	}
}
