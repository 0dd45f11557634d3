package integration

import (
	"context"
	"testing"

	"k8s.io/kubernetes/cmd/kube-controller-manager/names"

	"github.com/flotilla-kube/flotilla/pkg/controllers"
)

// TestStartIntervalHoldsUpNothing discards one instance and stops another, while their controllers
// would still wait for --controller-start-interval.
func TestStartIntervalHoldsUpNothing(t *testing.T) {
	c, _ := newConfig(t, "--controller-start-interval=1h")
	process, err := controllers.NewProcess(c, controllers.NewEndpoints())
	if err != nil {
		t.Fatal(err)
	}
	spec := controllers.Spec{Controllers: []string{names.DeploymentController, names.JobController}}
	given, err := process.Build(context.WithoutCancel(t.Context()), spec)
	if err != nil {
		t.Fatal(err)
	}
	closed, stopped := make(chan struct{}), make(chan struct{})
	go func() { given.Close(); close(closed) }()
	waitFor(t, "an instance to be given up", func() bool { return ended(closed) })
	r := start(t, process, spec)
	waitFor(t, "the caches", r.Informers().HasSynced)
	go func() { r.stop(); close(stopped) }()
	waitFor(t, "an instance to stop", func() bool { return ended(stopped) })
}

func ended(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}
