package harness

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/flotilla-kube/flotilla/test/controlplane"
)

const (
	// Fleet is the name of this project's binary, and of a fleet by default.
	Fleet = "flotilla"
	// Stock is the name of the stock controller manager's binary, and of its Lease.
	Stock = "kube-controller-manager"
)

// Spec says which controller manager to start, and how.
type Spec struct {
	// Name is that of the process and of its log. A name may be used again when the process that
	// had it has ended.
	Name string
	// Binary is the name of a binary in the control plane's BinDir, or a path. What it is called
	// begins the User-Agent. Default: Fleet.
	Binary string
	// Flags follow those that the control plane wants.
	Flags []string
	// Port is where it serves. Default: a free one.
	Port int
	// Kubeconfig replaces the control plane's, for its own requests and for those about who asks
	// it. Default: none.
	Kubeconfig string
	// Grace is how long it may take to end after SIGTERM. Default: 1m.
	Grace time.Duration
}

// Member returns the Spec of a member of a fleet whose plan stays as it is, however long a test may
// take.
func Member(name string, flags ...string) Spec {
	return Spec{Name: name, Flags: slices.Concat([]string{"--member-name=" + name, "--replan-interval=0s"}, flags)}
}

// Manager is a controller manager that was started. Its methods may be called from any goroutine.
type Manager struct {
	*controlplane.Process
	// URL is where it serves: "https://127.0.0.1:PORT".
	URL string

	client *http.Client
}

// Start starts a controller manager. It returns as soon as the process runs.
func Start(plane *controlplane.ControlPlane, spec Spec) (*Manager, error) {
	path, err := findBinary(plane, spec.Binary)
	if err != nil {
		return nil, err
	}
	if spec.Port == 0 {
		if spec.Port, err = controlplane.FreePort(); err != nil {
			return nil, err
		}
	}
	client, err := HTTPClient(plane.AdminConfig())
	if err != nil {
		return nil, err
	}
	var opts []controlplane.ProcessOption
	if spec.Grace > 0 {
		opts = append(opts, controlplane.WithGrace(spec.Grace))
	}
	process, err := plane.StartProcess(spec.Name, path, arguments(plane, spec), opts...)
	if err != nil {
		return nil, err
	}
	return &Manager{Process: process, URL: fmt.Sprintf("https://127.0.0.1:%d", spec.Port), client: client}, nil
}

func findBinary(plane *controlplane.ControlPlane, name string) (string, error) {
	if name == "" {
		name = Fleet
	}
	if filepath.Base(name) != name {
		return name, nil
	}
	path, err := plane.Binary(name)
	if err != nil && name == Fleet {
		err = fmt.Errorf("%w: or 'make build', for this one", err)
	}
	return path, err
}

func arguments(plane *controlplane.ControlPlane, spec Spec) []string {
	var args []string
	for _, arg := range plane.ControllerManagerArgs() {
		if name, _, _ := strings.Cut(arg, "="); spec.Kubeconfig != "" && strings.HasSuffix(name, "kubeconfig") {
			arg = name + "=" + spec.Kubeconfig
		}
		args = append(args, arg)
	}
	args = append(args, fmt.Sprintf("--secure-port=%d", spec.Port))
	return append(args, spec.Flags...)
}

// Attach returns a manager of a process that was started otherwise, and serves at url. It is asked
// by client.
func Attach(process *controlplane.Process, url string, client *http.Client) *Manager {
	return &Manager{Process: process, URL: url, client: client}
}

// Running returns nil while the process runs, and otherwise how it ended.
func (m *Manager) Running() error {
	select {
	case <-m.Done():
		return fmt.Errorf("%w: %s has ended: %v, see %s", ErrGiveUp, m.Name(), m.Wait(), m.LogPath())
	default:
		return nil
	}
}

// Leave ends the process as a kubelet does, and requires that it ends by itself and with status 0.
// It is no error if it had ended so before.
func (m *Manager) Leave(ctx context.Context) error {
	if err := m.Stop(ctx); err != nil {
		return err
	}
	if err := m.Wait(); err != nil {
		return fmt.Errorf("%s was told to end and ended with %w, see %s", m.Name(), err, m.LogPath())
	}
	return nil
}

// Suspend stops the process where it is, as a machine does that stalls, until Resume.
func (m *Manager) Suspend() error { return m.Signal(syscall.SIGSTOP) }

// Resume lets a suspended process go on.
func (m *Manager) Resume() error { return m.Signal(syscall.SIGCONT) }

// Terminate tells the process to end and does not wait for that. It is no error if it has ended.
func (m *Manager) Terminate() error {
	if err := m.Signal(syscall.SIGTERM); !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}

// Redirect writes a copy of a kubeconfig that leads to another address, such as
// "https://127.0.0.1:1".
func Redirect(from, to, address string) error {
	config, err := clientcmd.LoadFromFile(from)
	if err != nil {
		return err
	}
	for _, cluster := range config.Clusters {
		cluster.Server = address
	}
	return clientcmd.WriteToFile(*config, to)
}
