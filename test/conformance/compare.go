package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"github.com/flotilla-kube/flotilla/test/conformance/spec"
	"github.com/flotilla-kube/flotilla/test/conformance/verdict"
)

// compare runs the list with both systems, or with the fleet only, as often as requested.
func compare(ctx context.Context, o options) error {
	list, err := o.readList()
	if err != nil {
		return err
	}
	var errs []error
	for i := range o.runs {
		if o.runs > 1 {
			fmt.Printf("Run %d of %d\n", i+1, o.runs)
		}
		if err := compareOnce(ctx, o, list); err != nil {
			errs = append(errs, fmt.Errorf("run %d: %w", i+1, err))
		}
		if ctx.Err() != nil {
			break
		}
	}
	return errors.Join(errs...)
}

// readList returns the specs to run.
func (o options) readList() ([]string, error) {
	path := o.list
	switch {
	case path != "":
	case o.short:
		path = filepath.Join(o.dir, "short.txt")
	default:
		path = filepath.Join(o.dir, "specs.txt")
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	all, err := spec.ReadList(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	only := regexp.MustCompile(o.only)
	list := keep(all, only.MatchString)
	if len(list) == 0 {
		return nil, fmt.Errorf("-only %q: no spec of %s matches", o.only, path)
	}
	return list, nil
}

func compareOnce(ctx context.Context, o options, list []string) error {
	var stock *verdict.Run
	if !o.short && !o.disturb {
		run, err := runOn(ctx, o, "stock", list)
		if err != nil {
			return err
		}
		stock = &run
	}
	fleet, err := runOn(ctx, o, "fleet", list)
	if err != nil {
		return err
	}
	v := verdict.Judge(list, stock, fleet)
	fmt.Println()
	return errors.Join(v.Print(os.Stdout), o.write("result.json", v.WriteJSON), o.write("result.xml", v.WriteJUnit), v.Err())
}

// runOn runs the list on a fresh system.
func runOn(ctx context.Context, o options, name string, list []string) (_ verdict.Run, err error) {
	began := time.Now()
	s, err := startSystem(ctx, o, name, filepath.Join(o.out, name))
	if err != nil {
		return verdict.Run{}, err
	}
	defer func() {
		err = errors.Join(err, s.stop())
		if err == nil && len(s.members) > 0 {
			err = s.judge()
		}
	}()
	fmt.Printf("%s: ready after %.0f s, running %d specs, %d at a time; logs in %s\n",
		name, time.Since(began).Seconds(), len(list), o.procs, s.dir)
	run := s.runList
	if o.disturb {
		run = s.runDisturbed
	}
	r, err := run(ctx, list)
	if err != nil {
		return r, fmt.Errorf("%s: %w", name, err)
	}
	fmt.Printf("%s: %d of %d specs passed at the first try, in %.0f s\n", name, len(list)-len(r.Unpassed(list)), len(list), r.Took.Seconds())
	return r, nil
}

func (o options) write(name string, content func(io.Writer) error) error {
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return err
	}
	return writeFile(filepath.Join(o.out, name), content)
}
