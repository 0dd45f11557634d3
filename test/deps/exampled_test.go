package deps

import (
	"fmt"
	"go/ast"
	"go/types"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// adopted are the packages with which others write programs.
var adopted = []string{"pkg/flotilla", "pkg/manager", "pkg/cloud", "pkg/metrics", "pkg/events"}

const exampledReason = "people learn a package from its examples: use the name in an Example " +
	"function of the package's tests, or in examples/"

// TestExportedNamesHaveExamples finds exported names that no example uses.
func TestExportedNamesHaveExamples(t *testing.T) {
	var files []file
	for _, f := range sources(t) {
		if slices.Contains(adopted, path.Dir(f.path)) {
			files = append(files, f)
		}
	}
	files = append(files, parseExamples(t)...)
	complaints, names := exampledComplaints(adopted, files)
	for _, complaint := range complaints {
		t.Error(complaint)
	}
	if names < 50 {
		t.Errorf("There are only %d exported names: the test reads less than it should", names)
	}
}

// parseExamples returns the files of the modules in examples/.
func parseExamples(t *testing.T) []file {
	t.Helper()
	var all []file
	below := filepath.Join(root, "examples")
	err := filepath.WalkDir(below, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(name, ".go") {
			return err
		}
		rel, err := filepath.Rel(root, name)
		if err == nil {
			all = append(all, parse(t, filepath.ToSlash(rel), nil))
		}
		return err
	})
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return all
}

// exampledComplaints returns a complaint for each exported name of the packages that no example in
// the files uses, and the number of names. It leaves out fields, whose types have examples, and
// methods that implement an interface of the package, which has the example.
func exampledComplaints(packages []string, files []file) (complaints []string, names int) {
	c := checker{files: files, checked: map[string]*types.Package{}}
	used := map[types.Object]bool{}
	for _, dir := range folders(files) {
		info := &types.Info{Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{}}
		var examples []file
		for _, f := range files {
			external := strings.HasSuffix(f.ast.Name.Name, "_test")
			if path.Dir(f.path) == dir && (external || !slices.Contains(packages, dir)) {
				examples = append(examples, f)
			}
		}
		c.check(dir+"_test", examples, info)
		begin := func(d ast.Decl) bool { return isExample(d) }
		if !slices.Contains(packages, dir) {
			begin = func(ast.Decl) bool { return true } // a program is an example as a whole
		}
		reach(examples, info, begin, used)
	}
	for _, dir := range packages {
		pkg, err := c.Import(module + dir)
		if err != nil {
			return []string{fmt.Sprintf("%s: %v", dir, err)}, 0
		}
		for _, o := range exported(pkg) {
			names++
			if !used[o] {
				complaint := fmt.Sprintf("%s: %s: no example uses it: %s", dir, nameOf(o), exampledReason)
				complaints = append(complaints, complaint)
			}
		}
	}
	return complaints, names
}

func folders(files []file) []string {
	dirs := map[string]bool{}
	for _, f := range files {
		dirs[path.Dir(f.path)] = true
	}
	return slices.Sorted(maps.Keys(dirs))
}

// checker resolves identifiers as far as the files allow: names from packages that are not among
// them resolve to nothing.
type checker struct {
	files   []file
	checked map[string]*types.Package
}

// Import implements types.Importer.
func (c *checker) Import(name string) (*types.Package, error) {
	if pkg, done := c.checked[name]; done {
		return pkg, nil
	}
	dir, ours := strings.CutPrefix(name, module)
	var files []file
	for _, f := range c.files {
		if path.Dir(f.path) == dir && !f.isTest() {
			files = append(files, f)
		}
	}
	if !ours || len(files) == 0 {
		return nil, fmt.Errorf("no files of %s", name)
	}
	c.checked[name] = c.check(name, files, nil)
	return c.checked[name], nil
}

func (c *checker) check(name string, files []file, info *types.Info) *types.Package {
	config := types.Config{Importer: c, Error: func(error) {}}
	var parsed []*ast.File
	for _, f := range files {
		parsed = append(parsed, f.ast)
	}
	// The errors are about what is not in the files.
	pkg, _ := config.Check(name, positions, parsed, info)
	return pkg
}

// reach records what is used by the declarations that begin selects, and by what these use in the
// same files.
func reach(files []file, info *types.Info, begin func(ast.Decl) bool, used map[types.Object]bool) {
	declared := map[types.Object][]ast.Decl{}
	var next []ast.Decl
	for _, f := range files {
		for _, d := range f.ast.Decls {
			if begin(d) {
				next = append(next, d)
			}
			for _, o := range declares(d, info) {
				declared[o] = append(declared[o], d)
			}
		}
	}
	seen := map[ast.Decl]bool{}
	for len(next) > 0 {
		d := next[0]
		next = next[1:]
		if seen[d] {
			continue
		}
		seen[d] = true
		ast.Inspect(d, func(n ast.Node) bool {
			if id, is := n.(*ast.Ident); is && info.Uses[id] != nil {
				used[info.Uses[id]] = true
				next = append(next, declared[info.Uses[id]]...)
				if of := typeOf(info.Uses[id]); of != nil {
					used[of] = true
				}
			}
			return true
		})
	}
}

// typeOf returns the name of a variable's type, because using the variable uses the type; nil for
// everything else.
func typeOf(o types.Object) types.Object {
	if _, is := o.(*types.Var); !is {
		return nil
	}
	t := o.Type()
	if p, is := t.(*types.Pointer); is {
		t = p.Elem()
	}
	if named, is := t.(*types.Named); is {
		return named.Obj()
	}
	return nil
}

