package app

import (
	"slices"
	"testing"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	metricsfeatures "k8s.io/component-base/metrics/features"
)

// TestMetricsFollowUpstreamsFlags: component-base obeys these flags for what it makes, and a member's
// metrics are not among that.
func TestMetricsFollowUpstreamsFlags(t *testing.T) {
	o, err := NewOptions()
	if err != nil {
		t.Fatal(err)
	}
	o.Fleet.Name, o.Metrics.DisabledMetrics = "bosun", []string{"flotilla_shard_owned"}
	for _, native := range []bool{true, false} {
		featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, metricsfeatures.NativeHistograms, native)
		got := metricsOptions(o)
		if got.NativeHistograms != native || got.Fleet != "bosun" || !slices.Equal(got.Disabled, o.Metrics.DisabledMetrics) {
			t.Errorf("with NativeHistograms %v: %+v", native, got)
		}
	}
}
