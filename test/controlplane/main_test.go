package controlplane_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

func TestMain(m *testing.M) {
	if os.Getenv(orphanVariable) != "" {
		os.Exit(runOrphan(context.Background()))
	}
	os.Exit(m.Run())
}

func client(t *testing.T, config *rest.Config) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// pids returns the IDs of the running processes by name.
func pids(t *testing.T, dir string) map[string]int {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "pids", "*"))
	if err != nil {
		t.Fatal(err)
	}
	pids := map[string]int{}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		pid, err := strconv.Atoi(strings.TrimSpace(string(content)))
		if err != nil {
			t.Fatal(err)
		}
		pids[filepath.Base(file)] = pid
	}
	return pids
}

func requirePids(t *testing.T, dir string, names ...string) map[string]int {
	t.Helper()
	pids := pids(t, dir)
	for _, name := range names {
		if err := running(pids[name]); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	if len(pids) != len(names) {
		t.Fatalf("running: %v, want %v", pids, names)
	}
	return pids
}

// running returns nil if the process exists and is not a zombie.
func running(pid int) error {
	if pid <= 1 {
		return errors.New("no process ID")
	}
	if err := syscall.Kill(pid, 0); err != nil {
		return fmt.Errorf("process %d: %w", pid, err)
	}
	// An orphan's new parent may be slow to reap it. Where there is no /proc, init is not.
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if slices.Contains(fields[:1], "Z") {
		return fmt.Errorf("process %d is a zombie", pid)
	}
	return nil
}

// gone returns nil if none of the processes is running.
func gone(pids map[string]int) error {
	var errs []error
	for name, pid := range pids {
		if running(pid) == nil {
			errs = append(errs, fmt.Errorf("%s, process %d, is still running", name, pid))
		}
	}
	return errors.Join(errs...)
}

func requireGone(t *testing.T, pids map[string]int) {
	t.Helper()
	if err := gone(pids); err != nil {
		t.Error(err)
	}
}
