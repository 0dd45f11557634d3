package deps

import (
	"go/ast"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// heavy are packages that pull in most of Kubernetes: a binary that links one takes half a minute
// to link on two cores, and minutes to compile the first time.
var heavy = []string{module + "pkg/controllers", "k8s.io/kubernetes/cmd/kube-controller-manager/app", "k8s.io/kubernetes/cmd/kubeadm/app"}

// linksHeavy are the only programs and test binaries that may link one of them, and why.
var linksHeavy = map[string]string{
	"cmd/flotilla":              "it is the controllers",
	"internal/app":              "its tests parse the flags of the command",
	"pkg/controllers":           "its tests build the controllers",
	"pkg/controllers/catalogue": "its tests compare the catalogue with upstream's controllers",
	"test/integration":          "it runs controllers in the test's process",
	"test/docs/check":           "it compares the pages with the flags of the command",
	"test/deploy":               "it compares the static pod with what kubeadm writes",
}

const heavyReason = "it links all of kube-controller-manager, which costs each build of it half a minute: names, plans and " +
	"rings are in pkg/controllers/catalogue; what needs the controllers themselves belongs into one of the packages that link them already"

// TestFewBinariesLinkTheControllers compares the programs and test binaries with the list above, in
// both directions.
func TestFewBinariesLinkTheControllers(t *testing.T) {
	graph := newLinks(sources(t))
	for _, folder := range graph.binaries() {
		why := graph.heavy(folder)
		switch {
		case why != nil && linksHeavy[folder] == "":
			t.Errorf("%s imports %s: %s", folder, strings.Join(why, ", which imports "), heavyReason)
		case why == nil && linksHeavy[folder] != "":
			t.Errorf("%s links nothing heavy: remove it from the list", folder)
		}
	}
	for folder := range linksHeavy {
		if !graph.isBinary[folder] {
			t.Errorf("%s is not a program and has no tests: remove it from the list", folder)
		}
	}
}

// stockOnly are packages that a program with its own controllers does not have.
var stockOnly = []string{module + "pkg/controllers", module + "internal/app", "k8s.io/kubernetes", "k8s.io/component-base"}

// forAnyProgram are packages that such a program imports, with everything they link.
var forAnyProgram = []string{"pkg/metrics", "pkg/flotilla", "pkg/manager"}

const forAnyProgramReason = "it is for programs that have neither component-base nor k8s.io/kubernetes, and whose registries " +
	"and flags theirs would meet: what needs them belongs into internal/app"

// TestLibrariesLinkNothingOfTheStockBinary follows imports through the project's packages, because
// a rule about one package's imports does not see indirect ones.
func TestLibrariesLinkNothingOfTheStockBinary(t *testing.T) {
	graph := newLinks(sources(t))
	for _, folder := range forAnyProgram {
		if len(graph.imports[folder]) == 0 {
			t.Errorf("%s imports nothing: does it exist?", folder)
		}
		if why := graph.stockOnly(folder); why != nil {
			t.Errorf("%s imports %s: %s", folder, strings.Join(why, ", which imports "), forAnyProgramReason)
		}
	}
}

// links records which directory of the module imports what, for programs and libraries and for
// their tests.
type links struct {
	imports, testImports map[string][]string
	isBinary             map[string]bool
}

func newLinks(files []file) links {
	l := links{imports: map[string][]string{}, testImports: map[string][]string{}, isBinary: map[string]bool{}}
	for _, f := range files {
		folder := path.Dir(f.path)
		of := l.imports
		if f.isTest() {
			of = l.testImports
		}
		of[folder] = append(of[folder], imported(f.ast)...)
		l.isBinary[folder] = l.isBinary[folder] || f.isTest() || f.ast.Name.Name == "main"
	}
	return l
}

func imported(parsed *ast.File) []string {
	var names []string
	for _, spec := range parsed.Imports {
		name, _ := strconv.Unquote(spec.Path.Value)
		names = append(names, name)
	}
	return names
}

func (l links) binaries() []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(l.isBinary)), func(folder string) bool { return !l.isBinary[folder] })
}

