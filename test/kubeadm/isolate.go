package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/flotilla-kube/flotilla/test/command"
	"github.com/flotilla-kube/flotilla/test/harness"
)

const (
	// insideVariable is set to the working folder, and only inside the namespaces.
	insideVariable = "FLOTILLA_KUBEADM_INSIDE"
	// prefix begins the name of a cluster's working folder, which is also the name of its cgroups on
	// this machine. The process id of the outer process follows it.
	prefix    = "flotilla-kubeadm-"
	logFolder = "_output/kubeadm"

	// inotifyFile is the limit of inotify instances on this machine, which namespaces do not raise.
	// Beyond it kubelets do not start, and only their logs say so. A cluster has some 65, and other
	// programs have theirs. Linux's default is enough for one cluster.
	inotifyFile = "/proc/sys/fs/inotify/max_user_instances"
	inotifyEach = 128

	// patience is how long the processes below may take to end, so that they can finish their logs.
	patience = 20 * time.Second
)

// isolate runs this program again for each cluster, in namespaces of its own, and then removes what
// they left.
func isolate(ctx context.Context, o options) int {
	if err := supported(); err != nil {
		fmt.Fprintln(os.Stderr, "kubeadm:", err)
		return command.Failed
	}
	if err := sweep(); err != nil {
		fmt.Fprintln(os.Stderr, "kubeadm: removing what an earlier run left:", err)
	}
	shares := share(o.stages, o.clusters)
	if err := raise(inotifyFile, inotifyEach*len(shares)); err != nil {
		fmt.Fprintln(os.Stderr, "kubeadm:", err)
		return command.Failed
	}
	screen := &sync.Mutex{}
	emptied := sync.OnceValue(func() error { return os.RemoveAll(logFolder) })
	status := 0
	var all []*isolated
	for i, stages := range shares {
		out := &lines{screen: screen, to: os.Stdout}
		if len(shares) > 1 {
			out.begin = strconv.Itoa(i+1) + " "
		}
		one, err := begin(ctx, strconv.Itoa(i+1), stages, o.stay, out)
		if err != nil {
			fmt.Fprintln(os.Stderr, "kubeadm:", err)
			if status = command.Failed; ctx.Err() != nil {
				status = command.Interrupted
			}
			break
		}
		all = append(all, one)
	}
	for _, one := range all {
		ended := one.wait(ctx)
		if ended != 0 && ended != command.Interrupted || o.keep {
			to := filepath.Join(logFolder, one.name)
			if err := errors.Join(emptied(), keepLogs(one.place, to)); err != nil {
				fmt.Fprintln(os.Stderr, "kubeadm: logs:", err)
			}
			fmt.Println("Logs of the nodes:", to)
		}
		if err := one.remove(); err != nil {
			fmt.Fprintln(os.Stderr, "kubeadm: not everything could be removed:", err)
			ended = max(ended, command.Failed)
		}
		status = max(status, ended)
	}
	return status
}

// isolated is this program in namespaces of its own.
type isolated struct {
	name, place string
	cmd         *exec.Cmd
	out         *lines
}

// begin starts this program with some of the stages. It must be called by the main thread, with
// which the process that it starts ends.
func begin(ctx context.Context, name string, stages []string, stay bool, out *lines) (*isolated, error) {
	place, err := os.MkdirTemp("", prefix+strconv.Itoa(os.Getpid())+"-")
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, "/proc/self/exe", "-stages="+strings.Join(stages, ","), "-stay="+strconv.FormatBool(stay))
	cmd.Env = append(os.Environ(), insideVariable+"="+place)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = patience
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWNET | syscall.CLONE_NEWPID,
		Pdeathsig:  syscall.SIGKILL,
	}
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(place))
	}
	if stay {
		fmt.Printf("%s is cluster %s. A shell in a node: nsenter -t %d -a nsenter -t $(cat %[1]s/nodes/cp1/pid) -a bash\n",
			place, name, cmd.Process.Pid)
	}
	return &isolated{name: name, place: place, cmd: cmd, out: out}, nil
}

// wait returns the program's exit status.
func (i *isolated) wait(ctx context.Context) int {
	err := i.cmd.Wait()
	i.out.end()
	var ended *exec.ExitError
	switch {
	case errors.As(err, &ended) && ended.Exited():
		return ended.ExitCode()
	case ctx.Err() != nil:
		return command.Interrupted
	case err != nil:
		fmt.Fprintln(os.Stderr, "kubeadm:", err)
		return command.Failed
	}
	return 0
}

// remove removes what the program has left.
func (i *isolated) remove() error {
	return errors.Join(removePlace(i.place), removeCgroups(filepath.Base(i.place)))
}

// lines writes whole lines, each with the same beginning, to a screen that others write to.
type lines struct {
	screen *sync.Mutex
	to     io.Writer
	begin  string
	rest   []byte
}

// Write implements io.Writer.
func (l *lines) Write(p []byte) (int, error) {
	l.screen.Lock()
	defer l.screen.Unlock()
	l.rest = append(l.rest, p...)
	for {
		end := bytes.IndexByte(l.rest, '\n')
		if end < 0 {
			return len(p), nil
		}
		if _, err := fmt.Fprintf(l.to, "%s%s", l.begin, l.rest[:end+1]); err != nil {
			return 0, err
		}
		l.rest = l.rest[end+1:]
	}
}

// end ends the last line.
func (l *lines) end() {
	if len(l.rest) > 0 {
		_, _ = l.Write([]byte{'\n'})
	}
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

// raise raises a limit of this machine that is lower than least, and says so. It stays raised:
// another run may need it when this one ends.
func raise(file string, least int) error {
	content, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	now, err := strconv.Atoi(strings.TrimSpace(string(content)))
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if now >= least {
		return nil
	}
	if err := os.WriteFile(file, []byte(strconv.Itoa(least)), 0o644); err != nil {
		return fmt.Errorf("%s is %d, nodes need %d: %w", file, now, least, err)
	}
	fmt.Printf("%s: raised from %d to %d\n", file, now, least)
	return nil
}

// sweep removes what killed runs have left.
func sweep() error {
	var errs []error
	places, err := filepath.Glob(filepath.Join(os.TempDir(), prefix+"*"))
	errs = append(errs, err)
	for _, place := range places {
		if leftBehind(place) {
			errs = append(errs, removePlace(place), removeCgroups(filepath.Base(place)))
		}
	}
	return errors.Join(errs...)
}

// leftBehind reports whether the process that made the folder has ended.
func leftBehind(place string) bool {
	number, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(place), prefix), "-")
	pid, err := strconv.Atoi(number)
	return err == nil && errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
}

// removePlace waits until the last file system in the folder is gone, which is when its last
// process ends.
func removePlace(place string) error {
	_, err := harness.Await(context.Background(), patience, "the working folder is removed", func(context.Context) error { return os.RemoveAll(place) })
	return err
}

func keepLogs(place, to string) error {
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
