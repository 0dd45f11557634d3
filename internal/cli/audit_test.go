package cli

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// began is the first write of the Lease of the fleet's only shard.
const began = `{"kind":"Event","apiVersion":"audit.k8s.io/v1","stage":"ResponseComplete","verb":"create","userAgent":"flotilla/v1","responseStatus":{"code":201},` +
	`"objectRef":{"resource":"leases","namespace":"kube-system","name":"flotilla-cluster-nodes"},` +
	`"responseObject":{"metadata":{"name":"flotilla-cluster-nodes","resourceVersion":"10",` +
	`"labels":{"flotilla.dev/fleet":"flotilla","flotilla.dev/ring":"cluster","flotilla.dev/shard":"nodes"}},` +
	`"spec":{"holderIdentity":"flotilla-0_aaa","leaseTransitions":1,"leaseDurationSeconds":15}},` +
	`"requestReceivedTimestamp":"2026-07-01T12:00:00.000000Z","stageTimestamp":"2026-07-01T12:00:00.001000Z"}` + "\n"

// written is a member's write, as an audit event.
func written(member string) string {
	return fmt.Sprintf(`{"kind":"Event","apiVersion":"audit.k8s.io/v1","stage":"ResponseComplete","verb":"patch","userAgent":"x flotilla (member=%s; shard=cluster/nodes; term=1)",`+
		`"responseStatus":{"code":200},"objectRef":{"resource":"nodes","name":"n"},`+
		`"responseObject":{"kind":"Node","metadata":{"name":"n","uid":"u","resourceVersion":"11"}},`+
		`"requestReceivedTimestamp":"2026-07-01T12:00:01.000000Z","stageTimestamp":"2026-07-01T12:00:01.001000Z"}`+"\n", member)
}

