package cli

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
)

// TestBadFlags checks that each error names what is wrong, its value and what is allowed, and that
// no request is made.
func TestBadFlags(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return file
	}
	whole := document(t, testPlan(t))
	junk, unknown := write("junk", "generation: 3\n"), write("unknown", `{"generation":3,"ring":[]}`)
	trailing, binary := write("trailing", whole+"{}"), write("binary", "\x00\x1b[2J")
	noShards := write("range", strings.Replace(whole, "-0x4000000000000000", "-0x4", 1))
	huge := write("huge", strings.Repeat(" ", maxDocument+1))
	for _, test := range []struct {
		args string
		want []string
	}{
		{"plan show -o wider", []string{"--output", `"wider"`, "table, json, yaml, wide, name, jsonpath=TEMPLATE, document"}},
		{"plan show -o jsonpath", []string{"--output", `"jsonpath"`, "jsonpath=TEMPLATE"}},
		{"plan show -o jsonpath={.rings[}", []string{"--output", "jsonpath={.rings[}"}},
		{"plan diff -f x -o jsonpath={.x}", []string{"--output", "table, json, yaml"}},
		{"status --watch -o wide", []string{"--output", `"wide"`, "--watch"}},
		{"plan diff -f x -o document", []string{"--output", `"document"`, "table, json, yaml"}},
		{"explain ns -o x", []string{"--output", `"x"`}},
		{"plan show --fleet-name=A_B", []string{"--fleet-name", `"A_B"`, "DNS label"}},
		{"plan show --leader-elect-resource-namespace=", []string{"--leader-elect-resource-namespace", `""`, "name of a namespace"}},
		{"plan show --request-timeout=-1s", []string{"--request-timeout", "-1s", "over 0s"}},
		{"plan show --request-timeout=soon", []string{"--request-timeout", "soon"}},
		{"plan show more", []string{`"more"`}},
		{"plan diff", []string{"--filename", `""`, "standard input"}},
		{"plan diff -f /nowhere/plan", []string{"--filename", "/nowhere/plan", "no such file"}},
		{"plan diff -f " + dir, []string{"--filename", dir, "is a directory"}},
		{"plan diff -f " + junk, []string{"--filename", junk, "plan show -o document", "not JSON"}},
		{"plan diff -f " + binary, []string{"--filename", binary, "not JSON"}},
		{"plan diff -f " + unknown, []string{"--filename", unknown, `unknown field "ring"`}},
		{"plan diff -f " + trailing, []string{"--filename", trailing, "followed by something else"}},
		{"plan diff -f " + noShards, []string{"--filename", noShards, `end "0x4"`, "16 lower-case hexadecimal digits"}},
		{"plan diff -f " + huge, []string{"--filename", huge, "at most 4194304 bytes"}},
		{"plan apply -f x --wait=0s", []string{"--wait=0s", "over 0s"}},
		{"plan apply -f x --wait=25h", []string{"--wait=25h0m0s", "up to 24h0m0s"}},
		{"plan apply -f x --wait --dry-run", []string{"--wait", "--dry-run"}},
		{"plan rebalance --wait --dry-run", []string{"--wait", "--dry-run"}},
		{"plan pin namespaces/00", []string{"SHARD and MEMBER", `["namespaces/00"]`}},
		{"plan pin a b --wait --dry-run", []string{"--wait", "--dry-run"}},
		{"plan unpin", []string{"SHARD", "[]"}},
		{"plan isolate", []string{"one NAMESPACE", "[]"}},
		{"plan unisolate Big_Name", []string{"NAMESPACE", `"Big_Name"`, "DNS label"}},
		{"plan edit --wait=25h", []string{"--wait=25h0m0s", "up to 24h0m0s"}},
		{"plan simulate", []string{"--members 0", "from 1 to 256"}},
		{"plan simulate --members=257", []string{"--members 257", "from 1 to 256"}},
		{"plan simulate --members=many", []string{"--members", "many"}},
		{"status -o document", []string{"--output", `"document"`, "table, json, yaml"}},
		{"status more", []string{`"more"`}},
		{"status --watch --once", []string{"--once", "--watch"}},
		{"events --since=0s", []string{"--since=0s", "over 0s"}},
		{"events --since=1000h", []string{"--since=1000h0m0s", "up to 720h0m0s"}},
		{"events -o x", []string{"--output", `"x"`}},
		{"drain a b", []string{"one MEMBER", `["a" "b"]`}},
		{"undrain", []string{"one MEMBER", "[]"}},
		{"explain", []string{"one NAMESPACE", "[]"}},
		{"explain a b", []string{"one NAMESPACE", `["a" "b"]`}},
		{"dashboard --address=0.0.0.0:80", []string{"--address", `"0.0.0.0:80"`, "loopback", "--allow-others"}},
		{"dashboard --address=[::]:80", []string{"--address", "loopback"}},
		{"dashboard --address=10.0.0.1:80", []string{"--address", "loopback"}},
		{"dashboard --address=localhost", []string{"--address", `"localhost"`, "an IP address and a port"}},
		{"dashboard --address=127.0.0.1", []string{"--address", "an IP address and a port"}},
		{"top --sort-by=luck", []string{"--sort-by", `"luck"`, "cpu, memory, name, objects, queued, shards, share"}},
		{"explain web --controller=x", []string{"one NAMESPACE", "nothing else", `["web"]`}},
		{"explain /web", []string{"TYPE/NAME", `"/web"`, "must have both"}},
		{"explain deployment/", []string{"TYPE/NAME", `"deployment/"`, "must have both"}},
		{"explain deployment/a/b", []string{"TYPE/NAME", `"deployment/a/b"`, "may not contain '/'"}},
		{"explain deployment/web -n Big_Name", []string{"--namespace", `"Big_Name"`, "DNS label"}},
		{"explain web -n web", []string{"--namespace", `"web"`, "TYPE/NAME"}},
		{"explain Big_Name", []string{"NAMESPACE", `"Big_Name"`, "DNS label"}},
	} {
		t.Run(strings.ReplaceAll(test.args, dir, ""), func(t *testing.T) {
			c := newCluster(newLeases(t, testPlan(t)))
			_, _, err := c.run(t, "", strings.Fields(test.args)...)
			if err == nil {
				t.Fatal("accepted")
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q does not say %q", err, want)
				}
			}
			if n := len(c.Actions()); n > 0 {
				t.Errorf("%d requests were made", n)
			}
		})
	}
}

