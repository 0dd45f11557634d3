package controlplane_test

import (
	"bufio"
	"encoding/json"
	"os"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/flotilla-kube/flotilla/test/controlplane"
)

// mostBroken allows one broken line for a killed server, and the last line.
const mostBroken = 2

// auditEvents reads the audit log. The log is blocking, so it has every request that was answered.
// An unanswered request may be half a line, of a server that is still writing it or was killed.
func auditEvents(t *testing.T, path string) []auditv1.Event {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var events []auditv1.Event
	broken := 0
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var event auditv1.Event
		if err := json.Unmarshal(lines.Bytes(), &event); err != nil {
			broken++
			continue
		}
		events = append(events, event)
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	if broken > mostBroken {
		t.Fatalf("%d lines are not JSON", broken)
	}
	return events
}

func requireAudit(t *testing.T, cp *controlplane.ControlPlane) {
	t.Helper()
	var ours, podsByReplicaSet, leases int
	for _, event := range auditEvents(t, cp.AuditLog()) {
		if event.ObjectRef == nil || event.ResponseStatus == nil {
			continue // no resource was requested, or nobody was answered
		}
		switch ref := event.ObjectRef; {
		case event.UserAgent == userAgent && event.Verb == "create" && ref.Resource == "deployments":
			ours++
			if event.User.Username != "admin" || event.ResponseStatus.Code != 201 || ref.Name != "web" {
				t.Errorf("our create was logged as %+v", event)
			}
			if event.RequestObject != nil || event.ResponseObject != nil {
				t.Error("an object that is not a Lease was logged")
			}
		case event.User.Username == "system:serviceaccount:kube-system:replicaset-controller" && ref.Resource == "pods":
			podsByReplicaSet++
		case ref.Resource == "leases" && ref.Name == managerName && event.Verb == "update":
			leases++
			requireLease(t, event)
		case ref.Resource == "leases" && ref.Namespace == "kube-node-lease" && event.ResponseObject != nil:
			t.Errorf("a node's Lease was logged with its object")
		}
	}
	if ours != 1 || podsByReplicaSet < 6 || leases == 0 {
		t.Errorf("logged: %d own creates, %d pod writes by the replicaset controller, %d updates of the leader's Lease",
			ours, podsByReplicaSet, leases)
	}
}

func requireLease(t *testing.T, event auditv1.Event) {
	t.Helper()
	if event.ResponseStatus.Code != 200 {
		return
	}
	var lease coordinationv1.Lease
	if event.ResponseObject == nil {
		t.Fatal("a Lease was logged without its object")
	}
	if err := json.Unmarshal(event.ResponseObject.Raw, &lease); err != nil {
		t.Fatal(err)
	}
	if lease.ResourceVersion == "" || lease.Spec.HolderIdentity == nil {
		t.Errorf("Lease was logged as %s", event.ResponseObject.Raw)
	}
}
