package flotilla

import (
	"errors"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/flotilla-kube/flotilla/pkg/election/fence"
)

// TestReadingOnlyReads checks that the configuration for informers cannot write past the fence, nor
// connect to a pod.
func TestReadingOnlyReads(t *testing.T) {
	const pods = "/api/v1/namespaces/a/pods"
	for _, serverPath := range []string{"", "/api/clusters/c-1"} {
		f := newFleetAt(t, "https://127.0.0.1:1"+serverPath, nil)
		f.config.Transport = answers{}
		s, _, _ := shardOf(t, f)
		client, err := rest.HTTPClientFor(s.Reading())
		if err != nil {
			t.Fatal(err)
		}
		for request, refused := range map[string]bool{
			"GET " + pods: false, "HEAD " + pods: false, "GET " + pods + "/b/log": false,
			"POST " + pods: true, "PATCH " + pods + "/b": true, "DELETE " + pods: true,
			"GET " + pods + "/b/exec": true, "GET " + pods + "/b/portforward": true,
		} {
			method, path, _ := strings.Cut(request, " ")
			err := send(t.Context(), client, method+" "+serverPath+path)
			if errors.Is(err, fence.ErrRefused) != refused || !refused && err != nil {
				t.Errorf("%s: the error is %v, want it refused: %v", request, err, refused)
			}
		}
	}
}
