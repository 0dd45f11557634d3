package sim

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

var (
	planted = flag.Bool("planted", false, "build the planted bugs and require that each is found, which takes minutes")
	mistake = flag.String("mistake", "", "make this mistake in a model")
)

// variable is the environment variable that turns on a bug in a program built with planted bugs.
const variable = "FLOTILLA_PLANT"

// verdict matches the simulation's report of a broken invariant.
var verdict = regexp.MustCompile(`FAILED: \[([a-z-]+)\]`)

// failedSeed matches the simulation's report of a failed seed.
var failedSeed = regexp.MustCompile(`seed 0x([0-9a-f]+):`)

// mostSeeds is how many seeds are tried for a bug.
const mostSeeds = 600

// TestPlantedBugsAreFound builds the checkers once with the planted bugs and turns on one bug at a
// time. Each must be found by the invariant it breaks, or by the words of a test. A failure for
// another reason does not count.
func TestPlantedBugsAreFound(t *testing.T) {
	if !*planted {
		t.Skip("left out: takes minutes, make long RUN=planted")
	}
	binaries := map[string]string{"test/sim": build(t, "test/sim")}
	for _, s := range seenByTests {
		if binaries[s.in] == "" {
			binaries[s.in] = build(t, s.in)
		}
	}
	for _, name := range known(t, binaries["test/sim"]) {
		if !slices.ContainsFunc(bugs, func(b planting) bool { return b.name == name && !b.mistake }) &&
			!slices.ContainsFunc(seenByTests, func(s seen) bool { return s.bug == name }) {
			t.Errorf("%s: no checker is known to find it", name)
		}
	}
	for _, b := range bugs {
		t.Run(b.name+" by "+string(b.by), func(t *testing.T) { b.convict(t, binaries["test/sim"]) })
	}
	for _, s := range seenByTests {
		t.Run(s.bug+" by "+s.in+" "+s.run, func(t *testing.T) { s.convict(t, binaries[s.in]) })
	}
}

// build compiles a package's tests with the planted bugs and returns the program.
func build(t *testing.T, pkg string) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), filepath.Base(pkg)+".test")
	command := exec.CommandContext(t.Context(), "go", "test", "-c", "-trimpath", "-buildvcs=false", "-vet=off", "-tags=planted", "-o", binary, "./"+pkg)
	command.Dir = "../.."
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", command, err, out)
	}
	return binary
}

// known asks a program for its planted bugs.
func known(t *testing.T, binary string) []string {
	t.Helper()
	out, _ := runWith(t, binary, ".", "nothing", "-test.run=^$")
	_, names, found := strings.Cut(strings.TrimSpace(out), "must be empty or one of ")
	if !found {
		t.Fatalf("does not say which bugs it has: %s", out)
	}
	return strings.Fields(names)
}

// runWith runs tests with a bug turned on.
func runWith(t *testing.T, binary, dir, bug string, args ...string) (string, error) {
	t.Helper()
	command := exec.CommandContext(t.Context(), binary, args...)
	command.Dir, command.Env = dir, append(os.Environ(), variable+"="+bug)
	out, err := command.CombinedOutput()
	return string(out), err
}

// convict tries seeds until one breaks the invariant. Some verdicts end the process; it then starts
// again with the next seed.
func (b planting) convict(t *testing.T, binary string) {
	began, bug := time.Now(), b.name
	var all string
	for next := uint64(1); next <= mostSeeds; {
		args := []string{
			"-test.run=TestSim$", "-test.v", "-test.timeout=10m", "-until=" + string(b.by),
			fmt.Sprint("-first-seed=", next), fmt.Sprint("-seeds=", mostSeeds-next+1),
		}
		if b.mistake {
			bug, args = "", append(args, "-mistake="+b.name)
		}
		if b.by == everywhere {
			args = append(args, "-versions")
		}
		if b.by == livelock {
			args = append(args, "-real-limit=20s")
		}
		out, err := runWith(t, binary, ".", bug, args...)
		all += out
		failed := failedSeed.FindAllStringSubmatch(out, -1)
		if err == nil || len(failed) == 0 || strings.Contains(all, "FAILED: ["+string(b.by)+"]") {
			break
		}
		last, _ := strconv.ParseUint(failed[len(failed)-1][1], 16, 64)
		next = max(next, last) + 1
	}
	for _, problem := range b.wrong(all) {
		t.Errorf("%s\n%s", problem, last(all))
	}
	t.Logf("found in %v, seeds %v", time.Since(began).Round(time.Second), failedSeed.FindAllString(all, -1))
}

// wrong says what is wrong with how the bug was found.
func (b planting) wrong(out string) []string {
	var problems []string
	found := map[invariant]bool{}
	for _, match := range verdict.FindAllStringSubmatch(out, -1) {
		name := invariant(match[1])
		if name != b.by && !slices.Contains(b.also, name) && !found[name] {
			problems = append(problems, fmt.Sprintf("convicted by [%s], want [%s]", name, b.by))
		}
		found[name] = true
	}
	if !found[b.by] {
		problems = append(problems, fmt.Sprintf("not convicted by [%s]", b.by))
	}
	return problems
}

// TestWrongVerdictsAreNone runs the planted-bug check against verdicts that must not count.
func TestWrongVerdictsAreNone(t *testing.T) {
	b := planting{name: "x", by: late, also: []invariant{stale}}
	for out, want := range map[string]string{
		"FAILED: [late] x\n":                     "",
		"FAILED: [stale] x\nFAILED: [late] x\n":  "",
		"FAILED: [stale] x\n":                    "not convicted by [late]",
		"FAILED: [fence] x\nFAILED: [late] x\n":  "convicted by [fence], want [late]",
		"panic: something else\n":                "not convicted by [late]",
		"--- FAIL: TestSim\n  late: 600 seeds\n": "not convicted by [late]",
	} {
		got := strings.Join(b.wrong(out), "; ")
		if want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%q: %q, want %q", out, got, want)
		}
	}
}

func (s seen) convict(t *testing.T, binary string) {
	out, err := runWith(t, binary, filepath.Join("../..", s.in), s.bug, "-test.run=^("+s.run+")$", "-test.timeout=5m")
	words := regexp.MustCompile(s.want).FindString(out)
	if err == nil || words == "" {
		t.Fatalf("not convicted by %q: %v\n%s", s.want, err, last(out))
	}
	for _, match := range regexp.MustCompile(`(?m)^--- FAIL: (\w+)`).FindAllStringSubmatch(out, -1) {
		if !slices.Contains(strings.Split(s.run, "|"), match[1]) {
			t.Errorf("%s fails as well", match[1])
		}
	}
	t.Logf("found: %s", words)
}

// last returns the end of a long text.
func last(text string) string {
	lines := strings.Split(text, "\n")
	return strings.Join(lines[max(0, len(lines)-2*traceLines):], "\n")
}
