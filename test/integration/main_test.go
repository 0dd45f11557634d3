// Package integration tests Flotilla in this process against a real API server. It needs the
// binaries of `make tools`.
package integration

import (
	"context"
	"fmt"
	"os"
	"testing"

	"k8s.io/klog/v2"
	kcm "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app/config"

	utilfeature "k8s.io/apiserver/pkg/util/feature"

	"github.com/spf13/pflag"

	"github.com/flotilla-kube/flotilla/internal/app"
	"github.com/flotilla-kube/flotilla/test/controlplane"
)

// plane is shared by all tests of the package. It has sharded list and watch, every API that a
// controller of the catalogue needs, and no nodes.
var plane *controlplane.ControlPlane

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	klog.LogToStderr(false)
	var err error
	plane, err = controlplane.Start(context.Background(), controlplane.Options{
		ShardedListAndWatch: true,
		FeatureGates:        everyController,
		APIServerArgs:       []string{"--runtime-config=api/all=true"},
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, "Could not start the control plane:", err)
		return 1
	}
	defer func() {
		if err := plane.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, "Could not stop the control plane:", err)
		}
	}()
	return m.Run()
}

// everyController are the feature gates that controllers of the catalogue need and that are off by
// default.
var everyController = map[string]bool{
	"StorageVersionAPI":     true,
	"APIServerIdentity":     true,
	"SELinuxChangePolicy":   true,
	"SELinuxMount":          true,
	"GenericWorkload":       true,
	"DRAResourcePoolStatus": true,
}

// newConfig returns the configuration for flags, in addition to those that the control plane
// requires.
func newConfig(t testing.TB, flags ...string) (*config.CompletedConfig, *app.Options) {
	t.Helper()
	return newConfigFor(t, plane, flags...)
}

func newConfigFor(t testing.TB, plane *controlplane.ControlPlane, flags ...string) (*config.CompletedConfig, *app.Options) {
	t.Helper()
	o, err := app.NewOptions()
	if err != nil {
		t.Fatal(err)
	}
	fs := pflag.NewFlagSet(t.Name(), pflag.ContinueOnError)
	sections := o.Flags()
	for _, section := range sections.FlagSets {
		fs.AddFlagSet(section)
	}
	args := append(plane.ControllerManagerArgs(), "--secure-port=0")
	if err := fs.Parse(append(args, flags...)); err != nil {
		t.Fatal(err)
	}
	if err := o.Validate(); err != nil {
		t.Fatal(err)
	}
	c, err := o.Config(t.Context(), kcm.KnownControllers(), kcm.ControllersDisabledByDefault(), kcm.ControllerAliases())
	if err != nil {
		t.Fatal(err)
	}
	return c.Complete(), o
}

// setFeatures turns on feature gates of this process.
func setFeatures(t testing.TB, gates map[string]bool) {
	t.Helper()
	if err := utilfeature.DefaultMutableFeatureGate.SetFromMap(gates); err != nil {
		t.Fatal(err)
	}
}
