package flotilla

import (
	"net/http"
	"strings"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// Access is a request that a namespaced controller has made outside of the range of its shard.
type Access struct {
	// Controller and Shard have made it.
	Controller string
	Shard      shard.ID
	// Method is HTTP's, Path that of the request.
	Method, Path string
	// Namespace that the request is about; empty for one of all namespaces, or of an object that lies
	// in none.
	Namespace string
}

// Writes reports whether the request could change anything.
func (a Access) Writes() bool { return !election.IsRead(a.Method) }

// watched tells Options.Outside of what the requests through rt are about.
func (s *Shard) watched(rt http.RoundTripper) http.RoundTripper {
	if s.process.options.Outside == nil || !s.work.Shard.Namespaced() {
		return rt
	}
	return watchedTransport{s, rt}
}

type watchedTransport struct {
	shard *Shard
	next  http.RoundTripper
}

// WrappedRoundTripper lets client-go find the transport that is behind.
func (t watchedTransport) WrappedRoundTripper() http.RoundTripper { return t.next }

// RoundTrip implements http.RoundTripper.
func (t watchedTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	if namespace, is := target(req.URL.Path); is && !t.shard.Owns(namespace) {
		t.shard.process.options.Outside(Access{
			Controller: t.shard.Controller(), Shard: t.shard.ID(),
			Method: req.Method, Path: req.URL.Path, Namespace: namespace,
		})
	}
	return t.next.RoundTrip(req)
}

// target returns the namespace of the objects that a path of the API is about; empty for those of
// all namespaces, and of none. It is false for a path that is about no objects: discovery, reviews
// of rights, and the like. A Namespace is about itself.
func target(path string) (namespace string, is bool) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	// A server behind a path of its own: what comes before is not the API's.
	for len(parts) > 0 && parts[0] != "api" && parts[0] != "apis" {
		parts = parts[1:]
	}
	group := ""
	switch {
	case len(parts) >= 3 && parts[0] == "api":
		parts = parts[2:]
	case len(parts) >= 4 && parts[0] == "apis":
		group, parts = parts[1], parts[3:]
	default:
		return "", false
	}
	if strings.HasSuffix(group, "authorization.k8s.io") || strings.HasSuffix(group, "authentication.k8s.io") {
		return "", false
	}
	if parts[0] == "namespaces" && len(parts) > 1 {
		return parts[1], true
	}
	return "", true
}
