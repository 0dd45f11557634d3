package spec

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

const listing = `The following spec names can be used with 'ginkgo run --focus/skip':
    k8s.io/kubernetes@v1.37.1/test/e2e/apps/job.go:106: [sig-apps] Job should run [Alpha] [Feature:OffByDefault]
    k8s.io/kubernetes@v1.37.1/test/e2e/apps/job.go:200: [sig-apps] Job should delete a job [Conformance]
    /go/pkg/mod/k8s.io/kubernetes@v1.37.1/test/e2e/storage/testsuites/volumes.go:1: [sig-storage] In-tree Volumes [Driver: nfs] a: b
I1122 a log line

`

func TestParseListing(t *testing.T) {
	specs, err := ParseListing(strings.NewReader(listing))
	if err != nil {
		t.Fatal(err)
	}
	want := []Listed{
		{"apps/job.go", "[sig-apps] Job should run [Alpha] [Feature:OffByDefault]"},
		{"apps/job.go", "[sig-apps] Job should delete a job [Conformance]"},
		{"storage/testsuites/volumes.go", "[sig-storage] In-tree Volumes [Driver: nfs] a: b"},
	}
	if !slices.Equal(specs, want) {
		t.Errorf("read as %q, want %q", specs, want)
	}
	if _, err := ParseListing(strings.NewReader("panic: no specs")); err == nil {
		t.Error("a listing without specs is no error")
	}
}

func TestCandidates(t *testing.T) {
	for _, c := range []struct {
		file, text string
		want       bool
	}{
		{"apps/job.go", "[sig-apps] Job should delete a job [Conformance]", true},
		{"apps/job.go", "[sig-apps] Job should run [Alpha] [Feature:OffByDefault]", false},
		{"apps/daemon_restart.go", "[sig-apps] DaemonRestart [Disruptive] Controller Manager", false},
		{"node/taints.go", "[sig-node] NoExecuteTaintManager Single Pod removing taint cancels eviction [Conformance] [Disruptive] [Serial]", true},
		{"apimachinery/resource_quota.go", "[sig-api-machinery] ResourceQuota [Feature:PodPriority] should verify", true},
		{"apimachinery/resource_quota.go", "[sig-api-machinery] ResourceQuota [Feature:PodPriority] [Feature:Other] should verify", false},
		{"apimachinery/webhook.go", "[sig-api-machinery] AdmissionWebhook should mutate configmap [Conformance]", false},
		{"network/service.go", "[sig-network] Services should complete a service status lifecycle [Conformance]", true},
		{"network/service.go", "[sig-network] Services should have session affinity work for NodePort service", false},
		{"network/service.go/x", "[sig-network] Services should complete a service status lifecycle [Conformance]", false},
		{"storage/testsuites/volumes.go", "[sig-storage] In-tree Volumes [Driver: nfs]", false},
	} {
		got := len(Candidates([]Listed{{c.file, c.text}})) == 1
		if got != c.want {
			t.Errorf("%s: %q: candidate %t, want %t", c.file, c.text, got, c.want)
		}
	}
}

func TestLists(t *testing.T) {
	var b strings.Builder
	if err := WriteList(&b, "A list.\nOf specs.\n", []string{"[sig-b] two", "[sig-a] one [Slow]"}); err != nil {
		t.Fatal(err)
	}
	if want := "# A list.\n# Of specs.\n[sig-a] one [Slow]\n[sig-b] two\n"; b.String() != want {
		t.Errorf("written as %q, want %q", b.String(), want)
	}
	texts, err := ReadList(strings.NewReader(b.String()))
	if err != nil || !slices.Equal(texts, []string{"[sig-a] one [Slow]", "[sig-b] two"}) {
		t.Errorf("read as %q, %v", texts, err)
	}
	for name, content := range map[string]string{"empty": "# nothing\n\n", "twice": "a\nb\na\n"} {
		if _, err := ReadList(strings.NewReader(content)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// TestFocus checks that each text is selected, and no text that contains it or is contained in it.
func TestFocus(t *testing.T) {
	texts := []string{"[sig-a] should (ALL of 100) [Serial]", "[sig-a] a.b"}
	for range 2000 {
		texts = append(texts, "[sig-a] "+strings.Repeat("long ", 20)+"text "+string(rune('a'+len(texts)%26))+strings.Repeat("x", len(texts)%50))
	}
	expressions := Focus(texts)
	if len(expressions) < 2 {
		t.Errorf("%d expressions for %d texts: each must fit into an argument", len(expressions), len(texts))
	}
	var all []*regexp.Regexp
	for _, e := range expressions {
		if len(e) > 128<<10 {
			t.Errorf("an expression has %d bytes", len(e))
		}
		all = append(all, regexp.MustCompile(e))
	}
	matches := func(text string) bool {
		return slices.ContainsFunc(all, func(r *regexp.Regexp) bool { return r.MatchString("Kubernetes e2e suite " + text) })
	}
	for _, text := range []string{texts[0], texts[1], texts[2], texts[len(texts)-1]} {
		if !matches(text) {
			t.Errorf("%q is not selected", text)
		}
	}
	for _, text := range []string{"[sig-a] aXb", "[sig-a] a.b [Slow]", "x [sig-a] a.b", "[sig-a] should"} {
		if matches(text) {
			t.Errorf("%q is selected", text)
		}
	}
}

func TestSIG(t *testing.T) {
	for text, want := range map[string]string{
		"[sig-api-machinery] Garbage collector": "sig-api-machinery", "a [Slow] [sig-apps] b": "sig-apps", "nothing": "none",
	} {
		if got := SIG(text); got != want {
			t.Errorf("%q belongs to %q, want %q", text, got, want)
		}
	}
}
