package controllers

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/kubernetes/cmd/kube-controller-manager/app"
	kubectrlmgrconfig "k8s.io/kubernetes/pkg/controller/apis/config"

	"github.com/flotilla-kube/flotilla/pkg/controllers/queues"
)

// TestStartInterval checks that controllers begin an interval and its jitter after the process
// began, and at once in shards that come later. A controller that is told to stop does not wait.
func TestStartInterval(t *testing.T) {
	const interval = time.Minute
	synctest.Test(t, func(t *testing.T) {
		p := withFlags(func(c *kubectrlmgrconfig.KubeControllerManagerConfiguration) {
			c.Generic.ControllerStartInterval.Duration = interval
		})
		p.began = p.clock.Now()
		took := func(ctx context.Context) time.Duration {
			began := time.Now()
			pause(ctx, p.clock, p.startDelay())
			return time.Since(began)
		}
		stopped, cancel := context.WithCancel(t.Context())
		cancel()
		if d := took(stopped); d != 0 {
			t.Errorf("told to stop, it waited %v", d)
		}
		if d := took(t.Context()); d < interval || d > 2*interval {
			t.Errorf("with the process it began after %v, want %v to %v", d, interval, 2*interval)
		}
		time.Sleep(2 * interval)
		if d := took(t.Context()); d != 0 {
			t.Errorf("in a later shard it waited %v", d)
		}
	})
	if c := shareOf(withFlags(func(c *kubectrlmgrconfig.KubeControllerManagerConfiguration) {
		c.Generic.ControllerStartInterval.Duration = interval
	}).config.ComponentConfig, Spec{}); c.Generic.ControllerStartInterval.Duration != 0 {
		t.Errorf("upstream is told to sleep %v in each shard", c.Generic.ControllerStartInterval.Duration)
	}
	if d := withFlags(func(*kubectrlmgrconfig.KubeControllerManagerConfiguration) {}).startDelay(); d != 0 {
		t.Errorf("without the flag there is a delay of %v", d)
	}
}

// recording is a controller that records whether it was run with a context that had ended.
type recording struct {
	app.Controller
	ran, ended *bool
}

func (recording) Name() string { return "recording-controller" }
func (c recording) Run(ctx context.Context) {
	*c.ran, *c.ended = true, ctx.Err() != nil
	<-ctx.Done()
}

// TestIdle requires that, in a process that is told to leave it idle, a controller runs only at the
// end, to clean up.
func TestIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &Process{}
		p.Idle([]string{"recording-controller"})
		for name, i := range map[string]*Instance{"idle": {idle: p.idle}, "not idle": {}} {
			var ran, ended bool
			i.start, i.queues = func(context.Context) {}, queues.NewGroup("", "")
			i.controllers = []app.Controller{recording{ran: &ran, ended: &ended}}
			ctx, stop := context.WithCancel(t.Context())
			go i.grouped()[0].Run(ctx)
			synctest.Wait()
			if ran == (name == "idle") {
				t.Errorf("%s: it runs: %v", name, ran)
			}
			stop()
			synctest.Wait()
			if !ran || ended != (name == "idle") {
				t.Errorf("%s: in the end it was run: %v, with a context that had ended: %v", name, ran, ended)
			}
		}
	})
}
