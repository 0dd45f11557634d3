package audit_test

import (
	"os"
	"testing"

	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit/policy"
	authn "k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// TestPolicy compares the audit policy for operators with what the judge needs in the log, and with
// what must not be in it.
func TestPolicy(t *testing.T) {
	text, err := os.ReadFile("../../deploy/audit/policy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	loaded, err := policy.LoadPolicyFromBytes(text)
	if err != nil {
		t.Fatal(err)
	}
	const whole, who, nothing = auditinternal.LevelRequestResponse, auditinternal.LevelMetadata, auditinternal.LevelNone
	manager, node := &authn.DefaultInfo{Name: "system:kube-controller-manager"}, &authn.DefaultInfo{Name: "system:node:n", Groups: []string{"system:nodes"}}
	for _, test := range []struct {
		verb, group, resource, subresource string
		by                                 authn.Info
		want                               auditinternal.Level
	}{
		{"update", "coordination.k8s.io", "leases", "", manager, whole},
		{"delete", "coordination.k8s.io", "leases", "", manager, whole},
		{"get", "coordination.k8s.io", "leases", "", manager, nothing},
		{"update", "coordination.k8s.io", "leases", "", node, nothing},
		{"create", "", "pods", "", manager, whole},
		{"create", "", "pods", "binding", manager, whole},
		{"create", "", "pods", "eviction", manager, whole},
		{"patch", "", "pods", "status", node, whole},
		{"patch", "", "nodes", "", manager, whole},
		{"patch", "", "persistentvolumes", "", manager, whole},
		{"delete", "", "namespaces", "", manager, whole},
		{"update", "apps", "deployments", "scale", manager, whole},
		{"update", "apps", "replicasets", "status", manager, whole},
		{"create", "batch", "jobs", "", manager, whole},
		{"update", "batch", "cronjobs", "status", manager, whole},
		{"create", "discovery.k8s.io", "endpointslices", "", manager, whole},
		{"deletecollection", "", "pods", "", manager, whole},
		{"create", "", "secrets", "", manager, who},
		{"update", "", "configmaps", "", manager, who},
		{"create", "", "serviceaccounts", "token", manager, who},
		{"create", "authentication.k8s.io", "tokenreviews", "", manager, who},
		{"update", "example.com", "boxes", "", manager, who},
		{"create", "", "events", "", manager, nothing},
		{"list", "", "pods", "", manager, nothing},
	} {
		got := policy.NewPolicyRuleEvaluator(loaded).EvaluatePolicyRule(authorizer.AttributesRecord{
			User: test.by, Verb: test.verb, APIGroup: test.group, Resource: test.resource, Subresource: test.subresource, ResourceRequest: true, Namespace: "kube-system",
		})
		if got.Level != test.want || !got.OmitManagedFields {
			t.Errorf("%s %s/%s/%s by %s: level %s, managed fields left out %t; want %s, and true", test.verb, test.group, test.resource, test.subresource,
				test.by.GetName(), got.Level, got.OmitManagedFields, test.want)
		}
	}
}
