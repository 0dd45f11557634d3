package election

import (
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

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

func answered(status int, contentType, body string) *http.Response {
	return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {contentType}}, Body: io.NopCloser(strings.NewReader(body))}
}

// TestFenceRemembersLastWrites sends writes through a fence and asks what it leaves behind.
func TestFenceRemembersLastWrites(t *testing.T) {
	const jsonType, status = "application/json", `{"kind":"Status","details":{"uid":"u1"}}`
	pod := func(version string) string { return `{"kind":"Pod","metadata":{"resourceVersion":"` + version + `"}}` }
	server := &answers{
		answered(201, jsonType, pod("30")),
		answered(200, jsonType, pod("9")), // answered out of order, and not by their digits
		answered(409, jsonType, status),
		answered(200, jsonType, status),
		answered(200, jsonType, pod("99")), // a read
		answered(200, "text/html", "<html>"),
		answered(504, jsonType, status),
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
	writes, proven := lease.Writes()
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
		if _, proven := o.Writes(); proven {
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
