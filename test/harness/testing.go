package harness

import (
	"context"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/flotilla-kube/flotilla/test/controlplane"
)

// logsVariable names the environment variable of the directory that keeps logs of failed tests.
const logsVariable = "FLOTILLA_TEST_LOGS"

// Eventually is Await for a test. It fails the test if the condition does not hold in time.
func Eventually(t testing.TB, within time.Duration, what string, condition Condition) time.Duration {
	t.Helper()
	took, err := Await(t.Context(), within, what, condition)
	if err != nil {
		t.Fatal(err)
	}
	return took
}

// StartPlane starts a control plane and stops it at the end of the test.
func StartPlane(t testing.TB, opts controlplane.Options) *controlplane.ControlPlane {
	t.Helper()
	opts.Log = t.Output()
	plane, err := controlplane.Start(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := plane.Stop(); err != nil {
			t.Error(err)
		}
	})
	return plane
}

// Client returns a client with all rights.
func Client(t testing.TB, plane *controlplane.ControlPlane) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(plane.AdminConfig())
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// Kubeconfig writes a kubeconfig for the control plane with any kind of credentials, and returns
// its path.
func Kubeconfig(t testing.TB, plane *controlplane.ControlPlane, credentials *clientcmdapi.AuthInfo) string {
	t.Helper()
	admin := plane.AdminConfig()
	if err := rest.LoadTLSFiles(admin); err != nil {
		t.Fatal(err)
	}
	const name = "test"
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: admin.Host, CertificateAuthorityData: admin.CAData}
	config.AuthInfos[name] = credentials
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	config.CurrentContext = name
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// Caller is HTTPClient for a test.
func Caller(t testing.TB, config *rest.Config) *http.Client {
	t.Helper()
	client, err := HTTPClient(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// Binary returns the path of a binary in the control plane's BinDir.
func Binary(t testing.TB, plane *controlplane.ControlPlane, name string) string {
	t.Helper()
	path, err := findBinary(plane, name)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// Run starts a controller manager for a test. At the end of the test the manager must stop by
// itself when told to, and its log must contain no panic. A member to whose process the test has
// done nothing must still run then, and end with status 0.
func Run(t testing.TB, plane *controlplane.ControlPlane, spec Spec) *Manager {
	t.Helper()
	m, err := Start(plane, spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Finish(t) })
	return m
}

// Finish does what Run does at the end of the test, for a manager that outlives the test that
// started it.
func (m *Manager) Finish(t testing.TB) {
	t.Helper()
	if m.member && !m.mayEnd.Load() {
		// Cleanup functions run after the test's context has ended.
		if err := errors.Join(m.Running(), m.Leave(context.WithoutCancel(t.Context()))); err != nil {
			t.Error(err)
		}
	} else {
		m.MustStop(t)
	}
	if err := Panicked(m.LogPath()); err != nil {
		t.Error(err)
	}
	if !t.Failed() {
		return
	}
	dir := os.Getenv(logsVariable)
	if dir == "" {
		t.Log(Tail(m.LogPath()))
		return
	}
	file := filepath.Join(dir, strings.ReplaceAll(t.Name(), "/", "-")+"-"+m.Name()+".log")
	if err := os.WriteFile(file, []byte(m.MustLog(t)), 0o644); err != nil {
		t.Error(err)
	}
	t.Logf("log of %s: %s", m.Name(), file)
}

// MustStop stops the process as a kubelet does. The test fails if it does not exit by itself.
func (m *Manager) MustStop(t testing.TB) {
	t.Helper()
	// Cleanup functions run after the test's context has ended.
	if err := m.Stop(context.WithoutCancel(t.Context())); err != nil {
		t.Error(err)
	}
}

// MustTerminate sends SIGTERM to a running process.
func (m *Manager) MustTerminate(t testing.TB) {
	t.Helper()
	if err := m.Signal(syscall.SIGTERM); err != nil {
		t.Fatalf("%s: %v", m.Name(), err)
	}
}

// MustKill is Kill for a test.
func (m *Manager) MustKill(t testing.TB) {
	t.Helper()
	if err := m.Kill(); err != nil {
		t.Fatal(err)
	}
}

// MustLog is Log for a test.
func (m *Manager) MustLog(t testing.TB) string {
	t.Helper()
	text, err := m.Log()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// MustExit waits until the process exits by itself, and returns its status.
func (m *Manager) MustExit(t testing.TB, within time.Duration) int {
	t.Helper()
	m.mayEnd.Store(true)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), within)
	defer cancel()
	select {
	case <-m.Done():
	case <-ctx.Done():
		t.Fatalf("%s has not ended within %v", m.Name(), within)
	}
	var status *exec.ExitError
	switch err := m.Wait(); {
	case err == nil:
		return 0
	case errors.As(err, &status):
		return status.ExitCode()
	default:
		t.Fatal(err)
		return -1
	}
}