func packed(t *testing.T, text string) string {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// TestAudit reads logs from files, and checks the output and the exit status.
func TestAudit(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	plan := shard.Plan{Generation: 1, Rings: []shard.Ring{{Name: "cluster", Scope: shard.ScopeCluster, Shards: []shard.Shard{
		{ID: shard.ID{Ring: "cluster", Name: "nodes"}, Group: "nodes", Controllers: []string{"ttl-controller"}},
	}}}}
	member := "flotilla-0_aaa"
	good, bad, idle := file("good", began+written(member)), file("bad", began+written("flotilla-1_bbb")), file("idle", began)
	begin, end, planned := file("begin", began), file("end", written(member)), file("plan", document(t, plan))
	taken := strings.NewReplacer(`"resourceVersion":"10"`, `"resourceVersion":"40"`, "flotilla-0_aaa", "flotilla-1_bbb", `Transitions":1`, `Transitions":2`,
		`"create"`, `"update","requestObject":{"metadata":{"resourceVersion":"30"}}`).Replace(began)
	hole := file("hole", began+written(member)+taken)
	tests := map[string]struct {
		args   []string
		status int
		want   string // Part of the output.
	}{
		"clean":                     {[]string{good}, 0, "violations: 0"},
		"as JSON":                   {[]string{"-o", "json", good}, 0, `"clean": true`},
		"with a plan":               {[]string{"--plan", planned, good}, 0, "violations: 0"},
		"in two parts":              {[]string{end, begin}, 0, "violations: 0"},
		"packed":                    {[]string{end, file("begin.gz", packed(t, began))}, 0, "violations: 0"},
		"the last is empty":         {[]string{good, file("empty", "")}, 0, "violations: 0"},
		"of which one is the input": {[]string{"-", end}, 0, "violations: 0"},
		"violated":                  {[]string{bad}, StatusErrors, "not the holder: flotilla-1_bbb for cluster/nodes, term 1: the Lease never said so; " + bad + " line 2"},
		"bad as JSON":               {[]string{"-o", "json", bad}, StatusErrors, `"file": "` + bad + `"`},
		"undecided":                 {[]string{hole}, StatusWarnings, "undecided: 1"},
		"nothing in it":             {[]string{idle}, StatusWarnings, "0 writes checked against their Lease"},
		"late":                      {[]string{file("late", began+strings.ReplaceAll(written(member), "12:00:01", "12:00:21"))}, StatusWarnings, "before anybody took it: 1"},
		"the last line has no end":  {[]string{file("endless", began+strings.TrimSpace(written("flotilla-1_bbb")))}, StatusErrors, "endless line 2"},
		"the last line is cut":      {[]string{file("cut", began+written(member)+began[:40])}, 0, "violations: 0"},
		"no log":                    {nil, 1, "FILE: must be one or more"},
		"no file":                   {[]string{filepath.Join(dir, "none")}, 1, "no such file"},
		"no file second":            {[]string{good, filepath.Join(dir, "none")}, 1, "no such file"},
		"a directory":               {[]string{dir}, 1, "is a directory"},
		"one file twice":            {[]string{good, good}, 1, "must be given once"},
		"no JSON":                   {[]string{good, file("garbage", "?\n")}, 1, "garbage, line 1: no audit event as JSON"},
		"cut in packing":            {[]string{file("cut.gz", packed(t, began)[:40])}, 1, "cut.gz, line 1: unexpected EOF"},
		"no event":                  {[]string{file("pod", `{"kind":"Pod","apiVersion":"v1"}`+"\n")}, 1, `pod, line 1: kind "Pod" of apiVersion "v1": must be an Event of audit.k8s.io/v1`},
		"a field of another kind": {
			[]string{file("field", began+strings.Replace(began, `"code":201`, `"code":"x"`, 1))}, 1, "field, line 2: responseStatus.code: must not be a JSON string",
		},
		"a field is missing": {[]string{file("missing", strings.Replace(began, "stageTimestamp", "x", 1))}, 1, "missing, line 1: stageTimestamp: is missing"},
		"Leases without their answers": {
			[]string{file("metadata", strings.Replace(began, "responseObject", "x", 1)+written(member))}, 1, "metadata line 1: responseObject: is missing",
		},
		"Leases without their answers, and a plan": {
			[]string{"--plan", planned, file("metadata", strings.Replace(began, "responseObject", "x", 1))}, 1, "metadata, line 1: responseObject: is missing",
		},
		"other fleet":          {[]string{"--fleet-name", "armada", good}, 1, `no write of a Lease of fleet "armada" in namespace "kube-system"`},
		"other namespace":      {[]string{"--leader-elect-resource-namespace", "x", good}, 1, `in namespace "x"`},
		"no such plan":         {[]string{"--plan", filepath.Join(dir, "none"), good}, 1, "no such file"},
		"bad plan":             {[]string{"--plan", good, good}, 1, "--plan"},
		"two on one input":     {[]string{"--plan", "-", "-"}, 1, "--plan -: must not be given with the FILE -"},
		"bad flag":             {[]string{"--what", good}, 1, "unknown flag"},
		"bad format":           {[]string{"-o", "yaml", good}, 1, `--output "yaml": must be one of text, json`},
		"no name of a fleet":   {[]string{"--fleet-name", "A_B", good}, 1, `--fleet-name "A_B"`},
		"no time for a server": {[]string{"--server-request-timeout", "0s", good}, 1, "--server-request-timeout 0s: must be over 0s, up to 24h0m0s"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			root := (&cluster{}).root()
			root.SetIn(strings.NewReader(began))
			var out bytes.Buffer
			root.SetOut(&out)
			root.SetErr(&out)
			root.SetArgs(append([]string{"audit"}, test.args...))
			status, printed := 0, ""
			if err := root.ExecuteContext(t.Context()); err != nil {
				status, printed = 1, out.String()+err.Error()
			} else {
				status, printed = ExitStatus(root), out.String()
			}
			if status != test.status {
				t.Errorf("status %d, want %d", status, test.status)
			}
			if !strings.Contains(printed, test.want) {
				t.Errorf("printed %q, want %q", printed, test.want)
			}
		})
	}
}
