package apiresponse

import (
	"testing"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// TestServerPath compares the path of a server with where client-go sends requests.
func TestServerPath(t *testing.T) {
	for host, want := range map[string]string{
		"":                                   "",
		"server":                             "",
		"server:6443":                        "",
		"https://server:6443":                "",
		"https://server/":                    "",
		"https://server//":                   "",
		"https://server/k8s/clusters/c-1":    "/k8s/clusters/c-1",
		"https://server/k8s/clusters/c-1/":   "/k8s/clusters/c-1",
		"https://server/k8s//clusters/./c-1": "/k8s/clusters/c-1",
		"https://server/apis/v1/api/":        "/apis/v1/api",
		"https://server/a%20b":               "/a b",
	} {
		config := &rest.Config{Host: host}
		got := ServerPath(config)
		if got != want || !IsServerPath(got) {
			t.Errorf("ServerPath of %q is %q, want %q", host, got, want)
		}
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		for _, request := range []*rest.Request{
			client.CoreV1().RESTClient().Get().Resource("nodes"), client.Discovery().RESTClient().Get().AbsPath("/api/v1/nodes"),
		} {
			if sent := request.URL().Path; sent != want+"/api/v1/nodes" {
				t.Errorf("client-go sends to %q of %q, want the server's path %q before the API's", sent, host, want)
			}
		}
	}
	for _, host := range []string{"https://a b", "server/path"} {
		config := &rest.Config{Host: host}
		if _, err := kubernetes.NewForConfig(config); err == nil || ServerPath(config) != "" {
			t.Errorf("%q: a client is made, error %v, or the path is %q", host, err, ServerPath(config))
		}
	}
}

func TestIsServerPath(t *testing.T) {
	for path, want := range map[string]bool{
		"": true, "/api": true, "/k8s/clusters/c-1": true,
		"/": false, "k8s": false, "/k8s/": false, "/k8s//c": false, "/k8s/../c": false, "https://server/k8s": false,
	} {
		if got := IsServerPath(path); got != want {
			t.Errorf("IsServerPath(%q) = %t, want %t", path, got, want)
		}
	}
}

// TestBelow reads the resource in paths below a server's own. Segments of that may look like the
// API's.
func TestBelow(t *testing.T) {
	for _, tc := range []struct {
		prefix, path string
		below        string
		resource     string
	}{
		{"", "/api/v1/namespaces/n/pods/p", "/api/v1/namespaces/n/pods/p", "pods"},
		{"/k8s/clusters/c-1", "/k8s/clusters/c-1/api/v1/namespaces/n/pods/p", "/api/v1/namespaces/n/pods/p", "pods"},
		{"/k8s/clusters/c-1", "/k8s/clusters/c-1/apis/apps/v1/deployments", "/apis/apps/v1/deployments", "deployments.apps"},
		{"/k8s/clusters/c-1", "/k8s/clusters/c-1/healthz", "/healthz", ""},
		{"/k8s/clusters/c-1", "/k8s/clusters/c-1", "", ""},
		{"/api/clusters/c-1", "/api/clusters/c-1/apis/apps/v1/namespaces/n/deployments/d", "/apis/apps/v1/namespaces/n/deployments/d", "deployments.apps"},
		{"/apis/tenants/v1/t", "/apis/tenants/v1/t/api/v1/nodes/x", "/api/v1/nodes/x", "nodes"},
		{"/api", "/api/api/v1/nodes", "/api/v1/nodes", "nodes"},
		{"/api", "/api/healthz", "/healthz", ""},
		// The server's path is that of whole segments.
		{"/k8s", "/k8s-2/api/v1/nodes", "/k8s-2/api/v1/nodes", ""},
		{"/api", "/apis/apps/v1/deployments", "/apis/apps/v1/deployments", "deployments.apps"},
		// A client may go around the proxy.
		{"/k8s/clusters/c-1", "/api/v1/nodes", "/api/v1/nodes", "nodes"},
	} {
		below := Below(tc.prefix, tc.path)
		if below != tc.below {
			t.Errorf("Below(%q, %q) = %q, want %q", tc.prefix, tc.path, below, tc.below)
		}
		if got, ok := Resource(below); got.String() != tc.resource || ok != (tc.resource != "") {
			t.Errorf("below %q, Resource(%q) = %q, %t, want %q", tc.prefix, below, got, ok, tc.resource)
		}
	}
}

func TestIsCollection(t *testing.T) {
	for path, want := range map[string]bool{
		"/api/v1/namespaces/n/pods":                         true,
		"/api/v1/nodes":                                     true,
		"/api/v1/namespaces":                                true,
		"/apis/apps/v1/namespaces/n/deployments":            true,
		"/k8s/clusters/c-1/apis/apps/v1/deployments":        false, // see Below
		"/api/v1/namespaces/n/pods/p":                       false,
		"/api/v1/namespaces/n":                              false,
		"/api/v1/namespaces/n/finalize":                     false,
		"/api/v1/nodes/x":                                   false,
		"/apis/apps/v1/namespaces/n/deployments/d/scale":    false,
		"/apis/apps/v1/namespaces/n/deployments/namespaces": false,
		"/healthz": false,
	} {
		if got := IsCollection(path); got != want {
			t.Errorf("IsCollection(%q) = %t, want %t", path, got, want)
		}
	}
}

func TestResource(t *testing.T) {
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
		"/k8s/clusters/c-1/api/v1/namespaces/n/pods/p":     "", // see Below
		"/healthz":      "",
		"/apis/apps/v1": "",
		"/apis/authentication.k8s.io/v1/tokenreviews":            "tokenreviews.authentication.k8s.io",
		"/api/v1/namespaces/kube-system/serviceaccounts/x/token": "serviceaccounts",
	} {
		if got, ok := Resource(path); got.String() != want || ok != (want != "") {
			t.Errorf("Resource(%q) = %q, %t, want %q", path, got, ok, want)
		}
	}
}

func TestIsConnection(t *testing.T) {
	for path, want := range map[string]bool{
		"/api/v1/namespaces/n/pods/p/exec":                                    true,
		"/api/v1/namespaces/n/pods/p/attach":                                  true,
		"/api/v1/namespaces/n/pods/p/portforward":                             true,
		"/api/v1/namespaces/n/pods/p/proxy":                                   true,
		"/api/v1/namespaces/n/pods/p/proxy/do/it":                             true,
		"/api/v1/namespaces/n/services/https:s:443/proxy/":                    true,
		"/api/v1/nodes/x/proxy/run":                                           true,
		"/apis/subresources.kubevirt.io/v1/namespaces/n/vms/v/portforward/22": true,
		"/api/v1/namespaces/n/pods/p":                                         false,
		"/api/v1/namespaces/n/pods/p/log":                                     false,
		"/api/v1/namespaces/n/pods/exec":                                      false,
		"/api/v1/namespaces/n/pods/proxy/status":                              false,
		"/api/v1/namespaces/exec/pods/attach":                                 false,
		"/api/v1/nodes/proxy":                                                 false,
		"/apis/example.com/v1/namespaces/n/proxy/p":                           false,
		"/apis/apps/v1/namespaces/n/deployments/d/scale":                      false,
		"/k8s/clusters/c-1/api/v1/namespaces/n/pods/p/exec":                   false, // see Below
		"/version": false,
	} {
		if got := IsConnection(path); got != want {
			t.Errorf("IsConnection(%q) = %t, want %t", path, got, want)
		}
	}
}
