package harness

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/flotilla-kube/flotilla/test/controlplane"
)

const (
	// Fleet is the name of this project's binary, and the default name of a fleet.
	Fleet = "flotilla"
	// Stock is the name of the stock controller manager's binary, and of its Lease.
	Stock = "kube-controller-manager"
)

// Spec says which controller manager to start, and how.
type Spec struct {
	// Name is the name of the process and of its log. It may be reused once the process has ended.
	Name string
	// Binary is the name of a binary in the control plane's BinDir, or a path. The base name begins
	// the User-Agent. Default: Fleet.
	Binary string
	// Flags follow the flags that the control plane requires.
	Flags []string
	// Port is the secure port. Default: a free one.
	Port int
	// Kubeconfig replaces the control plane's, both for the manager's requests and for
	// authenticating its callers. Default: none.
	Kubeconfig string
	// Grace limits how long the process may take to exit after SIGTERM. Default: 1m.
	Grace time.Duration
}

// Member returns the Spec of a member whose fleet keeps its plan however long a test takes.
func Member(name string, flags ...string) Spec {
	return Spec{Name: name, Flags: slices.Concat([]string{"--member-name=" + name, "--replan-interval=0s"}, flags)}
}

// Manager is a controller manager process. Its methods may be called from any goroutine.
type Manager struct {
	*controlplane.Process
	// URL is the manager's address: "https://127.0.0.1:PORT".
	URL string

	client *http.Client
	// member is set for a process of a fleet. mayEnd is set once the test has done something that
	// ends the process, or has waited for its end.
	member bool
	mayEnd *atomic.Bool
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
	// A test may give the stock one another name by a symbolic link.
	file, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, err
	}
	process, err := plane.StartProcess(spec.Name, path, arguments(plane, spec), opts...)
	if err != nil {
		return nil, err
	}
	return &Manager{
		Process: process, URL: fmt.Sprintf("https://127.0.0.1:%d", spec.Port), client: client,
		member: filepath.Base(file) != Stock, mayEnd: &atomic.Bool{},
	}, nil
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

// Attach returns a Manager for a process started elsewhere that serves at url. client queries it.
func Attach(process *controlplane.Process, url string, client *http.Client) *Manager {
	return &Manager{Process: process, URL: url, client: client, mayEnd: &atomic.Bool{}}
}

// Running returns nil while the process runs, and otherwise an error that says how it ended.
func (m *Manager) Running() error {
	select {
	case <-m.Done():
		return fmt.Errorf("%w: %s has ended: %v, see %s", ErrGiveUp, m.Name(), m.Wait(), m.LogPath())
	default:
		return nil
	}
}

// Leave stops the process as a kubelet does, and requires that it exits by itself with status 0. A
// process that has already exited that way is no error.
func (m *Manager) Leave(ctx context.Context) error {
	if err := m.Stop(ctx); err != nil {
		return err
	}
	if err := m.Wait(); err != nil {
		return fmt.Errorf("%s was told to end and ended with %w, see %s", m.Name(), err, m.LogPath())
	}
	return nil
}

// Signal is controlplane.Process.Signal.
func (m *Manager) Signal(signal syscall.Signal) error {
	m.mayEnd.Store(true)
	return m.Process.Signal(signal)
}

// Kill is controlplane.Process.Kill.
func (m *Manager) Kill() error {
	m.mayEnd.Store(true)
	return m.Process.Kill()
}

// Stop is controlplane.Process.Stop.
func (m *Manager) Stop(ctx context.Context) error {
	m.mayEnd.Store(true)
	return m.Process.Stop(ctx)
}

// Suspend stops the process with SIGSTOP, as a stalled machine would, until Resume.
func (m *Manager) Suspend() error { return m.Signal(syscall.SIGSTOP) }

// Resume continues a suspended process.
func (m *Manager) Resume() error { return m.Signal(syscall.SIGCONT) }

// Redirect writes a copy of a kubeconfig that points to another address, such as
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
