//go:build unix

package app

import (
	"syscall"
	"time"
)

// processorTime returns the processor time that the process has used.
func processorTime() time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		return 0 // it fails only for wrong arguments
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
