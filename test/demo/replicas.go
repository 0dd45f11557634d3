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
)

// replicas are the flotilla processes.
type replicas struct {
	cp   *controlplane.ControlPlane
	opts options
	// ended is called when a process ends that nobody has killed.
	ended func(error)

	mu        sync.Mutex
	processes map[string]*controlplane.Process
	killed    map[string]bool
}

func newReplicas(cp *controlplane.ControlPlane, opts options, ended func(error)) *replicas {
	return &replicas{cp: cp, opts: opts, ended: ended, processes: map[string]*controlplane.Process{}, killed: map[string]bool{}}
}

// start starts the replica of this name.
func (r *replicas) start(name string) error {
	binary, err := r.cp.Binary("flotilla")
	if err != nil {
		return fmt.Errorf("%w: run 'make build'", err)
	}
	port, err := controlplane.FreePort()
	if err != nil {
		return err
	}
	args := append(r.cp.ControllerManagerArgs(),
		"--fleet-name="+fleetName,
		"--member-name="+name,
		"--replan-interval=0s", // what moves is what the steps are about
		fmt.Sprintf("--shards=%d", r.opts.shards),
		fmt.Sprintf("--rebalance-delay=%v", rebalanceDelay),
		fmt.Sprintf("--leader-elect-lease-duration=%v", timing.LeaseDuration),
		fmt.Sprintf("--leader-elect-renew-deadline=%v", timing.RenewDeadline),
		fmt.Sprintf("--leader-elect-retry-period=%v", timing.RetryPeriod),
		fmt.Sprintf("--secure-port=%d", port),
		"--v=2",
	)
	p, err := r.cp.StartProcess(name, binary, args, controlplane.WithGrace(leaveLimit))
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.processes[name], r.killed[name] = p, false
	go r.watch(name, p)
	return nil
}

func (r *replicas) watch(name string, p *controlplane.Process) {
	err := p.Wait()
	r.mu.Lock()
	killed := r.processes[name] == p && r.killed[name]
	r.mu.Unlock()
	if !killed {
		r.ended(fmt.Errorf("%s has ended by itself: %v, see %s", name, err, p.LogPath()))
	}
}

// kill ends the replica without a warning.
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

// stop ends all replicas in good order, together, and returns an error if one of those that ran did not end so.
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
			p := processes[name]
			if errs[i] = p.Stop(ctx); errs[i] != nil {
				return
			}
			if err := p.Wait(); err != nil {
				errs[i] = fmt.Errorf("%s ended with %w, see %s", name, err, p.LogPath())
			}
		})
	}
	group.Wait()
	return errors.Join(errs...)
}

// states returns the states of the replicas that have been killed.
func (r *replicas) states() map[string]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	states := map[string]string{}
	for name, killed := range r.killed {
		if killed {
			states[name] = killedState
		}
	}
	return states
}
