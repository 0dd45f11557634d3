package measure

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// AuditPolicy has the API server log what Audit reads, and nothing else: watches as they begin and end, and writes of the
// Leases in kube-system.
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

// Client is what one client of the API server, by its address, has done by the audit log.
type Client struct {
	// Watches are those that are open, by resource: "pods", "deployments.apps", with " (metadata)" where the client says that it
	// reads only that.
	Watches map[string]int
	// LeaseWrites are the writes of Leases that were answered.
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

// auditEvent is the part of an audit event that is read here.
type auditEvent struct {
	Stage     string   `json:"stage"`
	Verb      string   `json:"verb"`
	UserAgent string   `json:"userAgent"`
	SourceIPs []string `json:"sourceIPs"`
	Object    struct {
		Resource string `json:"resource"`
		Group    string `json:"apiGroup"`
	} `json:"objectRef"`
}

// Audit reads a log by AuditPolicy and returns what each address has done. A last line that is still being written is left
// out.
func Audit(log io.Reader) (map[string]Client, error) {
	clients := map[string]Client{}
	reader := bufio.NewReader(log)
	for {
		line, err := reader.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return clients, nil
		}
		if err != nil {
			return nil, err
		}
		var event auditEvent
		if err := json.Unmarshal(line, &event); err != nil {
			return nil, fmt.Errorf("audit log: %w", err)
		}
		if len(event.SourceIPs) > 0 {
			clients[event.SourceIPs[0]] = clients[event.SourceIPs[0]].with(event)
		}
	}
}

func (c Client) with(event auditEvent) Client {
	if c.Watches == nil {
		c.Watches = map[string]int{}
	}
	switch {
	case event.Verb == "watch" && event.Stage == "ResponseStarted":
		c.Watches[event.resource()]++
	case event.Verb == "watch" && c.Watches[event.resource()] > 0: // one that was refused has not begun
		c.Watches[event.resource()]--
	case event.Verb != "watch" && event.Stage == "ResponseComplete":
		c.LeaseWrites++
	}
	return c
}

func (e auditEvent) resource() string {
	name := e.Object.Resource
	if e.Object.Group != "" {
		name += "." + e.Object.Group
	}
	if strings.Contains(e.UserAgent, "metadata-informers") {
		name += " (metadata)"
	}
	return name
}
