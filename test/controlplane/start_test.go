package controlplane_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/flotilla-kube/flotilla/test/controlplane"
	"github.com/flotilla-kube/flotilla/test/harness"
)

func TestMissingBinaries(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "etcd"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	_, err := controlplane.Start(t.Context(), controlplane.Options{BinDir: dir, Nodes: 1, Scheduler: true})
	if err == nil {
		t.Fatal("started without binaries")
	}
	for _, want := range []string{
		"etcd is not an executable file: remove it and run 'make tools'",
		"kube-apiserver is missing: run 'make tools'",
		"kube-scheduler is missing: run 'make tools'",
		"kwok is missing: run 'make tools'",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q does not say %q", err, want)
		}
	}
}

func TestBadOptions(t *testing.T) {
	full := t.TempDir()
	if err := os.WriteFile(filepath.Join(full, "file"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for name, opts := range map[string]controlplane.Options{
		"negative nodes":   {Nodes: -1},
		"too many nodes":   {Nodes: 1001},
		"no flag":          {APIServerArgs: []string{"v=4"}},
		"gates as flag":    {APIServerArgs: []string{"--feature-gates=A=true"}},
		"gate on and off":  {ShardedListAndWatch: true, FeatureGates: map[string]bool{"ShardedListAndWatch": false}},
		"dir is not empty": {Dir: full},
	} {
		t.Run(name, func(t *testing.T) {
			cp, err := controlplane.Start(t.Context(), opts)
			if err == nil {
				t.Error("started", cp.Stop())
			}
		})
	}
}

// TestFailedStart requires that the error has the reason and that nothing is left behind.
func TestFailedStart(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	_, err := controlplane.Start(t.Context(), controlplane.Options{APIServerArgs: []string{"--no-such-flag=1"}})
	if err == nil || !strings.Contains(err.Error(), "unknown flag: --no-such-flag") {
		t.Errorf("start with an unknown flag: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := controlplane.Start(ctx, controlplane.Options{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("start with too short a time limit: %v", err)
	}
	entries, err := os.ReadDir(os.TempDir())
	if err != nil || len(entries) > 0 {
		t.Errorf("left behind: %v %v", entries, err)
	}
}

const orphanVariable = "FLOTILLA_TEST_ORPHAN"

// runOrphan is the main function of the process that TestParentKilled kills.
func runOrphan(ctx context.Context) int {
	cp, err := controlplane.Start(ctx, controlplane.Options{})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	if _, err := cp.StartProcess("sleeper", "/bin/sh", []string{"-c", "sleep 1000"}); err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println(cp.AdminConfig().Host, cp.Dir())
	select {}
}

// TestParentKilled kills a process that runs a control plane, as a test binary's timeout or Ctrl-C
// would.
func TestParentKilled(t *testing.T) {
	parent := exec.Command(os.Args[0])
	parent.Env = append(os.Environ(), orphanVariable+"=1")
	output, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(output).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	host, dir, _ := strings.Cut(strings.TrimSpace(line), " ")
	server, err := url.Parse(host)
	if err != nil || dir == "" {
		t.Fatalf("the process said %q", line)
	}
	pids := requirePids(t, dir, "etcd", "kube-apiserver", "sleeper")
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := parent.Wait(); err == nil {
		t.Error("the process ended by itself")
	}
	harness.Eventually(t, harness.Patience, "directory removed", func(context.Context) error {
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("%s still exists: %w", dir, err)
		}
		return nil
	})
	// A killed process exists until the kernel has torn it down, and its files may go first. Its
	// first thread may be gone before the others, and the last thread keeps its sockets.
	harness.Eventually(t, harness.Patience, "processes gone", func(context.Context) error { return gone(pids) })
	harness.Eventually(t, harness.Patience, "nobody answers", func(context.Context) error {
		connection, err := net.Dial("tcp", server.Host)
		if err != nil {
			return nil
		}
		return fmt.Errorf("%s still answers: %v", server.Host, connection.Close())
	})
}
