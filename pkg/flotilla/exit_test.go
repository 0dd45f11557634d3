package flotilla

import (
	"context"
	"os"
	"os/exec"
	"testing"
	"time"
)

// unread is set in the process that TestExitWithoutALog starts.
const unread = "FLOTILLA_TEST_UNREAD_LOG"

// TestExitWithoutALog checks that a process ends although nobody reads its log.
func TestExitWithoutALog(t *testing.T) {
	if os.Getenv(unread) != "" {
		_, _ = os.Stderr.Write(make([]byte, 1<<16)) // what a pipe holds
		exit("nobody reads the log")
		return
	}
	log, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	child := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestExitWithoutALog$")
	child.Env, child.Stderr = append(os.Environ(), unread+"=1"), write
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	write.Close()
	if err := child.Wait(); ctx.Err() != nil || err == nil {
		t.Errorf("the process ended with %v after at most a minute, want its exit status", err)
	}
}
