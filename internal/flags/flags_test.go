package flags

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/flotilla-kube/flotilla/pkg/fleet"
)

// TestValidate checks that the defaults are accepted, and that each error names the flag and its
// value.
func TestValidate(t *testing.T) {
	t.Setenv(NodeVariable, "node-1")
	t.Setenv(ZoneVariable, "zone-1")
	command := Command{MaxShards: 100}
	for _, tc := range []struct{ arg, want string }{
		{"--shards=100", ""},
		{"--replan-interval=0", ""},
		{"--fleet-name=a.b", `--fleet-name "a.b"`},
		{"--fleet-name=" + strings.Repeat("a", fleet.MaxFleetName+1), "must be a DNS label of at most "},
		{"--member-name=", `--member-name ""`},
		{"--member-name=a_b", `--member-name "a_b"`},
		{"--member-name=" + strings.Repeat("a", 183), "at most 182 characters"},
		{"--node-name=a_b", `--node-name (or NODE_NAME) "a_b"`},
		{"--zone=a/b", `--zone (or ZONE) "a/b"`},
		{"--shards=0", "--shards 0: must be from 1 to 100"},
		{"--shards=101", "--shards 101: must be from 1 to 100"},
		{"--replan-interval=9s", "--replan-interval 9s"},
		{"--replan-interval=25h", "--replan-interval 25h"},
		{"--rebalance-delay=-1s", "--rebalance-delay -1s"},
		{"--handoff-timeout=1ms", "--handoff-timeout 1ms"},
		{"--handoff-timeout=1h", "--handoff-timeout 1h"},
	} {
		c, fs := Defaults("a"), pflag.NewFlagSet("", pflag.ContinueOnError)
		if c.Node != "node-1" || c.Zone != "zone-1" || c.HandoffTimeout != 5*time.Second {
			t.Fatalf("defaults %+v", c)
		}
		c.AddFlags(fs, command)
		if err := fs.Parse([]string{tc.arg}); err != nil {
			t.Fatal(err)
		}
		err := errors.Join(c.Validate(command)...)
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", tc.arg, err, tc.want)
		}
	}
}

// TestPlanned: help texts mention 'flotilla plan' only if the plan's controllers are known.
func TestPlanned(t *testing.T) {
	for _, planned := range []bool{true, false} {
		c, fs := Defaults("a"), pflag.NewFlagSet("", pflag.ContinueOnError)
		c.AddFlags(fs, Command{MaxShards: 100, Planned: planned})
		for _, name := range []string{"shards", "replan-interval"} {
			if got := fs.Lookup(name).Usage; strings.Contains(got, "flotilla plan") != planned {
				t.Errorf("--%s: %q", name, got)
			}
		}
	}
}
