package ceiling

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/flotilla-kube/flotilla/test/harness"
)

// Recording is the writes of a run. It is immutable, and may be replayed several times, also
// concurrently.
type Recording struct {
	requests []request
	// places are the paths of objects by recorded UID.
	places map[string]string
	// Left counts the controllers' mutating requests that were left out, by reason.
	Left map[string]int
}

// request is a request to send again.
type request struct {
	verb       string
	controller string
	uri        string
	kind       string // of the body: a media type
	body       []byte
	mentions   []mention
	// object is the path of the written object, without subresource; it orders an object's
	// requests.
	object string
	// account is the path of the service account that must exist before; only for pods.
	account string
	// uid is the UID in the answer to a create.
	uid string
	// versioned is set if the body must name the latest resourceVersion.
	versioned bool
	event     bool
	received  time.Time
}

// mention is a UID in a body.
type mention struct {
	offset int
	uid    string
}

// uidLength is the length of a UID as text. All have the same length, so they can be replaced in
// place, in any encoding.
const uidLength = 36

// Record reads an audit log and returns what can be replayed. It ignores an incomplete last line.
// It returns an error if a request has no body, as in a log without objects.
func Record(log io.Reader) (Recording, error) {
	r := Recording{places: map[string]string{}, Left: map[string]int{}}
	err := harness.Events(log, func(e *harness.Event) error {
		if err := r.add(e.Event); err != nil {
			return fmt.Errorf("%s of %s: %w", e.Verb, e.RequestURI, err)
		}
		return nil
	})
	if err != nil {
		return Recording{}, err
	}
	r.forgetUnknown()
	return r, nil
}

// Len returns the number of requests, Events included.
func (r Recording) Len() int { return len(r.requests) }

// Since returns how many requests arrived at or after the time, Events included.
func (r Recording) Since(t time.Time) int {
	n := 0
	for _, q := range r.requests {
		if !q.received.Before(t) {
			n++
		}
	}
	return n
}

// identity is the part of an object that is read from an answer.
type identity struct {
	Kind     string `json:"kind"`
	Metadata struct {
		Name string `json:"name"`
		UID  string `json:"uid"`
	} `json:"metadata"`
}

func (r *Recording) add(e auditv1.Event) error {
	if e.Stage != auditv1.StageResponseComplete || e.ObjectRef == nil || !slices.Contains(verbs, e.Verb) {
		return nil
	}
	var answer identity
	if e.ResponseObject != nil && e.Verb != "deletecollection" {
		if err := json.Unmarshal(e.ResponseObject.Raw, &answer); err != nil {
			return fmt.Errorf("answer: %w", err)
		}
	}
	if answer.Kind == "Status" || e.ObjectRef.Subresource != "" {
		answer = identity{}
	}
	ref := *e.ObjectRef
	if ref.Name == "" {
		ref.Name = answer.Metadata.Name
	}
	if answer.Metadata.UID != "" {
		r.places[answer.Metadata.UID] = place(ref)
	}
	controller, ok := controllerOf(e)
	if !ok {
		return nil
	}
	if why := leave(e); why != "" {
		r.Left[why]++
		return nil
	}
	q := request{
		verb: e.Verb, controller: controller, uri: e.RequestURI, object: place(ref), received: e.RequestReceivedTimestamp.Time,
		event: ref.Resource == "events", versioned: e.Verb == "update" && insists(ref),
	}
	if e.Verb == "create" {
		q.uid = answer.Metadata.UID
	}
	if e.Verb == "deletecollection" {
		q.object = q.uri
	}
	if err := q.encode(e, ref.Name); err != nil {
		return err
	}
	r.requests = append(r.requests, q)
	return nil
}

var verbs = []string{"create", "update", "patch", "delete", "deletecollection"}

const (
	serviceAccounts = "system:serviceaccount:kube-system:"
	manager         = "system:kube-controller-manager"
)

// controllerOf returns which controller sent a request: its service account or, if all share one
// identity, the suffix that client-go added to the User-Agent.
func controllerOf(e auditv1.Event) (string, bool) {
	if name, ok := strings.CutPrefix(e.User.Username, serviceAccounts); ok {
		return name, true
	}
	agent, _, _ := strings.Cut(e.UserAgent, " flotilla (")
	return agent[strings.LastIndexByte(agent, '/')+1:], e.User.Username == manager
}

// leave returns why a request of a controller is not replayed; empty if it is.
func leave(e auditv1.Event) string {
	switch ref := e.ObjectRef; {
	case e.ResponseStatus == nil || e.ResponseStatus.Code >= 300:
		return "not successful"
	case ref.Resource == "leases" && ref.APIGroup == "coordination.k8s.io":
		return "Lease"
	case ref.APIGroup == "authentication.k8s.io", ref.APIGroup == "authorization.k8s.io", ref.Subresource == "token":
		return "review or token"
	case ref.Resource == "serviceaccounts" && ref.Namespace == "kube-system" && e.User.Username == manager:
		return "service account of a controller"
	case dryRun(e):
		return "dry run"
	default:
		return ""
	}
}

func dryRun(e auditv1.Event) bool {
	if strings.Contains(e.RequestURI, "dryRun=") {
		return true
	}
	return e.RequestObject != nil && strings.HasPrefix(e.Verb, "delete") && bytes.Contains(e.RequestObject.Raw, []byte(`"dryRun":`))
}

// insists reports whether a resource refuses updates without a resourceVersion: custom resources,
// and those whose strategy has no unconditional updates.
func insists(ref auditv1.ObjectReference) bool {
	switch ref.APIGroup {
	case "", "apps", "batch", "autoscaling", "events.k8s.io":
		return false
	case "policy":
		return true
	default:
		return ref.Resource != "endpointslices" && ref.Resource != "certificatesigningrequests"
	}
}

// place returns the path of an object.
func place(ref auditv1.ObjectReference) string {
	path := "/apis/" + ref.APIGroup + "/" + ref.APIVersion
	if ref.APIGroup == "" {
		path = "/api/" + ref.APIVersion
	}
	if ref.Namespace != "" && (ref.Resource != "namespaces" || ref.APIGroup != "") {
		path += "/namespaces/" + ref.Namespace
	}
	return path + "/" + ref.Resource + "/" + url.PathEscape(ref.Name)
}

// forgetUnknown drops mentions that are not an object's UID.
func (r *Recording) forgetUnknown() {
	for i := range r.requests {
		q := &r.requests[i]
		q.mentions = slices.DeleteFunc(q.mentions, func(m mention) bool { return r.places[m.uid] == "" })
	}
}
