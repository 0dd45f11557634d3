package check

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	// ofSecret is a command that writes what a Secret has into a file.
	ofSecret = regexp.MustCompile(`get secret .*> *(\S+?)\)?$`)
	// copied is a command that copies keys into the working directory.
	copied = regexp.MustCompile(`/pki (\./\S+)`)
)

// TestSecretsStayPrivate finds keys and tokens that a reader of the handbook writes into the
// repository. Nobody else on the machine may read them, and neither git nor a container engine may
// take them along.
func TestSecretsStayPrivate(t *testing.T) {
	var ignored [][]string
	for _, file := range []string{".gitignore", "deploy/image/Dockerfile.dockerignore"} {
		text, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		ignored = append(ignored, strings.Fields(strings.ReplaceAll(string(text), "/", "")))
	}
	found := 0
	for _, p := range pages(t) {
		for _, b := range p.Blocks {
			for _, line := range b.Lines {
				line = strings.TrimSpace(line)
				var name string
				if m := ofSecret.FindStringSubmatch(line); m != nil {
					name = m[1]
					if !strings.HasPrefix(line, "(umask 077; ") {
						t.Errorf("%s: others may read what this writes, so begin it with (umask 077; :\n%s", p.Path, line)
					}
				} else if m := copied.FindStringSubmatch(line); m != nil {
					name = strings.TrimPrefix(m[1], "./")
				} else {
					continue
				}
				found++
				for i, file := range []string{".gitignore", "Dockerfile.dockerignore"} {
					if !slices.Contains(ignored[i], name) {
						t.Errorf("%s: %s is not in %s:\n%s", p.Path, name, file, line)
					}
				}
			}
		}
	}
	if found < 3 {
		t.Errorf("only %d such commands are found: the test reads less than it should", found)
	}
}
