package deps

import (
	"fmt"
	"go/ast"
	"strings"
	"testing"
)

// A door is a function that few packages may use outside of tests.
type door struct {
	pkg, function string
	only          []string
	reason        string
}

var doors = []door{
	{
		pkg: "pkg/fleet", function: "New", only: []string{"pkg/flotilla"},
		reason: "a program enters a fleet by pkg/flotilla, kube-controller-manager's as well: what a " +
			"second way inside did differently, nobody else's controllers would have tested",
	},
	{
		pkg: "pkg/election", function: "NewClaimant", only: []string{"pkg/fleet"},
		reason: "there is one loop that claims: what a second one ran, the member would not know of " +
			"when it leaves",
	},
	{
		pkg: "pkg/election/membership", function: "New", only: []string{"pkg/fleet"},
		reason: "there is one loop that keeps a member's Lease: a second one would be another " +
			"incarnation of the member",
	},
	{
		pkg: "pkg/informer", function: "NewPool", only: []string{"pkg/flotilla", "pkg/controllers"},
		reason: "the shards of a process share one pool of informers: a second one would read all " +
			"streams again",
	},
}

// TestOneDoor finds a second way into a fleet.
func TestOneDoor(t *testing.T) {
	used := map[string]bool{}
	for _, f := range sources(t) {
		for _, d := range doors {
			if belowAny(f.path, d.only) && len(d.uses(f)) > 0 {
				used[d.pkg+"."+d.function] = true
			}
		}
		for _, complaint := range doorComplaints(f) {
			t.Error(complaint)
		}
	}
	for _, d := range doors {
		if name := d.pkg + "." + d.function; !used[name] {
			t.Errorf("nobody uses %s: remove it from the list, or correct its name", name)
		}
	}
}

func doorComplaints(f file) []string {
	if f.isTest() || below(f.path, "test") {
		return nil
	}
	var complaints []string
	for _, d := range doors {
		if belowAny(f.path, append([]string{d.pkg}, d.only...)) {
			continue
		}
		for _, use := range d.uses(f) {
			complaints = append(complaints, fmt.Sprintf("%s: %s.%s is for %s: %s",
				f.at(use.Pos()), d.pkg, d.function, strings.Join(d.only, " and "), d.reason))
		}
	}
	return complaints
}

// uses returns where a file names the function, to call it or to pass it on.
func (d door) uses(f file) []ast.Node {
	var found []ast.Node
	name := packageNames(f.ast)[module+d.pkg]
	ast.Inspect(f.ast, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			operand, ok := n.X.(*ast.Ident)
			if ok && name != "" && operand.Name == name && n.Sel.Name == d.function {
				found = append(found, n)
			}
		case *ast.Ident:
			if name == "." && n.Name == d.function {
				found = append(found, n)
			}
		}
		return true
	})
	return found
}

// TestDoorRuleComplains plants ways inside, and code that only looks like one.
func TestDoorRuleComplains(t *testing.T) {
	const (
		fleet, informer = `import "` + module + `pkg/fleet"`, `import "` + module + `pkg/informer"`
		election        = `import "` + module + `pkg/election"`
		membership      = `import "` + module + `pkg/election/membership"`
	)
	for _, tc := range []struct{ path, code, want string }{
		{"internal/app/run.go", fleet + "; var _, _ = fleet.New(x)", "enters a fleet by"},
		{"internal/app/run.go", fleet + "; var join = fleet.New", "enters a fleet by"},
		{"pkg/cloud/run.go", `import f "` + module + `pkg/fleet"; var _, _ = f.New(x)`, "enters a fleet by"},
		{"cmd/other/main.go", `import . "` + module + `pkg/fleet"; var _, _ = New(x)`, "enters a fleet by"},
		{"internal/app/run.go", election + "; var _, _ = election.NewClaimant(x)", "one loop that claims"},
		{"pkg/flotilla/x.go", membership + "; var _, _ = membership.New(x)", "keeps a member's Lease"},
		{"pkg/manager/x.go", informer + "; var _, _ = informer.NewPool(x)", "read all streams again"},
		{"pkg/flotilla/member.go", fleet + "; var _, _ = fleet.New(x)", ""},
		{"pkg/controllers/process.go", informer + "; var _, _ = informer.NewPool(x)", ""},
		{"pkg/metrics/shared_test.go", fleet + "; var _, _ = fleet.New(x)", ""},
		{"test/scale/member.go", fleet + "; var _, _ = fleet.New(x)", ""},
		{"internal/app/run.go", fleet + "; var _ fleet.Work", ""},
		{"internal/app/run.go", `import "example.com/fleet"; var _, _ = fleet.New()`, ""},
	} {
		f := parse(t, tc.path, "package planted\n\n"+tc.code+"\n")
		expect(t, tc.path+": "+tc.code, doorComplaints(f), tc.want)
	}
}
