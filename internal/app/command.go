package app

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"k8s.io/apiserver/pkg/server"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	restclient "k8s.io/client-go/rest"
	"k8s.io/component-base/cli"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/cli/globalflag"
	basecompatibility "k8s.io/component-base/compatibility"
	"k8s.io/component-base/featuregate"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register"          // --logging-format=json
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // client-go's metrics
	_ "k8s.io/component-base/metrics/prometheus/version"  // kubernetes_build_info
	"k8s.io/component-base/term"
	"k8s.io/component-base/version/verflag"
	"k8s.io/klog/v2"
	kcm "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app/config"

	"github.com/flotilla-kube/flotilla/internal/flags"
)

// Main runs the command with the process's arguments and returns its exit status.
func Main() int {
	if err := flags.SetPings(); err != nil {
		klog.Background().Error(err, "Could not set how soon dead connections are noticed")
		return 1
	}
	command, err := NewCommand()
	if err != nil {
		klog.Background().Error(err, "Could not initialize command options")
		return 1
	}
	if status := cli.Run(command); status != 0 {
		return status
	}
	return operatorStatus(command)
}

// NewCommand returns the flotilla command.
func NewCommand() (*cobra.Command, error) {
	o, err := NewOptions()
	if err != nil {
		return nil, err
	}
	command := &cobra.Command{
		Use:   "flotilla",
		Short: "kube-controller-manager as a fleet",
		Long: `flotilla runs the control loops of kube-controller-manager on any number of
replicas that are all active. Each replica, a member of the fleet, owns some shards:
ranges of namespaces, or groups of cluster-scoped controllers. It watches only their
objects and hands a shard over without two owners ever writing.

It takes every flag of kube-controller-manager, and a section of its own.`,
		Args: noArguments,
		PersistentPreRunE: func(*cobra.Command, []string) error {
			// As upstream: controllers watch deprecated APIs too.
			restclient.SetDefaultWarningHandler(restclient.NoWarnings{})
			return o.ComponentGlobalsRegistry.Set()
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return run(cmd, o) },
	}
	sections := o.Flags()
	o.ParsedFlags = &sections
	verflag.AddFlags(sections.FlagSet("global"))
	globalflag.AddGlobalFlags(sections.FlagSet("global"), command.Name(), logs.SkipLoggingConfigurationFlags())
	for _, section := range sections.FlagSets {
		command.Flags().AddFlagSet(section)
	}
	columns, _, _ := term.TerminalSize(command.OutOrStdout())
	cliflag.SetUsageAndHelpFunc(command, sections, columns)
	command.AddCommand(append(newOperatorCommands(), newControllersCommand())...)
	command.InitDefaultCompletionCmd()
	for _, sub := range command.Commands() {
		// Without the sections of the command's flags.
		sub.SetUsageFunc((&cobra.Command{}).UsageFunc())
		sub.SetHelpFunc((&cobra.Command{}).HelpFunc())
	}
	command.Long += further(command)
	nameAsCalled(command, os.Args[0])
	return command, nil
}

func noArguments(cmd *cobra.Command, args []string) error {
	for _, arg := range args {
		if arg != "" {
			return fmt.Errorf("%q does not take any arguments, got %q", cmd.CommandPath(), args)
		}
	}
	return nil
}

// run is the command without a subcommand.
func run(cmd *cobra.Command, o *Options) error {
	verflag.PrintAndExitIfRequested()
	if err := logsapi.ValidateAndApply(o.Logs, utilfeature.DefaultFeatureGate); err != nil {
		return err
	}
	cliflag.PrintFlags(cmd.Flags())
	// Controllers and event broadcasters must outlive the signal: stopping is a sequence. Only Run
	// reacts to the signal.
	completed, err := o.complete(context.Background())
	if err != nil {
		return err
	}
	gates := o.ComponentGlobalsRegistry.FeatureGateFor(basecompatibility.DefaultKubeComponent)
	if mutable, ok := gates.(featuregate.MutableFeatureGate); ok {
		mutable.AddMetrics()
	}
	o.ComponentGlobalsRegistry.AddMetrics()
	return Run(server.SetupSignalContext(), completed, o)
}

// complete returns the configuration that the flags ask for, or what is wrong with them.
func (o *Options) complete(ctx context.Context) (*config.CompletedConfig, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o.awaitLookup(ctx)
	c, err := o.Config(ctx, kcm.KnownControllers(), kcm.ControllersDisabledByDefault(), kcm.ControllerAliases())
	if err != nil {
		return nil, err
	}
	return c.Complete(), nil
}

// exit ends the process at once: its work must not go on.
func exit(reason string) {
	time.AfterFunc(mostLogging, func() { os.Exit(2) })
	klog.Background().Error(nil, "Ending the process", "reason", reason)
	klog.Flush()
	os.Exit(2)
}

// mostLogging bounds how long exit waits for the log, which nobody may be reading.
const mostLogging = 2 * time.Second
