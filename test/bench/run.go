package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/metadata"

	"github.com/flotilla-kube/flotilla/pkg/shard"
	"github.com/flotilla-kube/flotilla/test/bench/data"
	"github.com/flotilla-kube/flotilla/test/bench/measure"
	"github.com/flotilla-kube/flotilla/test/bench/result"
	"github.com/flotilla-kube/flotilla/test/bench/scenario"
	"github.com/flotilla-kube/flotilla/test/bench/system"
	"github.com/flotilla-kube/flotilla/test/command"
	"github.com/flotilla-kube/flotilla/test/controlplane"
)

const (
	apiServer = "kube-apiserver"
	nodes     = "kwok"
	etcd      = "etcd"

	// cpuBound is the idle share of the machine below which the work was waiting for CPU.
	cpuBound = 0.15
	// serverLimit limits the wait for the API server to come to rest after its clients have filled
	// their caches.
	serverLimit = 2 * time.Minute
	// settling is longer than a member waits until it gives back the memory that its start has left
	// over (internal/app/heap). That takes a collection, which is not what rest costs.
	settling = 15 * time.Second
	// startProfile and workProfile are how long the start of a quiet system and the work of others
	// are profiled, if they are.
	startProfile, workProfile = 30 * time.Second, 10 * time.Second
)

// run makes one run. Failures are in the result.
func (b *bench) run(ctx context.Context, j job) result.Run {
	run := result.Run{Scenario: j.scenario, Params: j.params, System: j.system, Round: j.round}
	measure := b.measure
	if j.system.Kind == result.Ceiling {
		if err := b.record(ctx, j); err != nil {
			run.Failed = err.Error()
			return run
		}
		measure = b.replay
	}
	if err := b.onPlane(ctx, j, func(plane *controlplane.ControlPlane) error { return measure(ctx, j, plane, &run) }); err != nil {
		run.Failed = err.Error()
	}
	return run
}

// onPlane starts a control plane for the job, and stops it. It keeps the logs after a failure.
func (b *bench) onPlane(ctx context.Context, j job, do func(*controlplane.ControlPlane) error) (err error) {
	dir, err := os.MkdirTemp("", "flotilla-bench-")
	if err != nil {
		return err
	}
	policy := filepath.Join(dir, "audit.yaml")
	if err := os.WriteFile(policy, []byte(measure.AuditPolicy), 0o644); err != nil {
		return err
	}
	options := controlplane.Options{
		Dir: filepath.Join(dir, "plane"), ShardedListAndWatch: j.system.Gate, Nodes: b.nodes, Scheduler: !quietScenario(j.scenario),
		AuditObjects: j.recorded,
	}
	if !j.recorded {
		options.APIServerArgs = []string{"--audit-policy-file=" + policy}
	}
	if pods := j.params[scenario.Pods]; pods > 0 {
		if options.From, err = data.Make(ctx, data.Config{Dir: b.dir, Pods: pods, Nodes: b.nodes, Stock: b.stock, Log: os.Stdout}); err != nil {
			return err
		}
	}
	if j.scenario == scenario.IdleCost {
		options.Nodes = 0
	}
	plane, err := controlplane.Start(ctx, options)
	if err == nil {
		err = errors.Join(do(plane), plane.Stop())
	}
	if b.keep || err != nil && ctx.Err() == nil {
		fmt.Printf("logs are in %s\n", options.Dir)
		return errors.Join(err, os.RemoveAll(filepath.Join(options.Dir, "etcd")))
	}
	return errors.Join(err, os.RemoveAll(dir))
}

// step brings a system into a state.
type step struct {
	state string
	do    func(context.Context) error
}

// say prints a line with -v.
func (b *bench) say(format string, args ...any) {
	if b.verbose {
		fmt.Printf(format+"\n", args...)
	}
}

