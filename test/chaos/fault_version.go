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
	world *world
	// changed are the members that run the other build.
	changed []*manager
	split   operation
}

// Begin implements fault.
func (f *versionFault) Begin(ctx context.Context) (expectation, error) {
	w := f.world
	earlier, err := w.earlier()
	if err != nil {
		return expectation{}, err
	}
	if _, err := w.loadedVictim(ctx); err != nil {
		return expectation{}, err
	}
	members := w.wanted()
	for _, m := range members[:(len(members)+1)/2] {
		m.use(earlier)
		f.changed = append(f.changed, m)
		if err := w.restart(ctx, m); err != nil {
			return expectation{}, err
		}
	}
	_, err = w.await(ctx, w.wholeLimit(), "members of both builds are at work", func(ctx context.Context) error {
		return errors.Join(w.mixed(members, len(f.changed)), w.spreadOut(), w.ready(ctx))
	})
	if err != nil {
		return expectation{}, err
	}
	w.out.printf("      %d members are %s, %d are %s", len(f.changed), w.journal.buildOf(members[0].member),
		len(members)-len(f.changed), w.journal.buildOf(members[len(members)-1].member))
	return expectation{progress: true}, f.replan(ctx)
}

// replan splits a shard, whose successors may belong to another build than its holder.
func (f *versionFault) replan(ctx context.Context) error {
	w := f.world
	f.split = &planChange{world: w, edit: splitShard}
	args, err := f.split.Command(ctx)
	if err != nil {
		return err
	}
	command, err := w.operate(args...)
	if err != nil {
		return err
	}
	if err := w.finished(ctx, command); err != nil {
		return err
	}
	_, plan, err := w.planNow(ctx)
	if err != nil {
		return err
	}
	w.adopt(plan)
	_, err = w.await(ctx, w.wholeLimit(), "members of both builds follow the plan", f.split.Done)
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
		errs = append(errs, f.world.restart(ctx, m))
	}
	return errors.Join(errs...)
}

// mixed returns nil if the last writes of the first members came from one build, and those of the
// others from another.
func (w *world) mixed(members []*manager, changed int) error {
	builds := map[string]bool{}
	for i, m := range members {
		build, reference := w.journal.buildOf(m.member), members[0]
		if i >= changed {
			reference = members[changed]
		}
		if want := w.journal.buildOf(reference.member); build == "" || build != want {
			return fmt.Errorf("%s writes as %q, and %s as %q", m.name, build, reference.name, want)
		}
		builds[build] = true
	}
	if len(builds) != 2 {
		return fmt.Errorf("all members write as %q: the other binary must be of another version", w.journal.buildOf(members[0].member))
	}
	return nil
}

// earlier returns the binary of another version.
func (w *world) earlier() (string, error) {
	path := w.opts.earlier
	if path == "" {
		usual, err := w.cp.Binary(fleetName)
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
