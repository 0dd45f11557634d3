// Package garbage compares the garbage collectors of ranges and of the cluster with upstream's
// collector, on a real API server. It needs the binaries of `make tools`.
package garbage

import (
	"context"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"k8s.io/klog/v2"

	"github.com/flotilla-kube/flotilla/test/controlplane"
)

// plane is shared by all tests of the package. Only the tests collect garbage there.
var plane *controlplane.ControlPlane

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	klog.LogToStderr(false)
	var err error
	plane, err = controlplane.Start(context.Background(), controlplane.Options{ShardedListAndWatch: true})
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

var patience = flag.Duration("patience", 2*time.Minute, "limit of steps that take seconds on an idle machine")
