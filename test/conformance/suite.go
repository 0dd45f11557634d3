package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/flotilla-kube/flotilla/test/conformance/spec"
	"github.com/flotilla-kube/flotilla/test/conformance/verdict"
	"github.com/flotilla-kube/flotilla/test/controlplane"
)

const (
	suiteName  = "e2e.test"
	runnerName = "ginkgo"

	reportName = "report.json"
	// suiteGrace is how long an interrupted runner may take to write its reports and end.
	suiteGrace = time.Minute
)

// suiteArgs returns the flags of ginkgo and, after the dashes, those of upstream's suite. They are
// the same for both systems.
func (s *system) suiteArgs(texts []string, procs int, binary, kubectl, dir string) []string {
	args := []string{
		fmt.Sprintf("--procs=%d", procs),
		// The seed fixes the order in every run.
		fmt.Sprintf("--seed=%d", s.o.seed),
		fmt.Sprintf("--timeout=%v", s.o.timeout),
		"--no-color", "--succinct", "--silence-skips",
		"--output-dir=" + dir, "--json-report=" + reportName, "--junit-report=report.xml",
	}
	for _, expression := range spec.Focus(texts) {
		args = append(args, "--focus="+expression)
	}
	return append(args, binary, "--",
		"--kubeconfig="+s.plane.AdminKubeconfig(),
		"--kubectl-path="+kubectl,
		"--provider=skeleton",
		// There are no system pods to wait for, and no machines to collect logs from.
		"--minStartupPods=-1", "--dump-logs-on-failure=false", "--disable-log-dump=true",
		"--node-schedulable-timeout=3m",
	)
}

// runSuite runs the specs and returns their outcomes. A failed spec is not an error.
func (s *system) runSuite(ctx context.Context, name string, texts []string, procs int) (verdict.Results, error) {
	var paths []string
	for _, tool := range []string{runnerName, suiteName, "kubectl"} {
		path, err := s.plane.Binary(tool)
		if err != nil {
			return nil, fmt.Errorf("%w, or 'hack/build-tools.sh %s'", err, tool)
		}
		paths = append(paths, path)
	}
	dir, err := filepath.Abs(filepath.Join(s.dir, name))
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	args := s.suiteArgs(texts, procs, paths[1], paths[2], dir)
	p, err := s.plane.StartProcess(name, paths[0], args, controlplane.WithDir(dir), controlplane.WithGrace(suiteGrace))
	if err != nil {
		return nil, err
	}
	select {
	case <-p.Done():
	case <-ctx.Done():
		return nil, errors.Join(ctx.Err(), p.Stop(context.WithoutCancel(ctx)))
	}
	report, err := os.Open(filepath.Join(dir, reportName))
	if err != nil {
		return nil, fmt.Errorf("%s ended with %v and left no report, see %s", runnerName, p.Wait(), p.LogPath())
	}
	defer report.Close()
	results, err := verdict.ParseReport(report)
	if err != nil {
		return results, fmt.Errorf("%w, see %s", err, p.LogPath())
	}
	return results, nil
}

// runList runs the list, and tries again what did not pass.
func (s *system) runList(ctx context.Context, list []string) (verdict.Run, error) {
	began := time.Now()
	r := verdict.Run{System: s.name}
	var err error
	if r.First, err = s.runSuite(ctx, "suite", list, s.o.procs); err != nil {
		return r, err
	}
	r.Took = time.Since(began)
	return s.tryAgain(ctx, r, list)
}

// tryAgain runs the specs that did not pass once more in the same system, one after the other.
func (s *system) tryAgain(ctx context.Context, r verdict.Run, list []string) (verdict.Run, error) {
	var err error
	if texts := r.Unpassed(list); len(texts) > 0 && !s.o.once {
		fmt.Printf("%s: %d specs did not pass and are tried again\n", s.name, len(texts))
		if r.Again, err = s.runSuite(ctx, "again", texts, 1); err != nil {
			return r, err
		}
	}
	return r, s.alive()
}
