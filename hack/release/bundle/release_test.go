package bundle

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"debug/buildinfo"
	"debug/elf"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"sigs.k8s.io/yaml"
)

const (
	root    = "../../.."
	version = "v1.37.1-flotilla.7"
)

var (
	amd64 = Platform{"linux", "amd64"}
	arm64 = Platform{"linux", "arm64"}
	mac   = Platform{"darwin", "arm64"}
)

// stub compiles a program that does nothing. The linker records its modules and its platform.
func stub(p Platform) ([]byte, error) {
	dir, err := os.MkdirTemp("", "stub")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	for name, text := range map[string]string{"go.mod": "module stub\n", "main.go": "package main\n\nfunc main() {}\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return nil, err
		}
	}
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-o", "stub", ".")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+p.OS, "GOARCH="+p.Arch, "GOFLAGS=", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%v: %w\n%s", cmd, err, out)
	}
	return os.ReadFile(filepath.Join(dir, "stub"))
}

var stubs = sync.OnceValues(func() (map[Platform][]byte, error) {
	all := map[Platform][]byte{}
	for _, p := range []Platform{amd64, arm64, mac} {
		var err error
		if all[p], err = stub(p); err != nil {
			return nil, err
		}
	}
	return all, nil
})

func input(t *testing.T) Input {
	t.Helper()
	binaries, err := stubs()
	if err != nil {
		t.Fatal(err)
	}
	return Input{
		Version: version, At: time.Unix(1_800_000_000, 0), Chart: filepath.Join(root, "deploy/chart"),
		Binaries:   maps.Clone(binaries),
		Dockerfile: string(read(t, filepath.Join(root, "deploy/image/Dockerfile"))), License: "Apache-2.0",
		Root: func(binary []byte) ([]File, error) {
			return []File{{Name: "usr/local/bin/flotilla", Mode: 0o755, Content: binary}, {Name: "usr/local/bin/kube-controller-manager", Link: "flotilla"}}, nil
		},
	}
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	content, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func release(t *testing.T, in Input) map[string][]byte {
	t.Helper()
	files, err := Release(in)
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// untar returns the files of an archive, and its headers.
func untar(t *testing.T, content []byte) (map[string][]byte, []*tar.Header) {
	t.Helper()
	if z, err := gzip.NewReader(bytes.NewReader(content)); err == nil {
		if !z.ModTime.IsZero() || z.Name != "" {
			t.Errorf("the header of gzip has the name %q and the time %v", z.Name, z.ModTime)
		}
		if content, err = io.ReadAll(z); err != nil {
			t.Fatal(err)
		}
	}
	files, headers := map[string][]byte{}, []*tar.Header{}
	for r := tar.NewReader(bytes.NewReader(content)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files, headers
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files[h.Name], headers = text, append(headers, h)
	}
}

// TestSameBytes makes a release twice, from two clones of the chart whose files have different
// times and modes.
func TestSameBytes(t *testing.T) {
	in := input(t)
	first := release(t, in)
	chart, err := Folder(in.Chart, "", false)
	if err != nil {
		t.Fatal(err)
	}
	in.Chart = t.TempDir()
	for _, f := range slices.Backward(chart) {
		name := filepath.Join(in.Chart, f.Name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(name, f.Content, 0o600), os.Chtimes(name, time.Time{}, time.Unix(1, 0))); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("TZ", "Asia/Tokyo")
	second := release(t, in)
	if len(first) != 10 || len(second) != len(first) {
		t.Errorf("%d and %d files, want 10", len(first), len(second))
	}
	for name := range first {
		if !bytes.Equal(first[name], second[name]) {
			t.Errorf("%s differs between two builds", name)
		}
	}
	for name, content := range first {
		if !strings.HasSuffix(name, "gz") && !strings.HasSuffix(name, ".tar") {
			continue
		}
		_, headers := untar(t, content)
		for _, h := range headers {
			if h.Uid != 0 || h.Gid != 0 || h.Uname != "" || !h.ModTime.Equal(in.At) {
				t.Errorf("%s: %s is of %d:%d %q at %v", name, h.Name, h.Uid, h.Gid, h.Uname, h.ModTime)
			}
		}
	}
}

// TestChecksums requires a correct checksum of every file.
func TestChecksums(t *testing.T) {
	files := release(t, input(t))
	lines := 0
	for line := range strings.Lines(string(files["SHA256SUMS"])) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		if files[name] == nil || "sha256:"+sum != digest(files[name]) {
			t.Errorf("SHA256SUMS: %q is not the sum of %q", sum, name)
		}
		lines++
	}
	if lines != len(files)-1 {
		t.Errorf("SHA256SUMS has %d lines for %d files", lines, len(files))
	}
}

// TestChart checks the packaged chart.
func TestChart(t *testing.T) {
	files, _ := untar(t, release(t, input(t))["flotilla-1.37.1-flotilla.7.tgz"])
	var chart struct{ Version, AppVersion, Name string }
	if err := yaml.Unmarshal(files["flotilla/Chart.yaml"], &chart); err != nil {
		t.Fatal(err)
	}
	if chart.Version != "1.37.1-flotilla.7" || chart.AppVersion != version || chart.Name != "flotilla" {
		t.Errorf("Chart.yaml: %+v", chart)
	}
	for _, name := range []string{"values.yaml", "values.schema.json", "templates/statefulset.yaml", "templates/NOTES.txt", "files/monitoring/alerts.yaml", "files/shadow/rbac.yaml"} {
		if len(files["flotilla/"+name]) == 0 {
			t.Errorf("%s is not in the package", name)
		}
	}
}

// TestBinariesAreOfTheirPlatforms requires that a release with swapped binaries is refused.
func TestBinariesAreOfTheirPlatforms(t *testing.T) {
	in := input(t)
	in.Binaries[amd64], in.Binaries[arm64] = in.Binaries[arm64], in.Binaries[amd64]
	if _, err := Release(in); err == nil || !strings.Contains(err.Error(), "linux/amd64: the binary is for linux/arm64") {
		t.Errorf("the error is %v", err)
	}
}

// TestSBOMOfBinary reads a real binary. A test's binary has no modules but Go's own.
func TestSBOMOfBinary(t *testing.T) {
	content := release(t, input(t))["flotilla-"+version+"-linux-amd64.cdx.json"]
	if !bytes.Contains(content, []byte(`"pkg:golang/std@1.`)) {
		t.Errorf("Go's release is missing: %s", content)
	}
}

// TestSBOM requires the modules that the linker has recorded, with their checksums, and for a
// replaced module its replacement.
func TestSBOM(t *testing.T) {
	info := &debug.BuildInfo{GoVersion: "go1.26.8", Main: debug.Module{Path: "github.com/flotilla-kube/flotilla", Version: "(devel)"}}
	wanted := map[string]string{} // checksum by module
	for line := range strings.Lines(string(read(t, filepath.Join(root, "go.sum")))) {
		words := strings.Fields(line)
		if strings.HasSuffix(words[1], "/go.mod") {
			continue
		}
		m := &debug.Module{Path: words[0], Version: words[1], Sum: words[2]}
		wanted[purl(m.Path, m.Version)] = m.Sum
		if m.Path == "k8s.io/api" {
			m = &debug.Module{Path: m.Path, Version: "v0.0.0", Replace: m}
		}
		info.Deps = append(info.Deps, m)
	}
	content, err := materials(info, []byte("binary"), version, time.Unix(1_800_000_000, 0))
	if err != nil {
		t.Fatal(err)
	}
	var bom struct {
		BOMFormat, SpecVersion string
		Metadata               struct{ Component component }
		Components             []component
	}
	if err := json.Unmarshal(content, &bom); err != nil {
		t.Fatal(err)
	}
	main := bom.Metadata.Component
	if bom.BOMFormat != "CycloneDX" || main.Version != version || len(main.Hashes) != 1 || "sha256:"+main.Hashes[0].Content != digest([]byte("binary")) {
		t.Errorf("%s %s of %+v", bom.BOMFormat, bom.SpecVersion, main)
	}
	refs := map[string]bool{}
	for _, c := range bom.Components {
		if refs[c.Ref] || c.Version == "" || c.PURL == "" {
			t.Errorf("%+v is listed twice, or lacks a field", c)
		}
		refs[c.Ref] = true
		for _, p := range c.Properties {
			if p.Name == "flotilla:go:sum" && wanted[c.Ref] != p.Value {
				t.Errorf("%s: sum %s, want %s", c.Ref, p.Value, wanted[c.Ref])
			}
		}
	}
	if len(refs) != len(info.Deps)+1 || len(refs) < 50 {
		t.Errorf("%d components of %d modules and Go", len(refs), len(info.Deps))
	}
	for ref := range wanted {
		if !refs[ref] {
			t.Errorf("%s is missing", ref)
		}
	}
}

// TestOCI follows every digest of the image, as a runtime would.
func TestOCI(t *testing.T) {
	in := input(t)
	files, _ := untar(t, release(t, in)["flotilla-"+version+"-image.oci.tar"])
	get := func(d descriptor, into any) []byte {
		content := files["blobs/"+strings.Replace(d.Digest, ":", "/", 1)]
		if digest(content) != d.Digest || len(content) != d.Size {
			t.Errorf("%s: %d bytes with the digest %s, want %d and %s", d.MediaType, len(content), digest(content), d.Size, d.Digest)
		}
		if into != nil {
			if err := json.Unmarshal(content, into); err != nil {
				t.Fatal(err)
			}
		}
		return content
	}
	var top, index struct{ Manifests []descriptor }
	if err := json.Unmarshal(files["index.json"], &top); err != nil || len(top.Manifests) != 1 {
		t.Fatalf("index.json: %v %s", err, files["index.json"])
	}
	get(top.Manifests[0], &index)
	if len(index.Manifests) != 2 {
		t.Fatalf("the image has %d platforms, want linux/amd64 and linux/arm64", len(index.Manifests))
	}
	for i, p := range []Platform{amd64, arm64} {
		var manifest struct {
			Config descriptor
			Layers []descriptor
		}
		var config struct {
			OS, Architecture string
			Config           struct{ Env, Entrypoint []string }
			RootFS           struct {
				DiffIDs []string `json:"diff_ids"`
			}
		}
		get(index.Manifests[i], &manifest)
		get(manifest.Config, &config)
		if config.OS != p.OS || config.Architecture != p.Arch || index.Manifests[i].Platform["architecture"] != p.Arch {
			t.Errorf("platform %d is %s/%s, want %s", i, config.OS, config.Architecture, p)
		}
		if !slices.Equal(config.Config.Entrypoint, []string{"/usr/local/bin/flotilla"}) || len(config.Config.Env) != 1 {
			t.Errorf("%s is started with %+v, want what the Dockerfile says", p, config.Config)
		}
		z, err := gzip.NewReader(bytes.NewReader(get(manifest.Layers[0], nil)))
		if err != nil {
			t.Fatal(err)
		}
		plain, err := io.ReadAll(z)
		if err != nil {
			t.Fatal(err)
		}
		if digest(plain) != config.RootFS.DiffIDs[0] {
			t.Errorf("%s: the layer is %s, the configuration says %s", p, digest(plain), config.RootFS.DiffIDs[0])
		}
		layer, headers := untar(t, plain)
		machine := map[Platform]elf.Machine{amd64: elf.EM_X86_64, arm64: elf.EM_AARCH64}[p]
		file, err := elf.NewFile(bytes.NewReader(layer["usr/local/bin/flotilla"]))
		if err != nil {
			t.Fatalf("%s: the binary in the image: %v", p, err)
		}
		if file.Machine != machine {
			t.Errorf("%s: the binary in the image is for %v, want %v", p, file.Machine, machine)
		}
		for _, h := range headers {
			if h.Name == "usr/local/bin/kube-controller-manager" && h.Linkname != "flotilla" {
				t.Errorf("%s: kube-controller-manager links to %q", p, h.Linkname)
			}
		}
	}
}

// TestKrew compares the krew manifest with the archives.
func TestKrew(t *testing.T) {
	files := release(t, input(t))
	var manifest struct {
		Spec struct {
			Version   string
			Platforms []struct {
				Selector    struct{ MatchLabels map[string]string }
				URI, SHA256 string
				Bin         string
			}
		}
	}
	if err := yaml.UnmarshalStrict(files["flotilla-krew.yaml"], &map[string]any{}); err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(files["flotilla-krew.yaml"], &manifest); err != nil {
		t.Fatal(err)
	}
	if len(manifest.Spec.Platforms) != 3 || manifest.Spec.Version != version {
		t.Errorf("%d platforms of %s", len(manifest.Spec.Platforms), manifest.Spec.Version)
	}
	for _, p := range manifest.Spec.Platforms {
		archive := files[p.URI[strings.LastIndex(p.URI, "/")+1:]]
		if _, err := hex.DecodeString(p.SHA256); err != nil || "sha256:"+p.SHA256 != digest(archive) {
			t.Errorf("%s: %s is not the sum of the archive", p.URI, p.SHA256)
		}
		content, _ := untar(t, archive)
		info, err := buildinfo.Read(bytes.NewReader(content[p.Bin]))
		if err != nil {
			t.Fatalf("%s, %s: %v", p.URI, p.Bin, err)
		}
		for key, want := range map[string]string{"GOOS": p.Selector.MatchLabels["os"], "GOARCH": p.Selector.MatchLabels["arch"]} {
			if !slices.ContainsFunc(info.Settings, func(s debug.BuildSetting) bool { return s.Key == key && s.Value == want }) {
				t.Errorf("%s is given to %v, and is not for %s", p.URI, p.Selector.MatchLabels, want)
			}
		}
	}
}

// TestMatrix requires the version in go.mod in the table of versions, in the chart, and in the
// changelog.
func TestMatrix(t *testing.T) {
	match := regexp.MustCompile(`(?m)^\s+k8s\.io/kubernetes (v1\.\d+\.\d+)$`).FindSubmatch(read(t, filepath.Join(root, "go.mod")))
	if match == nil {
		t.Fatal("go.mod requires no k8s.io/kubernetes")
	}
	kubernetes := string(match[1])
	for name, want := range map[string]string{
		"docs/upgrade.md":         "| `" + kubernetes + "-flotilla.N` | Kubernetes " + kubernetes + " | 1.",
		"deploy/chart/Chart.yaml": "\nversion: " + kubernetes[1:] + "-flotilla.0\nappVersion: " + kubernetes + "\n",
		"CHANGELOG.md":            "for Kubernetes " + kubernetes[1:] + "\n",
	} {
		if !strings.Contains(string(read(t, filepath.Join(root, name))), want) {
			t.Errorf("%s does not have %q", name, want)
		}
	}
}

func TestCheckVersion(t *testing.T) {
	for version, ok := range map[string]bool{
		"v1.37.1-flotilla.0": true, "v1.37.1-flotilla.12": true, "v1.37.1": false, "v1.37.2-flotilla.1": false,
		"v1.37.1-flotilla.01": false, "1.37.1-flotilla.1": false, "v1x37.1-flotilla.1": false,
	} {
		if err := CheckVersion(version, "v1.37.1"); (err == nil) != ok || err != nil && !strings.Contains(err.Error(), version) {
			t.Errorf("%s: %v, want it accepted: %t", version, err, ok)
		}
	}
}
