package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// need is something that not every machine has.
type need int

const (
	// needC is a C compiler with the C library's headers, for the race detector.
	needC need = iota
	// needRoots is the right to start processes with another root directory.
	needRoots
	// needNodes is what running nodes with containers takes.
	needNodes
)

// missing returns why a need is not met; empty if it is.
func missing(ctx context.Context, n need) string {
	switch n {
	case needC:
		return noC(ctx)
	case needRoots:
		return noRoots(ctx)
	case needNodes:
		return noNodes(ctx)
	}
	return ""
}

func noC(ctx context.Context) string {
	dir, err := os.MkdirTemp("", "flotilla-steps-")
	if err != nil {
		return err.Error()
	}
	defer os.RemoveAll(dir)
	source := filepath.Join(dir, "try.c")
	// A compiler without the C library's headers does not suffice.
	if err := os.WriteFile(source, []byte("#include <stdlib.h>\n#include <pthread.h>\nint main(void) { return 0; }\n"), 0o600); err != nil {
		return err.Error()
	}
	ask := exec.CommandContext(ctx, "go", "env", "CC")
	ask.Env = append(os.Environ(), "CGO_ENABLED=1")
	compiler, err := ask.Output()
	if err != nil {
		return err.Error()
	}
	args := append(strings.Fields(string(compiler)), "-o", filepath.Join(dir, "try"), source)
	if err := exec.CommandContext(ctx, args[0], args[1:]...).Run(); err != nil {
		return "no C compiler: '" + strings.TrimSpace(string(compiler)) + "' builds no C program here, and the race detector needs one that does"
	}
	return ""
}

func noRoots(ctx context.Context) string {
	if runtime.GOOS == "linux" {
		if os.Getuid() == 0 || exec.CommandContext(ctx, "unshare", "--user", "--map-root-user", "chroot", "/", "true").Run() == nil {
			return ""
		}
	}
	return "no namespaces: it takes Linux, and root or user namespaces that may chroot (unshare --user --map-root-user chroot / true)"
}

// noNodes checks what test/kubeadm and hack/node-packages.sh need.
func noNodes(ctx context.Context) string {
	if runtime.GOOS != "linux" || os.Getuid() != 0 {
		return "no root on Linux: nodes mount file systems and make network interfaces, in namespaces of their own"
	}
	if err := exec.CommandContext(ctx, "unshare", "--mount", "--pid", "--net", "--uts", "--ipc", "--cgroup", "--fork", "true").Run(); err != nil {
		return "no namespaces: 'unshare --mount --pid --net --uts --ipc --cgroup --fork true' fails: " + err.Error()
	}
	for _, controller := range []string{"cpu", "cpuset", "memory", "pids"} {
		if folders, _ := filepath.Glob("/sys/fs/cgroup/*" + controller + "*/cgroup.procs"); len(folders) == 0 {
			return "no cgroup v1: nothing below /sys/fs/cgroup has the controller " + controller
		}
	}
	if !installed("runc", "nft") && !installed("apt-get", "dpkg-deb") {
		return "no runc and nft: install them; apt-get, which would do for Debian's packages, is missing too"
	}
	return ""
}

func installed(names ...string) bool {
	for _, name := range names {
		if _, err := exec.LookPath(name); err != nil {
			return false
		}
	}
	return true
}
