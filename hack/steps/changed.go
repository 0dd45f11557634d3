package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// changed returns the packages with a Go file that differs from upstream's branch, or from the last
// commit if there is no such branch. Untracked files count too.
func changed(ctx context.Context, root string) ([]string, error) {
	base := "HEAD"
	if out, err := git(ctx, root, "merge-base", "HEAD", "@{upstream}"); err == nil {
		base = strings.TrimSpace(out)
	}
	differ, err := git(ctx, root, "diff", "--name-only", base, "--", "*.go")
	if err != nil {
		return nil, err
	}
	unknown, err := git(ctx, root, "ls-files", "--others", "--exclude-standard", "--", "*.go")
	if err != nil {
		return nil, err
	}
	var packages []string
	for _, file := range strings.Fields(differ + unknown) {
		folder := path.Dir(file)
		if name := "./" + folder; !slices.Contains(packages, name) && isPackage(root, folder) {
			packages = append(packages, name)
		}
	}
	slices.Sort(packages)
	return packages, nil
}

// isPackage reports whether a directory has Go files and is a package of the root's module to the
// go command.
func isPackage(root, folder string) bool {
	for dir := folder; dir != "."; dir = path.Dir(dir) {
		if _, err := os.Stat(filepath.Join(root, dir, "go.mod")); err == nil || path.Base(dir) == "testdata" {
			return false
		}
	}
	files, _ := filepath.Glob(filepath.Join(root, folder, "*.go"))
	return len(files) > 0
}

func git(ctx context.Context, root string, args ...string) (string, error) {
	command := exec.CommandContext(ctx, "git", args...)
	command.Dir = root
	var errors bytes.Buffer
	command.Stderr = &errors
	out, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(errors.String()))
	}
	return string(out), nil
}
