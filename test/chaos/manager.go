package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/test/command"
	"github.com/flotilla-kube/flotilla/test/controlplane"
	"github.com/flotilla-kube/flotilla/test/harness"
)

const (
	// grace is how long a replica may take to exit: twice a pod's default, for a busy machine.
	grace = time.Minute
	// restartPause is the time before a process that ended by itself is restarted, as a kubelet
	// would.
	restartPause = time.Second
)

// ending is how a process ended by itself.
type ending struct {
	manager string
	at      time.Time
	err     error
}

// String says who ended, when and how.
func (e ending) String() string {
	return fmt.Sprintf("%s at %s: %v", e.manager, e.at.UTC().Format("15:04:05"), e.err)
}

// manager is one replica: a process that is restarted when it ends, and its own path to the API
// server.
type manager struct {
	name string
	// member is its name in the fleet, which another manager may have too.
	member string
	// spec describes the next process. usual is its binary unless a fault needs another one.
	spec     harness.Spec
	usual    string
	cp       *controlplane.ControlPlane
	proxy    *harness.Proxy
	injector *injector

	mu      sync.Mutex
	process *harness.Manager
	// wanted is set while the process should run; frozen while a signal has suspended it.
	wanted, frozen bool
	endings        []ending
	starts         int
	// poke wakes Run when wanted has been set.
	poke chan struct{}
}

// managerConfig is what managers have in common.
type managerConfig struct {
	cp   *controlplane.ControlPlane
	opts options
	dir  string
}

// newManager returns a manager that does not run yet.
func newManager(c managerConfig, name, member string, seed uint64, extra ...string) (*manager, error) {
	m := &manager{name: name, member: member, cp: c.cp, injector: newInjector(seed), poke: make(chan struct{}, 1)}
	m.spec = harness.Spec{Name: name, Flags: append(m.flags(c.opts), extra...), Grace: grace, Kubeconfig: filepath.Join(c.dir, name+".kubeconfig")}
	if c.opts.target == stockTarget {
		m.usual = stockName
	}
	m.spec.Binary = m.usual
	var err error
	if m.spec.Port, err = controlplane.FreePort(); err != nil {
		return nil, err
	}
	if m.proxy, err = harness.NewProxy(c.cp, m.injector.between); err != nil {
		return nil, err
	}
	return m, m.proxy.WriteKubeconfig(m.spec.Kubeconfig)
}

func (m *manager) flags(o options) []string {
	args := append(timingFlags(o.timing), "--v=2")
	if o.target == fleetTarget {
		args = append(args,
			"--fleet-name="+fleetName,
			"--member-name="+m.member,
			"--replan-interval=0s", // a round requires that the plan stays as it began
			fmt.Sprintf("--shards=%d", o.shards),
			fmt.Sprintf("--rebalance-delay=%v", rebalanceDelay),
		)
	}
	return append(args, o.extra...)
}

// timingFlags are for the stock controller manager and for members.
func timingFlags(t election.Timing) []string {
	return []string{
		fmt.Sprintf("--leader-elect-lease-duration=%v", t.LeaseDuration),
		fmt.Sprintf("--leader-elect-renew-deadline=%v", t.RenewDeadline),
		fmt.Sprintf("--leader-elect-retry-period=%v", t.RetryPeriod),
	}
}

// Run keeps the process running while it is wanted, until ctx ends. It does not stop the process:
// the API server still runs then, and the members should leave cleanly.
func (m *manager) Run(ctx context.Context) {
	for {
		m.mu.Lock()
		p, wanted := m.process, m.wanted
		m.mu.Unlock()
		if p == nil || !wanted {
			select {
			case <-m.poke:
				continue
			case <-ctx.Done():
				return
			}
		}
		select {
		case <-p.Done():
			m.again(ctx, p)
		case <-m.poke:
		case <-ctx.Done():
			return
		}
	}
}

// again restarts the process if it has ended by itself.
func (m *manager) again(ctx context.Context, p *harness.Manager) {
	m.mu.Lock()
	if m.process != p || !m.wanted {
		m.mu.Unlock()
		return
	}
	m.endings = append(m.endings, ending{manager: m.name, at: time.Now(), err: p.Wait()})
	m.mu.Unlock()
	if !command.Pause(ctx, restartPause) {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.process == p && m.wanted {
		// The wait for the fleet to be whole reports an error.
		_ = m.startLocked()
	}
}

func (m *manager) startLocked() error {
	p, err := harness.Start(m.cp, m.spec)
	if err != nil {
		return err
	}
	m.process, m.frozen = p, false
	m.starts++
	return nil
}

// up starts the process and keeps it running.
func (m *manager) up() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.wanted = true
	if err := m.startLocked(); err != nil {
		return err
	}
	m.wake()
	return nil
}

// upOnce starts the process without restarting it later.
func (m *manager) upOnce() (*harness.Manager, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.startLocked(); err != nil {
		return nil, err
	}
	return m.process, nil
}

func (m *manager) wake() {
	select {
	case m.poke <- struct{}{}:
	default:
	}
}

// use sets the binary of the next start, the usual one if path is empty. It reports whether that is
// a change.
func (m *manager) use(path string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	before := m.spec.Binary
	m.spec.Binary = cmp.Or(path, m.usual)
	return m.spec.Binary != before
}

// unwanted marks the process as free to end, and returns it.
func (m *manager) unwanted() *harness.Manager {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.wanted = false
	m.wake()
	return m.process
}

// kill sends SIGKILL.
func (m *manager) kill() error {
	p := m.unwanted()
	if p == nil {
		return nil
	}
	return p.Kill()
}

// leave stops the process cleanly, which must end with status 0.
func (m *manager) leave(ctx context.Context) error {
	p := m.unwanted()
	if p == nil {
		return nil
	}
	if p.Running() != nil {
		return nil // killed, or an earlier failure already reported
	}
	// The stock controller manager always exits with status 1 after it has led.
	if m.stock() {
		return p.Stop(ctx)
	}
	return p.Leave(ctx)
}

// freeze suspends the process, thaw resumes it.
func (m *manager) freeze() error { return m.signal(syscall.SIGSTOP, true) }
func (m *manager) thaw() error   { return m.signal(syscall.SIGCONT, false) }

func (m *manager) signal(s syscall.Signal, frozen bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.frozen = frozen
	if m.process == nil {
		return os.ErrProcessDone
	}
	if err := m.process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}

// running reports whether the process runs and is not frozen.
func (m *manager) running() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.process != nil && m.wanted && !m.frozen && m.process.Running() == nil
}

// isWanted reports whether the process should run.
func (m *manager) isWanted() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.wanted
}

// endingsSince returns the times it ended by itself from a time on.
func (m *manager) endingsSince(since time.Time) []ending {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(m.endings), func(e ending) bool { return e.at.Before(since) })
}

// logPath returns the path of its output; empty before the first start.
func (m *manager) logPath() string {
	if p := m.current(); p != nil {
		return p.LogPath()
	}
	return ""
}

func (m *manager) stock() bool { return m.usual == stockName }

// current returns the process that was started last; nil if none was.
func (m *manager) current() *harness.Manager {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.process
}

// readyPath returns the path that answers 200 when the replica serves.
func (m *manager) readyPath() string {
	if m.stock() {
		return "/healthz"
	}
	return "/readyz"
}
