package controlplane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// defaultGrace is how long a process may take to end after SIGTERM. A fleet member hands over its
// shards in that time, which takes seconds on an idle machine.
const defaultGrace = time.Minute

// Process is a process that the control plane's Stop ends. Its methods may be called from any
// goroutine.
type Process struct {
	name    string
	logPath string
	pidFile string
	grace   time.Duration
	cmd     *exec.Cmd

	// done is closed when the process has ended and err is set.
	done chan struct{}
	err  error
	// mu keeps Signal from signalling a process ID that has been freed.
	mu sync.Mutex
}

// ProcessOption changes how StartProcess starts a process.
type ProcessOption func(*Process)

// WithEnv adds "NAME=value" entries to the environment, which is otherwise the parent's.
func WithEnv(env ...string) ProcessOption {
	return func(p *Process) { p.cmd.Env = append(p.cmd.Environ(), env...) }
}

// WithDir sets the working directory. Default: the parent's.
func WithDir(dir string) ProcessOption {
	return func(p *Process) { p.cmd.Dir = dir }
}

// WithGrace sets how long Stop waits after SIGTERM before it sends SIGKILL. Default: 1m.
func WithGrace(grace time.Duration) ProcessOption {
	return func(p *Process) { p.grace = grace }
}

// WithCommand changes the command before it is started, such as its root directory or its user. It
// stays in a process group of its own.
func WithCommand(change func(*exec.Cmd)) ProcessOption {
	return func(p *Process) {
		change(p.cmd)
		p.cmd.SysProcAttr.Setpgid = true
	}
}

// StartProcess starts a binary in a process group of its own and appends its output to <name>.log
// in the working directory. It returns as soon as the process runs. A name may be reused once its
// process has ended.
func (cp *ControlPlane) StartProcess(name, binary string, args []string, opts ...ProcessOption) (*Process, error) {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	if cp.stopped {
		return nil, fmt.Errorf("controlplane: start %s: the control plane is stopped", name)
	}
	if name == "" || unsafeInFileName.MatchString(name) || name == etcdName || name == apiServerName {
		return nil, fmt.Errorf("controlplane: %q cannot be the name of a process", name)
	}
	for _, other := range cp.processes {
		if other.name == name && !other.ended() {
			return nil, fmt.Errorf("controlplane: start %s: a process of that name is running", name)
		}
	}
	log, err := cp.openLog(name)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	p := &Process{
		name:    name,
		logPath: cp.logPath(name),
		pidFile: cp.pidFile(name),
		grace:   defaultGrace,
		cmd:     exec.Command(binary, args...),
		done:    make(chan struct{}),
	}
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	for _, opt := range opts {
		opt(p)
	}
	if err := p.start(); err != nil {
		return nil, fmt.Errorf("controlplane: start %s: %w", name, err)
	}
	cp.processes = append(cp.processes, p)
	return p, nil
}

func (p *Process) start() error {
	if err := p.cmd.Start(); err != nil {
		return err
	}
	// For the reaper, if this process dies first.
	if err := os.WriteFile(p.pidFile, fmt.Appendln(nil, p.Pid()), 0o644); err != nil {
		_ = syscall.Kill(-p.Pid(), syscall.SIGKILL)
		_ = p.cmd.Wait()
		return err
	}
	go p.wait()
	return nil
}

func (p *Process) wait() {
	err := p.cmd.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err = err
	_ = os.Remove(p.pidFile)
	close(p.done)
}

// Name is the name given to StartProcess.
func (p *Process) Name() string { return p.name }

// Pid is the process ID, which is also the ID of its process group.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// LogPath is the file that holds the process's output.
func (p *Process) LogPath() string { return p.logPath }

// Done returns a channel that is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Wait waits for the process to end. It returns nil for status 0, else an *exec.ExitError.
func (p *Process) Wait() error {
	<-p.done
	return p.err
}

// Signal sends a signal to the process group. It returns os.ErrProcessDone when the process has
// ended.
func (p *Process) Signal(signal syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended() {
		return os.ErrProcessDone
	}
	err := syscall.Kill(-p.Pid(), signal)
	if errors.Is(err, syscall.ESRCH) {
		return os.ErrProcessDone
	}
	if err != nil {
		return fmt.Errorf("controlplane: signal %s: %w", p.name, err)
	}
	return nil
}

// Kill sends SIGKILL to the process group and waits for the process to end. A process that has
// ended is no error.
func (p *Process) Kill() error {
	if err := p.Signal(syscall.SIGKILL); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-p.done
	return nil
}

// Stop sends SIGTERM and waits for the process to end. When ctx ends or the grace period is over,
// it kills the process and returns an error. Wait returns how the process ended.
func (p *Process) Stop(ctx context.Context) error {
	if err := p.Signal(syscall.SIGTERM); errors.Is(err, os.ErrProcessDone) {
		return nil
	} else if err != nil {
		return err
	}
	// A process suspended by SIGSTOP would not see the SIGTERM.
	_ = p.Signal(syscall.SIGCONT)
	ctx, cancel := context.WithTimeout(ctx, p.grace)
	defer cancel()
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		if err := p.Kill(); err != nil {
			return err
		}
		return fmt.Errorf("controlplane: %s did not end after SIGTERM and was killed\n%s", p.name, tail(p.logPath))
	}
}

func (p *Process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

func (cp *ControlPlane) logPath(name string) string { return filepath.Join(cp.dir, name+".log") }

func (cp *ControlPlane) openLog(name string) (*os.File, error) {
	log, err := os.OpenFile(cp.logPath(name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("controlplane: log of %s: %w", name, err)
	}
	return log, nil
}

// tail returns the last lines of a log, for error messages.
func tail(path string) string {
	const size = 4096
	log, err := os.Open(path)
	if err != nil {
		return err.Error()
	}
	defer log.Close()
	if info, err := log.Stat(); err == nil && info.Size() > size {
		_, _ = log.Seek(-size, io.SeekEnd)
	}
	content, err := io.ReadAll(io.LimitReader(log, size))
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("end of %s:\n%s", path, content)
}
