package cli

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	discoveryfake "k8s.io/client-go/discovery/fake"

	"github.com/flotilla-kube/flotilla/internal/status"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
	"github.com/flotilla-kube/flotilla/pkg/shard/skew"
)

// served are the types of the test's API server.
var served = []*metav1.APIResourceList{
	{GroupVersion: "v1", APIResources: []metav1.APIResource{
		{Name: "namespaces", SingularName: "namespace", Kind: "Namespace", ShortNames: []string{"ns"}},
		{Name: "nodes", SingularName: "node", Kind: "Node", ShortNames: []string{"no"}},
		{Name: "persistentvolumeclaims", SingularName: "persistentvolumeclaim", Kind: "PersistentVolumeClaim", Namespaced: true, ShortNames: []string{"pvc"}},
	}},
	{GroupVersion: "apps/v1", APIResources: []metav1.APIResource{
		{Name: "deployments", SingularName: "deployment", Kind: "Deployment", Namespaced: true, ShortNames: []string{"deploy"}},
	}},
}

// testDeciding is what the test's build says of types.
func testDeciding(resource schema.GroupResource, _ bool, _ shard.Plan) []string {
	switch resource.Resource {
	case "deployments":
		return []string{"deployment", "replicaset"}
	case "nodes":
		return []string{"job", "nodes-controller", "volumes-controller"}
	case "persistentvolumeclaims":
		return []string{"volumes-controller"}
	default:
		return nil
	}
}

func (c *cluster) serving() *cluster {
	c.Discovery().(*discoveryfake.FakeDiscovery).Resources = served
	return c
}

// TestExplainObject names the type of an object in every way that kubectl accepts.
func TestExplainObject(t *testing.T) {
	for _, test := range []struct {
		args string
		want []string
		not  string
	}{
		{"deployment/web -n orders", []string{"Object deployments.apps/web of namespace orders, hash 0x00125d9250be8b4c", "shard         namespaces/00", "decides       deployment\n", "Not in the plan, so that nobody runs them: replicaset"}, "Group"},
		{"deploy/web -n orders", []string{"deployments.apps/web of namespace orders"}, "Group"},
		{"Deployments.v1.apps/web -n orders", []string{"deployments.apps/web of namespace orders"}, "Group"},
		{"deployments.apps/web -n orders", []string{"deployments.apps/web of namespace orders"}, "Group"},
		{"pvc/data --namespace=orders", []string{"persistentvolumeclaims/data of namespace orders", "Group cluster/volumes", "holder        flotilla-1", "decides       volumes-controller"}, "nodes"},
		{"no/worker-1 -n orders", []string{"Object nodes/worker-1, of no namespace", "Group cluster/nodes", "Group cluster/volumes", "In each range, for the objects of its namespaces: job"}, "Ring"},
		{"namespace/orders", []string{"Object namespaces/orders, hash 0x00125d9250be8b4c", "shard         namespaces/00"}, "of namespace"},
	} {
		t.Run(test.args, func(t *testing.T) {
			c := newCluster(newLeases(t, testPlan(t))).serving()
			out, _, err := c.run(t, "", append([]string{"explain"}, strings.Fields(test.args)...)...)
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range test.want {
				if !strings.Contains(out, want) {
					t.Errorf("%q is missing:\n%s", want, out)
				}
			}
			if strings.Contains(out, test.not) {
				t.Errorf("%q is present:\n%s", test.not, out)
			}
			if c.writes() > 0 {
				t.Errorf("%d writes", c.writes())
			}
		})
	}
	_, _, err := newCluster(newLeases(t, testPlan(t))).serving().run(t, "", "explain", "widget/x", "-n", "orders")
	if err == nil || !strings.Contains(err.Error(), `TYPE "widget"`) || !strings.Contains(err.Error(), "api-resources") {
		t.Errorf("an unknown type: %v", err)
	}
}

// TestExplainObjectOfContext checks that the namespace comes from the kubeconfig's context, as in
// kubectl.
func TestExplainObjectOfContext(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config")
	text := `{"apiVersion":"v1","kind":"Config","current-context":"a","contexts":[{"name":"a","context":{"cluster":"a","namespace":"orders"}},{"name":"b","context":{"cluster":"a"}}],"clusters":[{"name":"a","cluster":{"server":"https://127.0.0.1:1"}}]}`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for context, want := range map[string]string{"a": "orders", "b": "default"} {
		out, _, err := newCluster(newLeases(t, testPlan(t))).serving().run(t, "", "explain", "deploy/web", "--kubeconfig", file, "--context", context)
		if err != nil || !strings.Contains(out, "of namespace "+want) {
			t.Errorf("context %s: %v\n%s", context, err, out)
		}
	}
}

func TestExplainObjectOutputs(t *testing.T) {
	_, l := busyFleet(t)
	for name, of := range map[string]resourceType{
		"deployment": {schema.GroupResource{Group: "apps", Resource: "deployments"}, true},
		"node":       {schema.GroupResource{Resource: "nodes"}, false},
	} {
		e, err := ExplainObject(l.read(), of, "orders", name, testDeciding)
		if err != nil {
			t.Fatal(err)
		}
		golden(t, "explain-object-"+name, e, tableExplanation)
	}
}

// knowing makes a member publish that its version has these controllers.
func (l leases) knowing(member string, scope shard.Scope, controllers ...string) {
	build := skew.Build{Version: "v1.37.1"}
	for _, name := range controllers {
		build.Controllers = append(build.Controllers, skew.Controller{Name: name, Scopes: []shard.Scope{scope}})
	}
	l["flotilla-member-"+member].Annotations[leaseapi.CatalogueAnnotation] = build.Known().String()
}

// TestExplainController: the output names the members that run a controller, and those that lack
// it.
func TestExplainController(t *testing.T) {
	_, l := busyFleet(t)
	l.knowing("flotilla-0", shard.ScopeNamespaced, "job", "novel-controller")
	l.at("00").Annotations[leaseapi.LacksAnnotation] = "daemonset,deployment"
	for file, name := range map[string]string{"range": "deployment", "group": "volumes"} {
		e, err := ExplainController(l.read(), name)
		if err != nil {
			t.Fatal(err)
		}
		golden(t, "explain-controller-"+file, e, tableController)
	}
	for _, name := range []string{"novel-controller", "novel"} {
		e, err := ExplainController(l.read(), name)
		if err != nil || e.Ring != "" || e.Controller != "novel-controller" || !slices.Equal(e.Knowing, []string{"flotilla-0"}) {
			t.Errorf("of a controller that the plan does not have: %+v, %v", e, err)
		}
	}
	_, err := ExplainController(l.read(), "volumes-binder")
	if err == nil || !strings.Contains(err.Error(), `"volumes-binder"`) || !strings.Contains(err.Error(), "volumes-controller") {
		t.Errorf("of one that nobody has: %v", err)
	}
	out, _, err := newCluster(l).run(t, "", "explain", "--controller", "volumes")
	if err != nil || !strings.Contains(out, "Controller volumes-controller, in the group cluster/volumes") {
		t.Errorf("%v\n%s", err, out)
	}

	e, err := ExplainController(l.read(), "deployment")
	if i := slices.IndexFunc(e.Shards, func(s ControllerShard) bool { return s.Lacks }); err != nil || i != 0 || e.Shards[0].State != status.StateWaiting {
		t.Errorf("%+v, %v", e, err)
	}
}
