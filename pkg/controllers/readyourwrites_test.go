package controllers

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestUpdatesReturnSeen sends requests with a slow cache, and measures how long they take.
func TestUpdatesReturnSeen(t *testing.T) {
	const object = `{"kind":"Deployment","metadata":{"resourceVersion":"17"}}`
	for name, tc := range map[string]struct {
		method, path, body string
		status             int
		lag, want          time.Duration
	}{
		"an update":             {http.MethodPut, "/apis/apps/v1/namespaces/n/deployments/d/status", object, 200, 3 * time.Millisecond, 3 * time.Millisecond},
		"a cache that is stuck": {http.MethodPut, "/apis/apps/v1/namespaces/n/deployments/d", object, 200, time.Hour, readLimit},
		"an update refused":     {http.MethodPut, "/apis/apps/v1/namespaces/n/deployments/d", object, 409, time.Hour, 0},
		"a creation":            {http.MethodPost, "/apis/apps/v1/namespaces/n/deployments", object, 201, time.Hour, 0},
		"a read":                {http.MethodGet, "/apis/apps/v1/namespaces/n/deployments/d", object, 200, time.Hour, 0},
		"no version":            {http.MethodPut, "/apis/apps/v1/namespaces/n/deployments/d", `{"kind":"Deployment"}`, 200, time.Hour, 0},
		"no object":             {http.MethodPut, "/apis/apps/v1/namespaces/n/deployments/d", "<html>", 200, time.Hour, 0},
		"no resource":           {http.MethodPut, "/healthz", object, 200, time.Hour, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				see := func(ctx context.Context, resource schema.GroupResource, version string) error {
					if resource != (schema.GroupResource{Group: "apps", Resource: "deployments"}) || version != "17" {
						t.Errorf("waits for version %q of %s", version, resource)
					}
					select {
					case <-time.After(tc.lag):
						return nil
					case <-ctx.Done():
						return ctx.Err()
					}
				}
				client := http.Client{Transport: readYourWrites(see)(oneAnswer{tc.status, tc.body})}
				request, err := http.NewRequestWithContext(t.Context(), tc.method, "http://server.test"+tc.path, http.NoBody)
				if err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				response, err := client.Do(request)
				if err != nil {
					t.Fatal(err)
				}
				got, err := io.ReadAll(response.Body)
				_ = response.Body.Close()
				if string(got) != tc.body || err != nil {
					t.Errorf("read %q, %v, want %q", got, err, tc.body)
				}
				if took := time.Since(began); took != tc.want {
					t.Errorf("took %v, want %v", took, tc.want)
				}
			})
		})
	}
}

// oneAnswer is a server that always gives the same answer.
type oneAnswer struct {
	status int
	body   string
}

// RoundTrip implements http.RoundTripper.
func (a oneAnswer) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{
		StatusCode: a.status, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(a.body)),
	}, nil
}
