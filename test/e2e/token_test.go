package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/test/controlplane"
	"github.com/flotilla-kube/flotilla/test/harness"
)

// TestTokenFileRotates replaces the token in the file that a member's kubeconfig names, as kubelet
// does when a Secret changes. The member switches to the new one by itself, before the old one is
// refused.
func TestTokenFileRotates(t *testing.T) {
	t.Parallel()
	plane := harness.StartPlane(t, controlplane.Options{AuditObjects: true})
	file := filepath.Join(t.TempDir(), "token")
	r := &rotation{plane: plane, client: harness.Client(t, plane), file: file}
	first, second := r.account(t), r.mint(t, "second")
	r.put(t, first.token)
	spec := harness.Member("rotating")
	spec.Kubeconfig = r.kubeconfig(t)
	member := harness.Run(t, plane, spec)
	harness.Eventually(t, harness.Patience, "the member runs everything", member.Complete)
	before := r.lease(t)

	r.put(t, second.token)
	const what = "the member asks with the new token, and no longer with the old one"
	took := harness.Eventually(t, time.Minute+harness.Patience, what, func(context.Context) error {
		return r.asksOnlyWith(second.id, first.id)
	})
	t.Logf("the new token is used after %v", took.Round(time.Second))
	secrets := r.client.CoreV1().Secrets(metav1.NamespaceSystem)
	if err := secrets.Delete(t.Context(), "first", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, harness.Patience, "the old token is refused", func(ctx context.Context) error {
		_, err := first.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if !apierrors.IsUnauthorized(err) {
			return fmt.Errorf("listing nodes with it: %v", err)
		}
		return nil
	})
	refused := r.lease(t)
	deploy(t, r.client, "after-the-rotation")
	harness.Eventually(t, harness.Patience, "its controllers work", func(ctx context.Context) error {
		made := metav1.ListOptions{LabelSelector: "app=after-the-rotation"}
		sets, err := r.client.AppsV1().ReplicaSets(metav1.NamespaceDefault).List(ctx, made)
		if err == nil && len(sets.Items) == 0 {
			err = errors.New("there is no ReplicaSet")
		}
		return err
	})
	// Longer than a claim lasts without a heartbeat.
	harness.Eventually(t, harness.Patience, "its heartbeat continues", func(context.Context) error {
		beat := r.lease(t).renewed.Sub(refused.renewed)
		if beat <= election.DefaultTiming().LeaseDuration {
			return fmt.Errorf("for %v", beat)
		}
		return nil
	})
	if after := r.lease(t); after.holder != before.holder {
		t.Errorf("the member was %s and is %s: it has restarted", before.holder, after.holder)
	}
	if err := errors.Join(member.Running(), member.Complete(t.Context())); err != nil {
		t.Error(err)
	}
	member.MustStop(t)
	judgeUndisturbed(t, plane)
}

// rotation is a member whose token changes.
type rotation struct {
	plane  *controlplane.ControlPlane
	client kubernetes.Interface
	file   string
}

// rotated is a token, which is refused once the Secret of its name is gone.
type rotated struct {
	token, id string
	client    kubernetes.Interface
}

const rotatingAccount = "rotating"

// account creates a service account with a member's rights, and returns its first token.
func (r *rotation) account(t *testing.T) rotated {
	t.Helper()
	name := metav1.ObjectMeta{Name: rotatingAccount, Namespace: metav1.NamespaceSystem}
	account, create := &corev1.ServiceAccount{ObjectMeta: name}, metav1.CreateOptions{}
	_, err := r.client.CoreV1().ServiceAccounts(name.Namespace).Create(t.Context(), account, create)
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name.Name},
		RoleRef: rbacv1.RoleRef{
			APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin",
		},
		Subjects: []rbacv1.Subject{{
			Kind: rbacv1.ServiceAccountKind, Name: name.Name, Namespace: name.Namespace,
		}},
	}
	_, clusterErr := r.client.RbacV1().ClusterRoleBindings().Create(t.Context(), binding, create)
	if err := errors.Join(err, clusterErr); err != nil {
		t.Fatal(err)
	}
	return r.mint(t, "first")
}

// mint requests a token that is valid as long as a new Secret exists.
func (r *rotation) mint(t *testing.T, name string) rotated {
	t.Helper()
	core, create := r.client.CoreV1(), metav1.CreateOptions{}
	bound := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}}
	secret, err := core.Secrets(metav1.NamespaceSystem).Create(t.Context(), bound, create)
	if err != nil {
		t.Fatal(err)
	}
	accounts := core.ServiceAccounts(metav1.NamespaceSystem)
	request, err := accounts.CreateToken(t.Context(), rotatingAccount, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{
			ExpirationSeconds: ptr.To[int64](3600),
			BoundObjectRef: &authenticationv1.BoundObjectReference{
				APIVersion: "v1", Kind: "Secret", Name: name, UID: secret.UID,
			},
		},
	}, create)
	if err != nil {
		t.Fatal(err)
	}
	config := rest.AnonymousClientConfig(r.plane.AdminConfig())
	config.BearerToken = request.Status.Token
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	review := &authenticationv1.SelfSubjectReview{}
	review, err = client.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), review, create)
	if err != nil {
		t.Fatal(err)
	}
	ids := review.Status.UserInfo.Extra[credentialID]
	if len(ids) != 1 {
		t.Fatalf("the token has the ids %v", ids)
	}
	return rotated{request.Status.Token, ids[0], client}
}

// credentialID is the key under which the API server says which token a request came with.
const credentialID = "authentication.kubernetes.io/credential-id"

// put replaces the file atomically, as kubelet does.
func (r *rotation) put(t *testing.T, token string) {
	t.Helper()
	next := r.file + ".next"
	if err := os.WriteFile(next, []byte(token), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, r.file); err != nil {
		t.Fatal(err)
	}
}

// kubeconfig names the file, as deploy/README.md says.
func (r *rotation) kubeconfig(t *testing.T) string {
	t.Helper()
	return harness.Kubeconfig(t, r.plane, &clientcmdapi.AuthInfo{TokenFile: r.file})
}

type beat struct {
	holder  string
	renewed time.Time
}

// lease returns the state of the member's Lease.
func (r *rotation) lease(t *testing.T) beat {
	t.Helper()
	name := leaserecord.MemberLease(harness.Fleet, "rotating")
	leases := r.client.CoordinationV1().Leases(metav1.NamespaceSystem)
	lease, err := leases.Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return beat{ptr.Deref(lease.Spec.HolderIdentity, ""), lease.Spec.RenewTime.Time}
}

// quietFor is how long a token must be unused: five heartbeats.
const quietFor = 10 * time.Second

// asksOnlyWith returns an error unless requests came with the one token, and none with the other
// for a while. A watch is logged when it ends, with the token that it began with.
func (r *rotation) asksOnlyWith(with, without string) error {
	last := map[string]time.Time{}
	err := harness.EventsOf(r.plane.AuditLog(), func(e *harness.Event) error {
		if e.Process() != harness.Fleet {
			return nil
		}
		if e.ResponseStatus != nil && e.ResponseStatus.Code == http.StatusUnauthorized {
			return errors.New("a request of the member was refused as unauthenticated")
		}
		for _, id := range e.User.Extra[credentialID] {
			if e.Verb != "watch" {
				last[id] = e.RequestReceivedTimestamp.Time
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if gap := last[with].Sub(last[without]); last[with].IsZero() || gap < quietFor {
		return fmt.Errorf("the new token was last used at %v, the old one at %v", last[with], last[without])
	}
	return nil
}
