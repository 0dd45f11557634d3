package ceiling_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/flotilla-kube/flotilla/test/bench/ceiling"
)

func TestRecordKeepsWhatControllersWrote(t *testing.T) {
	refused := strings.Replace(create(1, replicaSets, "", "pods", "Pod", "p", uid("a", 1), nil), `"code":201`, `"code":409`, 1)
	begun := strings.Replace(create(1, replicaSets, "", "pods", "Pod", "p", uid("a", 1), nil), "ResponseComplete", "RequestReceived", 1)
	read := event(1, replicaSets, "list", "/api/v1/pods", object{"resource": "pods"}, nil, nil)
	dry := event(1, replicaSets, "delete", path("", "pods")+"/p", object{"resource": "pods", "name": "p"}, object{"dryRun": []any{"All"}}, nil)
	token := event(1, replicaSets, "create", path("", "serviceaccounts")+"/a/token", object{"resource": "serviceaccounts", "subresource": "token", "name": "a"}, object{}, nil)
	r := record(t,
		create(1, admin, "apps", "deployments", "Deployment", "d", uid("a", 9), nil),
		create(2, replicaSets, "", "pods", "Pod", "p", uid("a", 2), nil),
		create(3, replicaSets, "", "events", "Event", "e", uid("a", 3), nil),
		create(1, "system:kube-controller-manager", "coordination.k8s.io", "leases", "Lease", "l", uid("a", 4), nil),
		refused, begun, read, dry, token)
	if r.Len() != 2 || r.Since(time.Unix(3, 0)) != 1 {
		t.Errorf("%d requests, %d since second 3, want 2 and 1", r.Len(), r.Since(time.Unix(3, 0)))
	}
	want := map[string]int{"not successful": 1, "Lease": 1, "dry run": 1, "review or token": 1}
	if !maps.Equal(r.Left, want) {
		t.Errorf("left out %v, want %v", r.Left, want)
	}
}

