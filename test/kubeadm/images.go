package main

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
)

// images are the archives that nodes have instead of a registry.
type images struct {
	dir, bin string
	// pause, flotilla, later and minor are references. later is another build, under the version
	// that docs/upgrade.md goes to. minor has other controllers, under the next minor version.
	pause, flotilla, later, minor string
	kubernetes                    string
	// everywhere and central are names of archives: for all nodes, and for the control plane only.
	everywhere, central []string
}

func (i *images) archives(controlPlane bool) []string {
	if controlPlane {
		return append(append([]string(nil), i.everywhere...), i.central...)
	}
	return i.everywhere
}

var flotillaImage = regexp.MustCompile(`image: (\S+/flotilla):(\S+)`)

// makeImages writes all archives. kubeadm lists the images that it requires.
func makeImages(ctx context.Context, dir, bin, later, minor string) (*images, error) {
	manifest, err := os.ReadFile("deploy/base/statefulset.yaml")
	if err != nil {
		return nil, err
	}
	match := flotillaImage.FindSubmatch(manifest)
	if match == nil {
		return nil, errors.New("deploy/base/statefulset.yaml names no image of flotilla")
	}
	i := &images{dir: dir, bin: bin, flotilla: string(match[1]) + ":" + string(match[2]), later: later, minor: minor}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	version, err := exec.CommandContext(ctx, filepath.Join(bin, "kubeadm"), "version", "-o", "short").Output()
	if err != nil {
		return nil, fmt.Errorf("bin/kubeadm (make tools builds what is named): %w", err)
	}
	i.kubernetes = strings.TrimSpace(string(version))
	list, err := exec.CommandContext(ctx, filepath.Join(bin, "kubeadm"), "config", "images", "list", "--kubernetes-version", i.kubernetes).Output()
	if err != nil {
		return nil, err
	}
	for _, reference := range strings.Fields(string(list)) {
		if err := i.stock(ctx, reference); err != nil {
			return nil, fmt.Errorf("image %s: %w", reference, err)
		}
	}
	if i.pause == "" {
		return nil, fmt.Errorf("kubeadm names no image of pause: %q", list)
	}
	for _, f := range []struct{ reference, binary, env string }{
		{i.flotilla, "flotilla", ""}, {i.later, "earlier/flotilla", ""},
		// pkg/controllers/catalogue/other_on.go reads this variable to pose as another version.
		{i.minor, "planted/flotilla", "FLOTILLA_CATALOGUE=later"},
	} {
		if err := i.fleet(ctx, f.reference, filepath.Join(bin, f.binary), f.env); err != nil {
			return nil, fmt.Errorf("image %s: %w", f.reference, err)
		}
	}
	return i, nil
}

// stock makes one of the images that kubeadm would have its nodes pull.
func (i *images) stock(ctx context.Context, reference string) error {
	name, _, _ := strings.Cut(reference[strings.LastIndexByte(reference, '/')+1:], ":")
	root := filepath.Join(i.dir, "root", name)
	defer os.RemoveAll(root)
	var entrypoint []string
	switch name {
	case "pause", "coredns":
		// Nothing here needs DNS, so its image only pauses.
		entrypoint = []string{"/pause"}
		build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", filepath.Join(root, "pause"), "./test/kubeadm/pause")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
	case "kube-proxy":
		if err := withLibraries(root, i.bin, "nft"); err != nil {
			return err
		}
		fallthrough
	default:
		if err := link(filepath.Join(i.bin, name), filepath.Join(root, "usr/local/bin", name)); err != nil {
			return err
		}
	}
	switch name {
	case "pause":
		i.pause = reference
		i.everywhere = append(i.everywhere, name+".tar")
	case "kube-proxy", "coredns":
		i.everywhere = append(i.everywhere, name+".tar")
	default:
		i.central = append(i.central, name+".tar")
	}
	return writeArchive(filepath.Join(i.dir, name+".tar"), reference, root, "", entrypoint)
}

// fleet makes an image of flotilla as deploy/image does. It sets the environment variable env, if
// there is one.
func (i *images) fleet(ctx context.Context, reference, binary, env string) error {
	_, tag, _ := strings.Cut(reference, ":")
	root, name := filepath.Join(i.dir, "root", tag), "flotilla-"+tag+".tar"
	defer os.RemoveAll(root)
	if out, err := exec.CommandContext(ctx, "deploy/image/rootfs.sh", binary, root).CombinedOutput(); err != nil {
		return fmt.Errorf("rootfs.sh: %w: %s", err, out)
	}
	i.everywhere = append(i.everywhere, name)
	return writeArchive(filepath.Join(i.dir, name), reference, root, env, []string{"/usr/local/bin/flotilla"})
}

// link makes a hard link, or a copy if the two names are on different file systems.
func link(from, to string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	if os.Link(from, to) == nil {
		return nil
	}
	return copyFile(from, to)
}

func copyFile(from, to string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, content, 0o755)
}

