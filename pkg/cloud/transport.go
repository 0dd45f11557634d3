package cloud

import (
	"context"
	"errors"
	"net/http"

	"github.com/flotilla-kube/flotilla/pkg/election/fence"
	"github.com/flotilla-kube/flotilla/pkg/flotilla"
)

// shardKey is the key of a call's shard in its context.
type shardKey struct{}

// ShardOf returns the shard that a call to the cloud is made for; false if ctx does not come from
// such a call. A provider that does not use HTTP should send the shard's Term to the cloud, to
// compare.
func ShardOf(ctx context.Context) (*flotilla.Shard, bool) {
	s, is := ctx.Value(shardKey{}).(*flotilla.Shard)
	return s, is && s != nil
}

// ErrNoShard is the error of a write through a [Transport] whose context does not come from a call
// to the cloud.
var ErrNoShard = errors.New(
	"the context of the request names no shard: pass on the context of the call to the cloud, " +
		"and use a client without cloud.Transport for what is outside of calls",
)

// Transport fences the requests that a provider sends to its cloud. Requests other than GET, HEAD
// and OPTIONS are sent only while the shard of the call is owned, and cut off when it stops being
// owned; the error is [fence.ErrRefused]. Reads of a call end with the ownership, too. Transport
// finds the shard in the request's context, which must come from the call. Without one, a read
// passes, and a write is refused with [ErrNoShard], instead of being sent unfenced.
//
// The User-Agent of every request of a call ends with " flotilla (member=…; shard=…; term=…)".
//
// Put it next to the wire: below retries, and below a client-side limit of the rate. One Transport
// may serve all shards of a process.
func Transport(rt http.RoundTripper) http.RoundTripper {
	if rt == nil {
		rt = http.DefaultTransport
	}
	return fenced{rt}
}

type fenced struct{ next http.RoundTripper }

// WrappedRoundTripper returns the transport behind this one.
func (t fenced) WrappedRoundTripper() http.RoundTripper { return t.next }

// RoundTrip implements http.RoundTripper.
func (t fenced) RoundTrip(req *http.Request) (*http.Response, error) {
	if s, is := wrapperOf(req.Context()); is {
		return s.Wrap(t.next).RoundTrip(req)
	}
	if fence.IsRead(req.Method) {
		return t.next.RoundTrip(req)
	}
	if req.Body != nil {
		_ = req.Body.Close()
	}
	return nil, ErrNoShard
}

func wrapperOf(ctx context.Context) (owner, bool) {
	s, is := ctx.Value(shardKey{}).(owner)
	return s, is
}
