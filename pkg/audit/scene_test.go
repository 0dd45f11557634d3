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

// thing is an object as an answer has it.
type thing map[string]any

// object has a UID that is its kind and name.
func object(kind, namespace, name string) thing {
	return thing{"kind": kind, "metadata": map[string]any{"name": name, "namespace": namespace, "uid": kind + "-" + name}}
}

// set returns a copy with a field of a section: metadata, spec or status.
func (o thing) set(section, key string, value any) thing {
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

// of returns a copy that is controlled by a thing of an API.
func (o thing) of(api string, owner thing) thing {
	m := owner["metadata"].(map[string]any)
	return o.set("metadata", "ownerReferences", []any{map[string]any{
		"apiVersion": api, "kind": owner["kind"], "name": m["name"], "uid": m["uid"], "controller": true,
	}})
}

// is returns a copy whose generation is wanted, and another that the controller has seen.
func (o thing) is(generation, seen int) thing {
	return o.set("metadata", "generation", generation).set("status", "observedGeneration", seen)
}

// does is a request for an object that is answered with it at a version, or with a word if that is
// 0.
func does(verb, agent, group, resource string, o thing, version int, second float64) line {
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

// arrives is a request of which nothing is known but that it came.
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

// pod of the ReplicaSet, on the machine.
func pod(name string) thing {
	return object("Pod", low, name).of("apps/v1", set).set("spec", "nodeName", machine).set("status", "phase", "Running")
}

// scene has a node, and a ReplicaSet of three whose three pods a has made. All else is added to it
// from second 100 on, when all caches are up to date, and from version 100.
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
	// judged is what it counts of its own rule, those of the scene included.
	judged int
}
