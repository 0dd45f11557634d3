package check

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/flotilla-kube/flotilla/test/docs/markdown"
)

// TestRulesComplain plants text that each rule must find, and text that it must accept.
func TestRulesComplain(t *testing.T) {
	command := command(t)
	tests := []struct {
		name, text string
		want       string // Part of the only complaint, empty for none.
	}{
		{"run", "```sh\nkubectl get leases\n```\n", ""},
		{"marked", "<!-- Not run by our tests: needs a node. -->\n\n```sh not-run\nkubeadm init\n```\n", ""},
		{"on a real cluster", "```sh kubeadm stop\nkubeadm init\n```\n", ""},
		{"marked and run on a real cluster", "<!-- Not run by our tests: no. -->\n\n```sh kubeadm stop\nkubeadm init\n```\n", "that test/kubeadm does"},
		{"without a name", "<!-- Not run by our tests: no. -->\n\n```sh kubeadm\nkubeadm init\n```\n", "info string \"sh kubeadm\""},
		{"not marked", "Do this:\n\n```sh not-run\nkubeadm init\n```\n", "must stand above it"},
		{"mark too far away", "<!-- Not run by our tests: no. -->\n\nDo this:\n\n```sh not-run\nkubeadm init\n```\n", "must stand above it"},
		{"mark that readers see", "(Not run by our tests: no.)\n\n```sh not-run\nkubeadm init\n```\n", "must stand above it"},
		{"mark without an end", "<!-- Not run by our tests: no.\n\n```sh not-run\nkubeadm init\n```\n", "must stand above it"},
		{"marked and run", "<!-- Not run by our tests: no. -->\n```sh\nls\n```\n", "then its info string"},
		{"misspelt", "<!-- Not run by our tests: no. -->\n```sh notrun\nls\n```\n", `info string "sh notrun"`},
		{"other shell", "```bash\nls\n```\n", "must be 'sh'"},
		{"check that cannot fail", "```sh\n! kubectl get leases\n```\n", "checks nothing"},
		{"hidden command", "```\nkubectl get leases\n```\n", "looks like a command"},
		{"example", "```console\n$ kubectl get leases\nNAME\n```\n", ""},
		{"indented command", "Do this:\n\n    kubectl get leases\n", "indented block"},
		{"link", "[a](concepts.md)", ""},
		{"link to nowhere", "[a](nowhere.md)", "does not exist"},
		{"link out of the project", "[a](../../x.md)", "does not exist"},
		{"anchor", "# Here\n[a](#here)", ""},
		{"anchor to nowhere", "[a](#nowhere)", "no heading #nowhere"},
		{"anchor in another page", "[a](other.md#nowhere)", "no heading #nowhere"},
		{"picture", "<img src=\"img/none.svg\">", "does not exist"},
		{"web", "[a](https://example.org/#b)", ""},
		{"command", "```sh\nflotilla plan show -o document > x\n```\n", ""},
		{"no bash", "```sh\nif flotilla status; then true\n```\n", "in the block below line 1"},
		{"plugin", "```sh\nkubectl flotilla explain web --context=a\n```\n", ""},
		{"no such command", "```sh\nflotilla plan list\n```\n", "list"},
		{"no such flag", "```sh\nkubectl -n a exec b -- flotilla explain web --colour\n```\n", "no flag --colour"},
		{"no such flag of a member", "```yaml\nargs:\n- --shard=3\n```\n", "no flag --shard"},
		{"flag in an example", "```console\n$ flotilla explain web -x\n```\n", "no flag -x"},
		{"flag in the text", "Set `--rebalance-delays` to 3.", "no flag --rebalance-delays"},
		{"several flags in the text", "Remove the `--cluster-signing-` flags.", ""},
		{"no such flags in the text", "Remove the `--closter-signing-` flags.", "no flag --closter-signing-"},
		{"foreign flag in the text", "Use `kubectl drain --ignore-daemonsets`.", ""},
		{"metric", "Look at `flotilla_shard_owned` and flotilla_shard_owned_bucket.", ""},
		{"no such metric", "```promql\nsum(flotilla_shards_owned)\n```\n", "flotilla_shards_owned is not in"},
	}
	others := []markdown.Page{{Path: "docs/other.md", Anchors: map[string]bool{"there": true}}, {Path: "docs/concepts.md"}}
	for _, tc := range tests {
		p, err := markdown.Parse("docs/quickstart.md", tc.text)
		if err != nil {
			t.Fatal(err)
		}
		complaints := markComplaints(p)
		complaints = append(complaints, linkComplaints(p, append(others, p), planted(t))...)
		complaints = append(complaints, metricComplaints(p, map[string]bool{"flotilla_shard_owned": true})...)
		complaints = append(complaints, flagComplaints(p, command)...)
		for _, b := range p.Blocks {
			_, more := commandComplaints(b, command)
			complaints = append(complaints, more...)
		}
		switch {
		case tc.want == "" && len(complaints) > 0:
			t.Errorf("%s: complains: %q", tc.name, complaints)
		case tc.want != "" && (len(complaints) != 1 || !strings.Contains(complaints[0], tc.want)):
			t.Errorf("%s: complains %q, want one with %q", tc.name, complaints, tc.want)
		}
	}
}

// TestPagesThatNobodyRuns plants a block to run in a page that is not run.
func TestPagesThatNobodyRuns(t *testing.T) {
	p, err := markdown.Parse("docs/nobody.md", "```sh\nls\n```\n")
	if err != nil {
		t.Fatal(err)
	}
	if complaints := markComplaints(p); len(complaints) != 1 || !strings.Contains(complaints[0], "no test runs the blocks of this section") {
		t.Errorf("complains %q", complaints)
	}
}

// planted returns the root of a project with the files that the table's links lead to.
func planted(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"other.md", "concepts.md", "quickstart.md"} {
		if err := os.MkdirAll(filepath.Join(dir, "docs"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "docs", name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
