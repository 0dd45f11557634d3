package check

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/flotilla-kube/flotilla/test/docs/markdown"
)

const mapPage = "docs/design/map.md"

// TestMap finds files and Go identifiers that the map names but that do not exist.
func TestMap(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, mapPage))
	if err != nil {
		t.Fatal(err)
	}
	p, err := markdown.Parse(mapPage, string(text))
	if err != nil {
		t.Fatal(err)
	}
	files, names, complaints := mapComplaints(p, root)
	for _, complaint := range complaints {
		t.Error(complaint)
	}
	if files < 60 || names < 100 {
		t.Errorf("only %d files and %d identifiers are found: the test reads less than it should",
			files, names)
	}
}

var identifier = regexp.MustCompile(`^[A-Za-z_]\w*(\.[A-Za-z_]\w*)?$`)

// mapComplaints also returns how many paths and identifiers the page names. An identifier must be
// declared in the last file or directory that is named before it. A span with a space is a command,
// which other tests check.
func mapComplaints(p markdown.Page, root string) (files, names int, complaints []string) {
	complain := func(line int, format string, args ...any) {
		text := fmt.Sprintf(format, args...)
		complaints = append(complaints, fmt.Sprintf("%s:%d: %s", p.Path, line, text))
	}
	path, declared := "", map[string]bool{}
	for _, s := range p.Spans {
		switch {
		case strings.Contains(s.Text, " "):
		case strings.Contains(s.Text, "/"):
			files++
			var err error
			if path, declared, err = s.Text, nil, nil; !exists(root, path) {
				complain(s.Line, "%s does not exist", path)
			} else if declared, err = declarations(filepath.Join(root, path)); err != nil {
				complain(s.Line, "%v", err)
			}
		case !identifier.MatchString(s.Text):
			const fault = "`%s` is neither a path nor a Go identifier: write it without code font"
			complain(s.Line, fault, s.Text)
		default:
			names++
			if !declared[s.Text] {
				complain(s.Line, "%q is not declared in %s", s.Text, path)
			}
		}
	}
	return files, names, complaints
}

func exists(root, path string) bool {
	_, err := os.Stat(filepath.Join(root, filepath.FromSlash(path)))
	return err == nil
}

// declarations returns the package-level declarations of a Go file, or of all files of a directory,
// with methods and fields as Type.Name.
func declarations(path string) (map[string]bool, error) {
	files := []string{path}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		if files, err = filepath.Glob(filepath.Join(path, "*.go")); err != nil {
			return nil, err
		}
	}
	found := map[string]bool{}
	for _, name := range files {
		if filepath.Ext(name) != ".go" {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		for _, decl := range file.Decls {
			declare(found, decl)
		}
	}
	return found, nil
}

func declare(found map[string]bool, decl ast.Decl) {
	switch decl := decl.(type) {
	case *ast.FuncDecl:
		name := decl.Name.Name
		if decl.Recv != nil {
			name = receiver(decl.Recv.List[0].Type) + "." + name
		}
		found[name] = true
	case *ast.GenDecl:
		for _, spec := range decl.Specs {
			switch spec := spec.(type) {
			case *ast.ValueSpec:
				for _, name := range spec.Names {
					found[name.Name] = true
				}
			case *ast.TypeSpec:
				declareType(found, spec)
			}
		}
	}
}

func declareType(found map[string]bool, spec *ast.TypeSpec) {
	found[spec.Name.Name] = true
	var members *ast.FieldList
	switch typ := spec.Type.(type) {
	case *ast.StructType:
		members = typ.Fields
	case *ast.InterfaceType:
		members = typ.Methods
	default:
		return
	}
	for _, member := range members.List {
		for _, name := range member.Names {
			found[spec.Name.Name+"."+name.Name] = true
		}
	}
}

// receiver returns the name of the type of a method's receiver.
func receiver(expr ast.Expr) string {
	switch expr := expr.(type) {
	case *ast.StarExpr:
		return receiver(expr.X)
	case *ast.IndexExpr:
		return receiver(expr.X)
	case *ast.Ident:
		return expr.Name
	}
	return ""
}

// TestMapComplains plants text that the rule must find, and text that it must accept.
func TestMapComplains(t *testing.T) {
	dir := t.TempDir()
	source := "package a\n\ntype T struct{ Field int }\n\nfunc (*T) Method() {}\n\nconst constant = 1\n"
	for name, text := range map[string]string{
		"a/a.go": source, "a/b.go": "package a\n\nfunc other() {}\n", "a/c.yaml": "",
	} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for text, want := range map[string]string{
		"`a/a.go` (`T`, `T.Field`, `T.Method`, `constant`), `a/c.yaml`, `make test`": "",
		"`./a` has `T.Method` and `other`":                                           "",
		"`a/a.go`:\n`other`":                                                         `:2: "other" is not declared in a/a.go`,
		"`a/a.go`: `Method`":                                                         `"Method" is not declared`,
		"`a/a.go`: `T.method`":                                                       `"T.method" is not declared`,
		"`a/d.go`":                                                                   "a/d.go does not exist",
		"`a/a.go`: `T`, then `a/c.yaml`: `T`":                                        `"T" is not declared in a/c.yaml`,
		"`T` before any file":                                                        `"T" is not declared`,
		"`a/a.go`: `flotilla-plan`, which no test would find":                        "neither a path nor a Go identifier",
	} {
		p, err := markdown.Parse(mapPage, text)
		if err != nil {
			t.Fatal(err)
		}
		_, _, complaints := mapComplaints(p, dir)
		switch {
		case want == "" && len(complaints) > 0:
			t.Errorf("%s: complains: %q", text, complaints)
		case want != "" && (len(complaints) != 1 || !strings.Contains(complaints[0], want)):
			t.Errorf("%s: complains %q, want one with %q", text, complaints, want)
		}
	}
}
