package shadow

import (
	"cmp"
	"io"
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/flotilla-kube/flotilla/internal/apiresponse"
)

// Kind is what requests that count together have in common.
type Kind struct {
	// Client is the name that upstream gives the client, the end of its User-Agent; with
	// --use-service-account-credentials, a controller's service account.
	Client string `json:"client"`
	// Verb is the API's verb, or the method in lower case if the path is not a resource's.
	Verb string `json:"verb"`
	// Group, Resource and Subresource are the resource's; Resource is the path if there is none.
	Group       string `json:"group,omitempty"`
	Resource    string `json:"resource"`
	Subresource string `json:"subresource,omitempty"`
}

// Name is the resource as kubectl writes it: pods/eviction, deployments.apps/status.
func (k Kind) Name() string {
	name := k.Resource
	if k.Group != "" {
		name += "." + k.Group
	}
	if k.Subresource != "" {
		name += "/" + k.Subresource
	}
	return name
}

// request is the part of a request that matters here.
type request struct {
	Kind
	// path is set if the path is not a resource's.
	path bool
	// namespace and name are the object's; empty for all. If name is empty, a created object's name
	// is in the body.
	namespace, name string
}

// object names the object for people.
func (r request) object() string {
	if r.namespace == "" {
		return r.name
	}
	return r.namespace + "/" + r.name
}

var resolver = &apirequest.RequestInfoFactory{APIPrefixes: sets.NewString("apis", "api"), GrouplessAPIPrefixes: sets.NewString("api")}

// maxPath bounds what is kept of a path.
const maxPath = 100

// requestOf reads a request as the API server does. prefix is the path in the server's address.
func requestOf(req *http.Request, prefix string) request {
	r := request{Kind: Kind{Client: clientOf(req.Header.Get("User-Agent")), Verb: strings.ToLower(req.Method)}}
	if r.Verb == "" {
		r.Verb = "get"
	}
	within := *req.URL
	within.Path = apiresponse.Below(prefix, within.Path)
	info, err := resolver.NewRequestInfo(&http.Request{Method: strings.ToUpper(r.Verb), URL: &within, Header: req.Header})
	if err != nil || !info.IsResourceRequest {
		r.path, r.Resource = true, within.Path[:min(len(within.Path), maxPath)]
		return r
	}
	r.Verb, r.Group, r.Resource, r.Subresource = info.Verb, info.APIGroup, info.Resource, info.Subresource
	r.namespace, r.name = info.Namespace, info.Name
	if r.Resource == "namespaces" {
		r.namespace = "" // where upstream has the namespace's own name
	}
	return r
}

// clientOf returns what client-go appends to the User-Agent of a binary: its name, version,
// platform and commit.
func clientOf(agent string) string {
	_, rest, _ := strings.Cut(agent, ") kubernetes/")
	_, client, _ := strings.Cut(rest, "/")
	client, _, _ = strings.Cut(client, " ")
	if client == "" {
		return "-"
	}
	return client
}

// reads reports whether a request cannot change anything.
func reads(req *http.Request, r request) bool {
	switch req.Method {
	case http.MethodGet, http.MethodHead, "":
	default:
		return false
	}
	return !upgrades(req) && !r.acts()
}

// acts reports whether the request is for something through which a GET acts.
func (r request) acts() bool { return r.Verb == "proxy" || apiresponse.Connects(r.Subresource) }

// upgrades reports whether a request asks for another protocol on its connection, through which
// anything could be sent.
func upgrades(req *http.Request) bool {
	for name := range req.Header {
		if strings.EqualFold(name, "Upgrade") {
			return true
		}
	}
	return false
}

// isEvent reports whether the request is about an Event.
func (r request) isEvent() bool {
	return r.Resource == "events" && (r.Group == "" || r.Group == "events.k8s.io")
}

// maxBody is how much of a body is read, in bytes.
const maxBody = 256 << 10

// nameOf returns the name of the object in the body of a create request; with a star at the end if
// the server completes it.
func nameOf(req *http.Request) string {
	if req.Body == nil {
		return ""
	}
	text, err := io.ReadAll(io.LimitReader(req.Body, maxBody))
	if err != nil {
		return ""
	}
	name, generated := apiresponse.Name(req.Header.Get("Content-Type"), text)
	if generated {
		name += "*"
	}
	return name
}

func (k Kind) compare(other Kind) int {
	return cmp.Or(cmp.Compare(k.Client, other.Client), cmp.Compare(k.Verb, other.Verb), cmp.Compare(k.Name(), other.Name()))
}
