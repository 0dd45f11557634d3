package integration

import (
	"context"
	"testing"
	"time"

	"github.com/flotilla-kube/flotilla/pkg/controllers"
	"github.com/flotilla-kube/flotilla/test/controlplane"
)

// TestBuiltInAPIsThatAreOff has an API server that lacks built-in kinds: it emulates a version
// without those that are new, as in the middle of an upgrade, and two APIs are turned off. With
// stock, the controllers that need them stay idle. No shard may wait for them.
func TestBuiltInAPIsThatAreOff(t *testing.T) {
	lacking, err := controlplane.Start(t.Context(), controlplane.Options{
		APIServerArgs: []string{"--emulated-version=1.36", "--runtime-config=policy/v1=false,autoscaling/v2=false"},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := lacking.Stop(); err != nil {
			t.Error(err)
		}
	})
	c, _ := newConfigFor(t, lacking)
	process, err := controllers.NewProcess(c, controllers.NewEndpoints())
	if err != nil {
		t.Fatal(err)
	}
	for _, spec := range specs(t, 2) {
		t.Run(spec.ID.String(), func(t *testing.T) {
			isRunning := make(chan struct{})
			spec.Running = func() { close(isRunning) }
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			i, err := process.Build(context.WithoutCancel(ctx), spec)
			if err != nil {
				t.Fatal(err)
			}
			if err := i.Warm(ctx); err != nil {
				t.Error(err)
			}
			if err := i.Refresh(ctx); err != nil {
				t.Error(err)
			}
			ended := make(chan error, 1)
			go func() { ended <- i.Run(ctx) }()
			select {
			case <-isRunning:
			case <-ctx.Done():
				t.Error("it does not count as running")
			}
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
}
