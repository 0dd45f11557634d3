package kubelet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/pkg/fieldpath"
	"k8s.io/kubernetes/third_party/forked/golang/expansion"
)

// container has everything that is needed to start a container.
type container struct {
	spec *corev1.Container
	root string
	// path and dir are relative to the root.
	path, dir string
	// argv begins with the name by which the container calls its program.
	argv, env []string
	user      identity
}

// identity is the user and the groups of a process.
type identity struct {
	uid, gid int64
	groups   []int64
}

// prepare lays out the pod's root and resolves its container.
func (w *worker) prepare(ctx context.Context) (*container, error) {
	pod := w.pod
	if len(pod.Spec.Containers) != 1 || len(pod.Spec.InitContainers) > 0 {
		return nil, errors.New("only pods with one container and no init containers are supported")
	}
	spec := &pod.Spec.Containers[0]
	image, err := w.k.opts.Image(spec.Image)
	if err != nil {
		return nil, err
	}
	if w.status.address == "" {
		if w.status.address, err = addressOf(pod); err != nil {
			return nil, err
		}
	}
	user, err := identityOf(pod, spec, image)
	if err != nil {
		return nil, err
	}
	if err := layOut(image.Root, w.root); err != nil {
		return nil, err
	}
	if err := w.mountAll(ctx, spec, user); err != nil {
		return nil, err
	}
	c := &container{spec: spec, root: w.root, user: user, dir: "/"}
	if spec.WorkingDir != "" {
		c.dir = spec.WorkingDir
	}
	values, err := w.environment(ctx, spec, image)
	if err != nil {
		return nil, err
	}
	for name, value := range values {
		c.env = append(c.env, name+"="+value)
	}
	return c, c.resolve(image, values)
}

func addressOf(pod *corev1.Pod) (string, error) {
	if pod.Spec.HostNetwork {
		return hostIP, nil
	}
	return nextAddress()
}

// identityOf returns the process's identity from the container, else the pod, else the image.
func identityOf(pod *corev1.Pod, c *corev1.Container, image Image) (identity, error) {
	who, nonRoot := identity{uid: image.User}, false
	if s := pod.Spec.SecurityContext; s != nil {
		override(&who.uid, s.RunAsUser)
		override(&who.gid, s.RunAsGroup)
		nonRoot = s.RunAsNonRoot != nil && *s.RunAsNonRoot
		if s.FSGroup != nil {
			who.groups = append(who.groups, *s.FSGroup)
		}
	}
	if s := c.SecurityContext; s != nil {
		override(&who.uid, s.RunAsUser)
		override(&who.gid, s.RunAsGroup)
		nonRoot = nonRoot || s.RunAsNonRoot != nil && *s.RunAsNonRoot
	}
	if nonRoot && who.uid == 0 {
		return who, errors.New("container has runAsNonRoot and image will run as root")
	}
	return who, nil
}

func override(value *int64, by *int64) {
	if by != nil {
		*value = *by
	}
}

// resolve finds the program and its arguments. The container's command replaces the image's
// entrypoint.
func (c *container) resolve(image Image, values map[string]string) error {
	line := image.Entrypoint
	if len(c.spec.Command) > 0 {
		line = expandAll(c.spec.Command, values)
	}
	line = append(append([]string{}, line...), expandAll(c.spec.Args, values)...)
	if len(line) == 0 {
		return errors.New("neither the container nor the image says what to run")
	}
	path, err := c.find(line[0])
	c.path, c.argv = path, line
	return err
}

// find looks for an executable file in the root. A name without a slash is looked up in the
// container's PATH.
func (c *container) find(name string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	for _, entry := range c.env {
		list, ok := strings.CutPrefix(entry, "PATH=")
		for _, dir := range filepath.SplitList(list) {
			path := filepath.Join(dir, name)
			if info, err := os.Stat(filepath.Join(c.root, path)); ok && err == nil && info.Mode()&0o111 != 0 {
				return path, nil
			}
		}
	}
	return "", fmt.Errorf("exec: %q: executable file not found in $PATH", name)
}

// apply returns a function that puts a command into the container.
func (c *container) apply(argv []string) func(*exec.Cmd) {
	return func(cmd *exec.Cmd) {
		cmd.Args, cmd.Env, cmd.Dir = argv, c.env, c.dir
		confine(cmd, c.root, c.user)
	}
}

func expandAll(texts []string, values map[string]string) []string {
	var out []string
	for _, text := range texts {
		out = append(out, expansion.Expand(text, expansion.MappingFuncFor(values)))
	}
	return out
}

// environment resolves the container's variables. Each may refer to earlier ones.
func (w *worker) environment(ctx context.Context, c *corev1.Container, image Image) (map[string]string, error) {
	// Container engines and kubelets add these.
	values := map[string]string{
		"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOSTNAME": w.pod.Name,
		"KUBERNETES_SERVICE_HOST": w.k.host, "KUBERNETES_SERVICE_PORT": w.k.port,
	}
	for _, entry := range image.Env {
		name, value, _ := strings.Cut(entry, "=")
		values[name] = value
	}
	if len(c.EnvFrom) > 0 {
		return nil, errors.New("envFrom is not supported")
	}
	for _, v := range c.Env {
		value, err := w.value(ctx, v)
		if err != nil {
			return nil, fmt.Errorf("env %s: %w", v.Name, err)
		}
		values[v.Name] = expansion.Expand(value, expansion.MappingFuncFor(values))
	}
	return values, nil
}

func (w *worker) value(ctx context.Context, v corev1.EnvVar) (string, error) {
	from := v.ValueFrom
	switch {
	case from == nil:
		return v.Value, nil
	case from.FieldRef != nil:
		return w.field(from.FieldRef.FieldPath)
	case from.SecretKeyRef != nil:
		secret, err := w.k.client.CoreV1().Secrets(w.pod.Namespace).Get(ctx, from.SecretKeyRef.Name, metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		return string(secret.Data[from.SecretKeyRef.Key]), nil
	case from.ConfigMapKeyRef != nil:
		config, err := w.k.client.CoreV1().ConfigMaps(w.pod.Namespace).Get(ctx, from.ConfigMapKeyRef.Name, metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		return config.Data[from.ConfigMapKeyRef.Key], nil
	default:
		return "", errors.New("only fieldRef, secretKeyRef and configMapKeyRef are supported")
	}
}

// field returns a field of the pod, as the downward API names it.
func (w *worker) field(path string) (string, error) {
	switch path {
	case "spec.nodeName":
		return w.k.opts.Node, nil
	case "spec.serviceAccountName":
		return w.pod.Spec.ServiceAccountName, nil
	case "status.hostIP", "status.hostIPs":
		return hostIP, nil
	case "status.podIP", "status.podIPs":
		return w.status.address, nil
	default:
		return fieldpath.ExtractFieldPathAsString(w.pod, path)
	}
}
