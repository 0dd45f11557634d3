package manager

import (
	"net/http"
	"testing"

	ctrlmanager "sigs.k8s.io/controller-runtime/pkg/manager"
)

// TestServersAreTheProcesses checks that what a shard's Manager would never serve is refused.
func TestServersAreTheProcesses(t *testing.T) {
	d := &deferringManager{}
	if d.AddHealthzCheck("a", nil) == nil || d.AddReadyzCheck("a", nil) == nil || d.AddMetricsServerExtraHandler("/a", http.NotFoundHandler()) == nil {
		t.Error("a check or a handler was accepted")
	}
}

// TestAnyOtherManagerOwnsEverything checks it because reconcilers are tested with such Managers.
func TestAnyOtherManagerOwnsEverything(t *testing.T) {
	var other struct{ ctrlmanager.Manager }
	if !Owns(other, "a") {
		t.Error("it owns nothing")
	}
}
