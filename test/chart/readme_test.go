package chart

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var rewrite = flag.Bool("rewrite", false, "rewrite deploy/chart/README.md; review the diff")

const head = `# The chart flotilla

` + "<!-- Generated from values.yaml: go test ./test/chart -run TestReadme -rewrite -->" + `

kube-controller-manager as a fleet. [deploy/README.md](../README.md) says what the members need, first
of all a Secret with keys; [docs/install.md](../../docs/install.md#helm) has the commands in their order.

<!-- Not run by our tests as it stands: test/docs/run installs the chart by docs/install.md. -->

` + "```sh not-run" + `
helm install flotilla deploy/chart --namespace kube-system
helm install flotilla deploy/chart --namespace flotilla-hosted --set mode=hosted
` + "```" + `

With its default values it is the overlay [self-hosted](../overlays/self-hosted), object for object,
and with ` + "`mode=hosted`" + ` the overlay [hosted](../overlays/hosted), but for the standard labels.
With ` + "`shadow.enabled=true`" + ` it is [deploy/shadow](../shadow) instead, and nothing else.
Unknown values, and values of the wrong kind, are refused.

## Values

| value | default | what it is |
|---|---|---|
`

// TestReadme compares the chart's README with the comments in values.yaml.
func TestReadme(t *testing.T) {
	var b strings.Builder
	b.WriteString(head)
	for _, v := range values(t) {
		if v.comment == "" {
			t.Errorf("values.yaml: %s has no comment right above it", v.path)
		}
		b.WriteString("| `" + v.path + "` | `" + v.preset + "` | " + strings.ReplaceAll(v.comment, "|", `\|`) + " |\n")
	}
	if *rewrite {
		if err := os.WriteFile(filepath.Join(folder, "README.md"), []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(b.String(), readFile(t, "README.md")); diff != "" {
		t.Errorf("deploy/chart/README.md is stale: run 'go test ./test/chart -run TestReadme -rewrite'. "+
			"Generated (-), there (+):\n%s", diff)
	}
}
