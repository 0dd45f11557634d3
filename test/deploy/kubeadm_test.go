package deploy

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubeadm "k8s.io/kubernetes/cmd/kubeadm/app/apis/kubeadm"
	kubeadmscheme "k8s.io/kubernetes/cmd/kubeadm/app/apis/kubeadm/scheme"
	"k8s.io/kubernetes/cmd/kubeadm/app/constants"
	"k8s.io/kubernetes/cmd/kubeadm/app/phases/controlplane"
	"sigs.k8s.io/yaml"
)

// cidrFlags are the flags of a kubeadm cluster that assigns pod addresses.
var cidrFlags = []string{"--allocate-node-cidrs=true", "--cluster-cidr=10.244.0.0/16", "--service-cluster-ip-range=10.96.0.0/12"}

// clusterConfiguration is what kubeadm stores about such a cluster in the ConfigMap kubeadm-config.
const clusterConfiguration = `apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
kubernetesVersion: v1.37.1
networking:
  podSubnet: 10.244.0.0/16
  serviceSubnet: 10.96.0.0/12
`

// blocks returns the command blocks of a section of docs/install.md.
func blocks(t *testing.T, heading string) []string {
	t.Helper()
	_, part, found := strings.Cut(readFile(t, filepath.Join(root, "docs/install.md")), "\n## "+heading+"\n")
	if !found {
		t.Fatalf("docs/install.md has no part %q", heading)
	}
	part, _, _ = strings.Cut(part, "\n## ")
	var all []string
	for _, m := range regexp.MustCompile("(?s)```sh[^\n]*\n(.*?)\n```").FindAllStringSubmatch(part, -1) {
		all = append(all, m[1])
	}
	return all
}

// node is a folder that stands for a kubeadm node's /etc/kubernetes, with a log of what kubeadm was
// asked to do.
type node struct {
	etc, bin string
}

// newNode makes a node with kubeadm's manifest, and commands that stand in for a cluster and for
// kubeadm.
func newNode(t *testing.T) node {
	t.Helper()
	n := node{etc: t.TempDir(), bin: t.TempDir()}
	config := &kubeadm.ClusterConfiguration{}
	if err := runtime.DecodeInto(kubeadmscheme.Codecs.UniversalDecoder(), []byte(clusterConfiguration), config); err != nil {
		t.Fatal(err)
	}
	pod := controlplane.GetStaticPodSpecs(config, &kubeadm.APIEndpoint{}, nil)[stockName]
	manifest, err := yaml.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	for name, f := range map[string]struct {
		text string
		mode fs.FileMode
	}{
		filepath.Join(n.etc, "manifests/kube-controller-manager.yaml"): {string(manifest), 0o600},
		filepath.Join(n.etc, "kubeadm-config"):                         {clusterConfiguration, 0o600},
		filepath.Join(n.bin, "kubectl"): {fmt.Sprintf("#!/bin/sh\ncase \"$*\" in *'get configmap kubeadm-config -o jsonpath={.data.ClusterConfiguration}') exec cat %s;; esac\nexec %s \"$@\"\n",
			filepath.Join(n.etc, "kubeadm-config"), tool(t, "kubectl", "make tools")), 0o755},
		filepath.Join(n.bin, "kubeadm"): {fmt.Sprintf("#!/bin/sh\necho \"$*\" >> %s\n", filepath.Join(n.etc, "kubeadm.log")), 0o755},
	} {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(f.text), f.mode); err != nil {
			t.Fatal(err)
		}
	}
	return n
}

// run runs the blocks that contain one of the texts, in their order, as on the node.
func (n node) run(t *testing.T, all []string, texts ...string) {
	t.Helper()
	found := 0
	for _, block := range all {
		if !slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(block, text) }) {
			continue
		}
		found++
		command := exec.CommandContext(t.Context(), "bash", "-euc", "umask 022\n"+strings.ReplaceAll(block, "/etc/kubernetes", n.etc))
		command.Dir = root
		command.Env = append(os.Environ(), "PATH="+n.bin+string(os.PathListSeparator)+os.Getenv("PATH"))
		if out, err := command.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s\n%s", err, block, out)
		}
	}
	if found < len(texts) {
		t.Fatalf("%d of the blocks with %q are in docs/install.md", found, texts)
	}
}

// private requires that only the owner may read a file.
func (n node) private(t *testing.T, name string) {
	t.Helper()
	info, err := os.Stat(filepath.Join(n.etc, name))
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("%s has mode %o, want 600", name, info.Mode().Perm())
	}
}

// TestInstallOneNode follows docs/install.md on a control plane of one node, and back.
func TestInstallOneNode(t *testing.T) {
	n, all := newNode(t), blocks(t, "Static pods")
	stock := readFile(t, filepath.Join(n.etc, "manifests/kube-controller-manager.yaml"))
	n.run(t, all, "install -m 0600 /etc/kubernetes/manifests", "kubectl patch --local")
	for _, name := range []string{"kube-controller-manager.stock.yaml", "manifests/kube-controller-manager.yaml"} {
		n.private(t, name)
	}
	n.requireFlotilla(t, into[corev1.Pod](t, readFile(t, filepath.Join(n.etc, "manifests/kube-controller-manager.yaml")), "Pod"))
	n.run(t, all, "kube-controller-manager.next.yaml")
	n.private(t, "manifests/kube-controller-manager.yaml")
	if back := readFile(t, filepath.Join(n.etc, "manifests/kube-controller-manager.yaml")); back != stock {
		t.Errorf("the way back leads to\n%s", back)
	}
}

