// Cmd replays the writes of an audit log on a control plane, and prints the outcome as JSON. The
// objects with which the recorded work began must exist.
//
//	cmd -log audit.log -kubeconfig admin.yaml [-since 2026-01-02T15:04:05Z] [-workers 16] [-qps 20 -burst 30] [-events]
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/flotilla-kube/flotilla/test/bench/ceiling"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "ceiling:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	var o ceiling.Options
	log := flag.String("log", "", "the API server's audit log of the run, with objects")
	kubeconfig := flag.String("kubeconfig", "", "kubeconfig of the control plane to write to, of a user with all rights")
	since := flag.String("since", "", "when the work began in the recorded run, as RFC 3339; earlier requests do not count in the time")
	qps := flag.Float64("qps", 0, "requests per second of each controller; 0 for no limit")
	flag.IntVar(&o.Burst, "burst", 0, "burst of each controller, with -qps")
	flag.IntVar(&o.Workers, "workers", 16, "requests in flight")
	flag.BoolVar(&o.Events, "events", false, "also send Events")
	flag.Parse()
	if o.QPS = float32(*qps); *since != "" {
		at, err := time.Parse(time.RFC3339Nano, *since)
		if err != nil {
			return fmt.Errorf("-since %q: %w", *since, err)
		}
		o.Since = at
	}
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		return fmt.Errorf("-kubeconfig %q: %w", *kubeconfig, err)
	}
	in, err := os.Open(*log)
	if err != nil {
		return fmt.Errorf("-log: %w", err)
	}
	defer in.Close()
	recording, err := ceiling.Record(in)
	if err != nil {
		return err
	}
	outcome, err := recording.Replay(ctx, config, o)
	encoder := json.NewEncoder(os.Stdout)
	encoder.SetIndent("", "  ")
	return errors.Join(err, encoder.Encode(outcome))
}
