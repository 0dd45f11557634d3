package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/test/command"
	"github.com/flotilla-kube/flotilla/test/controlplane"
)

const (
	// grace is for a replica to end in: twice what a pod has by default, for a busy machine.
	grace = time.Minute
	// restartPause is before a process that has ended by itself is started again, as a kubelet would.
	restartPause = time.Second
)

// ending is how a process ended by itself.
type ending struct {
	manager string
	at      time.Time
	err     error
}

// String says who ended when and how.
func (e ending) String() string {
	return fmt.Sprintf("%s at %s: %v", e.manager, e.at.UTC().Format("15:04:05"), e.err)
}

// manager is one replica: a process that is started again when it ends, and its own way to the API server.
type manager struct {
	name string
	// member is the name that it has in the fleet, which may be another one's too.
	member     string
	binary     string
	cp         *controlplane.ControlPlane
	proxy      *proxy
	weather    *weather
	kubeconfig string
	port       int
	flags      []string

	mu      sync.Mutex
	process *controlplane.Process
	// wanted is set while the process is to run; frozen while it is stopped by a signal.
	wanted, frozen bool
	endings        []ending
	starts         int
	// poke wakes Run when wanted has been set.
	poke chan struct{}
}

// managerConfig is what managers have in common.
type managerConfig struct {
	cp     *controlplane.ControlPlane
	opts   options
	config *rest.Config // of the identity that all managers have
	path   string       // its kubeconfig
	dir    string
}

// newManager returns a manager that does not run yet.
func newManager(c managerConfig, name, member string, seed uint64, extra ...string) (*manager, error) {
	m := &manager{name: name, member: member, cp: c.cp, poke: make(chan struct{}, 1)}
	binaryName := fleetName
	if c.opts.target == stockTarget {
		binaryName = stockName
	}
	var err error
	if m.binary, err = c.cp.Binary(binaryName); err != nil {
		return nil, err
	}
	if m.port, err = controlplane.FreePort(); err != nil {
		return nil, err
	}
	if m.weather, err = newWeather(c.config, seed); err != nil {
		return nil, err
	}
	certificate, err := c.cp.ServingCertificate("chaos-proxy")
	if err != nil {
		return nil, err
	}
	if m.proxy, err = newProxy(strings.TrimPrefix(c.config.Host, "https://"), certificate, m.weather); err != nil {
		return nil, err
	}
	if m.kubeconfig, err = redirect(c.path, filepath.Join(c.dir, name+".kubeconfig"), m.proxy.URL()); err != nil {
		return nil, err
	}
	m.flags = append(m.arguments(c.opts), extra...)
	return m, nil
}

// redirect writes a copy of a kubeconfig that leads to another address.
func redirect(from, to, url string) (string, error) {
	config, err := clientcmd.LoadFromFile(from)
	if err != nil {
		return "", err
	}
	for _, cluster := range config.Clusters {
		cluster.Server = url
	}
	return to, clientcmd.WriteToFile(*config, to)
}

func (m *manager) arguments(o options) []string {
	var args []string
	for _, arg := range m.cp.ControllerManagerArgs() {
		if name, _, _ := strings.Cut(arg, "="); strings.HasSuffix(name, "kubeconfig") {
			arg = name + "=" + m.kubeconfig
		}
		args = append(args, arg)
	}
	args = append(args, timingFlags(o.timing)...)
	args = append(args, fmt.Sprintf("--secure-port=%d", m.port), "--v=2")
	if o.target == fleetTarget {
		args = append(args,
			"--fleet-name="+fleetName,
			"--member-name="+m.member,
			"--replan-interval=0s", // the judge of a round wants the plan to be the one it began with
			fmt.Sprintf("--shards=%d", o.shards),
			fmt.Sprintf("--rebalance-delay=%v", rebalanceDelay),
		)
	}
	return append(args, o.extra...)
}

// timingFlags are those of the stock controller manager and of a member.
func timingFlags(t election.Timing) []string {
	return []string{
		fmt.Sprintf("--leader-elect-lease-duration=%v", t.LeaseDuration),
		fmt.Sprintf("--leader-elect-renew-deadline=%v", t.RenewDeadline),
		fmt.Sprintf("--leader-elect-retry-period=%v", t.RetryPeriod),
	}
}

// Run keeps the process running while it is wanted, until ctx ends. It does not end the process: the API server is still
// there then, and the members are to leave in good order.
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

// again starts the process again if it has ended by itself.
func (m *manager) again(ctx context.Context, p *controlplane.Process) {
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
		// An error is seen by whoever waits for the fleet to be whole.
		_ = m.startLocked()
	}
}

func (m *manager) startLocked() error {
	p, err := m.cp.StartProcess(m.name, m.binary, m.flags, controlplane.WithGrace(grace))
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

// upOnce starts the process, which may end for good.
func (m *manager) upOnce() (*controlplane.Process, error) {
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

// unwanted notes that the process may end, and returns it.
func (m *manager) unwanted() *controlplane.Process {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.wanted = false
	m.wake()
	return m.process
}

// kill ends the process without a warning.
func (m *manager) kill() error {
	p := m.unwanted()
	if p == nil {
		return nil
	}
	return p.Kill()
}

// leave ends the process in good order, which must be with status 0.
func (m *manager) leave(ctx context.Context) error {
	p := m.unwanted()
	if p == nil {
		return nil
	}
	select {
	case <-p.Done():
		return nil // killed, or it failed before and that is known
	default:
	}
	if err := p.Stop(ctx); err != nil {
		return err
	}
	// The stock controller manager ends with status 1 whenever it has led.
	if err := p.Wait(); err != nil && !m.stock() {
		return fmt.Errorf("%s was told to end and ended with %w, see %s", m.name, err, p.LogPath())
	}
	return nil
}

// freeze and thaw stop the process and let it go on.
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

// running tells whether the process is there and not frozen.
func (m *manager) running() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.process == nil || !m.wanted || m.frozen {
		return false
	}
	select {
	case <-m.process.Done():
		return false
	default:
		return true
	}
}

// isWanted tells whether the process is to run.
func (m *manager) isWanted() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.wanted
}

// endingsSince returns how often it ended by itself from a time on.
func (m *manager) endingsSince(since time.Time) []ending {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(m.endings), func(e ending) bool { return e.at.Before(since) })
}

// logPath is where its output goes; empty before the first start.
func (m *manager) logPath() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.process == nil {
		return ""
	}
	return m.process.LogPath()
}

func (m *manager) stock() bool { return filepath.Base(m.binary) == stockName }

// readyURL answers 200 when the replica serves.
func (m *manager) readyURL() string {
	path := "readyz"
	if m.stock() {
		path = "healthz"
	}
	return fmt.Sprintf("https://127.0.0.1:%d/%s", m.port, path)
}
