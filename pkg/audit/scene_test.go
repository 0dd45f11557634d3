package audit_test

import (
	"fmt"
	"maps"
	"net/http"

	"github.com/flotilla-kube/flotilla/pkg/audit"
)

const (
	collector = "system:serviceaccount:kube-system:generic-garbage-collector"
	user      = "kubectl/v1.37.1"
	machine   = "node-000"
)

// jsonObject is an object in an answer.
type jsonObject map[string]any

// object returns an object whose UID is its kind and name.
func object(kind, namespace, name string) jsonObject {
	return jsonObject{"kind": kind, "metadata": map[string]any{"name": name, "namespace": namespace, "uid": kind + "-" + name}}
}

// set returns a copy with a field of a section: metadata, spec or status.
func (o jsonObject) set(section, key string, value any) jsonObject {
	o = maps.Clone(o)
	inner, _ := o[section].(map[string]any)
	inner = maps.Clone(inner)
	if inner == nil {
		inner = map[string]any{}
	}
	inner[key] = value
	o[section] = inner
	return o
}

// of returns a copy that owner, of the given API, controls.
func (o jsonObject) of(api string, owner jsonObject) jsonObject {
	m := owner["metadata"].(map[string]any)
	return o.set("metadata", "ownerReferences", []any{map[string]any{
		"apiVersion": api, "kind": owner["kind"], "name": m["name"], "uid": m["uid"], "controller": true,
	}})
}

// is returns a copy with the given generation, of which the controller has seen another one.
func (o jsonObject) is(generation, seen int) jsonObject {
	return o.set("metadata", "generation", generation).set("status", "observedGeneration", seen)
}

// does returns a request for an object. The answer is the object at a version, or a Status if
// version is 0.
func does(verb, agent, group, resource string, o jsonObject, version int, second float64) line {
	m := o["metadata"].(map[string]any)
	l := request(verb, agent, group, resource, m["namespace"].(string), m["name"].(string), second)
	if verb == "create" {
		l = l.with("responseStatus", map[string]any{"code": http.StatusCreated})
	}
	if version == 0 {
		return l.with("responseObject", map[string]any{
			"kind": "Status", "status": "Success", "metadata": map[string]any{}, "details": map[string]any{"uid": m["uid"]},
		})
	}
	return l.with("responseObject", o.set("metadata", "resourceVersion", fmt.Sprint(version)))
}

// arrives returns a request of which only the arrival is known.
func arrives(l line) line {
	l = l.with("stage", "RequestReceived").with("stageTimestamp", l["requestReceivedTimestamp"])
	delete(l, "responseStatus")
	delete(l, "responseObject")
	return l
}

var (
	by1 = agent(a, lower, 1)

	set = object("ReplicaSet", low, "web").set("spec", "replicas", 3).is(1, 1)
)

// pod returns a pod of the ReplicaSet on the machine.
func pod(name string) jsonObject {
	return object("Pod", low, name).of("apps/v1", set).set("spec", "nodeName", machine).set("status", "phase", "Running")
}

// scene returns a node, and a ReplicaSet of three whose pods member a has created. Tests add to it
// from second 100 and version 100 on, when all caches are up to date.
func scene() []line {
	node := object("Node", "", machine)
	return []line{
		lease(lower, a, 1, 10, 0), lease(nodes, a, 1, 11, 0),
		does("create", user, "", "nodes", node, 20, 1),
		does("create", user, "apps", "replicasets", set.is(1, 0), 21, 1),
		does("create", by1, "", "pods", pod("p0"), 22, 2),
		does("create", by1, "", "pods", pod("p1"), 23, 2),
		does("create", by1, "", "pods", pod("p2"), 24, 2),
		does("update", by1, "apps", "replicasets/status", set, 25, 3),
	}
}

// sceneCase adds lines to the scene.
type sceneCase struct {
	lines []line
	want  []audit.Kind
	// judged is how many objects the test's rule judges, including those of the scene.
	judged int
}
