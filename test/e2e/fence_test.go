package e2e

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/test/controlplane"
	"github.com/flotilla-kube/flotilla/test/harness"
)

const (
	// binVariable names the environment variable that replaces bin/.
	binVariable = "FLOTILLA_E2E_BIN"
	// fenceActs is how long the API server may take to act on a mark on a busy machine, while
	// writes are sent in a loop. It takes about 20 ms on an idle one.
	fenceActs = time.Minute
	// fenceActsOnce is the same for the quickest of some marks.
	fenceActsOnce = 5 * time.Second
	// costSamples is the number of timed writes per figure.
	costSamples = 300
	// manyMembers is the number of dead members in a fleet that gives each process a new name.
	manyMembers = 100
)

// TestFenceRefusesCredentials has no fleet. It lists a token of a controller's service account on a
// member's Lease and then fences it. Only the policy of deploy/fence can refuse the token.
func TestFenceRefusesCredentials(t *testing.T) {
	plane := harness.StartPlane(t, controlplane.Options{BinDir: os.Getenv(binVariable)})
	admin := harness.Client(t, plane)
	c := &credential{t: t, admin: admin, plane: plane}
	c.mint("deployment-controller")
	t.Logf("a write without the policy: %s", c.cost())

	installFence(t, plane)
	holder := leaserecord.NewIncarnation("one")
	lease := c.memberLease("one", holder)
	for n := range 9 {
		c.memberLease(fmt.Sprintf("other-%d", n), leaserecord.NewIncarnation("other"))
	}
	// A policy that has not refused anything yet may not be in force.
	probe := &credential{t: t, admin: admin, plane: plane}
	probe.mint("replicaset-controller")
	dead := probe.memberLease("probe", leaserecord.NewIncarnation("probe"))
	t.Logf("a write with the policy, 11 members, none of them fenced: %s", c.cost())
	probe.mark(dead, *dead.Spec.HolderIdentity)
	took := harness.Eventually(t, harness.Patience, "policy in force", func(context.Context) error { return probe.refused() })
	t.Logf("the policy refused a fenced credential %v after it was marked", took)
	if err := c.without().write(); err != nil {
		t.Fatalf("a service account without a credential id, while another one is fenced: %v", err)
	}
	t.Logf("a write with the policy, 11 members, one of them fenced: %s", c.cost())

	quickest := fenceActs
	for round := range 3 {
		if err := c.write(); err != nil {
			t.Fatalf("round %d: a credential that is not fenced: %v", round, err)
		}
		began := time.Now()
		marked := c.mark(lease, holder)
		answered, passed := time.Now(), 0
		for {
			err := c.write()
			if err == nil {
				if since := time.Since(answered); since > fenceActs {
					t.Fatalf("round %d: writes still pass %v after the mark", round, since)
				}
				passed++
				continue
			}
			if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), lease.Name) {
				t.Fatalf("round %d: refused with %v, want 403 and the name of %s", round, err, lease.Name)
			}
			break
		}
		t.Logf("round %d: refused %.1f ms after the mark was answered, which took %.1f ms; %d writes passed between", round,
			milliseconds(time.Since(answered)), milliseconds(answered.Sub(began)), passed)
		quickest = min(quickest, time.Since(answered))
		if err := c.refused(); err != nil {
			t.Fatalf("round %d: after one write was refused: %v", round, err)
		}

		// A new incarnation takes the Lease with new credentials. Its writes pass; those with the
		// old ones do not.
		old := *c
		holder = leaserecord.NewIncarnation("one")
		c.mint("deployment-controller")
		lease = c.publish(marked, holder)
		harness.Eventually(t, harness.Patience, "a new credential passes", func(context.Context) error { return c.write() })
		if err := old.write(); !apierrors.IsForbidden(err) {
			t.Fatalf("round %d: the fenced credential, after another incarnation took the Lease: %v, want 403", round, err)
		}
	}
	if quickest > fenceActsOnce {
		t.Errorf("the fence took %v at best to act on a mark, want less than %v once in three times", quickest, fenceActsOnce)
	}
	c.manyDead(manyMembers)
	t.Logf("a write with %d members that died and never came back, each with 40 credentials: %s", manyMembers, c.cost())
	t.Run("ExtensionServers", func(t *testing.T) { extensionServers(t, plane) })
}

// installFence applies deploy/fence as an operator would.
func installFence(t *testing.T, plane *controlplane.ControlPlane) {
	t.Helper()
	kubectl := exec.CommandContext(t.Context(), harness.Binary(t, plane, "kubectl"), "--kubeconfig", plane.AdminKubeconfig(), "apply", "-k", "../../deploy/fence")
	if out, err := kubectl.CombinedOutput(); err != nil {
		t.Fatalf("kubectl apply: %v\n%s", err, out)
	}
}

// credential is a token of a service account of kube-system, and a client that uses it.
type credential struct {
	t      *testing.T
	admin  kubernetes.Interface
	plane  *controlplane.ControlPlane
	id     string
	client kubernetes.Interface
	writes int
}

