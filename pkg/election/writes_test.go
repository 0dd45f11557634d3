package election

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
)

const (
	protobufType = "application/vnd.kubernetes.protobuf"
	jsonType     = "application/json"
)

func encoded(t *testing.T, object runtime.Object, contentType string) []byte {
	t.Helper()
	if contentType == jsonType {
		text, err := json.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	var out bytes.Buffer
	if err := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(object, &out); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func meta(version string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: "n", Namespace: "ns", UID: "u", ResourceVersion: version, Generation: 3,
		Labels: map[string]string{"a": "b"}, Finalizers: []string{"f"},
	}
}

// TestParseAnswer has the answers that an API server gives to writes, in both encodings.
func TestParseAnswer(t *testing.T) {
	for name, tc := range map[string]struct {
		object  runtime.Object
		version string
		gone    types.UID
	}{
		"object":                      {&corev1.Pod{TypeMeta: metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}, ObjectMeta: meta("17")}, "17", ""},
		"subresource of its own kind": {&autoscalingv1.Scale{TypeMeta: metav1.TypeMeta{Kind: "Scale", APIVersion: "autoscaling/v1"}, ObjectMeta: meta("18")}, "18", ""},
		"without a version":           {&corev1.Pod{TypeMeta: metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}}, "", ""},
		"status of a deletion": {&metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Success",
			Details: &metav1.StatusDetails{Name: "n", Kind: "pods", UID: "gone-1"}}, "", "gone-1"},
		"status without details": {&metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Success"}, "", ""},
	} {
		for _, contentType := range []string{jsonType, protobufType} {
			t.Run(name+" as "+contentType, func(t *testing.T) {
				version, gone, err := parseAnswer(contentType, encoded(t, tc.object, contentType))
				if version != tc.version || gone != tc.gone || err != nil {
					t.Errorf("parseAnswer() = %q, %q, %v, want %q, %q", version, gone, err, tc.version, tc.gone)
				}
			})
		}
	}
	for name, text := range map[string]string{"empty": "", "no object": "null and void", "cut": `{"kind":"Pod","metadata":{"resourceVersion":"1"`} {
		for _, contentType := range []string{jsonType, protobufType, "text/plain"} {
			if _, _, err := parseAnswer(contentType, []byte(text)); err == nil {
				t.Errorf("%s as %s was read", name, contentType)
			}
		}
	}
	large := &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{Kind: "ConfigMap", APIVersion: "v1"}, ObjectMeta: meta("19"), Data: map[string]string{"k": strings.Repeat("x", writeHead)}}
	if version, _, err := parseAnswer(protobufType, encoded(t, large, protobufType)[:writeHead]); version != "19" || err != nil {
		t.Errorf("the beginning of a large object gave %q, %v", version, err)
	}
}

func TestResourceOf(t *testing.T) {
	for path, want := range map[string]string{
		"/api/v1/namespaces/n/pods/p":                      "pods",
		"/api/v1/namespaces/n/pods/p/status":               "pods",
		"/api/v1/namespaces/n":                             "namespaces",
		"/api/v1/namespaces/n/finalize":                    "namespaces",
		"/api/v1/namespaces/n/status":                      "namespaces",
		"/api/v1/nodes/x":                                  "nodes",
		"/apis/apps/v1/namespaces/n/deployments/d/scale":   "deployments.apps",
		"/apis/storage.k8s.io/v1/volumeattachments/v":      "volumeattachments.storage.k8s.io",
		"/apis/example.com/v1/namespaces/status/widgets/w": "widgets.example.com",
		"/healthz":      "",
		"/apis/apps/v1": "",
		"/apis/authentication.k8s.io/v1/tokenreviews":            "tokenreviews.authentication.k8s.io",
		"/api/v1/namespaces/kube-system/serviceaccounts/x/token": "serviceaccounts",
	} {
		if got := resourceOf(path); got != want {
			t.Errorf("resourceOf(%q) = %q, want %q", path, got, want)
		}
	}
}

// answers is an API server that gives one answer after the other; nil is one that is lost.
type answers []*http.Response

func (a *answers) RoundTrip(*http.Request) (*http.Response, error) {
	next := (*a)[0]
	*a = (*a)[1:]
	if next == nil {
		return nil, io.ErrUnexpectedEOF
	}
	return next, nil
}