// declares returns what a top-level declaration declares. A method belongs to its receiver's type:
// showing the type shows what it does.
func declares(d ast.Decl, info *types.Info) []types.Object {
	var all []types.Object
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil {
			return []types.Object{info.Defs[d.Name]}
		}
		ast.Inspect(d.Recv, func(n ast.Node) bool {
			if id, is := n.(*ast.Ident); is && info.Uses[id] != nil {
				all = append(all, info.Uses[id])
			}
			return true
		})
	case *ast.GenDecl:
		for _, s := range d.Specs {
			switch s := s.(type) {
			case *ast.TypeSpec:
				all = append(all, info.Defs[s.Name])
			case *ast.ValueSpec:
				for _, name := range s.Names {
					all = append(all, info.Defs[name])
				}
			}
		}
	}
	return all
}

// exported returns the package's names and the methods of its types.
func exported(pkg *types.Package) []types.Object {
	var all []types.Object
	var interfaces []*types.Interface
	scope := pkg.Scope()
	for _, name := range scope.Names() {
		if o := scope.Lookup(name); o.Exported() {
			all = append(all, o)
			if i, is := o.Type().Underlying().(*types.Interface); is {
				interfaces = append(interfaces, i)
			}
		}
	}
	for _, o := range slices.Clone(all) {
		named, is := o.Type().(*types.Named)
		if _, isType := o.(*types.TypeName); !is || !isType {
			continue
		}
		for m := range named.Methods() {
			implements := func(i *types.Interface) bool {
				return types.Implements(types.NewPointer(named), i) && has(i, m.Name())
			}
			if m.Exported() && !everywhere(m) && !slices.ContainsFunc(interfaces, implements) {
				all = append(all, m)
			}
		}
	}
	return all
}

// everywhere reports whether a method does what its name says everywhere: those of fmt, errors and
// encoding, and of others' interfaces.
func everywhere(m *types.Func) bool {
	return slices.Contains([]string{
		"Error", "Is", "As", "Unwrap", "String", "MarshalJSON", "UnmarshalJSON",
		"Describe", "Collect", // prometheus.Collector
	}, m.Name())
}

func has(i *types.Interface, method string) bool {
	for m := range i.Methods() {
		if m.Name() == method {
			return true
		}
	}
	return false
}

func nameOf(o types.Object) string {
	f, is := o.(*types.Func)
	if !is || f.Signature().Recv() == nil {
		return o.Name()
	}
	of := types.TypeString(f.Signature().Recv().Type(), func(*types.Package) string { return "" })
	return strings.TrimPrefix(of, "*") + "." + o.Name()
}

// TestExampledRuleComplains plants names with and without an example.
func TestExampledRuleComplains(t *testing.T) {
	const code = `package planted

import "example.com/elsewhere"

const Limit = 3
type Fleet struct{ Name string }
func New(elsewhere.Config) (*Fleet, error) { return nil, nil }
func (f *Fleet) Run() {}
func (f *Fleet) String() string { return "" }
type Runnable interface{ Work() }
type Func func()
func (f Func) Work() {}
func hidden() {}
`
	for _, tc := range []struct {
		what, example, program string
		want                   []string // names without an example
	}{
		{
			what: "all in examples", example: `func Example() {
				f, err := planted.New(elsewhere.Config{Limit: planted.Limit})
				f.Run()
				helper()
			}
			func helper() { var _ planted.Runnable = planted.Func(nil) }`,
		},
		{
			what: "in a test", example: "func TestAll() { _ = planted.Limit; f, _ := planted.New(nil); f.Run(); var _ planted.Fleet; var _ planted.Runnable = planted.Func(nil) }",
			want: []string{"Fleet", "Func", "Limit", "New", "Runnable", "Fleet.Run"},
		},
		{
			what: "a method of another type", example: `func ExampleFleet() {
				var f planted.Fleet
				var other elsewhere.Fleet
				other.Run()
				other.New(planted.Limit)
			}`,
			want: []string{"Func", "New", "Runnable", "Fleet.Run"},
		},
		{
			what: "a helper that no example uses", example: `func Example() { planted.New(planted.Limit) }
			func helper() { f, _ := planted.New(nil); f.Run(); var _ planted.Fleet; var _ planted.Runnable = planted.Func(nil) }`,
			want: []string{"Fleet", "Func", "Runnable", "Fleet.Run"},
		},
		{
			what: "a method of a type that an example uses", example: `func Example() { planted.New(mine{}) }
			type mine struct{}
			func (mine) do() { var f planted.Fleet; f.Run(); var _ planted.Runnable = planted.Func(nil); _ = planted.Limit }`,
		},
		{
			what: "in a program", program: "func main() { var f planted.Fleet; f.Run(); planted.New(planted.Limit) }\nvar _ planted.Runnable = planted.Func(nil)",
		},
	} {
		const imports = "\n\nimport (\n\t\"example.com/elsewhere\"\n\t\"" + module + "pkg/planted\"\n)\n\n"
		files := []file{parse(t, "pkg/planted/a.go", code)}
		if tc.example != "" {
			files = append(files, parse(t, "pkg/planted/example_test.go", "package planted_test"+imports+tc.example))
		} else {
			files = append(files, parse(t, "examples/a/main.go", "package main"+imports+tc.program))
		}
		complaints, names := exampledComplaints([]string{"pkg/planted"}, files)
		if names != 6 {
			t.Errorf("%s: there are %d names, want 6", tc.what, names)
		}
		var got []string
		for _, c := range complaints {
			got = append(got, strings.Split(c, ": ")[1])
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: without example are %q, want %q", tc.what, got, tc.want)
		}
	}
}
