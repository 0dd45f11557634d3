package e2e

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/flotilla-kube/flotilla/test/controlplane"
	"github.com/flotilla-kube/flotilla/test/harness"
)

func TestMain(m *testing.M) { os.Exit(runTests(m)) }

func runTests(m *testing.M) (status int) {
	defer func() {
		if shared.plane == nil {
			return
		}
		if err := shared.plane.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, "Could not stop the shared control plane:", err)
			status = 1
		}
	}()
	return m.Run()
}

var shared struct {
	start sync.Once
	plane *controlplane.ControlPlane
	err   error
}

// sharedPlane returns a control plane for tests whose fleets need only Leases. Each fleet there has
// its own name and its own leader lock; only TestEndpoints has the default ones.
func sharedPlane(t *testing.T) *controlplane.ControlPlane {
	t.Helper()
	shared.start.Do(func() {
		shared.plane, shared.err = controlplane.Start(context.WithoutCancel(t.Context()), controlplane.Options{})
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.plane
}

// memberOf returns the Spec of a member of a fleet on the shared control plane.
func memberOf(fleetName, name string, flags ...string) harness.Spec {
	spec := harness.Member(name, append([]string{"--fleet-name=" + fleetName, "--leader-lock=lock-" + fleetName}, flags...)...)
	spec.Name = fleetName + "-" + name
	return spec
}
