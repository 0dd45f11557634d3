package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"

	"github.com/flotilla-kube/flotilla/test/command"
)

// The kernel kills isolate's children when the thread that started them ends. The main thread lasts as
// long as the process.
func init() { runtime.LockOSThread() }

func main() {
	os.Exit(command.Main("kubeadm", parseFlags, realMain))
}

type options struct {
	stages []string
	// clusters is how many clusters share the stages, at most.
	clusters int
	// stay waits for an interrupt after the last stage.
	stay bool
	// keep keeps the nodes' logs even if every check passed.
	keep bool
}

func parseFlags(args []string, output io.Writer) (options, error) {
	fs := flag.NewFlagSet("kubeadm", flag.ContinueOnError)
	fs.SetOutput(output)
	var o options
	names := stageNames()
	list := fs.String("stages", strings.Join(names, ","), "the stages to run, separated by commas; each cluster runs its own in this order")
	fs.IntVar(&o.clusters, "clusters", 2, "how many clusters, at the same time, share the stages")
	fs.BoolVar(&o.stay, "stay", false, "leave each cluster up after its last stage, until interrupted")
	fs.BoolVar(&o.keep, "keep", false, "keep the nodes' logs in "+logFolder+" even if everything holds")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	if fs.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	if o.clusters < 1 {
		return o, fmt.Errorf("-clusters %d: must be 1 or more", o.clusters)
	}
	for name := range strings.SplitSeq(*list, ",") {
		if name != "" && !slices.Contains(names, name) {
			return o, fmt.Errorf("-stages %q: must be one of %s", name, strings.Join(names, ", "))
		}
		if slices.Contains(o.stages, name) {
			return o, fmt.Errorf("-stages %q: is given twice", name)
		}
		if name != "" {
			o.stages = append(o.stages, name)
		}
	}
	return o, nil
}

func realMain(ctx context.Context, o options) int {
	if place := os.Getenv(insideVariable); place != "" {
		return inside(ctx, o, place)
	}
	return isolate(ctx, o)
}

// inside runs in the namespaces that isolate has made.
func inside(ctx context.Context, o options, place string) int {
	err := runStages(ctx, o, place)
	switch {
	case ctx.Err() != nil:
		fmt.Println("\nInterrupted.")
		return command.Interrupted
	case err != nil:
		fmt.Printf("\nFAILED %v\n", err)
		return command.Failed
	}
	fmt.Println("\nEverything held.")
	return 0
}

// runStages brings the cluster up, runs the stages, and prints how long each step took.
func runStages(ctx context.Context, o options, place string) (err error) {
	out := newPrinter(os.Stdout)
	defer out.table()
	c, err := newCluster(place, out)
	if err != nil {
		return err
	}
	defer c.close()
	if err := c.up(ctx); err != nil {
		return fmt.Errorf("up: %w", err)
	}
	for _, name := range o.stages {
		out.begin(name)
		if err = stageOf(name).run(ctx, c); err != nil {
			err = fmt.Errorf("%s: %w", name, err)
			if lost := c.keepState(); lost != nil {
				out.printf("the state of the cluster is not among the logs: %v", lost)
			}
			break
		}
	}
	if o.stay && ctx.Err() == nil {
		if err != nil {
			fmt.Println("FAILED", err)
		}
		fmt.Println("The cluster stays until it is interrupted.")
		<-ctx.Done()
	}
	return errors.Join(err, ctx.Err())
}
