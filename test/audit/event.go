package audit

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// event is what is read of an audit.k8s.io/v1 Event.
type event struct {
	AuditID    string `json:"auditID"`
	RequestURI string `json:"requestURI"`
	Verb       string `json:"verb"`
	UserAgent  string `json:"userAgent"`
	User       struct {
		Username string `json:"username"`
	} `json:"user"`
	ObjectRef *struct {
		Resource    string `json:"resource"`
		Namespace   string `json:"namespace"`
		Name        string `json:"name"`
		APIGroup    string `json:"apiGroup"`
		Subresource string `json:"subresource"`
		// ResourceVersion is the one that the request was made for, if it was.
		ResourceVersion string `json:"resourceVersion"`
	} `json:"objectRef"`
	ResponseStatus *struct {
		Code int32 `json:"code"`
	} `json:"responseStatus"`
	RequestObject  json.RawMessage  `json:"requestObject"`
	ResponseObject json.RawMessage  `json:"responseObject"`
	Received       metav1.MicroTime `json:"requestReceivedTimestamp"`
	Answered       metav1.MicroTime `json:"stageTimestamp"`
	Stage          string           `json:"stage"`

	log, line int // both from 1
}

// lean returns the event without what takes room and is not needed any more.
func (e event) lean() event {
	e.RequestObject, e.ResponseObject, e.UserAgent, e.User.Username = nil, nil, "", ""
	return e
}

// readLogs is readEvents for several logs, one after the other. It returns the number of lines of all.
func readLogs(logs []io.Reader, f func(event) error) (lines int, cut bool, err error) {
	for i, log := range logs {
		n, c, err := readEvents(log, func(e event) error {
			e.log = i + 1
			return f(e)
		})
		lines, cut = lines+n, cut || c
		if err != nil && len(logs) > 1 {
			err = fmt.Errorf("log %d: %w", i+1, err)
		}
		if err != nil {
			return lines, cut, err
		}
	}
	return lines, cut, nil
}

// readEvents calls f for each event of a log that says how a request ended, in the log's order. It returns the number
// of lines, and whether the last one is incomplete, as when the log is being written; such a line is left out.
func readEvents(log io.Reader, f func(event) error) (lines int, cut bool, err error) {
	reader := bufio.NewReaderSize(log, 1<<20)
	for {
		line, err := reader.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return lines, len(bytes.TrimSpace(line)) > 0, nil
		}
		if err != nil {
			return lines, false, fmt.Errorf("audit log after line %d: %w", lines, err)
		}
		lines++
		e := event{line: lines}
		if err := json.Unmarshal(line, &e); err != nil {
			return lines, false, fmt.Errorf("audit log line %d: %w", lines, err)
		}
		// The other stages tell of requests that have not ended, or of watches.
		if e.Stage != "ResponseComplete" && e.Stage != "Panic" {
			continue
		}
		if err := f(e); err != nil {
			return lines, false, fmt.Errorf("audit log line %d: %w", lines, err)
		}
	}
}

func (e event) mutating() bool {
	switch e.Verb {
	case "create", "update", "patch", "delete", "deletecollection":
		return e.ObjectRef != nil
	default:
		return false
	}
}

// refused tells whether the request is known to have changed nothing.
func (e event) refused() bool {
	return e.ResponseStatus != nil && e.ResponseStatus.Code >= 400 && e.ResponseStatus.Code < 500
}

// failed tells whether the request may have changed something or not: nobody was answered, or with a server's error.
func (e event) failed() bool {
	return e.ResponseStatus == nil || e.ResponseStatus.Code >= 500
}

// namespace returns the namespace that the object belongs to, a Namespace to itself; empty for cluster-scoped objects.
func (e event) namespace() string {
	if e.ObjectRef.Resource == "namespaces" && e.ObjectRef.APIGroup == "" {
		return e.ObjectRef.Name
	}
	return e.ObjectRef.Namespace
}

// dryRun tells whether the request was told to change nothing.
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

// moment returns when the request took effect, by what its answer says.
func (e event) moment(version uint64) moment {
	return moment{version: version, received: e.Received.Time, answered: e.Answered.Time}
}

func (e event) resource() string {
	if e.ObjectRef.Subresource == "" {
		return e.ObjectRef.Resource
	}
	return e.ObjectRef.Resource + "/" + e.ObjectRef.Subresource
}

// isEvent tells whether it writes a Kubernetes Event.
func (e event) isEvent() bool {
	return e.ObjectRef.Resource == "events"
}

// storesNothing tells whether the request asks a question in the form of a create.
func (e event) storesNothing() bool {
	switch e.ObjectRef.APIGroup {
	case "authentication.k8s.io", "authorization.k8s.io":
		return true
	default:
		return e.resource() == "serviceaccounts/token"
	}
}

// version returns the resourceVersion of the object that the write made, and whether the answer has one. The list that
// answers a deletecollection has that of a read.
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

// lease returns the Lease in the answer.
func (e event) lease() (*coordinationv1.Lease, error) {
	if e.ResponseObject == nil {
		return nil, fmt.Errorf("%s of Lease %s was logged without its answer", e.Verb, e.ObjectRef.Name)
	}
	var lease coordinationv1.Lease
	if err := json.Unmarshal(e.ResponseObject, &lease); err != nil {
		return nil, fmt.Errorf("answer to %s of Lease %s: %w", e.Verb, e.ObjectRef.Name, err)
	}
	return &lease, nil
}

// asked returns the Lease in the request; nil if there is none, or the log has not got it.
func (e event) asked() *coordinationv1.Lease {
	var lease coordinationv1.Lease
	if e.RequestObject == nil || json.Unmarshal(e.RequestObject, &lease) != nil {
		return nil
	}
	return &lease
}

// serviceAccounts begins the name of a controller's own service account.
const serviceAccounts = "system:serviceaccount:kube-system:"

// controller returns the name of the controller that sent the request: its service account, or, where all controllers
// share one identity, what client-go wrote last into the User-Agent before the fence did.
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
