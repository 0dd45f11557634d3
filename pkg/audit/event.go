package audit

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	authnv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/utils/ptr"
)

// event is the part of an audit.k8s.io/v1 Event that is kept while the log is read.
type event struct {
	AuditID, RequestURI, Verb, UserAgent string
	User                                 authnv1.UserInfo
	ObjectRef                            *auditv1.ObjectReference
	RequestObject, ResponseObject        json.RawMessage
	// Received is when the request arrived, Answered when it was answered.
	Received, Answered metav1.MicroTime
	code               int32 // of the answer; 0 if there was none
	// arrival is set for a record that a request arrived, not how it ended.
	arrival bool
	// level is the level at which it was logged: at some, a request has its object once the server
	// has read it.
	level auditv1.Level

	file      string // of the log, empty if it has no name
	log, line int    // both from 1
	// binary is the build of the binary that sent it, with the account if it is unstamped; empty for
	// a binary not built on client-go.
	binary string
}

// eventOf returns what is kept of an Event. The error names the field that makes it invalid.
func eventOf(a *auditv1.Event) (event, error) {
	if a.Kind != "Event" || a.APIVersion != auditv1.SchemeGroupVersion.String() {
		return event{}, fmt.Errorf("kind %q of apiVersion %q: must be an Event of %s", a.Kind, a.APIVersion, auditv1.SchemeGroupVersion)
	}
	e := event{
		AuditID: string(a.AuditID), RequestURI: a.RequestURI, Verb: a.Verb, UserAgent: a.UserAgent, User: a.User, ObjectRef: a.ObjectRef,
		Received: a.RequestReceivedTimestamp, Answered: a.StageTimestamp, level: a.Level,
	}
	for _, f := range []struct {
		name string
		time metav1.MicroTime
	}{{"requestReceivedTimestamp", e.Received}, {"stageTimestamp", e.Answered}} {
		if f.time.IsZero() {
			return event{}, fmt.Errorf("%s: is missing", f.name)
		}
	}
	if a.ResponseStatus != nil {
		e.code = a.ResponseStatus.Code
	}
	if a.RequestObject != nil {
		e.RequestObject = a.RequestObject.Raw
	}
	if a.ResponseObject != nil {
		e.ResponseObject = a.ResponseObject.Raw
	}
	return e, nil
}

// lean returns the event without its large parts that are not needed any more.
func (e event) lean() event {
	e.RequestObject, e.ResponseObject, e.UserAgent, e.User = nil, nil, "", authnv1.UserInfo{}
	return e
}

func (e event) mutating() bool {
	switch e.Verb {
	case "create", "update", "patch", "delete", "deletecollection":
		return e.ObjectRef != nil
	default:
		return false
	}
}

// refused reports whether the request is known to have changed nothing.
func (e event) refused() bool {
	return e.code >= 400 && e.code < 500
}

// failed reports whether it is unknown if the request changed something: there was no answer, or a
// server's error.
func (e event) failed() bool {
	return e.code == 0 || e.code >= 500
}

// namespace returns the namespace of the object, and the name of a Namespace; empty for other
// cluster-scoped objects.
func (e event) namespace() string {
	if e.ObjectRef.Resource == "namespaces" && e.ObjectRef.APIGroup == "" {
		return e.ObjectRef.Name
	}
	return e.ObjectRef.Namespace
}

// dryRun reports whether the request asked the server to change nothing.
func (e event) dryRun() bool {
	if strings.Contains(e.RequestURI, "dryRun=") {
		return true
	}
	if e.Verb != "delete" && e.Verb != "deletecollection" || e.RequestObject == nil {
		return false
	}
	var options struct {
		DryRun []string `json:"dryRun"`
	}
	return json.Unmarshal(e.RequestObject, &options) == nil && len(options.DryRun) > 0
}

// moment returns when the request took effect, by its answer.
func (e event) moment(version uint64) moment {
	return moment{version: version, received: e.Received.Time, answered: e.Answered.Time}
}

func (e event) resource() string {
	if e.ObjectRef.Subresource == "" {
		return e.ObjectRef.Resource
	}
	return e.ObjectRef.Resource + "/" + e.ObjectRef.Subresource
}

