package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/flotilla-kube/flotilla/test/harness"
)

const cgroupRoot = "/sys/fs/cgroup"

// hierarchy is a mounted cgroup v1 hierarchy and this process's place in it.
type hierarchy struct {
	controllers []string
	// folder is the folder of this process's cgroup.
	folder string
}

func (h hierarchy) has(controller string) bool { return slices.Contains(h.controllers, controller) }

// cgroups returns this process's visible cgroup v1 hierarchies.
func cgroups() ([]hierarchy, error) {
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, err
	}
	return parseCgroups(string(text), func(folder string) bool {
		info, err := os.Stat(folder)
		return err == nil && info.IsDir()
	}), nil
}

// parseCgroups parses lines such as "4:cpu,cpuacct:/user.slice". The line of cgroup v2 is
// "0::/user.slice".
func parseCgroups(text string, isFolder func(string) bool) []hierarchy {
	var all []hierarchy
	for line := range strings.Lines(text) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) != 3 || fields[1] == "" {
			continue
		}
		list := strings.TrimPrefix(fields[1], "name=")
		if folder := filepath.Join(cgroupRoot, list, fields[2]); isFolder(folder) {
			all = append(all, hierarchy{controllers: strings.Split(list, ","), folder: folder})
		}
	}
	return all
}

// nodeCgroups makes a cgroup for a node in every hierarchy and returns the folders. They are below
// this process's own cgroup, so its limits hold for the node too.
func nodeCgroups(cluster, name string) ([]string, error) {
	hierarchies, err := cgroups()
	if err != nil {
		return nil, err
	}
	var folders []string
	for _, h := range hierarchies {
		folder := h.folder
		for _, next := range []string{cluster, name} {
			folder = filepath.Join(folder, next)
			if err := os.Mkdir(folder, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
				return nil, err
			}
			if h.has("cpuset") {
				if err := inheritCPUs(folder); err != nil {
					return nil, err
				}
			}
		}
		folders = append(folders, folder)
	}
	return folders, nil
}

// inheritCPUs fills in the files that a new cpuset cgroup has empty. Until then no process can
// enter it.
func inheritCPUs(folder string) error {
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		content, err := os.ReadFile(filepath.Join(filepath.Dir(folder), file))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(folder, file), content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// removeCgroups removes the cgroups of a cluster.
func removeCgroups(name string) error {
	hierarchies, err := cgroups()
	if err != nil {
		return err
	}
	var errs []error
	for _, h := range hierarchies {
		top := filepath.Join(h.folder, name)
		_, err := harness.Await(context.Background(), patience, "cgroup "+top+" is removed", func(context.Context) error { return removeTree(top) })
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// removeTree removes only folders: the files of a cgroup go with its folder.
func removeTree(folder string) error {
	entries, err := os.ReadDir(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if entry.IsDir() {
			if err := removeTree(filepath.Join(folder, entry.Name())); err != nil {
				return err
			}
		}
	}
	if err := os.Remove(folder); err != nil {
		return fmt.Errorf("rmdir: %w", err)
	}
	return nil
}
