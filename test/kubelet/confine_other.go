//go:build !linux

package kubelet

import (
	"errors"
	"io/fs"
	"os/exec"
)

// Supported returns nil if processes can have their own root directory and user here, and otherwise
// an error that names what is missing.
func Supported() error { return errors.New("kubelet: only Linux is supported") }

func confine(*exec.Cmd, string, identity) {}

func ownLike(fs.FileInfo, string) error { return nil }
