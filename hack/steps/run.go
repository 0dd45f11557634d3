package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// logs is the directory of the steps' output.
const logs = "_output/steps"

// runner runs steps in the module's root.
type runner struct {
	root string
	// strict counts skips as failures.
	strict bool
	screen io.Writer
	// silent sends a step's output only to its log, unless the step fails.
	silent bool
	now    func() time.Time
	// missing returns why the machine does not meet a need; empty if it does.
	missing func(context.Context, need) string
}

// state is how a step ended.
type state string

const (
	passed  state = "passed"
	failed  state = "FAILED"
	skipped state = "SKIPPED"
)

// result is a row of the table.
type result struct {
	step  string
	state state
	// why it was skipped or not even run.
	why  string
	took time.Duration
	// cpu is the CPU time of its commands and of the children that they waited for.
	cpu time.Duration
	// skips are the skipped tests, with reasons.
	skips []skip
	// tests are the slowest tests that ran, the slowest first.
	tests []timed
}

// run runs the steps in order, builds what they need before the first that needs it, and returns
// how each ended. Of consecutive steps that may mix, up to two waiting steps run at a time, or a
// sole one, and computing steps beside all of them at a low priority. Light steps run wherever a
// lane is free.
func (r runner) run(ctx context.Context, steps []step, args []string) []result {
	r.screen = &shared{to: r.screen}
	// Quick steps that run nothing built come first in every set, and do not wait for ten minutes
	// of building.
	first := slices.IndexFunc(steps, func(s step) bool { return s.member || len(s.tools) > 0 })
	all := slices.Insert(slices.Clone(steps), max(first, 0), prepare(r.able(ctx, steps))...)
	results := make([]result, len(all))
	broken := map[string]bool{}
	one := func(r runner, s step) result {
		if ctx.Err() != nil {
			return result{step: s.name, state: failed, why: "not run: interrupted"}
		}
		if why := r.unbuilt(s, broken); why != "" && len(r.able(ctx, []step{s})) > 0 {
			return result{step: s.name, state: failed, why: "not run: " + why}
		}
		if len(args) > 0 && slices.ContainsFunc(steps, func(asked step) bool { return asked.name == s.name }) {
			s = s.with(args)
		}
		return r.one(ctx, s)
	}
	for i := 0; i < len(all); {
		end := i + 1
		for all[i].mixes() && end < len(all) && all[end].mixes() {
			end++
		}
		r.together(all[i:end], results[i:end], one)
		if name := all[i].name; (name == toolsName || name == binaryName) && results[i].state == failed {
			broken[name] = true
		}
		i = end
	}
	return results
}

// waitingLanes is how many waiting steps run at a time.
const waitingLanes = 2

// together runs the steps in lanes: two for waiting steps and one for computing steps. The waiting
// lanes have one part of the steps after the other, so that a sole step has them for itself. A lane
// without steps of its own takes the next light step. A single step, or a row without a waiting
// one, needs no second lane.
func (r runner) together(steps []step, results []result, one func(runner, step) result) {
	waits, computes := func(i int) bool { return steps[i].waits }, func(i int) bool { return steps[i].computes }
	ends := parts(steps)
	if len(ends) == 0 || len(steps) == 1 {
		for i, s := range steps {
			results[i] = one(r, s)
		}
		return
	}
	row := &row{steps: steps, taken: make([]bool, len(steps))}
	silent := r
	silent.silent = true
	var waiting sync.WaitGroup
	var over atomic.Bool
	waiting.Go(func() {
		defer over.Store(true)
		for _, end := range ends {
			own := func(i int) bool { return i < end && waits(i) }
			var lanes sync.WaitGroup
			for range waitingLanes {
				lanes.Go(func() {
					for i := row.next(own); i >= 0; i = row.next(own) {
						results[i] = one(silent, steps[i])
					}
				})
			}
			lanes.Wait()
		}
	})
	for i := row.next(computes); i >= 0; i = row.next(computes) {
		s := steps[i]
		if s.computes && !over.Load() {
			s = s.low()
		}
		results[i] = one(r, s)
	}
	waiting.Wait()
}

// parts divides the waiting steps of a row so that a sole one has no other in its part, and returns
// where each part ends.
func parts(steps []step) []int {
	var ends []int
	last := step{sole: true}
	for i, s := range steps {
		if !s.waits {
			continue
		}
		if s.sole || last.sole {
			ends = append(ends, 0)
		}
		ends[len(ends)-1], last = i+1, s
	}
	return ends
}

// row are steps that lanes share. It is safe for concurrent use.
type row struct {
	mu    sync.Mutex
	steps []step
	taken []bool
}

// next takes the lane's next own step or, if there is none, the next light one, and returns its
// index; -1 if nothing is left for the lane.
func (r *row) next(own func(i int) bool) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, fits := range []func(i int) bool{own, func(i int) bool { return r.steps[i].light }} {
		for i := range r.steps {
			if !r.taken[i] && fits(i) {
				r.taken[i] = true
				return i
			}
		}
	}
	return -1
}

// shared is a writer for concurrent steps.
type shared struct {
	mu sync.Mutex
	to io.Writer
}

// Write implements io.Writer.
func (s *shared) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.to.Write(p)
}

// Names of the steps that build what other steps run.
const toolsName, binaryName = "tools", "build"

// able returns the steps whose needs are met. Nothing is built for the others, which are skipped.
func (r runner) able(ctx context.Context, steps []step) []step {
	return slices.DeleteFunc(slices.Clone(steps), func(s step) bool {
		return slices.ContainsFunc(s.needs, func(n need) bool { return r.missing(ctx, n) != "" })
	})
}

