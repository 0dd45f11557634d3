package faults

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// TestReleaseHasNoBugs checks that without the tag every bug is the constant false, or a function
// that returns it: the compiler then leaves out the code behind it. The same names must exist with
// the tag.
func TestReleaseHasNoBugs(t *testing.T) {
	off, on := declared(t, "off.go"), declared(t, "on.go")
	for name, decl := range off {
		if !isFalse(decl) {
			t.Errorf("off.go: %s is not the constant false", name)
		}
		if on[name] == nil {
			t.Errorf("off.go has %s, but on.go does not", name)
		}
	}
	for name := range on {
		if off[name] == nil && name != "Variable" {
			t.Errorf("on.go has %s, but off.go does not", name)
		}
	}
	if len(off) < 5 {
		t.Errorf("off.go has %d bugs: it cannot be read", len(off))
	}
	for _, not := range []string{"package p\nvar A = false", "package p\nconst A = true", "package p\nfunc A() bool { return x }"} {
		for _, decl := range declarations(t, "x.go", not) {
			if isFalse(decl) {
				t.Errorf("%q passes for the constant false", not)
			}
		}
	}
}

// TestUnknownBug builds a program with the tag, which must fail if it is asked for an unknown bug.
func TestUnknownBug(t *testing.T) {
	binary := t.TempDir() + "/planted.test"
	build := exec.CommandContext(t.Context(), "go", "test", "-trimpath", "-buildvcs=false", "-vet=off", "-c", "-tags=planted", "-o", binary, ".")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", build, err, out)
	}
	for name, wrong := range map[string]bool{"": false, "fence_off": false, "fence_of": true, "FenceOff": true} {
		run := exec.CommandContext(t.Context(), binary, "-test.run=^$")
		run.Env = append(os.Environ(), "FLOTILLA_PLANT="+name)
		out, err := run.CombinedOutput()
		if (err != nil) != wrong || wrong && !strings.Contains(string(out), `"`+name+`", must be empty or one of adapt_never `) {
			t.Errorf("FLOTILLA_PLANT=%s: %v, %s", name, err, out)
		}
	}
}

// declared returns the exported declarations of a file by name.
func declared(t *testing.T, file string) map[string]ast.Node {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return declarations(t, file, string(text))
}

func declarations(t *testing.T, file, text string) map[string]ast.Node {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, text, 0)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]ast.Node{}
	for _, decl := range parsed.Decls {
		switch decl := decl.(type) {
		case *ast.FuncDecl:
			if decl.Name.IsExported() {
				found[decl.Name.Name] = decl
			}
		case *ast.GenDecl:
			for _, spec := range decl.Specs {
				value, ok := spec.(*ast.ValueSpec)
				if ok && value.Names[0].IsExported() {
					found[value.Names[0].Name] = &ast.GenDecl{Tok: decl.Tok, Specs: []ast.Spec{value}}
				}
			}
		}
	}
	return found
}

// isFalse reports whether a declaration is "const Name = false" or "func Name() bool { return false
// }".
func isFalse(decl ast.Node) bool {
	var values []ast.Expr
	switch decl := decl.(type) {
	case *ast.FuncDecl:
		if len(decl.Body.List) != 1 {
			return false
		}
		if result, ok := decl.Body.List[0].(*ast.ReturnStmt); ok {
			values = result.Results
		}
	case *ast.GenDecl:
		if decl.Tok == token.CONST {
			values = decl.Specs[0].(*ast.ValueSpec).Values
		}
	}
	return len(values) == 1 && slices.ContainsFunc(values, func(e ast.Expr) bool {
		ident, ok := e.(*ast.Ident)
		return ok && ident.Name == "false"
	})
}
