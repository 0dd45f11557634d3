package controllers

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/controller-manager/pkg/clientbuilder"
)

// TestUpdatesReturnSeen sends requests with a slow cache, and measures how long they take.
func TestUpdatesReturnSeen(t *testing.T) {
	const object = `{"kind":"Deployment","metadata":{"resourceVersion":"17"}}`
	for name, tc := range map[string]struct {
		method, path, body string
		status             int
		lag, want          time.Duration
		serverPath         string
	}{
		"an update":             {http.MethodPut, "/apis/apps/v1/namespaces/n/deployments/d/status", object, 200, 3 * time.Millisecond, 3 * time.Millisecond, ""},
		"a cache that is stuck": {http.MethodPut, "/apis/apps/v1/namespaces/n/deployments/d", object, 200, time.Hour, readLimit, ""},
		"an update refused":     {http.MethodPut, "/apis/apps/v1/namespaces/n/deployments/d", object, 409, time.Hour, 0, ""},
		"a creation":            {http.MethodPost, "/apis/apps/v1/namespaces/n/deployments", object, 201, time.Hour, 0, ""},
		"a read":                {http.MethodGet, "/apis/apps/v1/namespaces/n/deployments/d", object, 200, time.Hour, 0, ""},
		"no version":            {http.MethodPut, "/apis/apps/v1/namespaces/n/deployments/d", `{"kind":"Deployment"}`, 200, time.Hour, 0, ""},
		"no object":             {http.MethodPut, "/apis/apps/v1/namespaces/n/deployments/d", "<html>", 200, time.Hour, 0, ""},
		"no resource":           {http.MethodPut, "/healthz", object, 200, time.Hour, 0, ""},
		"a server with a path":  {http.MethodPut, "/api/clusters/c-1/apis/apps/v1/namespaces/n/deployments/d", object, 200, 3 * time.Millisecond, 3 * time.Millisecond, "/api/clusters/c-1"},
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
				client := http.Client{Transport: readYourWrites(tc.serverPath, see)(oneAnswer{tc.status, tc.body})}
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

// TestUpdatesThroughAServerWithAPath updates a Deployment with a controller's client, whose
// server's address has a path that looks like the API's.
func TestUpdatesThroughAServerWithAPath(t *testing.T) {
	var seen []string
	client, err := clientBuilder{
		base: clientbuilder.SimpleControllerClientBuilder{ClientConfig: &rest.Config{
			Host: "http://server.test/api/clusters/c-1", Transport: oneAnswer{200, `{"kind":"Deployment","apiVersion":"apps/v1","metadata":{"resourceVersion":"17"}}`},
			ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeJSON},
		}},
		controller: "deployment-controller", limits: newLimits(sharedLimits()),
		see: func(_ context.Context, resource schema.GroupResource, version string) error {
			seen = append(seen, resource.String()+" "+version)
			return nil
		},
	}.Client("deployment-controller")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.AppsV1().Deployments("n").UpdateStatus(t.Context(), &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "d"}}, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if want := []string{"deployments.apps 17"}; !slices.Equal(seen, want) {
		t.Errorf("the update waits for %q, want %q", seen, want)
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
