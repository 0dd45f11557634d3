package integration

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"
	"k8s.io/kubernetes/cmd/kube-controller-manager/names"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"

	"github.com/flotilla-kube/flotilla/pkg/controllers"
	"github.com/flotilla-kube/flotilla/pkg/controllers/slim"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// TestSlimPodsAreMarked silences a Node: node-lifecycle marks its Pods as not ready from slim
// copies, and nothing else in them changes. One of them is in a range of the same process, which
// has it whole.
func TestSlimPodsAreMarked(t *testing.T) {
	c, _ := newConfig(t, "--node-monitor-grace-period=3s", "--node-monitor-period=500ms")
	process, err := controllers.NewProcess(c, controllers.NewEndpoints())
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(plane.AdminConfig())
	if err != nil {
		t.Fatal(err)
	}
	ranges, err := shard.EqualRanges(2)
	if err != nil {
		t.Fatal(err)
	}
	node := silentNode(t, client)
	var mine, others *v1.Pod
	for i := 0; mine == nil || others == nil; i++ {
		space := testNamespace(t, client, fmt.Sprintf("slim-%d-", i))
		if ranges[0].ContainsNamespace(space) && mine == nil {
			mine = runningPod(t, client, space, node)
		} else if !ranges[0].ContainsNamespace(space) && others == nil {
			others = runningPod(t, client, space, node)
		}
	}
	start(t, process, controllers.Spec{
		ID: shard.ID{Ring: "namespaces", Name: "00"}, Range: ranges[0], Controllers: []string{names.ReplicaSetController}, Share: 2, Shards: 2,
	})
	group := start(t, process, controllers.Spec{
		ID: shard.ID{Ring: "cluster", Name: "nodes"}, Range: shard.Everything(), Controllers: []string{names.NodeLifecycleController},
	})
	slimmed, err := group.Informers().Slimmed(slim.Pods)
	if err != nil {
		t.Fatal(err)
	}
	pods := slimmed.Core().V1().Pods().Lister()
	held := func(p *v1.Pod) *v1.Pod {
		cached, err := pods.Pods(p.Namespace).Get(p.Name)
		if err != nil {
			return nil
		}
		return cached
	}
	waitFor(t, "the Pod of the range to be held whole, and the other one in a slim copy", func() bool {
		a, b := held(mine), held(others)
		return a != nil && b != nil && len(a.Spec.Containers) == 1 && len(b.Spec.Containers) == 0
	})
	for _, before := range []*v1.Pod{mine, others} {
		var after *v1.Pod
		waitFor(t, "the Pod to be marked", func() bool {
			after, err = client.CoreV1().Pods(before.Namespace).Get(t.Context(), before.Name, metav1.GetOptions{})
			if err != nil {
				return false
			}
			_, ready := podutil.GetPodCondition(&after.Status, v1.PodReady) // by type: the others may be lost
			return ready != nil && ready.Status == v1.ConditionFalse
		})
		want := before.DeepCopy()
		_, marked := podutil.GetPodCondition(&after.Status, v1.PodReady)
		_, ready := podutil.GetPodCondition(&want.Status, v1.PodReady)
		ready.Status, ready.LastTransitionTime = v1.ConditionFalse, marked.LastTransitionTime
		want.ResourceVersion, want.ManagedFields, after.ManagedFields = after.ResourceVersion, nil, nil
		if diff := cmp.Diff(want, after); diff != "" {
			t.Errorf("%s/%s has lost something (-want +got):\n%s", before.Namespace, before.Name, diff)
		}
	}
}

