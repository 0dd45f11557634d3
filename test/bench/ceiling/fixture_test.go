package ceiling_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/flotilla-kube/flotilla/test/bench/ceiling"
)

const (
	replicaSets = "system:serviceaccount:kube-system:replicaset-controller"
	deployments = "system:serviceaccount:kube-system:deployment-controller"
	admin       = "admin"
)

// object is a JSON object.
type object = map[string]any

// uid returns the n-th UID; the first letter tells those of the replay apart.
func uid(first string, n int) string {
	return fmt.Sprintf("%s%07d-0000-0000-0000-000000000000", first, n)
}

// event returns a line of the log: a request at this second, and its answer.
func event(second int, user, verb, uri string, ref object, request, answer any) string {
	code := 200
	if verb == "create" {
		code = 201
	}
	ref["apiVersion"] = "v1"
	e := object{
		"kind": "Event", "apiVersion": "audit.k8s.io/v1", "stage": "ResponseComplete", "verb": verb, "requestURI": uri, "objectRef": ref,
		"user": object{"username": user}, "userAgent": "kube-controller-manager/v1.37.1", "responseStatus": object{"code": code},
		"requestReceivedTimestamp": time.Unix(int64(second), 0).UTC().Format("2006-01-02T15:04:05.000000Z"),
	}
	if request != nil {
		e["requestObject"] = request
	}
	if answer != nil {
		e["responseObject"] = answer
	}
	text, err := json.Marshal(e)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// create returns the create of an object with fields besides metadata, answered with the UID.
func create(second int, user, group, resource, kind, name, made string, fields object) string {
	return event(second, user, "create", path(group, resource), object{"apiGroup": group, "resource": resource, "namespace": "ns", "name": name},
		whole(group, kind, object{"name": name, "namespace": "ns"}, fields), whole(group, kind, object{"name": name, "namespace": "ns", "uid": made, "resourceVersion": "7"}, fields))
}

func whole(group, kind string, metadata, fields object) object {
	o := object{"kind": kind, "apiVersion": strings.TrimPrefix(group+"/v1", "/"), "metadata": metadata}
	for key, value := range fields {
		if key == "metadata" {
			for key, value := range value.(object) {
				metadata[key] = value
			}
			continue
		}
		o[key] = value
	}
	return o
}

func path(group, resource string) string {
	if group == "" {
		return "/api/v1/namespaces/ns/" + resource
	}
	return "/apis/" + group + "/v1/namespaces/ns/" + resource
}

func owned(kind, name, by string) object {
	return object{"ownerReferences": []any{object{"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": by, "controller": true}}}
}

// record reads a log of these lines and an incomplete one.
func record(t *testing.T, lines ...string) ceiling.Recording {
	t.Helper()
	r, err := ceiling.Record(strings.NewReader(strings.Join(append(lines, `{"kind": "Eve`), "\n")))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// got is a request that a server has received.
type got struct {
	method, uri, kind string
	body              object
}

// resources are those to whose objects a server gives the UIDs 1, 2 and so on; it gives 0 to
// others.
var resources = []string{"deployments", "replicasets", "pods"}

// server answers every request with an object with a UID, unless answer says otherwise.
type server struct {
	*httptest.Server
	// answer returns a code other than 0 to refuse; it may wait. May be nil.
	answer func(got) (code int, reason string)

	mu       sync.Mutex
	requests []got
	versions int
}

func serve(t *testing.T, answer func(got) (int, string)) *server {
	t.Helper()
	s := &server{answer: answer}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

func (s *server) config() *rest.Config { return &rest.Config{Host: s.URL} }

// ServeHTTP implements http.Handler.
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	text, _ := io.ReadAll(r.Body)
	g := got{method: r.Method, uri: r.URL.RequestURI(), kind: r.Header.Get("Content-Type")}
	if g.kind == runtime.ContentTypeProtobuf {
		decoded, _, err := scheme.Codecs.UniversalDeserializer().Decode(text, nil, nil)
		if err == nil {
			g.body, _ = runtime.DefaultUnstructuredConverter.ToUnstructured(decoded)
		}
	} else if len(text) > 0 {
		_ = json.Unmarshal(text, &g.body)
	}
	s.mu.Lock()
	s.requests = append(s.requests, g)
	s.versions++
	version := s.versions
	s.mu.Unlock()
	w.Header().Set("Content-Type", runtime.ContentTypeJSON)
	if s.answer != nil {
		if code, reason := s.answer(g); code != 0 {
			w.WriteHeader(code)
			_ = json.NewEncoder(w).Encode(object{"kind": "Status", "apiVersion": "v1", "code": code, "reason": reason, "message": reason})
			return
		}
	}
	_ = json.NewEncoder(w).Encode(whole("", "ConfigMap", object{"name": "x", "uid": uid("f", 1+slices.IndexFunc(resources, func(r string) bool { return strings.Contains(g.uri, r) })), "resourceVersion": fmt.Sprint(1000 + version)}, nil))
}

// all returns the requests so far, by "METHOD uri".
func (s *server) all() map[string]got {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := map[string]got{}
	for _, g := range s.requests {
		all[g.method+" "+g.uri] = g
	}
	return all
}

func at(t *testing.T, o any, keys ...any) any {
	t.Helper()
	for _, key := range keys {
		switch key := key.(type) {
		case string:
			m, _ := o.(object)
			o = m[key]
		case int:
			list, _ := o.([]any)
			if key >= len(list) {
				t.Fatalf("no element %d", key)
			}
			o = list[key]
		}
	}
	return o
}
