package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"regexp"
	"time"
)

type options struct {
	generate, short, disturb bool

	list, dir, out, binDir string
	only                   string
	runs, procs, members   int
	nodes                  int
	seed                   int64
	timeout                time.Duration
	once                   bool
}

// parseFlags returns the options, or an error that names the flag at fault. It prints usage to out.
func parseFlags(args []string, out io.Writer) (options, error) {
	var o options
	flags := flag.NewFlagSet("conformance", flag.ContinueOnError)
	flags.SetOutput(out)
	flags.BoolVar(&o.generate, "generate", false, "run all candidates with the stock controller manager, -runs times, and write the lists")
	flags.BoolVar(&o.short, "short", false, "run the short list, with the fleet only")
	flags.BoolVar(&o.disturb, "disturb", false, "run the list with the fleet only, while members are killed and restarted")
	flags.StringVar(&o.list, "list", "", "the list of specs to run (default: specs.txt or short.txt of -dir)")
	flags.StringVar(&o.dir, "dir", "test/conformance", "the folder of the lists")
	flags.StringVar(&o.out, "out", "_output/conformance", "the folder for reports and logs; each run replaces the files of the last")
	flags.StringVar(&o.binDir, "bin", "bin", "the folder of the binaries")
	flags.StringVar(&o.only, "only", "", "run only the specs of the list that match this regular expression")
	flags.IntVar(&o.runs, "runs", 0, "how many times to run everything (default: 1, for -generate 2)")
	flags.IntVar(&o.procs, "procs", 5, "how many specs run at a time; they wait most of their time")
	flags.IntVar(&o.members, "members", 3, "members of the fleet")
	flags.IntVar(&o.nodes, "nodes", 4, "simulated nodes")
	flags.Int64Var(&o.seed, "seed", 1, "the seed for the order of the specs and the schedule of -disturb")
	flags.DurationVar(&o.timeout, "timeout", 2*time.Hour, "how long one run of the suite may take")
	flags.BoolVar(&o.once, "once", false, "do not try again what failed")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	return o.complete()
}

func (o options) complete() (options, error) {
	var faults []error
	modes := 0
	for _, on := range []bool{o.generate, o.short, o.disturb} {
		if on {
			modes++
		}
	}
	if modes > 1 {
		faults = append(faults, errors.New("-generate, -short and -disturb exclude each other"))
	}
	if o.runs == 0 {
		o.runs = 1
		if o.generate {
			o.runs = 2
		}
	}
	for _, n := range []struct {
		name               string
		value, least, most int
	}{{"runs", o.runs, 1, 100}, {"procs", o.procs, 1, 64}, {"members", o.members, 1, 9}, {"nodes", o.nodes, 2, 100}} {
		if n.value < n.least || n.value > n.most {
			faults = append(faults, fmt.Errorf("-%s is %d, must be from %d to %d", n.name, n.value, n.least, n.most))
		}
	}
	if o.disturb && o.members < 2 {
		faults = append(faults, fmt.Errorf("-members is %d, -disturb needs at least 2", o.members))
	}
	if o.timeout < time.Minute {
		faults = append(faults, fmt.Errorf("-timeout is %v, must be at least 1m", o.timeout))
	}
	if _, err := regexp.Compile(o.only); err != nil {
		faults = append(faults, fmt.Errorf("-only: %w", err))
	}
	return o, errors.Join(faults...)
}
