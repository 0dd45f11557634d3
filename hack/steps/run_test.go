package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// plantedTests is a module with a test of each kind.
const plantedTests = `package planted

import "testing"

func TestWell(t *testing.T)  { t.Log("nothing to say") }
func TestWrong(t *testing.T) { t.Run("inside", func(t *testing.T) { t.Error("wrong on purpose") }) }
func TestLacks(t *testing.T) { t.Run("browser", func(t *testing.T) { t.Skip("no browser: install one") }) }
func TestFlag(t *testing.T)  { t.Skip("left out: takes minutes, make long RUN=planted") }
`

// patience limits how long a step waits for a file that never comes. A step at low priority may
// take long to make it on a busy machine.
const patience = 10 * time.Minute

// plant returns a runner in a directory with the planted tests, and its screen. Only the race
// detector's needs are not met.
func plant(t *testing.T) (runner, *bytes.Buffer) {
	t.Helper()
	root := t.TempDir()
	for name, text := range map[string]string{"go.mod": "module planted\n\ngo 1.26\n", "planted_test.go": plantedTests} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	screen := &bytes.Buffer{}
	now := time.Now()
	return runner{
		root: root, screen: screen,
		now: func() time.Time { now = now.Add(time.Second); return now },
		missing: func(_ context.Context, n need) string {
			if n == needC {
				return "no C compiler"
			}
			return ""
		},
	}, screen
}

// builds skips a test that builds test binaries, with -short.
func builds(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("left out: it builds test binaries")
	}
}

func sh(script string) []command { return []command{run("sh", "-c", script)} }

func states(results []result) map[string]state {
	got := map[string]state{}
	for _, r := range results {
		got[r.step] = r.state
	}
	return got
}

// TestFailedAndSkippedSteps plants a step that fails and one that cannot run here: the others still
// run, the table has everything, skips last, and the whole run has failed.
func TestFailedAndSkippedSteps(t *testing.T) {
	r, screen := plant(t)
	steps := []step{
		{name: "race", needs: []need{needC}, commands: sh("echo never")},
		{name: "bad", commands: []command{run("sh", "-c", "echo some output; exit 3"), run("sh", "-c", "echo never")}},
		{name: "good", needs: []need{needRoots}, commands: sh("echo well >&2")},
	}
	results := r.run(t.Context(), steps, nil)
	var text strings.Builder
	if table(&text, "set", results, 2*time.Second) {
		t.Error("a set with a failed step counts as passed")
	}
	want := `STEP  RESULT   TIME  CPU  
good  passed   1 s   0 s  
bad   FAILED   1 s   0 s  _output/steps/bad.log: sh: exit status 3
race  SKIPPED  0 s   0 s  no C compiler
==> set: 1 passed, 1 FAILED, 1 SKIPPED in 2 s, with 0 s of the processor
`
	if text.String() != want {
		t.Errorf("the table is\n%swant\n%s", text.String(), want)
	}
	for _, want := range []string{"some output", "==> bad: FAILED after 1s: sh: exit status 3", "well\n", "==> race: SKIPPED after 0s: no C compiler"} {
		if !strings.Contains(screen.String(), want) {
			t.Errorf("the screen has no %q:\n%s", want, screen)
		}
	}
	if strings.Contains(screen.String(), "never") {
		t.Errorf("something ran that should not:\n%s", screen)
	}
	log, err := os.ReadFile(filepath.Join(r.root, logs, "bad.log"))
	if err != nil || !strings.Contains(string(log), "some output") {
		t.Errorf("the log: %q, %v", log, err)
	}
}

// TestProcessorTime checks that CPU time includes processes that a step's commands start, and adds
// up.
func TestProcessorTime(t *testing.T) {
	r, _ := plant(t)
	busy := run("sh", "-c", "sh -c 'i=0; while [ $i -lt 50000 ]; do i=$((i+1)); done'; true")
	idle := run("true")
	results := r.run(t.Context(), []step{
		{name: "idle", commands: []command{idle}},
		{name: "busy", commands: []command{busy, idle}},
	}, nil)
	if least := 10 * time.Millisecond; results[1].cpu < results[0].cpu+least {
		t.Errorf("a loop has used %v, nothing %v: want %v more", results[1].cpu, results[0].cpu, least)
	}
}

