package deploy

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/flotilla-kube/flotilla/test/harness"
)

// auditPolicy also logs reads, because a missing right may be one to read.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
omitManagedFields: true
rules:
- level: RequestResponse
  verbs: [create, update, patch, delete, deletecollection]
- level: Metadata
`

func writeAuditPolicy(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "audit-policy.yaml")
	if err := os.WriteFile(path, []byte(auditPolicy), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// requireRights requires that no request of the fleet's user or of a service account in kube-system
// was refused.
func (c *cluster) requireRights(t *testing.T, user string) {
	t.Helper()
	refused := map[string]int{}
	requests, own := 0, 0
	err := harness.EventsOf(c.AuditLog(), func(e *harness.Event) error {
		if e.User.Username != user && !strings.HasPrefix(e.User.Username, "system:serviceaccount:kube-system:") {
			return nil
		}
		requests++
		if e.User.Username == user {
			own++
		}
		if e.ResponseStatus != nil && (e.ResponseStatus.Code == 403 || e.ResponseStatus.Code == 401) {
			refused[e.User.Username+" "+e.Verb+" "+e.RequestURI+" by "+e.UserAgent+": "+e.ResponseStatus.Message]++
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for request, n := range refused {
		t.Errorf("refused %d times: %s", n, request)
	}
	if own == 0 {
		t.Errorf("the audit log has no request of %s: the test proves nothing", user)
	}
	t.Logf("%d requests of the fleet and of controllers, %d refused", requests, len(refused))
}
