package cloud

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/cloud-provider/app"
	"k8s.io/cloud-provider/app/config"
	"k8s.io/cloud-provider/names"
	"k8s.io/cloud-provider/options"
	cliflag "k8s.io/component-base/cli/flag"

	"github.com/flotilla-kube/flotilla/pkg/flotilla"
)

// defaults returns upstream's configuration without flags.
func defaults(t *testing.T) *config.Config {
	t.Helper()
	o, err := options.NewCloudControllerManagerOptions()
	if err != nil {
		t.Fatal(err)
	}
	c := &config.Config{}
	if err := o.Generic.ApplyTo(&c.ComponentConfig.Generic, nil, nil, nil); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestDefaultsHoldTheStockManagersLease(t *testing.T) {
	c, o := defaults(t), newFleetOptions()
	if err := o.validate(c); err != nil {
		t.Fatal(err)
	}
	got := o.options(c)
	if want := []string{"cloud-controller-manager"}; !slices.Equal(got.LeaderLocks, want) ||
		got.Namespace != "kube-system" {
		t.Errorf(
			"the leader locks are %q in %q, want the Lease that a stock manager leads by", got.LeaderLocks,
			got.Namespace,
		)
	}
	o.leaderLocks = []string{noLeaderLock}
	if got := o.options(c); len(got.LeaderLocks) != 0 {
		t.Errorf("--leader-lock=none: the leader locks are %q", got.LeaderLocks)
	}
	o.ReplanInterval, o.RebalanceDelay = 0, 0
	got = o.options(c)
	if got.ReplanInterval != flotilla.Never || got.RebalanceDelay != flotilla.Never {
		t.Errorf(
			"0 became %v and %v, which are the library's defaults", got.ReplanInterval,
			got.RebalanceDelay,
		)
	}
}

func TestFaultsNameTheFlag(t *testing.T) {
	tests := []struct {
		change func(*fleetOptions, *config.Config)
		want   string
	}{
		{func(o *fleetOptions, _ *config.Config) { o.Name = "a.b" }, "--fleet-name"},
		{func(o *fleetOptions, _ *config.Config) { o.Member = "" }, "--member-name"},
		{func(o *fleetOptions, _ *config.Config) { o.Shards = 0 }, "--shards"},
		{func(o *fleetOptions, _ *config.Config) {
			o.leaderLocks = []string{"a", noLeaderLock}
		}, "--leader-lock"},
		{func(o *fleetOptions, _ *config.Config) { o.leaderLocks = []string{"a=b"} }, "--leader-lock"},
		{func(o *fleetOptions, _ *config.Config) { o.ReplanInterval = 1 }, "--replan-interval"},
		{func(o *fleetOptions, _ *config.Config) { o.RebalanceDelay = -1 }, "--rebalance-delay"},
		{func(o *fleetOptions, _ *config.Config) { o.HandoffTimeout = 0 }, "--handoff-timeout"},
		{func(_ *fleetOptions, c *config.Config) {
			c.ComponentConfig.Generic.LeaderMigrationEnabled = true
		}, "--enable-leader-migration"},
		{func(_ *fleetOptions, c *config.Config) {
			c.ComponentConfig.Generic.LeaderElection.ResourceLock = "endpoints"
		}, "--leader-elect-resource-lock"},
		{func(_ *fleetOptions, c *config.Config) {
			le := &c.ComponentConfig.Generic.LeaderElection
			le.RenewDeadline = le.LeaseDuration
		}, "--leader-elect-renew-deadline"},
	}
	for _, tc := range tests {
		c, o := defaults(t), newFleetOptions()
		tc.change(o, c)
		err := o.validate(c)
		one := err != nil && !strings.Contains(err.Error(), "\n")
		if !one || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("got %v, want one fault of %s", err, tc.want)
		}
	}
}

// TestFlagsAreTheFleets holds the fleet's flags against those of cmd/flotilla, which docs/flags.md
// has, and against docs/cloud.md.
func TestFlagsAreTheFleets(t *testing.T) {
	text, err := os.ReadFile("../../docs/flags.md")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/cloud.md")
	if err != nil {
		t.Fatal(err)
	}
	onlyHere := []string{"undivided-services"}
	fs := pflag.NewFlagSet("fleet", pflag.ContinueOnError)
	newFleetOptions().addFlags(fs)
	fs.VisitAll(func(f *pflag.Flag) {
		if !strings.Contains(string(page), "`--"+f.Name+"`") {
			t.Errorf("docs/cloud.md does not have --%s", f.Name)
		}
		row := "`--" + f.Name + "` | " + f.Value.Type() + " |"
		if !slices.Contains(onlyHere, f.Name) && !strings.Contains(string(text), row) {
			t.Errorf(
				"docs/flags.md has no %q: the same thing should have the same flag in both "+
					"commands",
				row,
			)
		}
	})
}

// TestCommandHasUpstreamsFlags compares the flags with those of the command whose place this one
// takes.
func TestCommandHasUpstreamsFlags(t *testing.T) {
	make := func() *options.CloudControllerManagerOptions {
		o, err := options.NewCloudControllerManagerOptions()
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	stock := app.NewCloudControllerManagerCommand(
		make(), nil, app.DefaultInitFuncConstructors, names.CCMControllerAliases(),
		cliflag.NamedFlagSets{}, wait.NeverStop,
	)
	ours := NewCommand(
		make(), nil, app.DefaultInitFuncConstructors, names.CCMControllerAliases(),
		cliflag.NamedFlagSets{}, wait.NeverStop,
	)
	count := 0
	stock.Flags().VisitAll(func(f *pflag.Flag) {
		count++
		if got := ours.Flags().Lookup(f.Name); got == nil {
			t.Errorf("--%s is missing", f.Name)
		} else if got.DefValue != f.DefValue {
			t.Errorf("--%s is %q by default, want %q", f.Name, got.DefValue, f.DefValue)
		}
	})
	if count < 50 {
		t.Errorf("upstream has only %d flags: the test reads less than it should", count)
	}
}

// commandWith returns a command to which a provider adds flags.
func commandWith(t *testing.T, additional cliflag.NamedFlagSets) *cobra.Command {
	t.Helper()
	o, err := options.NewCloudControllerManagerOptions()
	if err != nil {
		t.Fatal(err)
	}
	return NewCommand(
		o, nil, app.DefaultInitFuncConstructors, names.CCMControllerAliases(), additional,
		wait.NeverStop,
	)
}

// TestAProviderHasAllItsFlags has a provider whose sections have no order, as upstream allows.
func TestAProviderHasAllItsFlags(t *testing.T) {
	section := pflag.NewFlagSet("sky", pflag.ContinueOnError)
	section.String("sky-region", "", "")
	additional := cliflag.NamedFlagSets{FlagSets: map[string]*pflag.FlagSet{"sky": section}}
	if commandWith(t, additional).Flags().Lookup("sky-region") == nil {
		t.Error("the command does not have --sky-region")
	}
}

func TestAFlagNamedLikeOneOfTheFleetsPanics(t *testing.T) {
	var additional cliflag.NamedFlagSets
	additional.FlagSet("sky").String("zone", "", "")
	defer func() {
		if why := fmt.Sprint(recover()); !strings.Contains(why, "--zone") {
			t.Errorf("NewCommand panics with %q, want the flag's name", why)
		}
	}()
	commandWith(t, additional)
}
