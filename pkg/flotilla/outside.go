package flotilla

import (
	"errors"
	"fmt"
	"net/http"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/flotilla-kube/flotilla/internal/apiresponse"
	"github.com/flotilla-kube/flotilla/pkg/election/fence"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// Access is a request that a namespaced controller sent outside of the range of its shard.
type Access struct {
	// Controller and Shard sent the request.
	Controller string
	Shard      shard.ID
	// Method is the HTTP method. Path is the path of the request, without that in the address of
	// the server: it begins with /api or /apis.
	Method, Path string
	// Verb is the API's verb: get, list, watch, create, update, patch, delete or deletecollection.
	Verb string
	// Resource is the resource of the request. Subresource is the requested part of it, such as
	// "status", or empty.
	Resource    schema.GroupVersionResource
	Subresource string
	// Namespace is the namespace of the request; empty for a request for all namespaces, or for an
	// object that lies in none.
	Namespace string
}

// Writes reports whether the request could change anything, as [fence.IsAPIRead] sees it.
func (a Access) Writes() bool { return !fence.IsAPIRead(a.Method, a.Path) }

// watched reports the requests through rt to Options.Outside.
func (s *Shard) watched(rt http.RoundTripper) http.RoundTripper {
	if !s.isWatched() {
		return rt
	}
	return watchedTransport{s, rt}
}

// isWatched reports whether anything receives these reports; usually nothing does.
func (s *Shard) isWatched() bool {
	return s.process.options.Outside != nil && s.work.Shard.Namespaced()
}

type watchedTransport struct {
	shard *Shard
	next  http.RoundTripper
}

// WrappedRoundTripper lets client-go find the transport behind this one.
func (t watchedTransport) WrappedRoundTripper() http.RoundTripper { return t.next }

// RoundTrip implements http.RoundTripper.
func (t watchedTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	path := t.shard.process.pathOf(req)
	if of, is := targetOf(path); is && !t.shard.Owns(of.namespace) {
		t.shard.process.options.Outside(Access{
			Controller: t.shard.Controller(), Shard: t.shard.ID(),
			Method: req.Method, Path: path, Verb: of.verb(req),
			Resource: of.resource, Subresource: of.subresource, Namespace: of.namespace,
		})
	}
	return t.next.RoundTrip(req)
}

// ErrOutside is what the error of a write in a namespace of another range is in errors.Is.
var ErrOutside = errors.New("the namespace is outside of the shard's range")

// withinRange refuses writes in namespaces that the shard does not own.
func (s *Shard) withinRange(rt http.RoundTripper) http.RoundTripper {
	if !s.work.Shard.Namespaced() || s.process.checking {
		return rt
	}
	return rangeTransport{s, rt}
}

type rangeTransport struct {
	shard *Shard
	next  http.RoundTripper
}

// WrappedRoundTripper lets client-go find the transport behind this one.
func (t rangeTransport) WrappedRoundTripper() http.RoundTripper { return t.next }

// RoundTrip implements http.RoundTripper.
func (t rangeTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	path := t.shard.process.pathOf(req)
	if fence.IsAPIRead(req.Method, path) {
		return t.next.RoundTrip(req)
	}
	of, is := targetOf(path)
	if !is || of.namespace == "" || isEvent(of.resource) || t.shard.Owns(of.namespace) {
		return t.next.RoundTrip(req)
	}
	return refuse(req, fmt.Errorf(
		"controller %s on %s, %s %s in namespace %q: %w; see docs/library.md",
		t.shard.Controller(), t.shard, of.verb(req), of.resource.Resource, of.namespace, ErrOutside))
}

// watchedReading is watched without the reads of the process's informers, which belong to no shard.
func (s *Shard) watchedReading(rt http.RoundTripper) http.RoundTripper {
	if !s.isWatched() {
		return rt
	}
	return exceptInformers{next: rt, watched: s.watched(rt)}
}

type exceptInformers struct{ next, watched http.RoundTripper }

// WrappedRoundTripper lets client-go find the transport behind this one.
func (t exceptInformers) WrappedRoundTripper() http.RoundTripper { return t.next }

// RoundTrip implements http.RoundTripper.
func (t exceptInformers) RoundTrip(req *http.Request) (*http.Response, error) {
	if isForThePool() {
		return t.next.RoundTrip(req)
	}
	return t.watched.RoundTrip(req)
}

// target is the object or objects of a request to the API.
type target struct {
	resource    schema.GroupVersionResource
	subresource string
	// namespace is the namespace of the objects; empty for all namespaces, and for cluster-scoped
	// objects. The namespace of a Namespace is its own name.
	namespace string
	// name is the name of a single object; empty for several.
	name string
}

// verb returns the API's verb of a request to the target.
func (t target) verb(req *http.Request) string {
	switch req.Method {
	case http.MethodPost:
		return "create"
	case http.MethodPut:
		return "update"
	case http.MethodPatch:
		return "patch"
	case http.MethodDelete:
		if t.name == "" {
			return "deletecollection"
		}
		return "delete"
	}
	watch := req.URL.Query().Get("watch")
	switch {
	case t.name != "":
		return "get"
	case watch == "true" || watch == "1":
		return "watch"
	}
	return "list"
}

// pathOf returns the path of a request to the API server, below the server's own.
func (f *Fleet) pathOf(req *http.Request) string {
	return apiresponse.Below(f.serverPath, req.URL.Path)
}

// targetOf returns false for a path without objects, such as discovery or a review of rights.
func targetOf(path string) (t target, is bool) {
	version, namespace, parts, ok := apiresponse.SplitNamespace(path)
	if !ok {
		return target{}, false
	}
	t.resource.Group, t.resource.Version, t.namespace = version.Group, version.Version, namespace
	switch t.resource.Group {
	case "authorization.k8s.io", "authentication.k8s.io":
		return target{}, false
	}
	t.resource.Resource = parts[0]
	if len(parts) > 1 {
		t.name = parts[1]
	}
	if len(parts) > 2 {
		t.subresource = parts[2]
	}
	return t, true
}
