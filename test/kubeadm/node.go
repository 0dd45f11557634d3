package main

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"text/template"
	"time"

	"github.com/flotilla-kube/flotilla/test/harness"
)

const (
	bridge = "flotilla0"
	// subnet is the nodes' network, outside the ranges that kubeadm.yaml gives to pods and
	// Services.
	subnet     = "10.77.0."
	balancerIP = subnet + "1"

	repository = "/root/flotilla"
)

var (
	//go:embed init.sh
	initScript string
	//go:embed systemctl.sh
	systemctl string
	//go:embed kubeadm.sh
	kubeadmWrapper string
	//go:embed containerd.toml
	containerdText string
	//go:embed network.json
	networkText string

	containerdConfig = template.Must(template.New("containerd").Parse(containerdText))
	networkConfig    = template.Must(template.New("network").Parse(networkText))
)

// node is one machine of the cluster.
type node struct {
	name, ip     string
	controlPlane bool
	// dir holds the node's files on this machine, and root is the node's root folder.
	dir, root string
	cmd       *exec.Cmd
	ended     chan struct{}
}

func (n *node) path(name string) string { return filepath.Join(n.root, name) }

// install lays out the root folder of a node that has never run.
func (c *cluster) install(n *node) error {
	for _, dir := range []string{
		"dev", "etc/ca-certificates", "etc/cni/net.d", "etc/containerd", "etc/kubernetes", "etc/ssl/certs", "home", "mnt", "opt/bin", "opt/images", "opt/node",
		"proc", "root", "run", "srv", "sys", "tmp", "usr", "var/lib/containerd", "var/lib/kubelet", "var/log/kubernetes", "var/tmp",
	} {
		if err := os.MkdirAll(n.path(dir), 0o755); err != nil {
			return err
		}
	}
	for name, to := range map[string]string{"bin": "usr/bin", "sbin": "usr/sbin", "lib": "usr/lib", "lib64": "usr/lib64", "var/run": "/run"} {
		if err := os.Symlink(to, n.path(name)); err != nil {
			return err
		}
	}
	for _, name := range []string{"passwd", "group", "nsswitch.conf", "protocols", "services", "os-release"} {
		content, err := os.ReadFile(filepath.Join("/etc", name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err := errors.Join(err, os.WriteFile(n.path("etc/"+name), content, 0o644)); err != nil {
			return err
		}
	}
	var containerd bytes.Buffer
	if err := containerdConfig.Execute(&containerd, map[string]string{"Pause": c.images.pause}); err != nil {
		return err
	}
	policy, err := os.ReadFile("deploy/audit/policy.yaml")
	if err != nil {
		return err
	}
	for name, text := range map[string]string{
		"etc/hosts": fmt.Sprintf("127.0.0.1 localhost\n%s %s\n", n.ip, n.name), "etc/hostname": n.name + "\n", "etc/resolv.conf": "",
		"etc/machine-id": fmt.Sprintf("%032x\n", time.Now().UnixNano()), "etc/containerd/config.toml": containerd.String(),
		"etc/kubernetes/audit-policy.yaml": string(policy), "opt/node/systemctl": systemctl, "opt/node/kubeadm": kubeadmWrapper,
	} {
		if err := os.WriteFile(n.path(name), []byte(text), 0o755); err != nil {
			return err
		}
	}
	return os.CopyFS(n.path(repository+"/deploy"), os.DirFS("deploy"))
}

// boot starts the node, and returns when containerd answers.
func (c *cluster) boot(ctx context.Context, n *node) error {
	groups, err := nodeCgroups(filepath.Base(c.place), n.name)
	if err != nil {
		return err
	}
	log, err := logFile(filepath.Join(c.place, "log", n.name+"-init.log"))
	if err != nil {
		return err
	}
	defer log.Close()
	usr := filepath.Join(c.place, "usr") + ":/usr"
	if _, err := os.Stat(filepath.Join(c.bin, "debian/usr")); err == nil {
		usr = filepath.Join(c.bin, "debian/usr") + ":" + usr
	}
	// The process is not bound to ctx: a node ends with its cluster, or by powerOff.
	n.cmd = exec.Command("bash", filepath.Join(c.place, "init.sh"), "enter")
	n.cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "NODE=" + n.name, "ROOT=" + n.root, "BIN=" + c.bin, "USR=" + usr, "IMAGES=" + c.images.dir,
		"CGROUPS=" + strings.Join(groups, " "),
	}
	n.cmd.Stdout, n.cmd.Stderr = log, log
	n.cmd.SysProcAttr = &syscall.SysProcAttr{
		Setsid:     true, // An interrupt from the terminal must reach only this program.
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWNET | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC,
	}
	if err := n.cmd.Start(); err != nil {
		return err
	}
	n.ended = make(chan struct{})
	go func() {
		_ = n.cmd.Wait() // It was killed.
		close(n.ended)
	}()
	if err := os.WriteFile(filepath.Join(n.dir, "pid"), []byte(strconv.Itoa(n.cmd.Process.Pid)), 0o644); err != nil {
		return err
	}
	if err := c.plug(ctx, n); err != nil {
		return err
	}
	_, err = harness.Await(ctx, harness.Patience, n.name+" runs containerd", func(ctx context.Context) error {
		select {
		case <-n.ended:
			return fmt.Errorf("%w: the first process of %s has ended: see %s-init.log", harness.ErrGiveUp, n.name, n.name)
		default:
		}
		return n.quiet(ctx, "test -f /run/booted && ctr version")
	})
	return err
}

// plug connects the node to the bridge. The kernel may still be about to remove the link that the
// node had before it was switched off.
func (c *cluster) plug(ctx context.Context, n *node) error {
	return shell(ctx, nil, fmt.Sprintf(`ip link delete ve-%[1]s 2>/dev/null || true
ip link add ve-%[1]s type veth peer name eth0 netns %[2]d
ip link set ve-%[1]s master %[3]s up
nsenter -t %[2]d -n sh -ec "ip addr add %[4]s/24 dev eth0 && ip link set eth0 up && ip route add default via %[5]s"`,
		n.name, n.cmd.Process.Pid, bridge, n.ip, balancerIP))
}

// load imports the images that the node does not have yet.
func (c *cluster) load(ctx context.Context, n *node) error {
	for _, archive := range c.images.archives(n.controlPlane) {
		if err := n.quiet(ctx, "ctr --namespace k8s.io images import --local /opt/images/"+archive); err != nil {
			return err
		}
	}
	return nil
}

// powerOff kills all processes of the node at once. This machine's end of the veth pair goes with
// the node's network, some time later.
func (n *node) powerOff() error {
	if err := n.cmd.Process.Kill(); err != nil {
		return err
	}
	<-n.ended
	return nil
}

// command returns a bash script to run in the node, as root, in a folder with the repository's
// deploy/.
func (n *node) command(ctx context.Context, script string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "nsenter", "--target", strconv.Itoa(n.cmd.Process.Pid), "--all", "env", "-i",
		"PATH=/opt/node:/opt/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin", "HOME=/root", "LANG=C.UTF-8", "PKI=/etc/kubernetes/pki", "KUBECONFIG=/etc/kubernetes/admin.conf",
		"bash", "-euo", "pipefail", "-c", "cd "+repository+"\n"+script)
	cmd.WaitDelay = time.Second
	return cmd
}

