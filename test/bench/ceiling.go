package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/flotilla-kube/flotilla/test/bench/ceiling"
	"github.com/flotilla-kube/flotilla/test/bench/result"
	"github.com/flotilla-kube/flotilla/test/bench/scenario"
	"github.com/flotilla-kube/flotilla/test/bench/system"
	"github.com/flotilla-kube/flotilla/test/controlplane"
)

// replayers is how many requests of a replay are in flight at a time, whatever the system.
const replayers = 16

// recording is what controllers wrote in a run by stock.
type recording struct {
	ceiling.Recording
	// since is when the work began, and out its outcome.
	since time.Time
	out   scenario.Outcome
}

// record makes stock do the job's work once, for all ceilings of the same work. Its figures are not
// kept.
func (b *bench) record(ctx context.Context, j job) error {
	key := j.recording()
	if _, found := b.recorded[key]; found {
		return nil
	}
	began := time.Now()
	j.system = result.System{Kind: result.Stock, Replicas: 1, Gate: j.system.Gate, Rate: recordedRate(j.system.Rate)}
	j.recorded = true
	err := b.onPlane(ctx, j, func(plane *controlplane.ControlPlane) (err error) {
		b.recorded[key], err = b.recordOn(ctx, j, plane)
		return err
	})
	if err != nil {
		delete(b.recorded, key)
		return fmt.Errorf("recording a run by stock: %w", err)
	}
	r := b.recorded[key]
	fmt.Printf("%s: recorded %d requests of stock's work, Events included, in %.0f s\n", key, r.Since(r.since), time.Since(began).Seconds())
	return nil
}

func (b *bench) recordOn(ctx context.Context, j job, plane *controlplane.ControlPlane) (r recording, err error) {
	err = b.withSystem(ctx, j, plane, func(work scenario.Scenario, env *scenario.Env, _ *system.Running, _ *servers) (err error) {
		r.since = time.Now()
		if r.out, err = work.Work(ctx, env); err != nil {
			return err
		}
		log, err := os.Open(plane.AuditLog())
		if err != nil {
			return err
		}
		defer log.Close()
		r.Recording, err = ceiling.Record(log)
		return err
	})
	return r, err
}

// replay sends the writes of the recording, and adds the outcome to the run.
func (b *bench) replay(ctx context.Context, j job, plane *controlplane.ControlPlane, run *result.Run) error {
	work, err := scenario.Named(j.scenario)
	if err != nil {
		return err
	}
	env, err := b.env(plane, j)
	if err != nil {
		return err
	}
	r := b.recorded[j.recording()]
	servers := &servers{plane: plane, client: env.Client}
	o := ceiling.Options{Since: r.since, Barriers: r.out.Began[1:], Workers: replayers}
	o.QPS, o.Burst = limits(j.system)
	o.Prepare = func(ctx context.Context) error {
		if err := work.Prepare(ctx, env); err != nil {
			return err
		}
		return work.Users(ctx, env)
	}
	o.Ready = func(ctx context.Context) error { return errors.Join(servers.quiet(ctx, true), servers.begin()) }
	out, err := r.Replay(ctx, plane.AdminConfig(), o)
	if err != nil {
		return err
	}
	idle, err := servers.end(run)
	if err != nil {
		return err
	}
	run.Bound, run.Seconds, run.Objects, run.RequestsByAll = bound(idle), out.Seconds, r.out.Objects, new(int64(out.Requests))
	for i, seconds := range out.Parts {
		run.Phases = append(run.Phases, result.Phase{Name: r.out.Phases[i].Name, Seconds: seconds})
	}
	if out.Failed > 0 {
		fmt.Printf("    %d of %d requests failed, %v %q\n", out.Failed, out.Prepared+out.Requests, out.Failures, out.Examples)
	}
	b.say("    of %d requests, %d before the work, %d were sent again; %d UIDs are unknown; by controller %v",
		out.Prepared+out.Requests, out.Prepared, out.Retries, out.Unmapped, out.Controllers)
	return nil
}

// limits are those of each controller in all processes of a system together; 0 means none.
func limits(s result.System) (qps float32, burst int) {
	if s.Rate == result.RateHigh {
		return 0, 0
	}
	return float32(system.DefaultQPS * s.Replicas), system.DefaultBurst * s.Replicas
}

// recording names the run by stock whose writes are replayed. Each rate has its own, because
// controllers with higher limits write status more often.
func (j job) recording() string {
	return j.scenario + sizes(j.params) + ", rate " + recordedRate(j.system.Rate)
}

// recordedRate is the recorded rate of stock: for one process, equal and default are the same.
func recordedRate(rate string) string {
	if rate == result.RateEqual {
		return result.RateDefault
	}
	return rate
}