func TestRecordWantsObjects(t *testing.T) {
	line := event(1, replicaSets, "create", path("", "pods"), object{"resource": "pods", "name": "p"}, nil, nil)
	for want, log := range map[string]string{"controlplane.Options.AuditObjects": line + "\n", "line 2": "{}\nno\n"} {
		if _, err := ceiling.Record(strings.NewReader(log)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
}

// TestBodies replays one request of each kind, and checks what arrives.
func TestBodies(t *testing.T) {
	user, set, pod, job := uid("a", 1), uid("a", 2), uid("a", 3), uid("a", 4)
	generated := create(3, replicaSets, "", "pods", "Pod", "s-x7k2p", pod, object{"metadata": owned("ReplicaSet", "s", set)})
	// As the controller requested it, without a name.
	generated = strings.Replace(generated, `"name":"s-x7k2p","namespace":"ns","ownerReferences"`, `"generateName":"s-","namespace":"ns","ownerReferences"`, 1)
	named := func(resource, name string) object {
		return object{"resource": resource, "namespace": "ns", "name": name}
	}
	r := record(t,
		create(1, admin, "apps", "deployments", "Deployment", "d", user, nil),
		create(2, deployments, "apps", "replicasets", "ReplicaSet", "s", set, object{"metadata": owned("Deployment", "d", user)}),
		generated,
		event(4, replicaSets, "update", "/apis/apps/v1/namespaces/ns/replicasets/s/status", object{"apiGroup": "apps", "resource": "replicasets", "subresource": "status", "namespace": "ns", "name": "s"},
			whole("apps", "ReplicaSet", object{"name": "s", "namespace": "ns", "uid": set, "resourceVersion": "8", "creationTimestamp": "2026-01-01T00:00:00Z"}, object{"status": object{"replicas": 1}}), nil),
		event(5, replicaSets, "patch", path("", "pods")+"/s-x7k2p", named("pods", "s-x7k2p"), object{"metadata": object{"uid": pod, "resourceVersion": "9", "labels": object{"of": set, "job": job}}}, nil),
		event(6, replicaSets, "delete", path("", "pods")+"/s-x7k2p", named("pods", "s-x7k2p"),
			object{"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/__internal", "preconditions": object{"uid": pod}, "propagationPolicy": "Background"}, nil),
	)
	s := serve(t, nil)
	out, err := r.Replay(t.Context(), s.config(), ceiling.Options{})
	if err != nil || out.Requests != 5 || out.Failed != 0 {
		t.Fatalf("%+v, %v", out, err)
	}
	all := s.all()
	find := func(key, kind string) object {
		g, ok := all[key]
		if !ok || g.kind != kind {
			t.Fatalf("%s has kind %q, want %q; there are %v", key, g.kind, kind, all)
		}
		return g.body
	}
	const binary, text = "application/vnd.kubernetes.protobuf", "application/json"
	// The UIDs that the server assigned.
	deploymentNow, setNow, podNow := uid("f", 1), uid("f", 2), uid("f", 3)

	if _, read := all["GET "+path("apps", "deployments")+"/d"]; !read {
		t.Error("the UID of a user's object was not read")
	}
	body := find("POST "+path("apps", "replicasets"), binary)
	expect(t, "owner of the ReplicaSet", at(t, body, "metadata", "ownerReferences", 0, "uid"), deploymentNow)
	body = find("POST "+path("", "pods"), binary)
	expect(t, "name of the pod", at(t, body, "metadata", "name"), "s-x7k2p")
	expect(t, "owner of the pod", at(t, body, "metadata", "ownerReferences", 0, "uid"), setNow)
	body = find("PUT "+path("apps", "replicasets")+"/s/status", binary)
	expect(t, "UID in the update", at(t, body, "metadata", "uid"), setNow)
	expect(t, "version in the update", at(t, body, "metadata", "resourceVersion"), nil)
	body = find("PATCH "+path("", "pods")+"/s-x7k2p", "application/strategic-merge-patch+json")
	expect(t, "UID in the patch", at(t, body, "metadata", "uid"), podNow)
	expect(t, "version in the patch", at(t, body, "metadata", "resourceVersion"), nil)
	expect(t, "UID in a label", at(t, body, "metadata", "labels", "of"), setNow)
	expect(t, "what is no object's UID", at(t, body, "metadata", "labels", "job"), job)
	body = find("DELETE "+path("", "pods")+"/s-x7k2p", text)
	expect(t, "preconditions", at(t, body, "preconditions"), nil)
	expect(t, "propagation", at(t, body, "propagationPolicy"), "Background")
	expect(t, "version of the options", at(t, body, "apiVersion"), "v1")
}

func expect(t *testing.T, what string, got, want any) {
	t.Helper()
	if got != want {
		t.Errorf("%s is %v, want %v", what, got, want)
	}
}

// TestKindsOfPatches lists what distinguishes the types of patches.
func TestKindsOfPatches(t *testing.T) {
	for name, test := range map[string]struct {
		group, query string
		body         any
		want         string
	}{
		"built-in": {"apps", "", object{"spec": object{}}, "application/strategic-merge-patch+json"},
		"custom":   {"example.com", "", object{"spec": object{}}, "application/merge-patch+json"},
		"list":     {"apps", "", []any{object{"op": "remove", "path": "/spec"}}, "application/json-patch+json"},
		"apply":    {"apps", "?fieldManager=x&force=true", whole("apps", "Deployment", object{"name": "d"}, nil), "application/apply-patch+yaml"},
	} {
		t.Run(name, func(t *testing.T) {
			uri := path(test.group, "deployments") + "/d" + test.query
			r := record(t, event(1, deployments, "patch", uri, object{"apiGroup": test.group, "resource": "deployments", "namespace": "ns", "name": "d"}, test.body, nil))
			s := serve(t, nil)
			if _, err := r.Replay(t.Context(), s.config(), ceiling.Options{}); err != nil {
				t.Fatal(err)
			}
			expect(t, "kind", s.all()["PATCH "+uri].kind, test.want)
		})
	}
}

// TestLatestVersion has a resource that requires a resourceVersion: it is read first, then taken
// from the answers, of patches too.
func TestLatestVersion(t *testing.T) {
	ref := func() object {
		return object{"apiGroup": "policy", "resource": "poddisruptionbudgets", "namespace": "ns", "name": "b"}
	}
	uri := path("policy", "poddisruptionbudgets") + "/b"
	body := whole("policy", "PodDisruptionBudget", object{"name": "b", "namespace": "ns", "resourceVersion": "5"}, nil)
	r := record(t,
		event(1, replicaSets, "update", uri, ref(), body, nil),
		event(2, deployments, "patch", uri, ref(), object{"spec": object{}}, nil),
		event(3, replicaSets, "update", uri, ref(), body, nil))
	s := serve(t, nil)
	if _, err := r.Replay(t.Context(), s.config(), ceiling.Options{}); err != nil {
		t.Fatal(err)
	}
	var versions []any
	for _, g := range s.requests {
		versions = append(versions, g.method, at(t, g.body, "metadata", "resourceVersion"))
	}
	expect(t, "versions", fmt.Sprint(versions), "[GET <nil> PUT 1001 PATCH <nil> PUT 1003]")
}
