package app

import (
	"reflect"
	"slices"
	"testing"
	"time"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/tools/record"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	metricsfeatures "k8s.io/component-base/metrics/features"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app/config"

	"github.com/flotilla-kube/flotilla/pkg/flotilla"
)

// optionsOf returns what a process with the flags is in its fleet.
func optionsOf(t *testing.T, change func(*Options)) flotilla.Options {
	t.Helper()
	o, err := NewOptions()
	if err != nil {
		t.Fatal(err)
	}
	o.Fleet.Member = "m"
	change(o)
	c := &config.Config{EventRecorder: record.NewFakeRecorder(1), ControllerShutdownTimeout: 1}
	c.ComponentConfig.Generic.LeaderElection.ResourceNamespace = "kube-system"
	return fleetOptions(c.Complete(), o, []string{"kube-controller-manager"})
}

// TestFlagsReachTheFleet finds the option of the door that somebody forgets.
func TestFlagsReachTheFleet(t *testing.T) {
	options := reflect.ValueOf(optionsOf(t, func(o *Options) {
		o.Fleet.Node, o.Fleet.Zone, o.Fleet.Standby = "node", "zone", true
		o.Fleet.Rings = []string{"namespaces"}
		o.Metrics.DisabledMetrics = []string{"flotilla_shard_owned"}
		setNativeHistograms(t, true)
	}))
	elsewhere := []string{
		"Ranges", "Version", "Outside", // of controllers that are added one by one
		"Clock", "Memory", "Enforced", "Observe", // of the process
		"MetricPrefix", // the default
	}
	for i := range options.NumField() {
		name, value := options.Type().Field(i).Name, options.Field(i)
		if value.IsZero() != slices.Contains(elsewhere, name) {
			t.Errorf("%s is %v", name, value)
		}
	}
}

func setNativeHistograms(t *testing.T, to bool) {
	t.Helper()
	gates := utilfeature.DefaultFeatureGate
	featuregatetesting.SetFeatureGateDuringTest(t, gates, metricsfeatures.NativeHistograms, to)
}

// TestZeroIsNever: to the door 0 is its default, and to a flag it is 0.
func TestZeroIsNever(t *testing.T) {
	options := optionsOf(t, func(o *Options) {
		o.Fleet.GateDelay, o.Fleet.ReplanInterval, o.Fleet.RebalanceDelay = 0, 0, 0
	})
	for name, got := range map[string]time.Duration{
		"--gate-delay":      options.GateDelay,
		"--replan-interval": options.ReplanInterval,
		"--rebalance-delay": options.RebalanceDelay,
	} {
		if got != flotilla.Never {
			t.Errorf("%s 0 is %v", name, got)
		}
	}
}

// TestMetricsFollowUpstreamsFlags: component-base obeys these flags for what it makes, and a
// member's metrics are not among that.
func TestMetricsFollowUpstreamsFlags(t *testing.T) {
	for _, native := range []bool{true, false} {
		setNativeHistograms(t, native)
		off := []string{"flotilla_shard_owned"}
		got := optionsOf(t, func(o *Options) { o.Metrics.DisabledMetrics = off })
		if got.NativeHistograms != native || !slices.Equal(got.DisabledMetrics, off) {
			t.Errorf("with NativeHistograms %v: %+v", native, got)
		}
	}
}