// TestStrict checks that a skip because of an unmet need counts as failed, whether it is a step or
// a test in one.
func TestStrict(t *testing.T) {
	builds(t)
	wants := func(run string) step {
		return step{name: run, commands: []command{goTest("-run", run, ".")}}
	}
	steps := []step{{name: "race", needs: []need{needC}}, wants("TestWell"), wants("TestLacks"), wants("TestFlag")}
	for strict, want := range map[bool]map[string]state{
		false: {"race": skipped, "TestWell": passed, "TestLacks": passed, "TestFlag": passed},
		true:  {"race": failed, "TestWell": passed, "TestLacks": failed, "TestFlag": passed},
	} {
		r, screen := plant(t)
		r.strict = strict
		results := r.run(t.Context(), steps, nil)
		got := states(results)
		for name := range want {
			if got[name] != want[name] {
				t.Errorf("strict %t: %s is %s, want %s; the screen:\n%s", strict, name, got[name], want[name], screen)
			}
		}
		var text strings.Builder
		if well := table(&text, "set", results, 2*time.Second); well == strict {
			t.Errorf("strict %t: well: %t", strict, well)
		}
		tail := "\nTests that were not run:\n" +
			"  TestLacks: planted TestLacks/browser: no browser: install one\n" +
			"  TestFlag: planted TestFlag: left out: takes minutes, make long RUN=planted\n" +
			"==> set: "
		if !strings.Contains(text.String(), tail) {
			t.Errorf("strict %t: the table does not end with what was skipped:\n%s", strict, text.String())
		}
	}
}

// TestStepsRunTheirTests checks that a step fails if its pattern matches no test, or if it leaves
// out the very test that it is for.
func TestStepsRunTheirTests(t *testing.T) {
	builds(t)
	r, screen := plant(t)
	results := r.run(t.Context(), []step{
		{name: "renamed", commands: []command{goTest("-run=TestGone", ".")}},
		{name: "planted", commands: []command{goTest("-run=TestFlag|TestWell", ".")}},
		{name: "another", commands: []command{goTest("-run=TestFlag", ".")}},
	}, nil)
	for i, want := range []result{
		{state: failed, why: "no test matches -run=TestGone"},
		{state: failed, why: "left out, although this is the step that runs it: planted TestFlag"},
		{state: passed},
	} {
		if got := results[i]; got.state != want.state || got.why != want.why {
			t.Errorf("%s: %s, %q, want %s, %q; the screen:\n%s", got.step, got.state, got.why, want.state, want.why, screen)
		}
	}
}

// TestScreenAndLogOfTests checks that the screen shows only failures, and the log everything.
func TestScreenAndLogOfTests(t *testing.T) {
	builds(t)
	r, screen := plant(t)
	results := r.run(t.Context(), []step{{name: "unit", commands: []command{goTest(".")}}}, nil)
	if results[0].state != failed || results[0].why != "exit status 1" {
		t.Errorf("got %+v", results[0])
	}
	log, err := os.ReadFile(filepath.Join(r.root, logs, "unit.log"))
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]struct{ screen, log bool }{
		"wrong on purpose":                {true, true},
		"--- FAIL: TestWrong/inside":      {true, true},
		"FAIL\tplanted":                   {true, true},
		"nothing to say":                  {false, true},
		"$ go test -json -trimpath":       {false, true},
		"--- SKIP: TestFlag":              {false, true},
		`"Action"`:                        {false, false},
		"no browser: install one":         {false, true},
		"==> unit: FAILED after 1s":       {true, false},
		"left out: takes minutes, make l": {false, true},
	} {
		if strings.Contains(screen.String(), text) != want.screen || strings.Contains(string(log), text) != want.log {
			t.Errorf("%q: want on screen %t, in the log %t; the screen:\n%s", text, want.screen, want.log, screen)
		}
	}
}

