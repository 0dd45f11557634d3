package kubelet

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
)

// layOut makes a root directory with the image's files, linked if possible. It keeps files that
// exist.
func layOut(image, root string) error {
	return filepath.WalkDir(image, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(image, path)
		if err != nil {
			return err
		}
		to := filepath.Join(root, relative)
		switch {
		case entry.IsDir():
			return os.MkdirAll(to, 0o755)
		case entry.Type()&fs.ModeSymlink != 0:
			target, err := os.Readlink(path)
			if err != nil {
				return err
			}
			return ignoreExist(os.Symlink(target, to))
		default:
			return linkOrCopy(path, to)
		}
	})
}

func linkOrCopy(from, to string) error {
	if err := ignoreExist(os.Link(from, to)); err == nil {
		return nil
	}
	// They are on different file systems.
	return copyFile(from, to)
}

func ignoreExist(err error) error {
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

// copyTree copies a file or a folder of the node, with owners and modes.
func copyTree(from, to string, kind corev1.HostPathType) error {
	_, err := os.Stat(from)
	if errors.Is(err, fs.ErrNotExist) && kind == corev1.HostPathDirectoryOrCreate {
		return os.MkdirAll(to, 0o755)
	}
	if err != nil {
		return fmt.Errorf("hostPath: %w", err)
	}
	return filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, relative)
		if entry.IsDir() {
			return os.MkdirAll(target, 0o755)
		}
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			return err
		}
		return copyFile(path, target)
	})
}

func copyFile(from, to string) error {
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if err := os.Remove(to); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.WriteFile(to, content, info.Mode().Perm()); err != nil {
		return err
	}
	return errors.Join(os.Chmod(to, info.Mode().Perm()), ownLike(info, to))
}

// own gives a file to the pod's group, if this process may.
func (i identity) own(path string) error {
	if os.Geteuid() != 0 || len(i.groups) == 0 {
		return nil // In a user namespace all files are the container's.
	}
	return os.Chown(path, 0, int(i.groups[0]))
}
