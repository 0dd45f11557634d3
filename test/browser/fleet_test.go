package browser

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/flotilla-kube/flotilla/internal/status/page"
	"github.com/flotilla-kube/flotilla/pkg/audit"
	"github.com/flotilla-kube/flotilla/pkg/controllers/catalogue"
	"github.com/flotilla-kube/flotilla/test/controlplane"
	"github.com/flotilla-kube/flotilla/test/harness"
)

var (
	// quick is for a member that creates the Leases and for one that is by itself.
	quick = []string{"--leader-elect-lease-duration=10s", "--leader-elect-renew-deadline=7s", "--leader-elect-retry-period=1s"}
	// slow keeps a suspended member alive to the fleet for as long as the test may take.
	slow = []string{"--leader-elect-lease-duration=9m", "--leader-elect-renew-deadline=8m", "--leader-elect-retry-period=1s", "--handoff-timeout=5m", "--max-concurrent-handoffs=20"}
)

// environment is a control plane and clients for those who look at it.
type environment struct {
	plane  *controlplane.ControlPlane
	client kubernetes.Interface
	// callers are HTTP clients by user.
	callers map[string]*http.Client
}

func newEnvironment(t *testing.T) *environment {
	t.Helper()
	plane := harness.StartPlane(t, controlplane.Options{AuditObjects: true})
	t.Cleanup(func() { harness.JudgeDisturbed(t, plane, audit.Options{Controllers: catalogue.Identities()}) })
	w := &environment{plane: plane, client: harness.Client(t, plane), callers: map[string]*http.Client{}}
	w.callers["anonymous"] = harness.Caller(t, rest.AnonymousClientConfig(plane.AdminConfig()))
	w.callers["admin"] = harness.Caller(t, plane.AdminConfig())
	w.allow(t, "of-metrics", "/metrics")
	w.allow(t, "of-fleet", "/fleet")
	return w
}

// allow creates a user who may only get this path.
func (env *environment) allow(t *testing.T, user, path string) {
	t.Helper()
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "reader-" + user},
		Rules:      []rbacv1.PolicyRule{{NonResourceURLs: []string{path}, Verbs: []string{"get"}}},
	}
	if _, err := env.client.RbacV1().ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}},
	}
	if _, err := env.client.RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	config, err := env.plane.ConfigFor(user)
	if err != nil {
		t.Fatal(err)
	}
	env.callers[user] = harness.Caller(t, config)
}

// work creates objects for the controllers to count.
func (env *environment) work(t *testing.T) {
	t.Helper()
	for i := range 40 {
		name := fmt.Sprintf("%s-%02d", [...]string{"shop", "web", "data", "batch", "team"}[i%5], i)
		if _, err := env.client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		labels := map[string]string{"app": name}
		deployment := &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Name: "app"},
			Spec: appsv1.DeploymentSpec{
				Replicas: ptr.To(int32(1 + i%4)), Selector: &metav1.LabelSelector{MatchLabels: labels},
				Template: corev1.PodTemplateSpec{
					ObjectMeta: metav1.ObjectMeta{Labels: labels},
					Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "app"}}},
				},
			},
		}
		if _, err := env.client.AppsV1().Deployments(name).Create(t.Context(), deployment, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// member is a process of the flotilla binary.
type member struct {
	*harness.Manager
	env *environment
	url string
}

func (env *environment) start(t *testing.T, name string, flags ...string) *member {
	t.Helper()
	flags = append([]string{"--shards=12", "--rebalance-delay=0s"}, flags...)
	m := harness.Run(t, env.plane, harness.Member(name, flags...))
	return &member{Manager: m, env: env, url: m.URL + "/fleet"}
}

// ask requests the page as a caller, and returns the answer with its body read.
func (m *member) ask(ctx context.Context, caller, method, query string) (*http.Response, string, error) {
	request, err := http.NewRequestWithContext(ctx, method, m.url+query, nil)
	if err != nil {
		return nil, "", err
	}
	response, err := m.env.callers[caller].Do(request)
	if err != nil {
		return nil, "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return response, string(body), err
}

// document returns what the page shows, as JSON.
func (m *member) document(ctx context.Context) (page.Document, error) {
	var d page.Document
	response, body, err := m.ask(ctx, "of-fleet", http.MethodGet, "?format=json")
	if err != nil {
		return d, err
	}
	if response.StatusCode != http.StatusOK {
		return d, fmt.Errorf("status %d: %s", response.StatusCode, body)
	}
	decoder := json.NewDecoder(strings.NewReader(body))
	decoder.DisallowUnknownFields()
	return d, decoder.Decode(&d)
}

// until waits until the page shows what is wanted, and returns it.
func (m *member) until(t *testing.T, what string, holds func(page.Document) error) page.Document {
	t.Helper()
	var d page.Document
	harness.Eventually(t, harness.Patience, what, func(ctx context.Context) (err error) {
		if err := m.Running(); err != nil {
			return err
		}
		if d, err = m.document(ctx); err == nil {
			err = holds(d)
		}
		return err
	})
	return d
}

// proxy serves only the member's page, to a browser without credentials.
func (m *member) proxy(t *testing.T) string {
	t.Helper()
	target, err := url.Parse(m.url)
	if err != nil {
		t.Fatal(err)
	}
	target.Path = ""
	server := httptest.NewServer(&httputil.ReverseProxy{
		Transport: m.env.callers["of-fleet"].Transport,
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(target) },
	})
	t.Cleanup(server.Close)
	return server.URL + "/fleet"
}

// leases returns the fleet's Leases by name.
func (env *environment) leases(t *testing.T) map[string]coordinationv1.Lease {
	t.Helper()
	list, err := env.client.CoordinationV1().Leases(metav1.NamespaceSystem).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]coordinationv1.Lease{}
	for _, lease := range list.Items {
		all[lease.Name] = lease
	}
	return all
}
