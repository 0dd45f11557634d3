package measure

import (
	"io"
	"strings"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/flotilla-kube/flotilla/test/harness"
)

// AuditPolicy makes the API server log only what Audit reads: watches as they begin and end, and
// writes of the Leases in kube-system.
const AuditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  verbs: [watch]
- level: Metadata
  verbs: [create, update, patch, delete]
  namespaces: [kube-system]
  resources:
  - group: coordination.k8s.io
    resources: [leases]
- level: None
`

// Client is what one client of the API server, by its address, has done according to the audit log.
type Client struct {
	// Watches are the open watches, by resource: "pods", "deployments.apps", with " (metadata)" if
	// the client says that it reads only that.
	Watches map[string]int
	// LeaseWrites are the answered writes of Leases.
	LeaseWrites int64
}

// Open returns how many watches are open.
func (c Client) Open() int {
	n := 0
	for _, open := range c.Watches {
		n += open
	}
	return n
}

// Audit reads a log by AuditPolicy and returns what each address has done. It ignores an incomplete
// last line.
func Audit(log io.Reader) (map[string]Client, error) {
	clients := map[string]Client{}
	err := harness.Events(log, func(e *harness.Event) error {
		if len(e.SourceIPs) > 0 {
			clients[e.SourceIPs[0]] = clients[e.SourceIPs[0]].with(e)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return clients, nil
}

func (c Client) with(event *harness.Event) Client {
	if c.Watches == nil {
		c.Watches = map[string]int{}
	}
	switch {
	case event.Verb == "watch" && event.Stage == auditv1.StageResponseStarted:
		c.Watches[resource(event)]++
	case event.Verb == "watch" && c.Watches[resource(event)] > 0: // a refused one has not begun
		c.Watches[resource(event)]--
	case event.Verb != "watch" && event.Stage == auditv1.StageResponseComplete:
		c.LeaseWrites++
	}
	return c
}

func resource(e *harness.Event) string {
	var name string
	if r := e.ObjectRef; r != nil {
		name = r.Resource
		if r.APIGroup != "" {
			name += "." + r.APIGroup
		}
	}
	if strings.Contains(e.UserAgent, "metadata-informers") {
		name += " (metadata)"
	}
	return name
}