// TestBesideAStepThatWaits checks that computing and light steps run beside a waiting one, and
// other steps do not. The waiting step fails, and has its place in the table.
func TestBesideAStepThatWaits(t *testing.T) {
	r, screen := plant(t)
	r.now = time.Now
	ctx, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	nice, err := exec.CommandContext(t.Context(), "nice").Output()
	if err != nil {
		t.Fatal(err)
	}
	steps := []step{
		{name: "alerts", waits: true, commands: sh("until [ -e computed ] && [ -e light ]; do sleep 0.05; done; [ ! -e other ]; echo waited; exit 1")},
		{name: "sim", computes: true, commands: sh("touch computed; echo computes at $(nice)")},
		{name: "page", light: true, commands: sh("touch light; echo light at $(nice)")},
		{name: "e2e", commands: sh("touch other; echo other at $(nice)")},
		{name: "late", computes: true, commands: sh("echo late at $(nice)")},
	}
	results := r.run(ctx, steps, nil)
	got := states(results)
	if got["alerts"] != failed || got["sim"] != passed || got["e2e"] != passed || results[0].step != "alerts" {
		t.Errorf("got %+v", results)
	}
	for _, want := range []string{"computes at 19\n", "other at " + string(nice), "late at " + string(nice), "==> alerts: FAILED"} {
		if !strings.Contains(screen.String(), want) {
			t.Errorf("the screen has no %q:\n%s", want, screen)
		}
	}
	if at := strings.Index(screen.String(), "==> alerts: FAILED"); at > strings.Index(screen.String(), "==> e2e: ") {
		t.Errorf("another step did not wait:\n%s", screen)
	}
	for name, want := range map[string]string{"alerts": "waited", "page": "light at " + string(nice)} {
		if log, err := os.ReadFile(filepath.Join(r.root, logs, name+".log")); err != nil || !strings.Contains(string(log), want) {
			t.Errorf("the log of %s: %q, %v; want in it %q", name, log, err, want)
		}
	}
	// Its output is shown once it has failed, in one piece.
	if !strings.Contains(screen.String(), "waited\n==> alerts: FAILED") {
		t.Errorf("the screen:\n%s", screen)
	}
}

// TestTwoStepsWaitAtATime checks that a third waiting step begins when one of two has ended, and
// that fitting steps run beside all of them. A step of another kind comes after all of these.
func TestTwoStepsWaitAtATime(t *testing.T) {
	r, screen := plant(t)
	r.now = time.Now
	// A wait for a file that never comes is interrupted.
	ctx, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	// not waits for a while in which the file would appear.
	not := func(file string) string {
		return fmt.Sprintf("i=0; while [ ! -e %[1]s ] && [ $i -lt 50000 ]; do i=$((i+1)); done; [ ! -e %[1]s ]", file)
	}
	until := func(file string) string { return fmt.Sprintf("until [ -e %s ]; do sleep 0.05; done; ", file) }
	steps := []step{
		{name: "e2e", waits: true, commands: sh("touch e2e; " + until("integration") + not("handbook") + " && touch over")},
		{name: "sim", computes: true, commands: sh("touch sim; " + until("handbook"))},
		{name: "integration", waits: true, commands: sh("touch integration; " + until("e2e") + until("sim") + until("over") + until("handbook") + "echo waited")},
		{name: "page", light: true, commands: sh("touch page")},
		{name: "handbook", waits: true, commands: sh("[ -e over ] && touch handbook; " + until("page") + not("demo"))},
		{name: "demo", commands: sh("touch demo")},
	}
	results := r.run(ctx, steps, nil)
	for i, result := range results {
		if result.step != steps[i].name || result.state != passed {
			t.Errorf("got %+v, want %s to have passed; the screen:\n%s", result, steps[i].name, screen)
		}
	}
	if strings.Contains(screen.String(), "waited") {
		t.Errorf("the screen has the output of a step that ran beside others and passed:\n%s", screen)
	}
}

// TestSoleStep checks that no waiting step runs beside a sole one, and that computing ones go on
// beside both.
func TestSoleStep(t *testing.T) {
	r, screen := plant(t)
	r.now = time.Now
	ctx, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	until := func(file string) string { return fmt.Sprintf("until [ -e %s ]; do sleep 0.05; done; ", file) }
	while := "i=0; while [ $i -lt 50000 ]; do i=$((i+1)); done; "
	steps := []step{
		{name: "e2e", waits: true, commands: sh(until("sim") + while + "touch first")},
		{name: "kubeadm", waits: true, sole: true, commands: sh("[ -e first ] && touch second; " + until("lint") + while + "touch third")},
		{name: "sim", computes: true, commands: sh("touch sim; " + until("second"))},
		{name: "lint", computes: true, commands: sh("nice > at && touch lint")},
		{name: "integration", waits: true, commands: sh("[ -e third ] && [ $(cat at) = 19 ]")},
	}
	for i, result := range r.run(ctx, steps, nil) {
		if result.step != steps[i].name || result.state != passed {
			t.Errorf("got %+v, want %s to have passed; the screen:\n%s", result, steps[i].name, screen)
		}
	}
}

