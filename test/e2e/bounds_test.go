package e2e

import (
	"flag"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/flotilla-kube/flotilla/test/calibrate"
)

var strict = flag.Bool("strict", false, "compare handoffs and moves of the leader lock with what is promised, taking this machine's speed into account")

// calibrating is how long one measurement of the machine takes.
const calibrating = 3 * time.Second

// measured is how slow the machine has been, with -strict.
type measured struct{ machine calibrate.Machine }

// again measures the machine under its current load, and keeps the slower figures.
func (m *measured) again(t *testing.T, client kubernetes.Interface) {
	t.Helper()
	if !*strict {
		return
	}
	machine, err := calibrate.Measure(t.Context(), calibrating, calibrate.Writes(client))
	if err != nil {
		t.Fatal(err)
	}
	m.machine = m.machine.Slower(machine)
}

// require fails, with -strict, if a step took longer than promised and than the machine explains.
func (m *measured) require(t *testing.T, what string, took, promised time.Duration, steps int) {
	t.Helper()
	if !*strict {
		return
	}
	bound := calibrate.Bound{What: what, Promised: promised, Steps: steps, On: m.machine}
	t.Logf("%s: %v, %v", what, took.Round(time.Millisecond), bound)
	if err := bound.Check(took); err != nil {
		t.Error(err)
	}
}
