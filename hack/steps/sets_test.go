package main

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// root is the module's directory, relative to this package's.
const root = "../.."

// TestEveryTestIsRun finds a package whose tests `make test` or `make test-all` overlooks.
func TestEveryTestIsRun(t *testing.T) {
	for name, steps := range map[string][]step{"test": test(), "test-all": testAll()} {
		var patterns []string
		for _, s := range steps {
			for _, c := range s.commands {
				if c.tests {
					patterns = append(patterns, c.args...)
				}
			}
		}
		for _, folder := range testFolders(t) {
			if folder == "test/monitoring/live" && name == "test" {
				continue // it needs Prometheus, which takes minutes to build
			}
			if !slices.ContainsFunc(patterns, func(pattern string) bool { return matches(pattern, folder) }) {
				t.Errorf("no step of %s runs the tests of %s", name, folder)
			}
		}
	}
}

// TestEveryModuleIsLinted finds a module of ours that no step of `make test-all` looks at, which
// ./... of the root's leaves out, and one whose tests none runs.
func TestEveryModuleIsLinted(t *testing.T) {
	for _, pattern := range []string{"examples/*/go.mod", "hack/tools/*/go.mod"} {
		modules, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil || len(modules) < 2 {
			t.Fatalf("%q are all that matches %s: %v", modules, pattern, err)
		}
		for _, module := range modules {
			folder, err := filepath.Rel(root, filepath.Dir(module))
			if err != nil {
				t.Fatal(err)
			}
			code, tests := goFiles(t, filepath.Dir(module))
			for _, want := range []struct {
				due  bool
				what string
			}{{code, "vet"}, {code, "staticcheck"}, {tests, "test"}} {
				if want.due && !slices.ContainsFunc(testAll(), func(s step) bool {
					return slices.ContainsFunc(s.commands, func(c command) bool { return c.runsIn(folder, want.what) })
				}) {
					t.Errorf("no step of test-all has %s of %s", want.what, folder)
				}
			}
		}
	}
}

// runsIn reports whether the command runs in a folder and one of its first arguments ends with a
// name.
func (c command) runsIn(folder, name string) bool {
	return len(c.args) > 4 && c.args[0] == "env" && c.args[2] == folder &&
		slices.ContainsFunc(c.args[3:5], func(arg string) bool { return strings.HasSuffix(arg, name) })
}

