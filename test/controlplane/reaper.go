package controlplane

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// reaperScript runs beside this process. It waits until the pipe on its input closes, and then ends
// the processes that are left. The kernel closes the pipe however this process ends, even by
// SIGKILL or a panicking test. (PR_SET_PDEATHSIG is Linux only, and fires when the starting thread
// ends rather than the process.)
//
// $1 is the directory of process IDs, $2 the directory to remove, or empty.
const reaperScript = `
trap '' HUP INT TERM
cat >/dev/null
for file in "$1"/*; do
	[ -f "$file" ] || continue
	read -r pid <"$file" && kill -s KILL -- "-$pid"
done
[ -n "$2" ] || exit 0
# What was killed may take a moment to let go of its files.
tries=30
while [ $tries -gt 0 ]; do
	rm -rf "$2" && exit 0
	sleep 1
	tries=$((tries - 1))
done
exit 1
`

// reaper is the process that runs reaperScript.
type reaper struct {
	cmd  *exec.Cmd
	pipe *os.File
}

func startReaper(pidDir, removeDir string) (*reaper, error) {
	if err := os.Mkdir(pidDir, 0o755); err != nil {
		return nil, err
	}
	// No other process may have the write end; Go opens it close-on-exec.
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer read.Close()
	cmd := exec.Command("/bin/sh", "-c", reaperScript, "controlplane-reaper", pidDir, removeDir)
	cmd.Stdin = read
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(err, write.Close())
	}
	return &reaper{cmd: cmd, pipe: write}, nil
}

// stop lets the reaper clean up and waits for it.
func (r *reaper) stop() error {
	return errors.Join(r.pipe.Close(), r.cmd.Wait())
}

func (cp *ControlPlane) pidDir() string { return filepath.Join(cp.dir, "pids") }

func (cp *ControlPlane) pidFile(name string) string { return filepath.Join(cp.pidDir(), name) }

// pid returns the ID of a running process by name.
func (cp *ControlPlane) pid(name string) (int, error) {
	content, err := os.ReadFile(cp.pidFile(name))
	if errors.Is(err, os.ErrNotExist) {
		return 0, fmt.Errorf("controlplane: %s is not running", name)
	}
	if err != nil {
		return 0, err
	}
	pid, err := strconv.Atoi(string(bytes.TrimSpace(content)))
	if err != nil || pid <= 1 {
		return 0, fmt.Errorf("controlplane: %s holds %q, not a process ID", cp.pidFile(name), content)
	}
	return pid, nil
}

// signal signals the process group of a process by name.
func (cp *ControlPlane) signal(name string, signal syscall.Signal) error {
	pid, err := cp.pid(name)
	if err != nil {
		return err
	}
	if err := syscall.Kill(-pid, signal); err != nil {
		return fmt.Errorf("controlplane: signal %s: %w", name, err)
	}
	return nil
}

// recordingScript writes a script that records its process ID for reaper and signal, and then
// executes the named binary. envtest does not expose the IDs of the processes it starts.
func (cp *ControlPlane) recordingScript(name string) (string, error) {
	binary, err := cp.Binary(name)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cp.dir, "scripts")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	// envtest also runs the binary with --help, to learn its flags.
	script := fmt.Sprintf("#!/bin/sh\n[ \"$1\" = --help ] || echo $$ >%s\nexec %s \"$@\"\n",
		shellQuote(cp.pidFile(name)), shellQuote(binary))
	path := filepath.Join(dir, name)
	return path, os.WriteFile(path, []byte(script), 0o755)
}

func shellQuote(s string) string {
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