// unbuilt returns what a step runs that could not be built, given the building steps that failed;
// empty if there is everything. A tool whose build failed has no stamp.
func (r runner) unbuilt(s step, broken map[string]bool) string {
	if broken[binaryName] && s.member {
		return binaryName + " failed"
	}
	if !broken[toolsName] {
		return ""
	}
	for _, tool := range s.tools {
		if _, err := os.Stat(filepath.Join(r.root, "bin/.stamps", tool)); err != nil {
			return toolsName + " failed to build " + tool
		}
	}
	return ""
}

// prepare returns the steps that build what others run.
func prepare(steps []step) []step {
	var tools []string
	member := false
	for _, s := range steps {
		for _, tool := range s.tools {
			if !slices.Contains(tools, tool) {
				tools = append(tools, tool)
			}
		}
		member = member || s.member
	}
	var first []step
	if len(tools) > 0 {
		first = append(first, step{
			name: toolsName, what: "what the tests run against, in bin/", long: "10 minutes the first time, seconds after that",
			commands: []command{run(append([]string{"hack/build-tools.sh"}, tools...)...)},
		})
	}
	if member {
		first = append(first, step{name: binaryName, what: "bin/flotilla", long: "3 minutes the first time, seconds after a change", commands: []command{run("make", "--no-print-directory", "build")}})
	}
	return first
}

// one runs a step, or skips it.
func (r runner) one(ctx context.Context, s step) result {
	fmt.Fprintf(r.screen, "==> %s: %s (on two cores %s)\n", s.name, s.what, s.long)
	for _, n := range s.needs {
		if why := r.missing(ctx, n); why != "" {
			return r.tell(result{step: s.name, state: r.skipped(), why: why})
		}
	}
	began := r.now()
	seen, err := r.logged(ctx, s)
	result := result{step: s.name, state: passed, took: r.now().Sub(began), cpu: seen.cpu, skips: seen.skips, tests: seen.slowest}
	if err != nil {
		result.state, result.why = failed, err.Error()
	}
	for _, skip := range seen.skips {
		switch {
		case skip.leftFor() == s.name:
			result.state, result.why = failed, cmp.Or(result.why, "left out, although this is the step that runs it: "+skip.test)
		case r.strict && !skip.leftOut():
			result.state, result.why = failed, cmp.Or(result.why, "not run: "+skip.test)
		}
	}
	return r.tell(result)
}

func (r runner) skipped() state {
	if r.strict {
		return failed
	}
	return skipped
}

func (r runner) tell(result result) result {
	line := fmt.Sprintf("==> %s: %s after %v", result.step, result.state, result.took.Round(time.Second))
	if result.why != "" {
		line += ": " + result.why
	}
	fmt.Fprintln(r.screen, line)
	return result
}

// logged runs the commands of a step until one fails.
func (r runner) logged(ctx context.Context, s step) (seen, error) {
	name := filepath.Join(r.root, logs, s.name+".log")
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return seen{}, err
	}
	log, err := os.Create(name)
	if err != nil {
		return seen{}, err
	}
	defer log.Close()
	if s.changed {
		packages, err := changed(ctx, r.root)
		if err != nil {
			return seen{}, err
		}
		if len(packages) == 0 {
			fmt.Fprintln(r.screen, "    no package of the root's module has changed")
			return seen{}, nil
		}
		s = s.with(packages)
	}
	var unseen bytes.Buffer
	screen := r.screen
	if r.silent {
		r.screen = &shared{to: &unseen}
	}
	var all seen
	for _, c := range s.commands {
		found, err := r.command(ctx, c, log)
		all.add(found)
		if err != nil {
			_, _ = unseen.WriteTo(screen)
			return all, err
		}
	}
	return all, nil
}

// command runs one command. Its errors name it.
func (r runner) command(ctx context.Context, c command, log io.Writer) (seen, error) {
	process := exec.CommandContext(ctx, c.args[0], c.args[1:]...)
	process.Dir, process.Env = r.root, append(os.Environ(), c.env...)
	// The go command does not pass signals on to what it runs, so a group of its own gets them. An
	// interrupted test needs time to stop what it has started.
	process.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	process.Cancel = func() error { return syscall.Kill(-process.Process.Pid, syscall.SIGINT) }
	process.WaitDelay = time.Minute
	defer func() {
		if ctx.Err() != nil && process.Process != nil {
			_ = syscall.Kill(-process.Process.Pid, syscall.SIGKILL) // who has not stopped by now
		}
	}()
	fmt.Fprintf(log, "$ %s\n", strings.Join(append(slices.Clone(c.env), c.args...), " "))
	both := io.MultiWriter(r.screen, log)
	process.Stderr = both
	if !c.tests {
		process.Stdout = both
		err := process.Run()
		return seen{cpu: cpu(process)}, named(c, err)
	}
	tests := newTests(r.screen, log)
	process.Stdout = tests
	err := process.Run()
	tests.close()
	tests.cpu = cpu(process)
	if pattern := c.pattern(); err == nil && pattern != "" && tests.ran == 0 {
		// The go command is content with that.
		return tests.seen, fmt.Errorf("no test matches -run=%s", pattern)
	}
	return tests.seen, named(c, err)
}

// cpu returns 0 for a process that did not start.
func cpu(process *exec.Cmd) time.Duration {
	if process.ProcessState == nil {
		return 0
	}
	return process.ProcessState.UserTime() + process.ProcessState.SystemTime()
}

func named(c command, err error) error {
	var exit *exec.ExitError
	if err == nil || errors.As(err, &exit) && c.tests {
		return err
	}
	return fmt.Errorf("%s: %w", c.program(), err)
}
