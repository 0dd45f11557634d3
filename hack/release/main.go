// Command release writes the files of a release: `make release N=1`.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/flotilla-kube/flotilla/hack/release/bundle"
)

func main() {
	version := flag.String("version", "", "v<Kubernetes version>-flotilla.<n>")
	kubernetes := flag.String("kubernetes", "", "the Kubernetes version in go.mod")
	platforms := flag.String("platforms", "linux/amd64", "platforms, separated by spaces or commas")
	ldflags := flag.String("ldflags", "", "flags of the linker")
	out := flag.String("out", "_output/release", "the output directory, which is emptied first")
	twice := flag.Bool("twice", false, "make everything twice, and fail if any byte differs")
	flag.Parse()
	if err := release(*version, *kubernetes, *platforms, *ldflags, *out, *twice); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func release(version, kubernetes, platforms, ldflags, out string, twice bool) error {
	if err := bundle.CheckVersion(version, kubernetes); err != nil {
		return err
	}
	files, err := build(version, platforms, ldflags)
	if err != nil {
		return err
	}
	if twice {
		again, err := build(version, platforms, ldflags)
		if err != nil {
			return err
		}
		for name := range files {
			if !bytes.Equal(files[name], again[name]) {
				err = errors.Join(err, fmt.Errorf("%s: two builds differ", name))
			}
		}
		if err != nil {
			return err
		}
		fmt.Printf("release: %d files are the same in two builds\n", len(files))
	}
	if err := errors.Join(os.RemoveAll(out), os.MkdirAll(out, 0o755)); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := os.WriteFile(filepath.Join(out, name), files[name], 0o644); err != nil {
			return err
		}
		fmt.Printf("%11d  %s\n", len(files[name]), filepath.Join(out, name))
	}
	return nil
}

// build runs in the repository's root.
func build(version, platforms, ldflags string) (map[string][]byte, error) {
	at, err := commitTime()
	if err != nil {
		return nil, err
	}
	in := bundle.Input{Version: version, At: at, Binaries: map[bundle.Platform][]byte{}, Root: imageRoot, Chart: "deploy/chart"}
	for name, text := range map[string]*string{"deploy/image/Dockerfile": &in.Dockerfile, "LICENSE": &in.License} {
		content, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		*text = string(content)
	}
	for _, name := range strings.FieldsFunc(platforms, func(r rune) bool { return r == ' ' || r == ',' }) {
		goos, goarch, ok := strings.Cut(name, "/")
		if !ok {
			return nil, fmt.Errorf("platform %q: must be OS/ARCH, for example linux/amd64", name)
		}
		if in.Binaries[bundle.Platform{OS: goos, Arch: goarch}], err = compile(goos, goarch, ldflags); err != nil {
			return nil, err
		}
	}
	return bundle.Release(in)
}

// commitTime returns SOURCE_DATE_EPOCH, or the time of the commit.
func commitTime() (time.Time, error) {
	text := os.Getenv("SOURCE_DATE_EPOCH")
	if text == "" {
		out, err := exec.Command("git", "log", "-1", "--format=%ct").Output()
		if err != nil {
			return time.Time{}, fmt.Errorf("git log: %w (set SOURCE_DATE_EPOCH where there is no git)", err)
		}
		text = strings.TrimSpace(string(out))
	}
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH %q: must be seconds since 1970", text)
	}
	return time.Unix(seconds, 0), nil
}

func compile(goos, goarch, ldflags string) ([]byte, error) {
	dir, err := os.MkdirTemp("", "release")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	fmt.Printf("release: compiling for %s/%s\n", goos, goarch)
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags", ldflags, "-o", filepath.Join(dir, "flotilla"), "./cmd/flotilla")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+goos, "GOARCH="+goarch)
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("go build for %s/%s: %w", goos, goarch, err)
	}
	return os.ReadFile(filepath.Join(dir, "flotilla"))
}

// imageRoot runs the image's own script to lay out its file system.
func imageRoot(binary []byte) ([]bundle.File, error) {
	dir, err := os.MkdirTemp("", "release")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	file, root := filepath.Join(dir, "flotilla"), filepath.Join(dir, "root")
	if err := os.WriteFile(file, binary, 0o755); err != nil {
		return nil, err
	}
	if out, err := exec.Command("deploy/image/rootfs.sh", file, root).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("deploy/image/rootfs.sh: %w\n%s", err, out)
	}
	return bundle.Folder(root, "", true)
}
