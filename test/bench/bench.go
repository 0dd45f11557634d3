package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/flotilla-kube/flotilla/test/bench/measure"
	"github.com/flotilla-kube/flotilla/test/bench/result"
	"github.com/flotilla-kube/flotilla/test/bench/scenario"
	"github.com/flotilla-kube/flotilla/test/bench/system"
)

// bench is one run of the command.
type bench struct {
	options
	file  result.File
	empty map[result.System]footprint
	// recorded are the recordings so far, by what was recorded.
	recorded map[string]recording
}

// benchmark makes all runs, and returns an error if one failed.
func benchmark(ctx context.Context, o options) error {
	log.SetLogger(klog.Background()) // for envtest, which complains without one
	b := &bench{options: o, empty: map[result.System]footprint{}, recorded: map[string]recording{}}
	if err := b.open(ctx); err != nil {
		return err
	}
	if m := b.file.Machine; m.Load > float64(m.Cores) {
		fmt.Printf("the machine has been busy: its load is %.2f, with %d cores. The figures will say more about that than about the systems\n", m.Load, m.Cores)
	}
	jobs, failed := o.jobs(), 0
	if o.empty && (o.background > 0 || strings.Contains(o.scenarios, scenario.Steady)) {
		if err := b.measureEmpty(ctx); err != nil {
			return err
		}
	}
	if err := b.warm(ctx, jobs[0]); err != nil {
		return err
	}
	clock := estimate{}
	for i, j := range jobs {
		began := time.Now()
		run := b.run(ctx, j)
		if ctx.Err() != nil {
			return fmt.Errorf("interrupted; %s has %d runs", o.out, len(b.file.Runs))
		}
		if o.check && run.Failed == "" {
			if err := complete(run); err != nil {
				run.Failed = err.Error()
			}
		}
		if run.Failed != "" {
			failed++
		}
		b.file.Runs = append(b.file.Runs, run)
		if err := b.save(); err != nil {
			return err
		}
		clock.took(j, time.Since(began))
		fmt.Printf("%s\n    %d of %d runs, %.0f s in all, about %v left\n", line(run), i+1, len(jobs), time.Since(began).Seconds(),
			clock.left(jobs[i+1:]).Round(10*time.Second))
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d runs failed, see %s", failed, len(jobs), o.out)
	}
	return nil
}

// warm does the first work once without a result. On a machine where nothing has run for a while
// the first run takes up to a third longer, and it is always the same system's.
func (b *bench) warm(ctx context.Context, first job) error {
	if !b.warmUp || quietScenario(first.scenario) {
		return nil
	}
	run := b.run(ctx, first)
	if run.Failed != "" {
		return fmt.Errorf("the run before the first one failed: %s", run.Failed)
	}
	fmt.Printf("%s\n    not counted: it only warms the machine up\n", line(run))
	return ctx.Err()
}

// open begins the file, or reads the existing one.
func (b *bench) open(ctx context.Context) error {
	b.file = result.File{Began: time.Now(), Machine: measure.Machine(), Versions: b.versions(ctx), Command: strings.Join(os.Args[1:], " ")}
	text, err := os.ReadFile(b.out)
	if errors.Is(err, fs.ErrNotExist) {
		return os.MkdirAll(filepath.Dir(b.out), 0o755)
	}
	if err != nil {
		return err
	}
	before := result.File{}
	if err := json.Unmarshal(text, &before); err != nil {
		return fmt.Errorf("%s: %w", b.out, err)
	}
	if was, is := before.Versions["flotilla"], b.file.Versions["flotilla"]; was != is {
		return fmt.Errorf("%s: its runs are of flotilla %s, and this would add runs of %s; write another file", b.out, was, is)
	}
	b.file.Runs, b.file.Command = before.Runs, before.Command+"; "+b.file.Command
	return nil
}

// save replaces the whole file.
func (b *bench) save() error {
	text, err := json.MarshalIndent(b.file, "", " ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(b.out+".tmp", append(text, '\n'), 0o644); err != nil {
		return err
	}
	return os.Rename(b.out+".tmp", b.out)
}

// versions are the programs' own version strings; empty if a program cannot be asked.
func (b *bench) versions(ctx context.Context) map[string]string {
	say := func(name string, args ...string) string {
		output, err := exec.CommandContext(ctx, name, args...).Output()
		if err != nil {
			return ""
		}
		first, _, _ := strings.Cut(strings.TrimSpace(string(output)), "\n")
		return first
	}
	commit := say("git", "rev-parse", "--short=12", "HEAD")
	if changed := say("git", "status", "--porcelain", "--untracked-files=no"); commit != "" && changed != "" {
		commit += " with changes"
	}
	return map[string]string{
		"flotilla":   commit,
		"kubernetes": strings.TrimPrefix(say(b.stock, "--version"), "Kubernetes "),
		"etcd":       strings.TrimPrefix(say(filepath.Join("bin", "etcd"), "--version"), "etcd Version: "),
		"go":         runtime.Version(),
	}
}

// estimate is how long runs took last, by scenario, size, system and rate.
type estimate map[string]time.Duration

// unknown is the estimate for a run without a predecessor.
const unknown = 75 * time.Second

func kindOf(j job) string {
	return fmt.Sprint(j.scenario, j.params, system.Name(j.system), j.system.Rate)
}

func (e estimate) took(j job, d time.Duration) { e[kindOf(j)] = d }

func (e estimate) left(jobs []job) time.Duration {
	total := time.Duration(0)
	for _, j := range jobs {
		if d, found := e[kindOf(j)]; found {
			total += d
		} else {
			total += unknown
		}
	}
	return total
}