func answer(status int, contentType string, body []byte) *http.Response {
	return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {contentType}}, Body: io.NopCloser(bytes.NewReader(body))}
}

// TestFenceRemembersLastWrites sends writes through a fence and asks what it leaves behind.
func TestFenceRemembersLastWrites(t *testing.T) {
	pod := func(version string) []byte {
		return encoded(t, &corev1.Pod{TypeMeta: metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}, ObjectMeta: meta(version)}, protobufType)
	}
	status := encoded(t, &metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Details: &metav1.StatusDetails{UID: "u1"}}, jsonType)
	server := &answers{
		answer(201, protobufType, pod("30")),
		answer(200, protobufType, pod("9")), // answered out of order, and not by their digits
		answer(409, jsonType, status),
		answer(200, jsonType, status),
		answer(200, protobufType, pod("99")), // a read
		answer(200, "text/html", []byte("<html>")),
		answer(504, jsonType, status),
		nil,
	}
	fence, err := NewFence(FenceConfig{Member: self, Shard: "r/s", Clock: NewClock()})
	if err != nil {
		t.Fatal(err)
	}
	fence.Open(EndlessClaim(t.Context(), "l", self))
	client := http.Client{Transport: fence.Wrap(server)}
	for _, r := range []struct{ method, path string }{
		{http.MethodPost, "/api/v1/namespaces/n/pods"},
		{http.MethodPut, "/api/v1/namespaces/n/pods/p/status"},
		{http.MethodPut, "/apis/apps/v1/namespaces/n/deployments/d"},
		{http.MethodDelete, "/apis/apps/v1/namespaces/n/replicasets/r"},
		{http.MethodGet, "/api/v1/namespaces/n/pods/p"},
		{http.MethodPost, "/api/v1/namespaces/n/secrets"},
		{http.MethodPut, "/api/v1/namespaces/n/configmaps/c"},
		{http.MethodPut, "/api/v1/nodes/n"},
	} {
		request, err := http.NewRequestWithContext(t.Context(), r.method, "http://x"+r.path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		response, err := client.Do(request)
		if errors.Is(err, io.ErrUnexpectedEOF) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, response.Body); err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
	}
	lease := seen("", 7, 0)
	lease.Annotations = map[string]string{WritesAnnotation: fence.Writes(7).Annotation()}
	writes, proven := WritesOf(lease)
	if !proven {
		t.Fatalf("what was left proves nothing: %v", lease.Annotations)
	}
	if got := writes.Resources["pods"]; got.Version != "30" || got.Unknown {
		t.Errorf("pods: %+v, want version 30", got)
	}
	if _, there := writes.Resources["deployments.apps"]; there {
		t.Error("a refused write was remembered")
	}
	if got := writes.Resources["replicasets.apps"]; !slices.Equal(got.Gone, []types.UID{"u1"}) {
		t.Errorf("replicasets: %+v, want u1 gone", got)
	}
	for resource, what := range map[string]string{
		"secrets": "an answer that nobody can read", "configmaps": "a server that does not know", "nodes": "an answer that was lost",
	} {
		if !writes.Resources[resource].Unknown {
			t.Errorf("%s was passed over", what)
		}
	}
	for name, change := range map[string]func(*Observation){
		"another term": func(o *Observation) { o.Transitions = 8 },
		"held":         func(o *Observation) { o.Holder = other },
		"nothing left": func(o *Observation) { o.Annotations = nil },
		"nonsense":     func(o *Observation) { o.Annotations = map[string]string{WritesAnnotation: "{"} },
	} {
		o := lease
		change(&o)
		if _, proven := WritesOf(o); proven {
			t.Errorf("%s: it proves something", name)
		}
	}
}

// TestLeftOnRelease follows what is left on a Lease through release and acquisition.
func TestLeftOnRelease(t *testing.T) {
	lease := (stamp{}).held(nil, "f-s", self, 4, timing.LeaseDuration, at(0))
	left := released(lease, map[string]string{WritesAnnotation: "w"}, at(0))
	if left.Annotations[WritesAnnotation] != "w" {
		t.Errorf("annotations of the released Lease: %v", left.Annotations)
	}
	next := (stamp{}).held(asked(left, other), "f-s", other, 5, timing.LeaseDuration, at(0))
	if len(next.Annotations) != 0 {
		t.Errorf("the next holder's Lease still has %v", next.Annotations)
	}
}
