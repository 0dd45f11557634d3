package integration

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/flotilla-kube/flotilla/pkg/controllers/resources"
)

// answers counts the answers with a document.
type answers struct {
	next http.RoundTripper
	mu   sync.Mutex
	n    int
}

func (a *answers) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := a.next.RoundTrip(request)
	if err == nil && response.StatusCode == http.StatusOK {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.n++
	}
	return response, err
}

// TestResourcesAreReadWhenTheyChange checks that a cached discovery client says the same as
// upstream's while custom resources come and go, and reads nothing while they do not.
func TestResourcesAreReadWhenTheyChange(t *testing.T) {
	counted := &answers{}
	config := rest.CopyConfig(plane.AdminConfig())
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { counted.next = next; return counted })
	client, err := new(resources.Cache).Client(config)
	if err != nil {
		t.Fatal(err)
	}
	plain, err := discovery.NewDiscoveryClientForConfig(plane.AdminConfig())
	if err != nil {
		t.Fatal(err)
	}
	// The API server updates its documents a moment later, so compare until they are equal, and
	// have changed if they should.
	var last []string
	same := func(changed bool) {
		t.Helper()
		eventually(t, func() error {
			got, want := told(t, client), told(t, plain)
			if !slices.Equal(got, want) {
				return fmt.Errorf("upstream's client has %d resources, the cached one %d", len(want), len(got))
			}
			if changed && slices.Equal(got, last) {
				return errors.New("nothing has changed yet")
			}
			last = got
			return nil
		})
	}
	same(true)
	t.Run("with custom resources", func(t *testing.T) {
		defineCustomResources(t, plane.AdminConfig())
		same(true)
	})
	same(true)
	// Other tests may still remove kinds: count a round without a change.
	eventually(t, func() error {
		before := counted.n
		if told(t, client); counted.n != before {
			return fmt.Errorf("%d documents were read although nothing has changed", counted.n-before)
		}
		return nil
	})
}

// told returns everything that the client says about resources, in order.
func told(t *testing.T, client discovery.DiscoveryInterface) []string {
	t.Helper()
	preferred, err := client.ServerPreferredResources()
	if err != nil {
		t.Fatal(err)
	}
	_, all, err := client.ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for name, lists := range map[string][]*metav1.APIResourceList{"preferred": preferred, "all": all} {
		for _, list := range lists {
			for _, r := range list.APIResources {
				lines = append(lines, fmt.Sprintf("%s %s %+v", name, list.GroupVersion, r))
			}
		}
	}
	slices.Sort(lines)
	return lines
}
