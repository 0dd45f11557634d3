package deps

import (
	"fmt"
	"go/ast"
	"go/token"
	"slices"
	"testing"
)

const documentedReason = "exported, so someone else will call it: say in a comment what it promises (staticcheck " +
	"checks the form of comments, not that they are there)"

// TestExportedSymbolsAreDocumented finds exported symbols without a comment.
func TestExportedSymbolsAreDocumented(t *testing.T) {
	for _, f := range sources(t) {
		for _, complaint := range documentedComplaints(f) {
			t.Error(complaint)
		}
	}
}

func documentedComplaints(f file) []string {
	if f.isTest() {
		return nil
	}
	var complaints []string
	complain := func(pos token.Pos, name string) {
		complaints = append(complaints, fmt.Sprintf("%s: %s: %s", f.at(pos), name, documentedReason))
	}
	for _, decl := range f.ast.Decls {
		switch decl := decl.(type) {
		case *ast.FuncDecl:
			if decl.Doc == nil && decl.Name.IsExported() && exportedReceiver(decl) && !wellKnown(decl) {
				complain(decl.Pos(), decl.Name.Name)
			}
		case *ast.GenDecl:
			for _, spec := range decl.Specs {
				if name := undocumented(decl, spec); name != "" {
					complain(spec.Pos(), name)
				}
			}
		}
	}
	return complaints
}

// exportedReceiver reports whether a function can be reached from outside. The interface documents
// the methods of unexported types, most of which only satisfy one.
func exportedReceiver(decl *ast.FuncDecl) bool {
	if decl.Recv == nil {
		return true
	}
	for expr := decl.Recv.List[0].Type; ; {
		switch e := expr.(type) {
		case *ast.StarExpr:
			expr = e.X
		case *ast.IndexExpr:
			expr = e.X
		case *ast.IndexListExpr:
			expr = e.X
		case *ast.Ident:
			return e.IsExported()
		default:
			return true
		}
	}
}

// wellKnown reports whether a method does what its name says everywhere.
func wellKnown(decl *ast.FuncDecl) bool {
	names := []string{"Error", "Is", "As", "Unwrap", "String", "MarshalJSON", "UnmarshalJSON", "Len", "Less", "Swap"}
	return decl.Recv != nil && slices.Contains(names, decl.Name.Name)
}

// undocumented returns the first exported name of spec, if neither it nor its group nor its line
// has a comment.
func undocumented(decl *ast.GenDecl, spec ast.Spec) string {
	switch spec := spec.(type) {
	case *ast.TypeSpec:
		if spec.Name.IsExported() && decl.Doc == nil && spec.Doc == nil && spec.Comment == nil {
			return spec.Name.Name
		}
	case *ast.ValueSpec:
		for _, name := range spec.Names {
			if name.IsExported() && decl.Doc == nil && spec.Doc == nil && spec.Comment == nil {
				return name.Name
			}
		}
	}
	return ""
}

// TestDocumentedRuleComplains plants symbols with and without comments.
func TestDocumentedRuleComplains(t *testing.T) {
	tests := []struct {
		path, code string
		want       string // part of the only complaint; "" for none
	}{
		{"a.go", "func Run() {}", "Run: exported"},
		{"a.go", "func run() {}", ""},
		{"a.go", "type T struct{}", "T: exported"},
		{"a.go", "func (t *T[K]) Run() {}", "Run: exported"},
		{"a.go", "func (t *u) Run() {}", ""},
		{"a.go", "func (t T) String() string { return x }", ""},
		{"a.go", "func String() string { return x }", "String: exported"},
		{"a.go", "const Limit = 3", "Limit: exported"},
		{"a.go", "const Limit = 3 // shards a member", ""},
		{"a.go", "var a, B = 1, 2", "B: exported"},
		{"a_test.go", "func TestRun() {}", ""},
	}
	for _, tc := range tests {
		f := parse(t, "pkg/planted/"+tc.path, "package planted\n\n"+tc.code+"\n")
		expect(t, tc.code, documentedComplaints(f), tc.want)
		documented := parse(t, "pkg/planted/"+tc.path, "package planted\n\n// Comment.\n"+tc.code+"\n")
		expect(t, tc.code+" with a comment", documentedComplaints(documented), "")
	}
}
