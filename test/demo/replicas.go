package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"

	"github.com/flotilla-kube/flotilla/test/controlplane"
	"github.com/flotilla-kube/flotilla/test/harness"
)

// replicas are the flotilla processes.
type replicas struct {
	cp   *controlplane.ControlPlane
	opts options
	// ended is called when a process ends that nobody has killed.
	ended func(error)

	mu        sync.Mutex
	processes map[string]*harness.Manager
	killed    map[string]bool
}

func newReplicas(cp *controlplane.ControlPlane, opts options, ended func(error)) *replicas {
	return &replicas{cp: cp, opts: opts, ended: ended, processes: map[string]*harness.Manager{}, killed: map[string]bool{}}
}

// start starts the replica of this name.
func (r *replicas) start(name string) error {
	spec := harness.Member(name,
		"--fleet-name="+fleetName,
		fmt.Sprintf("--shards=%d", r.opts.shards),
		fmt.Sprintf("--rebalance-delay=%v", rebalanceDelay),
		fmt.Sprintf("--leader-elect-lease-duration=%v", timing.LeaseDuration),
		fmt.Sprintf("--leader-elect-renew-deadline=%v", timing.RenewDeadline),
		fmt.Sprintf("--leader-elect-retry-period=%v", timing.RetryPeriod),
		"--v=2")
	spec.Grace = leaveLimit
	p, err := harness.Start(r.cp, spec)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.processes[name], r.killed[name] = p, false
	go r.watch(name, p)
	return nil
}

func (r *replicas) watch(name string, p *harness.Manager) {
	err := p.Wait()
	r.mu.Lock()
	killed := r.processes[name] == p && r.killed[name]
	r.mu.Unlock()
	if !killed {
		r.ended(fmt.Errorf("%s has ended by itself: %v, see %s", name, err, p.LogPath()))
	}
}

// kill kills the replica.
func (r *replicas) kill(name string) error {
	r.mu.Lock()
	p := r.processes[name]
	r.killed[name] = true
	r.mu.Unlock()
	if p == nil {
		return fmt.Errorf("kill %s: %w", name, os.ErrProcessDone)
	}
	return p.Kill()
}

// stop stops all replicas together, and returns an error if one of those that ran did not exit
// cleanly.
func (r *replicas) stop(ctx context.Context) error {
	r.mu.Lock()
	processes := maps.Clone(r.processes)
	for name, killed := range r.killed {
		if killed {
			delete(processes, name)
		}
		r.killed[name] = true
	}
	r.mu.Unlock()
	names := slices.Sorted(maps.Keys(processes))
	errs := make([]error, len(names))
	var group sync.WaitGroup
	for i, name := range names {
		group.Go(func() {
			errs[i] = processes[name].Leave(ctx)
		})
	}
	group.Wait()
	return errors.Join(errs...)
}
