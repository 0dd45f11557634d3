package manager

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

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

// countedLimit counts the requests that it limits.
type countedLimit struct {
	flowcontrol.RateLimiter
	asked atomic.Int32
}

var always = flowcontrol.NewFakeAlwaysRateLimiter()

// incomparable is a limiter that cannot be the key of a map.
type incomparable struct {
	*countedLimit
	_ []string
}

func (l *countedLimit) Wait(context.Context) error { l.asked.Add(1); return nil }

// TestDiscoveryIsWithinTheControllersLimit looks repeatedly for a missing kind, in two fleets on
// one API server whose controllers are built by one function. Each must use its own limit.
func TestDiscoveryIsWithinTheControllersLimit(t *testing.T) {
	shared := &mappers{}
	build := func(_ context.Context, s *flotilla.Shard) (flotilla.Runnable, error) {
		mapper, err := shared.of(s)(nil, nil)
		return flotilla.RunnableFunc(func(ctx context.Context) error {
			missing := schema.GroupKind{Group: "example.com", Kind: "Missing"}
			for range 3 {
				if _, err := mapper.RESTMapping(missing, "v1"); !meta.IsNoMatchError(err) {
					t.Errorf("looking for a missing kind: %v", err)
				}
			}
			<-ctx.Done()
			return nil
		}), err
	}
	one := &countedLimit{RateLimiter: always}
	other := incomparable{&countedLimit{RateLimiter: always}, nil}
	for _, fleet := range []struct {
		name    string
		limit   flowcontrol.RateLimiter
		counted *countedLimit
	}{{"one", one, one}, {"other", other, other.countedLimit}} {
		var asked atomic.Int32
		f, err := flotilla.New(
			&rest.Config{Host: "https://127.0.0.1:1", Transport: groups{&asked}, RateLimiter: fleet.limit},
			flotilla.Options{Fleet: fleet.name, Namespace: "a", Member: "a", HandoffTimeout: time.Hour},
		)
		if err != nil {
			t.Fatal(err)
		}
		f.Namespaced("a", build)
		_, err = f.Check(t.Context(), func(context.Context) error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		if n, limited := asked.Load(), fleet.counted.asked.Load(); n < 6 || limited != n {
			t.Errorf("fleet %s: of %d requests its limiter saw %d, want all", fleet.name, n, limited)
		}
	}
}
