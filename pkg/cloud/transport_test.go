package cloud

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/election/fence"
)

// wire answers every request and remembers it.
type wire struct {
	sent   []*http.Request
	answer string // in JSON
}

func (w *wire) RoundTrip(req *http.Request) (*http.Response, error) {
	w.sent = append(w.sent, req)
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(strings.NewReader(w.answer)), Request: req,
	}, nil
}

// fencedShard is an owner with the fence of a real shard.
type fencedShard struct {
	*shardStub
	fence *fence.Fence
}

func newFencedShard(t *testing.T) fencedShard {
	t.Helper()
	f, err := fence.New(fence.Config{
		Member: "a_1", Shard: "namespaces/00", Clock: election.NewClock(),
	})
	if err != nil {
		t.Fatal(err)
	}
	return fencedShard{newShard(true), f}
}

func (s fencedShard) Wrap(rt http.RoundTripper) http.RoundTripper { return s.fence.WrapForeign(rt) }

// open makes a member the owner of the shard.
func (s fencedShard) open(t *testing.T) {
	s.fence.Open(election.EndlessClaim(t.Context(), "shard", "a_1"))
}

func request(t *testing.T, ctx context.Context, method string) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, "http://cloud.invalid/things", nil)
	if err != nil {
		t.Fatal(err)
	}
	return req
}

func TestTransportAsksTheShardOfTheCall(t *testing.T) {
	const before, owned, after = "before", "owned", "after"
	tests := []struct {
		what   string
		call   bool
		method string
		when   string
		want   error
	}{
		{"a write of a call", true, http.MethodPost, owned, nil},
		{"a write after the shard is lost", true, http.MethodDelete, after, fence.ErrRefused},
		{"a write before it is owned", true, http.MethodPost, before, fence.ErrRefused},
		{"a read of a call", true, http.MethodGet, owned, nil},
		{"a read before the shard is owned", true, http.MethodGet, before, nil},
		{"a read after the shard is lost", true, http.MethodGet, after, fence.ErrRefused},
		{"a read outside of calls", false, http.MethodGet, after, nil},
		{"a write outside of calls", false, http.MethodPut, owned, ErrNoShard},
	}
	for _, tc := range tests {
		shard, ctx, w := newFencedShard(t), t.Context(), &wire{}
		if tc.call {
			ctx = context.WithValue(ctx, shardKey{}, shard)
		}
		switch tc.when {
		case owned:
			shard.open(t)
		case after:
			shard.open(t)
			shard.fence.Close()
		}
		resp, err := Transport(w).RoundTrip(request(t, ctx, tc.method))
		if !errors.Is(err, tc.want) {
			t.Errorf("%s: error %v, want %v", tc.what, err, tc.want)
		}
		if sent := len(w.sent) > 0; sent != (tc.want == nil) {
			t.Errorf("%s: sent: %t", tc.what, sent)
		}
		if err != nil {
			continue
		}
		_ = resp.Body.Close()
		agent := w.sent[0].Header.Get("User-Agent")
		if named := strings.Contains(agent, "flotilla (member=a_1"); named != tc.call {
			t.Errorf("%s: the User-Agent is %q", tc.what, agent)
		}
	}
}

// TestTransportToAnotherCluster has a cloud that is another cluster, as with KubeVirt. The next
// owner's caches would never come to that cluster's versions.
func TestTransportToAnotherCluster(t *testing.T) {
	shard := newFencedShard(t)
	shard.open(t)
	ctx := context.WithValue(t.Context(), shardKey{}, shard)
	req := request(t, ctx, http.MethodPost)
	req.URL.Path = "/api/v1/namespaces/a/services"
	w := &wire{answer: `{"kind":"Service","metadata":{"resourceVersion":"9000"}}`}
	resp, err := Transport(w).RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		t.Error(err)
	}
	_ = resp.Body.Close()
	if got := shard.fence.Writes(0); len(got.Resources) > 0 {
		t.Errorf("the next owner has to wait for %+v", got.Resources)
	}
}

func TestShardOfAForeignContext(t *testing.T) {
	if s, is := ShardOf(t.Context()); is || s != nil {
		t.Errorf("ShardOf of a context that comes from no call: %v, %t", s, is)
	}
}

func TestWritesOfNoShardPassWhileAnyIsOwned(t *testing.T) {
	var r running
	lost, held := newShard(false), newShard(true)
	held.name = "namespaces/01"
	send := func(method string) error {
		resp, err := r.wrapper("")(&wire{}).RoundTrip(request(t, t.Context(), method))
		if err == nil {
			_ = resp.Body.Close()
		}
		return err
	}
	expect := func(when string, want error) {
		t.Helper()
		if err := send(http.MethodPatch); !errors.Is(err, want) {
			t.Errorf("%s: error %v, want %v", when, err, want)
		}
		if err := send(http.MethodGet); err != nil {
			t.Errorf("%s: a read is refused: %v", when, err)
		}
	}
	expect("with no shard", fence.ErrRefused)
	removeLost := r.add(lost)
	expect("with a shard that is lost", fence.ErrRefused)
	removeHeld := r.add(held)
	expect("with a shard that is owned", nil)
	removeHeld()
	expect("with that one given back", fence.ErrRefused)
	removeLost()
}

// TestConnectionsOfNoShardAreWrites checks that a GET that connects to a pod needs an owned shard,
// wherever the API server is.
func TestConnectionsOfNoShardAreWrites(t *testing.T) {
	for _, serverPath := range []string{"", "/k8s/clusters/c-1", "/api/clusters/c-1"} {
		for path, writes := range map[string]bool{
			"/api/v1/namespaces/a/pods/b/exec": true, "/api/v1/nodes/b/proxy/run": true,
			"/api/v1/namespaces/a/pods/b": false, "/api/v1/namespaces/a/pods/b/log": false,
		} {
			for _, owned := range []bool{false, true} {
				var r running
				w := &wire{}
				shard := newShard(owned)
				r.add(shard)
				req := request(t, t.Context(), http.MethodGet)
				req.URL.Path = serverPath + path
				resp, err := r.wrapper(serverPath)(w).RoundTrip(req)
				if refused := writes && !owned; errors.Is(err, fence.ErrRefused) != refused || len(w.sent) == 1 == refused {
					t.Errorf("%s, owned: %t: error %v, sent %d times", req.URL.Path, owned, err, len(w.sent))
				}
				if err == nil {
					_ = resp.Body.Close()
				}
				if sent := shard.sent.Load() > 1; sent != (writes && owned) { // the first is passes' own
					t.Errorf("%s, owned: %t: counts as the shard's: %t", req.URL.Path, owned, sent)
				}
			}
		}
	}
}
