package bundle

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Input is the input of a release.
type Input struct {
	// Version is v<Kubernetes version>-flotilla.<n>.
	Version string
	// At is the time of the commit.
	At time.Time
	// Binaries are the command's binaries, by platform.
	Binaries map[Platform][]byte
	// Root lays out the image's file system around a binary.
	Root func(binary []byte) ([]File, error)
	// Chart is the chart's directory; Dockerfile and License are texts.
	Chart, Dockerfile, License string
}

// CheckVersion returns an error unless a version belongs to a Kubernetes version.
func CheckVersion(version, kubernetes string) error {
	if !regexp.MustCompile(`^` + regexp.QuoteMeta(kubernetes) + `-flotilla\.(0|[1-9][0-9]*)$`).MatchString(version) {
		return fmt.Errorf("version %q: must be %s-flotilla.N with a number N, as the controllers are those of Kubernetes %s", version, kubernetes, kubernetes)
	}
	return nil
}

// Release returns the files of a release, by name.
func Release(in Input) (map[string][]byte, error) {
	files := map[string][]byte{}
	var images []Image
	archives := map[Platform]string{}
	for _, p := range slices.SortedFunc(maps.Keys(in.Binaries), func(a, b Platform) int { return strings.Compare(a.String(), b.String()) }) {
		binary := in.Binaries[p]
		base := fmt.Sprintf("flotilla-%s-%s-%s", in.Version, p.OS, p.Arch)
		archive, err := TarGz([]File{{Name: "flotilla", Mode: 0o755, Content: binary}, {Name: "LICENSE", Content: []byte(in.License)}}, in.At)
		if err != nil {
			return nil, err
		}
		archives[p] = base + ".tar.gz"
		files[archives[p]] = archive
		if files[base+".cdx.json"], err = SBOM(binary, p, in.Version, in.At); err != nil {
			return nil, fmt.Errorf("%s: %w", p, err)
		}
		if p.OS != "linux" {
			continue
		}
		root, err := in.Root(binary)
		if err != nil {
			return nil, err
		}
		images = append(images, Image{p, root})
	}
	if len(archives) == 0 {
		return nil, fmt.Errorf("no platforms: a release needs at least one binary")
	}
	var err error
	if files["flotilla-"+strings.TrimPrefix(in.Version, "v")+".tgz"], err = Chart(in.Chart, in.Version, in.At); err != nil {
		return nil, err
	}
	if len(images) > 0 {
		if files["flotilla-"+in.Version+"-image.oci.tar"], err = OCI(images, in.Dockerfile, in.Version, in.At); err != nil {
			return nil, err
		}
	}
	files["flotilla-krew.yaml"] = []byte(krew(in.Version, archives, files))
	files["SHA256SUMS"] = []byte(sums(files))
	return files, nil
}

// sums returns the input of `sha256sum -c`.
func sums(files map[string][]byte) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintf(&b, "%x  %s\n", sha256.Sum256(files[name]), name)
	}
	return b.String()
}

// krew returns the manifest with which `kubectl krew install` installs the command as `kubectl
// flotilla`.
func krew(version string, archives map[Platform]string, files map[string][]byte) string {
	var b strings.Builder
	fmt.Fprintf(&b, `apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: flotilla
spec:
  version: %s
  homepage: https://github.com/flotilla-kube/flotilla
  shortDescription: Look at and steer a fleet of controller managers
  description: |
    Shows who holds which shard of a Flotilla fleet and why, plans, drains, stops and starts it,
    and judges it by the API server's audit log.
  platforms:
`, version)
	for _, p := range slices.SortedFunc(maps.Keys(archives), func(a, b Platform) int { return strings.Compare(a.String(), b.String()) }) {
		name := archives[p]
		fmt.Fprintf(&b, `  - selector: {matchLabels: {os: %s, arch: %s}}
    uri: https://github.com/flotilla-kube/flotilla/releases/download/%s/%s
    sha256: %x
    bin: flotilla
`, p.OS, p.Arch, version, name, sha256.Sum256(files[name]))
	}
	return b.String()
}