// TestInstallSeveralNodes follows docs/install.md on one of several nodes. The configuration for
// kubeadm must keep the cluster's flags.
func TestInstallSeveralNodes(t *testing.T) {
	n, all := newNode(t), blocks(t, "Static pods")
	n.run(t, all, "install -m 0600 /etc/kubernetes/manifests", "get configmap kubeadm-config")
	for _, name := range []string{"kube-controller-manager.stock.yaml", "kubeadm-flotilla.yaml", "patches/kube-controller-manager+strategic.yaml"} {
		n.private(t, name)
	}
	given := readFile(t, filepath.Join(n.etc, "kubeadm-flotilla.yaml"))
	_, second, _ := strings.Cut(given, "\n---\n")
	init := &kubeadm.InitConfiguration{}
	if err := runtime.DecodeInto(kubeadmscheme.Codecs.UniversalDecoder(), []byte(second), init); err != nil {
		t.Fatalf("%v\n%s", err, given)
	}
	if init.Patches == nil || init.Patches.Directory != filepath.Join(n.etc, "patches") {
		t.Errorf("kubeadm finds no patches: %+v\n%s", init.Patches, given)
	}
	n.requireFlotilla(t, kubeadmPod(t, []byte(given)))
	n.run(t, all, "upload-config kubeadm", "--patches "+"/etc/kubernetes/patches")
	config := filepath.Join(n.etc, "kubeadm-flotilla.yaml")
	want := fmt.Sprintf("init phase upload-config kubeadm --config %[1]s\nupgrade apply %[2]s --patches %[3]s\nupgrade node --patches %[3]s\n", config, "v1.37.1", filepath.Join(n.etc, "patches"))
	if log := readFile(t, filepath.Join(n.etc, "kubeadm.log")); log != want {
		t.Errorf("kubeadm was given\n%swant\n%s", log, want)
	}
}

// requireFlotilla requires the fleet's image, a readiness probe, and the cluster's flags.
func (n node) requireFlotilla(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	c := pod.Spec.Containers[0]
	if c.Image != imageReference(t) || c.ReadinessProbe == nil || c.ReadinessProbe.HTTPGet.Path != "/readyz" {
		t.Errorf("image %q, readiness probe %v", c.Image, c.ReadinessProbe)
	}
	for _, flag := range cidrFlags {
		if !slices.Contains(c.Command, flag) {
			t.Errorf("no %s in %q", flag, c.Command)
		}
	}
}

// TestInstallKeepsFlags applies the kustomization of docs/install.md: the overlay with flags added.
func TestInstallKeepsFlags(t *testing.T) {
	all := blocks(t, "Before you begin")
	i := slices.IndexFunc(all, func(block string) bool { return strings.Contains(block, "kustomization.yaml") })
	if i < 0 {
		t.Fatal("docs/install.md has no kustomization")
	}
	dir := t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, "deploy"), os.DirFS(filepath.Join(root, "deploy"))); err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), "bash", "-euc", all[i])
	command.Dir = dir
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	rendered, errOut, err := run(t, "", tool(t, "kubectl", "make tools"), "kustomize", filepath.Join(dir, "my-fleet"))
	if err != nil {
		t.Fatalf("%v\n%s", err, errOut)
	}
	args := into[appsv1.StatefulSet](t, rendered, "StatefulSet").Spec.Template.Spec.Containers[0].Args
	plain := into[appsv1.StatefulSet](t, kustomize(t, selfHosted), "StatefulSet").Spec.Template.Spec.Containers[0].Args
	if !slices.Equal(args, append(slices.Clone(plain), cidrFlags...)) {
		t.Errorf("the members have %q", args)
	}
}

// TestPauseImage checks that the image that the page tells a reader to run is the one on kubeadm's
// nodes.
func TestPauseImage(t *testing.T) {
	text := readFile(t, filepath.Join(root, "docs/install.md"))
	images := regexp.MustCompile(`registry\.k8s\.io/pause:\S+`).FindAllString(text, -1)
	if want := "registry.k8s.io/pause:" + constants.PauseVersion; len(images) == 0 || slices.ContainsFunc(images, func(image string) bool { return image != want }) {
		t.Errorf("docs/install.md has %q, kubeadm %s", images, want)
	}
}

// TestVolumePlugins checks that the folder where volume controllers look for plugins is mounted, so
// that they need not create it.
func TestVolumePlugins(t *testing.T) {
	const folder = "/usr/libexec/kubernetes/kubelet-plugins/volume/exec"
	for _, overlay := range []string{selfHosted, hosted} {
		spec := into[appsv1.StatefulSet](t, kustomize(t, overlay), "StatefulSet").Spec.Template.Spec
		mounts := spec.Containers[0].VolumeMounts
		i := slices.IndexFunc(mounts, func(m corev1.VolumeMount) bool { return m.MountPath == folder })
		if i < 0 || !slices.ContainsFunc(spec.Volumes, func(v corev1.Volume) bool { return v.Name == mounts[i].Name && v.EmptyDir != nil }) {
			t.Errorf("%s: nothing empty is mounted at %s: %v", overlay, folder, mounts)
		}
	}
}
