package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/test/controlplane"
	"github.com/flotilla-kube/flotilla/test/harness"
)

// operatorKinds are an operator's changes to a fleet, each with four kinds of failure that begin
// in the middle. The command must exit with status 0 and the fleet must end up as requested. The
// failure must hurt only what it hurts alone: a pause of etcd hurts nobody, a cut only the member
// that is cut off.
func operatorKinds() []faultKind {
	var kinds []faultKind
	for _, o := range []struct {
		name string
		make func(*environment) operation
	}{
		{"split", func(env *environment) operation { return &planChange{env: env, edit: splitShard} }},
		{"ring", func(env *environment) operation { return &planChange{env: env, edit: moveJobs} }},
		{"drain", func(env *environment) operation { return &drain{env: env} }},
	} {
		for _, b := range []struct {
			name string
			make func(*environment) fault
		}{
			{"restart", func(env *environment) fault { return &apiServerFault{env: env} }},
			{"stall", func(env *environment) fault { return &etcdFault{env: env, stall: pause} }},
			{"deadline", func(env *environment) fault { return &etcdFault{env: env, stall: deadline} }},
			{"cut", func(env *environment) fault { return &networkFault{env: env, mode: harness.Cut} }},
		} {
			kinds = append(kinds, faultKind{name: o.name + "-in-" + b.name, make: func(env *environment) fault {
				return &operatorFault{env: env, operation: o.make(env), failure: b.make(env)}
			}})
		}
	}
	return kinds
}

// operation is what an operator does with the flotilla command.
type operation interface {
	// Command decides what to do, and returns the arguments of the command that does it and waits
	// for it.
	Command(ctx context.Context) ([]string, error)
	// Begun receives the fleet's Leases, and reports whether they show that the operation has
	// begun.
	Begun(lease *coordinationv1.Lease) bool
	// Done returns nil once the fleet is as requested.
	Done(ctx context.Context) error
	// Undo reverts the operation.
	Undo(ctx context.Context) error
}

// operatorFault runs an operation and starts a failure while it is under way.
type operatorFault struct {
	env       *environment
	operation operation
	failure   fault
	// command is nil until it runs; storm is set once the failure has begun.
	command *controlplane.Process
	storm   bool
}

// Begin implements fault.
func (f *operatorFault) Begin(ctx context.Context) (expectation, error) {
	if err := f.start(ctx); err != nil {
		return expectation{}, err
	}
	f.storm = true
	return f.failure.Begin(ctx)
}

// start runs the command, and returns as soon as the Leases show that the fleet acts on it. At
// random that is the request, or the first Lease that changes hands.
func (f *operatorFault) start(ctx context.Context) error {
	env := f.env
	if _, err := env.loadedVictim(ctx); err != nil {
		return err
	}
	args, err := f.operation.Command(ctx)
	if err != nil {
		return err
	}
	signs := env.random.IntN(2)
	ctx, cancel := context.WithTimeout(ctx, env.opts.margin)
	defer cancel()
	watch, err := env.client.CoordinationV1().Leases(metav1.NamespaceSystem).Watch(ctx,
		metav1.ListOptions{LabelSelector: labels.Set{leaseapi.FleetLabel: fleetName}.String()})
	if err != nil {
		return err
	}
	defer watch.Stop()
	if f.command, err = env.operate(args...); err != nil {
		return err
	}
	s := signals{operation: f.operation, holders: map[string]string{}, after: signs}
	for {
		select {
		case event, ok := <-watch.ResultChan():
			lease, is := event.Object.(*coordinationv1.Lease)
			if !ok || !is {
				return fmt.Errorf("watching Leases: %v", event.Object)
			}
			if s.enough(lease) {
				env.out.printf("      the failure begins: the fleet has the request, and %d Leases have changed hands", signs)
				return nil
			}
		case <-f.command.Done():
			return fmt.Errorf("the command ended before the fleet had begun: %w, see %s", f.command.Wait(), f.command.LogPath())
		case <-ctx.Done():
			return fmt.Errorf("the fleet has not begun to act on it within %v, see %s", env.opts.margin, f.command.LogPath())
		}
	}
}

// signals reads an operation's progress from the Leases.
type signals struct {
	operation operation
	begun     bool
	holders   map[string]string
	after     int
}

// enough reports whether the operation has begun and the wanted number of shards have changed hands
// since.
func (s *signals) enough(lease *coordinationv1.Lease) bool {
	holder := ptr.Deref(lease.Spec.HolderIdentity, "")
	before, known := s.holders[lease.Name]
	s.holders[lease.Name] = holder
	switch {
	case !s.begun:
		s.begun = s.operation.Begun(lease)
	case lease.Labels[leaseapi.ShardLabel] != "" && (!known || before != holder):
		s.after--
	}
	return s.begun && s.after <= 0
}

// End implements fault.
func (f *operatorFault) End(ctx context.Context) error {
	var errs []error
	if f.storm {
		errs = append(errs, f.failure.End(ctx))
	}
	if f.command == nil {
		return errors.Join(errs...)
	}
	env, began := f.env, time.Now()
	errs = append(errs, env.finished(ctx, f.command))
	_, err := env.await(ctx, env.wholeLimit(), "what was asked for is done", func(ctx context.Context) error {
		return errors.Join(f.operation.Done(ctx), env.leaderLockHeld(began), env.journal.progressed(env.namespaces, began), env.ready(ctx))
	})
	if err == nil {
		env.out.printf("      done %.1f s after the failure", time.Since(began).Seconds())
	}
	return errors.Join(append(errs, err, wrap("taking it back", f.operation.Undo(ctx)))...)
}

// operate starts the flotilla command as an operator would. It talks to the API server directly,
// because the proxies are for members.
func (env *environment) operate(args ...string) (*controlplane.Process, error) {
	binary, err := env.cp.Binary(fleetName)
	if err != nil {
		return nil, err
	}
	env.out.printf("      flotilla %v", args)
	args = append(args, "--fleet-name="+fleetName)
	return env.cp.StartProcess("operator", binary, args, controlplane.WithEnv("KUBECONFIG="+env.cp.AdminKubeconfig()))
}

// finished returns nil if the command exits with status 0 within the time that the fleet may take.
func (env *environment) finished(ctx context.Context, p *controlplane.Process) error {
	_, err := env.await(ctx, env.wholeLimit(), "the operator's command ends", func(context.Context) error {
		select {
		case <-p.Done():
			return nil
		default:
			return fmt.Errorf("it runs, see %s", p.LogPath())
		}
	})
	if err != nil {
		return errors.Join(err, p.Kill())
	}
	if err := p.Wait(); err != nil {
		return fmt.Errorf("the operator's command ended with %w, see %s", err, p.LogPath())
	}
	return nil
}
