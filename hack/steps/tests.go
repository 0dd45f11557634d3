package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
)

// long is how long a test takes whose end gets its own line.
const long = 10 * time.Second

// skip is a test that was skipped.
type skip struct {
	test string // package and name
	why  string
}

// leftOut reports whether the test waits for a flag, and lacks nothing.
func (s skip) leftOut() bool { return strings.HasPrefix(s.why, "left out: ") }

// leftFor returns the step whose flag the test waits for; empty if it does not name one.
func (s skip) leftFor() string {
	if match := leftFor.FindStringSubmatch(s.why); match != nil {
		return match[1]
	}
	return ""
}

var leftFor = regexp.MustCompile(`^left out: .*\bRUN=([a-z0-9-]+)`)

// timed is a test that passed or failed, and how long that took.
type timed struct {
	test string // package and name
	took time.Duration
}

// mostTimed is how many of the slowest tests the table has.
const mostTimed = 10

// seen is the result of commands that have ended, and of their tests by the events of `go test`.
type seen struct {
	cpu   time.Duration
	skips []skip
	// ran counts the tests that passed or were skipped.
	ran int
	// slowest are at most mostTimed tests, the slowest first.
	slowest []timed
}

func (s *seen) add(other seen) {
	s.cpu += other.cpu
	s.skips = append(s.skips, other.skips...)
	s.ran += other.ran
	s.slowest = slowest(append(s.slowest, other.slowest...))
}

// slowest returns the mostTimed slowest tests, the slowest first.
func slowest(tests []timed) []timed {
	slices.SortStableFunc(tests, func(a, b timed) int { return cmp.Compare(b.took, a.took) })
	return tests[:min(len(tests), mostTimed)]
}

// event is a line of `go test -json`; see `go doc test2json`.
type event struct {
	Action, Package, ImportPath, Test, Output string
	Elapsed                                   float64
}

// tests reads the events of `go test -json`. It shows what `go test` without -v would, and the slow
// tests that have passed.
type tests struct {
	screen, log io.Writer
	rest        []byte // of a line
	// outputs are the outputs of tests, by package and name, and of packages.
	outputs map[string]*bytes.Buffer
	// times has the tests of each package that has not ended. cached has the packages whose tests
	// did not run: the go command repeats their output, and their earlier times.
	times  map[string][]timed
	cached map[string]bool
	seen
}

func newTests(screen, log io.Writer) *tests {
	return &tests{screen: screen, log: log, outputs: map[string]*bytes.Buffer{}, times: map[string][]timed{}, cached: map[string]bool{}}
}

// Write implements io.Writer.
func (t *tests) Write(p []byte) (int, error) {
	t.rest = append(t.rest, p...)
	for {
		line, rest, found := bytes.Cut(t.rest, []byte("\n"))
		if !found {
			return len(p), nil
		}
		t.rest = rest
		t.line(line)
	}
}

func (t *tests) close() {
	if len(t.rest) > 0 {
		t.line(t.rest)
	}
	t.rest = nil
	for _, name := range slices.Sorted(maps.Keys(t.times)) {
		t.ended(name) // the go command has not said so
	}
}

func (t *tests) line(line []byte) {
	var e event
	if json.Unmarshal(line, &e) != nil {
		fmt.Fprintf(io.MultiWriter(t.screen, t.log), "%s\n", line)
		return
	}
	_, _ = io.WriteString(t.log, e.Output)
	key := e.Package + " " + e.Test
	switch e.Action {
	case "build-output":
		_, _ = io.WriteString(t.screen, e.Output)
	case "output":
		t.output(key, e)
	case "pass":
		t.timed(e)
		t.passed(key, e)
	case "skip":
		t.skipped(key, e)
	case "fail":
		t.timed(e)
		t.failed(key, e)
	}
}

func (t *tests) output(key string, e event) {
	if e.Test == "" {
		// The package's own: its verdict and output.
		if strings.HasPrefix(e.Output, "ok ") && strings.Contains(e.Output, "\t(cached)") {
			t.cached[e.Package] = true
		}
		if e.Output != "PASS\n" && e.Output != "FAIL\n" {
			_, _ = io.WriteString(t.screen, e.Output)
		}
		return
	}
	if t.outputs[key] == nil {
		t.outputs[key] = &bytes.Buffer{}
	}
	t.outputs[key].WriteString(e.Output)
}

// timed records how long a test took, until its package has ended. A test's time includes its
// subtests.
func (t *tests) timed(e event) {
	switch {
	case e.Test == "":
		t.ended(e.Package)
	case e.isOutermost():
		took := time.Duration(e.Elapsed * float64(time.Second))
		t.times[e.Package] = append(t.times[e.Package], timed{test: e.name(), took: took})
	}
}

// ended counts the tests of a package, unless they did not run.
func (t *tests) ended(name string) {
	if !t.cached[name] {
		t.add(seen{slowest: t.times[name]})
	}
	delete(t.times, name)
}

func (t *tests) passed(key string, e event) {
	delete(t.outputs, key)
	if e.isOutermost() {
		t.ran++
	}
	if e.isOutermost() && e.Elapsed >= long.Seconds() {
		fmt.Fprintf(t.screen, "    %s in %.0f s\n", e.Test, e.Elapsed)
	}
}

func (t *tests) skipped(key string, e event) {
	if e.Test == "" {
		return // a package without tests
	}
	t.ran++
	t.skips = append(t.skips, skip{test: e.name(), why: t.reason(key)})
	delete(t.outputs, key)
}

const module = "github.com/flotilla-kube/flotilla/"

// name returns the test's name with its package.
func (e event) name() string { return strings.TrimPrefix(e.Package, module) + " " + e.Test }

// isOutermost reports whether the event is of a test, and not of a subtest or a package.
func (e event) isOutermost() bool { return e.Test != "" && !strings.Contains(e.Test, "/") }

// reason returns what a test said when it skipped itself: " file_test.go:12: reason", before "---
// SKIP: ".
func (t *tests) reason(key string) string {
	buffer := t.outputs[key]
	if buffer == nil {
		return ""
	}
	var why string
	for line := range strings.Lines(buffer.String()) {
		line = strings.TrimSpace(line)
		_, text, found := strings.Cut(line, ".go:")
		_, text, numbered := strings.Cut(text, ": ")
		if found && numbered {
			why = text
		}
	}
	return why
}

// failed shows what the test printed. If a test crashes the process, only its package's end is
// reported.
func (t *tests) failed(key string, e event) {
	if e.Test != "" {
		t.show(key)
		return
	}
	for key := range t.outputs {
		if strings.HasPrefix(key, e.Package+" ") {
			t.show(key)
		}
	}
}

func (t *tests) show(key string) {
	if buffer := t.outputs[key]; buffer != nil {
		_, _ = t.screen.Write(buffer.Bytes())
		delete(t.outputs, key)
	}
}
