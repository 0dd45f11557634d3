package kubelet

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

type file struct {
	content []byte
	mode    fs.FileMode
}

// content maps the paths in a volume to its files.
type content map[string]file

// mountAll writes the container's volumes into the root.
func (w *worker) mountAll(ctx context.Context, c *corev1.Container, who identity) error {
	for _, mount := range c.VolumeMounts {
		i := slices.IndexFunc(w.pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == mount.Name })
		if i < 0 {
			return fmt.Errorf("volume %s: not in the pod", mount.Name)
		}
		if err := w.mount(ctx, w.pod.Spec.Volumes[i].VolumeSource, mount, who); err != nil {
			return fmt.Errorf("volume %s: %w", mount.Name, err)
		}
	}
	return nil
}

func (w *worker) mount(ctx context.Context, v corev1.VolumeSource, mount corev1.VolumeMount, who identity) error {
	at := filepath.Join(w.root, mount.MountPath)
	switch {
	case mount.SubPath != "" || mount.SubPathExpr != "":
		return errors.New("subPath is not supported")
	case v.HostPath != nil:
		if w.k.opts.Host == "" {
			return fmt.Errorf("hostPath %s: this node has no files", v.HostPath.Path)
		}
		return copyTree(filepath.Join(w.k.opts.Host, v.HostPath.Path), at, ptr.Deref(v.HostPath.Type, ""))
	case v.EmptyDir != nil:
		if err := os.MkdirAll(at, 0o777); err != nil {
			return err
		}
		return errors.Join(os.Chmod(at, 0o777|fs.ModeSetgid), who.own(at))
	}
	files, err := w.read(ctx, v)
	if err != nil {
		return err
	}
	// An earlier start may have left it.
	if err := os.RemoveAll(at); err != nil {
		return err
	}
	if err := os.MkdirAll(at, 0o755); err != nil {
		return err
	}
	for name, f := range files {
		path := filepath.Join(at, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, f.content, f.mode); err != nil {
			return err
		}
		// WriteFile's mode is subject to the umask.
		if err := errors.Join(os.Chmod(path, f.mode), who.own(path)); err != nil {
			return err
		}
	}
	return nil
}

// read returns the content of a volume that comes from the API server.
func (w *worker) read(ctx context.Context, v corev1.VolumeSource) (content, error) {
	files := content{}
	switch {
	case v.Secret != nil:
		return files, w.secret(ctx, files, v.Secret.SecretName, v.Secret.Items, v.Secret.DefaultMode, v.Secret.Optional)
	case v.ConfigMap != nil:
		return files, w.configMap(ctx, files, v.ConfigMap.Name, v.ConfigMap.Items, v.ConfigMap.DefaultMode)
	case v.DownwardAPI != nil:
		return files, w.downward(files, v.DownwardAPI.Items, v.DownwardAPI.DefaultMode)
	case v.Projected != nil:
		for _, s := range v.Projected.Sources {
			if err := w.source(ctx, files, s, v.Projected.DefaultMode); err != nil {
				return nil, err
			}
		}
		return files, nil
	default:
		return nil, errors.New("only secret, configMap, downwardAPI, projected, emptyDir and hostPath are supported")
	}
}

func (w *worker) source(ctx context.Context, files content, s corev1.VolumeProjection, mode *int32) error {
	switch {
	case s.ServiceAccountToken != nil:
		return w.token(ctx, files, s.ServiceAccountToken, mode)
	case s.ConfigMap != nil:
		return w.configMap(ctx, files, s.ConfigMap.Name, s.ConfigMap.Items, mode)
	case s.Secret != nil:
		return w.secret(ctx, files, s.Secret.Name, s.Secret.Items, mode, s.Secret.Optional)
	case s.DownwardAPI != nil:
		return w.downward(files, s.DownwardAPI.Items, mode)
	default:
		return errors.New("only secret, configMap, downwardAPI and serviceAccountToken are supported in a projected volume")
	}
}

func (w *worker) secret(ctx context.Context, files content, name string, items []corev1.KeyToPath, mode *int32, optional *bool) error {
	secret, err := w.k.client.CoreV1().Secrets(w.pod.Namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	return files.project(secret.Data, items, mode, ptr.Deref(optional, false))
}

func (w *worker) configMap(ctx context.Context, files content, name string, items []corev1.KeyToPath, mode *int32) error {
	config, err := w.k.client.CoreV1().ConfigMaps(w.pod.Namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	data := maps.Clone(config.BinaryData)
	if data == nil {
		data = map[string][]byte{}
	}
	for key, text := range config.Data {
		data[key] = []byte(text)
	}
	return files.project(data, items, mode, false)
}

// project adds the items from data, or all of data if there are no items.
func (files content) project(data map[string][]byte, items []corev1.KeyToPath, mode *int32, optional bool) error {
	if len(items) == 0 {
		for key := range data {
			items = append(items, corev1.KeyToPath{Key: key, Path: key})
		}
	}
	for _, item := range items {
		value, ok := data[item.Key]
		if !ok && !optional {
			return fmt.Errorf("references non-existent key %s", item.Key)
		}
		files[item.Path] = file{value, modeOf(item.Mode, mode)}
	}
	return nil
}

func (w *worker) downward(files content, items []corev1.DownwardAPIVolumeFile, mode *int32) error {
	for _, item := range items {
		if item.FieldRef == nil {
			return errors.New("resourceFieldRef is not supported")
		}
		value, err := w.field(item.FieldRef.FieldPath)
		if err != nil {
			return err
		}
		files[item.Path] = file{[]byte(value), modeOf(item.Mode, mode)}
	}
	return nil
}

// token requests a token that is bound to the pod, as a kubelet does.
func (w *worker) token(ctx context.Context, files content, p *corev1.ServiceAccountTokenProjection, mode *int32) error {
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: p.ExpirationSeconds,
		BoundObjectRef:    &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: w.pod.Name, UID: w.pod.UID},
	}}
	if p.Audience != "" {
		request.Spec.Audiences = []string{p.Audience}
	}
	accounts := w.k.client.CoreV1().ServiceAccounts(w.pod.Namespace)
	answer, err := accounts.CreateToken(ctx, w.pod.Spec.ServiceAccountName, request, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	files[p.Path] = file{[]byte(answer.Status.Token), modeOf(nil, mode)}
	return nil
}

func modeOf(own, common *int32) fs.FileMode {
	return fs.FileMode(ptr.Deref(own, ptr.Deref(common, 0o644)))
}
