// Command chaos makes things go wrong for a fleet under load, by a seeded schedule, and fails
// unless the fleet gets over all of it: real processes on a real control plane on this machine.
//
//	go run ./test/chaos [-seed N] [-rounds K | -minutes M] [-faults list] [-target fleet|stock]
//
// Each fault of the list comes once, and then they come at random for as long as -minutes says. A
// fault that does not hold makes the run a failure; it goes on as soon as the fleet is whole again,
// and a table in the end has all of them.
//
// A round is one fault. It begins with a fleet that is whole: every shard is held by a live member,
// every member is ready and holds something, and in every namespaced shard a canary moves: a
// ReplicaSet whose specification changes once a second, and whose status.observedGeneration says
// when its controller has seen that. The fault hits a replica that is at work, and says so. While
// it lasts, and after it, what must be true is waited for, with a limit: the others take over
// within the lease duration and a margin, nobody else loses a claim or ends, the fleet holds its
// leader lock in one term, the fleet is whole again. In the end the load stops, everything settles,
// the replicas leave, and the API server's audit log is judged by package audit.
//
// Some rounds have an operator do something with the flotilla command (split a shard, move
// controllers to a ring of their own, drain a member) and change the weather as soon as the fleet
// has begun with it: the API server is killed and started again, etcd stands still, a member is cut
// off. What was asked for must be done in the end, and the plan of before is put back. One round
// has two builds of different versions in the fleet: see make earlier.
//
// Between two rounds the machine is measured by package calibrate. How long handoffs, takeovers and
// the leader lock take is held against what is promised, with regard to that.
//
// The replicas have the leader lock that a member has by default: the Lease that a stock controller
// manager would lead by.
//
// The seed decides which fault comes when, and whom it hits among those at work; how the processes
// answer is up to the machine, so a seed repeats a schedule and not a run.
//
// Every replica reaches the API server through a proxy of its own on 127.0.0.1. TLS passes through
// it, except in storms of errors and ended watches, for which the proxy is the API server, under a
// certificate of the cluster's authority.
//
// With -target stock the same load, canaries and first faults are run on two replicas of
// kube-controller-manager, to compare latencies with.
//
// Exit status: 0 if everything held, 1 if something did not, 2 for wrong usage, 130 if it was
// interrupted. The working directory with all logs stays if something did not hold.
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
	// What the libraries log goes to a file.
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

// conclude says how it ended and removes the working directory if nobody will want to read it.
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
