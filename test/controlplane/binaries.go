package controlplane

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Binary returns the path of a binary in BinDir, such as "kube-controller-manager". Its error says
// how to get the binary.
func (cp *ControlPlane) Binary(name string) (string, error) {
	return findBinary(cp.opts.BinDir, name)
}

func findBinary(dir, name string) (string, error) {
	path := filepath.Join(dir, name)
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return "", fmt.Errorf("controlplane: %s is missing: run 'make tools'", path)
	case err != nil:
		return "", fmt.Errorf("controlplane: %w", err)
	case info.IsDir() || info.Mode()&0o111 == 0:
		return "", fmt.Errorf("controlplane: %s is not an executable file: remove it and run 'make tools'", path)
	}
	return path, nil
}

// findBinDir looks for the module's bin/ from the current directory upwards: go test runs in the
// package's directory, the demo in the root.
func findBinDir() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("controlplane: %w", err)
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return filepath.Join(dir, "bin"), nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("controlplane: no go.mod at or above %s: set Options.BinDir", start)
		}
	}
}