// ranges is how many ranges a fleet begins with: those that the planner would arrive at, so that
// nothing is left to balance if names are balanced; or 0, flotilla's default, if the planner should
// arrive at them.
func (b *bench) ranges(j job) int {
	switch {
	case j.params[scenario.Shards] > 0:
		return j.params[scenario.Shards]
	case b.balance:
		return 0
	default:
		return shard.DefaultLimits().ShardsPerMember * j.system.Replicas
	}
}

// start starts the system and returns when it is whole and its plan is even.
func (b *bench) start(ctx context.Context, j job, plane *controlplane.ControlPlane) (*system.Running, error) {
	running, err := system.Start(ctx, system.Config{
		Plane: plane, System: j.system, Stock: b.stock, Flotilla: b.flotilla, Shards: b.ranges(j),
		Standby: j.scenario == scenario.Chaos && j.system.Kind == result.Stock, RebalanceDelay: b.rebalanceDelay, Replan: j.scenario == scenario.Arrivals,
	})
	if err != nil {
		return nil, err
	}
	var beside sync.WaitGroup
	defer beside.Wait()
	var fault error
	if b.profile != "" && quietScenario(j.scenario) {
		beside.Go(func() { fault = running.Profile(ctx, b.profile, profileName(j)+"-start", startProfile) })
	}
	steps := []step{{"whole", running.Whole}}
	if b.balance && j.scenario != scenario.IdleCost {
		steps = append(steps, step{"even", running.Balance})
	}
	if quietScenario(j.scenario) {
		// Waiting for an even plan is not part of the start.
		steps = slices.Insert(steps, 1, step{"at rest", running.Quiet}, step{"looked at", running.Started}, step{"settled", settle})
	}
	for _, s := range steps {
		began := time.Now()
		if err := s.do(ctx); err != nil {
			return nil, errors.Join(err, running.Stop())
		}
		b.say("    %s is %s after %.1f s", system.Name(j.system), s.state, time.Since(began).Seconds())
	}
	if beside.Wait(); fault != nil {
		return nil, errors.Join(fault, running.Stop())
	}
	return running, nil
}

// profileName is how the names of a job's profiles begin.
func profileName(j job) string {
	gate := "on"
	if !j.system.Gate {
		gate = "off"
	}
	var sizes strings.Builder
	for _, name := range slices.Sorted(maps.Keys(j.params)) {
		fmt.Fprintf(&sizes, "-%s-%d", name, j.params[name])
	}
	return fmt.Sprintf("%s%s-gate-%s-%s-%s-%d", j.scenario, &sizes, gate, j.system.Rate, system.Name(j.system), j.round)
}

// settle waits for settling.
func settle(ctx context.Context) error {
	if !command.Pause(ctx, settling) {
		return context.Cause(ctx)
	}
	return nil
}

// measure makes a system do the work, and adds its figures to the run.
func (b *bench) measure(ctx context.Context, j job, plane *controlplane.ControlPlane, run *result.Run) error {
	return b.withSystem(ctx, j, plane, func(work scenario.Scenario, env *scenario.Env, running *system.Running, servers *servers) error {
		if b.profile != "" && j.scenario != scenario.Chaos { // which kills one
			work.Work = profiled(work.Work, j, running, b.profile)
		}
		if err := b.work(ctx, work, env, running, servers, run); err != nil {
			return err
		}
		b.addEmpty(run)
		if !quietScenario(j.scenario) {
			return nil
		}
		kinds, err := servers.kinds(ctx)
		run.Kinds = kinds
		return err
	})
}