// quiet runs a script, with its output in the error if it fails.
func (n *node) quiet(ctx context.Context, script string) error {
	_, err := n.output(ctx, script)
	return err
}

// output returns what a script prints.
func (n *node) output(ctx context.Context, script string) (string, error) {
	var out, errOut bytes.Buffer
	cmd := n.command(ctx, script)
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("%s: %s: %w: %s", n.name, firstLine(script), err, lastLines(out.String()+errOut.String(), 12))
	}
	return out.String(), nil
}

// logged runs a script, whose output goes to a file, and into the error if it fails.
func (c *cluster) logged(ctx context.Context, n *node, script string) error {
	log, err := logFile(filepath.Join(c.place, "log", "commands.log"))
	if err != nil {
		return err
	}
	defer log.Close()
	fmt.Fprintf(log, "\n[%s %s]\n%s\n---\n", n.name, time.Now().Format(time.TimeOnly), script)
	var out bytes.Buffer
	cmd := n.command(ctx, script)
	both := io.MultiWriter(&out, log)
	// kubeadm asks for confirmation before it upgrades.
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader("y\n"), both, both
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %s: %w\n%s", n.name, firstLine(script), err, lastLines(out.String(), 30))
	}
	return nil
}

// shell runs a script outside the nodes.
func shell(ctx context.Context, output io.Writer, script string) error {
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, "bash", "-euc", script)
	cmd.Stdout, cmd.Stderr = &out, &out
	if output != nil {
		cmd.Stdout = output
	}
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w: %s", firstLine(script), err, lastLines(out.String(), 12))
	}
	return nil
}

func firstLine(text string) string {
	line, more, _ := strings.Cut(strings.TrimSpace(text), "\n")
	if more != "" {
		line += " …"
	}
	return line
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
