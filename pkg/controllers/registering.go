package controllers

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

// The stock controller manager builds each controller once. A process of a fleet builds one for
// each shard, and a constructor that registers its metrics every time would log an error from the
// second time on.
func init() {
	legacyregistry.Register = registerOnce(legacyregistry.Register)
}

// registerOnce ignores the error that the same metric is in the registry already. Another metric of
// its name is still an error.
func registerOnce(register func(metrics.Registerable) error) func(metrics.Registerable) error {
	return func(m metrics.Registerable) error {
		err := register(m)
		var already prometheus.AlreadyRegisteredError
		if errors.As(err, &already) && already.ExistingCollector == already.NewCollector {
			return nil
		}
		return err
	}
}
