package controllers

import (
	"context"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/transport"

	"github.com/flotilla-kube/flotilla/internal/apiresponse"
)

// readLimit is the longest that an update waits to be seen. A watch event takes a few
// milliseconds; if one takes much longer, workers must not stop for it.
const readLimit = 50 * time.Millisecond

// readYourWrites makes updates return when the shard's cache has seen them, or after readLimit. It is for
// controllers whose row in the catalogue says AwaitUpdates.
//
// Such a controller updates status at the end of a sync and begins the next sync of the same object
// from the cache. Between the two lies the rest of the queue. A shard's queue is short: the next
// sync would begin before the cache has seen the last update, and send the same old version again,
// which causes a conflict and wastes a request and its part of the rate limit.
//
// serverPath is the path in the API server's address; see is informer.Factory.See, or nil for no
// waiting.
func readYourWrites(serverPath string, see seeFunc) transport.WrapperFunc {
	if see == nil {
		return nil
	}
	return func(next http.RoundTripper) http.RoundTripper { return readYourWritesTransport{next, serverPath, see} }
}

type seeFunc func(context.Context, schema.GroupResource, string) error

type readYourWritesTransport struct {
	next       http.RoundTripper
	serverPath string
	see        seeFunc
}

var _ utilnet.RoundTripperWrapper = readYourWritesTransport{}

// WrappedRoundTripper lets client-go find the transport behind this one.
func (t readYourWritesTransport) WrappedRoundTripper() http.RoundTripper { return t.next }

// RoundTrip implements http.RoundTripper.
func (t readYourWritesTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := t.next.RoundTrip(req)
	if err != nil || req.Method != http.MethodPut || resp.StatusCode != http.StatusOK {
		return resp, err
	}
	resource, ok := apiresponse.Resource(apiresponse.Below(t.serverPath, req.URL.Path))
	if !ok {
		return resp, nil
	}
	resp.Body = apiresponse.Body(resp, func(written apiresponse.Object, err error) {
		if err != nil || written.Version == "" {
			return
		}
		ctx, cancel := context.WithTimeout(req.Context(), readLimit)
		defer cancel()
		_ = t.see(ctx, resource, written.Version) // the update is done, seen or not
	})
	return resp, nil
}
