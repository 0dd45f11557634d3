package deploy

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/flotilla-kube/flotilla/test/controlplane"
	"github.com/flotilla-kube/flotilla/test/harness"
)

// TestHosted runs a fleet in a management cluster for a hosted one, with a token of the hosted
// cluster's service account.
func TestHosted(t *testing.T) {
	t.Parallel() // The tests wait more than they work.
	hostedOne := startCluster(t, controlplane.Options{})
	defer hostedOne.requireRights(t, fleetAccount)
	hostedOne.kubectl(t, "", "apply", "-k", hostedCluster)
	management := startCluster(t, controlplane.Options{Scheduler: true})
	management.startNode(t, "m-0", "")
	management.startStock(t)
	management.kubectl(t, "", "taint", "node", "m-0", "node-role.kubernetes.io/control-plane-")
	management.kubectl(t, "", "create", "namespace", hostedNamespace)
	management.kubectl(t, "", "label", "namespace", hostedNamespace, enforce+"=restricted")

	pki := filepath.Join(hostedOne.Dir(), "pki")
	management.kubectl(t, "", "-n", hostedNamespace, "create", "secret", "generic", "flotilla-pki",
		"--from-file="+pki+"/sa.key", "--from-file="+pki+"/ca.crt", "--from-file="+pki+"/ca.key")
	management.kubectl(t, "", "-n", hostedNamespace, "create", "secret", "generic", "flotilla-kubeconfig", "--from-file=kubeconfig="+hostedOne.tokenKubeconfig(t))
	management.kubectl(t, "", "apply", "-k", hosted)

	eventually(t, "three members run in the management cluster", management.ready(3))
	eventually(t, "controllers work in the hosted cluster", func(ctx context.Context) error {
		_, err := hostedOne.client.CoreV1().ServiceAccounts("default").Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	management.requireNothingOfFleet(t)
	hostedOne.judge(t)
	management.requireNoPanic(t)
}

// tokenKubeconfig writes a kubeconfig with a token of the fleet's service account, and returns its
// path.
func (c *cluster) tokenKubeconfig(t *testing.T) string {
	t.Helper()
	token := c.token(t, system, fleetName).token
	return harness.Kubeconfig(t, c.ControlPlane, &clientcmdapi.AuthInfo{Token: token})
}

// requireNothingOfFleet requires that this cluster has only the fleet's pods: no Leases, no rights,
// no requests.
func (c *cluster) requireNothingOfFleet(t *testing.T) {
	t.Helper()
	leases, err := c.client.CoordinationV1().Leases("").List(t.Context(), metav1.ListOptions{LabelSelector: "flotilla.dev/fleet"})
	if err != nil || len(leases.Items) > 0 {
		t.Errorf("%d Leases of a fleet in the management cluster: %v", len(leases.Items), err)
	}
	bindings, err := c.client.RbacV1().RoleBindings("").List(t.Context(), metav1.ListOptions{})
	clusterBindings, clusterErr := c.client.RbacV1().ClusterRoleBindings().List(t.Context(), metav1.ListOptions{})
	if err := errors.Join(err, clusterErr); err != nil {
		t.Fatal(err)
	}
	var subjects []rbacv1.Subject
	for _, b := range bindings.Items {
		subjects = append(subjects, b.Subjects...)
	}
	for _, b := range clusterBindings.Items {
		subjects = append(subjects, b.Subjects...)
	}
	for _, s := range subjects {
		if s.Name == fleetName {
			t.Errorf("%+v has rights in the management cluster", s)
		}
	}
	log, err := os.ReadFile(c.AuditLog())
	if err != nil {
		t.Fatal(err)
	}
	if agent := []byte(`"userAgent":"flotilla/`); bytes.Contains(log, agent) {
		t.Error("a member has sent requests to the management cluster")
	}
}
