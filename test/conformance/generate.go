package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/flotilla-kube/flotilla/test/conformance/spec"
	"github.com/flotilla-kube/flotilla/test/conformance/verdict"
)

// generate tries the candidates with stock. It writes those that always pass to specs.txt, and
// those that pass only sometimes to flaky.txt.
func generate(ctx context.Context, o options) error {
	binary, err := filepath.Abs(filepath.Join(o.binDir, suiteName))
	if err != nil {
		return err
	}
	version, err := exec.CommandContext(ctx, binary, "--version").Output()
	if err != nil {
		return fmt.Errorf("%s --version: %w", binary, err)
	}
	listing, err := exec.CommandContext(ctx, binary, "--list-tests").Output()
	if err != nil {
		return fmt.Errorf("%s --list-tests: %w", binary, err)
	}
	all, err := spec.ParseListing(strings.NewReader(string(listing)))
	if err != nil {
		return err
	}
	left := spec.Candidates(all)
	if only := regexp.MustCompile(o.only); o.only != "" {
		left = keep(left, only.MatchString)
	}
	fmt.Printf("%d specs of %d are candidates\n", len(left), len(all))
	o.once = true
	flaky := map[string]string{}
	for i := range o.runs {
		run, err := runOn(ctx, o, "stock", left)
		if err != nil {
			return err
		}
		left = sift(left, run.First, i, flaky)
	}
	v := gitVersion(string(version))
	return errors.Join(
		writeFile(filepath.Join(o.dir, "specs.txt"), func(w io.Writer) error { return spec.WriteList(w, keptHeader(v, o.runs), left) }),
		writeFile(filepath.Join(o.dir, "flaky.txt"), func(w io.Writer) error { return writeFlaky(w, v, flaky) }),
	)
}

// sift returns the specs that passed. It adds to flaky, with the reason, those that passed in an
// earlier run but not in this one.
func sift(texts []string, results verdict.Results, earlier int, flaky map[string]string) []string {
	return keep(texts, func(text string) bool {
		outcome, ran := results[text]
		if outcome.Passed() {
			return true
		}
		if earlier > 0 {
			reason := "it did not run"
			if ran {
				reason = outcome.State + ": " + outcome.Message
			}
			flaky[text] = fmt.Sprintf("passed with stock %d times, then %s", earlier, reason)
		}
		return false
	})
}

func keep(texts []string, wanted func(string) bool) []string {
	var kept []string
	for _, text := range texts {
		if wanted(text) {
			kept = append(kept, text)
		}
	}
	return kept
}

var versionNumber = regexp.MustCompile(`v\d+\.\d+\.\d+[-+.\w]*`)

// gitVersion finds the version in the output of e2e.test --version.
func gitVersion(output string) string {
	if v := versionNumber.FindString(output); v != "" {
		return v
	}
	return "unknown version"
}

func keptHeader(version string, runs int) string {
	return fmt.Sprintf(`Upstream's end-to-end specs of Kubernetes %s that pass with the stock kube-controller-manager on the test
control plane, %d times in a row. Written by 'go run ./test/conformance -generate'; see docs/conformance.md.
`, version, runs)
}

func writeFlaky(w io.Writer, version string, flaky map[string]string) error {
	header := fmt.Sprintf(`Specs of Kubernetes %s that passed with the stock kube-controller-manager and failed with it in a later run, so that
they say nothing about the fleet. Written by 'go run ./test/conformance -generate', each with the reason behind a bar.
`, version)
	var lines []string
	for text, reason := range flaky {
		lines = append(lines, text+" | "+strings.Join(strings.Fields(reason), " "))
	}
	return spec.WriteList(w, header, lines)
}

func writeFile(path string, content func(io.Writer) error) (err error) {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	return content(file)
}
