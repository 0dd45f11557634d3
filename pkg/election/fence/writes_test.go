package fence

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/flotilla-kube/flotilla/internal/apiresponse"
)

// answers is an API server that gives these answers in order; nil is a lost answer.
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

// TestFenceRemembersLastWrites sends writes through a fence and checks what its annotation says.
func TestFenceRemembersLastWrites(t *testing.T) {
	const jsonType, status = "application/json", `{"kind":"Status","details":{"uid":"u1"}}`
	pod := func(version string) string { return `{"kind":"Pod","metadata":{"resourceVersion":"` + version + `"}}` }
	server := &answers{
		answered(201, jsonType, pod("30")),
		answered(200, jsonType, pod("9")), // out of order, and lower only as a number
		answered(409, jsonType, status),
		answered(200, jsonType, status),
		answered(200, jsonType, pod("99")), // a read
		answered(200, "text/html", "<html>"),
		answered(504, jsonType, status),
		nil,
		answered(200, jsonType, `{"kind":"ConfigMapList","metadata":{"resourceVersion":"99"},"items":[{"metadata":{"uid":"u2"}}]}`),
		answered(200, jsonType, `{"kind":"Lease","metadata":{"resourceVersion":"5","uid":"u3","deletionTimestamp":"2026-01-01T00:00:00Z"}}`),
		answered(403, jsonType, status),
		answered(404, jsonType, status),
		answered(201, jsonType, `{"kind":"Status"}`),
		answered(429, "text/plain; charset=utf-8", "Too many requests, please try again later.\n"),
		answered(429, jsonType, status),
		answered(200, jsonType, `{"kind":"PartialObjectMetadata","metadata":{"resourceVersion":"5","uid":"u4","deletionTimestamp":"2026-01-01T00:00:00Z"}}`),
		answered(200, jsonType, `{"kind":"PartialObjectMetadata","metadata":{"resourceVersion":"5","uid":"u5","deletionTimestamp":"2026-01-01T00:00:00Z"}}`),
	}
	fence, err := New(Config{Member: "a_1", Shard: "r/s", Clock: &jumpClock{}})
	if err != nil {
		t.Fatal(err)
	}
	claim := newFakeClaim(t.Context(), time.Time{})
	claim.endless = true
	fence.Open(claim)
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
		{http.MethodDelete, "/api/v1/namespaces/n/endpoints"},
		{http.MethodPatch, "/apis/coordination.k8s.io/v1/namespaces/n/leases/l"},
		{http.MethodDelete, "/apis/apps/v1/namespaces/n/daemonsets"},
		{http.MethodDelete, "/apis/apps/v1/namespaces/n/statefulsets"},
		{http.MethodPost, "/api/v1/namespaces/n/bindings"},
		{http.MethodDelete, "/apis/batch/v1/namespaces/n/jobs"},
		{http.MethodDelete, "/apis/batch/v1/namespaces/n/cronjobs"},
		{http.MethodPatch, "/api/v1/namespaces/n"},
		{http.MethodPatch, "/apis/apps/v1/namespaces/n/controllerrevisions/r"},
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
	text := fence.Writes(7).Annotation()
	writes, proven := ParseWrites(text, 7)
	if !proven {
		t.Fatalf("the annotation proves nothing: %s", text)
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
	if got := writes.Resources["endpoints"]; !slices.Equal(got.Deleted, []types.UID{"u2"}) || got.Version != "" || got.Unknown {
		t.Errorf("endpoints, a collection: %+v, want u2 deleted and no version", got)
	}
	if got := writes.Resources["leases.coordination.k8s.io"]; !slices.Equal(got.Gone, []types.UID{"u3"}) || got.Unknown {
		t.Errorf("leases, an update that removed one: %+v, want u3 gone", got)
	}
	if got := writes.Resources["controllerrevisions.apps"]; !slices.Equal(got.Gone, []types.UID{"u5"}) || got.Unknown {
		t.Errorf("controller revisions, an update that removed one: %+v, want u5 gone", got)
	}
	for _, resource := range []string{"statefulsets.apps", "jobs.batch"} {
		if got, there := writes.Resources[resource]; there {
			t.Errorf("a collection of %s that was refused at once was remembered: %+v", resource, got)
		}
	}
	for resource, what := range map[string]string{
		"secrets": "an unreadable answer", "configmaps": "a server error", "nodes": "a lost answer",
		"daemonsets.apps": "a collection, refused perhaps halfway,", "bindings": "an answer that does not say what was written",
		"cronjobs.batch": "a collection, refused perhaps halfway by a webhook,", "namespaces": "an answer that does not say whether a namespace is held",
	} {
		if !writes.Resources[resource].Unknown {
			t.Errorf("%s did not make the last write unknown", what)
		}
	}
	for name, other := range map[string]struct {
		text string
		term int32
	}{"another term": {text, 8}, "nonsense": {"{", 7}, "nothing": {"", 7}} {
		if _, proven := ParseWrites(other.text, other.term); proven {
			t.Errorf("%s: the annotation proves something", name)
		}
	}
}

// TestLastWritesToAServerWithAPath writes to a server whose address has a path that looks like the
// API's. The answers are a version, a deleted collection and a lost one; the last write is under
// way.
func TestLastWritesToAServerWithAPath(t *testing.T) {
	const jsonType = "application/json"
	for _, serverPath := range []string{"/api/clusters/c-1", "/apis/tenants/v1/t", "/k8s/clusters/c-1", "/api"} {
		// A client may also go around the proxy.
		for _, at := range []string{serverPath, ""} {
			if serverPath == "/api" && at == "" {
				continue // could be either
			}
			server := answers{
				answered(200, jsonType, `{"kind":"Deployment","metadata":{"resourceVersion":"30"}}`),
				answered(200, jsonType, `{"kind":"ConfigMapList","metadata":{},"items":[{"metadata":{"uid":"u2"}}]}`),
				nil,
			}
			fence, err := New(Config{Member: "a_1", Shard: "r/s", ServerPath: serverPath, Clock: &jumpClock{}})
			if err != nil {
				t.Fatal(err)
			}
			claim := newFakeClaim(t.Context(), time.Time{})
			claim.endless = true
			fence.Open(claim)
			rt := fence.Wrap(roundTripper(func(req *http.Request) (*http.Response, error) {
				if len(server) > 0 {
					return server.RoundTrip(req)
				}
				if !slices.Contains(fence.Writes(7).Unknown(), "secrets") {
					t.Errorf("%s at %q: the write under way is not known: %+v", serverPath, at, fence.Writes(7))
				}
				return answered(201, jsonType, `{"kind":"Secret","metadata":{"resourceVersion":"31"}}`), nil
			}))
			for _, r := range []struct{ method, path string }{
				{http.MethodPut, "/apis/apps/v1/namespaces/n/deployments/d"}, {http.MethodDelete, "/api/v1/namespaces/n/configmaps"},
				{http.MethodPatch, "/api/v1/nodes/n"}, {http.MethodPost, "/api/v1/namespaces/n/secrets"},
			} {
				request, err := http.NewRequestWithContext(t.Context(), r.method, "http://x"+at+r.path, http.NoBody)
				if err != nil {
					t.Fatal(err)
				}
				response, err := rt.RoundTrip(request)
				if err != nil {
					continue // the one that is lost
				}
				if _, err := io.Copy(io.Discard, response.Body); err != nil {
					t.Fatal(err)
				}
				_ = response.Body.Close()
			}
			want := map[string]LastWrite{
				"deployments.apps": {Mark: apiresponse.Mark{Version: "30"}}, "configmaps": {Mark: apiresponse.Mark{Deleted: []types.UID{"u2"}}},
				"nodes": {Unknown: true}, "secrets": {Mark: apiresponse.Mark{Version: "31"}},
			}
			if got := fence.Writes(7).Resources; !reflect.DeepEqual(got, want) {
				t.Errorf("%s at %q: the last writes are %+v, want %+v", serverPath, at, got, want)
			}
		}
	}
}

// TestLastWritesFitOnALease records more deleted objects than a Lease has room for.
func TestLastWritesFitOnALease(t *testing.T) {
	w := Writes{Term: 7, Resources: map[string]LastWrite{"pods": {Mark: apiresponse.Mark{Version: "30"}}}}
	for i := range 300 {
		var last LastWrite
		last.Version = "31"
		for j := range mostGone {
			uid := types.UID(fmt.Sprintf("6f7c2b0e-5a0c-4a38-%04d-%012d", i, j))
			if i%2 == 0 {
				last.Gone = append(last.Gone, uid)
			} else {
				last.Deleted = append(last.Deleted, uid)
			}
		}
		w.Resources[fmt.Sprintf("kinds%d.group.example.com", i)] = last
	}
	text := w.Annotation()
	if len(text) > mostText {
		t.Errorf("%d bytes, want at most %d", len(text), mostText)
	}
	read, proven := ParseWrites(text, 7)
	if got := read.Resources["pods"]; !proven || got.Version != "30" || got.Unknown {
		t.Errorf("pods: %+v, proven %t; want version 30", got, proven)
	}
	if got := read.Unknown(); len(got) != 300 {
		t.Errorf("%d resources are unknown, want the 300 of which objects were deleted", len(got))
	}
}

// TestForeignWritesAreNotRemembered writes to the API of another cluster, whose versions would mean
// nothing to the next holder's caches. Await waits for such a write nevertheless.
func TestForeignWritesAreNotRemembered(t *testing.T) {
	inFence(t, func(t *testing.T, f *fenceTest) {
		f.claim.endless = true
		f.fence.Open(f.claim)
		const service = `{"kind":"Service","metadata":{"resourceVersion":"9000"}}`
		server := &answers{
			answered(201, "application/json", service), answered(504, "application/json", service), nil,
		}
		f.rt = f.fence.WrapForeign(server)
		for range 3 {
			resp, err := f.rt.RoundTrip(f.request(t.Context(), http.MethodPost))
			if err != nil {
				continue
			}
			if _, err := io.Copy(io.Discard, resp.Body); err != nil {
				t.Error(err)
			}
			_ = resp.Body.Close()
		}
		if w := f.fence.Writes(8); len(w.Resources) > 0 || len(*server) > 0 {
			t.Errorf("the writes are %+v, want none; %d were not sent", w.Resources, len(*server))
		}
		f.rt = f.fence.WrapForeign(roundTripper(func(*http.Request) (*http.Response, error) {
			time.Sleep(500 * time.Millisecond) // virtual
			return respond("ok"), nil
		}))
		var writing sync.WaitGroup
		writing.Go(func() {
			if err := f.send(http.MethodPost); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		if w := f.fence.Writes(8); len(w.Resources) > 0 {
			t.Errorf("the writes under way are %+v, want none", w.Resources)
		}
		f.fence.Close()
		began := time.Now()
		f.fence.Await()
		if took := time.Since(began); took != 500*time.Millisecond {
			t.Errorf("waited for %v, want for the answer", took)
		}
		writing.Wait()
	})
}
