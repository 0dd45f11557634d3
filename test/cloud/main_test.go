package cloud

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/flotilla-kube/flotilla/test/cloud/provider"
	"github.com/flotilla-kube/flotilla/test/cloud/sky"
	"github.com/flotilla-kube/flotilla/test/controlplane"
	"github.com/flotilla-kube/flotilla/test/harness"
)

func TestMain(m *testing.M) {
	provider.MainIfAsked()
	os.Exit(m.Run())
}

// timings are short, but long enough for a busy machine.
var timings = []string{
	"--leader-elect-lease-duration=10s", "--leader-elect-renew-deadline=7s",
	"--leader-elect-retry-period=1s",
}

// newCluster returns a cluster of two nodes in a cloud of its own.
func newCluster(t *testing.T) *Cluster {
	t.Helper()
	plane := harness.StartPlane(t, controlplane.Options{})
	w, err := NewCluster(
		plane,
		sky.Options{ReadLatency: 10 * time.Millisecond, WriteLatency: 100 * time.Millisecond},
	)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	must(t, w.AddNodes(t.Context(), 2))
	return w
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// start starts a manager that must exit cleanly at the end of the test, unless it has been killed.
func (w *Cluster) start(t *testing.T, spec Spec) *harness.Manager {
	t.Helper()
	spec.Flags = append(append([]string{"-v=2"}, timings...), spec.Flags...)
	m, err := w.Start(spec)
	must(t, err)
	t.Cleanup(func() { m.Finish(t) })
	return m
}

// fleet starts all members at once and waits until each is ready.
func (w *Cluster) fleet(t *testing.T, count int, flags ...string) []*harness.Manager {
	t.Helper()
	var members []*harness.Manager
	for i := range count {
		members = append(members, w.member(t, fmt.Sprintf("member-%d", i), flags...))
	}
	for _, m := range members {
		harness.Eventually(t, harness.Patience, m.Name()+" is ready", m.Ready)
	}
	return members
}

func (w *Cluster) member(t *testing.T, name string, flags ...string) *harness.Manager {
	t.Helper()
	return w.start(
		t,
		Spec{Name: name, Kind: provider.Fleet, Config: provider.Config{Fenced: true}, Flags: flags},
	)
}

// judge fails the test for everything that the judge finds.
func (w *Cluster) judge(t *testing.T) {
	t.Helper()
	found, err := w.Judge(t.Context())
	must(t, err)
	for _, line := range found {
		t.Error(line)
	}
}

// callers returns how many calls each client has made.
func (w *Cluster) callers() map[string]int {
	counts := map[string]int{}
	for _, c := range w.Sky.Calls() {
		counts[c.Client]++
	}
	return counts
}
