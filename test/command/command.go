// Package command is shared by the long test programs as commands: the demo, chaos, the bench and
// conformance. They read flags, run until they are done or interrupted, and end with a status.
//
// It does not end the process's children. Package controlplane's reaper does that.
package command

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// Exit statuses besides 0.
const (
	Failed      = 1
	Usage       = 2
	Interrupted = 130
)

// Main parses the process's arguments, runs, and returns the exit status: that of run, 0 if help
// was requested, Usage if parse fails. The context of run ends with the first SIGINT or SIGTERM.
func Main[O any](name string, parse func(args []string, output io.Writer) (O, error), run func(context.Context, O) int) int {
	o, err := parse(os.Args[1:], os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		return Usage
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// A second signal ends the process at once; the control plane's reaper then ends what it has
	// started.
	context.AfterFunc(ctx, stop)
	return run(ctx, o)
}

// Pause waits for d, and reports whether ctx lasted that long.
func Pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
