package deploy

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/flotilla-kube/flotilla/test/kubelet"
)

const dockerfile = root + "/deploy/image/Dockerfile"

// instructions returns the Dockerfile's lines without comments, each as its instruction and the
// rest.
func instructions(t *testing.T) [][2]string {
	t.Helper()
	var all [][2]string
	for line := range strings.Lines(readFile(t, dockerfile)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, rest, _ := strings.Cut(line, " ")
		all = append(all, [2]string{name, rest})
	}
	return all
}

// buildImage builds the image's file system from the Dockerfile. It runs the line that lays out the
// file system unchanged, with the binary in bin/. An unknown instruction is an error.
func buildImage(t *testing.T) kubelet.Image {
	t.Helper()
	binary := tool(t, fleetName, "make build")
	image, final := kubelet.Image{Root: t.TempDir()}, false
	for _, i := range instructions(t) {
		switch name, rest := i[0], i[1]; {
		case name == "FROM":
			final = rest == "scratch"
		case name == "RUN" && strings.HasPrefix(rest, "deploy/image/rootfs.sh "):
			words := strings.Fields(rest)
			if !slices.Equal(words[1:], []string{"bin/flotilla", "/rootfs"}) {
				t.Fatalf("Dockerfile: RUN %s: want the arguments bin/flotilla /rootfs", rest)
			}
			if out, errOut, err := run(t, "", "/bin/sh", words[0], binary, image.Root); err != nil {
				t.Fatalf("%s: %v\n%s%s", words[0], err, out, errOut)
			}
		case !final:
		case name == "COPY" && rest == "--from=build /rootfs/ /":
		case name == "ENV":
			image.Env = append(image.Env, rest)
		case name == "USER":
			user, err := strconv.ParseInt(rest, 10, 64)
			if err != nil {
				t.Fatalf("Dockerfile: USER %s: must be a number, because the image has no passwd file", rest)
			}
			image.User = user
		case name == "ENTRYPOINT":
			if err := yaml.Unmarshal([]byte(rest), &image.Entrypoint); err != nil {
				t.Fatalf("Dockerfile: ENTRYPOINT %s: %v", rest, err)
			}
		default:
			t.Fatalf("Dockerfile: %s %s: not known to this test in the final image", name, rest)
		}
	}
	return image
}

// TestDockerfile builds the image and checks its files.
func TestDockerfile(t *testing.T) {
	image := buildImage(t)
	var files []string
	err := filepath.WalkDir(image.Root, func(path string, entry os.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			files = append(files, strings.TrimPrefix(path, image.Root))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"/usr/local/bin/flotilla", "/usr/local/bin/kube-controller-manager"}
	if bundle := "/etc/ssl/certs/ca-certificates.crt"; slices.Contains(files, bundle) {
		want = append([]string{bundle}, want...)
	}
	if !slices.Equal(files, want) {
		t.Errorf("files of the image: %q, want %q", files, want)
	}
	if target, err := os.Readlink(image.Root + "/usr/local/bin/kube-controller-manager"); err != nil || target != "flotilla" {
		t.Errorf("kube-controller-manager is a link to %q, %v; want flotilla", target, err)
	}
	if len(image.Entrypoint) != 1 || image.Entrypoint[0] != "/usr/local/bin/flotilla" {
		t.Errorf("ENTRYPOINT is %q", image.Entrypoint)
	}
	// Under either name.
	out, errOut, err := run(t, "", image.Root+"/usr/local/bin/kube-controller-manager", "--version")
	if err != nil || !strings.HasPrefix(out, "Kubernetes v1.") && !strings.HasPrefix(out, "flotilla v1.") {
		t.Errorf("kube-controller-manager --version: %v %q %q", err, out, errOut)
	}
}

// TestDockerfileGo compares the version of Go in the Dockerfile with that in go.mod.
func TestDockerfileGo(t *testing.T) {
	version := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(readFile(t, root+"/go.mod"))
	if version == nil {
		t.Fatal("go.mod names no version of Go")
	}
	if want := [2]string{"FROM", "golang:" + version[1] + " AS build"}; !slices.Contains(instructions(t), want) {
		t.Errorf("the Dockerfile does not have the line %q", strings.Join(want[:], " "))
	}
}
