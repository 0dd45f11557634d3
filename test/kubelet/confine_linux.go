package kubelet

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"syscall"
)

// Supported returns nil if processes can have their own root directory and user here, and otherwise
// an error that names what is missing.
func Supported() error {
	cmd := exec.Command("/bin/true")
	confine(cmd, "/", identity{uid: 65532, gid: 65532})
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("kubelet: chroot needs root (CAP_SYS_CHROOT, CAP_SETUID), or a kernel that allows user namespaces without it "+
			"(sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns): %w", err)
	}
	return nil
}

// confine gives a command a root directory and a user. If this process is root, it is a user of
// this machine. Otherwise it is one of a user namespace, to which this process's user is mapped.
func confine(cmd *exec.Cmd, root string, who identity) {
	credential := &syscall.Credential{Uid: uint32(who.uid), Gid: uint32(who.gid)}
	for _, group := range who.groups {
		credential.Groups = append(credential.Groups, uint32(group))
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Credential: credential}
	if os.Geteuid() == 0 {
		return
	}
	credential.Groups, credential.NoSetGroups = nil, true
	cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER
	cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: int(who.uid), HostID: os.Geteuid(), Size: 1}}
	cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: int(who.gid), HostID: os.Getegid(), Size: 1}}
}

// ownLike gives a file the owner of another, if this process may.
func ownLike(info fs.FileInfo, path string) error {
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok || os.Geteuid() != 0 {
		return nil
	}
	return os.Chown(path, int(owner.Uid), int(owner.Gid))
}
