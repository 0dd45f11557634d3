package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/flotilla-kube/flotilla/test/controlplane"
)

const (
	stockName = "kube-controller-manager"
	fleetName = "flotilla"

	// patience is for what takes seconds on an idle machine, and half a minute at most.
	patience     = 4 * time.Minute
	pollInterval = 100 * time.Millisecond
	// requestTimeout is for one look at what is waited for.
	requestTimeout = 20 * time.Second
)

// startPlane starts a control plane that is stopped at the end of the test.
func startPlane(t *testing.T, opts controlplane.Options) *controlplane.ControlPlane {
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

func newClient(t *testing.T, plane *controlplane.ControlPlane) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(plane.AdminConfig())
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// binary returns the path of the stock controller manager or of flotilla.
func binary(t *testing.T, plane *controlplane.ControlPlane, name string) string {
	t.Helper()
	path, err := plane.Binary(name)
	if err != nil && name == fleetName {
		t.Fatalf("bin/flotilla is missing: run 'make build' (%v)", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// manager is a controller manager: the stock one, or a member of a fleet.
type manager struct {
	*controlplane.Process
	url string
}

// startManager starts a controller manager with the flags that the control plane wants and these.
func startManager(t *testing.T, plane *controlplane.ControlPlane, binaryName, name string, flags ...string) *manager {
	t.Helper()
	return startBinary(t, plane, binary(t, plane, binaryName), name, flags...)
}

// startBinary is startManager for a binary by its path. What it is called there begins its User-Agent.
func startBinary(t *testing.T, plane *controlplane.ControlPlane, path, name string, flags ...string) *manager {
	t.Helper()
	port, err := controlplane.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	args := append(plane.ControllerManagerArgs(), fmt.Sprintf("--secure-port=%d", port))
	process, err := plane.StartProcess(name, path, append(args, flags...))
	if err != nil {
		t.Fatal(err)
	}
	m := &manager{Process: process, url: fmt.Sprintf("https://127.0.0.1:%d", port)}
	t.Cleanup(func() { m.finish(t) })
	return m
}

// startMember starts a member of the fleet; its name is that of the process. The plan stays as it is unless the flags say
// otherwise, however long a test may take.
func startMember(t *testing.T, plane *controlplane.ControlPlane, name string, flags ...string) *manager {
	t.Helper()
	return startManager(t, plane, fleetName, name, append([]string{"--member-name=" + name, "--replan-interval=0s"}, flags...)...)
}

var panicked = regexp.MustCompile(`(?m)^panic: |^goroutine \d+ \[running\]|Observed a panic|^fatal error: `)

// finish ends the process if it still runs, and looks at its log.
func (m *manager) finish(t *testing.T) {
	t.Helper()
	m.stop(t)
	text := m.log(t)
	if at := panicked.FindStringIndex(text); at != nil {
		t.Errorf("%s panicked:\n%s", m.Name(), text[at[0]:min(len(text), at[0]+3000)])
	}
	if t.Failed() {
		m.keepLog(t, text)
	}
}

// keepLog prints the end of the log of a failed test, and keeps all of it where FLOTILLA_E2E_LOGS says.
func (m *manager) keepLog(t *testing.T, text string) {
	t.Helper()
	if dir := os.Getenv("FLOTILLA_E2E_LOGS"); dir != "" {
		file := filepath.Join(dir, strings.ReplaceAll(t.Name(), "/", "-")+"-"+m.Name()+".log")
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Error(err)
		}
		t.Logf("log of %s: %s", m.Name(), file)
		return
	}
	t.Logf("end of the log of %s:\n%s", m.Name(), text[max(0, len(text)-4000):])
}

// stop ends the process as a kubelet does, and requires that it ends by itself.
func (m *manager) stop(t *testing.T) {
	t.Helper()
	// Cleanup functions run when the test's context has ended.
	if err := m.Stop(context.WithoutCancel(t.Context())); err != nil {
		t.Error(err)
	}
}

func (m *manager) log(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(m.LogPath())
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// exit waits until the process has ended by itself and returns its status.
func (m *manager) exit(t *testing.T, within time.Duration) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
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

// httpClient returns a client with the credentials of a configuration, for any server: a manager's serving certificate is
// its own.
func httpClient(t *testing.T, config *rest.Config) *http.Client {
	t.Helper()
	c := rest.CopyConfig(config)
	c.TLSClientConfig.Insecure = true
	c.TLSClientConfig.CAData, c.TLSClientConfig.CAFile = nil, ""
	client, err := rest.HTTPClientFor(c)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// get asks the secure port. An error says that nobody answered.
func (m *manager) get(ctx context.Context, client *http.Client, path string) (status int, body string, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, m.url+path, nil)
	if err != nil {
		return 0, "", err
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	return response.StatusCode, string(content), err
}

// answers returns a condition for eventually: the path is answered with this status.
func (m *manager) answers(client *http.Client, path string, want int) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := m.running(); err != nil {
			return err
		}
		status, body, err := m.get(ctx, client, path)
		if err == nil && status != want {
			err = fmt.Errorf("%s of %s answers %d, want %d: %s", path, m.Name(), status, want, body)
		}
		return err
	}
}

// errGiveUp ends eventually at once.
var errGiveUp = errors.New("giving up")

func (m *manager) running() error {
	select {
	case <-m.Done():
		return fmt.Errorf("%w: %s has ended: %v", errGiveUp, m.Name(), m.Wait())
	default:
		return nil
	}
}

// logs returns a condition for eventually: the log has a line that contains all of the texts.
func (m *manager) logs(t *testing.T, texts ...string) func(context.Context) error {
	return func(context.Context) error {
		if hasLine(m.log(t), texts...) {
			return nil
		}
		return fmt.Errorf("the log of %s has no line with %q", m.Name(), texts)
	}
}

func hasLine(log string, texts ...string) bool {
	for line := range strings.Lines(log) {
		missing := false
		for _, text := range texts {
			missing = missing || !strings.Contains(line, text)
		}
		if !missing {
			return true
		}
	}
	return false
}

// eventually waits until the condition returns nil, and returns how long that took.
func eventually(t *testing.T, within time.Duration, what string, condition func(context.Context) error) time.Duration {
	t.Helper()
	began, last := time.Now(), errors.New("not tried")
	err := wait.PollUntilContextTimeout(t.Context(), pollInterval, within, true, func(context.Context) (bool, error) {
		// Its own time, so that its error does not say that the time was over.
		ctx, cancel := context.WithTimeout(t.Context(), requestTimeout)
		defer cancel()
		last = condition(ctx)
		if errors.Is(last, errGiveUp) {
			return false, last
		}
		return last == nil, nil
	})
	if err != nil {
		t.Fatalf("%s: not within %v: %v", what, within, last)
	}
	return time.Since(began).Round(10 * time.Millisecond)
}
