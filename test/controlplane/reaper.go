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

// reaperScript runs beside this process, waits until the pipe that is its input closes, and then
// ends what is left: the kernel closes the pipe whichever way this process goes, SIGKILL and a
// panicking test included. (PR_SET_PDEATHSIG is not used: it fires when the thread ends that
// started the process, not the process, and is Linux only.)
//
// $1 is the directory of process numbers, $2 the directory to remove, or empty.
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
	// The write end must be in no other process; Go opens it close-on-exec.
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

// stop lets the reaper do what is left to do and waits for it.
func (r *reaper) stop() error {
	return errors.Join(r.pipe.Close(), r.cmd.Wait())
}

func (cp *ControlPlane) pidDir() string { return filepath.Join(cp.dir, "pids") }

func (cp *ControlPlane) pidFile(name string) string { return filepath.Join(cp.pidDir(), name) }

// pid returns the number of a running process by its name.
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
		return 0, fmt.Errorf("controlplane: %s holds %q, not a process number", cp.pidFile(name), content)
	}
	return pid, nil
}

// signal sends a signal to the process group of a process by its name.
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

// recordingScript writes a script that becomes the binary of that name and leaves its process
// number where reaper and signal find it: envtest does not tell the numbers of what it starts.
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
