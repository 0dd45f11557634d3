package run

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/flotilla-kube/flotilla/pkg/audit"
	"github.com/flotilla-kube/flotilla/pkg/controllers/catalogue"
	"github.com/flotilla-kube/flotilla/test/docs/markdown"
	"github.com/flotilla-kube/flotilla/test/harness"
)

// root is the module's directory, relative to this package's.
const root = "../../.."

// limit bounds the whole run. A reader who tries the pages has more patience, but a test that hangs
// must say where.
const limit = 12 * time.Minute

var (
	until = flag.Int("parts", 0, "run only this many parts of the pages; 0 runs all of them")
	keep  = flag.String("keep", "", "keep logs, the audit log and all other files in this folder, which must be empty or new")
)

// TestPages runs the handbook.
func TestPages(t *testing.T) {
	pages, err := markdown.Read(root)
	if err != nil {
		t.Fatal(err)
	}
	parts := markdown.Run()
	if *until > 0 {
		parts = parts[:*until]
	}
	text, blocks := script(pages, parts, standIns)
	if blocks < 10 && *until == 0 {
		t.Fatalf("there are only %d blocks to run", blocks)
	}
	w := newFixture(t, t.Output())

	var output bytes.Buffer
	ctx, cancel := contextWithin(t, limit)
	defer cancel()
	began := time.Now()
	err = bash(ctx, text, copyTree(t), w.environment(t), io.MultiWriter(&output, t.Output()), w.standIn(ctx))
	if err != nil {
		t.Errorf("%v after %v:\n%s", err, time.Since(began).Round(time.Second), lastLines(output.String(), 40))
		w.logState(t)
		return
	}
	t.Logf("%d blocks of %d parts ran in %v", blocks, len(parts), time.Since(began).Round(time.Second))
	w.judge(t)
}

// judge judges the audit log. The reader deletes the Leases when the fleet has gone, which is
// nothing that the fleet has done.
func (w *fixture) judge(t *testing.T) {
	t.Helper()
	report := harness.Report(t, w.ControlPlane, audit.Options{Controllers: catalogue.Identities()})
	report.Violations = slices.DeleteFunc(report.Violations, func(v audit.Violation) bool { return v.Kind == audit.LeaseDeleted })
	if err := errors.Join(report.Err(), report.Undisturbed()); err != nil {
		t.Error(err)
	}
	if *until == 1 {
		return // the first part only installs
	}
	if report.ByVersion == 0 || report.Objects.Total() == 0 {
		t.Errorf("%d writes were compared with their Leases by the versions of their objects, objects judged: %+v; want some", report.ByVersion, report.Objects)
	}
}

// environment returns the reader's environment: the commands, the administrator's kubeconfig, and
// the path of the cluster's keys.
func (w *fixture) environment(t *testing.T) []string {
	t.Helper()
	home := t.TempDir()
	return []string{
		"PATH=" + w.bin + string(os.PathListSeparator) + os.Getenv("PATH"),
		"HOME=" + home,
		"TMPDIR=" + home,
		"KUBECONFIG=" + w.AdminKubeconfig(),
		"PKI=" + filepath.Join(w.Dir(), "pki"),
	}
}

// logState logs what a reader would look at.
func (w *fixture) logState(t *testing.T) {
	t.Helper()
	for _, command := range []string{
		"kubectl -n kube-system get pods,leases -o wide", "kubectl -n kube-system get events --sort-by=.metadata.creationTimestamp | tail -n 20", "flotilla plan show",
	} {
		var output bytes.Buffer
		ctx, cancel := contextWithin(t, time.Minute)
		err := bash(ctx, command, t.TempDir(), w.environment(t), &output, func(string) error { return nil })
		cancel()
		t.Logf("$ %s\n%s%s", command, output.String(), failure(err))
	}
	logs, err := filepath.Glob(filepath.Join(w.Dir(), "*flotilla*.log"))
	if err != nil {
		t.Error(err)
	}
	for _, log := range logs {
		if text, err := os.ReadFile(log); err == nil {
			t.Logf("end of %s:\n%s", filepath.Base(log), lastLines(string(text), 15))
		}
	}
}

func failure(err error) string {
	if err == nil {
		return ""
	}
	return fmt.Sprintf("(%v)\n", err)
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
