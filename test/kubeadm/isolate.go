package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/flotilla-kube/flotilla/test/command"
	"github.com/flotilla-kube/flotilla/test/harness"
)

const (
	// insideVariable is set to the working folder, and only inside the namespaces.
	insideVariable = "FLOTILLA_KUBEADM_INSIDE"
	// prefix begins the names of the working folder and the cgroups on this machine. The process id
	// follows it.
	prefix    = "flotilla-kubeadm-"
	logFolder = "_output/kubeadm"

	// patience is how long the processes below may take to end, so that they can finish their logs.
	patience = 20 * time.Second
)

// isolate runs this program again in namespaces of its own, and then removes what it left.
func isolate(ctx context.Context, o options) int {
	if err := supported(); err != nil {
		fmt.Fprintln(os.Stderr, "kubeadm:", err)
		return command.Failed
	}
	if err := sweep(); err != nil {
		fmt.Fprintln(os.Stderr, "kubeadm: removing what an earlier run left:", err)
	}
	place, err := os.MkdirTemp("", prefix+strconv.Itoa(os.Getpid())+"-")
	if err != nil {
		fmt.Fprintln(os.Stderr, "kubeadm:", err)
		return command.Failed
	}
	status := isolated(ctx, place)
	if status == command.Failed || o.keep {
		if err := keepLogs(place, logFolder); err != nil {
			fmt.Fprintln(os.Stderr, "kubeadm: logs:", err)
		}
		fmt.Println("Logs of the nodes:", logFolder)
	}
	if err := errors.Join(removePlace(place), removeCgroups(os.Getpid())); err != nil {
		fmt.Fprintln(os.Stderr, "kubeadm: not everything could be removed:", err)
		status = max(status, command.Failed)
	}
	return status
}

// isolated returns the exit status of the program in its namespaces.
func isolated(ctx context.Context, place string) int {
	cmd := exec.CommandContext(ctx, "/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), insideVariable+"="+place)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = patience
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWNET | syscall.CLONE_NEWPID,
		Pdeathsig:  syscall.SIGKILL,
	}
	err := cmd.Run()
	var ended *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return command.Interrupted
	case errors.As(err, &ended) && ended.Exited():
		return ended.ExitCode()
	case err != nil:
		fmt.Fprintln(os.Stderr, "kubeadm:", err)
		return command.Failed
	}
	return 0
}

// enter prepares the namespaces: a /proc of their own, and mounts that are invisible outside.
func enter() error {
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("mount --make-rprivate /: %w", err)
	}
	if err := syscall.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	return shell(context.Background(), nil, "ip link set lo up && ip link add "+bridge+" type bridge && "+
		"ip addr add "+balancerIP+"/24 dev "+bridge+" && ip link set "+bridge+" up")
}

// supported returns an error that names what is missing if nodes cannot run here.
func supported() error {
	if os.Geteuid() != 0 {
		return errors.New("nodes need root: they mount file systems and make network interfaces, in namespaces of their own")
	}
	hierarchies, err := cgroups()
	if err != nil {
		return err
	}
	for _, controller := range []string{"cpu", "cpuacct", "cpuset", "memory", "pids"} {
		found := false
		for _, h := range hierarchies {
			found = found || h.has(controller)
		}
		if !found {
			return fmt.Errorf("no cgroup v1 hierarchy with the controller %s is mounted: nodes support cgroup v1 only", controller)
		}
	}
	if out, err := exec.Command("unshare", "--mount", "--pid", "--net", "--uts", "--ipc", "--cgroup", "--fork", "true").CombinedOutput(); err != nil {
		return fmt.Errorf("no namespaces: unshare: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}

// sweep removes what killed runs have left.
func sweep() error {
	var errs []error
	places, err := filepath.Glob(filepath.Join(os.TempDir(), prefix+"*"))
	errs = append(errs, err)
	for _, place := range places {
		if pid, ok := leftBy(place); ok {
			errs = append(errs, removePlace(place), removeCgroups(pid))
		}
	}
	return errors.Join(errs...)
}

// leftBy returns the id of the process that made the folder, and reports whether that process has
// ended.
func leftBy(place string) (int, bool) {
	number, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(place), prefix), "-")
	pid, err := strconv.Atoi(number)
	if err != nil {
		return 0, false
	}
	return pid, errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
}

// removePlace waits until the last file system in the folder is gone, which is when its last
// process ends.
func removePlace(place string) error {
	_, err := harness.Await(context.Background(), patience, "the working folder is removed", func(context.Context) error { return os.RemoveAll(place) })
	return err
}

// keepLogs copies logs in place of the last run's.
func keepLogs(place, to string) error {
	if err := os.RemoveAll(to); err != nil {
		return err
	}
	return errors.Join(copyLogs(filepath.Join(place, "log"), to), eachNode(place, func(name, root string) error {
		return copyLogs(filepath.Join(root, "var/log"), filepath.Join(to, name))
	}))
}

func eachNode(place string, do func(name, root string) error) error {
	roots, err := filepath.Glob(filepath.Join(place, "nodes", "*", "root"))
	errs := []error{err}
	for _, root := range roots {
		errs = append(errs, do(filepath.Base(filepath.Dir(root)), root))
	}
	return errors.Join(errs...)
}

// copyLogs copies regular files only: links in /var/log/containers lead to a file system that is
// gone.
func copyLogs(from, to string) error {
	return filepath.WalkDir(from, func(name string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		rel, err := filepath.Rel(from, name)
		if err != nil {
			return err
		}
		if err := os.MkdirAll(filepath.Dir(filepath.Join(to, rel)), 0o755); err != nil {
			return err
		}
		content, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, rel), content, 0o644)
	})
}
