package controlplane

import (
	"fmt"
	"os"
	"path/filepath"
)

// auditPolicy logs what it takes to compare every write with the Lease in force at the time: all
// writes with user, user agent, object and response code, and Leases with their objects, for holder
// and resourceVersion. Only node Leases stay at the common level, because no check reads them.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
# One event a request, once it has been answered, with when it came; with AuditArrivals one more before.
omitStages: [%[2]s]
omitManagedFields: true
rules:
- level: %[1]s
  namespaces: [kube-node-lease]
  verbs: [create, update, patch, delete, deletecollection]
- level: RequestResponse
  verbs: [create, update, patch, delete, deletecollection]
  resources:
  - group: coordination.k8s.io
    resources: [leases]
- level: Metadata
  verbs: [get, list]
  resources:
  - group: coordination.k8s.io
    resources: [leases]
  namespaces: [kube-system]
- level: %[1]s
  verbs: [create, update, patch, delete, deletecollection]
- level: None
`

// The log rotates at this size in MB, which exceeds any disk.
const auditMaxSize = "100000000"

// AuditLog returns the path of the API server's audit log: one audit.k8s.io/v1 JSON object per
// line. A restarted API server continues the same file.
func (cp *ControlPlane) AuditLog() string {
	return filepath.Join(cp.dir, "audit.log")
}

func (cp *ControlPlane) writeAuditPolicy() (path string, err error) {
	level := "Metadata"
	if cp.opts.AuditObjects {
		level = "RequestResponse"
	}
	omitted := "RequestReceived"
	if cp.opts.AuditArrivals {
		omitted = ""
	}
	path = filepath.Join(cp.dir, "audit-policy.yaml")
	return path, os.WriteFile(path, fmt.Appendf(nil, auditPolicy, level, omitted), 0o644)
}
