package catalogue

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kubernetes/cmd/kube-controller-manager/names"
)

// TestObjectsOfEveryController fails if upstream adds a controller for which objects does not say
// what it decides about.
func TestObjectsOfEveryController(t *testing.T) {
	rows := map[string]bool{}
	for _, row := range All() {
		rows[row.Name] = true
		if len(objects[row.Name]) == 0 && row.Name != names.GarbageCollectorController {
			t.Errorf("%s: say in objects what it decides about", row.Name)
		}
	}
	for name := range objects {
		if !rows[name] {
			t.Errorf("%s is in objects but not in the catalogue", name)
		}
	}
}

// TestDeciding looks up types of a namespace, types of the cluster, and an unknown type.
func TestDeciding(t *testing.T) {
	parts, err := DefaultPlan(4)
	if err != nil {
		t.Fatal(err)
	}
	whole := parts
	whole.Rings = slices.Clone(parts.Rings)
	for i := range whole.Rings {
		whole.Rings[i].Shards = slices.Clone(whole.Rings[i].Shards)
		for j, s := range whole.Rings[i].Shards {
			if at := slices.Index(s.Controllers, ClusterCollector); at >= 0 {
				s.Controllers = slices.Clone(s.Controllers)
				s.Controllers[at] = names.GarbageCollectorController
				whole.Rings[i].Shards[j] = s
			}
		}
	}
	for _, test := range []struct {
		resource   schema.GroupResource
		namespaced bool
		want       []string
	}{
		{schema.GroupResource{Group: "apps", Resource: "deployments"}, true,
			[]string{names.DeploymentController, names.GarbageCollectorController}},
		{schema.GroupResource{Resource: "nodes"}, false, []string{ClusterCollector, names.NodeIpamController,
			names.NodeLifecycleController, names.PersistentVolumeAttachDetachController, names.TTLController}},
		{schema.GroupResource{Group: "example.com", Resource: "widgets"}, false, []string{ClusterCollector}},
		{schema.GroupResource{Group: "example.com", Resource: "deployments"}, true,
			[]string{names.GarbageCollectorController}},
	} {
		if got := Deciding(test.resource, test.namespaced, parts); !slices.Equal(got, test.want) {
			t.Errorf("%s: %v, want %v", test.resource, got, test.want)
		}
	}
	widget := schema.GroupResource{Group: "example.com", Resource: "widgets"}
	if got := Deciding(widget, false, whole); !slices.Equal(got, []string{names.GarbageCollectorController}) {
		t.Errorf("of a plan with the whole garbage collector: %v", got)
	}
}
