package deploy

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"slices"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

const securePort = "10257"

// caller is a client of a secure port.
type caller struct {
	client *http.Client
	token  string
}

// A member's certificate is self-signed.
var anonymous = caller{client: &http.Client{Transport: &http.Transport{
	TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true,
}}}

// administrator has a client certificate from the cluster's authority.
func (c *cluster) administrator() (caller, error) {
	config := c.AdminConfig()
	config.TLSClientConfig.Insecure = true
	config.TLSClientConfig.CAData, config.TLSClientConfig.CAFile = nil, ""
	client, err := rest.HTTPClientFor(config)
	return caller{client: client}, err
}

// get requests a path from a secure port.
func get(ctx context.Context, who caller, address, path string) (status int, body string, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+net.JoinHostPort(address, securePort)+path, nil)
	if err != nil {
		return 0, "", err
	}
	if who.token != "" {
		request.Header.Set("Authorization", "Bearer "+who.token)
	}
	response, err := who.client.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	return response.StatusCode, string(content), err
}

// requireAnswers calls a member's secure port anonymously, without rights, and with the right to
// read metrics.
func (c *cluster) requireAnswers(t *testing.T, address string) {
	nonsense := caller{client: anonymous.client, token: "nonsense"}
	stranger, profiler := c.account(t, "stranger"), c.account(t, "profiler")
	c.allow(t, "profiler")
	c.kubectl(t, withoutDefinitions(t, kustomize(t, monitoring)), "apply", "-f", "-")
	reader := c.token(t, system, "flotilla-metrics-reader")
	for _, tc := range []struct {
		name, path string
		who        caller
		want       []int
	}{
		{"nobody, health", "/livez", anonymous, []int{http.StatusOK}},
		{"nobody, readiness", "/readyz", anonymous, []int{http.StatusOK}},
		{"nobody", "/metrics", anonymous, []int{http.StatusUnauthorized, http.StatusForbidden}},
		{"nonsense", "/metrics", nonsense, []int{http.StatusUnauthorized}},
		{"somebody without rights", "/metrics", stranger, []int{http.StatusForbidden}},
		{"deploy/monitoring's reader", "/metrics", reader, []int{http.StatusOK}},
		{"nobody", "/fleet", anonymous, []int{http.StatusUnauthorized, http.StatusForbidden}},
		{"somebody without rights", "/fleet", stranger, []int{http.StatusForbidden}},
		{"deploy/monitoring's reader", "/fleet", reader, []int{http.StatusOK}},
		{"nobody", "/completez", anonymous, []int{http.StatusUnauthorized, http.StatusForbidden}},
		{"deploy/monitoring's reader", "/debug/pprof/", reader, []int{http.StatusForbidden}},
		{"who may, if it were there", "/debug/pprof/", profiler, []int{http.StatusNotFound}},
		{"who may, if it were there", "/debug/pprof/heap", profiler, []int{http.StatusNotFound}},
	} {
		status, body, err := get(t.Context(), tc.who, address, tc.path)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(tc.want, status) {
			t.Errorf("%s of %s is answered %d, want %v: %.200q", tc.path, tc.name, status, tc.want, body)
		}
	}
	for _, tc := range []struct {
		version uint16
		ok      bool
	}{{tls.VersionTLS10, false}, {tls.VersionTLS11, false}, {tls.VersionTLS12, true}, {tls.VersionTLS13, true}} {
		dialer := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, MinVersion: tc.version, MaxVersion: tc.version}}
		conn, err := dialer.DialContext(t.Context(), "tcp", net.JoinHostPort(address, securePort))
		if (err == nil) != tc.ok {
			t.Errorf("%s: %v, want it accepted: %t", tls.VersionName(tc.version), err, tc.ok)
		}
		if err == nil {
			conn.Close()
		}
	}
}

// account creates a service account and returns a caller with its token.
func (c *cluster) account(t *testing.T, name string) caller {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := c.client.CoreV1().ServiceAccounts("default").Create(t.Context(), account, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return c.token(t, "default", name)
}

func (c *cluster) token(t *testing.T, namespace, name string) caller {
	t.Helper()
	token, err := c.client.CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return caller{client: anonymous.client, token: token.Status.Token}
}

// allow lets an account of namespace default read profiles, if there were any.
func (c *cluster) allow(t *testing.T, name string) {
	t.Helper()
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Rules:      []rbacv1.PolicyRule{{NonResourceURLs: []string{"/debug/*"}, Verbs: []string{"get"}}},
	}
	if _, err := c.client.RbacV1().ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: name}},
	}
	if _, err := c.client.RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}
