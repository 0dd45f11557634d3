// Command chaos injects faults into a fleet under load, by a seeded schedule, and fails unless the
// fleet recovers from all of them. It runs real processes on a real control plane on this machine.
//
//	go run ./test/chaos [-seed N] [-rounds K | -minutes M] [-faults list] [-target fleet|stock]
//
// Each fault of the list comes once, and then faults come at random for -minutes. A fault whose
// checks fail makes the run a failure. The run continues once the fleet is whole again, and ends
// with a table of all faults.
//
// A round is one fault. It begins with a whole fleet: a live member holds every shard, every member
// is ready and holds something, and in every namespaced shard a canary moves. A canary is a
// ReplicaSet whose specification changes once a second; its status.observedGeneration shows when
// its controller has seen the change. The fault hits a replica at work, and prints which. During
// and after it, each expectation has a time limit: others take over within the lease duration and a
// margin, nobody else loses a claim or ends, the fleet holds its leader lock in one term, and the
// fleet is whole again. At the end the load stops, everything settles, the replicas leave, and
// package audit judges the API server's audit log. If all faults only start and end processes of the
// fleet, no write may be late, in flight or undecided.
//
// In some rounds an operator runs the flotilla command (splits a shard, moves controllers to a ring
// of their own, drains a member), and a failure begins as soon as the fleet acts on it: the API
// server is killed and restarted, etcd pauses, or a member is cut off. The request must be carried
// out in the end, and the previous plan is restored. One round runs two builds of different
// versions in the fleet: see make earlier.
//
// Between two rounds package calibrate measures the machine. The bounds on handoffs, takeovers and
// the leader lock take its speed into account.
//
// The replicas have a member's default leader lock: the Lease of the stock controller manager.
//
// The seed decides which fault comes when, and which of the replicas at work it hits. How the
// processes respond depends on the machine, so a seed repeats a schedule and not a run.
//
// Every replica reaches the API server through its own proxy on 127.0.0.1. TLS passes through it.
// Only in storms of errors and ended watches does the proxy pose as the API server, with a
// certificate of the cluster's authority.
//
// With -target stock the same load, canaries and first faults run on two replicas of
// kube-controller-manager, to compare latencies.
//
// Exit status: 0 if all checks passed, 1 if one failed, 2 for wrong usage, 130 if interrupted. The
// working directory with all logs stays if a check failed.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/flotilla-kube/flotilla/test/command"
)

func main() {
	os.Exit(command.Main("chaos", parseFlags, realMain))
}

func realMain(ctx context.Context, opts options) int {
	if opts.seed == 0 {
		opts.seed = uint64(time.Now().UnixNano())
	}
	dir, err := workingDir(opts.dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		return command.Failed
	}
	fmt.Printf("seed %d, target %s, faults %v\nlogs in %s\n", opts.seed, opts.target, opts.faults, dir)
	err = runIn(ctx, opts, dir)
	return conclude(opts, dir, err)
}

func workingDir(dir string) (string, error) {
	if dir == "" {
		return os.MkdirTemp("", "flotilla-chaos-")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	return dir, os.MkdirAll(dir, 0o755)
}

func runIn(ctx context.Context, opts options, dir string) error {
	// The libraries log to a file.
	file, err := os.Create(filepath.Join(dir, "chaos.log"))
	if err != nil {
		return err
	}
	defer file.Close()
	klog.LogToStderr(false)
	klog.SetOutput(file)
	log.SetLogger(klog.Background())
	c, err := newChaos(opts, dir)
	if err != nil {
		return err
	}
	return c.Run(ctx)
}

// conclude prints the outcome and removes the working directory if it is not needed.
func conclude(opts options, dir string, err error) int {
	if err == nil && !opts.keep {
		err = os.RemoveAll(dir)
	}
	switch {
	case errors.Is(err, errInterrupted):
		fmt.Printf("Interrupted. Logs: %s\n", dir)
		return command.Interrupted
	case err != nil:
		fmt.Printf("\nFAILED with seed %d: %v\n\nLogs of all processes and the audit log: %s\n", opts.seed, err, dir)
		return command.Failed
	}
	fmt.Printf("\nEverything held, with seed %d.\n", opts.seed)
	return 0
}
