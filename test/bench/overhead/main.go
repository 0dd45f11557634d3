// Command overhead measures what a member's instrumentation costs: the CPU of a loaded member with
// it and without, as a ratio, in one run on one machine.
//
//	make long RUN=overhead   # builds both binaries and runs this
//
// Two binaries of the same commit do the same work in turn, each alone as a fleet of one on the
// same control plane: bin/flotilla, and one built with the tag "bare", which has no fleet metrics,
// no events and no journal. The instrumented one is scraped and its status page is fetched during
// the work, as in production. The work is a number of objects, not of seconds, so that CPU-seconds
// can be compared. The first variant changes from round to round. The result is the median of the
// rounds' ratios, with their spread.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/flotilla-kube/flotilla/test/controlplane"
)

type options struct {
	rounds, namespaces, deployments int
	bare, profile                   string
	scrape                          time.Duration
}

func (o options) validate() error {
	var faults []error
	for name, value := range map[string]int{"rounds": o.rounds, "namespaces": o.namespaces, "deployments": o.deployments} {
		if value < 1 || value > 10_000 {
			faults = append(faults, fmt.Errorf("-%s %d: must be from 1 to 10000", name, value))
		}
	}
	if o.scrape < time.Second {
		faults = append(faults, fmt.Errorf("-scrape %v: must be at least 1s", o.scrape))
	}
	if _, err := os.Stat(o.bare); err != nil {
		faults = append(faults, fmt.Errorf("-bare %q: must be a binary built with -tags bare: %w", o.bare, err))
	}
	return errors.Join(faults...)
}

func main() {
	var o options
	flag.IntVar(&o.rounds, "rounds", 6, "how often each binary does the work")
	flag.IntVar(&o.namespaces, "namespaces", 20, "namespaces with the work")
	flag.IntVar(&o.deployments, "deployments", 300, "Deployments that are created, scaled twice and deleted in a round")
	flag.DurationVar(&o.scrape, "scrape", 15*time.Second, "how often the instrumented member is scraped")
	flag.StringVar(&o.bare, "bare", "bin/flotilla-bare", "the binary without instrumentation")
	flag.StringVar(&o.profile, "profile", "", "a file for a CPU profile of the last instrumented run, which shows where the cost is")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "overhead:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) (err error) {
	if err := o.validate(); err != nil {
		return err
	}
	plane, err := controlplane.Start(ctx, controlplane.Options{Nodes: 20, Scheduler: true, Log: os.Stderr})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, plane.Stop()) }()
	instrumented, err := plane.Binary("flotilla")
	if err != nil {
		return err
	}
	w, err := newWork(plane, o)
	if err != nil {
		return err
	}
	variants := []variant{{name: "with", binary: instrumented, scrape: o.scrape}, {name: "without", binary: o.bare}}
	// Unmeasured: the first run fills the API server's caches.
	if _, err := w.measure(ctx, variants[1], "warm-up"); err != nil {
		return fmt.Errorf("warming up: %w", err)
	}
	var ratios []float64
	fmt.Printf("%-6s %10s %10s %8s\n", "ROUND", "WITH", "WITHOUT", "RATIO")
	for round := range o.rounds {
		cpu := map[string]time.Duration{}
		order := slices.Clone(variants)
		if round%2 == 1 {
			slices.Reverse(order)
		}
		for _, v := range order {
			if cpu[v.name], err = w.measure(ctx, v, fmt.Sprintf("%s-%d", v.name, round)); err != nil {
				return fmt.Errorf("round %d, %s instrumentation: %w", round+1, v.name, err)
			}
		}
		ratio := cpu["with"].Seconds() / cpu["without"].Seconds()
		ratios = append(ratios, ratio)
		fmt.Printf("%-6d %9.2fs %9.2fs %8.3f\n", round+1, cpu["with"].Seconds(), cpu["without"].Seconds(), ratio)
	}
	slices.Sort(ratios)
	fmt.Printf("CPU of a loaded member with all instrumentation to without: median %.3f, from %.3f to %.3f in %d rounds of %d Deployments\n",
		median(ratios), ratios[0], ratios[len(ratios)-1], len(ratios), o.deployments)
	return nil
}

// median returns the median of sorted values.
func median(sorted []float64) float64 {
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}
