package cloud

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/flotilla-kube/flotilla/pkg/election/fence"
)

// wire answers every request and remembers the last.
type wire struct{ sent []string }

func (w *wire) RoundTrip(req *http.Request) (*http.Response, error) {
	w.sent = append(w.sent, req.Method)
	return &http.Response{
		StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader("")), Request: req,
	}, nil
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
	shard := newShard(true)
	call := context.WithValue(t.Context(), shardKey{}, shard)
	tests := []struct {
		what   string
		ctx    context.Context
		method string
		owned  bool
		want   error
	}{
		{"a write of a call", call, http.MethodPost, true, nil},
		{"a write after the shard is lost", call, http.MethodDelete, false, fence.ErrRefused},
		{"a read outside of calls", t.Context(), http.MethodGet, false, nil},
		{"a write outside of calls", t.Context(), http.MethodPut, true, ErrNoShard},
	}
	for _, tc := range tests {
		w := &wire{}
		shard.owned.Store(tc.owned)
		resp, err := Transport(w).RoundTrip(request(t, tc.ctx, tc.method))
		if !errors.Is(err, tc.want) {
			t.Errorf("%s: error %v, want %v", tc.what, err, tc.want)
		}
		if sent := len(w.sent) > 0; sent != (tc.want == nil) {
			t.Errorf("%s: sent: %t", tc.what, sent)
		}
		if err == nil {
			_ = resp.Body.Close()
		}
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
		resp, err := r.wrap(&wire{}).RoundTrip(request(t, t.Context(), method))
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
