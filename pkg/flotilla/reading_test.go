package flotilla

import (
	"errors"
	"net/http"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/flotilla-kube/flotilla/pkg/election/fence"
)

// TestReadingOnlyReads checks that the configuration for informers cannot write past the fence.
func TestReadingOnlyReads(t *testing.T) {
	f := newFleet(t, nil)
	f.config.Transport = answers{}
	s, _, _ := shardOf(t, f)
	client, err := rest.HTTPClientFor(s.Reading())
	if err != nil {
		t.Fatal(err)
	}
	for method, refused := range map[string]bool{
		http.MethodGet: false, http.MethodHead: false, http.MethodPost: true, http.MethodPatch: true, http.MethodDelete: true,
	} {
		req, err := http.NewRequestWithContext(t.Context(), method, "https://127.0.0.1:1/api/v1/pods", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(req)
		if errors.Is(err, fence.ErrRefused) != refused {
			t.Errorf("%s: the error is %v, want it refused: %v", method, err, refused)
		}
		if err == nil {
			_ = resp.Body.Close()
		}
	}
}
