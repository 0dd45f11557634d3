package cloud

import (
	"errors"
	"testing"

	"k8s.io/client-go/rest"
)

// TestConfigurationsAreRemembered checks that a constructor that asks again for what was there gets
// it, even if the service account cannot be read then.
func TestConfigurationsAreRemembered(t *testing.T) {
	var asked int
	away := true
	builder := configs(func(name string) (*rest.Config, error) {
		if asked++; away {
			return nil, errors.New("the server is away")
		}
		return &rest.Config{UserAgent: name}, nil
	}).remembering()
	if _, err := builder.Config("route-controller"); err == nil {
		t.Error("no error, though the server is away")
	}
	away = false
	first := builder.ConfigOrDie("route-controller")
	first.Host = "changed"
	away = true
	second := builder.ConfigOrDie("route-controller")
	if second.UserAgent != "route-controller" || second.Host != "" || asked != 2 {
		t.Errorf("got %+v after %d questions", second, asked)
	}
	if _, err := builder.Config("service-controller"); err == nil {
		t.Error("another name has the same answer")
	}
}
