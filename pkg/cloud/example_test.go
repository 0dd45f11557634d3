package cloud_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/wait"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/cloud-provider/app"
	"k8s.io/cloud-provider/app/config"
	"k8s.io/cloud-provider/names"
	"k8s.io/cloud-provider/options"
	"k8s.io/component-base/cli"
	cliflag "k8s.io/component-base/cli/flag"

	"github.com/flotilla-kube/flotilla/pkg/cloud"
	"github.com/flotilla-kube/flotilla/pkg/flotilla"
)

// The main function of a provider: cloud.NewCommand takes the place of upstream's.
func ExampleNewCommand() {
	main := func() {
		o, err := options.NewCloudControllerManagerOptions()
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(cli.Run(cloud.NewCommand(
			o, newCloud, app.DefaultInitFuncConstructors, names.CCMControllerAliases(),
			cliflag.NamedFlagSets{}, wait.NeverStop,
		)))
	}
	_ = main
}

func newCloud(*config.CompletedConfig) cloudprovider.Interface { return nil }

// A program with a command of its own adds the controllers to a fleet.
func ExampleAdd() {
	run := func(ctx context.Context, c *config.CompletedConfig, o flotilla.Options) error {
		f, err := flotilla.New(c.Kubeconfig, o)
		if err != nil {
			return err
		}
		process, end := context.WithCancel(context.WithoutCancel(ctx))
		defer end()
		err = cloud.Add(process, f, cloud.Controllers{
			Config: c, Cloud: newCloud(c),
			Constructors: app.DefaultInitFuncConstructors, Namespaced: []string{"backup"},
		})
		if err != nil {
			return err
		}
		return f.Run(ctx)
	}
	_ = run
}

// The one line of a provider that sends HTTP. A write whose context comes from no call of the
// controllers is refused.
func ExampleTransport() {
	client := &http.Client{Transport: cloud.Transport(http.DefaultTransport)}
	ctx := context.Background() // it should be that of the call, such as EnsureLoadBalancer
	const url = "https://cloud.example.com/balancers"
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader("{}"))
	if err != nil {
		panic(err)
	}
	_, err = client.Do(req) // nothing is sent
	fmt.Println(errors.Is(err, cloud.ErrNoShard))
	// Output: true
}

// A provider that does not speak HTTP gives the cloud the term to compare.
func ExampleShardOf() {
	ensure := func(ctx context.Context, name string) map[string]string {
		tags := map[string]string{"name": name}
		if s, ok := cloud.ShardOf(ctx); ok {
			tags["owner"], tags["term"] = s.String(), strconv.Itoa(int(s.Term()))
		}
		return tags
	}
	fmt.Println(ensure(context.Background(), "web")) // of no call
	// Output: map[name:web]
}

// sky is a provider with a method that cloudprovider.Interface does not have.
type sky struct{ cloudprovider.Interface }

func (sky) Quota() int { return 100 }

// A controller of the provider's own reaches what is not in cloudprovider.Interface.
func ExampleUnwrap() {
	construct := func(given cloudprovider.Interface) {
		if own, ok := cloud.Unwrap(given).(sky); ok {
			fmt.Println(own.Quota())
		}
	}
	construct(sky{})
	// Output: 100
}
