package kubelet

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/probe"
	httpprobe "k8s.io/kubernetes/pkg/probe/http"
)

// verdict is the probes' result for a container.
type verdict struct {
	// begun: the startup probe has succeeded. ready: so has the readiness probe.
	begun, ready bool
	// fatal: the container must be ended, because of reason.
	fatal  bool
	reason string
}

// check probes a container once; nil is success.
type check func(ctx context.Context, p *corev1.Probe) error

// runProbes runs a container's probes until ctx ends, and sends each change of the verdict.
func runProbes(ctx context.Context, c *corev1.Container, look check, events chan<- verdict) {
	tell := func(v verdict) {
		select {
		case events <- v:
		case <-ctx.Done():
		}
	}
	if c.StartupProbe != nil {
		begun := false
		started, stop := context.WithCancel(ctx)
		watchProbe(started, c.StartupProbe, look, func(ok bool, err error) {
			if begun = ok; !ok {
				tell(verdict{fatal: true, reason: fmt.Sprintf("startup probe failed: %v", err)})
			}
			stop()
		})
		stop()
		if !begun {
			return
		}
	}
	var mu sync.Mutex
	v := verdict{begun: true, ready: c.ReadinessProbe == nil}
	tell(v)
	change := func(f func()) {
		mu.Lock()
		defer mu.Unlock()
		before := v
		if f(); v != before {
			tell(v)
		}
	}
	var probes sync.WaitGroup
	defer probes.Wait()
	if c.LivenessProbe != nil {
		probes.Go(func() {
			watchProbe(ctx, c.LivenessProbe, look, func(ok bool, err error) {
				if !ok {
					change(func() { v.fatal, v.reason = true, fmt.Sprintf("liveness probe failed: %v", err) })
				}
			})
		})
	}
	if c.ReadinessProbe != nil {
		probes.Go(func() {
			watchProbe(ctx, c.ReadinessProbe, look, func(ok bool, _ error) { change(func() { v.ready = ok }) })
		})
	}
}

// watchProbe probes until ctx ends, and reports the first result and each change. A result counts
// after as many equal ones in a row as its threshold requires.
func watchProbe(ctx context.Context, p *corev1.Probe, look check, report func(ok bool, err error)) {
	timer := time.NewTimer(time.Duration(p.InitialDelaySeconds) * time.Second)
	defer timer.Stop()
	row, last, known, said := int32(0), false, false, false
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		timer.Reset(time.Duration(max(1, p.PeriodSeconds)) * time.Second)
		err := look(ctx, p)
		if ctx.Err() != nil {
			return
		}
		ok := err == nil
		if ok != last {
			row = 0
		}
		row, last = row+1, ok
		threshold := max(1, p.FailureThreshold)
		if ok {
			threshold = max(1, p.SuccessThreshold)
		}
		if row >= threshold && (!known || said != ok) {
			known, said = true, ok
			report(ok, err)
		}
	}
}

// probe runs the container's probes against the pod's address.
func (c *container) probe(ctx context.Context, address string, events chan<- verdict) {
	prober := httpprobe.New(false)
	runProbes(ctx, c.spec, func(ctx context.Context, p *corev1.Probe) error {
		timeout := time.Duration(max(1, p.TimeoutSeconds)) * time.Second
		switch {
		case p.HTTPGet != nil:
			request, err := httpprobe.NewRequestForHTTPGetAction(p.HTTPGet, c.spec, address, "probe")
			if err != nil {
				return err
			}
			result, output, err := prober.Probe(request.WithContext(ctx), timeout)
			if err == nil && result != probe.Success && result != probe.Warning {
				err = errors.New(output)
			}
			return err
		case p.Exec != nil:
			ctx, cancel := context.WithTimeout(ctx, timeout)
			defer cancel()
			path, err := c.find(p.Exec.Command[0])
			if err != nil {
				return err
			}
			command := exec.CommandContext(ctx, path)
			c.apply(p.Exec.Command)(command)
			output, err := command.CombinedOutput()
			if err != nil {
				err = fmt.Errorf("%w: %s", err, output)
			}
			return err
		default:
			return errors.New("only httpGet and exec are supported")
		}
	}, events)
}
