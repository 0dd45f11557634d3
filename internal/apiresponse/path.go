package apiresponse

import (
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

// ServerPath returns the path in the address of a configuration's server, which precedes the API's
// own in the path of every request that client-go sends there. It begins with a slash and ends
// without one; it is empty for most servers. It is also empty if the address cannot be parsed:
// client-go makes no client then.
func ServerPath(config *rest.Config) string {
	server, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return ""
	}
	return strings.TrimSuffix(path.Join("/", server.Path), "/")
}

// IsServerPath reports whether prefix could be the result of [ServerPath].
func IsServerPath(prefix string) bool {
	return prefix == "" || prefix != "/" && prefix[0] == '/' && path.Clean(prefix) == prefix
}

// Below returns a request's path without the server's path. A path that does not lie below that is
// returned as it is: a client may reach the API server at another address. The segments of the
// server's path may have any names, "api" included, so no other function here looks for the API in
// the middle of a path.
func Below(prefix, path string) string {
	below, within := strings.CutPrefix(path, prefix)
	if !within || below != "" && below[0] != '/' {
		return path
	}
	return below
}

// Resource returns the resource of an API path, by group and plural name; false for a path without
// an object or a list.
func Resource(path string) (schema.GroupResource, bool) {
	version, _, parts, ok := SplitNamespace(path)
	if !ok {
		return schema.GroupResource{}, false
	}
	return schema.GroupResource{Group: version.Group, Resource: parts[0]}, true
}

// IsCollection reports whether an API path names all objects of a resource, or those of it in one
// namespace, and not one object.
func IsCollection(path string) bool {
	_, _, parts, ok := SplitNamespace(path)
	return ok && len(parts) == 1
}

// connecting are the subresources that lead to something behind the API server: to a pod, a service
// or a node.
var connecting = []string{"exec", "attach", "portforward", "proxy"}

// Connects reports whether a request for this subresource connects to something behind the API
// server, whatever its method. What is sent there may have any effect, even with a GET.
func Connects(subresource string) bool { return slices.Contains(connecting, subresource) }

// IsConnection reports whether an API path names a subresource that [Connects].
func IsConnection(path string) bool {
	_, _, parts, ok := SplitNamespace(path)
	return ok && len(parts) > 2 && Connects(parts[2])
}

// SplitNamespace is [Split] with the namespace of the object or the list apart, which is empty if
// it has none. A namespace's own is itself, and stays in rest.
func SplitNamespace(path string) (version schema.GroupVersion, namespace string, rest []string, ok bool) {
	version, rest, ok = Split(path)
	if !ok || rest[0] != "namespaces" || len(rest) < 2 {
		return version, "", rest, ok
	}
	namespace = rest[1]
	// Namespaces have subresources but contain no objects of their own resource.
	if len(rest) > 2 && rest[2] != "status" && rest[2] != "finalize" {
		rest = rest[2:]
	}
	return version, namespace, rest, true
}

// Split returns the group and version of an API path, and the segments after them, of which there
// is at least one; false for a path without any. An API path begins with /api/ or /apis/: see
// [Below] for that of a request.
func Split(path string) (version schema.GroupVersion, rest []string, ok bool) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	switch {
	case len(parts) >= 3 && parts[0] == "api":
		return schema.GroupVersion{Version: parts[1]}, parts[2:], true
	case len(parts) >= 4 && parts[0] == "apis":
		return schema.GroupVersion{Group: parts[1], Version: parts[2]}, parts[3:], true
	default:
		return schema.GroupVersion{}, nil, false
	}
}
