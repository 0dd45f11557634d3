package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/flotilla-kube/flotilla/pkg/shard"
)

const (
	holder  = "flotilla-0_aaa"
	another = "flotilla-1_bbb"
)

// began is the Lease of the fleet's only shard, as it was written first.
const began = `{"stage":"ResponseComplete","verb":"create","userAgent":"flotilla/v1","responseStatus":{"code":201},` +
	`"objectRef":{"resource":"leases","namespace":"kube-system","name":"flotilla-cluster-nodes"},` +
	`"responseObject":{"metadata":{"name":"flotilla-cluster-nodes","resourceVersion":"10",` +
	`"labels":{"flotilla.dev/fleet":"flotilla","flotilla.dev/ring":"cluster","flotilla.dev/shard":"nodes"}},` +
	`"spec":{"holderIdentity":"` + holder + `","leaseTransitions":1,"leaseDurationSeconds":15}},` +
	`"requestReceivedTimestamp":"2026-07-01T12:00:00.000000Z","stageTimestamp":"2026-07-01T12:00:00.001000Z"}` + "\n"

func written(member string) string {
	return fmt.Sprintf(`{"stage":"ResponseComplete","verb":"patch","userAgent":"x flotilla (member=%s; shard=cluster/nodes; term=1)",`+
		`"responseStatus":{"code":200},"objectRef":{"resource":"nodes","name":"n"},`+
		`"responseObject":{"kind":"Node","metadata":{"name":"n","uid":"u","resourceVersion":"11"}},`+
		`"requestReceivedTimestamp":"2026-07-01T12:00:01.000000Z","stageTimestamp":"2026-07-01T12:00:01.001000Z"}`+"\n", member)
}

func TestRun(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	plan, err := json.Marshal(shard.Plan{Generation: 1, Rings: []shard.Ring{{Name: "cluster", Scope: shard.ScopeCluster, Shards: []shard.Shard{
		{ID: shard.ID{Ring: "cluster", Name: "nodes"}, Group: "nodes", Controllers: []string{"ttl-controller"}},
	}}}})
	if err != nil {
		t.Fatal(err)
	}
	good, bad, idle := file("good", began+written(holder)), file("bad", began+written(another)), file("idle", began)
	begin, end, planned := file("begin", began), file("end", written(holder)), file("plan", string(plan))
	tests := map[string]struct {
		args []string
		code int
		want string // in what is printed
	}{
		"clean":          {[]string{good}, clean, "violations: 0"},
		"as JSON":        {[]string{"-o", "json", good}, clean, `"clean": true`},
		"with a plan":    {[]string{"-plan", planned, good}, clean, "violations: 0"},
		"in two parts":   {[]string{end, begin}, clean, "violations: 0"},
		"violated":       {[]string{bad}, violated, "not the holder"},
		"bad as JSON":    {[]string{"-o", "json", bad}, violated, `"clean": false`},
		"no log":         {nil, undecided, "no audit log"},
		"no file":        {[]string{filepath.Join(dir, "none")}, undecided, "no such file"},
		"no file second": {[]string{good, filepath.Join(dir, "none")}, undecided, "no such file"},
		"no log at all":  {[]string{file("garbage", "?\n")}, undecided, "line 1"},
		"other fleet":    {[]string{"-fleet", "armada", good}, undecided, "armada"},
		"no such plan":   {[]string{"-plan", filepath.Join(dir, "none"), good}, undecided, "no such file"},
		"bad plan":       {[]string{"-plan", good, good}, undecided, "good"},
		"bad flag":       {[]string{"-what", good}, undecided, "not defined"},
		"bad format":     {[]string{"-o", "yaml", good}, undecided, "yaml"},
		"nothing in it":  {[]string{idle}, undecided, "proves nothing"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var out, errOut strings.Builder
			if code := run(test.args, &out, &errOut); code != test.code {
				t.Errorf("exit code %d, want %d", code, test.code)
			}
			if printed := out.String() + errOut.String(); !strings.Contains(printed, test.want) {
				t.Errorf("printed %q, want %q", printed, test.want)
			}
		})
	}
}