// mayChangeObjects reports whether a mutating request may change what the rules about objects look
// at. Connections to pods, which are creates to the API server, change nothing.
func (e event) mayChangeObjects() bool {
	connects := slices.Contains([]string{"attach", "exec", "portforward", "proxy"}, e.ObjectRef.Subresource)
	return !e.isEvent() && e.ObjectRef.Resource != "leases" && !e.storesNothing() && !connects && !e.dryRun()
}

// isEvent reports whether the request writes a Kubernetes Event.
func (e event) isEvent() bool {
	return e.ObjectRef.Resource == "events"
}

// storesNothing reports whether the request asks a question in the form of a create.
func (e event) storesNothing() bool {
	switch e.ObjectRef.APIGroup {
	case "authentication.k8s.io", "authorization.k8s.io":
		return true
	default:
		return e.resource() == "serviceaccounts/token"
	}
}

// version returns the resourceVersion of the object that the write made, and whether the answer has
// one. The list in the answer to a deletecollection has the resourceVersion of a read.
func (e event) version() (uint64, bool) {
	if e.ResponseObject == nil || e.Verb == "deletecollection" {
		return 0, false
	}
	var object metav1.PartialObjectMetadata
	if err := json.Unmarshal(e.ResponseObject, &object); err != nil || object.Kind == "Status" {
		return 0, false
	}
	version, err := strconv.ParseUint(object.ResourceVersion, 10, 64)
	return version, err == nil
}

// deleted returns the names of the objects in the answer to a deletion of many.
func (e event) deleted() ([]string, error) {
	var list metav1.PartialObjectMetadataList
	if e.failed() || e.ResponseObject == nil {
		return nil, fmt.Errorf("code %d, and the answer is not logged", e.code)
	}
	if err := json.Unmarshal(e.ResponseObject, &list); err != nil || !strings.HasSuffix(list.Kind, "List") {
		return nil, fmt.Errorf("the answer is of kind %q, want a list", list.Kind)
	}
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names, nil
}

// lease returns the Lease in the answer.
func (e event) lease() (*coordinationv1.Lease, error) {
	if e.ResponseObject == nil {
		return nil, fmt.Errorf("responseObject: is missing from a %s of Lease %s; Leases must be logged at level RequestResponse", e.Verb, e.ObjectRef.Name)
	}
	var lease coordinationv1.Lease
	if err := json.Unmarshal(e.ResponseObject, &lease); err != nil {
		return nil, fmt.Errorf("responseObject of a %s of Lease %s: %w", e.Verb, e.ObjectRef.Name, err)
	}
	return &lease, nil
}

// asked returns the Lease in the request; nil if there is none, or the log does not have it.
func (e event) asked() *coordinationv1.Lease {
	var lease coordinationv1.Lease
	if e.RequestObject == nil || json.Unmarshal(e.RequestObject, &lease) != nil {
		return nil
	}
	return &lease
}

// required returns the version that a deletion requires the object to have; 0 if it requires none,
// or the log does not tell.
func (e event) required() uint64 {
	var options metav1.DeleteOptions
	if e.RequestObject == nil || json.Unmarshal(e.RequestObject, &options) != nil || options.Preconditions == nil {
		return 0
	}
	version, _ := strconv.ParseUint(ptr.Deref(options.Preconditions.ResourceVersion, ""), 10, 64)
	return version
}

// serviceAccounts begins the name of a controller's own service account.
const serviceAccounts = "system:serviceaccount:kube-system:"

// credentialExtra is where the API server records the id of a request's credential.
const credentialExtra = "authentication.kubernetes.io/credential-id"

// token returns the id of the request's token; empty if there is none, or it is not in the log.
func (e event) token() string {
	for _, id := range e.User.Extra[credentialExtra] {
		if strings.HasPrefix(id, "JTI=") {
			return id
		}
	}
	return ""
}

// controller returns the name of the controller that sent the request: its service account, or, if
// all controllers share one identity, what client-go wrote last into the User-Agent before the
// fence's part.
func (e event) controller() string {
	if name, ok := strings.CutPrefix(e.User.Username, serviceAccounts); ok {
		return name
	}
	agent := e.UserAgent
	if i := strings.LastIndex(agent, " "+agentMark); i >= 0 {
		agent = agent[:i]
	}
	return agent[strings.LastIndexByte(agent, '/')+1:]
}