// silentNode returns the name of a Node that last reported ready long ago.
func silentNode(t *testing.T, client kubernetes.Interface) string {
	t.Helper()
	node, err := client.CoreV1().Nodes().Create(t.Context(), &v1.Node{ObjectMeta: metav1.ObjectMeta{GenerateName: "silent-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.CoreV1().Nodes().Delete(context.WithoutCancel(t.Context()), node.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	node.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue,
		LastHeartbeatTime: metav1.Time{Time: time.Now().Add(-time.Hour)}, LastTransitionTime: metav1.Time{Time: time.Now().Add(-time.Hour)}}}
	if _, err := client.CoreV1().Nodes().UpdateStatus(t.Context(), node, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	return node.Name
}

// runningPod returns a Pod that runs on a node, with everything that a kubelet reports.
func runningPod(t *testing.T, client kubernetes.Interface, space, node string) *v1.Pod {
	t.Helper()
	pod, err := client.CoreV1().Pods(space).Create(t.Context(), &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Labels: map[string]string{"app": "web"}, Annotations: map[string]string{"note": "kept"}},
		Spec: v1.PodSpec{NodeName: node, Containers: []v1.Container{{Name: "c", Image: "none"}},
			Volumes: []v1.Volume{{Name: "scratch", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	now := metav1.NewTime(time.Now().Truncate(time.Second))
	pod.Status.Phase, pod.Status.PodIP, pod.Status.PodIPs = v1.PodRunning, "10.0.0.1", []v1.PodIP{{IP: "10.0.0.1"}}
	pod.Status.HostIP, pod.Status.HostIPs, pod.Status.StartTime = "10.1.0.1", []v1.HostIP{{IP: "10.1.0.1"}}, &now
	pod.Status.Conditions = []v1.PodCondition{
		{Type: v1.PodInitialized, Status: v1.ConditionTrue, LastTransitionTime: now},
		{Type: v1.PodReady, Status: v1.ConditionTrue, LastTransitionTime: now},
		{Type: v1.ContainersReady, Status: v1.ConditionTrue, LastTransitionTime: now},
	}
	pod.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "c", Image: "none", ContainerID: "test://1", Ready: true,
		State: v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: now}}}}
	pod, err = client.CoreV1().Pods(space).UpdateStatus(t.Context(), pod, metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return pod
}

// TestSlimNodesInRanges checks that a range has slim copies of Nodes, and that a DaemonSet gets its
// Pod from these. With a group that has whole Nodes the process has each Node once.
func TestSlimNodesInRanges(t *testing.T) {
	c, _ := newConfig(t)
	process, err := controllers.NewProcess(c, controllers.NewEndpoints())
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(plane.AdminConfig())
	if err != nil {
		t.Fatal(err)
	}
	node := silentNode(t, client)
	change := func(change func(*v1.Node)) {
		t.Helper()
		// A controller writes the Node, too.
		err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
			live, err := client.CoreV1().Nodes().Get(t.Context(), node, metav1.GetOptions{})
			if err != nil {
				return err
			}
			change(live)
			updated, err := client.CoreV1().Nodes().Update(t.Context(), live, metav1.UpdateOptions{})
			if err != nil {
				return err
			}
			updated.Status.Images = []v1.ContainerImage{{Names: []string{"heavy"}}}
			_, err = client.CoreV1().Nodes().UpdateStatus(t.Context(), updated, metav1.UpdateOptions{})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	change(func(n *v1.Node) {
		n.Labels, n.Annotations = map[string]string{"slim": node}, map[string]string{"long": "note"}
	})
	ranged := start(t, process, controllers.Spec{
		ID: shard.ID{Ring: "namespaces", Name: "00"}, Range: shard.Everything(), Share: 1, Shards: 1,
		Controllers: []string{names.DaemonSetController, names.EndpointSliceController, names.TaintEvictionController},
	})
	slimmed, err := ranged.Informers().Slimmed(slim.Nodes)
	if err != nil {
		t.Fatal(err)
	}
	nodes := slimmed.Core().V1().Nodes().Lister()
	waitFor(t, "the Node to be held in a slim copy", func() bool {
		n, err := nodes.Get(node)
		return err == nil && n.Labels["slim"] == node && len(n.Status.Images)+len(n.Annotations) == 0 && len(n.Status.Conditions) == 1
	})
	space := testNamespace(t, client, "slim-nodes-")
	labels := map[string]string{"app": "web"}
	if _, err := client.AppsV1().DaemonSets(space).Create(t.Context(), &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: v1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec: v1.PodSpec{NodeSelector: map[string]string{"slim": node}, Containers: []v1.Container{{Name: "c", Image: "none"}},
				Tolerations: []v1.Toleration{{Operator: v1.TolerationOpExists}}}, // the API server taints each new Node
		}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the DaemonSet to have a Pod", func() bool {
		pods, err := client.CoreV1().Pods(space).List(t.Context(), metav1.ListOptions{})
		return err == nil && len(pods.Items) == 1
	})
	group := start(t, process, controllers.Spec{
		ID: shard.ID{Ring: "cluster", Name: "nodes"}, Range: shard.Everything(), Controllers: []string{names.TTLController},
	})
	whole := group.Informers().Core().V1().Nodes().Lister()
	looks := 0
	waitFor(t, "both to have the same Node, whole", func() bool {
		looks++
		// Only an event shows that one has seen as much as the other.
		change(func(n *v1.Node) { metav1.SetMetaDataAnnotation(&n.ObjectMeta, "look", fmt.Sprint(looks)) })
		a, err := nodes.Get(node)
		b, also := whole.Get(node)
		return err == nil && also == nil && a == b && len(a.Status.Images) == 1
	})
}
