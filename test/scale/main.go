package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/flotilla-kube/flotilla/test/command"
)

// options are the command's options.
type options struct {
	sizes    []int
	steps    []string
	idle     time.Duration
	outage   time.Duration
	patience time.Duration
	scrape   time.Duration
	perCrew  int
	out      string
	profiles bool
	keep     bool
	server   []string
	slower   int
}

// allSteps are the scenario's steps, in order. Joining is always first.
var allSteps = []string{"idle", "kill", "kill-tenth", "roll", "plan", "restart"}

func parse(args []string, output io.Writer) (options, error) {
	o := options{}
	fs := flag.NewFlagSet("scale", flag.ContinueOnError)
	fs.SetOutput(output)
	sizes := fs.String("members", "3,10,30,100", "sizes of the fleets, each of which runs through the scenario on a control plane of its own")
	steps := fs.String("steps", strings.Join(allSteps, ","), "steps of the scenario")
	fs.DurationVar(&o.idle, "idle", 30*time.Second, "for how long the idle fleet is measured")
	fs.DurationVar(&o.outage, "outage", 2*time.Second, "for how long the API server is not started again")
	fs.DurationVar(&o.patience, "patience", 4*time.Minute, "how long each condition is waited for")
	fs.DurationVar(&o.scrape, "scrape", 30*time.Second, "how often each member's metrics are read; 0 for never")
	fs.IntVar(&o.perCrew, "per-crew", 10, "how many members share a process")
	fs.IntVar(&o.slower, "slower", 0, "how many times as long as by default the lease duration, the renew deadline and the retry period are: for a machine that is too busy; 0 for 3 with more than 30 members and otherwise 1")
	fs.StringVar(&o.out, "out", filepath.Join("_output", "scale"), "folder of the results")
	fs.BoolVar(&o.profiles, "profiles", false, "write CPU profiles of the fleet while it comes together, while it is idle, and while its plan changes")
	fs.BoolVar(&o.keep, "keep", false, "keep the logs and data of the control plane, in that folder")
	server := fs.String("apiserver", "", "further flags of kube-apiserver, with spaces between them")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	for _, text := range strings.Split(*sizes, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 2 || n > 100 {
			return o, fmt.Errorf("-members: %q: must be from 2 to 100", text)
		}
		o.sizes = append(o.sizes, n)
	}
	for _, step := range strings.Split(*steps, ",") {
		if !slices.Contains(allSteps, step) {
			return o, fmt.Errorf("-steps: %q: must be among %v", step, allSteps)
		}
		o.steps = append(o.steps, step)
	}
	o.server = strings.Fields(*server)
	if o.slower < 0 {
		return o, fmt.Errorf("-slower: %d: must not be negative", o.slower)
	}
	if o.perCrew < 1 {
		return o, fmt.Errorf("-per-crew: %d: must be 1 or more", o.perCrew)
	}
	return o, nil
}

func main() {
	if text := os.Getenv(crewVariable); text != "" {
		if err := runCrew(text); err != nil {
			fmt.Fprintln(os.Stderr, "scale:", err)
			os.Exit(1)
		}
		return
	}
	os.Exit(command.Main("scale", parse, func(ctx context.Context, o options) int {
		if err := measureAll(ctx, o); err != nil {
			fmt.Fprintln(os.Stderr, "scale:", err)
			return command.Failed
		}
		return 0
	}))
}

// measureAll runs each size, and writes the results after each.
func measureAll(ctx context.Context, o options) error {
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return err
	}
	var results []result
	var errs []error
	for _, n := range o.sizes {
		r, err := runFleet(ctx, o, n)
		if err != nil {
			r.Fault = err.Error()
			errs = append(errs, fmt.Errorf("%d members: %w", n, err))
		}
		results = append(results, r)
		errs = append(errs, write(o.out, results))
		if ctx.Err() != nil {
			break
		}
	}
	fmt.Print("\n", markdown(results))
	return errors.Join(errs...)
}
