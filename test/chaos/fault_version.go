package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// versionFault begins a rolling upgrade of all members to another build and rolls back half-way.
// While the fleet has both versions, it also changes the plan. Nobody may notice: all that moves is
// handed over.
type versionFault struct {
	env *environment
	// changed are the members that run the other build.
	changed []*manager
	split   operation
}

// Begin implements fault.
func (f *versionFault) Begin(ctx context.Context) (expectation, error) {
	env := f.env
	earlier, err := env.earlier()
	if err != nil {
		return expectation{}, err
	}
	if _, err := env.loadedVictim(ctx); err != nil {
		return expectation{}, err
	}
	members := env.wanted()
	for _, m := range members[:(len(members)+1)/2] {
		m.use(earlier)
		f.changed = append(f.changed, m)
		if err := env.restart(ctx, m); err != nil {
			return expectation{}, err
		}
	}
	_, err = env.await(ctx, env.wholeLimit(), "members of both builds are at work", func(ctx context.Context) error {
		return errors.Join(env.mixed(members, len(f.changed)), env.spreadOut(), env.ready(ctx))
	})
	if err != nil {
		return expectation{}, err
	}
	env.out.printf("      %d members are %s, %d are %s", len(f.changed), env.journal.buildOf(members[0].member),
		len(members)-len(f.changed), env.journal.buildOf(members[len(members)-1].member))
	return expectation{progress: true}, f.replan(ctx)
}

// replan splits a shard, whose successors may belong to another build than its holder.
func (f *versionFault) replan(ctx context.Context) error {
	env := f.env
	f.split = &planChange{env: env, edit: splitShard}
	args, err := f.split.Command(ctx)
	if err != nil {
		return err
	}
	command, err := env.operate(args...)
	if err != nil {
		return err
	}
	if err := env.finished(ctx, command); err != nil {
		return err
	}
	_, plan, err := env.planNow(ctx)
	if err != nil {
		return err
	}
	env.adopt(plan)
	_, err = env.await(ctx, env.wholeLimit(), "members of both builds follow the plan", f.split.Done)
	return err
}

// End implements fault.
func (f *versionFault) End(ctx context.Context) error {
	var errs []error
	if f.split != nil {
		errs = append(errs, f.split.Undo(ctx))
	}
	for _, m := range f.changed {
		m.use("")
		errs = append(errs, f.env.restart(ctx, m))
	}
	return errors.Join(errs...)
}

// mixed returns nil if the last writes of the first members came from one build, and those of the
// others from another.
func (env *environment) mixed(members []*manager, changed int) error {
	builds := map[string]bool{}
	for i, m := range members {
		build, reference := env.journal.buildOf(m.member), members[0]
		if i >= changed {
			reference = members[changed]
		}
		if want := env.journal.buildOf(reference.member); build == "" || build != want {
			return fmt.Errorf("%s writes as %q, %s as %q", m.name, build, reference.name, want)
		}
		builds[build] = true
	}
	if len(builds) != 2 {
		return fmt.Errorf("all members write as %q: the other binary must be of another version", env.journal.buildOf(members[0].member))
	}
	return nil
}

// earlier returns the binary of another version.
func (env *environment) earlier() (string, error) {
	path := env.opts.earlier
	if path == "" {
		usual, err := env.cp.Binary(fleetName)
		if err != nil {
			return "", err
		}
		path = filepath.Join(filepath.Dir(usual), "earlier", fleetName)
	}
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("a binary of another version is needed: run 'make earlier' or give -earlier: %w", err)
	}
	return path, nil
}
