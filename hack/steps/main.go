package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // the second signal ends the process
	os.Exit(do(ctx, os.Args[1:], os.Stdout))
}

// do returns the exit status.
func do(ctx context.Context, args []string, out io.Writer) int {
	var rest []string
	if i := slices.Index(args, "--"); i >= 0 {
		args, rest = args[:i], args[i+1:]
	}
	if len(args) == 0 || args[0] == "help" {
		list(out)
		return 0
	}
	name, steps, err := choose(args)
	if err != nil {
		fmt.Fprintln(out, "steps:", err)
		return 2
	}
	root, err := os.Getwd()
	if err != nil {
		fmt.Fprintln(out, "steps:", err)
		return 1
	}
	r := runner{root: root, strict: os.Getenv("STRICT") == "1", screen: out, now: time.Now, missing: missing}
	began := time.Now()
	results := r.run(ctx, steps, rest)
	var text strings.Builder
	well := table(&text, name, results, time.Since(began))
	fmt.Fprintf(out, "\n%s", text.String())
	if err := keep(root, text.String()); err != nil {
		fmt.Fprintln(out, "steps:", err)
		return 1
	}
	if !well {
		return 1
	}
	return 0
}

// sets are the sets of steps with their own targets in the Makefile.
var sets = map[string]func() []step{"check": check, "test": test, "test-all": testAll}

// choose returns the steps of a set, or those of these names.
func choose(args []string) (name string, steps []step, err error) {
	if set, ok := sets[args[0]]; ok && len(args) == 1 {
		return args[0], set(), nil
	}
	steps, err = find(args)
	return strings.Join(args, " "), steps, err
}

// list prints every step with the sets it is in.
func list(out io.Writer) {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	for _, s := range all() {
		var in []string
		for _, name := range []string{"check", "test", "test-all"} {
			if slices.ContainsFunc(sets[name](), func(other step) bool { return other.name == s.name }) {
				in = append(in, name)
			}
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", s.name, strings.Join(in, ","), s.what)
	}
	_ = w.Flush()
}