// mint requests a token as a controller manager does.
func (c *credential) mint(account string) {
	c.t.Helper()
	accounts := c.admin.CoreV1().ServiceAccounts(metav1.NamespaceSystem)
	_, err := accounts.Create(c.t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: account}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		c.t.Fatal(err)
	}
	request, err := accounts.CreateToken(c.t.Context(), account, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To[int64](3600)},
	}, metav1.CreateOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	payload, err := base64.RawURLEncoding.DecodeString(strings.Split(request.Status.Token, ".")[1])
	if err != nil {
		c.t.Fatal(err)
	}
	var claims struct {
		ID string `json:"jti"`
	}
	if err := json.Unmarshal(payload, &claims); err != nil {
		c.t.Fatal(err)
	}
	c.id = "JTI=" + claims.ID
	config := rest.AnonymousClientConfig(c.plane.AdminConfig())
	config.BearerToken, config.QPS = request.Status.Token, -1
	if c.client, err = kubernetes.NewForConfig(config); err != nil {
		c.t.Fatal(err)
	}
}

// without returns a service account of kube-system whose requests have no extra information, like
// those with a token from a Secret.
func (c *credential) without() *credential {
	c.t.Helper()
	config := rest.CopyConfig(c.plane.AdminConfig())
	config.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:kube-system:deployment-controller"}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		c.t.Fatal(err)
	}
	return &credential{t: c.t, client: client}
}

// memberLease creates the Lease of a member that has published this credential.
func (c *credential) memberLease(member, holder string) *coordinationv1.Lease {
	c.t.Helper()
	return c.leaseIn(harness.Fleet, member, holder)
}

// leaseIn is memberLease for any fleet.
func (c *credential) leaseIn(name, member, holder string) *coordinationv1.Lease {
	c.t.Helper()
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Name:        leaserecord.MemberLease(name, member),
		Labels:      map[string]string{leaseapi.FleetLabel: name, leaseapi.KindLabel: leaseapi.KindMember},
		Annotations: map[string]string{leaserecord.CredentialsAnnotation: c.id},
	}, Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder}}
	lease, err := c.admin.CoordinationV1().Leases(metav1.NamespaceSystem).Create(c.t.Context(), lease, metav1.CreateOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	return lease
}

// mark fences the incarnation, as the member that takes over from it does.
func (c *credential) mark(lease *coordinationv1.Lease, incarnation string) *coordinationv1.Lease {
	c.t.Helper()
	marked, needed := leaserecord.FenceIncarnation(lease, incarnation)
	if !needed {
		c.t.Fatalf("%s: nothing to fence on %s", incarnation, lease.Name)
	}
	return c.update(marked)
}

// publish gives the Lease to a new incarnation with this credential.
func (c *credential) publish(lease *coordinationv1.Lease, holder string) *coordinationv1.Lease {
	c.t.Helper()
	lease = lease.DeepCopy()
	lease.Spec.HolderIdentity = &holder
	lease.Annotations[leaserecord.CredentialsAnnotation] = c.id
	return c.update(lease)
}

func (c *credential) update(lease *coordinationv1.Lease) *coordinationv1.Lease {
	c.t.Helper()
	updated, err := c.admin.CoordinationV1().Leases(metav1.NamespaceSystem).Update(c.t.Context(), lease, metav1.UpdateOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	return updated
}

// manyDead creates the Leases of members that died and never came back.
func (c *credential) manyDead(n int) {
	c.t.Helper()
	for i := range n {
		var ids []string
		for j := range 40 {
			ids = append(ids, fmt.Sprintf("JTI=%08d-0000-4000-8000-%012d", i, j))
		}
		other := *c
		other.id = strings.Join(ids, ",")
		holder := leaserecord.NewIncarnation(fmt.Sprintf("dead-%d", i))
		other.mark(other.memberLease(leaserecord.MemberOf(holder), holder), holder)
	}
}

// write creates an object that both service accounts' roles allow.
func (c *credential) write() error {
	c.writes++
	event := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{GenerateName: "fence-"},
		InvolvedObject: corev1.ObjectReference{Kind: "Deployment", Name: "none", Namespace: metav1.NamespaceDefault},
	}
	_, err := c.client.CoreV1().Events(metav1.NamespaceDefault).Create(c.t.Context(), event, metav1.CreateOptions{})
	return err
}

// refused returns nil if the API server refuses the credential.
func (c *credential) refused() error {
	if err := c.write(); !apierrors.IsForbidden(err) {
		return fmt.Errorf("a fenced credential: %v, want 403", err)
	}
	return nil
}

// cost times writes of an object whose cost is typical for a controller.
func (c *credential) cost() string {
	c.t.Helper()
	labels := map[string]string{"app": "none"}
	set := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{GenerateName: "fence-"}, Spec: appsv1.ReplicaSetSpec{
		Replicas: ptr.To[int32](0), Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "none"}}},
		},
	}}
	var times []time.Duration
	for range costSamples {
		began := time.Now()
		if _, err := c.client.AppsV1().ReplicaSets(metav1.NamespaceDefault).Create(c.t.Context(), set, metav1.CreateOptions{}); err != nil {
			c.t.Fatal(err)
		}
		times = append(times, time.Since(began))
	}
	slices.Sort(times)
	return fmt.Sprintf("median %.2f ms, 9 of 10 within %.2f ms, of %d", milliseconds(times[len(times)/2]), milliseconds(times[len(times)*9/10]), len(times))
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
