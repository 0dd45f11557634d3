package manager

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/flotilla-kube/flotilla/pkg/flotilla"
)

// groups answers discovery with one group, and counts the requests.
type groups struct{ asked *atomic.Int32 }

func (g groups) RoundTrip(req *http.Request) (*http.Response, error) {
	g.asked.Add(1)
	status, body := http.StatusNotFound, `{"kind":"Status","apiVersion":"v1","reason":"NotFound"}`
	switch req.URL.Path {
	case "/api":
		status, body = http.StatusOK, `{"kind":"APIVersions","versions":["v1"]}`
	case "/apis":
		status, body = http.StatusOK, `{"kind":"APIGroupList","apiVersion":"v1","groups":[]}`
	}
	return &http.Response{
		StatusCode: status, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(strings.NewReader(body)), Request: req,
	}, nil
}

// countedLimit counts the requests that have asked it.
type countedLimit struct {
	flowcontrol.RateLimiter
	asked atomic.Int32
}

func (l *countedLimit) Wait(context.Context) error { l.asked.Add(1); return nil }

// TestDiscoveryIsWithinTheControllersLimit looks for a kind again and again that there is not.
func TestDiscoveryIsWithinTheControllersLimit(t *testing.T) {
	var asked atomic.Int32
	limit := &countedLimit{RateLimiter: flowcontrol.NewFakeAlwaysRateLimiter()}
	f, err := flotilla.New(
		&rest.Config{Host: "https://127.0.0.1:1", Transport: groups{&asked}, RateLimiter: limit},
		flotilla.Options{Fleet: "a", Namespace: "a", Member: "a"},
	)
	if err != nil {
		t.Fatal(err)
	}
	shared := &mappers{}
	f.Namespaced("a", func(_ context.Context, s *flotilla.Shard) (flotilla.Runnable, error) {
		mapper, err := shared.of(s)(nil, nil)
		return flotilla.RunnableFunc(func(ctx context.Context) error {
			missing := schema.GroupKind{Group: "example.com", Kind: "Missing"}
			for range 3 {
				if _, err := mapper.RESTMapping(missing, "v1"); !meta.IsNoMatchError(err) {
					t.Errorf("a kind that there is not: %v", err)
				}
			}
			<-ctx.Done()
			return nil
		}), err
	})
	_, err = f.Check(t.Context(), func(context.Context) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	if n := asked.Load(); n < 6 || limit.asked.Load() != n {
		t.Errorf("of %d requests the limit was asked about %d, want all", n, limit.asked.Load())
	}
}
