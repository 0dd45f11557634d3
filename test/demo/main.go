// Command demo shows a fleet at work on this machine: a real control plane with simulated nodes,
// three replicas of flotilla that share the shards, a workload in 24 namespaces, and the loss and
// return of a replica. At the end the API server's audit log proves that the holder of each shard
// made every write.
//
//	go run ./test/demo [flags]     from the repository, after `make tools` and `make build`
//
// It prints each step with its time. On a terminal it shows what 'flotilla status' prints below the
// steps, redrawn in place, and what work is unfinished; elsewhere it prints the status after each
// step that moves shards. Then it keeps running until interrupted, for a look around with flotilla
// and kubectl; with -once it ends instead.
//
// Exit status: 0 if every step succeeded within its limit, 1 if one did not, 2 for wrong usage, 130
// if interrupted before the last step. If a step fails, its message says what was expected and what
// was seen, and the working directory with all logs stays.
//
// Decisions are pure functions with tests: progress.go, holders.go, proof.go. The rest waits for
// informers; nothing sleeps for a fixed time.
package main

import (
	"context"
	"fmt"
	"os"

	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/flotilla-kube/flotilla/test/command"
)

func main() {
	os.Exit(command.Main("demo", parseFlags, realMain))
}

func realMain(ctx context.Context, opts options) int {
	dir, err := os.MkdirTemp("", "flotilla-demo-")
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		return command.Failed
	}
	return report(dir, opts, run(ctx, opts, dir))
}

// report prints how the demo ended, removes the working directory unless somebody may want to read
// it, and returns the exit status.
func report(dir string, opts options, err error) int {
	interrupted := err == errInterrupted
	failed := err != nil && !interrupted
	switch {
	case failed:
		fmt.Printf("\nFAILED %v\n\nLogs of all processes and the audit log: %s\n", err, dir)
	case opts.keep:
		fmt.Printf("\nLogs of all processes and the audit log: %s\n", dir)
	default:
		if removeErr := os.RemoveAll(dir); removeErr != nil {
			fmt.Fprintln(os.Stderr, "demo:", removeErr)
		}
	}
	switch {
	case failed:
		return command.Failed
	case interrupted:
		fmt.Println("Interrupted.")
		return command.Interrupted
	default:
		return 0
	}
}

// quiet redirects the libraries' logs to a file, because they would tear the screen.
func quiet(path string) (*os.File, error) {
	file, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	klog.LogToStderr(false)
	klog.SetOutput(file)
	log.SetLogger(klog.Background())
	return file, nil
}
