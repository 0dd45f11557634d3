package markdown

import (
	"reflect"
	"slices"
	"strings"
	"testing"
)

const planted = "# A page: of `flotilla`!\n" +
	"\n" +
	"See [there](other.md#some-where) and ![picture](img/a.svg \"title\"), not `[this](one.md)`.\n" +
	"\n" +
	"<!-- Not run by our tests:\n" +
	"needs a node. -->\n" +
	"\n" +
	"```sh kubeadm stop-it\n" +
	"sudo rm it\n" +
	"```\n" +
	"\n" +
	"1. First:\n" +
	"\n" +
	"   ```sh\n" +
	"   kubectl get leases \\\n" +
	"     -A # all\n" +
	"   ```\n" +
	"\n" +
	"## Again\n" +
	"## Again\n" +
	"<a id=\"here\"></a>\n" +
	"````text\n```\n````\n"

func TestParse(t *testing.T) {
	p, err := Parse("docs/a.md", planted)
	if err != nil {
		t.Fatal(err)
	}
	for _, anchor := range []string{"a-page-of-flotilla", "again", "again-1", "here"} {
		if !p.Anchors[anchor] {
			t.Errorf("anchor %q is not found in %v", anchor, p.Anchors)
		}
	}
	if want := []Link{{3, "other.md#some-where"}, {3, "img/a.svg"}}; !reflect.DeepEqual(p.Links, want) {
		t.Errorf("links %v, want %v", p.Links, want)
	}
	if len(p.Blocks) != 3 {
		t.Fatalf("%d blocks: %v", len(p.Blocks), p.Blocks)
	}
	marked, run, text := p.Blocks[0], p.Blocks[1], p.Blocks[2]
	if marked.Runs() || marked.Kubeadm() != "stop-it" || marked.Language() != "sh" || marked.Before != "<!-- Not run by our tests: needs a node. -->" {
		t.Errorf("the marked block: %+v", marked)
	}
	if !run.Runs() || run.At() != "docs/a.md:14" || run.Lines[0] != `kubectl get leases \` {
		t.Errorf("the block to run: %+v", run)
	}
	if got, want := commands(t, run), []Command{{15, []string{"kubectl", "get", "leases", "-A"}}}; !reflect.DeepEqual(got, want) {
		t.Errorf("its commands: %v, want %v", got, want)
	}
	if !slices.Equal(text.Lines, []string{"```"}) {
		t.Errorf("the block of text: %q", text.Lines)
	}
	if _, err := Parse("docs/a.md", "```sh\nls\n"); err == nil || !strings.Contains(err.Error(), "docs/a.md:1") {
		t.Errorf("a block without an end: %v", err)
	}
}

func commands(t *testing.T, b Block) []Command {
	t.Helper()
	all, err := b.Commands()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestCommands(t *testing.T) {
	for text, want := range map[string][]string{
		`flotilla plan show -o document > plan.json`:   {"flotilla plan show -o document"},
		`A=1 kubectl get x | grep "a b; c" && echo no`: {"kubectl get x", "grep a b; c", "echo no"},
		`x="$(flotilla status -o json)" # comment`:     {"flotilla status -o json"},
		`if ! flotilla explain a; then exit 1; fi`:     {"flotilla explain a", "exit 1"},
		`kubectl get lease -o jsonpath='{.a(b)}'`:      {"kubectl get lease -o jsonpath={.a(b)}"},
		`sudo flotilla explain "$x/y"`:                 {"flotilla explain $x/y"},
		`for m in a b; do flotilla drain "$m"; done`:   {"flotilla drain $m"},
		`echo "at $(flotilla explain a | head -n 1)"`:  {"echo at $(flotilla explain a | head -n 1)", "flotilla explain a", "head -n 1"},
		"": nil,
	} {
		var got []string
		for _, c := range commands(t, Block{Info: "sh", Lines: []string{text}}) {
			got = append(got, strings.Join(c.Words, " "))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	shown := Block{Line: 3, Lines: []string{"$ flotilla plan show", "flotilla is no command here", "$ flotilla explain \\", "    a"}}
	want := []Command{{4, []string{"flotilla", "plan", "show"}}, {6, []string{"flotilla", "explain", "a"}}}
	if got := commands(t, shown); !reflect.DeepEqual(got, want) {
		t.Errorf("an example's commands: %v, want %v", got, want)
	}
	here := Block{Info: "sh", Line: 1, Lines: []string{"kubectl apply -f - <<EOF", "kind: x", "EOF", "true"}}
	want = []Command{{2, []string{"kubectl", "apply", "-f", "-"}}, {5, []string{"true"}}}
	if got := commands(t, here); !reflect.DeepEqual(got, want) {
		t.Errorf("commands beside a here document: %v, want %v", got, want)
	}
}

// TestInvalidBash checks that a block that the shell cannot parse is an error that names its
// place.
func TestInvalidBash(t *testing.T) {
	for _, lines := range [][]string{{"true", "if true; then ls"}, {"true", "echo 'never closed"}, {"true", "kubectl get x |"}} {
		_, err := Block{Page: "docs/a.md", Line: 7, Info: "sh", Lines: lines}.Commands()
		if err == nil || !strings.Contains(err.Error(), "in the block below line 7: docs/a.md:2:") {
			t.Errorf("%q: %v", lines, err)
		}
	}
}