// TestLightStepsFillTheFreeLane checks that light steps run beside computing ones once no waiting
// step is left, and beside a waiting one once nothing is left to compute.
func TestLightStepsFillTheFreeLane(t *testing.T) {
	for name, steps := range map[string][]step{
		"computing is longer": {
			{name: "e2e", waits: true, commands: sh("touch e2e")},
			{name: "integration", waits: true, commands: sh("touch integration; until [ -e page ] && [ -e demo ]; do sleep 0.05; done")},
			{name: "unit", computes: true, commands: sh("until [ -e page ] && [ -e demo ]; do sleep 0.05; done")},
			{name: "page", light: true, commands: sh("[ -e e2e ] && touch page")},
			{name: "demo", light: true, commands: sh("[ -e page ] && touch demo")},
		},
		"waiting is longer": {
			{name: "e2e", waits: true, commands: sh("until [ -e page ] && [ -e demo ]; do sleep 0.05; done")},
			{name: "integration", waits: true, commands: sh("until [ -e page ] && [ -e demo ]; do sleep 0.05; done")},
			{name: "page", light: true, commands: sh("[ -e unit ] && touch page")},
			{name: "demo", light: true, commands: sh("[ -e page ] && touch demo")},
			{name: "unit", computes: true, commands: sh("touch unit")},
		},
		"a light one on each side": {
			{name: "e2e", waits: true, commands: sh("true")},
			{name: "unit", computes: true, commands: sh("true")},
			{name: "page", light: true, commands: sh("touch page; until [ -e demo ]; do sleep 0.05; done")},
			{name: "demo", light: true, commands: sh("touch demo; until [ -e page ]; do sleep 0.05; done")},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, screen := plant(t)
			r.now = time.Now
			// A wait for a file that never comes is interrupted.
			ctx, stop := context.WithTimeout(t.Context(), patience)
			defer stop()
			for i, result := range r.run(ctx, steps, nil) {
				if result.step != steps[i].name || result.state != passed {
					t.Errorf("got %+v, want %s to have passed; the screen:\n%s", result, steps[i].name, screen)
				}
			}
		})
	}
}

// TestSlowestTests checks that the table has the ten slowest tests of all steps, the slowest first,
// and no subtests.
func TestSlowestTests(t *testing.T) {
	var results []result
	for i, name := range []string{"unit", "e2e"} {
		tests := newTests(io.Discard, io.Discard)
		for k := range 9 {
			elapsed := 2*k + i
			fmt.Fprintf(tests, `{"Action":"pass","Package":"%spkg/a","Test":"Test%d","Elapsed":%d.2}`+"\n", module, elapsed, elapsed)
		}
		fmt.Fprintf(tests, `{"Action":"pass","Package":"%spkg/a","Test":"TestOther/sub","Elapsed":70}`+"\n", module)
		fmt.Fprintf(tests, `{"Action":"fail","Package":"%spkg/a","Test":"TestFails","Elapsed":107}`+"\n", module)
		fmt.Fprintf(tests, `{"Action":"pass","Package":"%spkg/a","Elapsed":300}`+"\n", module)
		tests.close()
		results = append(results, result{step: name, state: passed, tests: tests.slowest})
	}
	var text strings.Builder
	table(&text, "set", results, 2*time.Second)
	want := `
The slowest tests:
  1 min 47 s  unit: pkg/a TestFails
  1 min 47 s  e2e: pkg/a TestFails
        17 s  e2e: pkg/a Test17
        16 s  unit: pkg/a Test16
        15 s  e2e: pkg/a Test15
        14 s  unit: pkg/a Test14
        13 s  e2e: pkg/a Test13
        12 s  unit: pkg/a Test12
        11 s  e2e: pkg/a Test11
        10 s  unit: pkg/a Test10
==> set: `
	if !strings.Contains(text.String(), want) {
		t.Errorf("the table is\n%s\nwant in it\n%s", text.String(), want)
	}
}

