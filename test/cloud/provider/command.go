package provider

import (
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/util/wait"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/cloud-provider/app"
	"k8s.io/cloud-provider/app/config"
	"k8s.io/cloud-provider/names"
	"k8s.io/cloud-provider/options"
	"k8s.io/component-base/cli"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/klog/v2"

	"github.com/flotilla-kube/flotilla/pkg/cloud"
)

// Verb is the first argument of a program that should act as a cloud controller manager. The second
// is Stock or Fleet.
const Verb = "cloud-controller-manager"

// The kinds of cloud controller manager.
const (
	Stock = "stock"
	Fleet = "fleet"
)

// MainIfAsked runs a cloud controller manager and exits, if the program's arguments ask for one.
// This lets a test binary start itself as one.
func MainIfAsked() {
	if len(os.Args) < 3 || os.Args[1] != Verb {
		return
	}
	kind := os.Args[2]
	os.Args = append(os.Args[:1], os.Args[3:]...)
	os.Exit(run(kind))
}

func run(kind string) int {
	o, err := options.NewCloudControllerManagerOptions()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	constructors, aliases := app.DefaultInitFuncConstructors, names.CCMControllerAliases()
	flags := cliflag.NamedFlagSets{}
	if kind == Fleet {
		return cli.Run(
			cloud.NewCommand(o, initialize, constructors, aliases, flags, wait.NeverStop),
		)
	}
	return cli.Run(
		app.NewCloudControllerManagerCommand(
			o, initialize, constructors, aliases, flags, wait.NeverStop,
		),
	)
}

// initialize is upstream's sample.
func initialize(c *config.CompletedConfig) cloudprovider.Interface {
	is := c.ComponentConfig.KubeCloudShared.CloudProvider
	made, err := cloudprovider.InitCloudProvider(is.Name, is.CloudConfigFile)
	if err != nil {
		klog.Fatalf("Cloud provider could not be initialized: %v", err)
	}
	return made
}
