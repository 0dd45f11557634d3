package deps

import (
	"fmt"
	"go/ast"
	"go/token"
	"strconv"
	"strings"
	"testing"
)

const (
	sleepReason = "time.Sleep in a test is either too short or too long on some machine: use testing/synctest, where " +
		"time is virtual, or wait for the event itself; in a helper that runs in a synctest bubble, end the line with " +
		"'// virtual'"
	contextReason = "a test that hangs on a context of its own outlives its deadline: use t.Context(), in a Cleanup " +
		"context.WithoutCancel(t.Context()) with a timeout; only TestMain, what it hands its *testing.M, and examples have no t"
)

// TestTestsWaitForNothing finds sleeps in real time and contexts that no test ends.
func TestTestsWaitForNothing(t *testing.T) {
	for _, f := range sources(t) {
		for _, complaint := range waitingComplaints(f) {
			t.Error(complaint)
		}
	}
}

func waitingComplaints(f file) []string {
	if !f.isTest() {
		return nil
	}
	names := packageNames(f.ast)
	bubbles := spans(f.ast, func(n ast.Node) bool { return isCall(n, names["testing/synctest"], "Test") })
	mains := spans(f.ast, func(n ast.Node) bool { return takesTestingM(n) || isExample(n) })
	virtual := virtualLines(f)

	var complaints []string
	ast.Inspect(f.ast, func(n ast.Node) bool {
		switch {
		case n == nil:
		case isCall(n, names["time"], "Sleep"):
			if !within(bubbles, n.Pos()) && !virtual[f.fset.Position(n.Pos()).Line] {
				complaints = append(complaints, fmt.Sprintf("%s: %s", f.at(n.Pos()), sleepReason))
			}
		case isCall(n, names["context"], "Background"), isCall(n, names["context"], "TODO"):
			if !within(mains, n.Pos()) {
				complaints = append(complaints, fmt.Sprintf("%s: %s", f.at(n.Pos()), contextReason))
			}
		}
		return true
	})
	return complaints
}

// packageNames returns the names under which the file imports the few packages that matter here.
func packageNames(parsed *ast.File) map[string]string {
	names := map[string]string{}
	for _, spec := range parsed.Imports {
		imported, _ := strconv.Unquote(spec.Path.Value)
		switch {
		case spec.Name != nil:
			names[imported] = spec.Name.Name
		default:
			names[imported] = imported[strings.LastIndex(imported, "/")+1:]
		}
	}
	return names
}

// isCall reports whether n is pkg.function(…); pkg is "" when the file does not import the package.
func isCall(n ast.Node, pkg, function string) bool {
	call, ok := n.(*ast.CallExpr)
	if !ok || pkg == "" {
		return false
	}
	selector, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || selector.Sel.Name != function {
		return false
	}
	operand, ok := selector.X.(*ast.Ident)
	return ok && operand.Name == pkg
}

// takesTestingM reports whether n is a function with a parameter of type *testing.M: TestMain or
// its helper.
func takesTestingM(n ast.Node) bool {
	function, ok := n.(*ast.FuncDecl)
	if !ok {
		return false
	}
	for _, field := range function.Type.Params.List {
		pointer, ok := field.Type.(*ast.StarExpr)
		if !ok {
			continue
		}
		if selector, ok := pointer.X.(*ast.SelectorExpr); ok && selector.Sel.Name == "M" {
			return true
		}
	}
	return false
}

// isExample reports whether n is a function that go test runs as an example, or that only
// documents.
func isExample(n ast.Node) bool {
	function, ok := n.(*ast.FuncDecl)
	return ok && function.Recv == nil && strings.HasPrefix(function.Name.Name, "Example") && len(function.Type.Params.List) == 0
}

type span struct{ from, to token.Pos }

// spans returns the positions of the nodes that match accepts.
func spans(parsed *ast.File, match func(ast.Node) bool) []span {
	var found []span
	ast.Inspect(parsed, func(n ast.Node) bool {
		if n != nil && match(n) {
			found = append(found, span{n.Pos(), n.End()})
		}
		return true
	})
	return found
}

func within(spans []span, pos token.Pos) bool {
	for _, s := range spans {
		if s.from <= pos && pos < s.to {
			return true
		}
	}
	return false
}

// virtualLines returns the lines with a comment that begins with the word virtual.
func virtualLines(f file) map[int]bool {
	lines := map[int]bool{}
	for _, group := range f.ast.Comments {
		for _, comment := range group.List {
			text := strings.TrimSpace(strings.TrimPrefix(comment.Text, "//"))
			if text == "virtual" || strings.HasPrefix(text, "virtual ") || strings.HasPrefix(text, "virtual:") {
				lines[f.fset.Position(comment.Pos()).Line] = true
			}
		}
	}
	return lines
}

// TestWaitingRulesComplain plants sleeps and contexts, forbidden and allowed.
func TestWaitingRulesComplain(t *testing.T) {
	const imports = `import ("time"; "context"; "testing"; "testing/synctest"; clock "time")`
	tests := []struct {
		name, path, code string
		want             string // part of the only complaint; "" for none
	}{
		{"sleep", "a_test.go", `func TestA(t *testing.T) { time.Sleep(1) }`, "too short or too long"},
		{"sleep under another name", "a_test.go", `func TestA(t *testing.T) { clock.Sleep(1) }`, "too short or too long"},
		{"sleep marked virtual", "a_test.go", `func pass() { time.Sleep(1) } // virtual: called in a bubble`, ""},
		{"sleep marked otherwise", "a_test.go", `func pass() { time.Sleep(1) } // virtually no time`, "too short or too long"},
		{"sleep in a bubble", "a_test.go",
			`func TestA(t *testing.T) { synctest.Test(t, func(t *testing.T) { time.Sleep(1) }) }`, ""},
		{"sleep after the bubble", "a_test.go",
			`func TestA(t *testing.T) { synctest.Test(t, func(t *testing.T) {}); time.Sleep(1) }`, "too short or too long"},
		{"sleep of another kind", "a_test.go", `func TestA(t *testing.T) { bed.Sleep(1) }`, ""},
		{"sleep outside tests", "a.go", `func Pass() { time.Sleep(1) }`, ""},
		{"background", "a_test.go", `func TestA(t *testing.T) { run(context.Background()) }`, "t.Context()"},
		{"todo", "a_test.go", `func TestA(t *testing.T) { run(context.TODO()) }`, "t.Context()"},
		{"background in an example", "a_test.go", `func ExampleRun() { run(context.Background()) }`, ""},
		{"background in what is no example", "a_test.go", `func ExampleRun(t *testing.T) { run(context.Background()) }`, "t.Context()"},
		{"background in TestMain", "a_test.go", `func TestMain(m *testing.M) { run(context.Background()) }`, ""},
		{"background in its helper", "a_test.go", `func start(m *testing.M) int { return run(context.Background()) }`, ""},
		{"background outside tests", "a.go", `func run() { run(context.Background()) }`, ""},
	}
	for _, tc := range tests {
		source := "package planted; " + imports + "\n\n" + tc.code + "\n"
		if strings.Contains(tc.code, "clock.") {
			source = strings.Replace(source, `"time"; `, "", 1)
		} else {
			source = strings.Replace(source, `; clock "time"`, "", 1)
		}
		expect(t, tc.name, waitingComplaints(parse(t, "pkg/planted/"+tc.path, source)), tc.want)
	}
}
