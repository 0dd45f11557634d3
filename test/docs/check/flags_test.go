package check

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/cli/globalflag"
	"k8s.io/component-base/logs"
	"k8s.io/component-base/version/verflag"

	"github.com/flotilla-kube/flotilla/internal/app"
)

var rewrite = flag.Bool("rewrite", false, "write docs/flags.md; review the diff")

// sections returns the flags of the command in their sections, as its help shows them.
func sections(t *testing.T) cliflag.NamedFlagSets {
	t.Helper()
	o, err := app.NewOptions()
	if err != nil {
		t.Fatal(err)
	}
	all := o.Flags()
	verflag.AddFlags(all.FlagSet("global"))
	globalflag.AddGlobalFlags(all.FlagSet("global"), "flotilla", logs.SkipLoggingConfigurationFlags())
	return all
}

// TestDifferencesNameFlags checks that each flag with a documented difference is one of
// kube-controller-manager's, not one of the fleet's own.
func TestDifferencesNameFlags(t *testing.T) {
	all := sections(t)
	for _, d := range differences {
		for _, name := range d.flags {
			found := ""
			for section, set := range all.FlagSets {
				if set.Lookup(name) != nil {
					found = section
				}
			}
			if found == "" || found == "fleet" {
				t.Errorf("--%s is in section %q, want one of kube-controller-manager's", name, found)
			}
		}
	}
}

// TestFlagsPage compares docs/flags.md with the flags.
func TestFlagsPage(t *testing.T) {
	all := sections(t)
	got := flagsPage(all)
	file := filepath.Join(root, "docs", "flags.md")
	if *rewrite {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("docs/flags.md is out of date; 'go test ./test/docs/check -run TestFlagsPage -rewrite' writes it:\n%s", diff)
	}
	// The page must have every flag of the command.
	command(t).Flags().VisitAll(func(f *pflag.Flag) {
		if f.Name != "help" && !f.Hidden && f.Deprecated == "" && !strings.Contains(got, "`--"+f.Name+"`") {
			t.Errorf("--%s is not on the page", f.Name)
		}
	})
	if host, err := os.Hostname(); err == nil && strings.Contains(got, "`"+strings.ToLower(host)+"`") {
		t.Errorf("the host name %q is on the page", host)
	}
}