// heavy returns the chain of imports from a directory's binary or its tests to a heavy package.
func (l links) heavy(folder string) []string {
	return l.find(append(slices.Clone(l.imports[folder]), l.testImports[folder]...), func(name string) bool {
		return name == heavy[0] || belowAny(name, heavy[1:])
	})
}

// stockOnly returns the chain of imports from a package to one that only the stock-compatible
// binary has.
func (l links) stockOnly(folder string) []string {
	return l.find(l.imports[folder], func(name string) bool { return belowAny(name, stockOnly) })
}

// find returns the chain of imports from these to one that is sought.
func (l links) find(from []string, sought func(name string) bool) []string {
	seen := map[string]bool{}
	var search func(imports []string) []string
	search = func(imports []string) []string {
		for _, name := range imports {
			if sought(name) {
				return []string{name}
			}
			within, ours := strings.CutPrefix(name, module)
			if !ours || seen[within] {
				continue
			}
			seen[within] = true
			if rest := search(l.imports[within]); rest != nil {
				return append([]string{name}, rest...)
			}
		}
		return nil
	}
	return search(from)
}

// TestLinkingRuleComplains plants a test that imports the controllers indirectly.
func TestLinkingRuleComplains(t *testing.T) {
	plant := func(name, code string) file { return parse(t, name, code) }
	graph := newLinks([]file{
		plant("pkg/a/a.go", "package a\n\nimport _ \""+module+"pkg/controllers/catalogue\"\n"),
		plant("pkg/a/a_test.go", "package a\n\nimport _ \""+module+"pkg/b\"\n"),
		plant("pkg/b/b.go", "package b\n\nimport _ \""+module+"pkg/controllers\"\n"),
		plant("pkg/c/c.go", "package c\n\nimport _ \""+module+"pkg/a\"\n"),
		plant("pkg/c/c_test.go", "package c\n"),
		plant("cmd/d/d.go", "package main\n\nimport _ \"k8s.io/kubernetes/cmd/kube-controller-manager/app/options\"\n"),
		plant("pkg/controllers/catalogue/x.go", "package catalogue\n\nimport _ \"k8s.io/kubernetes/cmd/kube-controller-manager/names\"\n"),
	})
	if want := []string{"cmd/d", "pkg/a", "pkg/c"}; !slices.Equal(graph.binaries(), want) {
		t.Errorf("binaries: %v, want %v", graph.binaries(), want)
	}
	for folder, want := range map[string][]string{
		"pkg/a": {module + "pkg/b", module + "pkg/controllers"},
		"pkg/c": nil, // pkg/a's tests do not count for it
		"cmd/d": {"k8s.io/kubernetes/cmd/kube-controller-manager/app/options"},
	} {
		if got := graph.heavy(folder); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", folder, got, want)
		}
	}
	library := newLinks([]file{
		plant("pkg/a/a.go", "package a\n\nimport _ \""+module+"pkg/b\"\n"),
		plant("pkg/a/a_test.go", "package a\n\nimport _ \"k8s.io/component-base/metrics\"\n"),
		plant("pkg/b/b.go", "package b\n\nimport _ \"k8s.io/component-base/version\"\n"),
		plant("pkg/c/c.go", "package c\n\nimport _ \"k8s.io/component-helpers/x\"\n"),
		plant("pkg/c/c_test.go", "package c\n\nimport _ \""+module+"pkg/b\"\n"),
	})
	for folder, want := range map[string][]string{
		"pkg/a": {module + "pkg/b", "k8s.io/component-base/version"},
		"pkg/c": nil, // importers do not link its tests
	} {
		if got := library.stockOnly(folder); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", folder, got, want)
		}
	}
}
