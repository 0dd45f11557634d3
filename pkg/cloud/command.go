package cloud

import (
	"context"
	"fmt"
	"maps"
	"os/signal"
	"slices"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/wait"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/cloud-provider/app"
	"k8s.io/cloud-provider/options"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/cli/globalflag"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/component-base/term"
	"k8s.io/component-base/version/verflag"

	"github.com/flotilla-kube/flotilla/internal/flags"
)

// NewCommand returns the command of a cloud controller manager that is a member of a fleet. It
// takes the same arguments as app.NewCloudControllerManagerCommand. namespaced names further
// controllers that run once on each range of namespaces, see [Controllers].
//
// The command has upstream's flags, a section "fleet", and additionalFlags. It runs until stop is
// closed or the process gets SIGTERM or SIGINT, and then hands its shards over. With
// --leader-elect=false it does what upstream's does: this process runs everything, by itself. It
// panics if another flag has the name of one of the fleet's.
func NewCommand(
	o *options.CloudControllerManagerOptions, initializer app.InitCloudFunc,
	constructors map[string]app.ControllerInitFuncConstructor, aliases map[string]string,
	additionalFlags cliflag.NamedFlagSets, stop <-chan struct{}, namespaced ...string,
) *cobra.Command {
	fleet, logging := newFleetOptions(), logs.NewOptions()
	known, off := app.ControllerNames(constructors), app.ControllersDisabledByDefault.List()
	noWebhooks := []string(nil)
	command := &cobra.Command{
		Use:   component,
		Short: "The cloud controller manager as a fleet",
		Long: `The cloud controller manager is a daemon that embeds the cloud specific control
loops shipped with Kubernetes. Each replica is a member of a fleet: it owns some ranges
of namespaces, whose Services it gives load balancers, and some controllers of nodes.`,
		SilenceUsage: true,
		Args:         cobra.NoArgs,
	}
	command.RunE = func(cmd *cobra.Command, _ []string) error {
		verflag.PrintAndExitIfRequested()
		if err := flags.SetPings(); err != nil {
			return err
		}
		if err := logsapi.ValidateAndApply(logging, utilfeature.DefaultFeatureGate); err != nil {
			return err
		}
		cliflag.PrintFlags(cmd.Flags())
		c, err := o.Config(known, off, aliases, noWebhooks, noWebhooks)
		if err != nil {
			return err
		}
		if !c.ComponentConfig.Generic.LeaderElection.LeaderElect {
			completed := c.Complete()
			cloud := initializer(completed)
			return app.Run(
				completed, cloud,
				app.ConstructControllerInitializers(constructors, completed, cloud), nil, stop,
			)
		}
		if err := fleet.validate(c); err != nil {
			return err
		}
		ctx, cancel := signal.NotifyContext(
			wait.ContextForChannel(stop), syscall.SIGTERM, syscall.SIGINT,
		)
		defer cancel()
		context.AfterFunc(ctx, cancel) // A second signal ends the process at once.
		completed := c.Complete()
		return run(ctx, fleet.options(c), Controllers{
			Config: completed, Cloud: initializer(completed),
			Constructors: constructors, Namespaced: namespaced,
			UndividedServices: fleet.undividedServices,
		})
	}
	addFlags(
		command, fleet, logging, o.Flags(known, off, aliases, noWebhooks, noWebhooks),
		additionalFlags,
	)
	return command
}

// addFlags adds the command's flags, in named sections, the fleet's first.
func addFlags(
	command *cobra.Command, fleet *fleetOptions, logging *logs.Options, upstream,
	additional cliflag.NamedFlagSets,
) {
	var all cliflag.NamedFlagSets
	own := all.FlagSet("fleet")
	fleet.addFlags(own)
	for _, of := range []cliflag.NamedFlagSets{upstream, additional} {
		for _, section := range sections(of) {
			of.FlagSets[section].VisitAll(func(f *pflag.Flag) {
				if own.Lookup(f.Name) != nil {
					panic(fmt.Sprintf(
						"cloud: --%s, in section %q, has the name of a flag of the fleet", f.Name,
						section,
					))
				}
			})
			all.FlagSet(section).AddFlagSet(of.FlagSets[section])
		}
	}
	global := all.FlagSet("global")
	verflag.AddFlags(global)
	logsapi.AddFlags(logging, global)
	globalflag.AddGlobalFlags(global, command.Name(), logs.SkipLoggingConfigurationFlags())
	for _, section := range all.Order {
		command.Flags().AddFlagSet(all.FlagSets[section])
	}
	columns, _, _ := term.TerminalSize(command.OutOrStdout())
	cliflag.SetUsageAndHelpFunc(command, all, columns)
}

// sections returns the names of all flag sets: those in Order first.
func sections(of cliflag.NamedFlagSets) []string {
	has := func(name string) bool { return of.FlagSets[name] != nil }
	names := slices.DeleteFunc(slices.Clone(of.Order), func(name string) bool { return !has(name) })
	for _, name := range slices.Sorted(maps.Keys(of.FlagSets)) {
		if has(name) && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}
