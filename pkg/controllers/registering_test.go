package controllers

import (
	"testing"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	replicasets "k8s.io/kubernetes/pkg/controller/replicaset/metrics"
)

// A constructor may register the same metrics for each instance, but not different ones under the
// same name.
func TestMetricsRegisteredAgain(t *testing.T) {
	for range 3 {
		if err := replicasets.Register(legacyregistry.Register); err != nil {
			t.Errorf("the ReplicaSet controller's metrics cannot be registered again: %v", err)
		}
	}
	register := registerOnce(metrics.NewKubeRegistry().Register)
	options := func(help string) *metrics.CounterOpts { return &metrics.CounterOpts{Name: "things_total", Help: help} }
	if err := register(metrics.NewCounter(options("Things."))); err != nil {
		t.Fatal(err)
	}
	for _, help := range []string{"Things.", "Other things."} {
		if err := register(metrics.NewCounter(options(help))); err == nil {
			t.Errorf("a second metric things_total (%q) was registered", help)
		}
	}
}