// withSystem calls do when a system is ready for the work and at rest, and stops it.
func (b *bench) withSystem(ctx context.Context, j job, plane *controlplane.ControlPlane,
	do func(scenario.Scenario, *scenario.Env, *system.Running, *servers) error) (err error) {
	work, err := scenario.Named(j.scenario)
	if err != nil {
		return err
	}
	env, err := b.env(plane, j)
	if err != nil {
		return err
	}
	if work.Prepare != nil {
		if err := work.Prepare(ctx, env); err != nil {
			return fmt.Errorf("preparing: %w", err)
		}
	}
	servers := &servers{plane: plane, client: env.Client}
	if err := servers.quiet(ctx, j.scenario != scenario.IdleCost); err != nil {
		return err
	}
	if err := servers.countKinds(ctx); err != nil {
		return err
	}
	running, err := b.start(ctx, j, plane)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, running.Stop()) }()
	env.Ended = running.Ended
	env.Kill = func(ctx context.Context) error { return running.Kill(ctx, running.Victim(j.round)) }
	if work.Ready != nil {
		if err := work.Ready(ctx, env); err != nil {
			return fmt.Errorf("getting ready: %w", err)
		}
	}
	if err := running.Quiet(ctx); err != nil {
		return fmt.Errorf("%s is not at rest before the work: %w", j.system.Kind, err)
	}
	return do(work, env, running, servers)
}

// work does the work, and samples everything before and after.
func (b *bench) work(ctx context.Context, work scenario.Scenario, env *scenario.Env, running *system.Running, servers *servers, run *result.Run) error {
	leases, err := running.LeaseWrites()
	if err != nil {
		return err
	}
	spread, err := running.Spread(ctx, env.Namespaces())
	if err != nil {
		return err
	}
	before, err := running.Begin(ctx)
	if err != nil {
		return err
	}
	if err := servers.begin(); err != nil {
		return err
	}
	began := time.Now()
	out, err := work.Work(ctx, env)
	run.Seconds = time.Since(began).Seconds()
	run.Objects, run.Phases, run.Latency, run.LongestGap = out.Objects, out.Phases, out.Latency, out.LongestGap
	if err != nil {
		return err
	}
	idle, err := servers.end(run)
	if err != nil {
		return err
	}
	after, err := running.End(ctx)
	if err != nil {
		return err
	}
	run.Bound = bound(idle)
	run.Queue, run.Reconcile = system.Quantiles(before, after)
	run.RequestsByAll = new(system.Requests(before, after))
	all, err := running.LeaseWrites()
	if err != nil {
		return err
	}
	run.LeaseWrites = new(all - leases)
	if run.Processes, err = running.Figures(ctx, before, after); err != nil || spread == nil || len(env.Namespaces()) == 0 {
		return err
	}
	for i := range run.Processes {
		run.Processes[i].Namespaces = new(spread[run.Processes[i].Name])
	}
	return nil
}

// profiled returns work during which all processes write profiles to dir.
func profiled(work func(context.Context, *scenario.Env) (scenario.Outcome, error), j job, running *system.Running, dir string,
) func(context.Context, *scenario.Env) (scenario.Outcome, error) {
	return func(ctx context.Context, env *scenario.Env) (out scenario.Outcome, err error) {
		var fault error
		var beside sync.WaitGroup
		beside.Go(func() {
			d := workProfile
			if quietScenario(j.scenario) {
				d = time.Duration(env.Params[scenario.Seconds]) * time.Second
			}
			fault = running.Profile(ctx, dir, profileName(j), d)
		})
		out, err = work(ctx, env)
		beside.Wait()
		return out, errors.Join(err, fault)
	}
}

// bound says what the work waited for, by the idle share of the machine.
func bound(idle float64) string {
	if idle < cpuBound {
		return "cpu"
	}
	return "latency"
}

func (b *bench) env(plane *controlplane.ControlPlane, j job) (*scenario.Env, error) {
	client, err := newClient(plane)
	if err != nil {
		return nil, err
	}
	only, err := metadata.NewForConfig(plane.AdminConfig())
	if err != nil {
		return nil, err
	}
	prefix := "work" // besides the cluster's own
	if quietScenario(j.scenario) {
		prefix = data.Prefix
	}
	return scenario.NewEnv(scenario.Env{
		Prefix: prefix, Client: client, Metadata: only, Params: j.params, Plain: b.names == "plain", Limit: b.limit, Ended: func() error { return nil },
	}), nil
}