// goFiles reports whether a module has code, and whether it has tests.
func goFiles(t *testing.T, module string) (code, tests bool) {
	t.Helper()
	err := filepath.WalkDir(module, func(name string, entry fs.DirEntry, err error) error {
		code = code || strings.HasSuffix(name, ".go")
		tests = tests || strings.HasSuffix(name, "_test.go")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return code, tests
}

// TestPatternsMatch finds patterns of packages that do not exist, which the go command reports as
// an error.
func TestPatternsMatch(t *testing.T) {
	folders := testFolders(t)
	for _, s := range all() {
		for _, c := range s.commands {
			for _, arg := range c.args {
				if c.tests && strings.HasPrefix(arg, "./") && !slices.ContainsFunc(folders, func(folder string) bool { return matches(arg, folder) }) {
					t.Errorf("%s tests %s, where there are no tests", s.name, arg)
				}
			}
		}
	}
}

// TestPatternsNameTests finds a part of a step's -run that matches no test any more, such as one of
// several that was renamed.
func TestPatternsNameTests(t *testing.T) {
	named := 0
	for _, s := range all() {
		for _, c := range s.commands {
			pattern := c.pattern()
			if !c.tests || pattern == "" {
				continue
			}
			tests := testsOf(t, c)
			for part := range strings.SplitSeq(pattern, "|") {
				named++
				if re := regexp.MustCompile(part); !slices.ContainsFunc(tests, re.MatchString) {
					t.Errorf("%s runs %s, and there is no such test", s.name, part)
				}
			}
		}
	}
	if named < 10 {
		t.Errorf("the steps name %d tests only: the test reads less than it should", named)
	}
}

var testFunc = regexp.MustCompile(`(?m)^func (Test\w+)\(t \*testing\.T\)`)

// testsOf returns the names of the tests in a command's packages.
func testsOf(t *testing.T, c command) []string {
	t.Helper()
	var tests []string
	for _, folder := range testFolders(t) {
		if !slices.ContainsFunc(c.args, func(arg string) bool { return matches(arg, folder) }) {
			continue
		}
		for _, source := range testFiles(t, folder) {
			for _, match := range testFunc.FindAllSubmatch(source, -1) {
				tests = append(tests, string(match[1]))
			}
		}
	}
	return tests
}

// testFiles returns the contents of a folder's test files by their paths.
func testFiles(t *testing.T, folder string) map[string][]byte {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, folder, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	sources := make(map[string][]byte, len(files))
	for _, file := range files {
		if sources[file], err = os.ReadFile(file); err != nil {
			t.Fatal(err)
		}
	}
	return sources
}

// longer are the steps beyond `make test-all` that tests may be left out for. CONTRIBUTING.md lists
// them.
var longer = []string{"balance", "garbage-burst"}

var leftOutFor = regexp.MustCompile(`Skip\w*\("left out: [^"]*\bRUN=([a-z0-9-]+)`)

// TestWhatIsLeftOutIsRun finds a test that waits for a step that `make test-all` does not have.
func TestWhatIsLeftOutIsRun(t *testing.T) {
	all := testAll()
	waits := map[string]bool{}
	for _, folder := range testFolders(t) {
		if folder == "hack/steps" {
			continue // its fixtures name steps
		}
		for file, source := range testFiles(t, folder) {
			for _, match := range leftOutFor.FindAllSubmatch(source, -1) {
				name := string(match[1])
				waits[name] = true
				if !slices.ContainsFunc(all, func(s step) bool { return s.name == name }) && !slices.Contains(longer, name) {
					t.Errorf("%s leaves a test out for the step %s, which test-all does not run", file, name)
				}
			}
		}
	}
	for _, name := range longer {
		if !waits[name] || slices.ContainsFunc(all, func(s step) bool { return s.name == name }) {
			t.Errorf("no test is left out for %s any more, or test-all runs it", name)
		}
	}
	if len(waits) < 8 {
		t.Errorf("tests wait for %d steps only: the test reads less than it should", len(waits))
	}
}

func matches(pattern, folder string) bool {
	tree, all := strings.CutSuffix(pattern, "/...")
	return "./"+folder == tree || all && strings.HasPrefix("./"+folder, tree+"/")
}

// testFolders returns the directories with tests of the root's module.
func testFolders(t *testing.T) []string {
	t.Helper()
	var folders []string
	for _, top := range []string{"cmd", "hack", "internal", "pkg", "test"} {
		err := filepath.WalkDir(filepath.Join(root, top), func(name string, entry fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if _, err := os.Stat(filepath.Join(name, "go.mod")); err == nil || entry.Name() == "testdata" {
				return fs.SkipDir
			}
			folder, err := filepath.Rel(root, filepath.Dir(name))
			if strings.HasSuffix(name, "_test.go") && !slices.Contains(folders, filepath.ToSlash(folder)) {
				folders = append(folders, filepath.ToSlash(folder))
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(folders) < 30 {
		t.Fatalf("only %d folders have tests", len(folders))
	}
	return folders
}

// TestSetsAreSound checks that a set has each name once, and that a name means the same in every
// set.
func TestSetsAreSound(t *testing.T) {
	means := map[string]string{}
	for _, steps := range [][]step{check(), test(), testAll(), more()} {
		var names []string
		for _, s := range steps {
			if slices.Contains(names, s.name) || s.name == toolsName || s.name == binaryName || s.name == "help" {
				t.Errorf("%s is listed twice", s.name)
			}
			names = append(names, s.name)
			if len(s.commands) == 0 || s.what == "" || s.long == "" {
				t.Errorf("%s says too little", s.name)
			}
			if other, known := means[s.name]; known && other != s.what {
				t.Errorf("%s is %q and %q", s.name, other, s.what)
			}
			means[s.name] = s.what
		}
	}
}

// TestUnknownSteps checks that an unknown name is answered with the known ones.
func TestUnknownSteps(t *testing.T) {
	var out bytes.Buffer
	if code := do(t.Context(), []string{"e2e", "handofs"}, &out); code != 2 || !strings.Contains(out.String(), `there is no step "handofs"; there are: alerts balance bench-short bounds canary chaos`) {
		t.Errorf("%d: %s", code, out.String())
	}
	out.Reset()
	if code := do(t.Context(), []string{"e2e", "e2e"}, &out); code != 2 || !strings.Contains(out.String(), `step "e2e" is named twice`) {
		t.Errorf("%d: %s", code, out.String())
	}
	out.Reset()
	if code := do(t.Context(), []string{"help"}, &out); code != 0 || !strings.Contains(out.String(), "\ne2e ") {
		t.Errorf("%d: %s", code, out.String())
	}
}