// TestNoPlanToWorkWith checks that commands that need a plan say why there is none. The command
// show still prints what exists.
func TestNoPlanToWorkWith(t *testing.T) {
	junk := newLeases(t, testPlan(t))
	junk[leaseapi.PlanLease(testFleet)].Annotations[leaseapi.DocumentAnnotation] = `{"generation":0}`
	junk["flotilla-member-flotilla-1"].Annotations[leaseapi.RefusedAnnotation] = "4: generation: must be 1 or more"
	for _, args := range []string{"plan show", "plan show -o document", "plan show -o json", "plan rebalance", "plan simulate --members=3", "explain web", "canary status"} {
		_, _, err := newCluster(leases{}).run(t, "", strings.Fields(args)...)
		if err == nil || !strings.Contains(err.Error(), `fleet "flotilla" has no plan on Lease flotilla-plan`) {
			t.Errorf("%s without a plan: %v", args, err)
		}
		out, _, err := newCluster(junk).run(t, "", strings.Fields(args)...)
		for _, want := range []string{"annotation flotilla.dev/plan-document of Lease flotilla-plan", "generation: Invalid value: 0", "plan apply"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s with junk: %v, want %q in it", args, err, want)
			}
		}
		if args == "plan show" && (!strings.Contains(out, "member flotilla-1 refuses plan generation 4: generation") || !strings.Contains(out, "flotilla-namespaces-00")) {
			t.Errorf("the refusal or the held shards are missing:\n%s", out)
		}
	}
}

// TestNewerPlan: a plan that this command cannot read may be right for members of a later version,
// and is not replaced.
func TestNewerPlan(t *testing.T) {
	plan := testPlan(t)
	l := newLeases(t, plan)
	annotations := l[leaseapi.PlanLease(testFleet)].Annotations
	annotations[leaseapi.DocumentAnnotation] = `{"later":true,` + annotations[leaseapi.DocumentAnnotation][1:]
	edited := document(t, split(plan))
	for format, want := range map[string]string{leaseapi.PlanFormat: "", "3": "This command is older than member flotilla-1: use one of its version"} {
		l["flotilla-member-flotilla-1"].Annotations[leaseapi.FormatAnnotation] = format
		c := newCluster(l)
		_, _, err := c.run(t, edited, "plan", "apply", "-f", "-")
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) || (c.writes() > 0) != (want == "") {
			t.Errorf("members read format %s: %v, %d writes; want %q", format, err, c.writes(), want)
		}
	}
}

// TestForbidden: errors name the refused request.
func TestForbidden(t *testing.T) {
	c := newCluster(newLeases(t, testPlan(t)))
	refuse := func(verb string) {
		c.PrependReactor(verb, "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewForbidden(coordinationv1.Resource("leases"), "flotilla-plan", errors.New("not for you"))
		})
	}
	refuse("update")
	_, _, err := c.run(t, document(t, split(testPlan(t))), "plan", "apply", "-f", "-")
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "writing the plan on Lease flotilla-plan in namespace kube-system") || c.writes() != 1 {
		t.Errorf("update: %v, %d writes", err, c.writes())
	}
	refuse("list")
	if _, _, err := c.run(t, "", "plan", "show"); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "listing the Leases in namespace kube-system") {
		t.Errorf("list: %v", err)
	}
}

// TestKubeconfig checks that errors name the file and the context at fault.
func TestKubeconfig(t *testing.T) {
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	t.Setenv("HOME", t.TempDir())
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	junk := filepath.Join(t.TempDir(), "junk")
	if err := os.WriteFile(junk, []byte("\x00"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		target Target
		want   []string
	}{
		{Target{}, []string{"--kubeconfig", "KUBECONFIG", "~/.kube/config"}},
		{Target{Kubeconfig: "/nowhere/config"}, []string{"--kubeconfig", "/nowhere/config", "no such file"}},
		{Target{Kubeconfig: junk}, []string{"--kubeconfig", junk, "error loading"}},
		{Target{Context: "other"}, []string{"--context", `"other"`, "does not exist"}},
	} {
		_, err := connect(test.target)
		for _, want := range test.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%+v: %v, want %q in it", test.target, err, want)
			}
		}
	}
}