// withLibraries copies a program of this machine or of bin/debian into an image, with the libraries
// that it loads.
func withLibraries(root, bin, program string) error {
	tops := []string{filepath.Join(bin, "debian"), "/"}
	binary, err := find(tops, []string{"usr/sbin", "usr/bin"}, program)
	if err != nil {
		return err
	}
	if err := copyFile(binary, filepath.Join(root, "usr/sbin", program)); err != nil {
		return err
	}
	tuple := map[string]string{"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}[runtime.GOARCH]
	folders := []string{"usr/lib/" + tuple, "lib/" + tuple, "usr/lib64", "lib64", "usr/lib", "lib"}
	return withImports(root, tops, folders, binary, map[string]bool{})
}

func withImports(root string, tops, folders []string, binary string, seen map[string]bool) error {
	file, err := elf.Open(binary)
	if err != nil {
		return fmt.Errorf("%s: %w", binary, err)
	}
	defer file.Close()
	names, err := file.ImportedLibraries()
	if err != nil {
		return err
	}
	if interp := file.Section(".interp"); interp != nil {
		loader, err := interp.Data()
		if err != nil {
			return err
		}
		path := strings.TrimRight(string(loader), "\x00")
		if err := copyFile(path, filepath.Join(root, path)); err != nil {
			return err
		}
	}
	for _, name := range names {
		if seen[name] {
			continue
		}
		seen[name] = true
		library, err := find(tops, folders, name)
		if err != nil {
			return err
		}
		// The loader searches here without a configuration.
		if err := copyFile(library, filepath.Join(root, "usr/lib", name)); err != nil {
			return err
		}
		if err := withImports(root, tops, folders, library, seen); err != nil {
			return err
		}
	}
	return nil
}

func find(tops, folders []string, name string) (string, error) {
	for _, top := range tops {
		for _, folder := range folders {
			path := filepath.Join(top, folder, name)
			if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
				return path, nil
			}
		}
	}
	return "", fmt.Errorf("no %s in %v of %v", name, folders, tops)
}

// descriptor names a blob of an OCI archive.
type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int64             `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

const mediaType = "application/vnd.oci.image."

// writeArchive writes an OCI archive of one image with one layer, the folder root.
func writeArchive(path, reference, root, env string, entrypoint []string) (err error) {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	layer, err := os.CreateTemp(filepath.Dir(path), "layer")
	if err != nil {
		return err
	}
	defer os.Remove(layer.Name())
	defer layer.Close()
	sum := sha256.New()
	if err := writeLayer(io.MultiWriter(layer, sum), root); err != nil {
		return err
	}
	size, err := layer.Seek(0, io.SeekCurrent)
	if err != nil {
		return err
	}
	layers := []descriptor{{mediaType + "layer.v1.tar", "sha256:" + hex.EncodeToString(sum.Sum(nil)), size, nil}}
	a := archive{w: tar.NewWriter(file)}
	if _, err := layer.Seek(0, io.SeekStart); err != nil {
		return err
	}
	a.add(blob(layers[0].Digest), layer, size)
	variables := []string{"PATH=/usr/local/bin:/usr/sbin:/usr/bin"}
	if env != "" {
		variables = append(variables, env)
	}
	config := a.addJSON("config.v1+json", map[string]any{
		"architecture": runtime.GOARCH, "os": "linux", "config": map[string]any{"Env": variables, "Entrypoint": entrypoint},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{layers[0].Digest}},
	})
	manifest := a.addJSON("manifest.v1+json", map[string]any{
		"schemaVersion": 2, "mediaType": mediaType + "manifest.v1+json", "config": config, "layers": layers,
	})
	manifest.Annotations = map[string]string{"io.containerd.image.name": reference}
	index, _ := json.Marshal(map[string]any{"schemaVersion": 2, "mediaType": mediaType + "index.v1+json", "manifests": []descriptor{manifest}}) // Strings and numbers always marshal.
	a.addText("index.json", string(index))
	a.addText("oci-layout", `{"imageLayoutVersion":"1.0.0"}`)
	return errors.Join(a.err, a.w.Close())
}

// archive writes to a tar file until the first error.
type archive struct {
	w   *tar.Writer
	err error
}

func blob(digest string) string { return "blobs/" + strings.Replace(digest, ":", "/", 1) }

func (a *archive) add(name string, content io.Reader, size int64) {
	if a.err != nil {
		return
	}
	if a.err = a.w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: size}); a.err == nil {
		_, a.err = io.Copy(a.w, content)
	}
}

func (a *archive) addText(name, text string) {
	a.add(name, strings.NewReader(text), int64(len(text)))
}

func (a *archive) addJSON(kind string, x any) descriptor {
	text, err := json.Marshal(x)
	a.err = errors.Join(a.err, err)
	sum := sha256.Sum256(text)
	d := descriptor{mediaType + kind, "sha256:" + hex.EncodeToString(sum[:]), int64(len(text)), nil}
	a.addText(blob(d.Digest), string(text))
	return d
}

// writeLayer writes a folder's contents, owned by root.
func writeLayer(out io.Writer, root string) error {
	w := tar.NewWriter(out)
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || path == root {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		target := ""
		if entry.Type()&fs.ModeSymlink != 0 {
			if target, err = os.Readlink(path); err != nil {
				return err
			}
		}
		header, err := tar.FileInfoHeader(info, target)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		header.Name, header.Uid, header.Gid, header.Uname, header.Gname = rel, 0, 0, "", ""
		if err := w.WriteHeader(header); err != nil || !info.Mode().IsRegular() {
			return err
		}
		file, err := os.Open(path)
		if err != nil {
			return err
		}
		defer file.Close()
		_, err = io.Copy(w, file)
		return err
	})
	return errors.Join(err, w.Close())
}
