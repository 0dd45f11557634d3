package scenario

import (
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/ptr"

	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// TestBalancedNames compares the names with equal ranges: each range must have exactly its share.
func TestBalancedNames(t *testing.T) {
	for _, n := range []int{2, 8, 32, 200} {
		names := BalancedNames("ns", n)
		known := map[string]bool{}
		for _, name := range names {
			if faults := validation.IsDNS1123Label(name); len(faults) > 0 || known[name] {
				t.Errorf("%q: %v, there already %t", name, faults, known[name])
			}
			known[name] = true
		}
		for _, count := range []int{4, 8, 16} {
			ranges, err := shard.EqualRanges(count)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range ranges {
				in := 0
				for _, name := range names {
					if r.Contains(shard.Hash(name)) {
						in++
					}
				}
				if share := float64(n) / float64(count); float64(in) < share-1 || float64(in) > share+1 {
					t.Errorf("%d names, %d ranges: %d names in %v, want %v", n, count, in, r, share)
				}
			}
		}
	}
	if first, second := BalancedNames("ns", 8), BalancedNames("ns", 8); !slices.Equal(first, second) {
		t.Errorf("the names change: %v, then %v", first, second)
	}
}

func TestCaughtUp(t *testing.T) {
	deployment := func(generation, observed int64, replicas, updated, available int32) *appsv1.Deployment {
		return &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Generation: generation}, Spec: appsv1.DeploymentSpec{Replicas: ptr.To[int32](3)},
			Status: appsv1.DeploymentStatus{ObservedGeneration: observed, Replicas: replicas, UpdatedReplicas: updated, AvailableReplicas: available},
		}
	}
	for name, tc := range map[string]struct {
		d    *appsv1.Deployment
		want bool
	}{
		"as wanted":                 {deployment(2, 2, 3, 3, 3), true},
		"written since":             {deployment(3, 2, 3, 3, 3), false},
		"not seen by a controller":  {deployment(2, 1, 3, 3, 3), false},
		"a pod is not available":    {deployment(2, 2, 3, 3, 2), false},
		"a pod of the old template": {deployment(2, 2, 3, 2, 3), false},
		"a pod too many":            {deployment(2, 2, 4, 3, 3), false},
	} {
		if got := caughtUp(tc.d, 2); got != tc.want {
			t.Errorf("%s: got %t, want %t", name, got, tc.want)
		}
	}
}

// TestTrackerWaitsForTheAnswer shows a Deployment in its wanted state before the write has been
// answered, and after.
func TestTrackerWaitsForTheAnswer(t *testing.T) {
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "d", Generation: 1}, Spec: appsv1.DeploymentSpec{Replicas: ptr.To[int32](1)},
		Status: appsv1.DeploymentStatus{ObservedGeneration: 1, Replicas: 1, UpdatedReplicas: 1, AvailableReplicas: 1},
	}
	tr := &tracker{deployments: map[string]appsv1.Deployment{}, pending: map[string]write{}, progress: time.Now()}
	tr.sawPod(1)
	tr.writing("ns/d")
	tr.sawDeployment(d)
	if tr.waiting() != 1 || tr.done(1, 1) == nil {
		t.Error("done before the write was answered: the tracker may have seen the state before it")
	}
	tr.wrote("ns/d", d)
	if err := tr.done(1, 1); err != nil {
		t.Error(err)
	}
	if latency, _ := tr.seen(); latency == nil || latency.Count != 1 {
		t.Errorf("latency %+v, want one", latency)
	}
	for name, err := range map[string]error{"Deployment": tr.done(2, 1), "pod": tr.done(1, 2)} {
		if err == nil {
			t.Errorf("done although a %s is missing", name)
		}
	}
}

// TestBasicPhasesFit compares the number of objects with the phase before.
func TestBasicPhasesFit(t *testing.T) {
	const n = 3 // with 2, 3 and 4 pods at first
	want := map[string]int{"create": 15, "scale-up": 9, "scale-down": 15, "template": 12, "delete": 12}
	for _, p := range basicPhases(n) {
		if p.objects != want[p.name] {
			t.Errorf("%s: %d objects, want %d", p.name, p.objects, want[p.name])
		}
	}
}

// TestUsers checks what each scenario's users create.
func TestUsers(t *testing.T) {
	for name, want := range map[string][]int32{
		Basic: {2, 3, 4, 2}, ScaleOut: {1, 1, 1, 1}, RollingUpdate: {7, 7, 7, 7}, Chaos: nil, Burst: nil, Owners: nil, Arrivals: nil, Steady: nil, IdleCost: nil,
	} {
		s, err := Named(name)
		if err != nil {
			t.Fatal(err)
		}
		if (s.Users == nil) != (want == nil) {
			t.Errorf("%s: has users %t, want %t", name, s.Users != nil, want != nil)
		}
		if s.Users == nil {
			continue
		}
		env := NewEnv(Env{Client: fake.NewClientset(), Params: map[string]int{Namespaces: 2, Deployments: len(want), Replicas: 7}, Prefix: "ns"})
		if err := s.Users(t.Context(), env); err != nil {
			t.Fatal(err)
		}
		for i, replicas := range want {
			namespace, name := env.place(i)
			d, err := env.Client.AppsV1().Deployments(namespace).Get(t.Context(), name, metav1.GetOptions{})
			if err != nil || *d.Spec.Replicas != replicas {
				t.Errorf("%s: %v, %v, want %d replicas", name, d.Spec.Replicas, err, replicas)
			}
		}
	}
}

// TestDeploymentsLieEvenly counts Deployments in the quarters of the keyspace, as four members
// would have them.
func TestDeploymentsLieEvenly(t *testing.T) {
	for deployments, want := range map[int]int{4: 1, 8: 2, 16: 4, 32: 8, 64: 16} {
		env := NewEnv(Env{Params: map[string]int{Namespaces: 32, Deployments: deployments}, Prefix: "ns"})
		quarters := map[int]int{}
		for i := range deployments {
			namespace, _ := env.place(i)
			quarters[part(shard.Hash(namespace), 4)]++
		}
		if len(quarters) != 4 || quarters[0] != want || quarters[1] != want || quarters[2] != want {
			t.Errorf("%d Deployments are in the quarters as %v, want %d in each", deployments, quarters, want)
		}
	}
}