// TestCachedTestsAreNotTimed checks that tests with cached results are not among the slowest.
func TestCachedTestsAreNotTimed(t *testing.T) {
	tests := newTests(io.Discard, io.Discard)
	for _, line := range []string{
		`{"Action":"pass","Package":"a","Test":"TestOld","Elapsed":100}`,
		`{"Action":"pass","Package":"b","Test":"TestNew","Elapsed":1}`,
		`{"Action":"output","Package":"a","Output":"ok  \ta\t(cached)\n"}`,
		`{"Action":"pass","Package":"a","Elapsed":0}`,
		`{"Action":"output","Package":"b","Output":"ok  \tb\t2.5s\n"}`,
		`{"Action":"pass","Package":"b","Elapsed":2.5}`,
		`{"Action":"fail","Package":"c","Test":"TestOfNoEnd","Elapsed":3}`,
	} {
		fmt.Fprintln(tests, line)
	}
	tests.close()
	want := []timed{{test: "c TestOfNoEnd", took: 3 * time.Second}, {test: "b TestNew", took: time.Second}}
	if !slices.Equal(tests.slowest, want) {
		t.Errorf("the slowest are %v, want %v", tests.slowest, want)
	}
}

// TestCodeThatDoesNotCompile checks that a compile error is shown, and fails.
func TestCodeThatDoesNotCompile(t *testing.T) {
	builds(t)
	r, screen := plant(t)
	if err := os.WriteFile(filepath.Join(r.root, "broken_test.go"), []byte("package planted\n\nvar x int = \"a\"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	results := r.run(t.Context(), []step{{name: "unit", commands: []command{goTest(".")}}}, nil)
	if results[0].state != failed || !strings.Contains(screen.String(), "broken_test.go:3") {
		t.Errorf("got %+v; the screen:\n%s", results[0], screen)
	}
}

// TestNothingRunsAgainstOldBinaries checks that a step whose tool could not be built does not run
// and counts as failed; the others run, those with other tools, too. Nothing is built for a step
// that cannot run here.
func TestNothingRunsAgainstOldBinaries(t *testing.T) {
	r, screen := plant(t)
	if err := os.Mkdir(filepath.Join(r.root, "hack"), 0o755); err != nil {
		t.Fatal(err)
	}
	const script = "#!/bin/sh\necho building $*\nmkdir -p bin/.stamps\ntouch bin/.stamps/etcd bin/.stamps/kubectl\nexit 1\n"
	if err := os.WriteFile(filepath.Join(r.root, "hack/build-tools.sh"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	results := r.run(t.Context(), []step{
		{name: "unit", commands: sh("true")},
		{name: "e2e", tools: []string{"etcd", "kwok"}, commands: sh("echo never")},
		{name: "race", needs: []need{needC}, tools: []string{"helm"}, commands: sh("echo never")},
		{name: "integration", tools: []string{"kwok", "kubectl"}, commands: sh("echo never")},
		{name: "deploy", tools: []string{"etcd", "kubectl"}, commands: sh("true")},
	}, nil)
	var names []string
	for _, r := range results {
		names = append(names, r.step+" "+string(r.state)+" "+r.why)
	}
	want := []string{
		"unit passed ", "tools FAILED hack/build-tools.sh: exit status 1", "e2e FAILED not run: tools failed to build kwok", "race SKIPPED no C compiler",
		"integration FAILED not run: tools failed to build kwok", "deploy passed ",
	}
	if !slices.Equal(names, want) || strings.Contains(screen.String(), "never") || !strings.Contains(screen.String(), "building etcd kwok kubectl") {
		t.Errorf("got %q, want %q; the screen:\n%s", names, want, screen)
	}
}

// TestStepsThatRunABrokenBinaryDoNotRun checks that a member that does not build stops only steps
// that run it.
func TestStepsThatRunABrokenBinaryDoNotRun(t *testing.T) {
	r, screen := plant(t)
	for name, script := range map[string]string{"hack/build-tools.sh": "#!/bin/sh\ntrue\n", "Makefile": "build:\n\tfalse\n"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(r.root, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(r.root, name), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	got := states(r.run(t.Context(), []step{
		{name: "lint", tools: []string{"staticcheck"}, commands: sh("true")},
		{name: "e2e", tools: []string{"etcd"}, member: true, commands: sh("true")},
	}, nil))
	if want := (map[string]state{"tools": passed, "build": failed, "lint": passed, "e2e": failed}); !maps.Equal(got, want) {
		t.Errorf("got %v, want %v; the screen:\n%s", got, want, screen)
	}
}

// TestInterruptReachesWhatAStepRuns checks that a step's whole group of processes gets the
// interrupt, as a test binary does that the go command has started.
func TestInterruptReachesWhatAStepRuns(t *testing.T) {
	r, screen := plant(t)
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	for _, name := range []string{"began", "hold"} {
		if err := syscall.Mkfifo(filepath.Join(r.root, name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	go func() {
		_, _ = os.ReadFile(filepath.Join(r.root, "began")) // returns once the step has begun
		interrupt()
	}()
	// As the go command does, the outer one ignores the signal and waits for what it runs.
	const script = `trap : INT; sh -c 'trap "echo stopped; exit 3" INT; cat hold >/dev/null 2>&1 & : >began; wait'`
	results := r.run(ctx, []step{{name: "e2e", commands: sh(script)}}, nil)
	if results[0].state != failed || !strings.Contains(screen.String(), "stopped") {
		t.Errorf("got %+v; the screen:\n%s", results[0], screen)
	}
}

// TestFailuresNameTheProgram checks that a failure does not name what only sets up the program.
func TestFailuresNameTheProgram(t *testing.T) {
	for _, c := range []command{within("examples/client-go", "go", "vet"), staticcheck("./..."), run("make", "build")} {
		low := step{commands: []command{c}}.low().commands[0]
		if c.program() != low.program() || slices.Contains([]string{"env", "nice"}, c.program()) {
			t.Errorf("%q names %q, with a low priority %q", c.args, c.program(), low.program())
		}
	}
}

// TestChangedLeavesTheStepAlone checks that the changed packages are given to one run of the step
// only.
func TestChangedLeavesTheStepAlone(t *testing.T) {
	r, screen := plant(t)
	for _, args := range [][]string{{"init", "-q", "-b", "main"}, {"commit", "-q", "--allow-empty", "-m", "one"}} {
		command := exec.CommandContext(t.Context(), "git", append([]string{"-c", "user.name=a", "-c", "user.email=a@example.com"}, args...)...)
		command.Dir = r.root
		if out, err := command.CombinedOutput(); err != nil {
			t.Fatalf("git %q: %v\n%s", args, err, out)
		}
	}
	steps := []step{{name: "lint", changed: true, commands: []command{run("echo", "on")}}}
	for range 2 {
		if results := r.run(t.Context(), steps, nil); results[0].state != passed {
			t.Fatalf("got %+v; the screen:\n%s", results[0], screen)
		}
	}
	if got := steps[0].commands[0].args; len(got) != 2 || strings.Contains(screen.String(), "on ./. ./.") || !strings.Contains(screen.String(), "on ./.\n") {
		t.Errorf("the step runs %q then; the screen:\n%s", got, screen)
	}
}

// TestChanged finds packages with files that are untracked, not committed, or not in upstream.
func TestChanged(t *testing.T) {
	root := t.TempDir()
	write := func(names ...string) {
		for _, name := range names {
			if err := os.MkdirAll(filepath.Join(root, filepath.Dir(name)), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(root, name), []byte("package x // "+name+"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	in := func(args ...string) {
		command := exec.CommandContext(t.Context(), "git", append([]string{"-c", "user.name=a", "-c", "user.email=a@example.com"}, args...)...)
		command.Dir = root
		if out, err := command.CombinedOutput(); err != nil {
			t.Fatalf("git %q: %v\n%s", args, err, out)
		}
	}
	require := func(want ...string) {
		t.Helper()
		got, err := changed(t.Context(), root)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
	}
	in("init", "-q", "-b", "main")
	write("pkg/a/a.go", "pkg/b/b.go", "pkg/c/c.go", "other/go.mod", "other/x.go")
	in("add", "-A")
	in("commit", "-qm", "one")
	require()
	write("pkg/d/d.go", "pkg/d/testdata/e.go", "README.md")
	if err := os.WriteFile(filepath.Join(root, "pkg/a/a.go"), []byte("package y\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "other/x.go"), []byte("package y\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(root, "pkg/b")); err != nil {
		t.Fatal(err)
	}
	require("./pkg/a", "./pkg/d")
	in("branch", "published")
	in("add", "-A")
	in("commit", "-qm", "two")
	require()
	in("branch", "-q", "--set-upstream-to=published")
	require("./pkg/a", "./pkg/d")
}
