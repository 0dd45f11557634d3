package controlplane

import (
	"crypto/tls"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

const (
	adminUser             = "admin"
	mastersGroup          = "system:masters"
	controllerManagerUser = "system:kube-controller-manager"
	schedulerUser         = "system:kube-scheduler"

	// Tests should wait for the servers and not for the client's rate limiter.
	clientQPS   = 1000
	clientBurst = 2000
)

var unsafeInFileName = regexp.MustCompile(`[^A-Za-z0-9._-]+`)

// AdminConfig returns a client configuration of user admin in group system:masters. The caller may
// change it.
func (cp *ControlPlane) AdminConfig() *rest.Config {
	return rest.CopyConfig(cp.admin)
}

// AdminKubeconfig returns the path of the kubeconfig of user admin in group system:masters.
func (cp *ControlPlane) AdminKubeconfig() string {
	return cp.adminKubeconfig
}

// ConfigFor returns a client configuration with a client certificate for the user and groups. Its
// client-side rate limit is too high to matter; set QPS and Burst for another. The certificate
// lasts a week.
func (cp *ControlPlane) ConfigFor(user string, groups ...string) (*rest.Config, error) {
	authenticated, err := cp.addUser(user, groups)
	if err != nil {
		return nil, err
	}
	return authenticated.Config(), nil
}

// Kubeconfig writes a kubeconfig with a client certificate for the user and groups, such as
// "system:kube-controller-manager", and returns its path. The same user and groups get the same
// file.
func (cp *ControlPlane) Kubeconfig(user string, groups ...string) (string, error) {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	identity := fmt.Sprintf("%q", append([]string{user}, slices.Sorted(slices.Values(groups))...))
	if path, ok := cp.kubeconfigs[identity]; ok {
		return path, nil
	}
	authenticated, err := cp.addUser(user, groups)
	if err != nil {
		return "", err
	}
	content, err := authenticated.KubeConfig()
	if err != nil {
		return "", fmt.Errorf("controlplane: kubeconfig for %s: %w", user, err)
	}
	dir := filepath.Join(cp.dir, "kubeconfigs")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("controlplane: %w", err)
	}
	// Different users may map to the same safe name, hence the number.
	name := unsafeInFileName.ReplaceAllString(user, "-")
	path := filepath.Join(dir, fmt.Sprintf("%02d-%s.yaml", len(cp.kubeconfigs), name))
	if err := os.WriteFile(path, content, 0o600); err != nil {
		return "", fmt.Errorf("controlplane: %w", err)
	}
	cp.kubeconfigs[identity] = path
	return path, nil
}

// ServingCertificate returns a certificate for a proxy on 127.0.0.1 that ends TLS. Clients that
// trust the cluster's authority accept the proxy as the API server. The common name is for humans.
func (cp *ControlPlane) ServingCertificate(commonName string) (tls.Certificate, error) {
	certPEM, keyPEM, err := cp.ca.issueServing(commonName)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("controlplane: serving certificate: %w", err)
	}
	return tls.X509KeyPair(certPEM, keyPEM)
}

func (cp *ControlPlane) addUser(name string, groups []string) (*envtest.AuthenticatedUser, error) {
	base := &rest.Config{QPS: clientQPS, Burst: clientBurst}
	user, err := cp.plane.AddUser(envtest.User{Name: name, Groups: groups}, base)
	if err != nil {
		return nil, fmt.Errorf("controlplane: %w", err)
	}
	return user, nil
}

// provisionUsers creates the identities that every control plane has.
func (cp *ControlPlane) provisionUsers() error {
	var err error
	if cp.admin, err = cp.ConfigFor(adminUser, mastersGroup); err != nil {
		return err
	}
	if cp.adminKubeconfig, err = cp.Kubeconfig(adminUser, mastersGroup); err != nil {
		return err
	}
	cp.managerKubeconfig, err = cp.Kubeconfig(controllerManagerUser)
	return err
}

// ControllerManagerArgs returns the flags that a controller manager, stock or fleet, needs to run
// on this control plane as system:kube-controller-manager. The port keeps its default: several
// managers on one machine each need a --secure-port, which FreePort finds.
func (cp *ControlPlane) ControllerManagerArgs() []string {
	return []string{
		"--kubeconfig=" + cp.managerKubeconfig,
		"--authentication-kubeconfig=" + cp.managerKubeconfig,
		"--authorization-kubeconfig=" + cp.managerKubeconfig,
		"--service-account-private-key-file=" + cp.ca.serviceAccountKeyFile(),
		"--root-ca-file=" + cp.ca.certFile(),
		"--cluster-signing-cert-file=" + cp.ca.certFile(),
		"--cluster-signing-key-file=" + cp.ca.keyFile(),
		"--use-service-account-credentials=true",
		"--bind-address=127.0.0.1",
	}
}
